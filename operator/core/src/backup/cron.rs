//! The fields of a cron schedule, and which moments of the calendar they name. No time zone here: see `schedule`.
//!
//! Read by our own code and not by the package `cron`, which numbers the days of the week from 1, wants both day fields to match,
//! leaves out what falls into a gap of the clock, and gives no field in its errors (docs/adr/0009).

use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime, Time};

/// A schedule that cannot be read or never fires; each message names the part and what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// Neither five nor six fields, and no shorthand.
    #[error(
        "\"{text}\" has {found} fields; write five (minute, hour, day of the month, month, day of the week), six with seconds \
         in front, or one of @hourly, @daily, @weekly, @monthly, @yearly"
    )]
    Fields {
        /// The schedule.
        text: String,
        /// Number of its fields.
        found: usize,
    },
    /// A number outside of what the field holds.
    #[error("{field} {value} is out of range {first}-{last} in \"{text}\"")]
    Range {
        /// The field.
        field: &'static str,
        /// What was written.
        value: u32,
        /// Least value.
        first: u32,
        /// Largest value.
        last: u32,
        /// The schedule.
        text: String,
    },
    /// Not a number, name, range, list or step.
    #[error("{field} \"{part}\" in \"{text}\" is none of *, n, n-m, */n, n-m/n and lists of these{hint}")]
    Part {
        /// The field.
        field: &'static str,
        /// What was written.
        part: String,
        /// What may have been meant.
        hint: &'static str,
        /// The schedule.
        text: String,
    },
    /// A range whose end lies before its beginning.
    #[error("{field} {from}-{to} runs backwards in \"{text}\"; write two ranges, {from}-{last},{first}-{to}")]
    Backwards {
        /// The field.
        field: &'static str,
        /// Beginning.
        from: u32,
        /// End.
        to: u32,
        /// Least value of the field.
        first: u32,
        /// Largest value of the field.
        last: u32,
        /// The schedule.
        text: String,
    },
    /// No month of the schedule has such a day.
    #[error("\"{text}\" never fires: none of its months has such a day; choose a day that exists, for example 28")]
    Never {
        /// The schedule.
        text: String,
    },
    /// More than one second of a minute is named.
    #[error("\"{text}\" fires more than once a minute; name one second, because backups are named by the minute")]
    TooOften {
        /// The schedule.
        text: String,
    },
}

/// Numbers from 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set(u64);

impl Set {
    const fn has(self, value: u32) -> bool {
        value < 64 && self.0 & (1 << value) != 0
    }

    const fn count(self) -> u32 {
        self.0.count_ones()
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |value| self.has(*value))
    }

    fn from(self, least: u32) -> impl Iterator<Item = u32> {
        self.iter().skip_while(move |value| *value < least)
    }
}

/// What a field may hold.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const SECOND: Field = Field {
    name: "second",
    first: 0,
    last: 59,
    names: &[],
};
const MINUTE: Field = Field {
    name: "minute",
    first: 0,
    last: 59,
    names: &[],
};
const HOUR: Field = Field {
    name: "hour",
    first: 0,
    last: 23,
    names: &[],
};
const DAY: Field = Field {
    name: "day of the month",
    first: 1,
    last: 31,
    names: &[],
};
const MONTH: Field = Field {
    name: "month",
    first: 1,
    last: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
};
/// Sunday is 0 and 7.
const WEEKDAY: Field = Field {
    name: "day of the week",
    first: 0,
    last: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

/// The longest that each month can be.
const LONGEST: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// The moments that a schedule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cron {
    second: u32,
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
}

