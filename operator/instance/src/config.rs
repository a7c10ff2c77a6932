//! What a manager is told from outside, once, at its start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::layout;
use mainstay_core::rules::InstanceName;
use mainstay_store::{S3, Settings, SettingsError, Store};

/// Where Kubernetes tells every container how its API server is reached.
const API_SERVER_HOST: &str = "KUBERNETES_SERVICE_HOST";
const API_SERVER_PORT: &str = "KUBERNETES_SERVICE_PORT";

/// Ordinal of the instance that recovers the first data; the others are cloned from it.
const RECOVERING: u32 = 0;

/// Why the manager cannot know who it is.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// An environment variable is missing or not text.
    #[error("failed to read the environment variable {0}")]
    Missing(&'static str),
    /// An environment variable holds something else.
    #[error("failed to understand the environment variable {name}={value:?}: it must be {wanted}")]
    Invalid {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        wanted: &'static str,
    },
}

/// Everything that a manager is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the cluster.
    pub namespace: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of this instance, `<cluster>-<ordinal>`.
    pub instance: InstanceName,
    /// Ordinal of this instance.
    pub ordinal: u32,
    /// Host name under which the others reach this instance.
    pub host: String,
    /// Address of the pod: the admin port is bound to it, as MySQL takes no wildcard there.
    pub pod_ip: IpAddr,
    /// First server_id of the cluster.
    pub server_id_base: u32,
    /// Hash of the cluster's my.cnf, reported as it is.
    pub config_hash: String,
    /// The wish for which this instance recovers its data; it makes no empty data directory then.
    pub recovery: Option<String>,
    /// Files and directories.
    pub paths: Paths,
    /// Ports of this instance.
    pub ports: Ports,
    /// Where the managers of the other instances are.
    pub peers: Peers,
    /// Where the API server is; unknown outside of Kubernetes.
    pub api_server: Option<ApiServer>,
    /// `bind_address` of the client port.
    pub mysql_bind: String,
    /// Address on which gRPC and HTTP are served.
    pub bind: IpAddr,
    /// Programs of the image.
    pub programs: Programs,
    /// Times.
    pub timing: Timing,
    /// How the object store is reached.
    pub stores: Stores,
    /// Reap processes that lost their parent: the duty of PID 1, and wrong for anybody else.
    pub adopt_orphans: bool,
}

/// Files and directories; see [`layout`].
#[derive(Clone, Debug)]
pub struct Paths {
    /// Mount point of the data volume.
    pub volume: PathBuf,
    /// Sockets, pid file, rendered files; in memory.
    pub run: PathBuf,
    /// my.cnf of the cluster.
    pub config_file: PathBuf,
    /// Passwords of Mainstay's accounts.
    pub system_secret: PathBuf,
    /// Password of the DBA's account.
    pub root_secret: PathBuf,
    /// Password of the application's user.
    pub app_secret: PathBuf,
    /// Server certificate.
    pub server_tls: PathBuf,
    /// CAs of the gRPC clients.
    pub client_ca: PathBuf,
    /// What the first instance recovers its data with, while there is something to recover.
    pub recovery: PathBuf,
    /// Access to the object store, if there is one.
    pub store: PathBuf,
}

