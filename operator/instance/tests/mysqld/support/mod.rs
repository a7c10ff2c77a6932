//! Managers with a real mysqld, without Kubernetes.
//!
//! `MAINSTAY_TEST_MYSQL` names the root filesystem of a MySQL image. mysqld is started by that filesystem's own loader,
//! so nothing has to be installed or mounted.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::action::{Application, Endpoint, InstanceCommand, Recorded, Verb};
use mainstay_core::layout;
use mainstay_core::observed::{InstanceReport, Mysqld};
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};
use mainstay_instance::client::{ClientTls, InstanceClient, connect};
use mainstay_instance::config::{Paths, Peers, Ports, Programs, Stores, Timing};
use mainstay_instance::convert::{Outcome, Reply};
use mainstay_instance::{Config, Manager};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};

pub(crate) mod apiserver;
pub(crate) mod archived;
pub(crate) mod content;
pub(crate) mod disk;
pub(crate) mod everything;
mod files;
mod node;
pub(crate) mod pod;
pub(crate) mod raw;
pub(crate) mod store;
pub(crate) mod stuck;
mod template;
pub(crate) mod volume;
pub(crate) mod wire;

use files::{ca, leaf, leaf_for, my_cnf, programs};
pub(crate) use files::{fast_directory, free_port, write};

/// A test fails when what it waits for has not come after this long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Passwords with everything that a quoting path can stumble over (case F11).
pub(crate) const MANAGER: &str = "'\"\\$#<>%@:/?& ;*m";
pub(crate) const REPLICATION: &str = "r'\"\\$#<>%@:/?& ;*";
pub(crate) const CLONE: &str = "'c'\\';\"";
pub(crate) const MONITOR: &str = ";m`";
pub(crate) const ROOT: &str = "\\'r00t\"% ";
pub(crate) const APP: &str = "a;*/'--#pp";

use wire::Wire;

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// A cluster's worth of certificates, and the managers.
pub(crate) struct Cluster {
    pub(crate) dir: tempfile::TempDir,
    own_ca: Issuer,
    operator_ca: Issuer,
    pub(crate) nodes: Vec<Node>,
    pub(crate) epoch: u64,
    /// From one instance to another: gRPC and MySQL's admin port.
    wires: std::collections::BTreeMap<(usize, usize), (Wire, Wire)>,
    /// From the operator to each instance.
    operator_wires: Vec<Wire>,
}

/// An instance: its files, its manager while it runs, and the operator's connection to it.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) manager: Option<Manager>,
    /// Where the operator reaches it, if that is not where it serves.
    reached_at: Option<std::net::SocketAddr>,
    client: Option<InstanceClient>,
    tls: ClientTls,
    seq: u64,
}

impl Cluster {
    /// Files for this many instances; nothing runs.
    pub(crate) fn prepare(instances: u32) -> Self {
        let dir = tempfile::tempdir_in(files::fast_directory()).unwrap();
        let (own_ca, operator_ca) = (ca("cluster"), ca("operator"));
        let mut cluster = Self {
            dir,
            own_ca,
            operator_ca,
            nodes: Vec::new(),
            epoch: 1,
            wires: std::collections::BTreeMap::new(),
            operator_wires: Vec::new(),
        };
        cluster.nodes = (0..instances).map(|ordinal| cluster.node(ordinal)).collect();
        let addresses: std::collections::BTreeMap<_, _> = cluster
            .nodes
            .iter()
            .map(|node| (node.config.instance.clone(), node.grpc()))
            .collect();
        for node in &mut cluster.nodes {
            node.config.peers = Peers::Fixed {
                addresses: addresses.clone(),
                server_name: "localhost".to_owned(),
            };
        }
        cluster
    }

    /// Instances that answer.
    pub(crate) async fn start(instances: u32) -> Self {
        let mut cluster = Self::prepare(instances);
        cluster.start_all().await;
        cluster
    }

    /// Starts all instances, with data directories as they had made them, and waits until they answer.
    pub(crate) async fn start_all(&mut self) {
        for node in &mut self.nodes {
            template::copy_to(&node.config.paths.volume).await;
            node.start().await;
        }
        for node in &mut self.nodes {
            node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
        }
    }

    /// An open primary (0) with the others attached as members.
    pub(crate) async fn bootstrap(instances: u32) -> Self {
        let mut cluster = Self::start(instances).await;
        cluster.make_primary(0).await;
        cluster
    }

    /// As a power cut of all nodes: the end of every test.
    pub(crate) async fn cut(&mut self) {
        for node in &mut self.nodes {
            node.cut().await;
        }
    }

