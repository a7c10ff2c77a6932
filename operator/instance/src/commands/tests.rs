//! Commands against a server made of values: what is asked of it, in which order, and what is refused.

use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_core::GtidSet;
use mainstay_core::action::Endpoint;
use mainstay_core::rules::InstanceName;
use mainstay_mysql::{Receiver, ServerState};

use super::*;
use crate::secrets::Secrets;
use crate::state::{Stage, StateFile};
use crate::testing::{self, FakeMysql, FakeServer, dump_thread};

/// Incarnation of the instance under test, `shop-1`.
pub(super) const LIFE: &str = "life";

pub(super) struct Bench {
    _dir: tempfile::TempDir,
    pub(super) mysql: Arc<FakeMysql>,
    pub(super) server: Arc<FakeServer>,
    pub(super) shared: Arc<Shared>,
    pub(super) commands: Arc<Commands>,
}

impl Bench {
    pub(super) fn new(state: ServerState) -> Self {
        Self::with_file(state, |path| {
            let (mut file, _) = StateFile::open(path).unwrap();
            let known = crate::state::State {
                incarnation: LIFE.to_owned(),
                stage: Stage::Ready,
                ..Default::default()
            };
            file.write(known).unwrap();
            file
        })
    }

    fn with_file(state: ServerState, file: impl FnOnce(&std::path::Path) -> StateFile) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = testing::config(dir.path());
        for path in [
            &config.paths.volume,
            &config.paths.system_secret,
            &config.paths.root_secret,
        ] {
            std::fs::create_dir_all(path).unwrap();
        }
        for name in mainstay_core::layout::SYSTEM_ACCOUNTS {
            std::fs::write(config.paths.system_secret.join(name), "password").unwrap();
        }
        let secrets = Secrets::read(&config.paths);
        let file = file(&config.paths.state());
        let mysql = Arc::new(FakeMysql::new(state));
        let server = Arc::new(FakeServer {
            mysql: Arc::clone(&mysql),
            running: AtomicBool::new(true),
            ..FakeServer::default()
        });
        let version = "9.7.4".parse().unwrap();
        let shared = Arc::new(Shared::new(
            config,
            Arc::clone(&mysql) as Arc<dyn Mysql>,
            version,
            file,
            secrets,
        ));
        shared.set_process(|process| process.phase = mainstay_core::observed::Mysqld::Running);
        let commands = Arc::new(Commands::new(
            Arc::clone(&shared),
            Arc::clone(&server) as Arc<dyn Server>,
        ));
        Self {
            _dir: dir,
            mysql,
            server,
            shared,
            commands,
        }
    }

    pub(super) async fn give(&self, epoch: u64, seq: u64, verb: Verb) -> proto::CommandReply {
        self.give_to(LIFE, epoch, seq, verb).await
    }

    async fn give_to(&self, life: &str, epoch: u64, seq: u64, verb: Verb) -> proto::CommandReply {
        let head = Head {
            incarnation: Incarnation(life.to_owned()),
            ..self.head(epoch, seq)
        };
        Arc::clone(&self.commands).execute(head, verb).await
    }

    fn head(&self, epoch: u64, seq: u64) -> Head {
        Head {
            epoch,
            seq,
            incarnation: self.shared.state().incarnation(),
            deadline: Duration::from_millis(200),
        }
    }

    pub(super) fn called(&self, what: &str) -> usize {
        self.mysql.calls().iter().filter(|call| *call == what).count()
    }
}

pub(super) fn applied(reply: &proto::CommandReply) -> bool {
    assert_eq!(reply.reason, "");
    reply.result == i32::from(proto::command_reply::Result::Applied)
}

fn already(reply: &proto::CommandReply) -> bool {
    reply.result == i32::from(proto::command_reply::Result::Already)
}

#[track_caller]
pub(super) fn refused(reply: &proto::CommandReply, because: &str) {
    assert_eq!(reply.result, i32::from(proto::command_reply::Result::Refused));
    assert!(
        reply.reason.contains(because),
        "{:?} does not say {because:?}",
        reply.reason
    );
}

fn member(ordinal: u32) -> MemberId {
    let name = format!("shop-{ordinal}");
    MemberId {
        incarnation: Incarnation(format!("life of {name}")),
        instance: InstanceName(name),
    }
}

