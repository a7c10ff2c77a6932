//! Instances that a person keeps out.

use super::*;

#[test]
fn a_fence_is_recorded_before_it_has_an_effect_and_keeps_the_instance_out() {
    let state = healthy(3).asks(&asks("fence", 2));
    does(
        &state,
        &[
            "record epoch 5: open shop-0, members shop-1 shop-2, k 1",
            "fence shop-2",
        ],
    );
    let fencing = recorded(&state);
    assert!(fencing.rules.as_ref().unwrap().keeps_out(&name(2)));
    assert_eq!(result(&fencing), (RequestResult::Running, String::new()));
    // It is told until it is so, and leaves the members as soon as the others suffice.
    does(&fencing, &["fence shop-2"]);
    let fenced = fencing.with(2, Instance::fenced);
    does(&fenced, &["allow shop-0 [shop-1] k 1"]);
    assert_eq!(
        result(&fenced),
        (
            RequestResult::Done,
            "shop-2 is read-only, follows nobody and is behind no Service".to_owned()
        )
    );
    let status = shown(&fenced);
    let condition = status.conditions.iter().find(|c| c.type_ == "Fenced").unwrap();
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("True", "InstanceFenced")
    );
    assert!(
        condition.message.starts_with("shop-2 is fenced on request"),
        "{}",
        condition.message
    );
    assert_eq!(status.health, Some(Health::Degraded));
    assert!(!status.instances[2].ready);
    // Outside of the members it stays fenced, and nothing is done to it, whatever it holds.
    for odd in ["a:1-80", "", "a:1-100 x:1"] {
        let out = healthy(3)
            .rules(|rules| {
                rules.members = members_but(rules, 2);
                rules.fences.insert(name(2), now());
            })
            .with(0, |i| i.told(&[id(1)], 1))
            .with(2, |i| i.fenced().set(odd));
        does(&out, &[]);
        does(&out.with(2, |i| i.epoch(4)), &["fence shop-2"]);
    }
}

#[test]
fn a_fence_needs_no_answer_of_the_instance() {
    let state = healthy(3).with(2, dead).asks(&asks("fence", 2));
    does(&state, &["record epoch 5: open shop-0, members shop-1 shop-2, k 1"]);
    let recorded = recorded(&state);
    assert_eq!(result(&recorded).0, RequestResult::Running);
    // It returns: as a member that nobody attaches.
    does(
        &recorded.with(2, |_| healthy(3).instance(2).fenced().epoch(4)),
        &["fence shop-2"],
    );
}

#[test]
fn a_fence_of_whom_a_commit_needs_is_carried_out_and_told() {
    let state = healthy(3)
        .with(1, |i| i.silent(60))
        .rules(fenced(2))
        .with(2, Instance::fenced);
    // Nobody could be dropped now.
    does(&state, &[]);
    let status = shown(&state);
    let condition = status.conditions.iter().find(|c| c.type_ == "WritesBlocked").unwrap();
    assert_eq!(condition.status, "True");
    assert!(
        condition
            .message
            .contains("(shop-1 cannot be reached; shop-2 is fenced on request)"),
        "{}",
        condition.message
    );
}

/// The primary is fenced on request, and everybody is told.
fn closed() -> State {
    let state = healthy(3).asks(&asks("fence", 0));
    does(
        &state,
        &[
            "record epoch 6: electing, shop-0 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    (0..3).fold(recorded(&state), |state, ordinal| {
        state.with(ordinal, |i| i.fenced().epoch(6))
    })
}

