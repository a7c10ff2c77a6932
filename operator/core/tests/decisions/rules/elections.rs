//! Rules 2 to 6 and 8: from a lost primary, or one that is to move, to an open one.

use jiff::SignedDuration;

use super::*;

const ELECTION: &str = "record epoch 6: electing, members shop-1 shop-2, k 1";

#[test]
fn rule_2a_a_dead_mysqld_begins_an_election_at_once() {
    for mysqld in [Mysqld::Down, Mysqld::Starting, Mysqld::Failed] {
        let state = healthy(3).with(0, |i| i.mysqld(mysqld));
        does(&state, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
    }
    for state in [
        healthy(3).with(0, Instance::gone),
        healthy(3).with(0, |i| i.silent(0).pod(|pod| pod.phase = "Failed".to_owned())),
    ] {
        does(&state, &[ELECTION, "fence shop-1", "fence shop-2"]);
    }
    // Its volume was replaced.
    let state = healthy(3).with(0, |i| i.reborn().pristine());
    does(&state, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
    // Up, and not open.
    let state = healthy(3).with(0, |i| i.fenced().epoch(4));
    does(&state, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
}

#[test]
fn rule_2b_a_silent_primary_needs_two_kinds_of_witness() {
    let silent = |seconds| healthy(3).with(0, |i| i.silent(seconds));
    waits(&silent(1), "shop-0 to be heard again");
    waits(&silent(10), "0 of 2 members do not receive");
    waits(&silent(10).with(1, Instance::deaf), "1 of 2 members do not receive");
    does(
        &silent(10).with(1, Instance::deaf).with(2, Instance::deaf),
        &[ELECTION, "fence shop-1", "fence shop-2"],
    );
    // Of those that can be heard.
    does(
        &silent(10).with(1, Instance::deaf).with(2, |i| i.silent(10)),
        &[ELECTION, "fence shop-1"],
    );
    waits(
        &silent(10).with(1, |i| i.silent(10)).with(2, |i| i.silent(10)),
        "a member that can be heard",
    );
    // One that restarted does not receive either; one that this process fenced says nothing.
    does(
        &silent(10).with(1, Instance::fenced).with(2, Instance::deaf),
        &[ELECTION, "fence shop-1", "fence shop-2"],
    );
    let ours = |i: Instance| i.fenced().answered(VerbKind::Fence, 5, None);
    let state = silent(10).with(1, ours);
    assert!(
        state.waits().contains("0 of 1 members do not receive"),
        "{}",
        state.waits()
    );
    // It is attached, and says something then.
    does(&state, &["attach shop-1 to shop-0"]);
}

#[test]
fn rule_2d_a_primary_that_reaches_too_few_members_is_given_up() {
    let deaf = healthy(3).with(1, Instance::deaf).with(2, Instance::deaf);
    does(&deaf, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
    // Not when one still receives, nor just after it was opened, nor when too few could be fenced.
    does(&healthy(3).with(1, Instance::deaf), &[]);
    does(
        &deaf
            .clone()
            .rules(|rules| rules.primary.as_mut().unwrap().since = now()),
        &[],
    );
    does(&deaf.clone().with(2, |i| i.silent(10)), &[]);
    // One that is only detached is attached.
    does(&deaf.with(2, Instance::fenced), &["attach shop-2 to shop-0"]);
    // With k = 2 one that still receives is not enough, and keeps nobody from seeing it.
    let cut = healthy(5)
        .with(2, Instance::deaf)
        .with(3, Instance::deaf)
        .with(4, Instance::deaf);
    assert!(
        cut.does()[0].starts_with("record epoch 6: electing"),
        "{:?}",
        cut.does()
    );
    // One that is about to connect has said nothing.
    let connecting = cut.with(2, |i| i.follows(0).connecting());
    does(&connecting, &[]);
}

#[test]
fn rule_2_without_acknowledgements_there_is_no_election() {
    waits(
        &healthy(1).with(0, |i| i.mysqld(Mysqld::Starting)),
        "mysqld of shop-0 is starting",
    );
    waits(&healthy(1).with(0, Instance::gone), "without it nothing is safe");
    // It is opened again where it is, in the same epoch.
    does(&healthy(1).with(0, Instance::fenced), &["open shop-0 [] k 0"]);
    let other = foreign_owner(healthy(1)).with(0, Instance::fenced);
    does(&other, &["record epoch 6: open shop-0, members , k 0", "fence shop-0"]);
}

#[test]
fn rule_3_fewer_than_k_members_may_be_missing() {
    let dead = |i: Instance| i.silent(60);
    // N=3, k=1: the old primary is lost, everybody else is fenced.
    does(&electing(3).with(0, dead), &["attach shop-2 to shop-1"]);
    // One member is missing: wait and name it.
    waits(
        &electing(3).with(0, dead).with(2, dead),
        "1 of 2 members is not fenced; it must be fewer than 1",
    );
    // N=5, k=2: one may be missing, two may not.
    let five = electing(5).with(0, dead).with(4, dead);
    does(&five, &["attach shop-2 to shop-1", "attach shop-3 to shop-1"]);
    waits(
        &five.with(3, dead),
        "2 of 4 members are not fenced; it must be fewer than 2",
    );
}

#[test]
fn rule_3_everybody_who_can_be_heard_is_fenced() {
    let state = healthy(3).rules(|rules| {
        rules.epoch = 6;
        rules.phase = Phase::Electing { preferred: None };
        rules.phase_since = now();
    });
    does(&state, &["fence shop-0", "fence shop-1", "fence shop-2"]);
    // A fence that is on its way is not repeated; one of an older epoch is overtaken.
    does(
        &state.clone().with(1, |i| i.busy(VerbKind::Fence, 6)),
        &["fence shop-0", "fence shop-2"],
    );
    let late = state.with(1, |i| i.busy(VerbKind::Clone, 5));
    does(&late, &["fence shop-0", "fence shop-1", "fence shop-2"]);
}

#[test]
fn rule_4_the_winner_contains_what_everybody_fenced_has() {
    let lost = |i: Instance| i.silent(60);
    let state = electing(3).with(0, lost).with(1, |i| i.set("a:1-98"));
    does(&state, &["attach shop-1 to shop-2"]);
    // Neither contains the other: nobody wins.
    let state = electing(3)
        .with(0, lost)
        .with(1, |i| i.set("a:1-98 a:100"))
        .with(2, |i| i.set("a:1-99"));
    waits(&state, "an instance that contains everything: shop-1 has");
    // Without the baseline nobody wins, but it counts as fenced.
    let state = electing(3).with(0, lost).with(1, |i| i.set("a:1-40"));
    does(&state, &["attach shop-1 to shop-2"]);
}

#[test]
fn rule_4_an_errant_member_does_not_win_and_does_not_stop_others() {
    let state = electing(5).with(0, |i| i.silent(60)).with(1, |i| i.set("a:1-100 x:1"));
    does(&state, &["attach shop-3 to shop-2", "attach shop-4 to shop-2"]);
}

#[test]
fn rule_4_the_order_of_preference() {
    let all = || electing(3).with(0, |i| i.silent(60));
    let wins = |state: State| {
        let does = state.does();
        does.iter()
            .find_map(|line| line.split_once(" to ").map(|(_, to)| to.to_owned()))
            .unwrap_or_default()
    };
    assert_eq!(wins(all()), "shop-1", "the lower ordinal");
    let preferred = all().rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(2)) });
    assert_eq!(wins(preferred), "shop-2");
    assert_eq!(wins(all().with(1, Instance::leaving)), "shop-2", "one that stays");
    assert_eq!(
        wins(all().with(2, |i| i.report(|r| r.version = "8.4.9".to_owned()))),
        "shop-2",
        "the older version"
    );
    let zones = all().with(0, |i| i.pod(|pod| pod.zone = Some("b".to_owned())));
    assert_eq!(
        wins(zones.with(2, |i| i.pod(|pod| pod.zone = Some("b".to_owned())))),
        "shop-2",
        "the old zone"
    );
    // The old primary only if it alone has everything.
    assert_eq!(wins(electing(3)), "shop-1");
    assert_eq!(
        wins(electing(3).with(0, |i| i.set("a:1-105"))),
        "shop-0",
        "so that it is not errant"
    );
}

#[test]
fn rule_5_nothing_is_recorded_before_k_followers_contain_everything() {
    let lost = |i: Instance| i.silent(60);
    let state = electing(3).with(0, lost).with(2, |i| i.set("a:1-90").follows(1));
    waits(&state, "1 instances to follow shop-1 and contain what it has; 0 do");
    let state = electing(3).with(0, lost).with(2, |i| i.follows(1));
    does(
        &state,
        &[
            "record epoch 6: open shop-1, members shop-2, k 1",
            "open shop-1 [shop-2] k 1",
        ],
    );
    let Action::Record(record) = &state.plan().actions[0] else {
        panic!("no record")
    };
    assert_eq!(record.rules.baseline, set("a:1-100"));
    let primary = record.rules.primary.clone().unwrap();
    assert_eq!((primary.id, primary.epoch, primary.server_uuid), (id(1), 6, uuid(1)));
}

#[test]
fn rule_5_members_that_never_had_a_transaction_follow_too() {
    let state = electing(3).rules(|rules| rules.baseline = set(""));
    let state = state
        .with(0, |i| i.set("a:1"))
        .with(1, |i| i.set(""))
        .with(2, |i| i.set(""));
    does(&state, &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);
}

#[test]
fn rule_5_the_winner_applies_its_relay_log_first() {
    let behind = |i: Instance| i.set("a:1-90").received("a:91-100");
    let state = electing(3)
        .with(0, |i| i.silent(60))
        .with(1, behind)
        .with(2, |i| i.set("a:1-100").follows(1));
    // shop-2 is followed by nobody and has applied everything; shop-1 has the follower.
    let state = state.rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(1)) });
    waits(&state, "shop-1 to apply its relay log");
}

