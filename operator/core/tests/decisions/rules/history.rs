//! Instances whose binlogs and GTIDs were reset: their sets say nothing about their data.

use super::*;
use crate::states::{requests_forced, set};

/// Its manager noticed, and began another life.
fn reset(executed: &str) -> impl Fn(Instance) -> Instance {
    let executed = set(executed);
    move |i: Instance| {
        i.fenced().reborn().report(|report| {
            report.history_reset = true;
            report.executed = executed.clone();
            report.persisted.told_epoch = 0;
            report.persisted.primary = None;
            report.persisted.members.clear();
        })
    }
}

#[test]
fn rule_7_a_reset_history_is_cloned_although_its_set_fits() {
    // As a stale member it leaves first: its data may be the only other copy of an acknowledged write.
    let state = healthy(3).with(2, reset("a:1-3"));
    does(&state, &["allow shop-0 [shop-1] k 1"]);
    assert!(
        state.waits().contains("the others to contain everything"),
        "{}",
        state.waits()
    );
    // Then nothing of its set keeps it from being replaced: empty, a subset, or equal.
    for executed in ["", "a:1-3", "a:1-100"] {
        let state = healthy(3)
            .rules(|rules| rules.members = members_but(rules, 2))
            .with(0, |i| i.told(&[id(1)], 1))
            .with(2, reset(executed));
        does(
            &state,
            &[
                "record epoch 5: open shop-0, members shop-1, k 1",
                "clone shop-2 from shop-1",
            ],
        );
        let analysis = state.analysis();
        let told = analysis
            .problems
            .iter()
            .any(|problem| problem.message.contains("were reset"));
        assert!(told, "{:?}", analysis.problems);
    }
}

#[test]
fn rule_4_a_reset_history_neither_wins_nor_follows() {
    // The primary was reset: the members elect one of them, without it.
    let state = electing(3).with(0, reset("a:1-3"));
    let plan = state.does();
    assert!(
        plan.iter().any(|action| action.starts_with("attach shop-2 to shop-1")),
        "{plan:?}"
    );
    assert!(!plan.iter().any(|action| action.contains("shop-0")), "{plan:?}");
    // In a first election, where everybody takes part, too.
    let state = fresh(3).with(0, |i| i.report(|report| report.history_reset = true));
    let plan = state.does();
    assert!(!plan.iter().any(|action| action.starts_with("record")), "{plan:?}");
}

#[test]
fn rule_9_a_primary_that_stands_alone_is_its_own_baseline() {
    let state = healthy(1).with(0, |i| i.set("a:1-3"));
    does(&state, &["record epoch 6: open shop-0, members , k 0"]);
    assert_eq!(state.plan_record().baseline, set("a:1-3"));
    // With members, what the baseline holds may have been acknowledged.
    let state = healthy(3).with(0, |i| i.set("a:1-3"));
    let plan = state.plan();
    let rebased = plan.actions.iter().any(|action| match action {
        Action::Record(record) => record.reason == "HistoryReset",
        _ => false,
    });
    assert!(!rebased);
    // After a restart it opens as it is.
    let state = healthy(1).with(0, |i| i.fenced().set("a:1-3"));
    does(&state, &["open shop-0 [] k 0"]);
}

#[test]
fn rule_10_where_everybody_was_reset_a_person_says_whose_data_counts() {
    let all = |state: State| (0..3).fold(state, |state, ordinal| state.with(ordinal, reset("")));
    let state = all(electing(3)).rules(|rules| rules.phase_since = now() - jiff::SignedDuration::from_mins(5));
    assert!(
        !state.does().iter().any(|action| action.starts_with("record")),
        "{:?}",
        state.does()
    );
    let forced = requests_forced(&state, 1);
    does(
        &forced,
        &["record epoch 6: open shop-1, members , k 0", "open shop-1 [] k 0"],
    );
    let loss = forced.plan_record().data_loss.unwrap();
    assert_eq!(loss.missing, set("a:1-50"), "what was recorded is named");
    // While a member or the primary can be reached it is refused: that one knows more.
    let one = state.with(2, |i| i.report(|report| report.history_reset = false).set("a:1-100"));
    let one = one.with(2, |i| i.report(|report| report.incarnation = id(2).incarnation));
    let forced = requests_forced(&one, 1);
    assert!(
        !forced.does().iter().any(|action| action.contains("open shop-1")),
        "{:?}",
        forced.does()
    );
}

#[test]
fn a_replica_that_follows_nobody_serves_no_reads() {
    use mainstay_core::action::Action;
    let slices = |state: &State| {
        let plan = state.plan();
        let text: Vec<_> = plan
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Apply(object) => Some(object.value.to_string()),
                _ => None,
            })
            .collect();
        text.join("\n")
    };
    let state = healthy(3).with(2, Instance::fenced);
    let written = slices(&state);
    assert!(!written.contains("uid-shop-2"), "{written}");
}
