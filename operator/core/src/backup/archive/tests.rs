use super::*;
use crate::backup::manifest::{ArchivedTransaction, StoredFile};

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn set(intervals: &str) -> GtidSet {
    if intervals.is_empty() {
        return GtidSet::new();
    }
    format!("{UUID}:{intervals}").parse().unwrap()
}

fn gtid(number: u64) -> Gtid {
    format!("{UUID}:{number}").parse().unwrap()
}

/// A segment with these transactions behind those; each was committed as many seconds after 1970 as its number says.
fn segment(sequence: u64, previous: &str, numbers: Range<u64>) -> Box<Segment> {
    let transactions: Vec<_> = numbers
        .map(|number| ArchivedTransaction {
            gtid: gtid(number),
            at: i64::try_from(number).unwrap() * 1_000_000,
        })
        .collect();
    Box::new(Segment {
        sequence,
        file: StoredFile {
            name: String::new(),
            size: 0,
            sha256: String::new(),
        },
        uncompressed_bytes: 0,
        encryption: None,
        previous: set(previous),
        gtids: transactions
            .iter()
            .map(|transaction| transaction.gtid.clone())
            .collect(),
        missing: GtidSet::new(),
        transactions,
    })
}

fn reign(baseline: &str, last: Last) -> ReignEnd {
    ReignEnd {
        baseline: set(baseline),
        last,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what may be unknown")]
fn at(second: i64) -> Option<Timestamp> {
    Some(Timestamp::from_second(second).unwrap())
}

#[test]
fn the_first_archive_of_a_cluster_holds_nothing() {
    let found = start(&reign("1-5", Last::Nothing), &[]);
    assert_eq!((found.sequence, found.stored), (1, None));
}

#[test]
fn a_restart_goes_on_behind_the_last_segment() {
    let own = reign("1-5", Last::Segment(segment(7, "1-9", 10..13)));
    let older = reign("", Last::Segment(segment(3, "", 1..6)));
    let found = start(&own, &[older]);
    assert_eq!((found.sequence, found.stored), (8, Some(set("1-12"))));
    assert_eq!(found.through, at(12));
}

/// The old primary had stored less than the baseline: the rest is in the binlogs of the new one.
#[test]
fn a8_a_new_primary_stores_what_the_old_one_had_not() {
    let old = reign("1-2", Last::Segment(segment(3, "1-9", 10..13)));
    let found = start(&reign("1-20", Last::Nothing), &[old]);
    assert_eq!((found.sequence, found.stored), (1, Some(set("1-12"))));
}

/// It had stored more, and nobody had acknowledged that: another transaction may have its place.
#[test]
fn a8_what_lies_beyond_the_baseline_is_not_stored() {
    let old = reign("1-2", Last::Segment(segment(3, "1-9", 10..13)));
    let found = start(&reign("1-10", Last::Nothing), &[old]);
    assert_eq!((found.stored, found.through), (Some(set("1-10")), at(10)));
}

#[test]
fn a8_a_reign_without_segments_limits_the_one_before_it() {
    let oldest = reign("", Last::Segment(segment(3, "1-9", 10..13)));
    let between = reign("1-11", Last::Nothing);
    let found = start(&reign("1-20", Last::Nothing), &[between, oldest]);
    assert_eq!(found.stored, Some(set("1-11")));
}

#[test]
fn f09_an_index_that_cannot_be_read_is_unknown_and_not_empty() {
    let unreadable = || Last::Unreadable { sequence: 9 };
    let own = start(&reign("1-5", unreadable()), &[]);
    assert_eq!((own.sequence, own.stored), (10, None), "its numbers are not used again");
    let older = reign("", Last::Segment(segment(3, "", 1..6)));
    let former = start(&reign("1-5", Last::Nothing), &[reign("1-3", unreadable()), older]);
    assert_eq!((former.sequence, former.stored), (1, None));
}

#[test]
fn f09_a_hole_is_what_was_executed_and_is_not_stored() {
    let before = set("1-20");
    assert_eq!(hole(&before, Some(&set("1-12")), &set("")), set("13-20"));
    assert_eq!(
        hole(&before, Some(&set("1-12")), &set("13-15")),
        set("16-20"),
        "the rest is known"
    );
    assert!(hole(&before, Some(&set("1-30")), &set("")).is_empty());
    assert!(
        hole(&before, None, &set("")).is_empty(),
        "where it begins nothing is missing"
    );
}

#[test]
fn f09_a_hole_is_remembered_by_what_is_stored() {
    let mut last = segment(3, "1-9", 10..13);
    last.missing = set("4-6");
    let found = start(&reign("1-11", Last::Nothing), &[reign("", Last::Segment(last))]);
    assert_eq!(found.missing, set("4-6"));
}

fn cut_of(lengths: &[u64], executed: &str) -> Cut {
    let gtids: Vec<Gtid> = (1..).take(lengths.len()).map(gtid).collect();
    cut(gtids.iter().zip(lengths.iter().copied()), &set(executed))
}

#[test]
fn a8_what_is_not_executed_is_not_stored_nor_what_stands_behind_it() {
    let expected = |transactions| Cut {
        transactions,
        full: false,
    };
    assert_eq!(cut_of(&[10, 10, 10], "1-3"), expected(3));
    assert_eq!(cut_of(&[10, 10, 10], "1:3"), expected(1));
    assert_eq!(cut_of(&[10, 10, 10], "2-3"), expected(0));
    assert_eq!(cut_of(&[], "1"), expected(0));
}

#[test]
fn a_segment_is_full_by_its_bytes_or_its_transactions() {
    let full = |transactions| Cut {
        transactions,
        full: true,
    };
    let half = SEGMENT_BYTES / 2;
    assert_eq!(cut_of(&[half, half - 1, 2], "1-3"), full(2));
    assert_eq!(cut_of(&[half, half, 1], "1-3"), full(2));
    assert_eq!(
        cut_of(&[SEGMENT_BYTES * 100, 1], "1-3"),
        full(1),
        "a large one is alone"
    );
    assert_eq!(cut_of(&[1, SEGMENT_BYTES * 100], "1-3"), full(1));
    assert_eq!(
        cut_of(&vec![1; SEGMENT_TRANSACTIONS + 1], "1-10000"),
        full(SEGMENT_TRANSACTIONS)
    );
}

#[test]
fn the_archive_reaches_to_the_first_transaction_that_is_not_stored() {
    let asked = at(100).unwrap();
    assert_eq!(through(asked, None), asked);
    assert_eq!(through(asked, Some(101_000_000)), asked);
    let before = through(asked, Some(99_000_000));
    assert!(before < at(99).unwrap() && before > at(98).unwrap());
}

#[test]
fn attempts_become_rare_and_never_end() {
    assert_eq!(pause(1), Duration::from_millis(500));
    assert_eq!(pause(2), Duration::from_secs(1));
    assert_eq!(pause(u32::MAX), Duration::from_secs(10));
}

fn index(first: u64, last: u64, bytes: u64) -> Index {
    Index { first, last, bytes }
}

fn singles(from: u64, count: u64) -> Vec<Index> {
    (from..from + count)
        .map(|sequence| index(sequence, sequence, 1000))
        .collect()
}

#[test]
fn indexes_of_one_kind_are_merged_when_there_are_enough() {
    assert_eq!(merger(&singles(1, 31)), None);
    assert_eq!(merger(&singles(1, 32)), Some(0..32));
    let mut mixed = vec![index(1, 32, 30_000)];
    mixed.extend(singles(33, 31));
    assert_eq!(
        merger(&mixed),
        None,
        "what was merged is not merged again with single ones"
    );
    mixed.extend(singles(64, 1));
    assert_eq!(merger(&mixed), Some(1..33));
    let merged: Vec<_> = (0..32).map(|n| index(n * 32 + 1, n * 32 + 32, 30_000)).collect();
    assert_eq!(merger(&merged), Some(0..32));
    let large: Vec<_> = (0..64).map(|n| index(n, n, LARGE)).collect();
    assert_eq!(merger(&large), None);
}

/// However long it goes on, a listing stays short, and no index grows without end.
#[test]
fn a_listing_of_indexes_stays_short() {
    let mut indexes: Vec<Index> = Vec::new();
    for sequence in 1..=40_000 {
        indexes.push(index(sequence, sequence, 1500));
        while let Some(range) = merger(&indexes) {
            let merged = &indexes[range.clone()];
            let one = index(
                merged.first().unwrap().first,
                merged.last().unwrap().last,
                merged.iter().map(|index| index.bytes).sum(),
            );
            assert!(one.bytes <= 4 << 20);
            indexes.splice(range, [one]);
        }
    }
    assert!(indexes.len() < 110, "{}", indexes.len());
    assert_eq!(indexes.first().unwrap().first, 1);
    assert!(indexes.windows(2).all(|pair| pair[0].last + 1 == pair[1].first));
}

#[test]
fn what_a_merger_left_behind_is_found() {
    let indexes = [index(1, 1, 1), index(1, 3, 9), index(2, 2, 1), index(4, 4, 1)];
    assert_eq!(superseded(&indexes), [index(1, 1, 1), index(2, 2, 1)]);
}