pub(super) fn members(ordinals: &[u32]) -> BTreeSet<MemberId> {
    ordinals.iter().copied().map(member).collect()
}

pub(super) fn open(ordinals: &[u32], acks_required: u32) -> Verb {
    Verb::Open {
        members: members(ordinals),
        acks_required,
        baseline: GtidSet::new(),
        recorded: testing::recorded(),
        application: None,
    }
}

fn allow(ordinals: &[u32], acks_required: u32) -> Verb {
    Verb::Allow {
        members: members(ordinals),
        acks_required,
    }
}

fn attach(ordinal: u32) -> Verb {
    Verb::Attach {
        source: Endpoint {
            id: member(ordinal),
            host: format!("host-{ordinal}"),
            port: 33062,
        },
    }
}

/// A read-only server that follows nobody.
fn closed() -> ServerState {
    ServerState {
        channel: None,
        executed: testing::set("1-9"),
        ..testing::replica()
    }
}

#[tokio::test]
async fn rule_0_only_newer_commands_for_this_incarnation_are_accepted() {
    let bench = Bench::new(closed());
    assert!(already(&bench.give(3, 7, Verb::Fence).await));
    refused(&bench.give(3, 7, Verb::Fence).await, "not newer");
    refused(&bench.give(3, 6, Verb::Fence).await, "not newer");
    refused(&bench.give(2, 99, Verb::Fence).await, "not newer");
    refused(
        &bench.give_to("other", 4, 1, Verb::Fence).await,
        "meant for the incarnation",
    );
    assert_eq!((bench.shared.state().told.epoch, bench.shared.state().told.seq), (3, 7));
    let reply = bench.give(4, 1, Verb::Fence).await;
    assert!(already(&reply));
    assert_eq!((reply.epoch, reply.seq), (4, 1));
    assert_eq!(reply.status.unwrap().persisted.unwrap().epoch, 4);
}

#[tokio::test]
async fn rule_0_a_command_that_is_refused_by_the_server_is_persisted_all_the_same() {
    let bench = Bench::new(testing::primary(1));
    refused(&bench.give(5, 1, attach(0)).await, "writable");
    assert_eq!(bench.shared.state().told.epoch, 5);
    refused(&bench.give(5, 1, Verb::Fence).await, "not newer");
}

#[tokio::test]
async fn what_was_told_is_kept() {
    let bench = Bench::new(closed());
    bench.mysql.join_when_semi_sync(vec![dump_thread(2)]);
    assert!(applied(&bench.give(1, 1, open(&[0, 2], 1)).await));
    let told = bench.shared.state().told;
    assert_eq!(told.primary.unwrap().instance.0, "shop-1");
    assert_eq!((told.told_epoch, told.members.len(), told.acks_required), (1, 2, 1));
    assert!(applied(&bench.give(1, 2, allow(&[2], 1)).await));
    assert_eq!(bench.shared.state().told.members, [member(2)]);
}

#[tokio::test]
async fn a_status_carries_the_pair_of_the_command_that_has_ended() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.hang_commits();
    let commands = Arc::clone(&bench.commands);
    let head = Head {
        epoch: 1,
        seq: 1,
        incarnation: Incarnation(LIFE.to_owned()),
        deadline: Duration::from_secs(5),
    };
    let running = tokio::spawn(commands.execute(head, Verb::Mark));
    while bench.shared.state().told.epoch != 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.shared.observe().await.persisted.as_ref().unwrap().epoch, 0);
    assert!(applied(&bench.give(1, 2, Verb::Fence).await));
    refused(&running.await.unwrap(), "a fence interrupted it");
    assert_eq!(bench.shared.observe().await.persisted.as_ref().unwrap().seq, 2);
}

#[tokio::test]
async fn a_replica_is_fenced_by_stopping_its_receiver() {
    let bench = Bench::new(testing::replica());
    assert!(applied(&bench.give(1, 1, Verb::Fence).await));
    assert_eq!(bench.mysql.calls(), ["set_super_read_only", "stop_receiver"]);
    assert!(already(&bench.give(1, 2, Verb::Fence).await));
}

#[tokio::test]
async fn a_fenced_replica_goes_on_applying() {
    let mut state = testing::replica();
    let channel = state.channel.as_mut().unwrap();
    channel.applier_running = false;
    channel.received = testing::set("1-9");
    let bench = Bench::new(state);
    assert!(applied(&bench.give(1, 1, Verb::Fence).await));
    assert_eq!(
        bench.mysql.calls(),
        ["set_super_read_only", "stop_receiver", "start_applier"]
    );
}

