//! Rule 9 for a cluster that begins with recovered data, and the Secret with which they are recovered.

use super::*;
use mainstay_core::analyse::{Problem, ProblemCode};
use mainstay_core::observed::{InstanceReport, ObjectKind};
use mainstay_core::plan::Plan;

/// The first instance has the data, the others are new.
fn recovered(replicas: usize) -> State {
    fresh(replicas).recovering().with(0, |i| i.recovered("x:1-40"))
}

fn reborn(state: State) -> State {
    state.with(0, |i| i.recovered("x:1-44").reborn())
}

/// What becomes of the Secret.
fn secret(plan: &Plan) -> Vec<String> {
    let about = |action: &Action| match action {
        Action::WriteRecovery { secret, .. } => Some(format!("write {secret}")),
        Action::DeleteObject { key, .. } if key.kind == ObjectKind::Secret => Some(format!("delete {}", key.name)),
        _ => None,
    };
    plan.actions.iter().filter_map(about).collect()
}

#[test]
fn rule_9_recovered_data_are_what_the_first_election_is_about() {
    let state = recovered(3);
    let expected = [
        "record epoch 1: electing, shop-0 preferred, members shop-0, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&state, &expected);
    assert_eq!(state.plan_record().baseline, set("x:1-40"));
    does(
        &recovered(1),
        &[
            "record epoch 1: electing, shop-0 preferred, members shop-0, k 0",
            "fence shop-0",
        ],
    );
    // A first election that came to no end, with a clone that it made: begun again, whoever was deleted meanwhile.
    let cloned = state.with(1, |i| i.set("x:1-40").purged("x:1-40").epoch(4));
    assert_eq!(
        cloned.does()[0],
        "record epoch 5: electing, shop-0 preferred, members shop-0, k 1"
    );
}

#[test]
fn rule_9_nothing_begins_empty_where_data_are_to_be_recovered() {
    waits(
        &fresh(3).recovering(),
        "a person: shop-0 is empty, and its data was to be recovered",
    );
    waits(
        &recovered(3).with(0, |i| i.mysqld(Mysqld::Initialising).report(|r| r.recovered = None)),
        "shop-0 to recover its data",
    );
    waits(
        &fresh(3).recovering().with(0, |i| i.without_data("no such bucket")),
        "shop-0 to recover its data (no such bucket)",
    );
    // The others are waited for as in any new cluster.
    waits(&recovered(3).with(2, |i| i.silent(60)), "shop-2 to answer");
    waits(
        &recovered(3).with(2, |i| i.mysqld(Mysqld::Initialising)),
        "shop-2 to be initialised",
    );
}

#[test]
fn rule_9_recovered_data_meet_no_other_data() {
    // Kept volumes: what they hold is resumed, whatever the spec asks for.
    let kept = healthy(3).recovering().without_memory();
    assert_eq!(kept.does()[0], "record epoch 6: electing, members shop-1 shop-2, k 1");
    // One of them was lost, and recovered instead: nobody knows which data are wanted.
    waits(
        &kept.clone().with(0, |i| i.recovered("x:1-40")),
        "a person: shop-0 was recovered, and shop-1 holds data of its own",
    );
    waits(
        &recovered(3).with(2, |i| i.set("x:1-41")),
        "a person: shop-0 was recovered, and shop-2 holds data of its own",
    );
    // Recovered for another wish, or changed since.
    let other = |report: &mut InstanceReport| report.recovered.as_mut().unwrap().request = "another".to_owned();
    waits(
        &recovered(3).with(0, |i| i.report(other)),
        "for another spec.bootstrap.recovery than the present one",
    );
    waits(
        &recovered(3).with(0, |i| i.set("x:1-41")),
        "for another spec.bootstrap.recovery than the present one",
    );
    // It was opened once, so something may have been acknowledged: a lost status, not a new cluster.
    let opened = recovered(3).with(0, |i| i.epoch(3).told(&[id(1)], 1));
    waits(&opened, "shop-1, shop-2 have empty volumes");
}

#[test]
fn what_a_person_has_to_do_before_recovered_data_begin_is_told() {
    let told = |state: &State, code: ProblemCode| {
        let texts: Vec<_> = state.analysis().of(code).map(Problem::text).collect();
        texts.join("\n")
    };
    assert_eq!(
        told(&fresh(3).recovering(), ProblemCode::FirstPrimaryPending),
        "shop-0 is empty, and its data was to be recovered; delete its claim and its pod"
    );
    assert_eq!(
        told(&recovered(3), ProblemCode::FirstPrimaryPending),
        "the first instance recovers the data"
    );
    let mixed = told(&recovered(3).with(2, |i| i.set("x:1-41")), ProblemCode::StatusLost);
    assert!(
        mixed.contains("shop-2 holds data of its own; delete the claim of shop-2"),
        "{mixed}"
    );
}

/// The first election of recovered data, everybody fenced under it.
fn electing_recovered() -> State {
    electing(3)
        .recovering()
        .rules(|rules| {
            rules.primary = None;
            rules.members = [id(0)].into();
            rules.baseline = set("x:1-40");
            rules.phase = Phase::Electing { preferred: Some(id(0)) };
            rules.last_change = None;
        })
        .with(0, |i| i.recovered("x:1-40").epoch(6))
        .with(1, |i| i.pristine().report(|r| r.pristine = false).epoch(6))
        .with(2, |i| i.pristine().report(|r| r.pristine = false).epoch(6))
}

#[test]
fn rule_5_the_others_are_cloned_from_recovered_data() {
    // Their empty directories are no members': they need not be replayed what was purged, and they win nothing.
    let state = electing_recovered();
    let does = state.does();
    assert!(does[1].starts_with("clone shop-1 from shop-0"), "{does:#?}");
    let cloned = |i: Instance| i.set("x:1-40").purged("x:1-40");
    let state = state.with(1, cloned);
    assert_eq!(state.does(), ["attach shop-1 to shop-0"]);
    let state = state.with(1, |i| cloned(i).follows(0));
    assert_eq!(
        state.does(),
        [
            "record epoch 6: open shop-0, members shop-1, k 1",
            "open shop-0 [shop-1] k 1"
        ]
    );
    assert_eq!(state.plan_record().baseline, set("x:1-40"));
}

#[test]
fn rule_9_data_that_were_lost_and_recovered_again_begin_the_first_election_again() {
    let state = reborn(electing_recovered());
    let expected = [
        "record epoch 7: electing, shop-0 preferred, members shop-0, k 1",
        "fence shop-0",
        "fence shop-1",
        "fence shop-2",
    ];
    does(&state, &expected);
    assert_eq!(
        state.plan_record().baseline,
        set("x:1-44"),
        "what is stored has grown meanwhile"
    );
    // Not in a cluster that had a primary: there it is an instance like any other, and comes back by rule 7.
    let later = reborn(healthy(3).recovering());
    assert!(
        !later.does().concat().contains("shop-0 preferred"),
        "{:#?}",
        later.does()
    );
}

#[test]
fn an_instance_without_data_in_a_cluster_that_has_them_is_cloned() {
    let state = healthy(3)
        .recovering()
        .with(2, |i| i.reborn().without_data("not mounted"));
    assert!(
        state.does().concat().contains("allow shop-0 [shop-1]"),
        "{:#?}",
        state.does()
    );
    let dropped = healthy(3)
        .recovering()
        .rules(|rules| rules.members.retain(|member| *member != id(2)))
        .with(0, |i| i.told(&[id(1)], 1))
        .with(2, |i| i.reborn().without_data("not mounted"));
    assert!(
        dropped.does().concat().contains("clone shop-2"),
        "{:#?}",
        dropped.does()
    );
}

#[test]
fn the_secret_of_a_recovery_comes_before_the_instances_and_goes_when_a_primary_is_open() {
    let built = |state: &State| {
        let plan = state.plan();
        let set = |action: &Action| matches!(action, Action::Apply(it) if it.key.kind == ObjectKind::StatefulSet);
        plan.actions.iter().any(set)
    };
    let mut new = fresh(3).recovering();
    new.observed.objects.clear();
    for ordinal in 0..3 {
        new = new.with(ordinal, Instance::gone);
    }
    assert_eq!(secret(&new.plan()), ["write shop-recovery"]);
    assert!(!built(&new), "no instance begins without it");
    let new = new.with_recovery_secret();
    assert!(secret(&new.plan()).is_empty() && built(&new));
    // While it does not succeed the source is looked up again: somebody may have corrected it.
    let failing = fresh(3)
        .recovering()
        .with_recovery_secret()
        .with(0, |i| i.without_data("access denied"));
    assert_eq!(secret(&failing.plan()), ["write shop-recovery"]);
    assert!(failing.plan().look_again.is_some());
    let problems = failing.analysis();
    let told: Vec<_> = problems.of(ProblemCode::RecoveryFailed).collect();
    assert_eq!(told[0].message, "shop-0: access denied");
    assert!(secret(&electing_recovered().with_recovery_secret().plan()).is_empty());
    assert_eq!(
        secret(&healthy(3).recovering().with_recovery_secret().plan()),
        ["delete shop-recovery"]
    );
    let closed = healthy(3).recovering().with_recovery_secret().with(0, Instance::fenced);
    assert!(secret(&closed.plan()).is_empty(), "the primary is not open");
    // Left behind by a former cluster of that name.
    assert_eq!(
        secret(&healthy(3).accepted().with_recovery_secret().plan()),
        ["delete shop-recovery"]
    );
    assert!(secret(&healthy(3).recovering().plan()).is_empty());
}
