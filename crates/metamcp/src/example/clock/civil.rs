//! Dates of the Gregorian calendar and times at fixed offsets, for the years 0000 to 9999.
//! Owns: the arithmetic.      Never: reads a clock.
//! In: RFC 3339 strings, numbers.  Out: `Date`, `Stamp`, `Offset` and their strings.
//! Tests: below, against known dates and a walk over every day.

use std::fmt;
use std::str::FromStr;

use metamcp_types::date;

const DAY: i64 = 86_400;
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::example) struct Date {
    pub(in crate::example) year: i64,
    pub(in crate::example) month: i64,
    pub(in crate::example) day: i64,
}

/// A moment as someone at a fixed offset from UTC reads it; fractions of a second are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::example) struct Stamp {
    pub(in crate::example) unix: i64,
    pub(in crate::example) offset: Offset,
}

/// Minutes east of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::example) struct Offset(i64);

/// What is wrong with a string that should be a date, time or offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::example) enum Wrong {
    #[error("expected the form 2025-03-01T09:30:00Z")]
    Form,
    #[error("there is no such day")]
    Day,
    #[error("there is no such time of day")]
    Time,
    #[error("there is no such offset")]
    Offset,
}

pub(in crate::example) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from Monday to Friday in `from..to`, negative where `to` is earlier.
pub(in crate::example) fn working_days(from: Date, to: Date) -> i64 {
    // Working days before a day, counted from the Monday 1969-12-29, which is day -3.
    let before = |days: i64| (days + 3).div_euclid(7) * 5 + (days + 3).rem_euclid(7).min(5);
    before(to.days()) - before(from.days())
}

fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Date {
    fn new(year: i64, month: i64, day: i64) -> Option<Self> {
        let fits = (0..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=month_length(year, month)).contains(&day);
        fits.then_some(Self { year, month, day })
    }

    /// Days since 1970-01-01.
    pub(in crate::example) fn days(self) -> i64 {
        date::days(self.year, self.month, self.day)
    }

    /// The inverse of `days`.
    fn from_days(days: i64) -> Option<Self> {
        let (year, month, day) = date::of_days(days);
        Self::new(year, month, day)
    }

    /// 0 for Monday.
    fn weekday_index(self) -> i64 {
        (self.days() + 3).rem_euclid(7)
    }

    pub(in crate::example) fn weekday(self) -> &'static str {
        WEEKDAYS[usize::try_from(self.weekday_index()).unwrap_or(0)]
    }

    /// 1 for the first of January.
    pub(in crate::example) fn day_of_year(self) -> i64 {
        self.days() - Self { month: 1, day: 1, ..self }.days() + 1
    }

    /// ISO 8601 year and week: a week belongs to the year its Thursday is in.
    pub(in crate::example) fn iso_week(self) -> (i64, i64) {
        let thursday = self.days() - self.weekday_index() + 3;
        let mut year = self.year;
        let first_of = |year| Self { year, month: 1, day: 1 }.days();
        if thursday < first_of(year) {
            year -= 1;
        } else if thursday >= first_of(year + 1) {
            year += 1;
        }
        (year, (thursday - first_of(year)) / 7 + 1)
    }
}

impl Stamp {
    /// The moment in UTC, clamped to the years 0000 to 9999.
    pub(in crate::example) fn from_unix(unix: i64) -> Self {
        let first = Date { year: 0, month: 1, day: 1 }.days() * DAY;
        let last = Date { year: 9999, month: 12, day: 31 }.days() * DAY + DAY - 1;
        Self { unix: unix.clamp(first, last), offset: Offset::UTC }
    }

    /// The same moment at another offset.
    pub(in crate::example) fn at(self, offset: Offset) -> Self {
        let moved = Self { offset, ..self };
        // At the very ends of the calendar another offset may have no date; UTC always has one.
        if moved.local_date().is_some() { moved } else { Self { offset: Offset::UTC, ..self } }
    }

    pub(in crate::example) fn date(self) -> Date {
        self.local_date().expect("a stamp is only made where it has a date")
    }

    /// Hour, minute and second.
    pub(in crate::example) fn time_of_day(self) -> (i64, i64, i64) {
        let second = self.local().rem_euclid(DAY);
        (second / 3_600, second / 60 % 60, second % 60)
    }