/// `super_read_only` says ON while a statement of somebody else still waits for a commit, which may be acknowledged yet.
#[tokio::test]
async fn a1_a_fence_believes_no_variable() {
    let mut state = testing::primary(1);
    (state.super_read_only, state.read_only) = (true, true);
    let bench = Bench::new(state);
    bench.mysql.hang_commits();
    assert!(applied(&bench.give(1, 1, Verb::Fence).await));
    assert_eq!(
        bench.mysql.calls(),
        [
            "set_super_read_only",
            // A client may have locked tables.
            "end_client_sessions",
            "kill",
            "set_super_read_only"
        ]
    );
}

#[tokio::test]
async fn a_primary_is_fenced_and_its_clients_are_sent_away() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.lock_account(0);
    let reply = bench.give(1, 1, Verb::Fence).await;
    assert!(applied(&reply));
    assert_eq!(
        bench.mysql.calls(),
        [
            "set_super_read_only",
            "end_client_sessions",
            "set_event_scheduler false",
            // Accounts can only be changed outside of super_read_only; nobody gets an acknowledgement meanwhile.
            "set_acks 65535",
            "leave_super_read_only",
            "unlock 0",
            "set_super_read_only",
        ]
    );
    assert!(!reply.status.unwrap().writable);
}

#[tokio::test]
async fn a1_a_fence_kills_rather_than_wait_for_a_commit() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.hang_commits();
    let reply = bench.give(1, 1, Verb::Fence).await;
    assert!(applied(&reply));
    assert_eq!(
        bench.mysql.calls(),
        [
            "set_super_read_only",
            // A client may have locked tables.
            "end_client_sessions",
            "kill",
            "set_super_read_only"
        ]
    );
    assert!(!reply.status.unwrap().writable);
}

#[tokio::test]
async fn a1_a_fence_kills_at_once_when_nobody_can_acknowledge() {
    let mut state = testing::primary(0);
    state.semi_sync.waiters = 2;
    let bench = Bench::new(state);
    assert!(applied(&bench.give(1, 1, Verb::Fence).await));
    assert_eq!(bench.mysql.calls(), ["kill", "set_super_read_only"]);
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "the thread that writes waits for it, and no task does"
)]
async fn a_fence_takes_effect_although_the_disk_does_not_take_the_state_file() {
    let bench = Bench::new(testing::primary(1));
    let disk_stalls = bench.shared.hold_state_file();
    refused(&bench.give(1, 1, Verb::Fence).await, "does not take the state file");
    assert_eq!(bench.called("set_super_read_only"), 1);
    assert_eq!(bench.called("kill"), 0);
    // Nor does another command that hangs there keep the next fence off.
    let commands = Arc::clone(&bench.commands);
    let head = bench.head(1, 2);
    let attach = tokio::spawn(commands.execute(head, attach(0)));
    tokio::task::yield_now().await;
    refused(&bench.give(1, 3, Verb::Fence).await, "does not take the state file");
    assert_eq!(bench.called("set_super_read_only"), 2);
    refused(&attach.await.unwrap(), "a fence interrupted it");
    drop(disk_stalls);
    // What was given up is written late, and never over what is newer.
    assert!(already(&bench.give(1, 4, Verb::Fence).await));
    let told = bench.shared.state().told;
    assert_eq!((told.epoch, told.seq), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn a_fence_of_a_server_that_is_slow_ends_with_a_kill_in_time() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.answer_after(Duration::from_secs(5));
    let began = Instant::now();
    let reply = bench.give(1, 1, Verb::Fence).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(bench.called("kill") > 0, "{reply:?}");
}

#[tokio::test]
async fn a_fence_kills_a_server_that_does_not_answer() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.fall_silent();
    assert!(applied(&bench.give(1, 1, Verb::Fence).await));
    assert_eq!(bench.mysql.calls(), ["kill", "set_super_read_only"]);
}

#[tokio::test]
async fn a_fence_is_answered_at_once_while_mysqld_does_not_run() {
    let bench = Bench::new(testing::primary(1));
    bench.server.running.store(false, Ordering::SeqCst);
    assert!(applied(&bench.give(1, 1, Verb::Fence).await));
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
    assert_eq!(bench.shared.state().told.epoch, 1);
}

