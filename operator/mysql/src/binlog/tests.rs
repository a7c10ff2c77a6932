//! On files that MySQL 9.7.4 wrote: with and without compression, tags and checksums.

use mainstay_core::GtidSet;
use mainstay_core::gtid::{ServerUuid, Tag};
use proptest::prelude::*;

use super::*;

/// Without compression; a transaction of 20 kB; a rotation at its end. The first one of a server.
const PLAIN: &[u8] = include_bytes!("../../tests/data/plain.binlog");
/// With compression, behind the former one.
const COMPRESSED: &[u8] = include_bytes!("../../tests/data/compressed.binlog");
/// Without checksums; the server was stopped.
const UNCHECKED: &[u8] = include_bytes!("../../tests/data/unchecked.binlog");

const FILES: [&[u8]; 3] = [PLAIN, COMPRESSED, UNCHECKED];
const UUID: &str = "1a1a709b-ecad-11f1-aef9-02fc00000001";

fn scan(file: &[u8]) -> Vec<Found> {
    scan_in(file, &[]).unwrap()
}

/// In pieces of these sizes, over and over.
fn scan_in(file: &[u8], sizes: &[usize]) -> Result<Vec<Found>, (Vec<Found>, BinlogError)> {
    let mut scanner = Scanner::new();
    let mut found = Vec::new();
    let mut rest = file;
    let whole = [file.len()];
    for size in if sizes.is_empty() { &whole } else { sizes }.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, next) = rest.split_at((*size).min(rest.len()));
        rest = next;
        if let Err(error) = scanner.feed(piece, &mut found) {
            return Err((found, error));
        }
    }
    assert_eq!(scanner.position(), file.len() as u64);
    Ok(found)
}

fn set(text: &str) -> GtidSet {
    if text.is_empty() {
        return GtidSet::new();
    }
    format!("{UUID}:{text}").parse().unwrap()
}

fn transactions(found: &[Found]) -> Vec<&Transaction> {
    found
        .iter()
        .filter_map(|found| match found {
            Found::Transaction(transaction) => Some(transaction),
            _ => None,
        })
        .collect()
}

fn format(found: &[Found]) -> &Format {
    let Found::Format(format) = &found[0] else {
        panic!("{:?}", found[0]);
    };
    format
}

fn previous(found: &[Found]) -> &GtidSet {
    let Found::Previous(previous) = &found[1] else {
        panic!("{:?}", found[1]);
    };
    previous
}

/// As `mysqlbinlog` shows them.
#[test]
#[expect(clippy::type_complexity, reason = "a table")]
fn transactions_are_found_where_they_are() {
    let expected: [(&[u8], &str, &[(&str, i64, u64, u64)], Found); 3] = [
        (
            PLAIN,
            "",
            &[
                ("1", 296_078, 158, 343),
                ("2", 301_924, 343, 555),
                ("3", 319_376, 555, 837),
                ("mainstay:1", 321_100, 837, 1064),
                ("4", 322_837, 1064, 1566),
                ("5", 325_171, 1566, 21_845),
                ("extra:7", 326_732, 21_845, 22_129),
            ],
            Found::Rotated("binlog.000002".to_owned()),
        ),
        (
            COMPRESSED,
            "1-5:extra:7:mainstay:1",
            &[
                ("6", 332_758, 294, 556),
                ("7", 333_590, 556, 823),
                ("mainstay:2", 335_109, 823, 1050),
                ("8", 337_076, 1050, 1246),
            ],
            Found::Rotated("binlog.000003".to_owned()),
        ),
        (
            UNCHECKED,
            "1-8:extra:7:mainstay:1-2",
            &[("9", 344_699, 290, 533)],
            Found::Stopped,
        ),
    ];
    for (file, before, expected, end) in expected {
        let found = scan(file);
        assert_eq!(format(&found).has_checksums(), file != UNCHECKED);
        assert_eq!(*previous(&found), set(before));
        let seen: Vec<_> = transactions(&found)
            .iter()
            .map(|found| (found.gtid.to_string(), found.at, found.from, found.to()))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(gtid, micros, from, to)| (format!("{UUID}:{gtid}"), 1_796_036_380_000_000 + micros, *from, *to))
            .collect();
        assert_eq!(seen, expected);
        assert_eq!(found.last(), Some(&end));
        for found in transactions(&found) {
            let (from, to) = (
                usize::try_from(found.from).unwrap(),
                usize::try_from(found.to()).unwrap(),
            );
            assert_eq!(found.crc, Crc::of(&file[from..to]));
        }
    }
}

#[test]
fn a_torn_tail_is_no_transaction() {
    for file in FILES {
        let whole = scan(file);
        for end in 0..file.len() {
            let found = scan(&file[..end]);
            assert!(whole.starts_with(&found));
            let complete = transactions(&whole)
                .iter()
                .filter(|found| found.to() <= end as u64)
                .count();
            assert_eq!(transactions(&found).len(), complete, "{end}");
        }
    }
}