    /// Months later, on the last day of the month where it is too short; `None` outside the calendar.
    pub(in crate::example) fn plus_months(self, months: i128) -> Option<Self> {
        let date = self.date();
        let month = i128::from(date.year * 12 + date.month - 1) + months;
        let year = i64::try_from(month.div_euclid(12)).ok()?;
        let month = i64::try_from(month.rem_euclid(12)).ok()? + 1;
        let moved = Date::new(year, month, date.day.min(month_length(year, month)))?;
        self.plus_seconds(i128::from(moved.days() - date.days()) * i128::from(DAY))
    }

    /// Seconds later; `None` outside the calendar.
    pub(in crate::example) fn plus_seconds(self, seconds: i128) -> Option<Self> {
        let unix = i64::try_from(i128::from(self.unix) + seconds).ok()?;
        let moved = Self { unix, ..self };
        let in_utc = Self { unix, offset: Offset::UTC };
        moved.local_date().and(in_utc.local_date()).map(|_| moved)
    }

    fn local(self) -> i64 {
        self.unix.saturating_add(self.offset.0 * 60)
    }

    fn local_date(self) -> Option<Date> {
        Date::from_days(self.local().div_euclid(DAY))
    }
}

impl Offset {
    pub(in crate::example) const UTC: Self = Self(0);
}

impl FromStr for Date {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let (year, rest) = digits(text, 4)?;
        let (month, rest) = digits(after(rest, '-')?, 2)?;
        let (day, rest) = digits(after(rest, '-')?, 2)?;
        if !rest.is_empty() {
            return Err(Wrong::Form);
        }
        Self::new(year, month, day).ok_or(Wrong::Day)
    }
}

impl FromStr for Stamp {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        let (date, rest) = text.split_once(['T', 't', ' ']).ok_or(Wrong::Form)?;
        let date: Date = date.parse()?;
        let (hour, rest) = digits(rest, 2)?;
        let (minute, rest) = digits(after(rest, ':')?, 2)?;
        let (second, mut rest) = digits(after(rest, ':')?, 2)?;
        // A leap second is read as the first second of the next minute, as in Unix time.
        if hour > 23 || minute > 59 || second > 60 {
            return Err(Wrong::Time);
        }
        if let Some(fraction) = rest.strip_prefix('.') {
            rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if rest.len() == fraction.len() {
                return Err(Wrong::Form);
            }
        }
        // RFC 3339 allows `Z` and `+00:00`, not the shorter forms an offset may otherwise have.
        if !(rest.eq_ignore_ascii_case("z") || rest.len() == 6 && rest.as_bytes()[3] == b':') {
            return Err(Wrong::Form);
        }
        let offset: Offset = rest.parse()?;
        let local = date.days() * DAY + hour * 3_600 + minute * 60 + second;
        Self { unix: 0, offset }.plus_seconds(i128::from(local - offset.0 * 60)).ok_or(Wrong::Day)
    }
}

impl FromStr for Offset {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        if ["utc", "gmt", "z"].iter().any(|name| text.eq_ignore_ascii_case(name)) {
            return Ok(Self::UTC);
        }
        let (sign, rest) = match text.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            _ => return Err(Wrong::Offset),
        };
        let (hours, minutes) = match rest.len() {
            1 | 2 => (rest, "00"),
            4 => rest.split_at_checked(2).ok_or(Wrong::Offset)?,
            5 => rest.split_once(':').ok_or(Wrong::Offset)?,
            _ => return Err(Wrong::Offset),
        };
        let part = |text: &str, most: i64| match digits(text, text.len()) {
            Ok((value, "")) if value <= most && text.len() <= 2 => Ok(value),
            _ => Err(Wrong::Offset),
        };
        Ok(Self(sign * (part(hours, 23)? * 60 + part(minutes, 59)?)))
    }
}

fn after(text: &str, mark: char) -> Result<&str, Wrong> {
    text.strip_prefix(mark).ok_or(Wrong::Form)
}

