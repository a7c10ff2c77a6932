//! The rules of docs/failover.md as tables: one test named after each rule, a state and what is done in it.

use std::time::Duration;

use crate::states::{Instance, State, electing, fresh, healthy, id, members_but, name, now, set, subject, uuid};
use mainstay_core::action::{Action, VerbKind};
use mainstay_core::analyse::Analysis;
use mainstay_core::observed::Mysqld;
use mainstay_core::rules::{OperatorId, Phase, Rebuild};

#[track_caller]
fn does(state: &State, expected: &[&str]) {
    assert_eq!(state.does(), expected, "waits: {}", state.waits());
}

#[track_caller]
fn waits(state: &State, words: &str) {
    does(state, &[]);
    let waits = state.waits();
    assert!(waits.contains(words), "{waits}");
}

fn foreign_owner(state: State) -> State {
    state.rules(|rules| rules.owner = OperatorId("other".to_owned()))
}

#[test]
fn rule_0_a_settled_cluster_needs_nothing() {
    for replicas in [1, 3, 5, 7] {
        does(&healthy(replicas), &[]);
        assert_eq!(healthy(replicas).waits(), "");
        // Not even when another process owns the epoch.
        does(&foreign_owner(healthy(replicas)), &[]);
    }
}

#[test]
fn rule_0_the_first_command_of_a_process_is_behind_a_record_of_its_own() {
    let detached = foreign_owner(healthy(3)).with(2, Instance::fenced);
    does(
        &detached,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 1",
            "attach shop-2 to shop-0",
        ],
    );
    let Action::Command(commands) = &detached.plan().actions[1] else {
        panic!("no command")
    };
    assert_eq!(commands[0].epoch, 6, "the command is given under the new epoch");
}

