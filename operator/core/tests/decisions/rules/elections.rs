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
    // One without room for what it would receive says nothing of the primary.
    let full = |report: &mut mainstay_core::observed::InstanceReport| {
        (report.disk.used, report.disk.size) = (2 << 30, 2 << 30);
    };
    does(&deaf.clone().with(2, |i| i.report(full)), &[]);
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

#[test]
fn rule_2b_a_receiver_that_is_not_connected_does_not_receive() {
    // It lost its connection a moment ago: what it heard before says nothing.
    let cut = |i: Instance| i.report(|report| report.replication.receiver_running = false);
    let state = healthy(3).with(0, |i| i.silent(10)).with(1, cut).with(2, cut);
    does(&state, &[ELECTION, "fence shop-1", "fence shop-2"]);
}

#[test]
fn rule_2b_an_errant_member_is_not_attached_to_a_silent_primary() {
    // The primary is about to drop it and lets it in no more: that it cannot connect would say nothing.
    let silent = |mut i: Instance| {
        let last = i.0.report().cloned().map(Box::new);
        i = i.silent(10);
        if let Reach::Silent { last: known, .. } = &mut i.0.reach {
            *known = last;
        }
        i
    };
    let ours = |i: Instance| i.fenced().answered(VerbKind::Fence, 5, None);
    let state = healthy(3).with(0, silent).with(1, ours).with(2, ours);
    does(&state, &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);
    let errant = state.with(1, |i| i.set("a:1-100 x:1"));
    does(&errant, &["attach shop-2 to shop-0"]);
}

#[test]
fn rule_3_who_follows_somebody_is_fenced_only_if_that_one_cannot_be_acknowledged_to() {
    let lost = |i: Instance| i.silent(60);
    // One that nobody hears; one that accepts writes; the old primary, of which nothing is confirmed yet.
    does(&electing(3).with(0, lost).with(2, |i| i.follows(0)), &["fence shop-2"]);
    let state = electing(5).with(0, lost).with(1, Instance::writable);
    let state = state.rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(3)) });
    does(&state.with(2, |i| i.follows(1)), &["fence shop-1", "fence shop-2"]);
    let state = electing(3).with(0, |i| i.epoch(5)).with(2, |i| i.follows(0));
    does(&state, &["fence shop-0", "fence shop-2"]);
    // The old primary that follows somebody itself was not fenced in this epoch either.
    let state = electing(5).with(0, |i| i.follows(1)).with(2, |i| i.follows(0));
    assert!(state.does().contains(&"fence shop-2".to_owned()), "{:?}", state.does());
    // A member that accepts writes is no fenced one, whatever else is confirmed.
    let state = electing(3).with(0, lost).with(2, Instance::writable);
    does(&state, &["fence shop-2"]);
    waits(
        &state.with(2, |i| i.busy(VerbKind::Fence, 6)),
        "1 of 2 members is not fenced",
    );
}

#[test]
fn rule_3_also_who_does_not_run_and_who_is_no_member_is_fenced() {
    let lost = |i: Instance| i.silent(60);
    // From then on it refuses what is older, whatever arrives.
    let down = |i: Instance| i.mysqld(Mysqld::Down).epoch(5);
    does(&electing(3).with(0, down), &["fence shop-0", "attach shop-2 to shop-1"]);
    let state = electing(3)
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, lost);
    let state = state.with(2, |i| i.epoch(5));
    does(&state, &["fence shop-2"]);
}

#[test]
fn rule_3_the_first_election_waits_a_little_for_everybody() {
    let first = |milliseconds| {
        let state = electing(3).rules(|rules| {
            rules.primary = None;
            rules.members.insert(id(0));
            rules.baseline = set("");
            rules.phase_since = now() - SignedDuration::from_millis(milliseconds);
        });
        let untold = |i: Instance| i.set("").report(|report| report.persisted.primary = None);
        state.with(0, untold).with(1, untold).with(2, |i| i.silent(60))
    };
    waits(&first(4900), "shop-2 to become ready for the first election");
    does(&first(5000), &["attach shop-1 to shop-0"]);
}

