//! Servers without managers, for what MySQL does by itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use mainstay_core::GtidSet;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, OptsBuilder};
use rustix::process::{Pid, Signal, kill_process};

use super::disk::Disk;
use super::{MANAGER, Node, PATIENCE, REPLICATION, template, until};

/// A server with the my.cnf of a cluster, open for writes, and with the accounts that every instance has.
pub(crate) struct Raw {
    pub(crate) node: Node,
    options: Vec<String>,
    child: Option<Child>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Raw {
    /// On the files of this node, which has no manager; with these options after all others.
    pub(crate) async fn start(node: Node, options: &[&str]) -> Self {
        template::copy_to(&node.config.paths.volume).await;
        std::fs::create_dir_all(node.config.paths.tmp()).unwrap();
        std::fs::create_dir_all(&node.config.paths.run).unwrap();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut raw = Self {
            node,
            options,
            child: None,
        };
        raw.start_again().await;
        raw
    }

    pub(crate) async fn start_again(&mut self) {
        let config = &self.node.config;
        let paths = &config.paths;
        let tls = |file: &str| paths.server_tls.join(file).display().to_string();
        let mut command = Command::new(&config.programs.mysqld[0]);
        command
            .args(&config.programs.mysqld[1..])
            .arg(format!("--defaults-file={}", paths.config_file.display()))
            .args(&config.programs.mysqld_args)
            .args([
                format!("--datadir={}", paths.data().display()),
                format!("--tmpdir={}", paths.tmp().display()),
                format!("--socket={}", paths.socket().display()),
                format!("--pid-file={}", paths.run.join("mysqld.pid").display()),
                format!("--port={}", config.ports.mysql),
                format!("--admin-port={}", config.ports.admin),
                format!("--server-id={}", config.server_id()),
                format!("--ssl-ca={}", tls("ca.crt")),
                format!("--ssl-cert={}", tls("tls.crt")),
                format!("--ssl-key={}", tls("tls.key")),
            ])
            .args(["--bind-address=127.0.0.1", "--admin-address=127.0.0.1"])
            .args(["--super-read-only=OFF", "--read-only=OFF"])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(paths.run.join("log")).unwrap());
        self.child = Some(command.spawn().unwrap());
        until("the server answers", async || self.try_connect().await.is_ok()).await;
    }

