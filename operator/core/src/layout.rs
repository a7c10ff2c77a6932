//! Paths, ports and names of environment variables that the pod template and the instance manager share.

/// Directory of the mysql container where the init container puts the `mainstay` binary (emptyDir).
pub const BIN_DIR: &str = "/opt/mainstay";
/// The instance manager's binary inside of the mysql container.
pub const BINARY: &str = "/opt/mainstay/mainstay";

/// Mount point of the data volume. Nothing but the entries below lies in it (and what the filesystem puts there).
pub const VOLUME: &str = "/var/lib/mainstay";
/// MySQL's data directory: a subdirectory, because a mount point cannot be renamed.
pub const DATA_DIR: &str = "/var/lib/mainstay/data";
/// The state file (decision B2), outside of the data directory, which a clone wipes.
pub const STATE_FILE: &str = "/var/lib/mainstay/state";
/// 64 MiB that are given up to shut down on a full disk.
pub const RESERVE_FILE: &str = "/var/lib/mainstay/reserve";
/// Temporary tables and files of MySQL, on the data volume.
pub const TMP_DIR: &str = "/var/lib/mainstay/tmp";

/// Sockets, pid file and the rendered my.cnf (emptyDir in memory).
pub const RUN_DIR: &str = "/run/mainstay";
/// MySQL's Unix socket.
pub const SOCKET: &str = "/run/mainstay/mysqld.sock";
/// my.cnf with which mysqld is started: includes [`CONFIG_FILE`] and adds what is particular to the instance.
pub const DEFAULTS_FILE: &str = "/run/mainstay/my.cnf";

/// Mount point of the cluster's ConfigMap.
pub const CONFIG_DIR: &str = "/etc/mainstay/config";
/// my.cnf of the cluster, the same for all instances.
pub const CONFIG_FILE: &str = "/etc/mainstay/config/my.cnf";
/// Passwords of Mainstay's own accounts (Secret `<cluster>-system`): one file an account.
pub const SYSTEM_SECRET_DIR: &str = "/etc/mainstay/system";
/// Password of `root@'%'` (Secret `<cluster>-root`), file `password`.
pub const ROOT_SECRET_DIR: &str = "/etc/mainstay/root";
/// Application user (Secret `<cluster>-app`), file `password`; absent when none is declared.
pub const APP_SECRET_DIR: &str = "/etc/mainstay/app";
/// Server certificate (Secret `<cluster>-server-tls`): `tls.crt`, `tls.key`, `ca.crt`.
pub const SERVER_TLS_DIR: &str = "/etc/mainstay/server-tls";
/// CA certificates of the gRPC clients (Secret `<cluster>-client-ca`): `ca.crt`.
pub const CLIENT_CA_DIR: &str = "/etc/mainstay/client-ca";

/// Access to the object store (Secret `<cluster>-store`): the file of `mainstay_store::Access`. There is none while no store is
/// declared: declaring one restarts no server.
pub const STORE_DIR: &str = "/etc/mainstay/store";
/// Access to the store that data is recovered from, and what is to be recovered (Secret `<cluster>-recovery`), while it is.
pub const RECOVERY_DIR: &str = "/etc/mainstay/recovery";
/// The user's Secret with the keys that decrypt backups: in the pod of a verification, and nowhere else.
pub const KEYS_DIR: &str = "/etc/mainstay/keys";

/// Files of [`SYSTEM_SECRET_DIR`]: the manager's own account, replication, clone and monitoring.
pub const SYSTEM_ACCOUNTS: [&str; 4] = ["manager", "replication", "clone", "monitor"];

/// Port of MySQL's clients.
pub const PORT_MYSQL: u16 = 3306;
/// MySQL's admin port: replication, clone and the manager, with connections of their own (decision A20).
pub const PORT_ADMIN: u16 = 33062;
/// The instance manager's gRPC over mutual TLS.
pub const PORT_GRPC: u16 = 8443;
/// The instance manager's probes and metrics, plain HTTP: kubelets have no client certificate.
pub const PORT_HTTP: u16 = 8080;

/// Names of the environment variables of the mysql container.
pub mod env {
    /// Namespace of the cluster.
    pub const NAMESPACE: &str = "MAINSTAY_NAMESPACE";
    /// Name of the cluster.
    pub const CLUSTER: &str = "MAINSTAY_CLUSTER";
    /// Name of the instance, which is its pod's.
    pub const INSTANCE: &str = "MAINSTAY_INSTANCE";
    /// Address of the pod.
    pub const POD_IP: &str = "MAINSTAY_POD_IP";
    /// First server_id of the cluster: this instance's is it plus its ordinal.
    pub const SERVER_ID_BASE: &str = "MAINSTAY_SERVER_ID_BASE";
    /// What the Job of a backup is to do, as JSON.
    pub const BACKUP: &str = "MAINSTAY_BACKUP";
    /// What the Job of a verification is to do, as JSON.
    pub const VERIFY: &str = "MAINSTAY_VERIFY";
    /// Hash of the ConfigMap that this pod refers to, reported as `config_hash`.
    pub const CONFIG_HASH: &str = "MAINSTAY_CONFIG_HASH";
    /// Digest of `spec.bootstrap.recovery`, where it is declared: the first instance makes no empty data directory, but
    /// recovers the data, or is cloned.
    pub const RECOVERY: &str = "MAINSTAY_RECOVERY";
}

/// URI in the certificate of the operator, which may command.
pub const OPERATOR_URI: &str = "mainstay://operator";

/// URI in the certificate of the instances of a cluster, which may only ask.
#[must_use]
pub fn instance_uri(namespace: &str, cluster: &str) -> String {
    format!("mainstay://{namespace}/{cluster}/instance")
}