    /// Replicas that receive nothing any more, so that commits wait.
    pub(crate) async fn stop_receivers(&self, nodes: &[usize]) {
        for node in nodes {
            let mut inside = self.nodes[*node].inside().await;
            inside.query_drop(stop_receiver()).await.unwrap();
        }
    }

    /// The same with wires between all instances, and with the operator; who hears nobody for `fencing` fences itself.
    pub(crate) async fn wired(instances: u32, fencing: Duration, change: impl Fn(&mut Config)) -> Self {
        let mut cluster = Self::prepare(instances);
        cluster.lay_wires().await;
        for node in &mut cluster.nodes {
            node.config.timing.fencing = fencing;
            node.config.timing.ping = fencing / 10;
            change(&mut node.config);
        }
        cluster.start_all().await;
        cluster.make_primary(0).await;
        cluster
    }

    async fn lay_wires(&mut self) {
        let servers: Vec<_> = self.nodes.iter().map(|node| (node.grpc(), node.admin())).collect();
        for from in 0..self.nodes.len() {
            let mut addresses = std::collections::BTreeMap::new();
            for (to, (grpc, admin)) in servers.iter().enumerate().filter(|(to, _)| *to != from) {
                let pair = (Wire::to(*grpc).await, Wire::to(*admin).await);
                addresses.insert(self.nodes[to].config.instance.clone(), pair.0.address);
                self.wires.insert((from, to), pair);
            }
            self.nodes[from].config.peers = Peers::Fixed {
                addresses,
                server_name: "localhost".to_owned(),
            };
            let operator = Wire::to(servers[from].0).await;
            self.nodes[from].reached_at = Some(operator.address);
            self.operator_wires.push(operator);
        }
    }

    /// The wire on which `node` follows `source`.
    pub(crate) fn replication(&self, node: usize, source: usize) -> &Wire {
        &self.wires[&(node, source)].1
    }

    /// Cuts an instance off from all others, and from the operator.
    pub(crate) fn isolate(&self, node: usize) {
        self.operator_wires[node].cut();
        for ((from, to), (grpc, admin)) in &self.wires {
            if *from == node || *to == node {
                grpc.cut();
                admin.cut();
            }
        }
    }

    /// The operator does not reach this instance any more.
    pub(crate) fn cut_operator_from(&self, node: usize) {
        self.operator_wires[node].cut();
    }

    /// Nobody commands any more.
    pub(crate) fn cut_operator(&self) {
        for wire in &self.operator_wires {
            wire.cut();
        }
    }

    /// Everything gets through again.
    pub(crate) fn join(&self) {
        for wire in &self.operator_wires {
            wire.join();
        }
        for (grpc, admin) in self.wires.values() {
            grpc.join();
            admin.join();
        }
    }

    /// The source `source`, as the instance `node` reaches it.
    pub(crate) async fn endpoint(&mut self, node: usize, source: usize) -> Endpoint {
        let mut endpoint = self.nodes[source].endpoint().await;
        if let Some((_, admin)) = self.wires.get(&(node, source)) {
            endpoint.port = admin.address.port();
        }
        endpoint
    }

    fn node(&self, ordinal: u32) -> Node {
        let root = self.dir.path().join(format!("shop-{ordinal}"));
        let paths = Paths {
            volume: root.join("volume"),
            run: root.join("run"),
            config_file: root.join("config/my.cnf"),
            system_secret: root.join("system"),
            root_secret: root.join("root"),
            app_secret: root.join("app"),
            server_tls: root.join("server-tls"),
            client_ca: root.join("client-ca"),
            recovery: root.join("recovery"),
            store: root.join("store"),
        };
        write(&paths.config_file, &my_cnf());
        for (name, password) in [
            ("manager", MANAGER),
            ("replication", REPLICATION),
            ("clone", CLONE),
            ("monitor", MONITOR),
        ] {
            write(&paths.system_secret.join(name), password);
        }
        write(&paths.root_secret.join("password"), ROOT);
        write(&paths.app_secret.join("password"), APP);
        let (certificate, key) = leaf(&self.own_ca, &layout::instance_uri("prod", "shop"));
        write(&paths.server_tls.join("tls.crt"), &certificate);
        write(&paths.server_tls.join("tls.key"), &key);
        write(&paths.server_tls.join("ca.crt"), &self.own_ca.pem());
        let clients = format!("{}{}", self.operator_ca.pem(), self.own_ca.pem());
        write(&paths.client_ca.join("ca.crt"), &clients);
        let config = Config {
            namespace: "prod".to_owned(),
            cluster: "shop".to_owned(),
            instance: InstanceName(format!("shop-{ordinal}")),
            ordinal,
            host: "localhost".to_owned(),
            pod_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            server_id_base: 1200,
            config_hash: "abc".to_owned(),
            recovery: None,
            paths,
            ports: Ports {
                mysql: free_port(),
                admin: free_port(),
                grpc: free_port(),
                http: free_port(),
            },
            mysql_bind: "127.0.0.1".to_owned(),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peers: Peers::Names,
            api_server: None,
            programs: programs(),
            timing: Timing {
                files: Duration::from_millis(200),
                archive_idle: Duration::from_secs(1),
                ..Timing::default()
            },
            stores: Stores::S3,
            adopt_orphans: false,
        };
        Node {
            reached_at: None,
            config,
            manager: None,
            client: None,
            tls: self.operator(),
            seq: 0,
        }
    }

