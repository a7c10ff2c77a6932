use mainstay_core::action::Verb;
use mainstay_mysql::ServerMessage;

use super::*;
use crate::commands::tests::{Bench, applied, members, open};
use crate::testing::{self, dump_thread};

/// `shop-1`, open with the member `shop-2`; its accounts were looked at and found sound.
async fn primary() -> (Bench, Keeper) {
    let mut state = testing::primary(0);
    (state.super_read_only, state.read_only) = (true, true);
    let bench = Bench::new(state);
    bench.mysql.join_when_semi_sync(vec![dump_thread(2)]);
    assert!(applied(&bench.give(1, 1, open(&[2], 1)).await));
    let keeper = looked(&bench).await;
    (bench, keeper)
}

/// A replica, whose accounts were looked at and found sound.
async fn replica() -> (Bench, Keeper) {
    let bench = Bench::new(testing::replica());
    let keeper = looked(&bench).await;
    (bench, keeper)
}

async fn looked(bench: &Bench) -> Keeper {
    let mut keeper = Keeper::default();
    look(bench, &mut keeper).await;
    assert!(!bench.mysql.calls().iter().any(|call| call.starts_with("restore")));
    keeper
}

/// A look although there is no reason to.
async fn look(bench: &Bench, keeper: &mut Keeper) {
    bench.shared.observe().await;
    keeper.looked = None;
    bench.commands.look_after_accounts(keeper).await.unwrap();
}

fn restored(bench: &Bench) -> Vec<String> {
    let calls = bench.mysql.calls();
    calls.into_iter().filter(|call| call.starts_with("restore")).collect()
}

#[tokio::test]
async fn what_is_dropped_on_the_primary_is_restored_locked_and_let_in_by_the_list() {
    let (bench, mut keeper) = primary().await;
    bench.mysql.drop_account("mainstay_repl_2", "%");
    bench.mysql.drop_account("mainstay_repl_3", "%");
    look(&bench, &mut keeper).await;
    assert_eq!(restored(&bench), ["restore Primary mainstay_repl_2 mainstay_repl_3"]);
    let locks = bench.shared.mysql.account_locks(LIMIT).await.unwrap();
    let may = |ordinal| locks.iter().any(|lock| lock.ordinal == ordinal && !lock.locked);
    assert!(may(2) && !may(3), "{locks:?}");
    // Once is enough.
    look(&bench, &mut keeper).await;
    assert_eq!(restored(&bench).len(), 1);
}

#[tokio::test]
async fn a_lock_that_is_not_the_lists_is_taken_back() {
    let (bench, mut keeper) = primary().await;
    bench.mysql.lock_account(2);
    look(&bench, &mut keeper).await;
    assert_eq!(bench.called("unlock 2"), 1);
    assert!(restored(&bench).is_empty());
    // Nobody knows which list is in force: it is told anew.
    bench.mysql.lock_account(2);
    bench.shared.list_is_uncertain();
    look(&bench, &mut keeper).await;
    assert_eq!(bench.called("unlock 2"), 1);
}

#[tokio::test]
async fn a_refused_login_or_a_stopped_applier_is_a_reason_to_look_and_an_idle_server_is_not() {
    let now = Instant::now();
    let keeper = Keeper {
        looked: Some(now),
        refused: 7,
        ..Keeper::default()
    };
    let mut state = testing::primary(1);
    state.counters.aborted_connects = 7;
    assert!(!keeper.is_due(&state, now + PAUSE));
    assert!(keeper.is_due(&state, now + EVERY));
    state.counters.aborted_connects = 8;
    assert!(keeper.is_due(&state, now + PAUSE));
    let mut state = testing::replica();
    state.counters.aborted_connects = 8;
    assert!(
        !keeper.is_due(&state, now + PAUSE),
        "nobody needs to log in at a replica that receives"
    );
    fail(&mut state, "Operation DROP USER failed for 'mainstay_repl_1'@'%'");
    assert!(keeper.is_due(&state, now + PAUSE));
    fail(&mut state, "Operation DROP USER failed for 'app'@'%'");
    assert!(!keeper.is_due(&state, now + PAUSE));
}