#[test]
fn rule_4_when_too_many_are_missing_the_old_primary_is_the_authority() {
    let alone = electing(3).with(2, |i| i.silent(60));
    // Whoever lacks something of it does not win, however much it is preferred.
    let preferring = |rules: &mut Rules| rules.phase = Phase::Electing { preferred: Some(id(1)) };
    let more = alone.clone().rules(preferring).with(0, |i| i.set("a:1-101"));
    does(&more, &["attach shop-1 to shop-0"]);
    does(&alone.clone().rules(preferring), &["attach shop-0 to shop-1"]);
    // All of its set, also what neither its reign nor the baseline explains.
    let injected = alone.with(0, |i| i.set("a:1-100 x:1"));
    does(&injected, &["attach shop-1 to shop-0"]);
}

#[test]
fn rule_4_nobody_wins_without_the_baseline() {
    let state = electing(3).with(0, |i| i.silent(60));
    let state = state.with(1, |i| i.set("a:1-40")).with(2, |i| i.set("a:1-40"));
    waits(&state, "an instance that contains everything");
}

#[test]
fn rule_4_who_is_not_fenced_is_no_candidate() {
    // With k = 2 one may be missing; it has more than the others, and is being told.
    let state = electing(5)
        .with(0, |i| i.silent(60))
        .with(1, |i| i.epoch(5).busy(VerbKind::Fence, 6));
    let state = state.rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(1)) });
    does(&state, &["attach shop-3 to shop-2", "attach shop-4 to shop-2"]);
}

#[test]
fn rule_4_one_that_stays_and_applies_is_better() {
    let wins = |state: State| {
        let does = state.does();
        does.iter()
            .find_map(|line| line.split_once(" to ").map(|(_, to)| to.to_owned()))
            .unwrap_or_default()
    };
    let lost = |i: Instance| i.silent(60);
    let older = |i: Instance| i.report(|report| report.version = "8.4.9".to_owned());
    assert_eq!(wins(electing(5).with(0, lost).with(3, older)), "shop-3");
    let shrinking = electing(5).declared(3).with(0, lost).with(3, older);
    assert_eq!(wins(shrinking), "shop-1", "shop-3 is not wanted any more");
    let behind = |i: Instance| i.set("a:1-90").received("a:91-100");
    let state = electing(5).with(0, lost).with(1, behind);
    assert_eq!(wins(state.clone()), "shop-2", "the smaller backlog");
    // An older server counts more than that, but not more than one that can apply what it has.
    assert_eq!(wins(state.clone().with(1, older)), "shop-1");
    let stuck = |i: Instance| i.report(|report| report.replication.applier_error = "duplicate key".to_owned());
    assert_eq!(wins(state.with(1, older).with(1, stuck)), "shop-2");
}

#[test]
fn rule_5_who_lacks_what_the_winner_purged_does_not_follow() {
    let state = electing(3).with(0, |i| i.silent(60)).with(1, |i| i.purged("a:1-95"));
    waits(&state.with(2, |i| i.set("a:1-90")), "1 instances to follow shop-1");
}

#[test]
fn rule_5_an_empty_data_directory_beside_one_with_data_is_cloned() {
    let state = electing(3)
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, Instance::gone)
        .with(2, |i| i.set(""));
    does(
        &state,
        &[
            "record epoch 6: electing, members shop-1, k 1",
            "clone shop-2 from shop-1",
        ],
    );
}

