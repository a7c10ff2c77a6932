//! Recoveries from a real store, compared with what was there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use mainstay_core::GtidSet;
use mainstay_core::backup::manifest::Segment;
use mainstay_core::backup::restore::Target;
use mainstay_core::backup::{BackupId, BackupManifest};
use mainstay_core::gtid::Gtid;
use mainstay_core::observed::{InstanceReport, Mysqld};
use mainstay_store::archive::PrivateKey;
use mysql_async::prelude::Queryable as _;

use crate::support::content::{Content, content};
use crate::support::store::{Stored, WISH, binlogs, transactions};
use crate::support::{self, Cluster, Node, ROOT, clone_of, show_logs, until};

/// Recoveries that run beside each other.
pub(crate) const LANES: usize = 3;

/// A point in the life of the source.
pub(crate) struct Point {
    pub(crate) gtid: Gtid,
    /// When its last transaction was committed, as its binlog says.
    pub(crate) at: Timestamp,
    pub(crate) content: Content,
}

/// A single primary whose life is noted transaction by transaction.
pub(crate) struct Source {
    pub(crate) cluster: Cluster,
    pub(crate) uuid: String,
    pub(crate) points: Vec<Point>,
}

/// Each of them is one transaction. What is written in the meantime does not depend on the time.
pub(crate) const LIFE: [&str; 28] = [
    "CREATE DATABASE a",
    "CREATE TABLE a.t (id INT PRIMARY KEY, v VARCHAR(200), KEY (v)) ENGINE=InnoDB",
    "INSERT INTO a.t VALUES (1,'one'),(2,'two')",
    "INSERT INTO a.t VALUES (3,'drei'),(4,'vier')",
    "UPDATE a.t SET v=CONCAT(v,'!') WHERE id<3",
    "CREATE USER 'shopper'@'%' IDENTIFIED WITH caching_sha2_password BY 'first'",
    "GRANT SELECT ON a.* TO 'shopper'@'%'",
    "CREATE TABLE a.big (id INT PRIMARY KEY, b LONGBLOB)",
    "INSERT INTO a.big VALUES (1, REPEAT('0123456789abcdef', 200000))",
    "DELETE FROM a.t WHERE id=2",
    "ALTER TABLE a.t ADD COLUMN n INT DEFAULT 7",
    "CREATE EVENT a.never ON SCHEDULE AT '2099-01-01 00:00:00' DO DELETE FROM a.t",
    "CREATE DATABASE `b c`",
    "CREATE TABLE `b c`.`t x` (id INT PRIMARY KEY, j JSON)",
    "INSERT INTO `b c`.`t x` VALUES (1, '{\"ü\": [1,2,3]}')",
    "UPDATE `b c`.`t x` SET j=JSON_SET(j, '$.\"ü\"[1]', 'zwei')",
    "ALTER USER 'shopper'@'%' IDENTIFIED BY 'second'",
    "INSERT INTO a.t SELECT id+10, v, n FROM a.t",
    "UPDATE a.big SET b=REVERSE(b)",
    "DROP TABLE `b c`.`t x`",
    "CREATE DEFINER='shopper'@'%' EVENT a.later ON SCHEDULE AT '2099-01-01 00:00:00' DO SELECT 1",
    "INSERT INTO a.t VALUES (30,'thirty',30)",
    "TRUNCATE TABLE a.big",
    "INSERT INTO a.t VALUES (31,'thirty-one',31)",
    "DROP USER 'shopper'@'%'",
    "RENAME TABLE a.t TO a.u",
    "INSERT INTO a.u VALUES (32,'last but one',32)",
    "DROP DATABASE a",
];

impl Source {
    pub(crate) async fn start() -> Self {
        let mut cluster = Cluster::bootstrap(1).await;
        // The first accounts are there.
        drop(cluster.nodes[0].root().await);
        let uuid = cluster.nodes[0].report().await.server_uuid;
        Self {
            cluster,
            uuid,
            points: Vec::new(),
        }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.cluster.nodes[0]
    }

    pub(crate) async fn executed(&mut self) -> GtidSet {
        let mut inside = self.node().inside().await;
        let text: Option<String> = inside.query_first("SELECT @@GLOBAL.gtid_executed").await.unwrap();
        text.unwrap().parse().unwrap()
    }

