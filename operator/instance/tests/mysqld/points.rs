//! Points in time of a cluster that lost its primary and rebuilt it, recovered from nothing but what it had stored itself: its
//! archive, and backups by the program of a Job (case F06, decision A8).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use mainstay_core::GtidSet;
use mainstay_core::action::Verb;
use mainstay_core::backup::BackupId;
use mainstay_core::backup::restore::Target;
use mainstay_core::gtid::Gtid;
use mainstay_core::observed::Mysqld;
use mainstay_store::archive::PrivateKey;
use mysql_async::prelude::Queryable as _;

use crate::archive::until_stored;
use crate::backups::stored;
use crate::restores::{LANES, another_cluster, recover, refused};
use crate::support::archived::Archived;
use crate::support::content::{Content, content};
use crate::support::pod::Pod;
use crate::support::store::{Stored, binlogs, transactions};
use crate::support::{Cluster, clone_and_keep, make_table, show_logs};

/// What people have in their databases, beside tables with a primary key.
const ODD: [&str; 19] = [
    "CREATE DATABASE `o'd\"d``s` CHARACTER SET utf8mb4",
    "CREATE TABLE `o'd\"d``s`.`a 't' \"x\"` (a INT, b VARCHAR(40) CHARACTER SET utf8mb4, c INT DEFAULT 5 INVISIBLE, \
     d INT GENERATED ALWAYS AS (a * 2) STORED, e INT GENERATED ALWAYS AS (a + 1) VIRTUAL, KEY (e)) COMMENT 'no ''key'''",
    "INSERT INTO `o'd\"d``s`.`a 't' \"x\"` (a, b) VALUES (1, '😀 ẞ'), (1, '😀 ẞ'), (NULL, '\\'\\0'), (-1, '')",
    "CREATE DATABASE shop",
    "CREATE TABLE shop.stock (item INT PRIMARY KEY, n_left INT NOT NULL, word VARCHAR(60), KEY (word))",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, item INT NOT NULL, n INT NOT NULL, note VARCHAR(60))",
    "CREATE TABLE shop.noted (what VARCHAR(60))",
    "CREATE TABLE shop.parts (id INT, at DATE, b LONGBLOB, PRIMARY KEY (id, at)) PARTITION BY RANGE (YEAR(at)) \
     (PARTITION old VALUES LESS THAN (2020), PARTITION new VALUES LESS THAN MAXVALUE)",
    "INSERT INTO shop.stock VALUES (1, 1000, 'tea'), (2, 1000, 'größe'), (3, 1000, NULL)",
    "INSERT INTO shop.parts VALUES (1, '2019-12-31', REPEAT('x', 100000)), (2, '2026-11-30', NULL)",
    "CREATE TRIGGER shop.sold AFTER INSERT ON shop.orders FOR EACH ROW \
     UPDATE shop.stock SET n_left = n_left - NEW.n WHERE item = NEW.item",
    "CREATE PROCEDURE shop.`p-1`(IN n INT) SQL SECURITY INVOKER SELECT n, 'it''s'",
    "CREATE EVENT shop.never ON SCHEDULE AT '2099-01-01 00:00:00' DO DELETE FROM shop.orders",
    "CREATE DEFINER='gone'@'%' SQL SECURITY DEFINER VIEW shop.orphan AS SELECT item, n_left FROM shop.stock",
    "CREATE ROLE 'reader'",
    "GRANT SELECT ON shop.* TO 'reader'",
    "CREATE USER 'clerk'@'%' IDENTIFIED BY 'first' DEFAULT ROLE 'reader'",
    "GRANT 'reader' TO 'clerk'@'%' WITH ADMIN OPTION",
    "GRANT INSERT, DELETE ON shop.* TO 'clerk'@'%'",
];

/// Statements that are transactions of their own, in between.
const CHANGES: [&str; 8] = [
    "ALTER TABLE shop.orders ADD COLUMN paid TINYINT DEFAULT 1 AFTER item, ALGORITHM=INSTANT",
    "TRUNCATE TABLE shop.noted",
    "ALTER USER 'clerk'@'%' IDENTIFIED BY 'second'",
    "ALTER TABLE shop.parts DROP PARTITION old",
    "RENAME TABLE shop.noted TO `o'd\"d``s`.noted",
    "DELETE FROM `o'd\"d``s`.`a 't' \"x\"` WHERE a = 1 LIMIT 1",
    "DROP VIEW shop.orphan",
    "DROP TABLE shop.parts",
];

/// What a client was told to be committed, and everything that was there then.
struct Mark {
    /// The clock before and after the commit.
    before: Timestamp,
    after: Timestamp,
    gtid: Gtid,
    executed: GtidSet,
    content: Content,
}