impl Cron {
    /// Reads a schedule.
    pub(super) fn read(text: &str) -> Result<Self, CronError> {
        let expanded = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            fields => fields,
        };
        let fields: Vec<&str> = expanded.split_whitespace().collect();
        let (second, fields) = match fields.as_slice() {
            [second, rest @ ..] if rest.len() == 5 => (*second, rest),
            rest if rest.len() == 5 => ("0", rest),
            other => {
                return Err(CronError::Fields {
                    text: text.to_owned(),
                    found: other.len(),
                });
            }
        };
        let [minute, hour, day, month, weekday] = fields else {
            return Err(CronError::Fields {
                text: text.to_owned(),
                found: fields.len(),
            });
        };
        let seconds = SECOND.read(second, text)?;
        let cron = Self {
            second: seconds.iter().next().unwrap_or_default(),
            minutes: MINUTE.read(minute, text)?,
            hours: HOUR.read(hour, text)?,
            days: DAY.read(day, text)?,
            months: MONTH.read(month, text)?,
            weekdays: sunday_is_zero(WEEKDAY.read(weekday, text)?),
        };
        if seconds.count() != 1 {
            return Err(CronError::TooOften { text: text.to_owned() });
        }
        if !cron.ever() {
            return Err(CronError::Never { text: text.to_owned() });
        }
        Ok(cron)
    }

    /// Whether it names every hour of the day, and so means an interval and not a time.
    pub(super) const fn every_hour(&self) -> bool {
        self.hours.count() == 24
    }

    /// Whether it names every minute of the hour, too.
    #[cfg(test)]
    const fn every_minute(&self) -> bool {
        self.every_hour() && self.minutes.count() == 60
    }

    /// The first moment after this one. `None`: not before the end of the calendar.
    pub(super) fn next(&self, after: DateTime) -> Option<DateTime> {
        let mut date = after.date();
        let mut time = self.time_after(Some(after.time()));
        loop {
            if let (true, Some(time)) = (self.names_day(date), time) {
                return Some(date.to_datetime(time));
            }
            time = self.time_after(None);
            date = self.next_day(date)?;
        }
    }

    /// The next day of a month that is named.
    fn next_day(&self, date: Date) -> Option<Date> {
        let tomorrow = date.tomorrow().ok()?;
        if self.months.has(unsigned(tomorrow.month())) {
            return Some(tomorrow);
        }
        // Nothing in the rest of this month.
        date.first_of_month()
            .checked_add(1.month())
            .ok()
            .map(|first| first.max(tomorrow))
    }

    /// Either day field is enough when both are restricted.
    fn names_day(&self, date: Date) -> bool {
        let day = self.days.has(unsigned(date.day()));
        let weekday = self.weekdays.has(unsigned(date.weekday().to_sunday_zero_offset()));
        let either = self.days.count() < 31 && self.weekdays.count() < 7;
        self.months.has(unsigned(date.month())) && if either { day || weekday } else { day && weekday }
    }

    /// The first time of a day, after this one if one is given.
    fn time_after(&self, after: Option<Time>) -> Option<Time> {
        let (hour, minute, second) = after.map_or((0, 0, None), |time| {
            (
                unsigned(time.hour()),
                unsigned(time.minute()),
                Some(unsigned(time.second())),
            )
        });
        self.hours.from(hour).find_map(|found| {
            let least = if found == hour { minute } else { 0 };
            let later = |minute_found: u32| {
                let same = found == hour && minute_found == minute;
                !same || second.is_none_or(|second| self.second > second)
            };
            let minute = self.minutes.from(least).find(|minute| later(*minute))?;
            Time::new(signed(found), signed(minute), signed(self.second), 0).ok()
        })
    }

    /// Whether there is any such day.
    fn ever(&self) -> bool {
        let weekday_is_enough = self.weekdays.count() < 7;
        weekday_is_enough
            || LONGEST
                .iter()
                .zip(1..)
                .filter(|(_, month)| self.months.has(*month))
                .any(|(longest, _)| self.days.iter().any(|day| day <= *longest))
    }
}

impl Field {
    fn read(&self, field: &str, text: &str) -> Result<Set, CronError> {
        let mut set = 0;
        for part in field.split(',') {
            set |= self.read_part(part, text)?.0;
        }
        Ok(Set(set))
    }

    fn read_part(&self, part: &str, text: &str) -> Result<Set, CronError> {
        let wrong = |hint: &'static str| CronError::Part {
            field: self.name,
            part: part.to_owned(),
            hint,
            text: text.to_owned(),
        };
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let either_day = self.first == DAY.first && self.last == DAY.last || self.last == WEEKDAY.last;
        let (from, to) = match (range.split_once('-'), range) {
            (None, "*") => (self.first, self.last),
            (None, "?") if either_day => (self.first, self.last),
            (Some((from, to)), _) => (self.value(from, text, wrong)?, self.value(to, text, wrong)?),
            (None, single) => {
                let from = self.value(single, text, wrong)?;
                (from, if step.is_some() { self.last } else { from })
            }
        };
        // `SAT-SUN`: the name of Sunday is 0, and the end of a week is 7.
        let to = if self.last == WEEKDAY.last && to == 0 && from > 0 {
            7
        } else {
            to
        };
        if to < from {
            return Err(CronError::Backwards {
                field: self.name,
                from,
                to,
                first: self.first,
                last: self.last,
                text: text.to_owned(),
            });
        }
        let step = match step.map(number) {
            None => 1,
            Some(Some(step)) if step > 0 => step,
            Some(Some(_) | None) => return Err(wrong("; a step is a number from 1")),
        };
        let values = (from..=to).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        Ok(Set(values.fold(0, |set, value| set | 1 << value)))
    }

    fn value(&self, value: &str, text: &str, wrong: impl Fn(&'static str) -> CronError) -> Result<u32, CronError> {
        let lower = value.to_ascii_lowercase();
        if let Some((_, named)) = self.names.iter().zip(self.first..).find(|(name, _)| **name == lower) {
            return Ok(named);
        }
        let Some(value) = number(value) else {
            let quartz = lower.contains(['l', 'w', '#']) && self.names.is_empty();
            return Err(wrong(if quartz {
                "; L, W and # are not part of cron"
            } else {
                ""
            }));
        };
        if (self.first..=self.last).contains(&value) {
            Ok(value)
        } else {
            Err(CronError::Range {
                field: self.name,
                value,
                first: self.first,
                last: self.last,
                text: text.to_owned(),
            })
        }
    }
}

/// Digits alone: `+5` is a number for Rust and none for cron.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u32::MAX))
}

const fn sunday_is_zero(weekdays: Set) -> Set {
    if weekdays.has(7) {
        Set((weekdays.0 | 1) & 0x7f)
    } else {
        weekdays
    }
}

/// Parts of a date are never negative.
fn unsigned(part: i8) -> u32 {
    u32::try_from(part).unwrap_or_default()
}

/// Values of a set that stands for a part of a time are below 60.
fn signed(value: u32) -> i8 {
    i8::try_from(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