    /// Another certificate for an instance, for one name more.
    pub(crate) fn renew_certificate(&self, node: usize) {
        let names = ["localhost", "renewed"];
        let (certificate, key) = leaf_for(&self.own_ca, &names, &layout::instance_uri("prod", "shop"));
        let directory = &self.nodes[node].config.paths.server_tls;
        write(&directory.join("tls.key"), &key);
        write(&directory.join("tls.crt"), &certificate);
    }

    /// The operator's certificate.
    pub(crate) fn operator(&self) -> ClientTls {
        let (certificate, key) = leaf(&self.operator_ca, layout::OPERATOR_URI);
        ClientTls {
            certificate,
            key: key.into(),
            ca: self.own_ca.pem(),
        }
    }

    /// The certificate of any other instance.
    pub(crate) fn sibling(&self) -> ClientTls {
        let (certificate, key) = leaf(&self.own_ca, &layout::instance_uri("prod", "shop"));
        ClientTls {
            certificate,
            key: key.into(),
            ca: self.own_ca.pem(),
        }
    }

    /// The certificate of an instance of another cluster, whose CA is trusted by nobody here.
    pub(crate) fn stranger(&self) -> ClientTls {
        let (certificate, key) = leaf(&ca("other"), layout::OPERATOR_URI);
        ClientTls {
            certificate,
            key: key.into(),
            ca: self.own_ca.pem(),
        }
    }

    /// An election with a foregone winner: everybody that runs is fenced, the others are attached to it, and it is opened
    /// with them as its members.
    pub(crate) async fn make_primary(&mut self, winner: usize) {
        self.epoch += 1;
        let k = u32::try_from(self.nodes.len() / 2).unwrap();
        for node in 0..self.nodes.len() {
            if self.nodes[node].manager.is_some() {
                self.give(node, Verb::Fence).await.must_be_done();
            }
        }
        let mut members = BTreeSet::new();
        for node in 0..self.nodes.len() {
            if node != winner && self.nodes[node].manager.is_some() {
                let source = self.endpoint(node, winner).await;
                self.give(node, Verb::Attach { source }).await.must_be_done();
                members.insert(self.nodes[node].id().await);
            }
        }
        let baseline = self.nodes[winner].report().await.executed;
        let opening = open_in(self.epoch, members, k, baseline);
        self.give(winner, opening).await.must_be_done();
    }

    /// The same, when the winner has applied what it received.
    pub(crate) async fn make_primary_when_applied(&mut self, winner: usize) {
        self.epoch += 1;
        for node in 0..self.nodes.len() {
            if self.nodes[node].manager.is_some() {
                self.give(node, Verb::Fence).await.must_be_done();
            }
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].manager.is_some() {
                self.nodes[node]
                    .wait("it has applied everything", InstanceReport::fully_applied)
                    .await;
            }
        }
        self.make_primary(winner).await;
    }

    /// Everything that is in the primary's binlog now.
    pub(crate) async fn mark(&mut self, primary: usize) -> GtidSet {
        self.give(primary, Verb::Mark)
            .await
            .must_be_done()
            .marker
            .clone()
            .unwrap()
    }

    /// Gives a command under the present epoch.
    pub(crate) async fn give(&mut self, node: usize, verb: Verb) -> Answer {
        let epoch = self.epoch;
        self.nodes[node].give(epoch, verb).await
    }
}

/// A clone that keeps nothing.
pub(crate) const fn clone_of(donor: Endpoint) -> Verb {
    Verb::Clone {
        donor,
        keep_former: false,
    }
}