/// A number of exactly `count` digits, and the rest of the text.
fn digits(text: &str, count: usize) -> Result<(i64, &str), Wrong> {
    let (number, rest) = text.split_at_checked(count).ok_or(Wrong::Form)?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::Form);
    }
    Ok((number.parse().map_err(|_| Wrong::Form)?, rest))
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = self.time_of_day();
        write!(f, "{}T{hour:02}:{minute:02}:{second:02}{}", self.date(), self.offset)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::UTC {
            return f.write_str("Z");
        }
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", self.0.abs() / 60, self.0.abs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> Date {
        text.parse().unwrap()
    }

    #[test]
    fn known_dates() {
        // Day number, weekday, day of the year and ISO week as GNU date prints them.
        let known = [
            ("1970-01-01", 0, "Thursday", 1, (1970, 1)),
            ("2000-02-29", 11_016, "Tuesday", 60, (2000, 9)),
            ("1900-03-01", -25_508, "Thursday", 60, (1900, 9)),
            ("2024-12-30", 20_087, "Monday", 365, (2025, 1)),
            ("2021-01-03", 18_630, "Sunday", 3, (2020, 53)),
            ("2038-01-19", 24_855, "Tuesday", 19, (2038, 3)),
            ("1582-10-15", -141_427, "Friday", 288, (1582, 41)),
        ];
        for (text, days, weekday, day_of_year, week) in known {
            let date = date(text);
            assert_eq!(date.to_string(), text);
            assert_eq!(
                (date.days(), date.weekday(), date.day_of_year(), date.iso_week()),
                (days, weekday, day_of_year, week),
                "{text}"
            );
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut expected = Date { year: 0, month: 1, day: 1 };
        for days in expected.days()..=date("9999-12-31").days() {
            assert_eq!(Date::from_days(days), Some(expected));
            assert_eq!(expected.days(), days);
            expected.day += 1;
            if expected.day > month_length(expected.year, expected.month) {
                (expected.month, expected.day) = (expected.month % 12 + 1, 1);
                expected.year += i64::from(expected.month == 1);
            }
        }
        assert_eq!(Date::from_days(date("9999-12-31").days() + 1), None);
    }

    #[test]
    fn times_are_read_and_written() {
        let known = [
            ("1985-04-12T23:20:50.52Z", 482_196_050, "1985-04-12T23:20:50Z"),
            ("1996-12-19T16:39:57-08:00", 851_042_397, "1996-12-19T16:39:57-08:00"),
            ("1990-12-31T23:59:60Z", 662_688_000, "1991-01-01T00:00:00Z"),
            ("1937-01-01 12:00:27.87+00:20", -1_041_337_173, "1937-01-01T12:00:27+00:20"),
        ];
        for (text, unix, written) in known {
            let stamp: Stamp = text.parse().unwrap();
            assert_eq!((stamp.unix, stamp.to_string().as_str()), (unix, written));
        }
        let wrong = [
            ("2025-02-29T00:00:00Z", Wrong::Day),
            ("2025-01-01T24:00:00Z", Wrong::Time),
            ("2025-01-01T00:00:00", Wrong::Form),
            ("2025-01-01T00:00:00+0200", Wrong::Form),
            ("2025-01-01T00:00:00.Z", Wrong::Form),
            ("2025-1-1T00:00:00Z", Wrong::Form),
            ("2025-01-01T00:00:00é+", Wrong::Form),
            ("0000-01-01T00:00:00+01:00", Wrong::Day),
            ("", Wrong::Form),
        ];
        for (text, expected) in wrong {
            assert_eq!(text.parse::<Stamp>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn offsets_in_their_forms() {
        for (text, minutes) in
            [("UTC", 0), ("z", 0), ("+2", 120), ("+02", 120), ("-0530", -330), ("+05:45", 345)]
        {
            assert_eq!(text.parse(), Ok(Offset(minutes)), "{text}");
        }
        for text in ["Europe/Rome", "+24:00", "+1:000", "2", "+", "+é", "-05:60", ""] {
            assert_eq!(text.parse::<Offset>(), Err(Wrong::Offset), "{text}");
        }
    }

    #[test]
    fn months_are_added_to_the_end_of_short_ones() {
        let after = |text: &str, months| {
            text.parse::<Stamp>().unwrap().plus_months(months).map(|s| s.to_string())
        };
        assert_eq!(after("2025-01-31T10:00:00+02:00", 1).unwrap(), "2025-02-28T10:00:00+02:00");
        assert_eq!(after("2024-02-29T00:00:00Z", -12).unwrap(), "2023-02-28T00:00:00Z");
        assert_eq!(after("2024-11-15T00:00:00Z", 3).unwrap(), "2025-02-15T00:00:00Z");
        assert_eq!(after("9999-12-15T00:00:00Z", 1), None);
    }

    #[test]
    fn working_days_agree_with_counting() {
        let start = date("2024-02-25");
        for offset in -40..40 {
            let end = Date::from_days(start.days() + offset).unwrap();
            let (low, high) = (start.min(end), start.max(end));
            let counted = (low.days()..high.days())
                .filter(|days| Date::from_days(*days).unwrap().weekday_index() < 5)
                .count() as i64;
            assert_eq!(working_days(start, end), counted * offset.signum(), "{offset}");
        }
    }
}
