//! Self-fencing and stall detection with a stopped clock and a server made of values.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mainstay_core::observed::Persisted;
use mainstay_core::rules::{Incarnation, InstanceName, MemberId};
use mainstay_mysql::{LockHolder, Mysql, Receiver, ServerState};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::hearing::Reign;
use crate::proto;
use crate::secrets::Secrets;
use crate::server::Server;
use crate::shared::Shared;
use crate::state::{Stage, State, StateFile};
use crate::testing::{self, FakeMysql, FakeServer};

const SECOND: Duration = Duration::from_secs(1);

fn member(ordinal: u32) -> MemberId {
    MemberId {
        instance: InstanceName(format!("shop-{ordinal}")),
        incarnation: Incarnation(format!("life {ordinal}")),
    }
}

/// What `shop-1` was told as the primary of this many members.
fn told(members: u32, acks_required: u32) -> Persisted {
    Persisted {
        epoch: 4,
        seq: 1,
        told_epoch: 4,
        primary: Some(member(1)),
        members: (2..2 + members).map(member).collect(),
        acks_required,
        ..Persisted::default()
    }
}

/// A manager's guards around a server made of values, and nothing else of it.
struct Bench {
    _dir: tempfile::TempDir,
    mysql: Arc<FakeMysql>,
    server: Arc<FakeServer>,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Bench {
    fn new(state: ServerState, told: Persisted) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = testing::config(dir.path());
        // Where nobody listens.
        (config.pod_ip, config.ports.admin) = ("127.0.0.1".parse().unwrap(), 1);
        std::fs::create_dir_all(&config.paths.volume).unwrap();
        let secrets = Secrets::read(&config.paths);
        let (mut file, _) = StateFile::open(&config.paths.state()).unwrap();
        let known = State {
            incarnation: "life 1".to_owned(),
            stage: Stage::Ready,
            told,
            ..State::default()
        };
        file.write(known).unwrap();
        let mysql = Arc::new(FakeMysql::new(state));
        let server = Arc::new(FakeServer {
            mysql: Arc::clone(&mysql),
            running: AtomicBool::new(true),
            ..FakeServer::default()
        });
        let port = Arc::clone(&mysql) as Arc<dyn Mysql>;
        let shared = Arc::new(Shared::new(config, port, "9.7.4".parse().unwrap(), file, secrets));
        shared.set_process(|process| process.phase = mainstay_core::observed::Mysqld::Running);
        let restarted = Arc::clone(&shared);
        let when_killed = move || restarted.set_process(|process| process.run += 1);
        *server.when_killed.lock().unwrap() = Some(Box::new(when_killed));
        let sampler = Arc::clone(&shared);
        let guarded: Arc<dyn Server> = Arc::clone(&server) as Arc<dyn Server>;
        let tasks = vec![
            tokio::spawn(async move { sampler.sample().await }),
            tokio::spawn(fence_oneself(Arc::clone(&shared), Arc::clone(&guarded))),
            tokio::spawn(end_what_is_frozen(Arc::clone(&shared), guarded)),
        ];
        Self {
            _dir: dir,
            mysql,
            server,
            shared,
            tasks,
        }
    }

    /// For this long, with these signs of life each half second.
    async fn live(&self, time: Duration, sign: impl Fn(&Shared)) {
        for _ in 0..time.as_millis() / 500 {
            sign(&self.shared);
            sleep(SECOND / 2).await;
        }
    }

    fn kills(&self) -> Vec<String> {
        self.server.reasons.lock().unwrap().clone()
    }

    fn called(&self, what: &str) -> usize {
        self.mysql.calls().iter().filter(|call| *call == what).count()
    }
}

fn nobody(_shared: &Shared) {}

fn operator(shared: &Shared) {
    shared.hearing.operator();
}

fn one_member(shared: &Shared) {
    shared.hearing.peer("shop-3", None, false);
}