/// A backup that was made.
struct Made {
    id: BackupId,
    /// Number of marks that it holds.
    marks: usize,
    began: Timestamp,
    completed: Timestamp,
}

/// A cluster of three that archives, and its only client.
struct Shop {
    cluster: Cluster,
    primary: usize,
    stored: Stored,
    marks: Vec<Mark>,
    orders: u32,
    changes: usize,
    backups: Vec<Made>,
}

impl Shop {
    async fn open() -> Self {
        let stored = Stored::new(Some(PrivateKey::generate())).await;
        let mut cluster = Cluster::prepare(3);
        for node in &cluster.nodes {
            stored.archive_of(node);
        }
        cluster.start_all().await;
        cluster.make_primary(0).await;
        make_table(&mut cluster, 0).await;
        let mut inside = cluster.nodes[0].inside().await;
        for statement in ODD {
            inside.query_drop(statement).await.unwrap();
        }
        Self {
            cluster,
            primary: 0,
            stored,
            marks: Vec::new(),
            orders: 0,
            changes: 0,
            backups: Vec::new(),
        }
    }

    /// The client's next commits: orders, and here and there something else.
    async fn sells(&mut self, commits: u32) {
        for _ in 0..commits {
            self.orders += 1;
            let id = self.orders;
            if id.is_multiple_of(3)
                && let Some(change) = CHANGES.get(self.changes)
            {
                self.changes += 1;
                self.commit(&[change]).await;
                continue;
            }
            let order = format!(
                "INSERT INTO shop.orders (id, item, n, note) VALUES ({id}, {}, 2, 'no. {id}')",
                id % 3 + 1
            );
            let word = format!("UPDATE shop.stock SET word = CONCAT('after ', {id}) WHERE item = 2");
            self.commit(&["BEGIN", &order, &word, "COMMIT"]).await;
        }
    }

    async fn commit(&mut self, statements: &[&str]) {
        let mut client = self.cluster.nodes[self.primary].inside().await;
        let executed = async |client: &mut mysql_async::Conn| -> GtidSet {
            let text: Option<String> = client.query_first("SELECT @@GLOBAL.gtid_executed").await.unwrap();
            text.unwrap().parse().unwrap()
        };
        let earlier = executed(&mut client).await;
        let (last, first) = statements.split_last().unwrap();
        for statement in first {
            client.query_drop(*statement).await.unwrap();
        }
        let before = Timestamp::now();
        client.query_drop(*last).await.unwrap();
        let after = Timestamp::now();
        let executed = executed(&mut client).await;
        let new = executed.subtract(&earlier);
        assert_eq!(new.count(), 1, "{statements:?}: {new}");
        self.marks.push(Mark {
            before,
            after,
            gtid: new.to_string().parse().unwrap(),
            executed,
            content: content(&mut client).await,
        });
    }

    /// Makes a backup of this instance, when it has everything.
    async fn back_up(&mut self, donor: usize) {
        let executed = self.cluster.mark(self.primary).await;
        self.cluster.nodes[donor].wait_for(&executed).await;
        let mut pod = Pod::new(&self.cluster, donor, &self.stored.access());
        let id = BackupId::parse(&format!("20261130t0{}0000z-points", self.backups.len())).unwrap();
        pod.settings.task.id = id.clone();
        let began = Timestamp::now();
        let made = stored(mainstay_instance::backup::make(pod.settings.clone(), std::future::pending()).await);
        self.backups.push(Made {
            id,
            marks: self.marks.len(),
            began,
            completed: made.completed_at,
        });
    }

    /// The primary is lost with a transaction that nobody else has, and another one takes over. What was lost.
    async fn loses_its_primary(&mut self, winner: usize) -> Gtid {
        let (lost, others) = (self.primary, [winner, 3 - winner - self.primary]);
        // What was acknowledged is stored before; the rest of the binlog is not.
        self.cluster.stop_receivers(&others).await;
        let mut client = self.cluster.nodes[lost].inside().await;
        let waiting = tokio::spawn(async move {
            client
                .query_drop("INSERT INTO shop.orders (id, item, n, note) VALUES (9999, 1, 999, 'never happened')")
                .await
        });
        self.cluster.nodes[lost]
            .wait("a commit waits", |report| report.semi_sync.waiters > 0)
            .await;
        // Time enough to store it, if that were done.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.cluster.nodes[lost].cut().await;
        assert!(waiting.await.unwrap().is_err(), "nobody was told that it is committed");
        let known: BTreeSet<String> = self.marks.iter().map(|mark| mark.gtid.to_string()).collect();
        let written = binlogs(&self.cluster.nodes[lost]);
        let last = transactions(written.last().unwrap())
            .pop()
            .expect("it is in the binlog");
        let last = last.transaction.gtid;
        assert!(!known.contains(&last.to_string()), "{last}");
        self.cluster.make_primary_when_applied(winner).await;
        self.primary = winner;
        last
    }

