//! GTID sets: spellings of real servers, and every operation against a naive model.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;

use mainstay_core::GtidSet;
use mainstay_core::gtid::{Gtid, MAX_NUMBER, ParseGtidError, ServerUuid};
use proptest::prelude::*;
use rstest::rstest;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "aa11fa47-71ca-11e1-9e33-c80aa9429562";
const C: &str = "bb11fa47-71ca-11e1-9e33-c80aa9429562";

fn set(text: &str) -> GtidSet {
    text.parse().unwrap()
}

/// `a:1-5` for the set of server A, so that tables can be read.
fn short(text: &str) -> GtidSet {
    set(&text
        .replace("a:", &format!("{A}:"))
        .replace("b:", &format!("{B}:"))
        .replace("c:", &format!("{C}:")))
}

#[rstest]
#[case::empty("", "")]
#[case::white_space(" \n\t ", "")]
#[case::single("3E11FA47-71CA-11E1-9E33-C80AA9429562:23", "3e11fa47-71ca-11e1-9e33-c80aa9429562:23")]
#[case::upper_case(
    "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
)]
#[case::single_as_range("3e11fa47-71ca-11e1-9e33-c80aa9429562:5-5", "3e11fa47-71ca-11e1-9e33-c80aa9429562:5")]
#[case::overlap_and_touch(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:7-9:1-3:4:8-12:20",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-4:7-12:20"
)]
#[case::as_gtid_executed_prints(
    "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-3:11:47-49,\nAA11FA47-71CA-11E1-9E33-C80AA9429562:1-2",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:11:47-49,aa11fa47-71ca-11e1-9e33-c80aa9429562:1-2"
)]
#[case::sorted_by_uuid(
    "bb11fa47-71ca-11e1-9e33-c80aa9429562:1,3e11fa47-71ca-11e1-9e33-c80aa9429562:1",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1,bb11fa47-71ca-11e1-9e33-c80aa9429562:1"
)]
#[case::white_space_everywhere(
    "  3e11fa47-71ca-11e1-9e33-c80aa9429562 : 1 - 3 : 5 ,\r\n  aa11fa47-71ca-11e1-9e33-c80aa9429562:1 ",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:5,aa11fa47-71ca-11e1-9e33-c80aa9429562:1"
)]
#[case::empty_pieces(
    ",,3e11fa47-71ca-11e1-9e33-c80aa9429562:1,\n",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1"
)]
#[case::tags(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:11:47-49:Domain_1:1-3:15-21:Domain_2:8-52",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:11:47-49:domain_1:1-3:15-21:domain_2:8-52"
)]
#[case::tag_only(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:_t:7",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:_t:7"
)]
#[case::tags_out_of_order_and_twice(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:z:1:a:2:z:2,3e11fa47-71ca-11e1-9e33-c80aa9429562:9",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:9:a:2:z:1-2"
)]
#[case::uuid_twice(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-4,3e11fa47-71ca-11e1-9e33-c80aa9429562:5",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
)]
#[case::largest(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9223372036854775806",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9223372036854775806"
)]
#[case::leading_zeros(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:001-003",
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3"
)]
fn spellings(#[case] text: &str, #[case] canonical: &str) {
    let parsed = set(text);
    assert_eq!(parsed.to_string(), canonical);
    assert_eq!(set(&parsed.to_string()), parsed);
    assert_eq!(parsed.is_empty(), canonical.is_empty());
}