#[test]
fn rule_5_nobody_is_cloned_before_it_is_fenced_or_while_others_are_attached() {
    let errant = |i: Instance| i.set("a:1-100 x:1");
    let state = electing(5)
        .rules(|rules| rules.members = [id(1), id(2)].into())
        .with(0, Instance::gone)
        .with(3, errant)
        .with(4, errant);
    does(&state, &["attach shop-2 to shop-1"]);
    let state = state.with(2, |i| i.follows(1));
    assert_eq!(state.does()[1], "clone shop-3 from shop-2");
    // Its fence does not work: nobody knows what else it does.
    let unfenced = |i: Instance| i.epoch(5).answered(VerbKind::Fence, 6, Some("no answer"));
    let state = electing(3)
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, Instance::gone)
        .with(2, |i| unfenced(errant(i)));
    does(&state, &[]);
}

#[test]
fn rule_5_a_closed_primary_is_not_opened_with_a_relay_log_or_without_its_baseline() {
    let closed = healthy(3).with(0, Instance::fenced);
    does(&closed, &["open shop-0 [shop-1 shop-2] k 1"]);
    for state in [
        closed.clone().with(0, |i| i.set("a:1-90").received("a:91-100")),
        closed.with(0, |i| i.set("a:1-40")),
    ] {
        does(&state, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
    }
}

#[test]
fn rule_6_a_stranger_is_fenced_while_a_candidate_catches_up() {
    let state = switching()
        .with(0, |i| i.fenced().epoch(6))
        .with(1, |i| i.set("a:1-90"));
    does(&state.with(2, Instance::writable), &["fence shop-2"]);
}

#[test]
fn rule_8_of_those_that_could_take_over_the_one_with_the_smallest_backlog_does() {
    let state = healthy(3)
        .with(0, Instance::leaving)
        .with(1, |i| i.received("a:101-105"));
    assert!(state.does()[0].contains("shop-2 preferred"), "{:?}", state.does());
}

#[test]
fn rule_8_without_the_old_primary_there_is_no_way_back() {
    let state = electing(3).with(0, |i| i.silent(60)).rules(|rules| {
        rules.phase = Phase::Electing { preferred: Some(id(1)) };
        rules.phase_since = now() - SignedDuration::from_secs(6);
    });
    does(&state, &["attach shop-2 to shop-1"]);
}

#[test]
fn rule_3_it_is_k_that_counts_and_no_majority() {
    // k was lowered: one of four members may be the only one that has an acknowledged write.
    let lowered = electing(5).rules(|rules| rules.acks_required = 1);
    let state = lowered.with(0, |i| i.silent(60)).with(4, |i| i.silent(60));
    waits(&state, "1 of 4 members is not fenced; it must be fewer than 1");
    // Of two members and k = 2 one is enough.
    let few = electing(5).rules(|rules| rules.members = [id(1), id(2)].into());
    let state = few.with(0, |i| i.silent(60)).with(2, |i| i.silent(60));
    does(&state, &["attach shop-3 to shop-1", "attach shop-4 to shop-1"]);
}

#[test]
fn rule_5_a_winner_follows_nobody_and_its_followers_follow_it() {
    let preferring = |state: State| state.rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(1)) });
    let state = preferring(electing(3)).with(0, |i| i.silent(60));
    does(&state.with(1, |i| i.follows(2)), &["fence shop-1"]);
    // Connected to another one it has everything as well; that does not last.
    let state = preferring(electing(3)).with(2, |i| i.follows(0));
    does(&state, &["attach shop-0 to shop-1", "attach shop-2 to shop-1"]);
}

#[test]
fn rule_5_the_old_primary_is_never_cloned_over_in_an_election() {
    // It has more than the winner, which nobody acknowledged, and nobody else could follow.
    let state = electing(3)
        .rules(|rules| {
            rules.phase = Phase::Electing { preferred: Some(id(1)) };
            rules.members = members_but(rules, 2);
        })
        .with(0, |i| i.set("a:1-101"))
        .with(2, Instance::gone);
    waits(&state, "1 instances to follow shop-1");
}