#[tokio::test]
async fn attach_points_a_detached_instance_at_its_source() {
    let bench = Bench::new(closed());
    assert!(applied(&bench.give(1, 1, attach(0)).await));
    assert_eq!(
        bench.mysql.calls(),
        ["set_source host-0:33062", "start_applier", "start_receiver 1"]
    );
    assert!(already(&bench.give(1, 2, attach(0)).await));
    assert_eq!(bench.shared.state().told.told_epoch, 0, "only Open and Allow tell");
}

#[tokio::test]
async fn attach_to_the_same_source_keeps_the_relay_log() {
    let mut state = testing::replica();
    let channel = state.channel.as_mut().unwrap();
    channel.host = "host-0".to_owned();
    channel.receiver = Receiver::Off;
    channel.received = testing::set("1-9");
    let bench = Bench::new(state);
    assert!(applied(&bench.give(1, 1, attach(0)).await));
    assert_eq!(bench.mysql.calls(), ["start_receiver 1"]);
}

#[tokio::test]
async fn a5_attach_applies_what_was_received_before_it_drops_the_relay_log() {
    let mut state = testing::replica();
    let channel = state.channel.as_mut().unwrap();
    channel.applier_running = false;
    channel.received = testing::set("1-9");
    let bench = Bench::new(state);
    assert!(applied(&bench.give(1, 1, attach(0)).await));
    let calls = bench.mysql.calls();
    assert_eq!(
        calls[..3],
        ["stop_receiver", "start_applier", "set_source host-0:33062"]
    );
}

#[tokio::test]
async fn attach_changes_the_source_of_a_running_applier_without_stopping_it() {
    let bench = Bench::new(testing::replica());
    assert!(applied(&bench.give(1, 1, attach(0)).await));
    assert_eq!(
        bench.mysql.calls(),
        ["stop_receiver", "change_source host-0:33062", "start_receiver 1"]
    );
}

#[tokio::test]
async fn attach_sets_the_source_of_a_channel_without_auto_positioning() {
    let mut state = testing::replica();
    state.channel.as_mut().unwrap().auto_position = false;
    let bench = Bench::new(state);
    assert!(applied(&bench.give(1, 1, attach(0)).await));
    assert_eq!(
        bench.mysql.calls(),
        [
            "stop_receiver",
            "set_source host-0:33062",
            "start_applier",
            "start_receiver 1"
        ]
    );
}

#[tokio::test]
async fn a5_attach_is_refused_while_received_transactions_are_not_applied() {
    let mut state = testing::replica();
    state.channel.as_mut().unwrap().received = testing::set("1-9");
    let bench = Bench::new(state);
    refused(
        &bench.give(1, 1, attach(0)).await,
        "9 received transactions are not applied yet",
    );
    assert_eq!(bench.mysql.calls(), ["stop_receiver"]);
}

#[tokio::test]
async fn a_former_primary_steps_down_before_it_follows() {
    let mut state = testing::primary(1);
    state.super_read_only = true;
    let bench = Bench::new(state);
    assert!(applied(&bench.give(1, 1, attach(0)).await));
    assert_eq!(
        bench.mysql.calls(),
        [
            // It may only say that it is read-only, and semi-sync off acknowledges what waits.
            "set_super_read_only",
            "end_sessions [102]",
            "semi_sync_off",
            "set_source host-0:33062",
            "start_applier",
            "start_receiver 1",
            "end_client_sessions",
        ]
    );
}

#[tokio::test]
async fn open_lets_nobody_unlisted_acknowledge_before_the_first_write() {
    let bench = Bench::new(closed());
    bench.mysql.lock_account(2);
    bench.mysql.join_when_semi_sync(vec![dump_thread(2), dump_thread(4)]);
    assert!(applied(&bench.give(1, 1, open(&[0, 2], 1)).await));
    let calls = bench.mysql.calls();
    // What comes after the opening does not delay it.
    let opened = calls.iter().position(|call| call == "open_writes").unwrap();
    let opening: Vec<_> = calls.iter().take(opened + 1).collect();
    assert_eq!(
        opening,
        [
            "semi_sync_on 65535",
            "leave_super_read_only",
            "lock 1",
            "unlock 2",
            "lock 3",
            "lock 4",
            "lock 5",
            "lock 6",
            "end_sessions [104]",
            "set_acks 1",
            "open_writes",
        ]
    );
}