#[test]
fn rule_0_nothing_that_another_process_was_told_is_confirmed() {
    // In its own epoch the election would be over; here everybody is fenced again.
    let state = foreign_owner(electing(3));
    let expected = [
        "record epoch 7: electing, members shop-1 shop-2, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&state, &expected);
}

#[test]
fn rule_0_a_command_that_is_under_way_is_not_repeated() {
    let state = healthy(3).with(2, |i| i.fenced().busy(VerbKind::Attach, 5));
    does(&state, &[]);
    // One that was refused is repeated a moment later, not at once.
    let state = healthy(3).with(2, |i| i.fenced().answered(VerbKind::Attach, 5, Some("not yet")));
    waits(&state, "attach was refused: not yet");
    assert!(state.plan().look_again.unwrap() <= Duration::from_millis(1100));
}

#[test]
fn rule_0_an_unreadable_memory_stops_everything() {
    let mut state = healthy(3).with(2, Instance::fenced);
    state.observed.memory = mainstay_core::rules::Memory::Unreadable {
        reason: "no baseline".to_owned(),
    };
    let observed = state.observed.clone();
    let plan = mainstay_core::plan::plan(&subject(), &observed, &Analysis::default(), now());
    assert!(plan.actions.is_empty());
    assert_eq!(plan.waiting[0].for_what, "no baseline");
}

#[test]
fn rule_1_add_is_fence_then_record_and_allow_then_attach() {
    // A replica that is not a member, attached to nobody, not confirmed.
    let outside = healthy(3).rules(|rules| rules.members = members_but(rules, 2));
    let outside = outside
        .with(0, |i| i.told(&[id(1)], 1))
        .with(2, |i| i.fenced().epoch(4));
    does(&outside, &["fence shop-2"]);
    let fenced = outside.with(2, |i| i.epoch(5));
    let record = "record epoch 6: open shop-0, members shop-1 shop-2, k 1";
    does(&fenced, &[record, "allow shop-0 [shop-1 shop-2] k 1"]);
    // The record is made; the primary has the list; now it is attached.
    let recorded = healthy(3)
        .rules(|rules| rules.epoch = 6)
        .with(0, |i| i.epoch(6))
        .with(2, Instance::fenced);
    does(&recorded, &["attach shop-2 to shop-0"]);
}

#[test]
fn rule_1_add_needs_a_confirmed_primary() {
    let state = healthy(3).rules(|rules| rules.members = members_but(rules, 2));
    let state = state
        .with(0, |i| i.told(&[id(1)], 1).epoch(4))
        .with(2, Instance::fenced);
    // The reign began in epoch 5, so one that was told in epoch 4 is no open primary at all.
    let state = state.rules(|rules| rules.primary.as_mut().unwrap().epoch = 4);
    does(&state, &["allow shop-0 [shop-1] k 1"]);
}

#[test]
fn rule_1_several_join_by_one_record() {
    let state = healthy(5).rules(|rules| {
        rules.members.remove(&id(3));
        rules.members.remove(&id(4));
    });
    let state = state
        .with(0, |i| i.told(&[id(1), id(2)], 2))
        .with(3, Instance::fenced)
        .with(4, Instance::fenced);
    let record = "record epoch 6: open shop-0, members shop-1 shop-2 shop-3 shop-4, k 2";
    does(&state, &[record, "allow shop-0 [shop-1 shop-2 shop-3 shop-4] k 2"]);
}

/// shop-2 came back with another data directory.
fn stale_member() -> State {
    healthy(3).with(2, |i| i.reborn().fenced().set("a:1-100"))
}

#[test]
fn rule_1_drop_is_allow_then_mark_then_containment_then_record() {
    // (a) the primary excludes it first.
    let state = stale_member().rules(|rules| rules.epoch = 6);
    let state = state.with(2, |i| i.epoch(6));
    does(&state, &["allow shop-0 [shop-1] k 1", "attach shop-1 to shop-0"]);
    // (b) then a marker.
    let state = state.with(0, |i| i.epoch(6).told(&[id(1)], 1)).with(1, |i| i.epoch(6));
    // Its new data directory joins meanwhile; the old one stays excluded.
    let both = "record epoch 7: open shop-0, members shop-1 shop-2 shop-2, k 1";
    does(&state, &[both, "allow shop-0 [shop-1 shop-2] k 1"]);
    // Without it there is only the drop.
    let state = state.with(2, |i| i.mysqld(Mysqld::Starting));
    does(&state, &["mark shop-0"]);
    // (c) the rest has to contain it.
    let state = state.with(0, |i| i.marker("a:1-101"));
    waits(&state, "1 of the other members to contain everything, 0 do");
    // (d) only then the record.
    let state = state.with(1, |i| i.set("a:1-101"));
    does(&state, &["record epoch 7: open shop-0, members shop-1, k 1"]);
}

#[test]
fn rule_1_the_last_member_that_receives_is_not_dropped() {
    let state = stale_member()
        .with(1, |i| i.silent(10))
        .with(2, |i| i.mysqld(Mysqld::Starting));
    does(&state, &[]);
}

#[test]
fn rule_1_nobody_is_dropped_without_an_open_primary() {
    let state = electing(3).with(2, Instance::reborn).with(0, |i| i.silent(60));
    waits(&state, "1 of 2 members is not fenced");
}

#[test]
fn rule_1_the_list_in_force_follows_status() {
    for state in [
        // A stranger may acknowledge (C14), a member may not, k is another one.
        healthy(3).with(0, |i| i.told(&[id(1), id(2), id(7)], 1)),
        healthy(3).with(0, |i| i.told(&[id(1)], 1)),
        healthy(3).with(0, |i| i.told(&[id(1), id(2)], 0)),
    ] {
        does(&state, &["allow shop-0 [shop-1 shop-2] k 1"]);
    }
}

#[test]
fn rule_1_k_is_lowered_in_status_first() {
    let state = healthy(5).declared(3);
    let record = "record epoch 6: open shop-0, members shop-1 shop-2 shop-3 shop-4, k 1";
    does(&state, &[record, "allow shop-0 [shop-1 shop-2 shop-3 shop-4] k 1"]);
}

#[test]
fn rule_1_k_is_raised_on_the_primary_first() {
    let members = [id(1), id(2)];
    let state = healthy(3)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&members, 0));
    does(&state, &["allow shop-0 [shop-1 shop-2] k 1"]);
    let state = state.with(0, |i| i.told(&members, 1));
    does(&state, &["mark shop-0"]);
    let state = state.with(0, |i| i.marker("a:1-101"));
    does(&state, &["record epoch 6: open shop-0, members shop-1 shop-2, k 1"]);
    // Nobody has caught up yet: it stays.
    let behind = |i: Instance| i.report(|r| r.replication.lag = Some(Duration::from_secs(9)));
    let state = healthy(3)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&members, 0));
    does(&state.with(1, behind).with(2, behind), &[]);
}

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
    waits(&silent(10).with(1, ours), "0 of 1 members do not receive");
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

