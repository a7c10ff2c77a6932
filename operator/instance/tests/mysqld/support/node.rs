//! One instance: its manager, its mysqld, and the ways to ask them.

use super::*;

impl Node {
    pub(crate) async fn start(&mut self) {
        self.manager = Some(Manager::start(self.config.clone()).await.unwrap());
        self.client = None;
    }

    /// Where its manager serves gRPC.
    pub(crate) fn grpc(&self) -> std::net::SocketAddr {
        std::net::SocketAddr::new(self.config.bind, self.config.ports.grpc)
    }

    /// Where its mysqld serves replicas.
    pub(super) fn admin(&self) -> std::net::SocketAddr {
        std::net::SocketAddr::new(self.config.pod_ip, self.config.ports.admin)
    }

    /// Forgets the connection of the operator.
    pub(crate) fn hang_up(&mut self) {
        self.client = None;
    }

    /// As a power cut.
    pub(crate) async fn cut(&mut self) {
        self.client = None;
        if let Some(manager) = self.manager.take() {
            tokio::time::timeout(PATIENCE, manager.kill())
                .await
                .expect("a manager ends");
        }
    }

    pub(crate) async fn client(&mut self) -> &mut InstanceClient {
        if self.client.is_none() {
            let address = self.reached_at.unwrap_or_else(|| self.grpc());
            self.client = Some(connect(address, "localhost", &self.tls).await.unwrap());
        }
        self.client.as_mut().unwrap()
    }

    pub(crate) async fn give(&mut self, epoch: u64, verb: Verb) -> Answer {
        self.give_within(Duration::from_secs(10), epoch, verb).await
    }

    pub(crate) async fn give_within(&mut self, deadline: Duration, epoch: u64, verb: Verb) -> Answer {
        let to = self.id().await;
        self.seq += 1;
        let seq = self.seq;
        self.give_as(to, epoch, seq, deadline, verb).await
    }

    pub(crate) async fn give_as(
        &mut self,
        to: MemberId,
        epoch: u64,
        seq: u64,
        deadline: Duration,
        verb: Verb,
    ) -> Answer {
        let command = InstanceCommand {
            to,
            epoch,
            deadline,
            verb,
            why: String::new(),
        };
        let began = Instant::now();
        let answer = async { self.client().await.command(&command, seq).await.unwrap() };
        let reply = tokio::time::timeout(deadline + PATIENCE, answer)
            .await
            .unwrap_or_else(|_| panic!("no answer to {command:?}"));
        Answer {
            reply,
            took: began.elapsed(),
        }
    }

    /// The first report of a new stream.
    pub(crate) async fn report(&mut self) -> InstanceReport {
        use futures::StreamExt as _;
        let first = async {
            let mut stream = self.client().await.watch().await.unwrap();
            stream.next().await.unwrap().unwrap().report
        };
        let first = tokio::time::timeout(PATIENCE, first).await;
        first.expect("a stream begins with a report")
    }

    pub(crate) async fn id(&mut self) -> MemberId {
        let incarnation = self.report().await.incarnation;
        MemberId {
            instance: self.config.instance.clone(),
            incarnation,
        }
    }

    pub(crate) async fn endpoint(&mut self) -> Endpoint {
        Endpoint {
            id: self.id().await,
            host: "localhost".to_owned(),
            port: self.config.ports.admin,
        }
    }

    /// Follows the stream until it says what is wanted.
    pub(crate) async fn wait(&mut self, what: &str, wanted: impl Fn(&InstanceReport) -> bool) -> InstanceReport {
        use futures::StreamExt as _;
        let mut last = None;
        let search = async {
            let mut stream = self.client().await.watch().await.unwrap();
            loop {
                let report = stream.next().await.unwrap().unwrap().report;
                if wanted(&report) {
                    return report;
                }
                last = Some(report);
            }
        };
        let found = tokio::time::timeout(PATIENCE, search).await.ok();
        found.unwrap_or_else(|| panic!("waited in vain until {what}; last: {last:#?}"))
    }

    /// Waits until everything of `set` is executed here.
    pub(crate) async fn wait_for(&mut self, set: &GtidSet) {
        self.wait("it has executed a set", |report| report.executed.contains(set))
            .await;
    }

    /// How a client logs in over the socket.
    pub(crate) fn log_in_options(&self, user: &str, password: &str) -> OptsBuilder {
        let socket = self.config.paths.socket();
        OptsBuilder::default()
            .socket(socket.to_str().map(str::to_owned))
            .user(Some(user))
            .pass(Some(password))
    }

    /// A client over the socket.
    pub(crate) async fn log_in(&self, user: &str, password: &str) -> Result<Conn, mysql_async::Error> {
        let opts = self.log_in_options(user, password);
        // Where a statement about accounts waits, a login does, too.
        let login = tokio::time::timeout(PATIENCE, Conn::new(opts)).await;
        login.expect("a login is answered")
    }

    /// A client over the network.
    pub(crate) async fn log_in_from_afar(&self, user: &str, password: &str) -> Result<Conn, mysql_async::Error> {
        let encrypted = mysql_async::SslOpts::default().with_danger_accept_invalid_certs(true);
        let opts = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.config.ports.mysql)
            .prefer_socket(false)
            .ssl_opts(encrypted)
            .user(Some(user))
            .pass(Some(password));
        let login = tokio::time::timeout(PATIENCE, Conn::new(opts)).await;
        login.expect("a login is answered")
    }

    /// What the manager says of itself to whoever asks, without being heard as an operator.
    pub(crate) async fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.http("/status").await.1).unwrap()
    }

    /// The DBA, once `root@'%'` is there.
    pub(crate) async fn root(&self) -> Conn {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.log_in("root", ROOT).await {
                Ok(conn) => return conn,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The manager's own account, for looking inside.
    pub(crate) async fn inside(&self) -> Conn {
        self.log_in("mainstay", MANAGER).await.unwrap()
    }

    pub(crate) async fn text(&self, query: &str) -> Option<String> {
        let mut inside = self.inside().await;
        let answer = tokio::time::timeout(PATIENCE, inside.query_first::<Option<String>, _>(query)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{query} does not end"));
        answer.unwrap().flatten()
    }

    /// mysqld's process.
    pub(crate) fn pid(&self) -> i32 {
        let file = self.config.paths.run.join("mysqld.pid");
        std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) async fn http(&self, path: &str) -> (u16, String) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let address = std::net::SocketAddr::new(self.config.bind, self.config.ports.http);
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}