/// The server writes the set of what was before like this, and so does the beginning of a segment.
#[test]
fn the_beginning_of_a_file_is_written_as_the_server_does() {
    for (file, length) in FILES.iter().zip([158, 294, 290]) {
        let found = scan(file);
        assert_eq!(head(format(&found), previous(&found), true), file[..length]);
    }
}

#[test]
fn a_segment_is_a_file_of_its_own() {
    for file in FILES {
        let found = scan(file);
        let all = transactions(&found);
        let (skipped, taken) = all.split_at(all.len() / 2);
        let gtids: GtidSet = skipped.iter().map(|found| found.gtid.clone()).collect();
        let before = previous(&found).union(&gtids);
        let mut segment = head(format(&found), &before, false);
        let begin = segment.len() as u64;
        for found in taken {
            let (from, to) = (
                usize::try_from(found.from).unwrap(),
                usize::try_from(found.to()).unwrap(),
            );
            segment.extend_from_slice(&file[from..to]);
        }
        let read = scan(&segment);
        assert_eq!(*previous(&read), before);
        assert_eq!(format(&read).parsed.create_timestamp(), 0, "no start of a server");
        let moved: Vec<Transaction> = taken
            .iter()
            .map(|found| Transaction {
                from: found.from - taken[0].from + begin,
                ..(*found).clone()
            })
            .collect();
        assert_eq!(transactions(&read), moved.iter().collect::<Vec<_>>());
    }
}

/// While a file is written it says so, and the checksum does not count that.
#[test]
fn a_file_that_is_being_written_is_read_and_its_format_is_that_of_a_closed_one() {
    let mut file = PLAIN.to_vec();
    file[4 + 17] |= 1;
    assert_eq!(scan(&file), scan(PLAIN));
}

fn refused(file: &[u8]) -> String {
    scan_in(file, &[]).unwrap_err().1.to_string()
}

#[test]
fn what_cannot_be_understood_is_refused_with_its_place() {
    let mut encrypted = PLAIN.to_vec();
    encrypted[0] = 0xfd;
    assert!(refused(&encrypted).contains("binlog_encryption=OFF"));
    assert_eq!(
        refused(b"PK\x03\x04"),
        "failed to read the binlog at position 0: the file is no binlog"
    );
    // A byte of a row.
    let mut damaged = PLAIN.to_vec();
    damaged[10_000] ^= 1;
    let error = refused(&damaged);
    assert!(error.contains("position 1770") && error.contains("checksum"), "{error}");
    // A transaction that begins within another one: its length in the GTID event is that of a whole one.
    let torn = [&PLAIN[..600], &PLAIN[555..]].concat();
    assert!(refused(&torn).contains("position 555"), "{}", refused(&torn));
    let lost = [&PLAIN[..634], &PLAIN[837..]].concat();
    assert!(refused(&lost).contains("within a transaction"), "{}", refused(&lost));
    let outside = [&PLAIN[..158], &PLAIN[634..]].concat();
    assert!(refused(&outside).contains("outside of a transaction"));
    let behind = [PLAIN, &PLAIN[158..343]].concat();
    assert!(refused(&behind).contains("behind the end"));
}

fn any_file() -> impl Strategy<Value = &'static [u8]> {
    prop::sample::select(FILES.to_vec())
}

proptest! {
    #[test]
    fn sets_are_read_as_they_are_written(
        parts in prop::collection::vec((0_u128..3, prop::sample::select(vec!["", "mainstay", "x"]), 1_u64..50, 0_u64..9), 0..20),
    ) {
        let range = |(server, tag, first, more): (u128, &str, u64, u64)| {
            let tag = if tag.is_empty() { Tag::default() } else { tag.parse().unwrap() };
            (ServerUuid::from_bytes(server.to_be_bytes()), tag, first, first + more)
        };
        let set = GtidSet::from_ranges(parts.into_iter().map(range));
        let bytes = sets::encode(&set);
        prop_assert_eq!(sets::decode(&bytes), Ok(set));
        for end in 0..bytes.len() {
            prop_assert!(sets::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_a_set_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(sets::decode(&bytes));
    }

    /// However a stream is cut into reads, it is the same stream.
    #[test]
    fn any_cut_gives_the_same(file in any_file(), sizes in prop::collection::vec(1_usize..3000, 1..20)) {
        prop_assert_eq!(scan_in(file, &sizes).unwrap(), scan(file));
    }

    #[test]
    fn single_bytes_give_the_same(file in any_file()) {
        prop_assert_eq!(scan_in(file, &[1]).unwrap(), scan(file));
    }

    /// Whatever is damaged, what is found before is what was there.
    #[test]
    fn damage_is_never_taken_for_a_transaction(
        file in prop::sample::select(vec![PLAIN, COMPRESSED]),
        place in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let place = place.index(file.len());
        let mut damaged = file.to_vec();
        damaged[place] ^= 1 << bit;
        let found = scan_in(&damaged, &[]).unwrap_or_else(|(found, _error)| found);
        let found = transactions(&found);
        let whole = scan(file);
        prop_assert!(transactions(&whole).starts_with(&found));
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let file = [&PLAIN[..127], &bytes].concat();
        drop(scan_in(&file, &[7]));
        drop(scan_in(&bytes, &[7]));
    }
}
