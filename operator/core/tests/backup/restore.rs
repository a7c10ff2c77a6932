//! Recoveries: tables by hand, and a naive model that knows what really happened.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use mainstay_core::GtidSet;
use mainstay_core::backup::manifest::Method;
use mainstay_core::backup::restore::{Archive, Base, Recovery, Refusal, Reign, Segment, Target, Transaction, plan};
use mainstay_core::gtid::Gtid;
use proptest::prelude::*;
use rstest::rstest;

use super::{set, time};

/// Second n of the story: transaction a:n was committed then.
fn at(second: i64) -> Timestamp {
    time("2026-11-29T12:00:00Z") + SignedDuration::from_secs(second)
}

fn gtid(text: &str) -> Gtid {
    set(text).to_string().parse().unwrap()
}

fn base(id: &str, executed: &str, completed: i64) -> Base {
    Base {
        id: id.to_owned(),
        executed: set(executed),
        completed_at: at(completed),
        complete: true,
        method: Method::Physical,
    }
}

/// Transactions `first..=last` of a server, each committed in the second of its number plus `offset`.
fn segment(key: &str, before: &str, server: char, numbers: std::ops::RangeInclusive<i64>, offset: i64) -> Segment {
    Segment {
        key: key.to_owned(),
        before: set(before),
        transactions: numbers
            .map(|number| Transaction {
                gtid: gtid(&format!("{server}:{number}")),
                committed_at: at(number + offset),
            })
            .collect(),
    }
}

fn reign(epoch: u64, until: Option<&str>, segments: Vec<Segment>) -> Reign {
    Reign {
        epoch,
        until: until.map(set),
        segments,
    }
}

/// One primary, one row a second for 100 seconds, in segments of ten; everything until second 100.5 is stored.
fn quiet() -> Archive {
    let segments = (0..10_i64).map(|n| {
        let before = if n == 0 {
            String::new()
        } else {
            format!("a:1-{}", n * 10)
        };
        segment(&n.to_string(), &before, 'a', n * 10 + 1..=n * 10 + 10, 0)
    });
    Archive {
        reigns: vec![reign(1, None, segments.collect())],
        through: Some(at(100) + SignedDuration::from_millis(500)),
    }
}

/// Backups taken while the rows of `quiet` came: the copy ended at 20 and 60, the upload some seconds later.
fn backups() -> Vec<Base> {
    vec![base("first", "a:1-20", 25), base("second", "a:1-60", 66)]
}

/// A recovery as a line: base, epochs with their segments and where they stop, and what is reached.
fn line(recovery: &Recovery) -> String {
    let steps = recovery.steps.iter().map(|step| {
        let stop = step
            .before
            .as_ref()
            .map(|gtid| format!(" before {}", short(&gtid.to_string())));
        format!(
            " | {}: {}{}",
            step.epoch,
            step.segments.join(" "),
            stop.unwrap_or_default()
        )
    });
    let steps: String = steps.collect();
    format!("{}{steps} -> {}", recovery.base, short(&recovery.reaches.to_string()))
}

fn short(text: &str) -> String {
    text.replace("00000000-0000-4000-8000-000000000000", "a")
        .replace("00000001-0000-4000-8000-000000000000", "b")
        .replace("00000002-0000-4000-8000-000000000000", "c")
        .replace(',', " ")
}

fn says(result: &Result<Recovery, Refusal>) -> String {
    match result {
        Ok(recovery) => line(recovery),
        Err(refusal) => short(&refusal.to_string()),
    }
}

#[test]
fn files_are_preferred_to_statements_that_hold_the_same() {
    let logical = |id: &str, executed: &str, completed| Base {
        method: Method::Logical,
        ..base(id, executed, completed)
    };
    let begins_with = |bases: &[Base], target| plan(bases, &quiet(), &target).unwrap().base;
    let both = [base("files", "a:1-20", 25), logical("statements", "a:1-20", 31)];
    assert_eq!(begins_with(&both, Target::Latest), "files");
    assert_eq!(begins_with(&both, Target::Time(at(40))), "files");
    // A newer one is better, however it was made.
    let newer = [base("files", "a:1-20", 25), logical("statements", "a:1-21", 31)];
    assert_eq!(begins_with(&newer, Target::Latest), "statements");
    assert_eq!(begins_with(&newer, Target::Gtid(gtid("a:20"))), "files");
    // Files of which some are gone are none.
    let mut broken = both.clone();
    broken[0].complete = false;
    assert_eq!(begins_with(&broken, Target::Latest), "statements");
}