impl Paths {
    /// MySQL's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.volume.join("data")
    }

    /// Where a data directory is made, before it is renamed.
    #[must_use]
    pub fn data_init(&self) -> PathBuf {
        self.volume.join("data.init")
    }

    /// Where a data directory is deleted, after it was renamed.
    #[must_use]
    pub fn data_old(&self) -> PathBuf {
        self.volume.join("data.old")
    }

    /// Where a data directory stays that a rebuild has replaced, if it is wanted.
    #[must_use]
    pub fn data_former(&self) -> PathBuf {
        self.volume.join("data.former")
    }

    /// Binlogs that are being replayed while data are recovered.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.volume.join("data.replay")
    }

    /// The state file.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.volume.join("state")
    }

    /// The file that is given up when the disk is full.
    #[must_use]
    pub fn reserve(&self) -> PathBuf {
        self.volume.join("reserve")
    }

    /// MySQL's temporary files.
    #[must_use]
    pub fn tmp(&self) -> PathBuf {
        self.volume.join("tmp")
    }

    /// MySQL's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.run.join("mysqld.sock")
    }

    /// The rendered my.cnf.
    #[must_use]
    pub fn defaults(&self) -> PathBuf {
        self.run.join("my.cnf")
    }

    /// The init file; it holds passwords and exists only while mysqld starts.
    #[must_use]
    pub fn init_file(&self) -> PathBuf {
        self.run.join("init.sql")
    }

    /// The manager's own socket.
    #[must_use]
    pub fn manager_socket(&self) -> PathBuf {
        self.run.join("manager.sock")
    }
}

/// Where the managers of the other instances are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// At their host names.
    Names,
    /// At these addresses.
    Fixed {
        /// Address of each.
        addresses: BTreeMap<InstanceName, SocketAddr>,
        /// The name in their certificates.
        server_name: String,
    },
}

/// Where the API server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    /// Its address, or a name on some platforms.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Clients of MySQL.
    pub mysql: u16,
    /// MySQL's admin port.
    pub admin: u16,
    /// gRPC.
    pub grpc: u16,
    /// Probes and metrics.
    pub http: u16,
}

/// Programs of the MySQL image, with what has to come before their own arguments.
#[derive(Clone, Debug)]
pub struct Programs {
    /// mysqld.
    pub mysqld: Vec<OsString>,
    /// Appended to the arguments of mysqld.
    pub mysqld_args: Vec<OsString>,
    /// `mysql_tzinfo_to_sql`.
    pub tzinfo: Vec<OsString>,
    /// The image's time zones.
    pub zoneinfo: PathBuf,
}

/// How the object store is reached.
#[derive(Clone)]
pub enum Stores {
    /// As the settings say.
    S3,
    /// Whatever they say, it is this one; for tests.
    Fixed(Arc<dyn Store>),
}

impl Stores {
    /// The store of these settings; it is not asked yet.
    pub async fn open(&self, settings: Settings) -> Result<Arc<dyn Store>, SettingsError> {
        match self {
            Self::S3 => Ok(Arc::new(S3::new(settings).await?)),
            Self::Fixed(store) => Ok(Arc::clone(store)),
        }
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::S3 => "S3",
            Self::Fixed(_) => "Fixed(..)",
        })
    }
}

/// Times of the manager.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A status is sent at least this often.
    pub heartbeat: Duration,
    /// Between two samples while a change is expected.
    pub busy_sample: Duration,
    /// Between two looks at mounted files.
    pub files: Duration,
    /// How long a clean shutdown waits for `super_read_only` before it kills (decision A1).
    pub read_only: Duration,
    /// How long a shutdown waits for the end of the binlog to be stored.
    pub finish_archive: Duration,
    /// How long nothing is stored before the archive says that nothing was there to store.
    pub archive_idle: Duration,
    /// How long mysqld may take to end after SIGTERM, before it is killed.
    pub shutdown: Duration,
    /// An instance of which nothing was heard for this long is pinged.
    pub ping: Duration,
    /// An instance that hears nobody for this long fences itself (decision B14).
    pub fencing: Duration,
    /// An open primary of which no answer, or no commit, comes for this long is killed (rule 2 c).
    pub stall: Duration,
    /// The same for a server that nobody could take over from, or need not: it is killed because a new one may answer.
    pub stall_unneeded: Duration,
    /// Commits that do not end are put down to a large transaction for so long, if the disk writes without pause.
    pub busy_disk: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(500),
            busy_sample: Duration::from_millis(50),
            files: Duration::from_secs(1),
            read_only: Duration::from_secs(3),
            finish_archive: Duration::from_secs(2),
            archive_idle: Duration::from_mins(1),
            shutdown: Duration::from_mins(4),
            ping: Duration::from_secs(1),
            fencing: Duration::from_secs(10),
            stall: Duration::from_secs(2),
            stall_unneeded: Duration::from_secs(10),
            busy_disk: Duration::from_mins(1),
        }
    }
}