    /// The former primary returns with what nobody has, and gets the data anew.
    async fn rebuilds(&mut self, instance: usize, errant: &Gtid) {
        let primary = self.primary;
        self.cluster.nodes[instance].start().await;
        let report = self.cluster.nodes[instance]
            .wait("it answers", |report| report.mysqld == Mysqld::Running)
            .await;
        assert!(report.executed.contains_gtid(errant), "{}", report.executed);
        let donor = self.cluster.endpoint(instance, primary).await;
        self.cluster.give(instance, clone_and_keep(donor)).await.must_be_done();
        let rebuilt = self.cluster.nodes[instance]
            .wait("it is rebuilt", |rebuilt| {
                rebuilt.mysqld == Mysqld::Running && rebuilt.incarnation != report.incarnation
            })
            .await;
        assert!(!rebuilt.executed.contains_gtid(errant), "{}", rebuilt.executed);
        let source = self.cluster.endpoint(instance, primary).await;
        self.cluster
            .give(instance, Verb::Attach { source })
            .await
            .must_be_done();
        let mut members = BTreeSet::new();
        for node in (0..3).filter(|node| *node != primary) {
            members.insert(self.cluster.nodes[node].id().await);
        }
        let acks_required = 1;
        let allow = Verb::Allow { members, acks_required };
        self.cluster.give(primary, allow).await.must_be_done();
    }

    /// Where to recover to, and which mark is the last one then: each mark after the first backup in one of the ways in which a
    /// point can be named, and the moments around each backup.
    fn targets(&self, times: &BTreeMap<String, Timestamp>) -> Vec<(String, Target, usize)> {
        let tick = SignedDuration::from_micros(1);
        let mut targets = Vec::new();
        let mut add = |what: &str, target: Target, mark: usize| {
            targets.push((format!("{what} mark {mark}: {target:?}"), target, mark));
        };
        let first = self.backups[0].marks - 1;
        let last = self.marks.len() - 1;
        for (number, mark) in self.marks.iter().enumerate().skip(first) {
            let at = times[&mark.gtid.to_string()];
            assert!(
                mark.before <= at && at <= mark.after,
                "{} {at} {}",
                mark.before,
                mark.after
            );
            let next = self.marks.get(number + 1);
            match (number % 4, next) {
                (0, _) => add("to", Target::Gtid(mark.gtid.clone()), number),
                (1, Some(next)) => {
                    let between = next.before.duration_since(mark.after) / 2;
                    add("between", Target::Time(mark.after + between), number);
                }
                (2, Some(next)) => {
                    let next = times[&next.gtid.to_string()];
                    add("just before the one after", Target::Time(next - tick), number);
                }
                _ => add("at", Target::Time(at), number),
            }
        }
        for backup in &self.backups {
            let mark = backup.marks - 1;
            add("when the backup began, at", Target::Time(backup.began), mark);
            add("when the backup was complete, at", Target::Time(backup.completed), mark);
        }
        add("to the last, by", Target::Gtid(self.marks[last].gtid.clone()), last);
        add("everything, to", Target::Latest, last);
        targets
    }
}