    pub(crate) async fn does(&mut self, statement: &str) {
        let before = self.executed().await;
        let mut inside = self.node().inside().await;
        inside.query_drop(statement).await.unwrap();
        let new = self.executed().await.subtract(&before);
        assert_eq!(new.count(), 1, "{statement}: {new}");
        let content = content(&mut inside).await;
        let gtid = new.to_string().parse().unwrap();
        self.points.push(Point {
            gtid,
            at: Timestamp::UNIX_EPOCH,
            content,
        });
    }

    /// Stops the server cleanly, does something with its files, and starts it again as the primary.
    pub(crate) async fn stopped<T>(&mut self, work: impl AsyncFnOnce(&Node, &GtidSet, &str) -> T) -> T {
        let executed = self.executed().await;
        self.cluster.nodes[0].manager.take().unwrap().stop().await;
        let done = work(&self.cluster.nodes[0], &executed, &self.uuid).await;
        self.start_again().await;
        done
    }

    async fn start_again(&mut self) {
        let node = &mut self.cluster.nodes[0];
        node.hang_up();
        node.start().await;
        node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
        self.cluster.make_primary(0).await;
    }

    /// Ends it, and notes when each point was committed.
    pub(crate) async fn end(&mut self) -> Vec<PathBuf> {
        self.cluster.nodes[0].manager.take().unwrap().stop().await;
        let binlogs = binlogs(self.node());
        let times: BTreeMap<String, i64> = binlogs
            .iter()
            .flat_map(|binlog| transactions(binlog))
            .map(|found| (found.transaction.gtid.to_string(), found.transaction.at))
            .collect();
        for point in &mut self.points {
            point.at = Timestamp::from_microsecond(times[&point.gtid.to_string()]).unwrap();
        }
        binlogs
    }
}

/// Recovers to a target on a new volume, and gives what is there then.
pub(crate) async fn recover(node: &mut Node, stored: &Stored, target: &Target) -> (InstanceReport, Content) {
    wipe(node).await;
    stored.give_to(node, target, &stored.keys());
    node.start().await;
    let report = node
        .wait("it is recovered", |report| {
            assert_ne!(report.mysqld, Mysqld::Failed, "{}", report.message);
            report.mysqld == Mysqld::Running
        })
        .await;
    let content = content(&mut node.inside().await).await;
    (report, content)
}

/// Another volume.
pub(crate) async fn wipe(node: &mut Node) {
    node.cut().await;
    drop(std::fs::remove_dir_all(&node.config.paths.volume));
}

/// Recovers to a target that is refused; nothing is made.
pub(crate) async fn refused(node: &mut Node, stored: &Stored, target: &Target, keys: &[PrivateKey]) -> String {
    wipe(node).await;
    stored.give_to(node, target, keys);
    is_refused(node).await
}

/// Starts an instance on an empty volume that cannot recover; why.
pub(crate) async fn is_refused(node: &mut Node) -> String {
    node.start().await;
    let report = node
        .wait("it is refused", |report| {
            assert_ne!(report.mysqld, Mysqld::Running, "it was recovered");
            report.mysqld == Mysqld::Failed
        })
        .await;
    let paths = &node.config.paths;
    for path in [paths.data(), paths.data_init(), paths.scratch()] {
        assert!(!path.exists(), "{} is left: {}", path.display(), report.message);
    }
    assert!(report.recovered.is_none() && report.server_uuid.is_empty() && report.executed.is_empty());
    println!("refused: {}", report.message);
    report.message
}

/// A new instance with passwords of its own.
pub(crate) fn another_cluster() -> Cluster {
    let cluster = Cluster::prepare(1);
    let node = &cluster.nodes[0];
    support::write(&node.config.paths.root_secret.join("password"), "another root's");
    support::write(&node.config.paths.system_secret.join("replication"), "another repl");
    cluster
}

