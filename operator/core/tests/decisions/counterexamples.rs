//! The counterexamples C1 to C14 and L1 to L9 of docs/failover.md as tables: the state in which a weaker rule went wrong, and
//! what is done in it. (What an instance has to refuse, C8 and C11, is shown in the small world, whose instances do.)

use crate::states::{Instance, State, dead, does, electing, fresh, healthy, id, members_but, now, set, waits};
use mainstay_core::action::{Action, VerbKind};
use mainstay_core::observed::Mysqld;
use mainstay_core::rules::{OperatorId, Phase};

/// shop-1 is to leave because it is errant; everybody is confirmed in epoch 6, and the primary excludes it.
fn leaving_member() -> State {
    healthy(3)
        .rules(|rules| rules.epoch = 6)
        .with(0, |i| i.epoch(6).told(&[id(2)], 1))
        .with(1, |i| i.fenced().epoch(6).set("a:1-100 x:1"))
        .with(2, |i| i.epoch(6))
}

#[test]
fn c1_a_dead_member_stays_and_is_missed_in_the_next_election() {
    // shop-1 alone acknowledged something and died: it does not leave, however long it is away.
    does(&healthy(3).with(1, dead), &[]);
    does(&healthy(3).with(1, Instance::gone), &[]);
    // Then the primary fails: shop-2 alone is not enough.
    waits(&electing(3).with(0, dead).with(1, dead), "1 of 2 members is not fenced");
    // A member that leaves may hold the only copy: the rest has to contain everything first.
    let state = leaving_member().with(0, |i| i.marker("a:1-101"));
    waits(&state, "1 of the other members to contain everything, 0 do");
    does(
        &state.with(2, |i| i.set("a:1-101")),
        &["record epoch 7: open shop-0, members shop-2, k 1"],
    );
}

#[test]
fn c2_what_still_waits_on_the_primary_counts() {
    // shop-2 contains everything that the primary executed; what waits for an acknowledgement is not in there.
    does(&leaving_member(), &["mark shop-0"]);
}

#[test]
fn c3_a_relay_log_is_applied_before_an_instance_is_pointed_elsewhere() {
    let behind = |i: Instance| i.fenced().set("a:1-90").received("a:91-100");
    waits(&healthy(3).with(2, behind), "its relay log to be applied");
    let state = electing(3).with(0, dead).with(2, |i| behind(i).epoch(6));
    waits(&state, "1 instances to follow shop-1");
    // Nor is it the winner before.
    let state = electing(3)
        .with(0, dead)
        .with(1, |i| behind(i).epoch(6))
        .with(2, |i| i.set("a:1-90"));
    does(&state, &["attach shop-2 to shop-1"]);
    waits(&state.with(2, |i| i.follows(1)), "shop-1 to apply its relay log");
}

#[test]
fn c4_a_close_under_an_epoch_of_somebody_else_is_no_close() {
    // Another process closed shop-1, marked, and everything is there. Its Allow may still be on its way.
    let state = leaving_member()
        .with(0, |i| i.marker("a:1-101"))
        .with(2, |i| i.set("a:1-101"));
    let state = state.rules(|rules| rules.owner = OperatorId("other".to_owned()));
    let planned = state.does();
    assert!(
        planned[0].starts_with("record epoch 7: open shop-0, members shop-1 shop-2"),
        "{planned:?}"
    );
    assert!(planned.iter().skip(1).all(|line| !line.starts_with("record")));
}

#[test]
fn c5_the_dead_are_not_fenced() {
    for gone in [
        dead,
        Instance::gone,
        |i: Instance| i.mysqld(Mysqld::Starting),
        Instance::reborn,
    ] {
        waits(&electing(3).with(0, dead).with(2, gone), "1 of 2 members is not fenced");
    }
    // Nor is one that was fenced in an earlier epoch, or is just being told.
    let state = electing(3).with(0, dead);
    does(&state.clone().with(2, |i| i.epoch(5)), &["fence shop-2"]);
    waits(
        &state.with(2, |i| i.busy(VerbKind::Fence, 6)),
        "1 of 2 members is not fenced",
    );
}

