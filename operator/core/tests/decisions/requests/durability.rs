//! `spec.failover.durability: preferred`: writes go on with fewer acknowledgements.

use super::*;

/// A shop-0 that writes with durability `preferred`; commits wait for that many seconds.
fn preferring(state: State, seconds: i64) -> State {
    state.preferring(now() - SignedDuration::from_secs(seconds))
}

#[test]
fn preferred_durability_lowers_k_after_a_while_and_raises_it_again() {
    let alone = healthy(3).with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    // Strict waits for ever.
    does(&alone, &[]);
    let waiting = preferring(alone.clone(), 9);
    does(&waiting, &[]);
    assert!(waiting.plan().look_again.unwrap() <= Duration::from_millis(1005));
    let lowered = preferring(alone, 10);
    does(
        &lowered,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 0",
            "allow shop-0 [shop-1 shop-2] k 0",
        ],
    );
    // It is told for as long as it is so.
    let low = preferring(healthy(3), 10)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&[id(1), id(2)], 0));
    let away = low.clone().with(1, |i| i.silent(60)).with(2, |i| i.silent(60));
    does(&away, &[]);
    let degraded = shown(&away)
        .conditions
        .into_iter()
        .find(|c| c.type_ == "Degraded")
        .unwrap();
    assert!(
        degraded
            .message
            .contains("a commit waits for 0 acknowledgements instead of 1"),
        "{}",
        degraded.message
    );
    // Somebody is back and has caught up.
    does(&low.with(2, |i| i.silent(60)), &["allow shop-0 [shop-1 shop-2] k 1"]);
    // With five it goes down and up in steps.
    let five = preferring(healthy(5), 10);
    let one = five
        .clone()
        .with(1, |i| i.silent(60))
        .with(2, |i| i.silent(60))
        .with(3, |i| i.silent(60));
    assert_eq!(record(&one).rules.acks_required, 1);
    let low = five.rules(|rules| rules.acks_required = 0);
    let members: Vec<_> = (1..5).map(id).collect();
    let up = low
        .with(0, |i| i.told(&members, 0))
        .with(1, |i| i.silent(60))
        .with(2, |i| i.silent(60))
        .with(3, |i| i.silent(60));
    does(&up, &["allow shop-0 [shop-1 shop-2 shop-3 shop-4] k 1"]);
}

#[test]
fn preferred_durability_changes_nothing_in_an_election() {
    let state = preferring(electing(3).with(0, dead).with(1, dead), 60);
    waits(&state, "1 of 2 members is not fenced");
    // Nor while the primary is closed.
    let state = preferring(healthy(3).with(0, |i| i.silent(1)), 60);
    does(&state, &[]);
}