/// The points of a life, recovered by GTID and by time from two backups and an encrypted archive of small segments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
#[expect(clippy::too_many_lines, reason = "a test tells one story")]
async fn f06_a_recovery_reaches_every_point_exactly() {
    show_logs();
    let mut source = Source::start().await;
    let mut stored = Stored::new(Some(PrivateKey::generate())).await;
    let first = source
        .stopped(async |node, executed, uuid| stored.back_up(node, executed, uuid).await)
        .await;
    let mut second = None;
    let before = source.executed().await;
    for (number, statement) in LIFE.iter().enumerate() {
        source.does(statement).await;
        if number == 11 {
            let mut inside = source.node().inside().await;
            inside.query_drop("FLUSH BINARY LOGS").await.unwrap();
        }
        if number == 17 {
            let made = source
                .stopped(async |node, executed, uuid| stored.back_up(node, executed, uuid).await)
                .await;
            second = Some(made);
        }
    }
    let binlogs = source.end().await;
    assert!(binlogs.len() > 2, "{binlogs:?}");
    stored.archive(1, &source.uuid, &GtidSet::new(), &binlogs, 3).await;

    let (first, second) = (first.to_string(), second.unwrap().to_string());
    let mut all: GtidSet = before.clone();
    let mut targets = Vec::new();
    for (number, point) in source.points.iter().enumerate() {
        all = all.union(&point.gtid.to_string().parse().unwrap());
        let base = if number < 17 { &first } else { &second };
        // Every point by GTID; between two of them by time.
        targets.push((Target::Gtid(point.gtid.clone()), number, all.clone(), base));
        if number % 4 == 3 {
            targets.push((Target::Time(point.at), number, all.clone(), base));
        }
    }
    let reaches = async |lane: usize| {
        let mut cluster = another_cluster();
        for (target, number, all, base) in targets.iter().skip(lane).step_by(LANES) {
            let point = &source.points[*number];
            let (report, content) = recover(&mut cluster.nodes[0], &stored, target).await;
            assert_eq!(content, point.content, "{target:?}: {}", LIFE[*number]);
            let recovered = report.recovered.as_deref().unwrap();
            assert_eq!((&recovered.reached, &report.executed), (all, all), "{target:?}");
            assert_eq!(recovered.request, WISH);
            assert_eq!(recovered.time, Some(point.at));
            assert_eq!(&recovered.backup, *base, "{target:?}");
            assert!(!report.pristine && !report.writable && report.replication.source_host.is_none());
            assert_ne!(report.server_uuid, source.uuid);
        }
        cluster.cut().await;
    };
    let began = Instant::now();
    futures::future::join_all((0..LANES).map(reaches)).await;
    println!("{} recoveries in {:?}", targets.len(), began.elapsed());
    let mut cluster = another_cluster();
    let node = &mut cluster.nodes[0];
    let (report, content) = recover(node, &stored, &Target::Latest).await;
    assert_eq!(content, source.points.last().unwrap().content);
    assert_eq!(report.executed, all);

    // What cannot be reached exactly is refused, and says how far it could go.
    let keys = stored.keys();
    let early = Target::Time(source.points[0].at - jiff::SignedDuration::from_hours(1));
    assert!(
        refused(node, &stored, &early, &keys)
            .await
            .contains("before the first backup")
    );
    let last = source.points.last().unwrap();
    let late = Target::Time(Timestamp::now() + jiff::SignedDuration::from_hours(1));
    let message = refused(node, &stored, &late, &keys).await;
    assert!(
        message.contains("beyond what is stored") && message.contains(&last.at.to_string()),
        "{message}"
    );
    let next: Gtid = format!("{}:9999", source.uuid).parse().unwrap();
    assert!(
        refused(node, &stored, &Target::Gtid(next), &keys)
            .await
            .contains("beyond what is stored")
    );
    cluster.cut().await;
}

/// A source with one backup, and some transactions behind it.
pub(crate) struct Small {
    pub(crate) source: Source,
    pub(crate) stored: Stored,
    pub(crate) backup: BackupId,
    pub(crate) segments: Vec<Segment>,
}

impl Small {
    /// The last transaction, and what is there then.
    pub(crate) fn last(&self) -> (&Gtid, &Content) {
        let last = self.source.points.last().expect("it has a life");
        (&last.gtid, &last.content)
    }
}

pub(crate) async fn small(key: Option<PrivateKey>) -> Small {
    let mut source = Source::start().await;
    let mut stored = Stored::new(key).await;
    source.does(LIFE[0]).await;
    source.does(LIFE[1]).await;
    let backup = source
        .stopped(async |node, executed, uuid| stored.back_up(node, executed, uuid).await)
        .await;
    for statement in &LIFE[2..5] {
        source.does(statement).await;
    }
    let binlogs = source.end().await;
    let segments = stored.archive(1, &source.uuid, &GtidSet::new(), &binlogs, 1).await;
    Small {
        source,
        stored,
        backup,
        segments,
    }
}

/// A source whose last two transactions were never acknowledged, and a successor that had the others.
pub(crate) struct Succeeded {
    pub(crate) stored: Stored,
    pub(crate) backup: BackupId,
    /// What the successor held in the end.
    pub(crate) content: Content,
    pub(crate) executed: GtidSet,
    /// The first transaction that never happened.
    pub(crate) lost: Gtid,
}