impl Config {
    /// The configuration of a manager in its container.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Self, ConfigError> {
        let get = |name| {
            lookup(name)
                .filter(|value| !value.is_empty())
                .ok_or(ConfigError::Missing(name))
        };
        let (namespace, cluster) = (get(layout::env::NAMESPACE)?, get(layout::env::CLUSTER)?);
        let instance = get(layout::env::INSTANCE)?;
        let ordinal = ordinal(&cluster, &instance)?;
        let pod_ip = parse(layout::env::POD_IP, &get(layout::env::POD_IP)?, "an IP address")?;
        let server_id_base = parse(
            layout::env::SERVER_ID_BASE,
            &get(layout::env::SERVER_ID_BASE)?,
            "a number",
        )?;
        let host = lookup(API_SERVER_HOST).filter(|host| !host.is_empty());
        let port = lookup(API_SERVER_PORT).and_then(|port| port.parse().ok());
        Ok(Self {
            host: host_name(&instance, &cluster, &namespace),
            peers: Peers::Names,
            api_server: host.zip(port).map(|(host, port)| ApiServer { host, port }),
            namespace,
            cluster,
            instance: InstanceName(instance),
            ordinal,
            pod_ip,
            server_id_base,
            config_hash: lookup(layout::env::CONFIG_HASH).unwrap_or_default(),
            recovery: lookup(layout::env::RECOVERY).filter(|wish| !wish.is_empty() && ordinal == RECOVERING),
            paths: Paths::in_container(),
            ports: Ports {
                mysql: layout::PORT_MYSQL,
                admin: layout::PORT_ADMIN,
                grpc: layout::PORT_GRPC,
                http: layout::PORT_HTTP,
            },
            mysql_bind: "*".to_owned(),
            bind: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            programs: Programs::in_container(),
            timing: Timing::default(),
            stores: Stores::S3,
            adopt_orphans: std::process::id() == 1,
        })
    }

    /// The host name of another instance.
    #[must_use]
    pub fn host_of(&self, instance: &InstanceName) -> String {
        host_name(&instance.0, &self.cluster, &self.namespace)
    }

    /// This instance's server_id.
    #[must_use]
    pub const fn server_id(&self) -> u32 {
        self.server_id_base.saturating_add(self.ordinal)
    }

    /// Where gRPC is served.
    #[must_use]
    pub const fn grpc_addr(&self) -> SocketAddr {
        SocketAddr::new(self.bind, self.ports.grpc)
    }

    /// Where probes are served.
    #[must_use]
    pub const fn http_addr(&self) -> SocketAddr {
        SocketAddr::new(self.bind, self.ports.http)
    }
}

/// Never a full domain: the cluster's domain is nobody's business (case F04).
fn host_name(instance: &str, cluster: &str, namespace: &str) -> String {
    format!("{instance}.{cluster}-instances.{namespace}.svc")
}

impl Paths {
    pub(crate) fn in_container() -> Self {
        Self {
            volume: layout::VOLUME.into(),
            run: layout::RUN_DIR.into(),
            config_file: layout::CONFIG_FILE.into(),
            system_secret: layout::SYSTEM_SECRET_DIR.into(),
            root_secret: layout::ROOT_SECRET_DIR.into(),
            app_secret: layout::APP_SECRET_DIR.into(),
            server_tls: layout::SERVER_TLS_DIR.into(),
            client_ca: layout::CLIENT_CA_DIR.into(),
            recovery: layout::RECOVERY_DIR.into(),
            store: layout::STORE_DIR.into(),
        }
    }
}