#[tokio::test]
async fn open_waits_for_k_members_and_closes_again_without_them() {
    let bench = Bench::new(closed());
    bench.mysql.join_when_semi_sync(vec![dump_thread(2)]);
    let reply = bench.give(1, 1, open(&[0, 2], 2)).await;
    refused(
        &reply,
        "1 of the members are connected, and a commit needs the acknowledgement of 2",
    );
    assert!(!bench.mysql.calls().contains(&"open_writes".to_owned()));
    assert!(!reply.status.unwrap().writable);
}

#[tokio::test]
async fn open_is_refused_without_the_baseline_or_with_a_relay_log() {
    let bench = Bench::new(closed());
    let verb = Verb::Open {
        members: members(&[0]),
        acks_required: 1,
        baseline: testing::set("1-10"),
        recorded: testing::recorded(),
        application: None,
    };
    refused(&bench.give(1, 1, verb).await, "lacks");
    bench.mysql.change(|state| *state = testing::replica());
    refused(&bench.give(1, 2, open(&[0], 1)).await, "still receives");
    bench.mysql.change(|state| {
        let channel = state.channel.as_mut().unwrap();
        channel.receiver = Receiver::Off;
        channel.received = testing::set("1-9");
    });
    refused(&bench.give(1, 3, open(&[0], 1)).await, "not applied");
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn one_instance_opens_without_semi_sync() {
    let bench = Bench::new(closed());
    assert!(applied(&bench.give(1, 1, open(&[], 0)).await));
    let calls = bench.mysql.calls();
    assert!(calls.contains(&"open_writes".to_owned()));
    assert!(!calls.iter().any(|call| call.starts_with("semi_sync_on")));
}

#[tokio::test]
async fn open_again_enforces_the_list_and_says_already() {
    let bench = Bench::new(testing::primary(1));
    for ordinal in [0, 1, 3, 4, 5, 6] {
        bench.mysql.lock_account(ordinal);
    }
    assert!(already(&bench.give(1, 1, open(&[2], 1)).await));
}

#[tokio::test]
async fn allow_locks_before_it_ends_sessions() {
    let mut state = testing::primary(2);
    state.dump_threads.push(mainstay_mysql::DumpThread {
        connection: 500,
        user: "debezium".to_owned(),
        ordinal: None,
        semi_sync: false,
    });
    let bench = Bench::new(state);
    for ordinal in [0, 1, 4, 5, 6] {
        bench.mysql.lock_account(ordinal);
    }
    assert!(applied(&bench.give(1, 1, allow(&[2], 1)).await));
    // Change data capture only reads and stays.
    assert_eq!(bench.mysql.calls(), ["lock 3", "end_sessions [103]"]);
    assert!(already(&bench.give(1, 2, allow(&[2], 1)).await));
}

#[tokio::test]
async fn rule_1_a_list_that_could_not_be_enforced_is_not_said_to_be_in_force() {
    let bench = Bench::new(testing::primary(2));
    for ordinal in [0, 1, 4, 5, 6] {
        bench.mysql.lock_account(ordinal);
    }
    let told = |reply: &proto::CommandReply| {
        let status = reply.status.as_ref().unwrap();
        (status.persisted.as_ref().unwrap().seq, status.list_uncertain)
    };
    assert_eq!(told(&bench.give(1, 1, allow(&[2, 3], 1)).await), (1, false));
    bench.mysql.fail_locks(true);
    let reply = bench.give(1, 2, allow(&[2], 1)).await;
    refused(&reply, "lock or unlock");
    assert_eq!(
        told(&reply),
        (2, true),
        "it has ended, and the list is in force in parts"
    );
    // Nothing that comes after it says so, either.
    assert_eq!(told(&bench.give(1, 3, Verb::Mark).await), (3, true));
    refused(&bench.give(1, 4, attach(0)).await, "it is writable");
    assert_eq!(told(&bench.give(1, 5, Verb::Mark).await), (5, true));
    assert_eq!(
        bench.shared.state().told.members.len(),
        1,
        "it is remembered, for it may be in force"
    );
    bench.mysql.fail_locks(false);
    assert_eq!(told(&bench.give(1, 6, allow(&[2], 1)).await), (6, false));
}

#[tokio::test]
async fn c14_a_foreign_semi_synchronous_client_is_ended() {
    let mut state = testing::primary(1);
    state.dump_threads.push(mainstay_mysql::DumpThread {
        connection: 500,
        user: "somebody".to_owned(),
        ordinal: None,
        semi_sync: true,
    });
    let bench = Bench::new(state);
    for ordinal in [0, 1, 3, 4, 5, 6] {
        bench.mysql.lock_account(ordinal);
    }
    assert!(applied(&bench.give(1, 1, allow(&[2], 1)).await));
    assert_eq!(bench.mysql.calls(), ["end_sessions [500]"]);
}

#[tokio::test]
async fn a_marker_is_forgotten_when_the_list_changes() {
    let bench = Bench::new(testing::primary(2));
    let marker = |reply: &proto::CommandReply| reply.status.clone().unwrap().marker;
    let reply = bench.give(1, 1, allow(&[2, 3], 1)).await;
    assert_eq!(marker(&reply), None);
    let reply = bench.give(1, 2, Verb::Mark).await;
    assert_eq!(marker(&reply), Some(testing::set("1-9").to_string()));
    let reply = bench.give(1, 3, allow(&[2, 3], 1)).await;
    assert!(marker(&reply).is_some(), "the list is the same");
    let reply = bench.give(1, 4, allow(&[2], 1)).await;
    assert_eq!(marker(&reply), None);
}

#[tokio::test]
async fn a_marker_that_nobody_acknowledges_is_refused() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.hang_commits();
    let reply = bench.give(1, 1, Verb::Mark).await;
    refused(&reply, "marker");
    assert_eq!(reply.status.unwrap().marker, None);
}