pub(crate) async fn succeeded(key: Option<PrivateKey>) -> Succeeded {
    let Small {
        source, stored, backup, ..
    } = small(key).await;
    let points = &source.points;
    let (kept, lost) = (&points[points.len() - 3], &points[points.len() - 2]);
    let mut successor = another_cluster();
    let (report, before) = recover(&mut successor.nodes[0], &stored, &Target::Gtid(kept.gtid.clone())).await;
    assert_eq!(before, kept.content);
    let baseline = report.executed.clone();
    successor.make_primary(0).await;
    let uuid = report.server_uuid.clone();
    let mut inside = successor.nodes[0].inside().await;
    inside
        .query_drop("INSERT INTO a.t VALUES (50,'of the successor')")
        .await
        .unwrap();
    let content = content(&mut inside).await;
    drop(inside);
    let text = successor.nodes[0].text("SELECT @@GLOBAL.gtid_executed").await.unwrap();
    successor.nodes[0].manager.take().unwrap().stop().await;
    let binlogs = binlogs(&successor.nodes[0]);
    stored.archive(9, &uuid, &baseline, &binlogs, 2).await;
    Succeeded {
        lost: lost.gtid.clone(),
        executed: text.parse().unwrap(),
        stored,
        backup,
        content,
    }
}

/// The old primary wrote what nobody acknowledged, and was replaced: that never happened (decision A8).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn a_discarded_tail_does_not_come_back() {
    show_logs();
    let succeeded = succeeded(None).await;
    let mut cluster = another_cluster();
    let (report, content) = recover(&mut cluster.nodes[0], &succeeded.stored, &Target::Latest).await;
    assert_eq!(content, succeeded.content);
    assert_eq!(report.executed, succeeded.executed);
    let target = Target::Gtid(succeeded.lost.clone());
    let message = refused(&mut cluster.nodes[0], &succeeded.stored, &target, &[]).await;
    assert!(message.contains("was never acknowledged"), "{message}");
    cluster.cut().await;
}