#[rstest]
#[case::before_the_first_backup(
    at(19),
    "the target lies before the first backup; the earliest point that can be reached is 2026-11-29T12:00:25Z (a:1-20)"
)]
#[case::at_the_first_copy(at(20), "first -> a:1-20")]
#[case::between_two_rows(at(20) + SignedDuration::from_millis(999), "first -> a:1-20")]
#[case::while_the_first_was_stored(at(23), "first | 1: 2 before a:24 -> a:1-23")]
#[case::just_after_the_first(at(25), "first | 1: 2 before a:26 -> a:1-25")]
#[case::at_the_end_of_a_segment(at(30), "first | 1: 2 -> a:1-30")]
#[case::just_before_the_second(at(59), "first | 1: 2 3 4 5 before a:60 -> a:1-59")]
#[case::at_the_second_copy(at(60), "second -> a:1-60")]
#[case::while_the_second_was_stored(at(64), "second | 1: 6 before a:65 -> a:1-64")]
#[case::just_after_the_second(at(66), "second | 1: 6 before a:67 -> a:1-66")]
#[case::at_the_last_row(at(100), "second | 1: 6 7 8 9 -> a:1-100")]
#[case::in_the_last_moment(at(100) + SignedDuration::from_millis(500), "second | 1: 6 7 8 9 -> a:1-100")]
#[case::after_the_last(
    at(101),
    "the target lies beyond what is stored; the latest point that can be reached is 2026-11-29T12:01:40.5Z (a:1-100)"
)]
#[case::into_the_future(
    at(9_999_999),
    "the target lies beyond what is stored; the latest point that can be reached is 2026-11-29T12:01:40.5Z (a:1-100)"
)]
fn f06_times(#[case] target: Timestamp, #[case] wanted: &str) {
    assert_eq!(says(&plan(&backups(), &quiet(), &Target::Time(target))), wanted);
}

#[rstest]
#[case::in_the_first_backup(
    "a:10",
    "the target lies before the first backup; the earliest point that can be reached is 2026-11-29T12:00:25Z (a:1-20)"
)]
#[case::the_last_of_the_first("a:20", "first -> a:1-20")]
#[case::the_next("a:21", "first | 1: 2 before a:22 -> a:1-21")]
#[case::the_last_of_the_second("a:60", "second -> a:1-60")]
#[case::the_last("a:100", "second | 1: 6 7 8 9 -> a:1-100")]
#[case::one_more(
    "a:101",
    "the target lies beyond what is stored; the latest point that can be reached is 2026-11-29T12:01:40.5Z (a:1-100)"
)]
#[case::of_nobody(
    "c:1",
    "the target lies beyond what is stored; the latest point that can be reached is 2026-11-29T12:01:40.5Z (a:1-100)"
)]
fn f06_transactions_are_included(#[case] target: &str, #[case] wanted: &str) {
    assert_eq!(says(&plan(&backups(), &quiet(), &Target::Gtid(gtid(target)))), wanted);
}

#[test]
fn f06_latest_and_nothing_to_begin_with() {
    let latest = plan(&backups(), &quiet(), &Target::Latest);
    assert_eq!(says(&latest), "second | 1: 6 7 8 9 -> a:1-100");
    assert_eq!(latest.unwrap().reaches_time, Some(at(100)));
    assert_eq!(plan(&[], &quiet(), &Target::Latest), Err(Refusal::NoBase));
    let mut incomplete = backups();
    incomplete[1].complete = false;
    assert_eq!(
        says(&plan(&incomplete, &quiet(), &Target::Latest)),
        "first | 1: 2 3 4 5 6 7 8 9 -> a:1-100"
    );
    incomplete[0].complete = false;
    assert_eq!(plan(&incomplete, &quiet(), &Target::Latest), Err(Refusal::NoBase));
    // Without an archive the latest point is the newest backup, and a time is no point that is known.
    let none = Archive::default();
    assert_eq!(says(&plan(&backups(), &none, &Target::Latest)), "second -> a:1-60");
    assert_eq!(
        says(&plan(&backups(), &none, &Target::Time(at(66)))),
        "the target lies beyond what is stored; the latest point that can be reached is 2026-11-29T12:01:06Z (a:1-60)"
    );
}