#[test]
fn rule_5_a_closed_primary_is_opened_for_confirmed_members_only() {
    let state = healthy(3).with(0, Instance::fenced);
    let state = state.with(1, |i| i.epoch(4)).with(2, Instance::unsettled);
    does(&state, &[ELECTION, "fence shop-0", "fence shop-1", "fence shop-2"]);
}

#[test]
fn rule_4_what_the_baseline_holds_is_legitimate_whoever_wrote_it() {
    let state = electing(3).rules(|rules| rules.baseline = set("a:1-50 b:1-5"));
    let state = state.with(0, |i| i.silent(60)).with(1, |i| i.set("a:1-100 b:1-5"));
    does(&state.with(2, |i| i.set("a:1-99 b:1-5")), &["attach shop-2 to shop-1"]);
}

#[test]
fn rule_5_who_stands_still_is_started_and_who_is_not_connected_does_not_count() {
    let state = electing(3).with(0, |i| i.silent(60));
    let stands = |i: Instance| {
        i.set("a:1-90")
            .received("a:91-100")
            .report(|r| r.replication.applier_running = false)
    };
    does(&state.clone().with(2, stands), &["fence shop-2"]);
    let connecting = |i: Instance| i.follows(1).connecting();
    waits(
        &state.with(2, connecting),
        "1 instances to follow shop-1 and contain what it has; 0 do",
    );
}

#[test]
fn rule_4_one_that_cannot_apply_does_not_win_and_is_not_waited_for() {
    let lost = |i: Instance| i.silent(60);
    let stuck = |i: Instance| i.set("a:1-90").stuck("a:91-100", 1);
    // Not even the preferred one, when there is another candidate.
    let state = electing(5).with(0, lost).with(1, stuck);
    let state = state.rules(|rules| rules.phase = Phase::Electing { preferred: Some(id(1)) });
    does(&state, &["attach shop-3 to shop-2", "attach shop-4 to shop-2"]);
    let follow = state.with(3, |i| i.follows(2)).with(4, |i| i.follows(2));
    does(
        &follow,
        &[
            "record epoch 6: open shop-2, members shop-3 shop-4, k 2",
            "open shop-2 [shop-3 shop-4] k 2",
        ],
    );
    // The old primary is back, and is enough as a follower.
    let state = electing(3).with(0, |i| i.follows(2)).with(1, stuck);
    does(
        &state,
        &[
            "record epoch 6: open shop-2, members shop-0, k 1",
            "open shop-2 [shop-0] k 1",
        ],
    );
}

#[test]
fn rule_4_one_that_alone_has_everything_and_cannot_apply_it_is_named_with_its_error_and_the_remedy() {
    let alone = electing(3)
        .with(0, |i| i.silent(60))
        .with(1, |i| i.set("a:1-99").stuck("a:91-101", 60));
    waits(
        &alone,
        "shop-1 to apply what it received, because nobody else who is fenced has everything",
    );
    waits(&alone, "duplicate key (MySQL error 1062)");
    waits(
        &alone,
        "kubectl mainstay promote shop INSTANCE -n prod --accept-data-loss",
    );
    // The old primary has everything, too.
    let back = alone.clone().with(0, |_| electing(3).instance(0).set("a:1-101"));
    does(&back, &["attach shop-2 to shop-0"]);
    // Its applier got over it.
    let cured = alone.with(1, |_| electing(3).instance(1).set("a:1-101"));
    does(&cured, &["attach shop-2 to shop-1"]);
}

#[test]
fn rule_2b_one_that_cannot_apply_becomes_a_witness_too() {
    let stuck = |i: Instance| {
        i.fenced()
            .set("a:1-90")
            .stuck("a:91-100", 60)
            .answered(VerbKind::Fence, 5, None)
    };
    does(
        &healthy(3).with(0, |i| i.silent(10)).with(1, stuck).with(2, dead),
        &["attach shop-1 to shop-0"],
    );
}