#[rstest]
#[case::no_uuid("hello:1", "`hello` is not a server UUID")]
#[case::short_uuid(
    "3e11fa47-71ca-11e1-9e33-c80aa942956:1",
    "`3e11fa47-71ca-11e1-9e33-c80aa942956` is not a server"
)]
#[case::long_uuid(
    "3e11fa47-71ca-11e1-9e33-c80aa94295620:1",
    "`3e11fa47-71ca-11e1-9e33-c80aa94295620` is not a server"
)]
#[case::dash_elsewhere(
    "3e11fa4-771ca-11e1-9e33-c80aa9429562:1",
    "`3e11fa4-771ca-11e1-9e33-c80aa9429562` is not a server"
)]
#[case::sign_in_uuid(
    "+e11fa47-71ca-11e1-9e33-c80aa9429562:1",
    "`+e11fa47-71ca-11e1-9e33-c80aa9429562` is not a server"
)]
#[case::no_interval("3e11fa47-71ca-11e1-9e33-c80aa9429562", "no interval follows `3e11fa47")]
#[case::empty_interval("3e11fa47-71ca-11e1-9e33-c80aa9429562:", "`` is neither a tag nor an interval")]
#[case::zero("3e11fa47-71ca-11e1-9e33-c80aa9429562:0-4", "`0-4` is not an interval")]
#[case::backwards("3e11fa47-71ca-11e1-9e33-c80aa9429562:5-4", "`5-4` is not an interval")]
#[case::open_end("3e11fa47-71ca-11e1-9e33-c80aa9429562:5-", "`5-` is not an interval")]
#[case::three_ends("3e11fa47-71ca-11e1-9e33-c80aa9429562:5-6-7", "`5-6-7` is not an interval")]
#[case::signed("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-+5", "`1-+5` is not an interval")]
#[case::too_large(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:9223372036854775807",
    "`9223372036854775807` is not an interval"
)]
#[case::beyond_u64(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-99999999999999999999",
    "-99999999999999999999` is not"
)]
#[case::bad_tag("3e11fa47-71ca-11e1-9e33-c80aa9429562:ta-g:1", "`ta-g` is neither a tag")]
#[case::long_tag(
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:abcdefghijklmnopqrstuvwxyz0123456:1",
    "`abcdefgh"
)]
#[case::tag_without_interval("3e11fa47-71ca-11e1-9e33-c80aa9429562:1:tag", "no interval follows `tag`")]
#[case::two_tags("3e11fa47-71ca-11e1-9e33-c80aa9429562:one:two:1", "no interval follows `one`")]
#[case::second_piece("3e11fa47-71ca-11e1-9e33-c80aa9429562:1,x:1", "`x` is not a server UUID")]
fn refusals_name_the_piece(#[case] text: &str, #[case] piece: &str) {
    let error = text.parse::<GtidSet>().unwrap_err().to_string();
    assert!(error.contains(piece), "{error}");
}

#[rstest]
#[case("", "a:1", "a:1", "", "")]
#[case("a:1-5", "a:4-9", "a:1-9", "a:1-3", "a:4-5")]
#[case("a:1-5", "a:6-9", "a:1-9", "a:1-5", "")]
#[case("a:1-10", "a:3:5-6:10", "a:1-10", "a:1-2:4:7-9", "a:3:5-6:10")]
#[case("a:1-3:7-9", "a:2-8", "a:1-9", "a:1:9", "a:2-3:7-8")]
#[case("a:1-5,b:1-5", "b:1-5,c:1", "a:1-5,b:1-5,c:1", "a:1-5", "b:1-5")]
#[case("a:1-5:t:1-5", "a:t:3-9", "a:1-5:t:1-9", "a:1-5:t:1-2", "a:t:3-5")]
#[case("a:1-5", "a:t:1-5", "a:1-5:t:1-5", "a:1-5", "")]
fn operations(
    #[case] left: &str,
    #[case] right: &str,
    #[case] union: &str,
    #[case] difference: &str,
    #[case] intersection: &str,
) {
    let (left, right) = (short(left), short(right));
    assert_eq!(left.union(&right), short(union));
    assert_eq!(left.subtract(&right), short(difference));
    assert_eq!(left.intersect(&right), short(intersection));
}

#[rstest]
#[case("a:1-5", "", true)]
#[case("", "a:1", false)]
#[case("a:1-5", "a:1-5", true)]
#[case("a:1-5", "a:2:4-5", true)]
#[case("a:1-5:7", "a:5-7", false)]
#[case("a:1-5", "a:t:1", false)]
#[case("a:1-5,b:1-5", "b:5,a:1", true)]
#[case("a:1-3:5-9", "a:3-5", false)]
fn containment(#[case] outer: &str, #[case] inner: &str, #[case] expected: bool) {
    assert_eq!(short(outer).contains(&short(inner)), expected);
}