#[tokio::test]
async fn a1_restart_stops_cleanly_only_what_is_read_only() {
    let bench = Bench::new(testing::primary(1));
    assert!(applied(&bench.give(1, 1, Verb::Restart).await));
    assert_eq!(
        bench.mysql.calls(),
        ["set_super_read_only", "end_all_sessions", "close_connections", "stop"]
    );
    let bench = Bench::new(testing::primary(1));
    bench.mysql.hang_commits();
    assert!(applied(&bench.give(1, 1, Verb::Restart).await));
    assert_eq!(
        bench.mysql.calls(),
        ["set_super_read_only", "end_client_sessions", "kill"]
    );
}

const BINLOG_UUID: &str = "1a1a709b-ecad-11f1-aef9-02fc00000001";

fn logged(text: &str) -> GtidSet {
    format!("{BINLOG_UUID}:{text}").parse().unwrap()
}

/// Three binlogs: 1-5, extra:7, mainstay:1; 6-8, mainstay:2; 9.
fn write_binlogs(bench: &Bench) -> std::path::PathBuf {
    let data = bench.shared.config.paths.data();
    std::fs::create_dir_all(&data).unwrap();
    let files: [&[u8]; 3] = [
        include_bytes!("../../../mysql/tests/data/plain.binlog"),
        include_bytes!("../../../mysql/tests/data/compressed.binlog"),
        include_bytes!("../../../mysql/tests/data/unchecked.binlog"),
    ];
    let mut index = String::new();
    for (number, bytes) in (1..).zip(files) {
        std::fs::write(data.join(format!("binlog.00000{number}")), bytes).unwrap();
        index += format!("./binlog.00000{number}\n").as_str();
    }
    std::fs::write(data.join("binlog.index"), index).unwrap();
    let purged = data.clone();
    *bench.mysql.when_purged.lock().unwrap() = Some(Box::new(move |to| {
        for number in 1..=3 {
            let name = format!("binlog.00000{number}");
            if name.as_str() < to {
                // It may have been purged before.
                drop(std::fs::remove_file(purged.join(name)));
            }
        }
    }));
    data
}