#[test]
fn c6_the_baseline_is_the_whole_set_of_the_winner() {
    let state = electing(3)
        .with(0, dead)
        .with(1, |i| i.set("a:1-100").received("a:90-100"))
        .with(2, |i| i.follows(1));
    let Action::Record(record) = state.plan().actions[0].clone() else {
        panic!("no record")
    };
    assert_eq!(record.rules.baseline, set("a:1-100"));
}

#[test]
fn c7_a_switchover_raises_the_epoch_before_it_touches_the_primary() {
    let plan = healthy(3).with(0, Instance::leaving).plan();
    let Action::Record(record) = &plan.actions[0] else {
        panic!("no record")
    };
    assert_eq!(record.rules.epoch, 6);
    let Action::Command(commands) = &plan.actions[1] else {
        panic!("no command")
    };
    assert!(commands.iter().all(|command| command.epoch == 6));
    // The way back is a record, too.
    let old = now() - jiff::SignedDuration::from_secs(6);
    let state = healthy(3).with(1, |i| i.set("a:1-90")).rules(|rules| {
        rules.epoch = 6;
        rules.phase = Phase::Electing { preferred: Some(id(1)) };
        rules.phase_since = old;
    });
    assert!(state.does()[0].starts_with("record epoch 7: electing, shop-0 preferred"));
}

#[test]
fn c9_k_in_status_is_never_above_the_k_in_force() {
    let members = [id(1), id(2)];
    // The primary waits for one acknowledgement, but nothing proves that older commits had one.
    let state = healthy(3)
        .rules(|rules| rules.acks_required = 0)
        .with(0, |i| i.told(&members, 1));
    does(&state, &["mark shop-0"]);
    // Lowering begins with the record, raising ends with it.
    let plan = healthy(5).declared(3).plan();
    assert!(matches!(&plan.actions[0], Action::Record(record) if record.rules.acks_required == 1));
    // No change of k while electing.
    assert!(
        electing(5)
            .declared(3)
            .does()
            .iter()
            .all(|line| !line.starts_with("record"))
    );
}

#[test]
fn c10_a_member_with_another_data_directory_is_not_that_member() {
    let state = electing(3).with(0, dead).with(2, Instance::reborn);
    waits(&state, "shop-2 came back with another data directory");
    // And an open primary tells it so before it joins.
    let state = healthy(3).with(2, |i| i.reborn().fenced());
    does(&state, &["allow shop-0 [shop-1] k 1"]);
}

#[test]
fn c12_a_fact_of_an_older_epoch_does_not_count() {
    // The primary was told in epoch 5 to exclude shop-1; status is at 6.
    let state = leaving_member().with(0, |i| i.epoch(5).told(&[id(2)], 1).marker("a:1-101"));
    let state = state.with(2, |i| i.set("a:1-101"));
    does(&state, &["allow shop-0 [shop-2] k 1"]);
    // Nor the containment.
    let state = leaving_member()
        .with(0, |i| i.marker("a:1-101"))
        .with(2, |i| i.set("a:1-101").epoch(5));
    does(&state, &["attach shop-2 to shop-0"]);
    // Nor while a command is on its way.
    let state = leaving_member()
        .with(0, |i| i.marker("a:1-101").unsettled())
        .with(2, |i| i.set("a:1-101"));
    assert!(state.does().iter().all(|line| !line.starts_with("record")));
}

#[test]
fn c13_a_pod_that_is_gone_is_no_dead_process() {
    // It begins an election, and counts for nothing in it.
    let state = healthy(3).with(0, Instance::gone).with(1, Instance::gone);
    assert!(state.does()[0].starts_with("record epoch 6: electing"));
    waits(
        &electing(3).with(0, Instance::gone).with(1, Instance::gone),
        "1 of 2 members is not fenced",
    );
}

#[test]
fn c14_only_members_may_acknowledge() {
    does(
        &healthy(3).with(0, |i| i.told(&[id(1), id(2), id(5)], 1)),
        &["allow shop-0 [shop-1 shop-2] k 1"],
    );
}