#[test]
fn a_fence_of_the_primary_blocks_writes_until_a_person_decides() {
    let state = closed().rules(|rules| rules.phase_since = long_ago());
    waits(&state, "a person: shop-0, the primary, is fenced on request");
    let status = shown(&state);
    assert_eq!(
        (status.phase, status.health),
        (Some(Shown::Blocked), Some(Health::Unavailable))
    );
    let available = status.conditions.iter().find(|c| c.type_ == "Available").unwrap();
    assert_eq!(
        (available.status.as_str(), available.reason.as_str()),
        ("False", "PrimaryFenced")
    );
    let (result, message) = result(&state);
    assert_eq!(result, RequestResult::Done);
    assert!(
        message.contains("no writes are accepted until it is let in"),
        "{message}"
    );
    // Not even when it is lost meanwhile.
    waits(&state.clone().with(0, dead), "a person: shop-0");

    // It is let in: the same election goes on, and it wins.
    let unfenced = state
        .clone()
        .asks(r#"{"id":"r2","verb":"unfence","instance":"shop-0"}"#);
    does(
        &unfenced,
        &["record epoch 6: electing, shop-0 preferred, members shop-1 shop-2, k 1"],
    );
    let opening = recorded(&unfenced);
    does(&opening, &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);

    // Another one is promoted: a switchover under its own epoch, and the fenced one stays out.
    let promoted = state.asks(r#"{"id":"r2","verb":"promote","instance":"shop-2"}"#);
    does(
        &promoted,
        &[
            "record epoch 7: electing, shop-2 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    let moving = (0..3).fold(recorded(&promoted), |state, ordinal| {
        state.with(ordinal, |i| i.epoch(7))
    });
    does(&moving, &["attach shop-1 to shop-2"]);
    does(
        &moving.with(1, |i| i.follows(2)),
        &[
            "record epoch 7: open shop-2, members shop-1, k 1",
            "open shop-2 [shop-1] k 1",
        ],
    );
}

#[test]
fn a_single_instance_is_fenced_and_opened_again() {
    let state = healthy(1).asks(&asks("fence", 0));
    does(
        &state,
        &[
            "record epoch 6: electing, shop-0 preferred, members , k 0",
            "fence shop-0",
        ],
    );
    let closed = recorded(&state).with(0, |i| i.fenced().epoch(6));
    waits(&closed, "a person: shop-0");
    let open = closed.asks(r#"{"id":"r2","verb":"unfence","instance":"shop-0"}"#);
    does(
        &recorded(&open),
        &["record epoch 6: open shop-0, members , k 0", "open shop-0 [] k 0"],
    );
}

#[test]
fn who_is_fenced_on_request_neither_wins_nor_follows_nor_testifies() {
    // It would win by its number.
    does(
        &electing(5).with(0, dead).rules(fenced(1)),
        &["attach shop-3 to shop-2", "attach shop-4 to shop-2"],
    );
    // What it has counts: nobody wins over its head.
    let state = electing(3).with(0, dead).with(1, |i| i.set("a:1-101")).rules(fenced(1));
    waits(&state, "an instance that contains everything: shop-1 has");
    waits(&state, "is fenced on request");
    // Nor is it a witness of a silent primary.
    let silent = healthy(3)
        .with(0, |i| i.silent(10))
        .with(1, Instance::fenced)
        .rules(fenced(1));
    waits(&silent, "0 of 1 members do not receive");
    // A rolling restart leaves it as it is.
    let rolling = healthy(3)
        .rules(fenced(2))
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, |i| i.told(&[id(1)], 1))
        .with(2, |i| i.fenced().pod(|pod| pod.template = Some("t0".to_owned())));
    waits(&rolling, "shop-2 to be let in again");
}

#[test]
fn who_is_kept_out_is_no_follower_of_a_winner() {
    let state = electing(3).with(0, dead).with(2, |i| i.follows(1)).rules(fenced(2));
    assert!(
        state.does().iter().all(|line| !line.starts_with("record")),
        "{:?}",
        state.does()
    );
}

#[test]
fn rule_0_a_request_that_another_process_takes_up_begins_an_epoch() {
    let other = healthy(3).rules(|rules| rules.owner = OperatorId("other".to_owned()));
    does(
        &other.asks(&asks("fence", 2)),
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 1",
            "fence shop-2",
        ],
    );
}

#[test]
fn a_primary_that_is_kept_out_does_not_stay_open() {
    let state = healthy(3).rules(fenced(0));
    does(
        &state,
        &[
            "record epoch 6: electing, shop-0 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
}