#[tokio::test]
async fn a_purge_deletes_what_is_stored_and_changes_nothing_else() {
    for state in [testing::primary(1), testing::replica()] {
        let bench = Bench::new(state.clone());
        let data = write_binlogs(&bench);
        let purge = |stored: &str| Verb::Purge { stored: logged(stored) };
        assert!(already(&bench.give(1, 1, purge("1-4:extra:7:mainstay:1")).await));
        assert_eq!(bench.mysql.calls(), Vec::<String>::new());
        let reply = bench.give(1, 2, purge("1-8:extra:7:mainstay:1")).await;
        assert!(applied(&reply));
        assert_eq!(bench.mysql.calls(), ["purge_binlogs binlog.000002"]);
        assert!(!data.join("binlog.000001").exists() && data.join("binlog.000002").exists());
        let status = reply.status.unwrap();
        assert_eq!(status.writable, !state.super_read_only);
        assert!(!status.list_uncertain);
        assert!(already(&bench.give(1, 3, purge("1-8:extra:7:mainstay:1")).await));
        assert!(applied(&bench.give(1, 4, purge("1-9:extra:7:mainstay:1-2")).await));
        assert!(already(&bench.give(1, 5, purge("1-9:extra:7:mainstay:1-2")).await));
        assert!(data.join("binlog.000003").exists(), "it is written to");
    }
}

#[tokio::test]
async fn a_purge_that_cannot_be_says_why_and_kills_nobody() {
    let bench = Bench::new(testing::primary(1));
    write_binlogs(&bench);
    let purge = || Verb::Purge {
        stored: logged("1-8:extra:7:mainstay:1-2"),
    };
    bench.mysql.hang_commits();
    refused(&bench.give(1, 1, purge()).await, "delete binlogs");
    let bench = Bench::new(testing::primary(1));
    write_binlogs(&bench);
    *bench.mysql.when_purged.lock().unwrap() = None;
    refused(&bench.give(1, 1, purge()).await, "still being read");
    bench.server.running.store(false, Ordering::SeqCst);
    refused(&bench.give(1, 2, purge()).await, "mysqld is down");
    assert_eq!(bench.called("kill"), 0);
}

#[tokio::test]
async fn who_does_not_know_what_it_was_told_says_so_and_is_told_nothing() {
    let bench = Bench::with_file(closed(), StateFile::unknown);
    let status = bench.shared.observe().await;
    assert_eq!(status.incarnation, "");
    assert!(status.history_reset, "nobody may compare by its set");
    refused(&bench.give_to("", 1, 1, Verb::Fence).await, "could not be read");
    assert!(!bench.shared.knows_state());
    // The volume is there again.
    let found = bench.shared.open_state().await.unwrap();
    assert_eq!(found, crate::state::Found::Nothing);
    assert!(bench.shared.knows_state() && !bench.shared.observe().await.history_reset);
    assert!(already(&bench.give_to("", 1, 1, Verb::Fence).await));
    assert_eq!(bench.shared.state().told.epoch, 1);
}

#[tokio::test]
async fn a_clone_is_refused_over_an_open_primary_and_from_itself() {
    let donor = |ordinal| Verb::Clone {
        donor: Endpoint {
            id: member(ordinal),
            host: format!("host-{ordinal}"),
            port: 33062,
        },
        keep_former: true,
    };
    let bench = Bench::new(testing::primary(1));
    refused(&bench.give(1, 1, donor(0)).await, "writable");
    refused(&bench.give(1, 2, donor(1)).await, "itself");
    let bench = Bench::new(ServerState { clones: 1, ..closed() });
    refused(&bench.give(1, 1, donor(0)).await, "being cloned from it");
    let bench = Bench::new(closed());
    assert!(applied(&bench.give(1, 1, donor(0)).await));
    assert_eq!(bench.mysql.calls(), ["clone from host-0, keep the former"]);
}

#[tokio::test]
async fn rule_0_a_write_that_was_given_up_takes_nothing_back_when_it_comes_late() {
    let bench = Bench::new(testing::primary(2));
    bench
        .commands
        .persist(&bench.head(1, 5), &allow(&[2], 1))
        .await
        .unwrap();
    let Refusal(reason) = bench
        .commands
        .persist(&bench.head(1, 4), &allow(&[2, 3], 1))
        .await
        .unwrap_err();
    assert!(reason.contains("newer command"), "{reason}");
    let told = bench.shared.state().told;
    assert_eq!((told.epoch, told.seq, told.members), (1, 5, vec![member(2)]));
}