impl Programs {
    pub(crate) fn in_container() -> Self {
        Self {
            mysqld: vec!["mysqld".into()],
            mysqld_args: Vec::new(),
            tzinfo: vec!["mysql_tzinfo_to_sql".into()],
            zoneinfo: "/usr/share/zoneinfo".into(),
        }
    }
}

/// The ordinal in the name of an instance of a cluster.
fn ordinal(cluster: &str, instance: &str) -> Result<u32, ConfigError> {
    let digits = instance
        .strip_prefix(cluster)
        .and_then(|rest| rest.strip_prefix('-'))
        .unwrap_or_default();
    parse(
        layout::env::INSTANCE,
        digits,
        "the cluster's name, a hyphen and a number",
    )
    .map_err(|error| match error {
        ConfigError::Invalid { name, wanted, .. } => ConfigError::Invalid {
            name,
            value: instance.to_owned(),
            wanted,
        },
        other @ ConfigError::Missing(_) => other,
    })
}

fn parse<T: std::str::FromStr>(name: &'static str, value: &str, wanted: &'static str) -> Result<T, ConfigError> {
    value.parse().map_err(|_unparsable| ConfigError::Invalid {
        name,
        value: value.to_owned(),
        wanted,
    })
}

/// The ordinal of an instance of any cluster: what follows the last hyphen.
#[must_use]
pub fn ordinal_of(instance: &InstanceName) -> Option<u32> {
    instance.0.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &'static str) -> Option<String> {
        let value = match name {
            layout::env::NAMESPACE => "prod",
            layout::env::CLUSTER => "shop-2",
            layout::env::INSTANCE => "shop-2-1",
            layout::env::POD_IP => "fd00::7",
            layout::env::SERVER_ID_BASE => "1200",
            layout::env::CONFIG_HASH => "abcd",
            API_SERVER_HOST => "fd00:10:96::1",
            API_SERVER_PORT => "443",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn f04_what_the_environment_says() {
        let config = Config::from_lookup(lookup).unwrap();
        assert_eq!((config.ordinal, config.server_id()), (1, 1201));
        assert_eq!(config.host, "shop-2-1.shop-2-instances.prod.svc");
        assert_eq!(config.grpc_addr().to_string(), "[::]:8443");
        assert!(config.pod_ip.is_ipv6());
        assert_eq!(
            config.host_of(&InstanceName("shop-2-0".to_owned())),
            "shop-2-0.shop-2-instances.prod.svc"
        );
        let api_server = ApiServer {
            host: "fd00:10:96::1".to_owned(),
            port: 443,
        };
        assert_eq!(config.api_server, Some(api_server));
        let outside = Config::from_lookup(|name| lookup(name).filter(|_| name != API_SERVER_PORT));
        assert_eq!(outside.unwrap().api_server, None);
    }

    #[test]
    fn only_the_first_instance_recovers() {
        let recovering = |instance: &'static str| {
            let lookup = move |name| match name {
                layout::env::INSTANCE => Some(instance.to_owned()),
                layout::env::RECOVERY => Some("wish".to_owned()),
                name => lookup(name),
            };
            Config::from_lookup(lookup).unwrap().recovery
        };
        assert_eq!(recovering("shop-2-0").as_deref(), Some("wish"));
        assert_eq!(recovering("shop-2-1"), None);
        assert_eq!(Config::from_lookup(lookup).unwrap().recovery, None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for name in [layout::env::NAMESPACE, layout::env::POD_IP, layout::env::SERVER_ID_BASE] {
            let error = Config::from_lookup(|wanted| lookup(wanted).filter(|_| wanted != name)).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        let other = |name| {
            if name == layout::env::INSTANCE {
                Some("other-1".to_owned())
            } else {
                lookup(name)
            }
        };
        assert!(Config::from_lookup(other).unwrap_err().to_string().contains("other-1"));
    }
}