#[test]
fn sources_include_every_tag() {
    let all = short("a:1-5:t:1-3,b:1-2:u:9");
    assert_eq!(all.of_source(A), short("a:1-5:t:1-3"));
    assert_eq!(all.of_source(&A.to_uppercase()), short("a:1-5:t:1-3"));
    assert_eq!(all.without_source(A), short("b:1-2:u:9"));
    assert_eq!(all.of_source(C), GtidSet::default());
    assert_eq!(all.of_source(""), GtidSet::default());
    assert_eq!(all.without_source("not a uuid"), all);
    assert_eq!(
        all.sources().iter().map(ToString::to_string).collect::<Vec<_>>(),
        [A, B]
    );
}

#[test]
fn count_saturates() {
    assert_eq!(GtidSet::default().count(), 0);
    assert_eq!(short("a:1-5:9:t:1-2,b:4").count(), 9);
    let whole = format!("1-{MAX_NUMBER}");
    assert_eq!(short(&format!("a:{whole}")).count(), MAX_NUMBER);
    assert_eq!(short(&format!("a:{whole},b:{whole},c:{whole}")).count(), u64::MAX);
}

#[test]
fn single_transactions() {
    let gtid: Gtid = format!("{A}:tag:7").parse().unwrap();
    assert_eq!(gtid.to_string(), format!("{A}:tag:7"));
    assert!(short("a:1-9:tag:5-7").contains_gtid(&gtid));
    assert!(!short("a:1-9").contains_gtid(&gtid));
    assert!(!short("a:tag:1-9").contains_gtid(&Gtid {
        number: 0,
        ..gtid.clone()
    }));
    assert_eq!([gtid].into_iter().collect::<GtidSet>(), short("a:tag:7"));
    let range = format!("{A}:1-2");
    assert_eq!(range.parse::<Gtid>(), Err(ParseGtidError::NotSingle(range)));
}

#[test]
fn serialises_as_its_text() {
    let value = serde_json::to_value(short("a:1-5:t:1")).unwrap();
    assert_eq!(value, serde_json::json!(format!("{A}:1-5:t:1")));
    assert_eq!(serde_json::from_value::<GtidSet>(value).unwrap(), short("a:1-5:t:1"));
    let error = serde_json::from_value::<GtidSet>(serde_json::json!("nonsense:1")).unwrap_err();
    assert!(error.to_string().contains("`nonsense` is not a server UUID"));
}

/// The naive model: the transactions one by one.
type Model = BTreeSet<Gtid>;

/// A universe small enough that sets meet: two servers, with and without a tag, twelve numbers each.
fn models() -> impl Strategy<Value = Model> {
    let gtid = (
        prop_oneof![Just(A), Just(B)],
        prop_oneof![Just(""), Just("t:"), Just("u:")],
        1..=12_u64,
    )
        .prop_map(|(server, tag, number)| format!("{server}:{tag}{number}").parse().unwrap());
    prop::collection::btree_set(gtid, 0..40)
}

fn from_model(model: &Model) -> GtidSet {
    model.iter().cloned().collect()
}

/// Reads a set's text without the code under test.
fn to_model(set: &GtidSet) -> Model {
    let mut model = Model::new();
    let text = set.to_string();
    for source in text.split(',').filter(|s| !s.is_empty()) {
        let (server, rest) = source.split_at(36);
        let mut tag = String::new();
        for piece in rest.split(':').skip(1) {
            if piece.starts_with(char::is_alphabetic) {
                tag = format!("{piece}:");
                continue;
            }
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            for number in first.parse::<u64>().unwrap()..=last.parse::<u64>().unwrap() {
                assert!(
                    model.insert(format!("{server}:{tag}{number}").parse().unwrap()),
                    "twice in {text}"
                );
            }
        }
    }
    model
}

