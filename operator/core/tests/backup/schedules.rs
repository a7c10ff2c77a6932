//! Due times, against the calendar and against clocks that jump.

use jiff::{SignedDuration, Timestamp};
use mainstay_core::backup::schedule::{Due, Runs, Schedule, ScheduleError, Switches, due};
use proptest::prelude::*;
use rstest::rstest;

use super::time;

fn schedule(text: &str, zone: &str) -> Schedule {
    Schedule::new(text, Some(zone)).unwrap()
}

/// The due times after a moment, as the wall of that zone shows them.
fn following(text: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = schedule(text, zone);
    let mut moment = time(after);
    let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).unwrap();
    (0..count)
        .map(|_| {
            moment = schedule.next(moment).unwrap();
            moment.to_zoned(zone.clone()).strftime("%m-%d %H:%M%:z").to_string()
        })
        .collect()
}

// Berlin 2026: 03-29 02:00+01:00 becomes 03:00+02:00; 10-25 03:00+02:00 becomes 02:00+01:00.
// New York 2026: 03-08 02:00-05:00 becomes 03:00-04:00; 11-01 02:00-04:00 becomes 01:00-05:00.
// Lord Howe 2026: 10-04 02:00+10:30 becomes 02:30+11:00; 04-05 02:00+11:00 becomes 01:30+10:30.
#[rstest]
#[case::skipped_runs_right_after("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00Z", &["03-28 02:30+01:00", "03-29 03:00+02:00", "03-30 02:30+02:00"])]
#[case::begin_of_the_gap("0 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", &["03-29 03:00+02:00", "03-30 02:00+02:00"])]
#[case::end_of_the_gap("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00Z", &["03-29 03:00+02:00", "03-30 03:00+02:00"])]
#[case::skipped_and_the_end_are_one_run("30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00Z", &["03-29 03:00+02:00", "03-29 03:30+02:00", "03-30 02:30+02:00"])]
#[case::many_skipped_are_one_run("*/10 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", &["03-29 03:00+02:00", "03-30 02:00+02:00"])]
#[case::repeated_runs_once("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", &["10-25 02:30+02:00", "10-26 02:30+01:00"])]
#[case::repeated_begin("0 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", &["10-25 02:00+02:00", "10-26 02:00+01:00"])]
#[case::behind_the_repeated_hour("0 3 * * *", "Europe/Berlin", "2026-10-24T12:00Z", &["10-25 03:00+01:00", "10-26 03:00+01:00"])]
#[case::from_within_the_second_hour("45 2 * * *", "Europe/Berlin", "2026-10-25T01:15Z", &["10-26 02:45+01:00"])]
#[case::every_hour_leaves_no_hole("0 * * * *", "Europe/Berlin", "2026-10-24T23:30Z", &["10-25 02:00+02:00", "10-25 02:00+01:00", "10-25 03:00+01:00"])]
#[case::every_hour_over_the_gap("30 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", &["03-29 01:30+01:00", "03-29 03:30+02:00"])]
#[case::every_hour_at_the_gap("0 * * * *", "Europe/Berlin", "2026-03-29T00:00Z", &["03-29 03:00+02:00", "03-29 04:00+02:00"])]
#[case::new_york_skipped("15 2 * * *", "America/New_York", "2026-03-07T12:00Z", &["03-08 03:00-04:00", "03-09 02:15-04:00"])]
#[case::new_york_repeated("15 1 * * *", "America/New_York", "2026-10-31T12:00Z", &["11-01 01:15-04:00", "11-02 01:15-05:00"])]
#[case::lord_howe_skips_half_an_hour("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", &["10-04 02:30+11:00", "10-05 02:15+11:00"])]
#[case::lord_howe_behind_the_gap("45 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00Z", &["10-04 02:45+11:00", "10-05 02:45+11:00"])]
#[case::lord_howe_repeats_half_an_hour("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z", &["04-05 01:45+11:00", "04-06 01:45+10:30"])]
#[case::lord_howe_before_the_repeat("15 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00Z", &["04-05 01:15+11:00", "04-06 01:15+10:30"])]
#[case::lord_howe_every_twenty_minutes("*/20 * * * *", "Australia/Lord_Howe", "2026-10-03T15:00Z", &["10-04 01:40+10:30", "10-04 02:40+11:00", "10-04 03:00+11:00"])]
#[case::lord_howe_repeated_twenty_minutes("*/20 * * * *", "Australia/Lord_Howe", "2026-04-04T14:30Z", &["04-05 01:40+11:00", "04-05 01:40+10:30", "04-05 02:00+10:30"])]
// The whole day of 2011-12-30 does not exist in Samoa.
#[case::a_skipped_day("0 3 * * *", "Pacific/Apia", "2011-12-29T00:00Z", &["12-29 03:00-10:00", "12-31 00:00+14:00", "12-31 03:00+14:00"])]
#[case::utc_never_jumps("30 2 * * *", "UTC", "2026-03-28T12:00Z", &["03-29 02:30+00:00", "03-30 02:30+00:00"])]
fn clocks_that_jump(#[case] text: &str, #[case] zone: &str, #[case] after: &str, #[case] wanted: &[&str]) {
    assert_eq!(following(text, zone, after, wanted.len()), wanted, "{text} in {zone}");
}

