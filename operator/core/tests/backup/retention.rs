//! What is deleted and what never is.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use mainstay_core::backup::retention::{Folder, Policies, Policy, SegmentUse, State, Stored, judge, needless};
use proptest::prelude::*;
use rstest::rstest;

use super::{set, time};

fn now() -> Timestamp {
    time("2026-11-30T12:00Z")
}

fn days(days: i64) -> Timestamp {
    now() - SignedDuration::from_hours(24 * days)
}

/// `nightly-3` is a complete backup of the schedule nightly, three days old; what has no schedule is `-3`.
fn complete(id: &str) -> Stored {
    let (schedule, age) = id.rsplit_once('-').unwrap();
    let age: i64 = age.parse().unwrap();
    Stored {
        id: id.to_owned(),
        schedule: Some(schedule.to_owned()).filter(|name| !name.is_empty()),
        state: State::Complete {
            at: days(age),
            executed: set(&format!("a:1-{}", 1000 - age)),
        },
    }
}

fn with(id: &str, state: State) -> Stored {
    Stored {
        id: id.to_owned(),
        schedule: None,
        state,
    }
}

fn policy(count: impl Into<Option<u32>>, age_days: impl Into<Option<i64>>) -> Policy {
    Policy {
        count: count.into(),
        age: age_days.into().map(|days| SignedDuration::from_hours(24 * days)),
    }
}

fn policies(fallback: Policy, schedules: &[(&str, Policy)]) -> Policies {
    Policies {
        fallback,
        schedules: schedules
            .iter()
            .map(|(name, policy)| ((*name).to_owned(), *policy))
            .collect(),
    }
}

#[rstest]
#[case::no_policy_keeps_all(policies(policy(None, None), &[]), &["n-1", "n-900", "-3"], &[])]
#[case::count(policies(policy(None, None), &[("n", policy(2, None))]), &["n-3", "n-1", "n-2", "n-4"], &["n-4", "n-3"])]
#[case::age(policies(policy(None, None), &[("n", policy(None, 2))]), &["n-1", "n-2", "n-3"], &["n-3"])]
#[case::both_must_hold(policies(policy(None, None), &[("n", policy(3, 2))]), &["n-1", "n-2", "n-3"], &["n-3"])]
#[case::by_schedule(policies(policy(None, None), &[("n", policy(1, None)), ("w", policy(1, None))]), &["n-1", "n-2", "w-7", "w-14"], &["w-14", "n-2"])]
#[case::a_schedule_that_is_gone(policies(policy(1, None), &[("n", policy(1, None))]), &["n-1", "x-2", "x-3", "-4", "-5"], &["-5", "x-3"])]
#[case::the_last_one_stays(policies(policy(None, 7), &[]), &["n-400", "n-500"], &["n-500"])]
#[case::the_last_one_of_all_schedules(policies(policy(None, 7), &[]), &["n-400", "w-300"], &["n-400"])]
fn count_and_age(#[case] policies: Policies, #[case] stored: &[&str], #[case] wanted: &[&str]) {
    let stored: Vec<_> = stored.iter().map(|id| complete(id)).collect();
    let verdict = judge(&stored, &policies, now());
    assert_eq!(verdict.delete, wanted);
    assert_eq!(verdict.keep.len() + verdict.delete.len(), stored.len());
}

#[test]
fn what_did_not_succeed_is_never_counted_and_goes_after_a_day() {
    let stored = [
        complete("n-1"),
        complete("n-2"),
        with("fresh", State::Leftover { at: days(0) }),
        with("old", State::Leftover { at: days(2) }),
        with("running", State::Running),
        with("broken", State::Unreadable),
    ];
    let verdict = judge(&stored, &policies(policy(2, None), &[]), now());
    assert_eq!(verdict.delete, ["old"]);
    // Alone: even then nothing but what is known to be no backup.
    assert_eq!(judge(&stored[2..], &policies(policy(1, 1), &[]), now()).delete, ["old"]);
}

fn segment(key: &str, valid: &str) -> SegmentUse {
    SegmentUse {
        key: key.to_owned(),
        valid: set(valid),
        at: days(0),
    }
}

fn holding(executed: &str) -> Stored {
    with(
        executed,
        State::Complete {
            at: days(1),
            executed: set(executed),
        },
    )
}

#[rstest]
#[case::nothing_needs_the_beginning(&[holding("a:1-50")], &["1", "2"])]
#[case::the_oldest_counts(&[holding("a:1-50"), holding("a:1-20")], &["1"])]
#[case::a_part_is_needed(&[holding("a:1-25")], &["1"])]
#[case::all_are_in_it(&[holding("a:1-50 b:1-9")], &["1", "2", "3", "4"])]
#[case::another_history(&[holding("b:1-9")], &[])]
#[case::no_backup(&[], &[])]
#[case::leftovers_are_none(&[with("l", State::Leftover { at: days(0) })], &[])]
#[case::unreadable(&[holding("a:1-50"), with("u", State::Unreadable)], &[])]
#[case::running(&[holding("a:1-50"), with("r", State::Running)], &[])]
fn f09_a_segment_that_a_kept_backup_needs_stays(#[case] kept: &[Stored], #[case] wanted: &[&str]) {
    let archive = [
        segment("1", "a:1-20"),
        segment("2", "a:21-50"),
        segment("3", "b:1-9"),
        // Its only transactions were never acknowledged.
        segment("4", ""),
    ];
    let kept: Vec<&Stored> = kept.iter().collect();
    assert_eq!(needless(&archive, &kept), wanted);
}