proptest! {
    #[test]
    fn text_and_model_agree(model in models()) {
        let set = from_model(&model);
        prop_assert_eq!(to_model(&set), model.clone());
        prop_assert_eq!(set.count(), model.len() as u64);
        prop_assert_eq!(set.to_string().parse::<GtidSet>().unwrap(), set);
    }

    #[test]
    fn operations_agree_with_the_model(left in models(), right in models()) {
        let (a, b) = (from_model(&left), from_model(&right));
        prop_assert_eq!(to_model(&a.union(&b)), left.union(&right).cloned().collect::<Model>());
        prop_assert_eq!(to_model(&a.subtract(&b)), left.difference(&right).cloned().collect::<Model>());
        prop_assert_eq!(to_model(&a.intersect(&b)), left.intersection(&right).cloned().collect::<Model>());
        prop_assert_eq!(a.contains(&b), left.is_superset(&right));
        prop_assert_eq!(a == b, left == right);
        for gtid in left.union(&right) {
            prop_assert_eq!(a.contains_gtid(gtid), left.contains(gtid));
        }
    }

    #[test]
    fn results_are_normal(left in models(), right in models()) {
        // Two equal sets have one representation, however they came to be.
        let (a, b) = (from_model(&left), from_model(&right));
        for result in [a.union(&b), a.subtract(&b), a.intersect(&b), a.of_source(A), a.without_source(A)] {
            prop_assert_eq!(&result, &from_model(&to_model(&result)));
        }
    }

    #[test]
    fn laws_of_algebra(x in models(), y in models(), z in models()) {
        let (a, b, c) = (from_model(&x), from_model(&y), from_model(&z));
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b.union(&c)), a.union(&b).union(&c));
        prop_assert_eq!(a.intersect(&b.union(&c)), a.intersect(&b).union(&a.intersect(&c)));
        prop_assert_eq!(a.subtract(&b.union(&c)), a.subtract(&b).subtract(&c));
        prop_assert_eq!(a.subtract(&b).union(&a.intersect(&b)), a.clone());
        prop_assert_eq!(a.of_source(A).union(&a.without_source(A)), a.clone());
        prop_assert!(a.union(&b).contains(&a));
        prop_assert!(a.contains(&a.intersect(&b)));
        prop_assert!(a.subtract(&b).intersect(&b).is_empty());
        prop_assert_eq!(a.contains(&b), b.subtract(&a).is_empty());
    }

    #[test]
    fn any_order_of_pieces_is_the_same_set(model in models(), seed in any::<u64>()) {
        let mut pieces: Vec<String> = model.iter().map(ToString::to_string).collect();
        let length = pieces.len().max(1);
        pieces.rotate_left(usize::try_from(seed % length as u64).unwrap() % length);
        prop_assert_eq!(pieces.join(",").parse::<GtidSet>().unwrap(), from_model(&model));
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-:, 0-9a-f_x\n]{0,60}") {
        if let Ok(set) = text.parse::<GtidSet>() {
            prop_assert_eq!(set.to_string().parse::<GtidSet>().unwrap(), set);
        }
    }
}

#[test]
fn transactions_of_a_tag_are_told_apart() {
    let all = set(&format!("{A}:1-5:mainstay:1-3:x:9,{B}:7:mainstay:4"));
    assert_eq!(
        all.with_tag("mainstay"),
        set(&format!("{A}:mainstay:1-3,{B}:mainstay:4"))
    );
    assert_eq!(all.with_tag(""), set(&format!("{A}:1-5,{B}:7")));
    assert_eq!(all.with_tag("none"), GtidSet::new());
    assert_eq!(all.with_tag("1 is no tag"), GtidSet::new());
}

#[test]
fn a_set_is_its_ranges() {
    let all = set(&format!("{A}:1-5:9:mainstay:1-3,{B}:7"));
    let ranges = all
        .ranges()
        .map(|(server, tag, first, last)| (server, tag.clone(), first, last));
    let ranges: Vec<_> = ranges.collect();
    let shown: Vec<_> = ranges
        .iter()
        .map(|(_, tag, first, last)| (tag.as_str(), *first, *last))
        .collect();
    assert_eq!(shown, [("", 1, 5), ("", 9, 9), ("mainstay", 1, 3), ("", 7, 7)]);
    assert_eq!(GtidSet::from_ranges(ranges), all);
    let bytes = all.sources()[0].to_bytes();
    assert_eq!(bytes[..4], [0x3e, 0x11, 0xfa, 0x47]);
    assert_eq!(ServerUuid::from_bytes(bytes), all.sources()[0]);
}