pub(crate) fn flip(path: &std::path::Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at.min(bytes.len() - 1);
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// What is stored is damaged in every way: said, and nothing is made of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
#[expect(clippy::too_many_lines, reason = "a test tells one story")]
async fn what_is_damaged_is_refused_and_leaves_nothing() {
    show_logs();
    let Small {
        source,
        stored,
        backup,
        segments,
    } = small(Some(PrivateKey::generate())).await;
    let mut cluster = another_cluster();
    let node = &mut cluster.nodes[0];
    let keys = stored.keys();
    let data = stored.gateway.file(&stored.cluster.backup_data(&backup, true));
    let last = &segments[segments.len() - 1];
    let segment = stored.gateway.file(&stored.cluster.segment(1, last.sequence, true));

    // The keys come first: nothing is fetched.
    let message = refused(node, &stored, &Target::Latest, &[]).await;
    assert!(
        message.contains("no key was given") && message.contains("age1"),
        "{message}"
    );
    let message = refused(node, &stored, &Target::Latest, &[PrivateKey::generate()]).await;
    assert!(message.contains("the given keys are those of age1"), "{message}");

    let whole = std::fs::read(&data).unwrap();
    for at in [100, whole.len() / 2, whole.len() - 1] {
        flip(&data, at);
        let message = refused(node, &stored, &Target::Latest, &keys).await;
        assert!(message.contains("damaged") || message.contains("decrypt"), "{message}");
        std::fs::write(&data, &whole).unwrap();
    }
    std::fs::write(&data, &whole[..whole.len() - 7]).unwrap();
    let message = refused(node, &stored, &Target::Latest, &keys).await;
    assert!(message.contains("no complete backup"), "{message}");
    std::fs::remove_file(&data).unwrap();
    let message = refused(node, &stored, &Target::Latest, &keys).await;
    assert!(message.contains("no complete backup"), "{message}");
    std::fs::write(&data, &whole).unwrap();

    let archived = std::fs::read(&segment).unwrap();
    flip(&segment, archived.len() / 2);
    let message = refused(node, &stored, &Target::Latest, &keys).await;
    assert!(message.contains(&last.file.name), "{message}");
    std::fs::remove_file(&segment).unwrap();
    let message = refused(node, &stored, &Target::Latest, &keys).await;
    let reach = &source.points[source.points.len() - 2].gtid;
    let number = reach.to_string();
    let number = number.rsplit(':').next().unwrap();
    assert!(
        message.contains(&last.file.name)
            && message.contains("missing in the store")
            && message.contains(&format!("-{number}")),
        "{message}"
    );
    std::fs::write(&segment, &archived).unwrap();

    let manifest = stored.manifest(&backup).await;
    let lies: [(BackupManifest, &str); 3] = [
        (
            BackupManifest {
                uncompressed_bytes: 1 << 50,
                ..manifest.clone()
            },
            "MiB are needed",
        ),
        (
            BackupManifest {
                mysql_version: "9.8.0".to_owned(),
                ..manifest.clone()
            },
            "set spec.image to the same series",
        ),
        (
            BackupManifest {
                gtid_executed: format!("{}:1-2", source.uuid).parse().unwrap(),
                ..manifest.clone()
            },
            "is not what its manifest says",
        ),
    ];
    for (lie, words) in lies {
        stored.put_manifest(&lie).await;
        let message = refused(node, &stored, &Target::Latest, &keys).await;
        assert!(message.contains(words), "{message}");
    }
    // Without the lies, at once: a failure that does not pass by itself is tried again when the Secret changes.
    stored.put_manifest(&manifest).await;
    stored.mount(node, WISH, &Target::Gtid(source.points[3].gtid.clone()), &keys);
    node.wait("it is recovered", |report| report.mysqld == Mysqld::Running)
        .await;
    assert_eq!(content(&mut node.inside().await).await, source.points[3].content);
    cluster.cut().await;
}

/// A power cut at any moment: in the end the data are there, whole, or they are recovered from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn a_recovery_that_is_cut_short_begins_again() {
    show_logs();
    let Small { source, stored, .. } = small(None).await;
    let mut cluster = another_cluster();
    let node = &mut cluster.nodes[0];
    let last = source.points.last().unwrap();
    for pause in [30, 150, 400, 800, 1200, 1700, 2300, 3000, 4000] {
        wipe(node).await;
        stored.give_to(node, &Target::Latest, &[]);
        for _ in 0..2 {
            node.start().await;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            node.cut().await;
        }
        node.start().await;
        let report = node
            .wait("it is recovered", |report| report.mysqld == Mysqld::Running)
            .await;
        assert!(
            report.executed.contains_gtid(&last.gtid),
            "cut after {pause} ms: {report:#?}"
        );
        assert_eq!(
            content(&mut node.inside().await).await,
            last.content,
            "cut after {pause} ms"
        );
        assert!(!node.config.paths.scratch().exists() && !node.config.paths.data_init().exists());
    }
    cluster.cut().await;
}