/// A clone that puts the former data directory aside.
pub(crate) const fn clone_and_keep(donor: Endpoint) -> Verb {
    Verb::Clone {
        donor,
        keep_former: true,
    }
}

/// Open with the application that tests use.
pub(crate) fn open(members: BTreeSet<MemberId>, acks_required: u32, baseline: GtidSet) -> Verb {
    open_in(1, members, acks_required, baseline)
}

/// The same, of a primary that was recorded in this epoch.
pub(crate) fn open_in(epoch: u64, members: BTreeSet<MemberId>, acks_required: u32, baseline: GtidSet) -> Verb {
    let recorded = Recorded {
        epoch,
        since: Timestamp::UNIX_EPOCH,
    };
    let application = Some(Application {
        database: "my_app".to_owned(),
        user: "app".to_owned(),
    });
    Verb::Open {
        members,
        acks_required,
        baseline,
        recorded,
        application,
    }
}

/// The answer to a command, and how long it took.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) took: Duration,
}

impl Answer {
    #[track_caller]
    pub(crate) fn must_be_done(&self) -> &InstanceReport {
        assert!(
            !matches!(self.reply.outcome, Outcome::Refused { .. }),
            "{:?}",
            self.reply.outcome
        );
        self.reply.report.as_ref().unwrap()
    }

    #[track_caller]
    pub(crate) fn must_be_refused(&self, because: &str) {
        match &self.reply.outcome {
            Outcome::Refused { reason } => assert!(reason.contains(because), "{reason:?} does not say {because:?}"),
            other => panic!("{other:?}, and not refused because {because:?}"),
        }
    }
}

pub(crate) fn id(instance: &str, incarnation: &str) -> MemberId {
    MemberId {
        instance: InstanceName(instance.to_owned()),
        incarnation: Incarnation(incarnation.to_owned()),
    }
}

/// Waits until a question about the outside is answered with yes.
pub(crate) async fn until(what: &str, mut question: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !question().await {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Shows the managers' logs when a test is run with `--nocapture` and `RUST_LOG`.
pub(crate) fn show_logs() {
    drop(
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init(),
    );
}

/// Deadline of a command that is not in a hurry.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) async fn insert(node: &Node, number: u32) -> Result<(), mysql_async::Error> {
    let mut root = node.root().await;
    let insert = root.query_drop(format!("INSERT INTO my_app.t VALUES ({number})"));
    tokio::time::timeout(PATIENCE, insert).await.expect("a commit ends")
}

pub(crate) async fn rows(node: &Node) -> BTreeSet<u32> {
    node.inside()
        .await
        .query::<u32, _>("SELECT n FROM my_app.t")
        .await
        .unwrap()
        .into_iter()
        .collect()
}

/// Each row that was acknowledged is on one of these nodes, when they have applied what they received.
pub(crate) async fn kept(cluster: &mut Cluster, on: [usize; 2], acknowledged: &BTreeSet<u32>) {
    let mut kept = BTreeSet::new();
    for node in on {
        let set = cluster.nodes[node].report().await.set();
        cluster.nodes[node].wait_for(&set).await;
        kept.extend(rows(&cluster.nodes[node]).await);
    }
    assert!(
        acknowledged.is_subset(&kept),
        "lost: {:?}",
        acknowledged.difference(&kept)
    );
}

/// A table in the application's database, when that is there.
pub(crate) async fn make_table(cluster: &mut Cluster, primary: usize) {
    // A login each time: it has the privileges that it began with.
    until("the application's database is there", async || {
        let mut root = cluster.nodes[primary].root().await;
        root.query_drop("CREATE TABLE IF NOT EXISTS my_app.t (n INT PRIMARY KEY)")
            .await
            .is_ok()
    })
    .await;
    let executed = cluster.mark(primary).await;
    for node in 0..cluster.nodes.len() {
        cluster.nodes[node].wait_for(&executed).await;
    }
}

pub(crate) fn stop_receiver() -> &'static str {
    "STOP REPLICA IO_THREAD"
}

/// Takes the last bytes off the newest relay log of an instance that does not run.
pub(crate) fn tear_relay_log(node: &Node, bytes: u64) -> PathBuf {
    let mut logs: Vec<PathBuf> = std::fs::read_dir(node.config.paths.data())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("relay.") && name.as_bytes().last().unwrap().is_ascii_digit()
        })
        .collect();
    logs.sort();
    let newest = logs.pop().expect("there is a relay log");
    let file = std::fs::OpenOptions::new().write(true).open(&newest).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - bytes).unwrap();
    newest
}