/// Clocks of writers jump: the order is the archive's.
#[test]
fn f06_a_clock_that_was_put_back() {
    let mut archive = quiet();
    archive.reigns[0].segments[7].transactions[4].committed_at = at(99);
    // a:75 says 99: a recovery to 80 ends before it, although later ones say less.
    let planned = plan(&backups(), &archive, &Target::Time(at(80)));
    assert_eq!(says(&planned), "second | 1: 6 7 before a:75 -> a:1-74");
}

/// Epoch 1: a wrote 1-60, 58-60 unacknowledged. Epoch 4: b began with a:1-57.
fn failover() -> Archive {
    Archive {
        reigns: vec![
            reign(
                1,
                Some("a:1-57"),
                vec![
                    segment("a0", "", 'a', 1..=30, 0),
                    segment("a1", "a:1-30", 'a', 31..=59, 0),
                    segment("a2", "a:1-59", 'a', 60..=60, 0),
                ],
            ),
            reign(
                4,
                None,
                vec![
                    segment("b0", "a:1-57", 'b', 1..=20, 70),
                    segment("b1", "a:1-57 b:1-20", 'b', 21..=40, 70),
                ],
            ),
        ],
        through: Some(at(111)),
    }
}

#[rstest]
#[case::latest(Target::Latest, "base | 1: a0 a1 before a:58 | 4: b0 b1 -> a:1-57 b:1-40")]
#[case::a_time_of_the_tail(Target::Time(at(59)), "base | 1: a0 a1 before a:58 -> a:1-57")]
#[case::between_the_reigns(Target::Time(at(65)), "base | 1: a0 a1 before a:58 -> a:1-57")]
#[case::in_the_new_reign(
    Target::Time(at(75)),
    "base | 1: a0 a1 before a:58 | 4: b0 before b:6 -> a:1-57 b:1-5"
)]
#[case::the_last_acknowledged(Target::Gtid(gtid("a:57")), "base | 1: a0 a1 before a:58 -> a:1-57")]
#[case::never_acknowledged(
    Target::Gtid(gtid("a:58")),
    "a:58 was never acknowledged: its primary was replaced before; the latest point of the archive is 2026-11-29T12:01:51Z (a:1-57 b:1-40)"
)]
fn f06_what_the_old_primary_alone_had_does_not_come_back(#[case] target: Target, #[case] wanted: &str) {
    let bases = [base("base", "a:1-10", 12)];
    assert_eq!(says(&plan(&bases, &failover(), &target)), wanted);
}

#[test]
fn f06_a_backup_that_holds_a_discarded_transaction_is_no_base() {
    let bases = [base("base", "a:1-10", 12), base("tail", "a:1-58", 61)];
    assert!(says(&plan(&bases, &failover(), &Target::Latest)).starts_with("base | "));
    assert_eq!(plan(&bases[1..], &failover(), &Target::Latest), Err(Refusal::NoBase));
    // One of the new reign is.
    let bases = [base("base", "a:1-10", 12), base("new", "a:1-57 b:1-25", 99)];
    assert_eq!(
        says(&plan(&bases, &failover(), &Target::Latest)),
        "new | 4: b1 -> a:1-57 b:1-40"
    );
}

/// The instance that archived lost its volume before it had stored its last segments; the new one began behind them.
fn hole() -> Archive {
    Archive {
        reigns: vec![
            reign(
                1,
                Some("a:1-60"),
                vec![
                    segment("a0", "", 'a', 1..=30, 0),
                    segment("a1", "a:1-30", 'a', 31..=50, 0),
                ],
            ),
            reign(
                2,
                None,
                vec![
                    segment("b0", "a:1-60", 'b', 1..=20, 60),
                    segment("b1", "a:1-60 b:1-20", 'b', 21..=40, 60),
                ],
            ),
        ],
        through: Some(at(101)),
    }
}

