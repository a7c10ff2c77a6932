//! The rules of docs/failover.md as tables: one test named after each rule, a state and what is done in it.

mod elections;
mod history;
mod members;
mod recoveries;

use std::time::Duration;

use crate::states::{
    Instance, State, dead, does, electing, fresh, healthy, id, members_but, name, now, set, subject, uuid, waits,
};
use mainstay_core::action::{Action, VerbKind};
use mainstay_core::analyse::Analysis;
use mainstay_core::observed::{Mysqld, Reach};
use mainstay_core::rules::{Donor, OperatorId, Phase, Rebuild, Rules};

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
