use super::*;
use crate::commands::tests::{Bench, applied, open};
use crate::testing::{self, dump_thread};

/// `shop-1`, open with the member `shop-2`.
async fn primary() -> Bench {
    let mut state = testing::primary(0);
    (state.super_read_only, state.read_only) = (true, true);
    let bench = Bench::new(state);
    bench.mysql.join_when_semi_sync(vec![dump_thread(2)]);
    assert!(applied(&bench.give(1, 1, open(&[2], 1)).await));
    assert_eq!(changed(&bench).await, []);
    bench
}

async fn changed(bench: &Bench) -> Vec<Changed> {
    let state = bench.shared.mysql.read_state().await.unwrap();
    bench.commands.changed(&state)
}

#[tokio::test]
async fn what_an_acknowledgement_rests_on_is_set_right_on_the_primary() {
    let bench = primary().await;
    bench.mysql.change(|state| {
        state.semi_sync.enabled = false;
        state.not_durable = "sync_binlog".to_owned();
    });
    assert_eq!(
        changed(&bench).await,
        [Changed::Durability, Changed::Acknowledgements(1)]
    );
    bench.commands.set_right().await.unwrap();
    assert_eq!(changed(&bench).await, []);
    bench.mysql.change(|state| state.semi_sync.wait_for = 2);
    assert_eq!(changed(&bench).await, [Changed::Acknowledgements(1)]);
}

#[tokio::test]
async fn a_primary_that_was_closed_by_hand_is_opened_again() {
    let bench = primary().await;
    for change in [
        |state: &mut ServerState| state.read_only = true,
        |state: &mut ServerState| {
            state.offline = true;
        },
    ] {
        bench.mysql.change(change);
        assert_eq!(changed(&bench).await, [Changed::Closed]);
        bench.commands.set_right().await.unwrap();
        assert_eq!(changed(&bench).await, []);
    }
}

#[tokio::test]
async fn a_primary_that_is_closed_as_it_should_be_stays_so() {
    let bench = primary().await;
    bench
        .mysql
        .change(|state| (state.super_read_only, state.read_only) = (true, true));
    assert_eq!(changed(&bench).await, []);
}

#[tokio::test]
async fn clients_come_to_a_replica_again_unless_the_guard_keeps_them_out() {
    let bench = Bench::new(testing::replica());
    bench.mysql.change(|state| state.offline = true);
    assert_eq!(changed(&bench).await, [Changed::Offline]);
    bench.shared.keep_clients_out(true);
    assert_eq!(changed(&bench).await, []);
    bench.shared.keep_clients_out(false);
    bench.commands.set_right().await.unwrap();
    assert_eq!(changed(&bench).await, []);
}