#[rstest]
#[case::latest(
    Target::Latest,
    "the archive has a hole before the target: a:51-60 is missing; the latest point before it is 2026-11-29T12:00:50Z (a:1-50)"
)]
#[case::a_time_in_the_hole(
    Target::Time(at(55)),
    "the archive has a hole before the target: a:51-60 is missing; the latest point before it is 2026-11-29T12:00:50Z (a:1-50)"
)]
#[case::behind_the_hole(
    Target::Gtid(gtid("b:3")),
    "the archive has a hole before the target: a:51-60 is missing; the latest point before it is 2026-11-29T12:00:50Z (a:1-50)"
)]
#[case::before_the_hole(Target::Gtid(gtid("a:50")), "base | 1: a0 a1 -> a:1-50")]
#[case::a_time_before_the_hole(Target::Time(at(40)), "base | 1: a0 a1 before a:41 -> a:1-40")]
fn f09_a_hole_is_never_stepped_over(#[case] target: Target, #[case] wanted: &str) {
    let bases = [base("base", "a:1-10", 12)];
    assert_eq!(says(&plan(&bases, &hole(), &target)), wanted);
}

#[test]
fn f09_a_new_backup_closes_the_hole() {
    let bases = [base("base", "a:1-10", 12), base("after", "a:1-60 b:1-5", 70)];
    assert_eq!(
        says(&plan(&bases, &hole(), &Target::Latest)),
        "after | 2: b0 b1 -> a:1-60 b:1-40"
    );
    // A segment in the middle of a reign.
    let mut archive = quiet();
    archive.reigns[0].segments.remove(7);
    let planned = plan(&backups(), &archive, &Target::Latest);
    let wanted = "the archive has a hole before the target: a:71-80 is missing; the latest point before it is 2026-11-29T12:01:10Z (a:1-70)";
    assert_eq!(says(&planned), wanted);
    let newer = [base("newer", "a:1-85", 88)];
    assert_eq!(
        says(&plan(&newer, &archive, &Target::Latest)),
        "newer | 1: 8 9 -> a:1-100"
    );
}

#[test]
fn f09_a_source_that_stores_again_what_was_stored_changes_nothing() {
    let mut archive = hole();
    // The new primary had what the old one had not stored, and stored it under its own reign.
    archive.reigns[1]
        .segments
        .insert(0, segment("b-", "a:1-40", 'a', 41..=60, 0));
    let bases = [base("base", "a:1-10", 12)];
    let planned = plan(&bases, &archive, &Target::Latest);
    assert_eq!(says(&planned), "base | 1: a0 a1 | 2: b- b0 b1 -> a:1-60 b:1-40");
    assert_eq!(
        says(&plan(&bases, &archive, &Target::Time(at(55)))),
        "base | 1: a0 a1 | 2: b- before a:56 -> a:1-55"
    );
}

#[test]
fn an_index_that_contradicts_itself_is_no_history() {
    let mut archive = failover();
    archive.reigns[0].until = None;
    assert!(matches!(
        plan(&backups(), &archive, &Target::Latest),
        Err(Refusal::Faulty(_))
    ));
    let mut archive = failover();
    archive.reigns.reverse();
    assert!(matches!(
        plan(&backups(), &archive, &Target::Latest),
        Err(Refusal::Faulty(_))
    ));
}

/// What really happened: each reign's acknowledged transactions, and a tail that was not.
#[derive(Clone, Debug)]
struct Story {
    archive: Archive,
    /// Acknowledged, in order, with their times.
    happened: Vec<Transaction>,
    bases: Vec<Base>,
}