#[tokio::test]
#[expect(
    clippy::await_holding_lock,
    reason = "the thread that writes waits for it, and no task does"
)]
async fn rule_1_a_list_that_a_fence_interrupted_is_not_said_to_be_in_force_before_it_has_ended() {
    let bench = Bench::new(testing::primary(2));
    bench.mysql.answer_after(Duration::from_millis(50));
    let give = |seq, verb| {
        let (commands, head) = (Arc::clone(&bench.commands), bench.head(1, seq));
        tokio::spawn(commands.execute(head, verb))
    };
    let interrupted = give(1, allow(&[2], 1));
    while bench.shared.state().told.seq != 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let disk_stalls = bench.shared.hold_state_file();
    let fence = give(2, Verb::Fence);
    refused(&interrupted.await.unwrap(), "a fence interrupted it");
    assert!(bench.shared.observe().await.list_uncertain);
    drop(disk_stalls);
    assert!(!fence.await.unwrap().status.unwrap().list_uncertain);
}

#[tokio::test]
async fn p2_a_command_has_not_ended_while_something_of_it_may_still_have_an_effect() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.never_settle();
    let reply = bench.give(1, 1, Verb::Mark).await;
    assert_eq!(reply.result, i32::from(proto::command_reply::Result::Refused));
    assert_eq!(bench.mysql.calls(), ["kill"]);
}

#[tokio::test]
async fn rule_5_only_listed_semi_synchronous_replicas_count_before_the_first_write() {
    let asynchronous = mainstay_mysql::DumpThread {
        semi_sync: false,
        ..dump_thread(2)
    };
    // A member that would not acknowledge, and one that would and is not listed.
    for (connected, others) in [(asynchronous, dump_thread(0)), (dump_thread(4), dump_thread(0))] {
        let bench = Bench::new(closed());
        bench.mysql.lock_account(4);
        bench.mysql.join_when_semi_sync(vec![connected, others]);
        let reply = bench.give(1, 1, open(&[0, 2], 2)).await;
        refused(&reply, "1 of the members are connected");
        assert_eq!(bench.called("open_writes"), 0);
    }
}

#[tokio::test]
async fn rule_1_a_list_is_for_an_open_server_only() {
    let bench = Bench::new(closed());
    refused(&bench.give(1, 1, allow(&[2], 1)).await, "not open");
    assert_eq!(bench.mysql.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn c9_k_is_raised_from_none_without_a_moment_in_which_fewer_are_enough() {
    let bench = Bench::new(ServerState {
        semi_sync: mainstay_mysql::SemiSyncState::default(),
        ..testing::primary(2)
    });
    for ordinal in [0, 1, 4, 5, 6] {
        bench.mysql.lock_account(ordinal);
    }
    assert!(applied(&bench.give(1, 1, allow(&[2, 3], 2)).await));
    assert_eq!(bench.mysql.calls(), ["semi_sync_on 65535", "set_acks 2"]);
}

#[tokio::test]
async fn a_marker_is_forgotten_with_the_server_that_committed_it() {
    let bench = Bench::new(testing::primary(2));
    for ordinal in [0, 1, 4, 5, 6] {
        bench.mysql.lock_account(ordinal);
    }
    assert!(applied(&bench.give(1, 1, allow(&[2, 3], 2)).await));
    let marker = |reply: &proto::CommandReply| reply.status.clone().unwrap().marker;
    assert!(marker(&bench.give(1, 2, Verb::Mark).await).is_some());
    bench.shared.set_process(|process| process.run += 1);
    assert_eq!(bench.shared.observe().await.marker, None);
}

#[tokio::test]
async fn rule_3_a_fence_believes_what_it_reads_and_not_what_it_asked_for() {
    let bench = Bench::new(testing::primary(1));
    bench.mysql.stay_writable();
    let reply = bench.give(1, 1, Verb::Fence).await;
    assert!(applied(&reply));
    assert_eq!(bench.called("kill"), 1);
    assert!(!reply.status.unwrap().writable);
}

/// Docs/failover.md, p2: no list is in force until the next Open, Allow or Fence succeeded.
#[tokio::test(start_paused = true)]
async fn rule_1_a_fence_that_came_to_nothing_does_not_make_a_list_certain() {
    let bench = Bench::new(testing::primary(2));
    bench.mysql.fail_locks(true);
    refused(&bench.give(1, 1, allow(&[2], 1)).await, "lock or unlock");
    bench.mysql.fall_silent();
    bench.server.does_not_end.store(true, Ordering::SeqCst);
    let reply = bench.give(1, 2, Verb::Fence).await;
    refused(&reply, "does not end");
    assert!(reply.status.unwrap().list_uncertain);
}