fn outside(replicas: usize) -> State {
    let last = replicas - 1;
    let members: Vec<_> = (1..last).map(id).collect();
    let acks = u32::try_from(replicas / 2).unwrap();
    healthy(replicas)
        .rules(|rules| rules.members = members_but(rules, last))
        .with(0, |i| i.told(&members, acks))
        .with(last, Instance::fenced)
}

#[test]
fn rule_7_a_subset_joins() {
    let state = outside(3).with(2, |i| i.set("a:1-80"));
    does(
        &state,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 1",
            "allow shop-0 [shop-1 shop-2] k 1",
        ],
    );
}

#[test]
fn rule_7_an_errant_instance_is_cloned_from_a_replica() {
    let state = outside(3).with(2, |i| i.set("a:1-80 x:1"));
    does(
        &state,
        &[
            "record epoch 5: open shop-0, members shop-1, k 1",
            "clone shop-2 from shop-1",
        ],
    );
    let Action::Record(record) = &state.plan().actions[0] else {
        panic!("no record")
    };
    let intent = &record.rules.rebuilds[&name(2)];
    assert_eq!((&intent.incarnation, &intent.donor), (&id(2).incarnation, &id(1)));
    // No replica can give: the primary does.
    let state = state.with(1, |i| i.report(|r| r.replication.lag = Some(Duration::from_secs(9))));
    does(
        &state,
        &[
            "record epoch 5: open shop-0, members shop-1, k 1",
            "clone shop-2 from shop-0",
        ],
    );
}

#[test]
fn rule_7_empty_or_too_far_behind_is_cloned() {
    for state in [
        outside(3).with(2, |i| i.set("")),
        outside(3).with(0, |i| i.purged("a:1-90")).with(2, |i| i.set("a:1-80")),
    ] {
        does(
            &state,
            &[
                "record epoch 5: open shop-0, members shop-1, k 1",
                "clone shop-2 from shop-1",
            ],
        );
    }
}

#[test]
fn rule_7_rebuilds_are_limited() {
    let rebuilt = |incarnation: &str, seconds: i64| {
        let at = now() - jiff::SignedDuration::from_secs(seconds);
        let incarnation = mainstay_core::rules::Incarnation(incarnation.to_owned());
        let rebuild = Rebuild {
            incarnation,
            donor: id(1),
            at,
            reason: String::new(),
        };
        outside(3)
            .with(2, |i| i.set("a:1-80 x:1"))
            .rules(|rules| drop(rules.rebuilds.insert(name(2), rebuild)))
    };
    waits(&rebuilt("life-2", 5), "a pause after a clone that did not succeed");
    waits(&rebuilt("an-earlier-life", 30), "it was rebuilt a moment ago");
    assert_eq!(rebuilt("life-2", 20).does().len(), 2);
    assert_eq!(rebuilt("an-earlier-life", 70).does().len(), 2);
}