#[test]
fn unknown_zones_are_refused() {
    for zone in ["Europe/Atlantis", "", "CEST", "../etc/passwd"] {
        let error = Schedule::new("@daily", Some(zone)).unwrap_err();
        assert_eq!(error, ScheduleError::Zone(zone.to_owned()));
        assert!(error.to_string().contains("Europe/Berlin"), "{error}");
    }
    assert!(Schedule::new("@daily", Some("europe/berlin")).is_ok());
    assert!(Schedule::new("@daily", None).is_ok());
}

fn daily() -> Schedule {
    schedule("0 3 * * *", "UTC")
}

fn runs(since: &str, last: Option<&str>) -> Runs {
    Runs {
        since: time(since),
        last: last.map(time),
    }
}

#[rstest]
#[case::not_yet(
    runs("2026-11-01T00:00Z", Some("2026-11-29T03:00Z")),
    "2026-11-30T02:59:59Z",
    Due::Later(time("2026-11-30T03:00Z"))
)]
#[case::on_the_moment(
    runs("2026-11-01T00:00Z", Some("2026-11-29T03:00Z")),
    "2026-11-30T03:00Z",
    Due::Now(time("2026-11-30T03:00Z"))
)]
#[case::one_was_missed(
    runs("2026-11-01T00:00Z", Some("2026-11-29T03:00Z")),
    "2026-11-30T17:00Z",
    Due::Now(time("2026-11-30T03:00Z"))
)]
#[case::f23_ten_were_missed(
    runs("2026-11-01T00:00Z", Some("2026-11-19T03:00Z")),
    "2026-11-30T17:00Z",
    Due::Now(time("2026-11-30T03:00Z"))
)]
#[case::a_new_schedule_makes_nothing_up(
    runs("2026-11-30T04:00Z", None),
    "2026-11-30T17:00Z",
    Due::Later(time("2026-12-01T03:00Z"))
)]
#[case::a_new_schedule_is_due(
    runs("2026-11-30T02:00Z", None),
    "2026-11-30T17:00Z",
    Due::Now(time("2026-11-30T03:00Z"))
)]
#[case::the_clock_was_put_back(
    runs("2026-11-01T00:00Z", Some("2026-11-30T03:00Z")),
    "2026-11-29T12:00Z",
    Due::Later(time("2026-12-01T03:00Z"))
)]
fn f23_missed_runs_are_made_up_once(#[case] runs: Runs, #[case] now: &str, #[case] wanted: Due) {
    assert_eq!(due(&daily(), Switches::default(), runs, time(now)), wanted);
}

