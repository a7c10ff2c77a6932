//! What the model check of these decisions found (docs/simulation.md, "The model"): each state was reached in it, and the
//! plan was another one.

use std::collections::BTreeSet;

use crate::states::{Instance, State, does, electing, healthy, id, now, waits};
use mainstay_core::action::VerbKind;
use mainstay_core::observed::{InstanceReport, Mysqld};
use mainstay_core::rules::{Donor, Phase, Rebuild};

fn dead(i: Instance) -> Instance {
    i.silent(3600)
}

/// The donor died in the middle of its clone: the manager waits for another order, in a new life without a server_uuid.
fn half_cloned(i: Instance) -> Instance {
    i.reborn()
        .mysqld(Mysqld::Failed)
        .report(|report: &mut InstanceReport| report.server_uuid.clear())
}

fn rebuilt(state: State, ordinal: usize, seconds: i64) -> State {
    state.rules(|rules| {
        rules.members = rules
            .members
            .iter()
            .filter(|member| **member != id(ordinal))
            .cloned()
            .collect();
        let rebuild = Rebuild {
            incarnation: id(ordinal).incarnation,
            donor: Donor::Instance(id(1)),
            failures: 0,
            at: now() - jiff::SignedDuration::from_secs(seconds),
            reason: "it was errant".to_owned(),
            ended: None,
            healing: None,
        };
        rules.rebuilds.insert(id(ordinal).instance, rebuild);
    })
}

/// 24 steps: Clone(2) of shop-1 is under way, shop-2 is lost for good. shop-0 was open, alone, for ever.
#[test]
fn a_clone_that_failed_is_tried_again() {
    let alone = rebuilt(healthy(3), 2, 60)
        .with(0, |i| i.told(&[id(1)], 1))
        .with(1, dead);
    let state = alone.clone().with(2, half_cloned);
    does(
        &state,
        &[
            "record epoch 5: open shop-0, members shop-1, k 1",
            "clone shop-2 from shop-0",
        ],
    );
    // With a pause.
    waits(&rebuilt(state, 2, 3), "a pause after a clone that did not succeed");
    // An instance whose server does not start is another matter: its data is looked at first.
    waits(
        &alone.with(2, |i| i.reborn().mysqld(Mysqld::Failed)),
        "shop-2 waits for its mysqld to start",
    );
}

#[test]
fn a_clone_that_failed_is_tried_again_in_an_election() {
    let state = rebuilt(electing(3), 2, 60)
        .with(0, dead)
        .with(2, half_cloned)
        .with(2, |i| i.epoch(6));
    does(
        &state,
        &[
            "record epoch 6: electing, members shop-1, k 1",
            "clone shop-2 from shop-1",
        ],
    );
}

/// 8 steps: both replicas returned with relay logs to apply and were fenced for that; then the primary was lost for good.
/// Members that were fenced are no witnesses, and nobody attached them again.
#[test]
fn members_that_were_fenced_are_attached_to_a_silent_primary_and_become_witnesses() {
    let fenced = |i: Instance| i.fenced().answered(VerbKind::Fence, 5, None);
    let state = healthy(3).with(0, dead).with(1, fenced).with(2, fenced);
    does(&state, &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);
    let behind = |i: Instance| fenced(i).set("a:1-90").received("a:91-100");
    does(&state.clone().with(1, behind), &["attach shop-2 to shop-0"]);
    // What it is told, and a connection that was not made yet, say nothing.
    let told = |i: Instance| fenced(i).busy(VerbKind::Attach, 5);
    waits(&state.clone().with(1, told).with(2, told), "a member that can be heard");
    let connecting = |i: Instance| i.follows(0).connecting().answered(VerbKind::Attach, 5, None);
    waits(
        &state.clone().with(1, connecting).with(2, connecting),
        "a member that can be heard",
    );
    let deaf = |i: Instance| i.follows(0).deaf();
    let lost = state.with(1, deaf).with(2, deaf).does();
    assert_eq!(lost[0], "record epoch 6: electing, members shop-1 shop-2, k 1");
}

/// 6 steps: shop-2 was fenced under this epoch, the primary restarted. Open waits for connected replicas, and there were none.
#[test]
fn a_primary_is_opened_again_only_for_members_that_follow_it() {
    let state = healthy(3).with(0, Instance::fenced).with(1, dead);
    does(&state, &["open shop-0 [shop-1 shop-2] k 1"]);
    let elects = state.with(2, Instance::fenced).does();
    assert_eq!(elects[0], "record epoch 6: electing, members shop-1 shop-2, k 1");
}