/// One cluster's life: two backups, a failover with a transaction that only the lost primary's binlog holds, a rebuilt
/// instance that becomes the primary; then it is gone, and more than twenty points of it are recovered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the files of a MySQL image and versitygw: MAINSTAY_TEST_MYSQL, MAINSTAY_TEST_S3"]
async fn f06_points_in_time_are_reached_across_a_failover_and_a_rebuilt_instance() {
    show_logs();
    let began = Instant::now();
    let mut shop = Shop::open().await;
    shop.sells(2).await;
    shop.back_up(1).await;
    shop.sells(6).await;
    let mut inside = shop.cluster.nodes[0].inside().await;
    inside.query_drop("FLUSH BINARY LOGS").await.unwrap();
    shop.sells(3).await;
    let lost = shop.loses_its_primary(1).await;
    shop.sells(4).await;
    shop.rebuilds(0, &lost).await;
    shop.sells(2).await;
    shop.back_up(0).await;
    shop.sells(3).await;
    shop.cluster.make_primary_when_applied(0).await;
    shop.primary = 0;
    shop.sells(4).await;
    let executed = until_stored(&mut shop.cluster, 0).await;
    shop.cluster.cut().await;
    let archived = Archived::read(shop.stored.store.as_ref(), &shop.stored.cluster).await;
    assert_eq!(archived.reigns.len(), 3);
    assert!(!archived.stored().contains_gtid(&lost), "{lost} is stored");
    let segments = archived.reigns.iter().flat_map(|reign| reign.segments.values());
    let times: BTreeMap<String, Timestamp> = segments
        .flat_map(|segment| &segment.transactions)
        .map(|it| (it.gtid.to_string(), Timestamp::from_microsecond(it.at).unwrap()))
        .collect();
    let targets = shop.targets(&times);
    println!("{} marks after {:?}", shop.marks.len(), began.elapsed());
    assert!(targets.len() >= 20, "{}", targets.len());

    let recoveries = Instant::now();
    let lanes = (0..LANES).map(|lane| recovers(&shop, targets.iter().skip(lane).step_by(LANES)));
    let bases: BTreeSet<String> = futures::future::join_all(lanes).await.into_iter().flatten().collect();
    let made: BTreeSet<String> = shop.backups.iter().map(|made| made.id.to_string()).collect();
    assert_eq!(bases, made, "each backup served");
    println!("{} points in {:?}", targets.len(), recoveries.elapsed());
    refuses(&shop, &lost, &times, &executed).await;
    println!("{:?} in all", began.elapsed());
}

/// Recovers to each of these, one after the other; the backups with which they began.
async fn recovers(shop: &Shop, targets: impl Iterator<Item = &(String, Target, usize)>) -> BTreeSet<String> {
    let mut cluster = another_cluster();
    let mut bases = BTreeSet::new();
    for (what, target, mark) in targets {
        let (report, content) = recover(&mut cluster.nodes[0], &shop.stored, target).await;
        let (mark, next) = (&shop.marks[*mark], shop.marks.get(mark + 1));
        for (name, expected) in &mark.content {
            assert_eq!(content.get(name), Some(expected), "{what}: {name}");
        }
        assert_eq!(
            content.len(),
            mark.content.len(),
            "{what}: there is more than there was"
        );
        let recovered = report.recovered.as_deref().unwrap();
        assert!(
            recovered.reached.contains(&mark.executed),
            "{what}: {}",
            recovered.reached
        );
        assert!(
            next.is_none_or(|next| !recovered.reached.contains_gtid(&next.gtid)),
            "{what}: {}",
            recovered.reached
        );
        bases.insert(recovered.backup.clone());
    }
    cluster.cut().await;
    bases
}

/// What cannot be reached exactly is refused, and it is said how far a recovery can go.
async fn refuses(shop: &Shop, lost: &Gtid, times: &BTreeMap<String, Timestamp>, executed: &GtidSet) {
    let at = |mark: &Mark| times[&mark.gtid.to_string()];
    let tick = SignedDuration::from_micros(1);
    let (first, last) = (&shop.backups[0], shop.marks.last().unwrap());
    let newest = times.values().max().unwrap();
    let backup = at(&shop.marks[first.marks - 1]);
    let next: Gtid = {
        let text = last.gtid.to_string();
        let (source, number) = text.rsplit_once(':').unwrap();
        format!("{source}:{}", number.parse::<u64>().unwrap() + 1000)
            .parse()
            .unwrap()
    };
    let (early, beyond) = ("before the first backup", "beyond what is stored");
    let cases = [
        (Target::Time(backup - tick), early, first.completed.to_string()),
        (
            Target::Gtid(shop.marks[0].gtid.clone()),
            early,
            first.completed.to_string(),
        ),
        (Target::Time(*newest + tick), beyond, newest.to_string()),
        (Target::Time(Timestamp::now()), beyond, newest.to_string()),
        (
            Target::Time(Timestamp::now() + SignedDuration::from_hours(24)),
            beyond,
            newest.to_string(),
        ),
        (Target::Gtid(next), beyond, executed.to_string()),
        (Target::Gtid(lost.clone()), beyond, executed.to_string()),
    ];
    let mut cluster = another_cluster();
    let (before, keys) = (shop.stored.everything().await, shop.stored.keys());
    for (target, why, reach) in cases {
        let message = refused(&mut cluster.nodes[0], &shop.stored, &target, &keys).await;
        assert!(
            message.contains(why) && message.contains(&reach),
            "{target:?}: {message}"
        );
    }
    assert_eq!(
        shop.stored.everything().await,
        before,
        "nothing in the store was touched"
    );
    cluster.cut().await;
}
