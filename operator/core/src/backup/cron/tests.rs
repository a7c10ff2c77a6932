use super::*;
use jiff::civil::datetime;

fn next(text: &str, after: DateTime) -> DateTime {
    Cron::read(text).unwrap().next(after).unwrap()
}

#[test]
fn moments_of_the_calendar() {
    let now = datetime(2026, 11, 30, 7, 30, 0, 0); // a Monday
    for (text, wanted) in [
        ("* * * * *", datetime(2026, 11, 30, 7, 31, 0, 0)),
        ("0 3 * * *", datetime(2026, 12, 1, 3, 0, 0, 0)),
        ("30 7 * * *", datetime(2026, 12, 1, 7, 30, 0, 0)),
        ("15 30 7 * * *", datetime(2026, 11, 30, 7, 30, 15, 0)),
        ("*/20 * * * *", datetime(2026, 11, 30, 7, 40, 0, 0)),
        ("5/20 * * * *", datetime(2026, 11, 30, 7, 45, 0, 0)),
        ("0 9-17/4 * * *", datetime(2026, 11, 30, 9, 0, 0, 0)),
        ("0 0 * * 1", datetime(2026, 12, 7, 0, 0, 0, 0)),
        ("0 0 * * 0", datetime(2026, 12, 6, 0, 0, 0, 0)),
        ("0 0 * * 7", datetime(2026, 12, 6, 0, 0, 0, 0)),
        ("0 0 * * sat-SUN", datetime(2026, 12, 5, 0, 0, 0, 0)),
        ("0 0 ? * MON-FRI", datetime(2026, 12, 1, 0, 0, 0, 0)),
        // Both day fields are restricted: either is enough.
        ("0 0 13 * 5", datetime(2026, 12, 4, 0, 0, 0, 0)),
        ("0 0 31 * *", datetime(2026, 12, 31, 0, 0, 0, 0)),
        ("0 0 29 2 *", datetime(2028, 2, 29, 0, 0, 0, 0)),
        ("0 0 1 jan,jul *", datetime(2027, 1, 1, 0, 0, 0, 0)),
        ("@hourly", datetime(2026, 11, 30, 8, 0, 0, 0)),
        ("@daily", datetime(2026, 12, 1, 0, 0, 0, 0)),
        ("@weekly", datetime(2026, 12, 6, 0, 0, 0, 0)),
        ("@monthly", datetime(2026, 12, 1, 0, 0, 0, 0)),
        (" @yearly ", datetime(2027, 1, 1, 0, 0, 0, 0)),
    ] {
        assert_eq!(next(text, now), wanted, "{text}");
    }
    assert!(Cron::read("* * * * *").unwrap().every_minute());
    assert!(!Cron::read("0 0-22 * * *").unwrap().every_hour());
}

#[test]
fn mistakes_name_the_field_and_the_remedy() {
    for (text, wanted) in [
        ("0 25 * * *", "hour 25 is out of range 0-23 in \"0 25 * * *\""),
        ("60 * * * *", "minute 60 is out of range 0-59"),
        ("0 0 0 * *", "day of the month 0 is out of range 1-31"),
        ("0 0 * 13 *", "month 13 is out of range 1-12"),
        ("0 0 * * 8", "day of the week 8 is out of range 0-7"),
        ("0 0 * *", "has 4 fields; write five"),
        ("0 0 0 0 0 0 0", "has 7 fields"),
        ("", "has 0 fields"),
        ("@fortnightly", "has 1 fields"),
        ("0 3 * * MO", "day of the week \"MO\""),
        ("0 22-4 * * *", "write two ranges, 22-23,0-4"),
        ("*/0 * * * *", "a step is a number from 1"),
        ("0 +3 * * *", "hour \"+3\""),
        ("0 0 L * *", "L, W and # are not part of cron"),
        ("? * * * *", "minute \"?\""),
        ("1, * * * *", "minute \"\""),
        ("0 0 31 2 *", "never fires"),
        ("0 0 31 2,4,6,9,11 *", "never fires"),
        ("0 0 30 2 *", "never fires"),
        ("*/30 * * * * *", "fires more than once a minute"),
        ("* * * * * *", "fires more than once a minute"),
    ] {
        let error = Cron::read(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    // The weekday alone is enough here.
    assert!(Cron::read("0 0 31 2 MON").is_ok());
}