/// 19 steps: shop-1 cannot follow and is no member; the old primary's answer is on its way.
#[test]
fn nobody_is_replaced_in_an_election_while_an_answer_is_on_its_way() {
    let state = electing(3)
        .rules(|rules| rules.members = BTreeSet::from([id(2)]))
        .with(1, |i| i.set("a:1-100 x:1"));
    let asked = state.clone().with(0, |i| i.epoch(5).busy(VerbKind::Fence, 6));
    waits(&asked, "1 instances to follow shop-2");
    // Also when an earlier fence was not answered.
    let again = |i: Instance| {
        i.epoch(5)
            .answered(VerbKind::Fence, 6, Some("no answer"))
            .busy(VerbKind::Fence, 6)
    };
    waits(&state.clone().with(0, again), "1 instances to follow shop-2");
    does(
        &state.with(0, dead),
        &[
            "record epoch 6: electing, members shop-2, k 1",
            "clone shop-1 from shop-2",
        ],
    );
}

/// 14 steps: the primary was lost right after it was recorded, and a third instance is gone. The other candidate would wait
/// for ever for a follower, because the old primary has a transaction of its own.
#[test]
fn a_primary_that_flaps_is_elected_again_when_nobody_else_would_have_followers() {
    let young = |state: State| {
        state.rules(|rules| {
            let since = rules.phase_since;
            if let Some(primary) = &mut rules.primary {
                primary.since = since;
            }
        })
    };
    let state = young(electing(3)).with(0, |i| i.set("a:1-101"));
    does(&state.clone().with(2, dead), &["attach shop-1 to shop-0"]);
    // A third one that cannot follow is as good as gone.
    let stuck = |i: Instance| {
        i.set("a:1-90")
            .received("a:91-100")
            .report(|report| report.replication.applier_error = "duplicate key".to_owned())
    };
    does(&state.clone().with(2, stuck), &["attach shop-1 to shop-0"]);
    does(&state, &["attach shop-2 to shop-1"]);
}

/// 21 steps: status was restored as it was between the beginning of an election and the record of its winner, which does not
/// raise the epoch. The winner's transactions looked errant, and the old primary was elected without them.
#[test]
fn a_memory_of_an_election_that_is_over_is_an_old_one() {
    let state = electing(3)
        .with(1, |i| i.writable().told(&[id(2)], 1).set("a:1-100 b:1"))
        .with(2, |i| i.follows(1).set("a:1-100 b:1"));
    let resumed = state.does();
    assert!(resumed[0].starts_with("record epoch 7: electing"), "{resumed:?}");
    assert_eq!(state.plan_record().primary.map(|primary| primary.id), Some(id(1)));
    // Also when the winner is the old primary, and when status says who had been open before.
    let again = electing(3).with(0, |i| i.writable().told(&[id(2)], 1));
    assert!(again.does()[0].starts_with("record epoch 7: electing"));
    let older = state.rules(|rules| rules.phase = Phase::Open).with(0, Instance::fenced);
    assert!(older.does()[0].starts_with("record epoch 7: electing"));
}

/// 18 steps: the list without shop-1, whose volume was lost, is in force on the primary; status is lost before anything was
/// shown to be elsewhere. With that list as members shop-2 was elected, without what shop-1 had acknowledged.
#[test]
fn after_a_lost_status_only_the_old_primary_knows_what_was_acknowledged() {
    let state = healthy(3)
        .with(0, |i| i.told(&[id(2)], 1))
        .with(1, |i| i.reborn().fenced().set("a:1-90"))
        .without_memory();
    let rules = state.plan_record();
    assert_eq!(rules.primary.as_ref().map(|primary| &primary.id), Some(&id(0)));
    // Those that it was told of are fenced; the old primary is not.
    let members = rules.members.clone();
    let state = electing(3)
        .rules(|rules| rules.members = members)
        .with(0, |i| i.epoch(5).writable().busy(VerbKind::Fence, 6))
        .with(1, Instance::reborn)
        .with(2, |i| i.set("a:1-90"));
    waits(&state, "not fenced");
    // It is: and nobody wins who lacks something of it.
    let state = state.with(0, |i| i.fenced().epoch(6)).with(0, |i| {
        i.heard(|heard| {
            heard.settled = true;
            heard.busy = None;
        })
    });
    does(&state, &["attach shop-1 to shop-0", "attach shop-2 to shop-0"]);
}

/// 14 steps: shop-1 is dropped in this pass because it is not wanted any more, and was attached in the same one.
#[test]
fn a_member_that_leaves_is_not_attached() {
    let state = healthy(3)
        .declared(1)
        .rules(|rules| {
            rules.acks_required = 0;
            rules.members = BTreeSet::from([id(1)]);
        })
        .with(0, |i| i.told(&[], 0))
        .with(1, |i| i.fenced().set("a:1-100"));
    does(&state, &["record epoch 6: open shop-0, members , k 0"]);
}