#[test]
fn l1_a_member_without_the_baseline_counts_as_fenced() {
    // shop-1 has the baseline, shop-2 does not yet, the old primary is lost for good.
    let state = electing(3).with(0, dead).with(2, |i| i.set("a:1-10"));
    does(&state, &["attach shop-2 to shop-1"]);
}

#[test]
fn l2_the_old_primary_may_win() {
    let state = electing(3).with(2, dead);
    does(&state, &["attach shop-0 to shop-1"]);
    // Only it has everything: it wins.
    let state = state.with(0, |i| i.set("a:1-120"));
    does(&state, &["attach shop-1 to shop-0"]);
    does(
        &state.with(1, |i| i.follows(0).set("a:1-120")),
        &[
            "record epoch 6: open shop-0, members shop-1, k 1",
            "open shop-0 [shop-1] k 1",
        ],
    );
}

#[test]
fn l3_nothing_is_recorded_while_only_the_winner_has_it() {
    let state = electing(3)
        .with(0, dead)
        .with(1, |i| i.set("a:1-101"))
        .with(2, |i| i.follows(1));
    waits(&state, "1 instances to follow shop-1 and contain what it has; 0 do");
}

#[test]
fn l4_a_primary_that_hangs_or_is_cut_off_is_replaced() {
    // Cut off from the operator and the members.
    let state = healthy(3).with(0, dead).with(1, Instance::deaf).with(2, Instance::deaf);
    assert!(state.does()[0].starts_with("record epoch 6: electing"));
    // From the members only.
    let state = healthy(3).with(1, Instance::deaf).with(2, Instance::deaf);
    assert!(state.does()[0].starts_with("record epoch 6: electing"));
    // Its manager killed the hanging mysqld.
    let state = healthy(3).with(0, |i| i.mysqld(Mysqld::Down));
    assert!(state.does()[0].starts_with("record epoch 6: electing"));
}

#[test]
fn l5_the_primarys_own_transactions_are_never_errant() {
    // shop-2 came back with a transaction that the primary still waits for.
    let state = healthy(3).with(2, |i| i.fenced().set("a:1-101"));
    does(&state, &["attach shop-2 to shop-0"]);
}

#[test]
fn l6_a_non_member_is_rebuilt_when_nobody_else_can_follow() {
    let state = electing(3)
        .rules(|rules| rules.members = members_but(rules, 2))
        .with(0, Instance::gone)
        .with(2, |i| i.set("a:1-100 x:1"));
    does(
        &state,
        &[
            "record epoch 6: electing, members shop-1, k 1",
            "clone shop-2 from shop-1",
        ],
    );
    // A member never is.
    let state = electing(3).with(0, Instance::gone).with(2, |i| i.set("a:1-100 x:1"));
    waits(&state, "1 instances to follow shop-1");
}

#[test]
fn l7_without_a_memory_nothing_begins_anew_over_data() {
    let state = fresh(3).with(1, |i| i.fenced().set("a:1-100").report(|r| r.pristine = false));
    waits(&state, "a person");
}

#[test]
fn l8_only_the_legitimate_part_of_others_has_to_be_contained() {
    let state = electing(3).with(0, dead).with(2, |i| i.set("a:1-99 x:1-7"));
    // shop-1 wins although it lacks x; shop-2 cannot follow as it is, and is a member: it is not touched.
    waits(&state, "1 instances to follow shop-1");
    let state = electing(5).with(0, dead).with(4, |i| i.set("a:1-99 x:1-7"));
    does(&state, &["attach shop-2 to shop-1", "attach shop-3 to shop-1"]);
}

#[test]
fn l9_an_election_leaves_nobody_in_the_members_who_does_not_follow() {
    let state = electing(5)
        .with(0, dead)
        .with(4, dead)
        .with(2, |i| i.follows(1))
        .with(3, |i| i.follows(1));
    does(
        &state,
        &[
            "record epoch 6: open shop-1, members shop-2 shop-3, k 2",
            "open shop-1 [shop-2 shop-3] k 2",
        ],
    );
}