/// An open primary that the operator has just opened.
async fn primary(members: u32, acks_required: u32) -> Bench {
    let bench = Bench::new(testing::primary(members), told(members, acks_required));
    bench.live(SECOND, operator).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn f21_a_primary_that_hears_nobody_kills_mysqld_after_the_fencing_time() {
    let bench = primary(2, 1).await;
    bench.live(SECOND * 9, nobody).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
    bench.live(SECOND * 2, nobody).await;
    assert_eq!(
        bench.kills(),
        ["it fenced itself: for 10 s it heard neither the operator, nor the API server, nor 1 of shop-2, shop-3"]
    );
    // It is read-only now: there is nothing left to kill.
    bench.live(SECOND * 30, nobody).await;
    assert_eq!(bench.kills().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f19_operator_and_api_server_away_for_hours_change_nothing() {
    let bench = primary(2, 1).await;
    bench.live(SECOND * 7200, one_member).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn one_member_of_four_is_no_quorum() {
    let bench = primary(4, 2).await;
    bench.live(SECOND * 12, one_member).await;
    assert_eq!(bench.kills().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_operator_or_the_api_server_alone_is_enough() {
    let bench = primary(2, 1).await;
    bench.live(SECOND * 60, operator).await;
    bench.live(SECOND * 60, |shared| shared.hearing.api_server()).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_single_instance_is_never_fenced_by_itself() {
    let mut state = testing::primary(0);
    state.semi_sync = mainstay_mysql::SemiSyncState::default();
    let bench = Bench::new(state, told(0, 0));
    bench.live(SECOND, operator).await;
    bench.live(SECOND * 3600, nobody).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn f20_a_primary_that_was_replaced_kills_mysqld_at_once() {
    let bench = primary(2, 1).await;
    let reign = Reign {
        told_epoch: 5,
        primary: member(2),
        members: vec![member(3)],
        acks_required: 1,
    };
    // From the other one itself, while the operator is heard, too.
    let sign = |shared: &Shared| {
        shared.hearing.operator();
        shared.hearing.peer("shop-2", Some(reign.clone()), false);
    };
    bench.live(SECOND, sign).await;
    assert_eq!(
        bench.kills(),
        ["it fenced itself: shop-2 was made primary in epoch 5, and this instance in epoch 4"]
    );
}

#[tokio::test(start_paused = true)]
async fn f21_reads_end_on_an_isolated_replica_and_begin_again_when_it_receives() {
    let bench = Bench::new(testing::replica(), Persisted::default());
    let source = |shared: &Shared| shared.hearing.peer("shop-0", None, false);
    bench.live(SECOND * 3600, source).await;
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
    bench.live(SECOND * 9, nobody).await;
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
    bench.mysql.change(|state| {
        state.channel.as_mut().unwrap().receiver = Receiver::Connecting;
    });
    bench.live(SECOND * 2, nobody).await;
    assert_eq!(bench.called("serve_clients false"), 1);
    // Whoever comes all the same is ended again and again.
    let ended = bench.called("end_remote_sessions");
    bench.live(SECOND * 10, nobody).await;
    assert!(bench.called("end_remote_sessions") >= ended + 8);
    assert_eq!(bench.called("serve_clients false"), 1);
    // Somebody is heard, and it does not receive yet.
    bench.live(SECOND * 5, source).await;
    assert_eq!(bench.called("serve_clients true"), 0);
    bench.mysql.change(|state| {
        state.channel.as_mut().unwrap().receiver = Receiver::On;
    });
    bench.live(SECOND * 5, source).await;
    assert_eq!(bench.called("serve_clients true"), 1);
    assert_eq!(bench.kills(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_attached_is_left_as_it_is() {
    let mut state = testing::replica();
    state.offline = true;
    state.channel = None;
    let bench = Bench::new(state, Persisted::default());
    bench.live(SECOND * 60, operator).await;
    bench.live(SECOND * 60, nobody).await;
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
}

/// An open primary with commits on their way that do not end.
async fn stuck(change: impl FnOnce(&mut ServerState)) -> Bench {
    let bench = primary(2, 1).await;
    bench.mysql.hang_commits();
    bench.mysql.change(|state| {
        state.committing = 3;
        change(state);
    });
    bench
}

#[tokio::test(start_paused = true)]
async fn rule_2c_a_primary_whose_commits_are_stuck_is_killed_after_the_stall_time() {
    let bench = stuck(|_state| {}).await;
    bench.live(SECOND * 3 / 2, operator).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
    bench.live(SECOND * 3 / 2, operator).await;
    assert_eq!(bench.called("mark"), 1);
    assert_eq!(bench.kills(), ["commits did not end for 2 s and it was killed"]);
}

/// Clients that wait for a lock have no commit on its way: nothing is killed, and the report says who keeps them waiting.
#[tokio::test(start_paused = true)]
async fn a_lock_on_everything_is_told_and_nothing_is_killed_for_it() {
    let bench = primary(2, 1).await;
    let standstill = || bench.shared.watch_status().borrow().standstill.clone();
    bench.mysql.lock_everything(Some(LockHolder {
        connection: 73,
        user: "root".to_owned(),
        host: "10.0.0.7".to_owned(),
    }));
    bench.live(SECOND * 3 / 2, operator).await;
    assert_eq!(standstill(), None, "every backup takes it for a moment");
    bench.live(SECOND * 60, operator).await;
    let told = standstill().unwrap();
    assert_eq!(told.cause(), proto::standstill::Cause::GlobalLock);
    assert_eq!(told.holder, "session 73 of root@10.0.0.7");
    assert_eq!((bench.kills(), bench.called("mark")), (Vec::new(), 0));
    bench.mysql.lock_everything(None);
    bench.live(SECOND * 2, operator).await;
    assert_eq!(standstill(), None);
    // Nobody waits, so nobody is asked for.
    let asked = bench.called("global_lock_holder");
    bench.live(SECOND * 60, operator).await;
    assert_eq!(bench.called("global_lock_holder"), asked);
}

#[tokio::test(start_paused = true)]
async fn rule_2c_with_fewer_than_k_replicas_connected_commits_may_wait() {
    let bench = stuck(|state| {
        state.semi_sync.clients = 0;
        state.semi_sync.waiters = 1;
    })
    .await;
    bench.live(SECOND * 600, operator).await;
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn rule_2c_acknowledgements_that_do_not_come_need_the_members_word() {
    let bench = stuck(|state| state.semi_sync.waiters = 1).await;
    // They are there, and do not receive.
    bench.live(SECOND * 60, one_member).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
    let bench = stuck(|state| state.semi_sync.waiters = 1).await;
    bench
        .live(SECOND * 5, |shared| shared.hearing.peer("shop-3", None, true))
        .await;
    assert_eq!(bench.kills().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rule_2c_a_probe_that_ends_is_enough() {
    let bench = primary(2, 1).await;
    bench.mysql.change(|state| state.committing = 1);
    bench.live(SECOND * 20, operator).await;
    assert!(bench.called("mark") >= 1);
    assert_eq!(bench.kills(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_idle_primary_is_not_probed() {
    let bench = primary(2, 1).await;
    bench.live(SECOND * 3600, operator).await;
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn rule_2c_a_frozen_primary_is_killed_after_the_stall_time() {
    let bench = primary(2, 1).await;
    bench.mysql.fall_silent();
    bench.live(SECOND * 3 / 2, operator).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
    bench.live(SECOND, operator).await;
    assert_eq!(bench.kills(), ["it gave no answer for 2 s and was killed"]);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_replica_has_more_time() {
    let bench = Bench::new(testing::replica(), Persisted::default());
    bench.live(SECOND, operator).await;
    bench.mysql.fall_silent();
    bench.live(SECOND * 9, operator).await;
    assert_eq!(bench.kills(), Vec::<String>::new());
    bench.live(SECOND * 2, operator).await;
    assert_eq!(bench.kills(), ["it gave no answer for 10 s and was killed"]);
}