#[test]
fn rule_7_an_errant_member_is_isolated_then_dropped() {
    let state = healthy(3).with(2, |i| i.set("a:1-100 x:1"));
    does(&state, &["fence shop-2"]);
    let state = state.with(2, Instance::fenced);
    does(&state, &["allow shop-0 [shop-1] k 1"]);
    // Not when it alone can acknowledge.
    let state = healthy(3).with(1, |i| i.silent(10)).with(2, |i| i.set("a:1-100 x:1"));
    waits(&state, "another member that can acknowledge");
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
fn rule_9_a_new_cluster_begins_with_an_election() {
    let expected = [
        "record epoch 1: electing, shop-0 preferred, members shop-0 shop-1 shop-2, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&fresh(3), &expected);
    does(
        &fresh(1),
        &[
            "record epoch 1: electing, shop-0 preferred, members shop-0, k 0",
            "fence shop-0",
        ],
    );
    // Not before everybody answered: a volume that cannot be looked at may hold data.
    waits(&fresh(3).with(2, |i| i.silent(60)), "shop-2 to answer");
    waits(
        &fresh(3).with(2, |i| i.mysqld(Mysqld::Initialising)),
        "shop-2 to be initialised",
    );
    // A claim of a further ordinal may hold data, too.
    waits(
        &fresh(5).declared(3),
        "the claim of shop-3 exists beyond the 3 declared instances",
    );
}

#[test]
fn rule_9_a_lost_status_is_resumed_from_the_newest_reign() {
    let expected = [
        "record epoch 6: electing, members shop-1 shop-2, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&healthy(3).without_memory(), &expected);
    // Somebody was the primary before, and was told more since: the newest *reign* counts, not the newest command.
    let older = healthy(3)
        .with(2, |i| i.epoch(3).told(&[id(0)], 1).epoch(9))
        .without_memory();
    assert_eq!(older.does()[0], "record epoch 10: electing, members shop-1 shop-2, k 1");
    // One does not answer, one has an empty volume, one member holds other data: a person.
    waits(
        &healthy(3).without_memory().with(1, |i| i.silent(60)),
        "shop-1 to answer",
    );
    waits(
        &healthy(3).without_memory().with(1, Instance::pristine),
        "shop-1 has an empty volume",
    );
    waits(
        &healthy(3).without_memory().with(1, Instance::reborn),
        "shop-1 does not hold the data",
    );
}

#[test]
fn rule_9_a_status_that_is_behind_is_resumed_too() {
    let state = healthy(3).rules(|rules| rules.epoch = 3);
    assert_eq!(state.does()[0], "record epoch 6: electing, members shop-1 shop-2, k 1");
    waits(&state.with(1, |i| i.silent(60)), "shop-1 to answer");
}

#[test]
fn rule_9_a_single_instance_grows_by_clone_add_attach_and_raise() {
    let state = healthy(1).grown(3);
    does(&state, &["fence shop-1", "fence shop-2"]);
    let fenced = |i: Instance| i.fenced().epoch(5).report(|r| r.pristine = false);
    let state = state.with(1, fenced).with(2, fenced);
    does(
        &state,
        &["record epoch 5: open shop-0, members , k 0", "clone shop-1 from shop-0"],
    );
}

#[test]
fn rule_9_shrinking_lowers_k_then_drops() {
    let state = healthy(3).declared(1);
    does(
        &state,
        &[
            "record epoch 6: open shop-0, members shop-1 shop-2, k 0",
            "allow shop-0 [shop-1 shop-2] k 0",
        ],
    );
    let lowered = state
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&[id(1), id(2)], 0));
    does(&lowered, &["allow shop-0 [shop-2] k 0"]);
    let closed = lowered.with(0, |i| i.told(&[id(2)], 0));
    does(&closed, &["record epoch 6: open shop-0, members shop-2, k 0"]);
    // The primary is not wanted: it hands over first.
    let moved = electing(3).with(2, Instance::leaving);
    assert!(!moved.does().is_empty());
}