#[expect(clippy::too_many_lines, reason = "one story")]
fn story() -> impl Strategy<Value = Story> {
    let reign = (1_usize..25, 0_usize..4, 1_usize..7);
    let places = prop::collection::vec(0.0_f64..1.0, 1..4);
    (prop::collection::vec(reign, 1..4), places, any::<bool>()).prop_map(|(shape, places, lose)| {
        let last = shape.len() - 1;
        let (mut happened, mut reigns, mut clock) = (Vec::new(), Vec::new(), 0);
        for (number, (count, tail, size)) in shape.into_iter().enumerate() {
            let tail = if number == last { 0 } else { tail };
            let server = ['a', 'b', 'c'][number];
            let before = executed(&happened);
            let all: Vec<Transaction> = (1..=count + tail)
                .map(|n| {
                    clock += 1;
                    Transaction {
                        gtid: gtid(&format!("{server}:{n}")),
                        committed_at: at(clock),
                    }
                })
                .collect();
            let segments = all.chunks(size).enumerate().map(|(n, chunk)| Segment {
                key: format!("{server}{n}"),
                before: before.union(&executed(&all[..n * size])),
                transactions: chunk.to_vec(),
            });
            let segments = segments.collect();
            happened.extend(all[..count].iter().cloned());
            reigns.push(Reign {
                epoch: u64::try_from(number).unwrap() + 1,
                until: (number != last).then(|| executed(&happened)),
                segments,
            });
        }
        let bases = places.iter().enumerate().map(|(n, place)| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "a place"
            )]
            let held = (place * happened.len() as f64) as usize;
            Base {
                id: n.to_string(),
                executed: executed(&happened[..held]),
                completed_at: held.checked_sub(1).map_or(at(0), |held| happened[held].committed_at),
                complete: true,
                method: Method::Physical,
            }
        });
        let bases = bases.collect();
        if lose {
            // One segment in the middle was never stored.
            let segments = &mut reigns[0].segments;
            if segments.len() > 2 {
                segments.remove(segments.len() / 2);
            }
        }
        Story {
            archive: Archive {
                reigns,
                through: Some(at(clock)),
            },
            happened,
            bases,
        }
    })
}

fn executed(transactions: &[Transaction]) -> GtidSet {
    transactions
        .iter()
        .map(|transaction| transaction.gtid.clone())
        .collect()
}

/// Carries a recovery out as an applier would: in order, skipping what is there, up to the stop.
fn carry_out(story: &Story, recovery: &Recovery) -> GtidSet {
    let base = story.bases.iter().find(|base| base.id == recovery.base).unwrap();
    let mut there = base.executed.clone();
    for step in &recovery.steps {
        let reign = story
            .archive
            .reigns
            .iter()
            .find(|reign| reign.epoch == step.epoch)
            .unwrap();
        let wanted: BTreeSet<&String> = step.segments.iter().collect();
        let segments = reign.segments.iter().filter(|segment| wanted.contains(&segment.key));
        let mut stream = segments.flat_map(|segment| &segment.transactions);
        let applied = stream
            .by_ref()
            .take_while(|transaction| Some(&transaction.gtid) != step.before.as_ref());
        there = there.union(&applied.map(|transaction| transaction.gtid.clone()).collect());
    }
    there
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Exactly what had happened until the target, or a refusal; never anything else.
    #[test]
    fn f06_exact_or_refused(story in story(), target in -2_i64..110) {
        for target in [
            Target::Latest,
            Target::Time(at(target)),
            story.happened.get(usize::try_from(target).unwrap_or_default()).map_or(Target::Latest, |t| Target::Gtid(t.gtid.clone())),
        ] {
            let until = match &target {
                Target::Latest => story.happened.len(),
                Target::Time(time) => story.happened.iter().take_while(|t| t.committed_at <= *time).count(),
                Target::Gtid(gtid) => story.happened.iter().position(|t| t.gtid == *gtid).unwrap() + 1,
            };
            let wanted = executed(&story.happened[..until]);
            if let Ok(recovery) = plan(&story.bases, &story.archive, &target) {
                prop_assert_eq!(&carry_out(&story, &recovery), &wanted, "{:?}: {}", &target, line(&recovery));
                prop_assert_eq!(&recovery.reaches, &wanted);
            }
        }
    }

    /// What is stored without a hole can be reached: nothing is refused out of caution.
    #[test]
    fn f06_what_is_stored_is_reached(story in story(), target in 0_i64..110) {
        let lost = story.archive.reigns.iter().flat_map(|reign| &reign.segments).fold(GtidSet::new(), |all, segment| {
            all.union(&executed(&segment.transactions))
        });
        let whole = lost.contains(&executed(&story.happened));
        let target = at(target);
        let until = story.happened.iter().take_while(|t| t.committed_at <= target).count();
        let wanted = executed(&story.happened[..until]);
        let base = story.bases.iter().any(|base| wanted.contains(&base.executed));
        if whole && base && story.archive.through.is_some_and(|through| target <= through) {
            let planned = plan(&story.bases, &story.archive, &Target::Time(target));
            prop_assert!(planned.is_ok(), "{}", says(&planned));
        }
    }
}