#[test]
fn immediate_and_suspended() {
    let (now, new) = (time("2026-11-30T17:00Z"), runs("2026-11-30T16:59Z", None));
    let immediate = Switches {
        immediate: true,
        suspended: false,
    };
    assert_eq!(due(&daily(), immediate, new, now), Due::Now(time("2026-11-30T16:59Z")));
    let ran = Runs {
        last: Some(new.since),
        ..new
    };
    assert_eq!(
        due(&daily(), immediate, ran, now),
        Due::Later(time("2026-12-01T03:00Z"))
    );
    let suspended = Switches {
        suspended: true,
        ..immediate
    };
    assert_eq!(due(&daily(), suspended, new, now), Due::Never);
}

/// A field: everything, a step, or some numbers.
fn field(first: u32, last: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        1 => (1..=last).prop_map(|step| format!("*/{step}")),
        2 => (first..=last).prop_map(|number| number.to_string()),
        1 => (first..=last, first..=last).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (first..=last, first..=last).prop_map(|(a, b)| format!("{a},{b}")),
    ]
}

fn any_schedule() -> impl Strategy<Value = (String, &'static str)> {
    let zones = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "America/St_Johns",
    ]);
    let text = (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7))
        .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"));
    (text, zones)
}

/// From 2026 on, with the hours around a change of the clock as likely as all others together.
fn any_moment() -> impl Strategy<Value = Timestamp> {
    let changes = prop::sample::select(vec![
        "2026-03-29T01:00Z",
        "2026-10-25T01:00Z",
        "2026-03-08T07:00Z",
        "2026-11-01T06:00Z",
        "2026-10-03T15:30Z",
        "2026-04-04T15:00Z",
    ]);
    let near =
        (changes, -10_000_i64..10_000).prop_map(|(change, seconds)| time(change) + SignedDuration::from_secs(seconds));
    let anywhere =
        (0_i64..4 * 365 * 86_400).prop_map(|seconds| time("2026-01-01T00:00Z") + SignedDuration::from_secs(seconds));
    prop_oneof![near, anywhere]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Later, on a whole minute, and nothing in between is left out: from a moment in between the answer is the same.
    #[test]
    fn next_is_the_first((text, zone) in any_schedule(), moment in any_moment(), part in 0.0_f64..1.0) {
        let schedule = schedule(&text, zone);
        let next = schedule.next(moment).unwrap();
        prop_assert!(next > moment);
        prop_assert_eq!(next.as_second().rem_euclid(60), 0);
        let between = moment + SignedDuration::from_secs_f64(next.duration_since(moment).as_secs_f64() * part);
        if between < next {
            prop_assert_eq!(schedule.next(between), Some(next));
        }
    }

    /// The newest is due, not later than asked, and none lies behind it.
    #[test]
    fn newest_is_the_last((text, zone) in any_schedule(), since in any_moment(), hours in 0_i64..10_000) {
        let schedule = schedule(&text, zone);
        let until = since + SignedDuration::from_hours(hours);
        match schedule.newest(since, until) {
            Some(newest) => {
                prop_assert!(newest > since && newest <= until);
                prop_assert_eq!(schedule.next(newest - SignedDuration::from_secs(1)), Some(newest));
                prop_assert!(schedule.next(newest).is_none_or(|next| next > until));
            }
            None => prop_assert!(schedule.next(since).is_none_or(|next| next > until)),
        }
    }

    /// Walking a week minute by minute over the wall of the zone finds the same due times, each once.
    #[test]
    fn every_wall_time_happens_once(minute in 0_u32..60, hour in 0_u32..24, start in any_moment()) {
        for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
            let schedule = schedule(&format!("{minute} {hour} * * *"), zone);
            let mut moment = start;
            let mut days = Vec::new();
            let database = jiff::tz::TimeZoneDatabase::bundled();
            for _ in 0..7 {
                moment = schedule.next(moment).unwrap();
                days.push(moment.to_zoned(database.get(zone).unwrap()).date());
            }
            // Once a day, every day: neither skipped nor doubled.
            for pair in days.windows(2) {
                prop_assert_eq!(pair[0].tomorrow().unwrap(), pair[1], "{} {} in {}", hour, minute, zone);
            }
        }
    }
}