/// The data are a new cluster's: its passwords, its events, its primary and replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
#[expect(clippy::too_many_lines, reason = "one life of one cluster, from top to bottom")]
async fn f11_recovered_data_follow_the_new_clusters_secrets() {
    show_logs();
    let mut source = Source::start().await;
    let mut stored = Stored::new(None).await;
    let mut inside = source.node().inside().await;
    for statement in [
        LIFE[0],
        "CREATE TABLE a.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "CREATE USER 'shopper'@'%' IDENTIFIED BY 'of the application'",
        "GRANT ALL ON a.* TO 'shopper'@'%'",
        "CREATE DEFINER='shopper'@'%' EVENT a.ticks ON SCHEDULE EVERY 1 SECOND DO INSERT INTO a.t (v) VALUES (1)",
        "CREATE EVENT a.off ON SCHEDULE EVERY 1 SECOND DO INSERT INTO a.t (v) VALUES (2)",
        "ALTER EVENT a.off DISABLE",
        // The password that was replaced stays valid for a while.
        "ALTER USER 'mainstay_repl_1'@'%' IDENTIFIED BY 'the present one' RETAIN CURRENT PASSWORD",
    ] {
        inside.query_drop(statement).await.unwrap();
    }
    until("it is noted which events are off on purpose", async || {
        let notes = "SELECT ATTRIBUTE FROM information_schema.USER_ATTRIBUTES WHERE USER='mainstay_monitor'";
        let notes: Option<Option<String>> = inside.query_first(notes).await.unwrap();
        notes.flatten().is_some_and(|notes| notes.contains("off"))
    })
    .await;
    drop(inside);
    source
        .stopped(async |node, executed, uuid| stored.back_up(node, executed, uuid).await)
        .await;
    let binlogs = source.end().await;
    stored.archive(1, &source.uuid, &GtidSet::new(), &binlogs, 50).await;

    let mut cluster = Cluster::prepare(3);
    for node in &cluster.nodes {
        support::write(&node.config.paths.root_secret.join("password"), "another root's");
        support::write(&node.config.paths.system_secret.join("replication"), "another repl");
    }
    stored.give_to(&mut cluster.nodes[0], &Target::Latest, &[]);
    for node in &mut cluster.nodes {
        node.start().await;
    }
    for node in &mut cluster.nodes {
        node.wait("it answers", |report| report.mysqld == Mysqld::Running).await;
    }
    // Nobody but the manager can connect before the first election, and former passwords are worth nothing.
    let node = &cluster.nodes[0];
    assert!(node.log_in("root", ROOT).await.is_err());
    assert!(node.log_in("root", "another root's").await.is_ok());
    assert!(
        node.log_in_from_afar("shopper", "of the application").await.is_err(),
        "it is not open yet"
    );
    for former in ["the present one", support::REPLICATION] {
        assert!(node.log_in("mainstay_repl_1", former).await.is_err());
    }
    assert_eq!(
        node.text("SELECT HOST FROM performance_schema.replication_connection_configuration")
            .await,
        None
    );
    // The first election: the others are cloned, then it is opened.
    let donor = cluster.nodes[0].endpoint().await;
    for other in [1, 2] {
        cluster.epoch += 1;
        cluster.give(other, clone_of(donor.clone())).await.must_be_done();
        let report = cluster.nodes[other]
            .wait("it is cloned", |report| report.mysqld == Mysqld::Running)
            .await;
        assert!(report.recovered.is_none(), "a clone is not what was recovered");
    }
    cluster.make_primary(0).await;
    let node = &cluster.nodes[0];
    assert!(node.log_in_from_afar("shopper", "of the application").await.is_ok());
    for other in &cluster.nodes {
        assert!(other.log_in("root", ROOT).await.is_err());
        assert!(other.log_in("root", "another root's").await.is_ok());
    }
    let ticks = "SELECT CAST(COUNT(*) AS CHAR) FROM a.t WHERE v=1";
    let off = "SELECT CAST(COUNT(*) AS CHAR) FROM a.t WHERE v=2";
    let before = (node.text(ticks).await, node.text(off).await);
    until("the event runs", async || node.text(ticks).await != before.0).await;
    assert_eq!(node.text(off).await, before.1);
    let definer = "SELECT DEFINER FROM information_schema.EVENTS WHERE EVENT_NAME='ticks'";
    assert_eq!(
        node.text(definer).await.as_deref(),
        Some("shopper@%"),
        "it runs with the rights that it had"
    );
    let state = "SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME='ticks'";
    assert_eq!(node.text(state).await.as_deref(), Some("ENABLED"));
    cluster.cut().await;
}

/// Data that are there are never recovered over, and where none are, none are made up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn f27_nothing_is_recovered_over_data_and_nothing_begins_empty() {
    show_logs();
    let Small { source, stored, .. } = small(None).await;
    let mut cluster = Cluster::bootstrap(2).await;
    cluster.nodes[1].cut().await;
    let before = cluster.nodes[0].report().await;
    cluster.nodes[0].cut().await;
    stored.give_to(&mut cluster.nodes[0], &Target::Latest, &[]);
    cluster.nodes[0].start().await;
    let report = cluster.nodes[0]
        .wait("it answers", |report| report.mysqld == Mysqld::Running)
        .await;
    assert_eq!(report.incarnation, before.incarnation);
    assert!(report.recovered.is_none() && !report.executed.contains_gtid(&source.points[0].gtid));
    // Without a directory, and with a Secret that is for another wish: it waits, and makes nothing.
    let node = &mut cluster.nodes[1];
    wipe(node).await;
    stored.give_to(node, &Target::Latest, &[]);
    stored.mount(node, "another wish", &Target::Latest, &[]);
    node.start().await;
    let report = node.wait("it waits", |report| report.mysqld == Mysqld::Failed).await;
    assert!(report.message.contains("not mounted yet"), "{}", report.message);
    assert!(!report.incarnation.0.is_empty() && report.server_uuid.is_empty() && !node.config.paths.data().exists());
    // Its cluster has data: it is cloned.
    cluster.epoch += 1;
    let donor = cluster.nodes[0].endpoint().await;
    cluster.give(1, clone_of(donor)).await.must_be_done();
    cluster.nodes[1]
        .wait("it is cloned", |report| report.mysqld == Mysqld::Running)
        .await;
    cluster.cut().await;
}