#[test]
fn f22_nothing_outside_of_the_folder_is_deleted() {
    let folder = Folder::new("backups/prod/db/7a6c1d52/").unwrap();
    for (key, wanted) in [
        ("backups/prod/db/7a6c1d52/base/x/manifest.json", true),
        ("backups/prod/db/7a6c1d52-2/base/x", false),
        ("backups/prod/db/7a6c1d52", false),
        ("backups/prod/db/7a6c1d52/", false),
        ("backups/prod/db-2/7a6c1d52/base/x", false),
        ("backups/prod/db/0f0f0f0f/base/x", false),
        ("backups/test/db/7a6c1d52/base/x", false),
        ("backups/prod/db/7a6c1d52/../0f0f0f0f/base/x", false),
        ("backups/prod/db/7a6c1d52//base", false),
        ("prod/db/7a6c1d52/base", false),
        ("", false),
    ] {
        assert_eq!(folder.holds(key), wanted, "{key}");
    }
    for folder in ["", "/", "db", "backups/prod/db", "a//b/", "a/../b/", "./"] {
        assert!(Folder::new(folder).is_err(), "{folder}");
    }
}

fn any_stored() -> impl Strategy<Value = Vec<Stored>> {
    let one = (0_usize..4, 0_i64..60, 0_u8..8);
    prop::collection::vec(one, 0..25).prop_map(|list| {
        let stored = list
            .into_iter()
            .enumerate()
            .map(|(place, (schedule, age, state))| Stored {
                id: format!("b{place:02}"),
                schedule: ["nightly", "weekly", "gone"]
                    .get(schedule)
                    .map(|name| (*name).to_owned()),
                state: match state {
                    0 => State::Leftover { at: days(age) },
                    1 => State::Unreadable,
                    2 => State::Running,
                    _ => State::Complete {
                        at: days(age),
                        executed: set(&format!("a:1-{}", 100 - age)),
                    },
                },
            });
        stored.collect()
    })
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (prop::option::of(1_u32..6), prop::option::of(1_i64..40)).prop_map(|(count, age)| policy(count, age))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_last_good_backup_and_what_kept_ones_need_stay(
        stored in any_stored(),
        fallback in any_policy(),
        nightly in any_policy(),
        size in 1_u64..30,
    ) {
        let policies = Policies {
            fallback,
            schedules: BTreeMap::from([("nightly".to_owned(), nightly)]),
        };
        let verdict = judge(&stored, &policies, now());
        let deleted: BTreeSet<&String> = verdict.delete.iter().collect();
        prop_assert_eq!(deleted.len(), verdict.delete.len());
        let good = |backup: &&Stored| matches!(backup.state, State::Complete { .. });
        let newest = stored.iter().filter(good).map(|backup| match backup.state {
            State::Complete { at, .. } => at,
            _ => unreachable!(),
        }).max();
        if let Some(newest) = newest {
            let kept = stored.iter().filter(good).filter(|backup| !deleted.contains(&backup.id));
            let kept: Vec<_> = kept.collect();
            let completed = |backup: &Stored| match &backup.state {
                State::Complete { at, .. } => Some(*at),
                State::Running | State::Leftover { .. } | State::Unreadable => None,
            };
            let stays = kept.iter().any(|backup| completed(backup) == Some(newest));
            prop_assert!(stays);
            // Nobody is deleted for whom a better reason to go stayed: within a schedule the kept are the newest.
            for gone in stored.iter().filter(good).filter(|backup| deleted.contains(&backup.id)) {
                let older = kept
                    .iter()
                    .filter(|kept| kept.schedule == gone.schedule && completed(kept) < completed(gone));
                prop_assert_eq!(older.count(), 0);
            }
        }
        for backup in &stored {
            if matches!(backup.state, State::Running | State::Unreadable) {
                prop_assert!(!deleted.contains(&backup.id));
            }
        }
        // A second look after the deletion deletes nothing more.
        let left: Vec<Stored> = stored.iter().filter(|backup| !deleted.contains(&backup.id)).cloned().collect();
        prop_assert!(judge(&left, &policies, now()).delete.is_empty());

        // Every kept backup and the segments that stay reach the end without a hole.
        let segments: Vec<SegmentUse> = (0..120 / size)
            .map(|n| segment(&n.to_string(), &format!("a:{}-{}", n * size + 1, (n + 1) * size)))
            .collect();
        let kept: Vec<&Stored> = left.iter().collect();
        let gone: BTreeSet<String> = needless(&segments, &kept).into_iter().collect();
        let rest = segments.iter().filter(|segment| !gone.contains(&segment.key));
        let rest = rest.fold(set(""), |all, segment| all.union(&segment.valid));
        let whole = segments.iter().fold(set(""), |all, segment| all.union(&segment.valid));
        for backup in kept {
            if let State::Complete { executed, .. } = &backup.state {
                prop_assert!(executed.union(&rest).contains(&whole));
            }
        }
    }
}