/// Its applier stopped at a statement about an account.
fn fail(state: &mut ServerState, text: &str) {
    let channel = state.channel.as_mut().unwrap();
    channel.applier_running = false;
    channel.received = testing::set("1-12");
    channel.applier_error = Some(ServerMessage {
        code: 1396,
        text: text.to_owned(),
    });
}

#[tokio::test(start_paused = true)]
async fn a_replica_waits_for_what_may_be_on_its_way_and_leaves_super_read_only_for_no_longer_than_it_takes() {
    let (bench, mut keeper) = replica().await;
    bench.mysql.lock("mainstay_clone", "%");
    look(&bench, &mut keeper).await;
    assert!(restored(&bench).is_empty(), "it may be on its way");
    tokio::time::sleep(GRACE).await;
    look(&bench, &mut keeper).await;
    assert_eq!(
        bench.mysql.calls(),
        [
            "leave_super_read_only",
            "restore Closed mainstay_clone",
            "set_super_read_only"
        ]
    );
    assert!(bench.mysql.accounts_are_sound());
    // The next time it waits again.
    bench.mysql.lock("mainstay_clone", "%");
    look(&bench, &mut keeper).await;
    assert_eq!(restored(&bench).len(), 1);
}

#[tokio::test]
async fn one_that_follows_nobody_does_not_wait() {
    let (bench, mut keeper) = replica().await;
    bench.mysql.change(|state| state.channel = None);
    bench.mysql.drop_account("mainstay_repl_2", "%");
    look(&bench, &mut keeper).await;
    assert_eq!(restored(&bench), ["restore Closed mainstay_repl_2"]);
    let locks = bench.shared.mysql.account_locks(LIMIT).await.unwrap();
    assert!(locks.iter().all(|lock| !lock.locked), "as after a fence");
}

#[tokio::test]
async fn an_applier_that_stopped_at_a_missing_account_is_started_when_the_account_is_there() {
    let (bench, mut keeper) = replica().await;
    bench.mysql.drop_account("mainstay_repl_1", "%");
    bench
        .mysql
        .change(|state| fail(state, "Operation DROP USER failed for 'mainstay_repl_1'@'%'"));
    look(&bench, &mut keeper).await;
    assert_eq!(
        bench.mysql.calls(),
        [
            "leave_super_read_only",
            "restore Closed mainstay_repl_1",
            "set_super_read_only",
            "start_applier"
        ]
    );
    // What it says again is another matter.
    bench
        .mysql
        .change(|state| fail(state, "Operation DROP USER failed for 'mainstay_repl_1'@'%'"));
    look(&bench, &mut keeper).await;
    assert_eq!(bench.called("start_applier"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_closed_again_is_killed() {
    let (bench, mut keeper) = replica().await;
    bench.mysql.change(|state| state.channel = None);
    bench.mysql.drop_account("mainstay_clone", "%");
    bench.mysql.hang_commits();
    look(&bench, &mut keeper).await;
    assert_eq!(bench.called("kill"), 1);
}

#[tokio::test]
async fn a_stranger_that_accepts_writes_is_left_to_the_operator() {
    let (bench, mut keeper) = replica().await;
    bench
        .mysql
        .change(|state| (state.super_read_only, state.read_only) = (false, false));
    bench.mysql.drop_account("mainstay_repl_2", "%");
    look(&bench, &mut keeper).await;
    assert!(restored(&bench).is_empty());
}

#[tokio::test]
async fn allow_makes_the_account_of_a_member_that_has_none() {
    let (bench, _keeper) = primary().await;
    bench.mysql.drop_account("mainstay_repl_3", "%");
    let allow = Verb::Allow {
        members: members(&[2, 3]),
        acks_required: 1,
    };
    assert!(applied(&bench.give(1, 2, allow).await));
    assert_eq!(restored(&bench), ["restore Primary mainstay_repl_3"]);
    assert_eq!(bench.called("unlock 3"), 1);
}