    /// As a power cut.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.as_ref().unwrap().id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Where replicas and the like connect.
    pub(crate) fn admin(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.node.config.ports.admin)
    }

    async fn try_connect(&self) -> Result<Conn, mysql_async::Error> {
        self.node.log_in("mainstay", MANAGER).await
    }

    /// A session with every privilege but SHUTDOWN.
    pub(crate) async fn session(&self) -> Conn {
        self.try_connect().await.unwrap()
    }

    pub(crate) async fn run(&self, statements: &[&str]) {
        let mut session = self.session().await;
        for statement in statements {
            session.query_drop(*statement).await.unwrap();
        }
    }

    pub(crate) async fn text(&self, query: &str) -> String {
        let mut session = self.session().await;
        let text: Option<Option<String>> = session.query_first(query).await.unwrap();
        text.flatten().unwrap_or_default()
    }

    pub(crate) async fn status(&self, name: &str) -> String {
        self.text(&format!(
            "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME='{name}'"
        ))
        .await
    }

    pub(crate) async fn received(&self) -> GtidSet {
        let query = "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status";
        self.text(query).await.parse().unwrap()
    }

    pub(crate) async fn executed(&self) -> GtidSet {
        self.text("SELECT @@GLOBAL.gtid_executed").await.parse().unwrap()
    }

    /// Commits wait for this many replicas.
    pub(crate) async fn semi_sync(&self, acks: u32) {
        self.run(&[
            &format!("SET GLOBAL rpl_semi_sync_source_wait_for_replica_count={acks}"),
            "SET GLOBAL rpl_semi_sync_source_enabled=ON",
        ])
        .await;
    }

    /// Follows the server at this address, and waits until it is connected as a semi-synchronous client.
    pub(crate) async fn follow(&self, source: &Raw, address: SocketAddr) {
        self.run(&[
            &format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_AUTO_POSITION=1, SOURCE_SSL=1, \
                 SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=86400, SOURCE_HEARTBEAT_PERIOD=0.5",
                address.port()
            ),
            &self.start_receiver(),
            "START REPLICA SQL_THREAD",
        ])
        .await;
        until("the replica is connected", async || {
            self.text("SELECT SERVICE_STATE FROM performance_schema.replication_connection_status")
                .await
                == "ON"
                && source.status("Rpl_semi_sync_source_clients").await != "0"
        })
        .await;
    }

    pub(crate) fn start_receiver(&self) -> String {
        let password = REPLICATION.replace('\\', "\\\\").replace('\'', "''");
        let user = format!("mainstay_repl_{}", self.node.config.ordinal);
        format!("START REPLICA IO_THREAD USER='{user}' PASSWORD='{password}'")
    }

    /// A statement in a session of its own, which may wait.
    pub(crate) fn begin(&self, statement: &str) -> tokio::task::JoinHandle<Result<(), mysql_async::Error>> {
        let socket = self.node.config.paths.socket();
        let statement = statement.to_owned();
        tokio::spawn(async move {
            let opts = OptsBuilder::default()
                .socket(socket.to_str().map(str::to_owned))
                .user(Some("mainstay"))
                .pass(Some(MANAGER));
            Conn::new(opts).await?.query_drop(statement).await
        })
    }

    /// Waits until a commit waits for acknowledgements.
    pub(crate) async fn wait_for_a_waiting_commit(&self) {
        until("a commit waits", async || {
            self.status("Rpl_semi_sync_source_wait_sessions").await != "0"
        })
        .await;
    }
}

/// A primary with k = 1 and one replica, which is connected over `address` of the source, or directly.
pub(crate) struct Pair {
    /// Keeps the files.
    _cluster: super::Cluster,
    pub(crate) source: Raw,
    pub(crate) replica: Raw,
}

impl Pair {
    /// Two servers that do not know each other, with a table `app.t` on both.
    pub(crate) async fn strangers(source: &[&str], replica: &[&str]) -> Self {
        Box::pin(Self::with_disk(source, replica)).await.0
    }

    /// The same, and the disk of the replica.
    pub(crate) async fn with_disk(source: &[&str], replica: &[&str]) -> (Self, Disk) {
        let mut cluster = super::Cluster::prepare(2);
        let mut second = cluster.nodes.pop().unwrap();
        let first = cluster.nodes.pop().unwrap();
        let directory = cluster.dir.path().to_owned();
        let disk = Disk::below(&mut second.config.programs, &directory);
        let (source, replica) = tokio::join!(Raw::start(first, source), Raw::start(second, replica));
        for server in [&source, &replica] {
            server
                .run(&[
                    "SET SESSION sql_log_bin=0",
                    "CREATE DATABASE app",
                    "CREATE TABLE app.t (n INT PRIMARY KEY)",
                ])
                .await;
        }
        let pair = Self {
            _cluster: cluster,
            source,
            replica,
        };
        (pair, disk)
    }

    /// The replica follows, and commits wait for it.
    pub(crate) async fn start() -> Self {
        let pair = Self::strangers(&[], &[]).await;
        pair.attach(pair.source.admin()).await;
        pair
    }

    pub(crate) async fn attach(&self, address: SocketAddr) {
        self.source.semi_sync(1).await;
        self.replica.follow(&self.source, address).await;
    }

    /// Waits until the replica has received everything that is in the source's binlog.
    pub(crate) async fn wait_until_received(&self, transactions: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.replica.received().await.count() < transactions {
            assert!(Instant::now() < deadline, "{}", self.replica.received().await);
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}