#[test]
fn rule_5_a_recorded_primary_opens_by_the_same_test() {
    let state = healthy(3).rules(|rules| rules.primary.as_mut().unwrap().since = now());
    let closed = state.with(0, Instance::fenced);
    does(&closed, &["open shop-0 [shop-1 shop-2] k 1"]);
    does(&closed.clone().with(0, |i| i.busy(VerbKind::Open, 5)), &[]);
    // An opening that fails for too long is given up.
    let failing = closed
        .clone()
        .rules(|rules| rules.primary.as_mut().unwrap().since = now() - jiff::SignedDuration::from_secs(11))
        .with(0, |i| i.answered(VerbKind::Open, 5, Some("nobody connects")));
    does(&failing, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
    // Nobody is confirmed to contain its set: another election.
    let alone = closed.with(0, |i| i.set("a:1-120"));
    does(&alone, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
}

#[test]
fn rule_6_a_stranger_is_only_fenced() {
    // Somebody else accepts writes; a member that lost its source waits for the next pass.
    let state = healthy(5).with(3, Instance::writable).with(4, Instance::fenced);
    does(&state, &["fence shop-3"]);
    // The recorded primary itself, opened in an earlier reign.
    let state = healthy(3).with(0, |i| i.epoch(4));
    does(&state, &["fence shop-0"]);
}

#[test]
fn rule_8_a_switchover_fences_the_old_primary_only_and_records_first() {
    let state = healthy(3).with(0, Instance::leaving);
    does(
        &state,
        &[
            "record epoch 6: electing, shop-1 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    // Pre-checks: nobody has caught up.
    let behind = |i: Instance| i.report(|r| r.replication.lag = Some(Duration::from_secs(9)));
    waits(&state.with(1, behind).with(2, behind), "a replica that could take over");
}

fn switching() -> State {
    healthy(3).rules(|rules| {
        rules.epoch = 6;
        rules.phase = Phase::Electing { preferred: Some(id(1)) };
        rules.phase_since = now();
    })
}

#[test]
fn rule_8_the_candidate_catches_up_before_it_is_fenced() {
    // The old primary is being fenced.
    does(&switching(), &["fence shop-0"]);
    let fenced = switching().with(0, |i| i.fenced().epoch(6));
    // Everything is there: the rest is fenced.
    does(&fenced, &["fence shop-1", "fence shop-2"]);
    // Something is missing: wait, nobody else is touched.
    let behind = fenced.clone().with(1, |i| i.set("a:1-90"));
    waits(&behind, "shop-1 to receive everything that shop-0 has");
    // It no longer receives: an ordinary election.
    let deaf = behind.with(1, Instance::deaf);
    does(&deaf, &["fence shop-1", "fence shop-2"]);
    // The old primary died meanwhile: an ordinary election.
    let killed = switching().with(0, |i| i.mysqld(Mysqld::Starting).epoch(6));
    does(&killed, &["fence shop-1", "fence shop-2"]);
}

#[test]
fn rule_8_the_old_primary_is_among_those_attached() {
    let state = electing(3).rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(1)) });
    does(&state, &["attach shop-0 to shop-1", "attach shop-2 to shop-1"]);
    let state = state.with(0, |i| i.follows(1));
    does(
        &state,
        &[
            "record epoch 6: open shop-1, members shop-0, k 1",
            "open shop-1 [shop-0] k 1",
        ],
    );
}

#[test]
fn rule_8_a_switchover_that_misses_its_deadline_goes_back() {
    let old = now() - jiff::SignedDuration::from_secs(6);
    let state = switching()
        .rules(|rules| rules.phase_since = old)
        .with(1, |i| i.set("a:1-90"));
    does(
        &state,
        &[
            "record epoch 7: electing, shop-0 preferred, members shop-1 shop-2, k 1",
            "fence shop-0",
        ],
    );
    // Back at the old primary there is no further way back.
    let state = electing(3).rules(|rules| {
        rules.phase = Phase::Electing { preferred: Some(id(0)) };
        rules.phase_since = old;
    });
    does(&state, &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);
}

#[test]
fn a_primary_that_crashes_again_and_again_is_the_last_choice() {
    // What it alone has was acknowledged by nobody; as it contains everything it would win each time.
    let crashed = |seconds| {
        electing(3).with(0, |i| i.set("a:1-105")).rules(|rules| {
            rules.began = Some(rules.phase_since);
            rules.primary.as_mut().unwrap().since = rules.phase_since - SignedDuration::from_secs(seconds);
        })
    };
    does(&crashed(61), &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);
    does(&crashed(59), &["attach shop-2 to shop-1"]);
    // Unless there is no other.
    does(
        &crashed(59).with(1, dead).with(2, |i| i.set("a:1-40")),
        &["attach shop-2 to shop-0"],
    );
}
