//! Times of day as the clock on the wall shows them: the machine's time zone, read from where the system keeps it.
//! Owns: the format of zone files and of `TZ`.      Never: reads a clock.
//! In: milliseconds since 1970; `TZ`, `/etc/localtime`.  Out: `20:04:50`, on another day `2026-03-25 20:04:50`.
//! Tests: below.
//!
//! A calendar library would be banned by `deny.toml`, and is larger than the format.

use std::path::PathBuf;
use std::sync::LazyLock;

use metamcp_types::date;

use crate::env;

const DAY: i64 = 86_400;
/// Larger than any zone file there is.
const MAX_FILE: usize = 64 * 1024;

static ZONE: LazyLock<Zone> = LazyLock::new(|| Zone::find(env::lookup("TZ").as_deref()));

/// The time of day, with the day where that is not the day of `now`.
pub(crate) fn moment(unix_ms: u64, now_ms: u64) -> String {
    moment_in(&ZONE, unix_ms, now_ms)
}

fn moment_in(zone: &Zone, unix_ms: u64, now_ms: u64) -> String {
    let day = |millis| zone.local(millis).div_euclid(DAY);
    if day(unix_ms) == day(now_ms) {
        return clock(zone, unix_ms);
    }
    let (year, month, of_month) = date::of_days(day(unix_ms));
    format!("{year:04}-{month:02}-{of_month:02} {}", clock(zone, unix_ms))
}

fn clock(zone: &Zone, unix_ms: u64) -> String {
    let second = zone.local(unix_ms).rem_euclid(DAY);
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The offsets of a time zone from UTC, in seconds to the east.
#[derive(Debug, Default, PartialEq)]
struct Zone {
    /// From when which offset holds, oldest first.
    changes: Vec<(i64, i64)>,
    /// What holds before the first.
    first: i64,
    /// What holds after the last.
    rule: Option<Rule>,
}

impl Zone {
    /// What `TZ` says, else the machine's; UTC if neither can be read.
    fn find(named: Option<&str>) -> Zone {
        let read = |path: PathBuf| Zone::of_file(&std::fs::read(path).ok()?);
        match named.map(|name| name.strip_prefix(':').unwrap_or(name)) {
            None => read("/etc/localtime".into()).unwrap_or_default(),
            Some("") => Zone::default(),
            Some(name) => {
                let below = PathBuf::from("/usr/share/zoneinfo").join(name);
                let of_file = if name.contains("..") { None } else { read(below) };
                let of_rule = || Some(Zone { rule: Some(Rule::parse(name)?), ..Zone::default() });
                of_file.or_else(of_rule).unwrap_or_default()
            }
        }
    }

    fn local(&self, unix_ms: u64) -> i64 {
        let second = i64::try_from(unix_ms / 1000).unwrap_or(0);
        second + self.offset(second)
    }

    fn offset(&self, second: i64) -> i64 {
        let after = self.changes.partition_point(|(from, _)| *from <= second);
        match (after.checked_sub(1).and_then(|at| self.changes.get(at)), &self.rule) {
            (_, Some(rule)) if after == self.changes.len() => rule.offset(second),
            (Some((_, offset)), _) => *offset,
            (None, _) => self.first,
        }
    }

    /// Of a file as RFC 9636 describes it, in version 2 or later.
    fn of_file(bytes: &[u8]) -> Option<Zone> {
        if bytes.len() > MAX_FILE || !bytes.starts_with(b"TZif") || *bytes.get(4)? < b'2' {
            return None;
        }
        // The first part is the same with short numbers, for readers of old.
        let skipped = Header::read(bytes)?.length(4);
        let bytes = bytes.get(skipped..)?;
        let header = Header::read(bytes)?;
        let footer = bytes.get(header.length(8)..)?;
        let [times, types] = [header.changes * 8, header.changes];
        let body = bytes.get(HEADER..)?;
        let (of_times, rest) = body.split_at_checked(times)?;
        let (of_types, rest) = rest.split_at_checked(types)?;
        let offset = |kind: usize| {
            let entry = rest.get(kind * 6..kind * 6 + 4)?;
            (kind < header.types).then_some(())?;
            Some(i64::from(i32::from_be_bytes(entry.try_into().ok()?)))
        };
        let moments =
            of_times.chunks_exact(8).map(|eight| eight.try_into().map(i64::from_be_bytes));
        let changes = moments.zip(of_types);
        let changes: Option<Vec<_>> =
            changes.map(|(from, kind)| Some((from.ok()?, offset(usize::from(*kind))?))).collect();
        let rule = std::str::from_utf8(footer).ok()?.trim_matches('\n');
        Some(Zone { changes: changes?, first: offset(0)?, rule: Rule::parse(rule) })
    }
}

const HEADER: usize = 44;

struct Header {
    types: usize,
    changes: usize,
    /// Bytes per leap second beside its number of seconds, and all that is of a fixed size.
    leaps: usize,
    fixed: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Header> {
        let number = |at: usize| {
            let four = bytes.get(20 + at * 4..24 + at * 4)?.try_into().ok()?;
            Some(usize::try_from(u32::from_be_bytes(four)).ok()?.min(MAX_FILE))
        };
        let (utc, standard, leaps) = (number(0)?, number(1)?, number(2)?);
        let (changes, types, names) = (number(3)?, number(4)?, number(5)?);
        let fixed = HEADER + changes + types * 6 + names + standard + utc;
        Some(Header { types, changes, leaps, fixed })
    }

    /// Of this header and all that belongs to it, with times of so many bytes.
    fn length(&self, time: usize) -> usize {
        self.fixed + self.changes * time + self.leaps * (time + 4)
    }
}

/// What holds for all years to come, such as `CET-1CEST,M3.5.0,M10.5.0/3`.
#[derive(Debug, PartialEq)]
struct Rule {
    standard: i64,
    /// The offset in summer, and when that begins and ends.
    summer: Option<(i64, Day, Day)>,
}

/// A day of each year, and the second of that day.
#[derive(Debug, PartialEq)]
struct Day {
    kind: Kind,
    second: i64,
}

#[derive(Debug, PartialEq)]
enum Kind {
    /// Month, week (5 is the last) and day of the week.
    Week(i64, i64, i64),
    /// From 1, and no 29th of February.
    Julian(i64),
    /// From 0.
    Number(i64),
}

impl Rule {
    fn parse(text: &str) -> Option<Rule> {
        let mut parts = text.split(',');
        let rest = after_name(parts.next()?)?;
        let (west, rest) = offset(rest)?;
        let standard = -west;
        if rest.is_empty() {
            return Some(Rule { standard, summer: None });
        }
        let rest = after_name(rest)?;
        let summer = if rest.is_empty() { standard + 3600 } else { -offset(rest)?.0 };
        let (from, to) = (Day::parse(parts.next()?)?, Day::parse(parts.next()?)?);
        Some(Rule { standard, summer: Some((summer, from, to)) })
    }

    fn offset(&self, second: i64) -> i64 {
        let Some((summer, from, to)) = &self.summer else { return self.standard };
        let (year, ..) = date::of_days((second + self.standard).div_euclid(DAY));
        let (from, to) = (from.of(year) - self.standard, to.of(year) - summer);
        let is_summer = if from < to {
            (from..to).contains(&second)
        } else {
            // On the other half of the earth it spans the new year.
            !(to..from).contains(&second)
        };
        if is_summer { *summer } else { self.standard }
    }
}

impl Day {
    fn parse(text: &str) -> Option<Day> {
        let (day, time) = text.split_once('/').unwrap_or((text, "2"));
        let second = offset(time).filter(|(_, rest)| rest.is_empty())?.0;
        let kind = if let Some(week) = day.strip_prefix('M') {
            let mut numbers = week.split('.').map(|one| one.parse::<i64>().ok());
            let (month, week, of_week) = (numbers.next()??, numbers.next()??, numbers.next()??);
            let is_sound = (1..=12).contains(&month) && (1..=5).contains(&week);
            (is_sound && (0..7).contains(&of_week)).then_some(())?;
            Kind::Week(month, week, of_week)
        } else if let Some(day) = day.strip_prefix('J') {
            Kind::Julian(day.parse().ok().filter(|day| (1..=365).contains(day))?)
        } else {
            Kind::Number(day.parse().ok().filter(|day| (0..=365).contains(day))?)
        };
        Some(Day { kind, second })
    }

    /// In seconds since 1970, by the clock on the wall.
    fn of(&self, year: i64) -> i64 {
        let day = match self.kind {
            Kind::Week(month, week, of_week) => {
                let first = date::days(year, month, 1);
                let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                // The first day of 1970 was a Thursday.
                let ahead = (of_week - (first + 4)).rem_euclid(7);
                let day = first + ahead + (week - 1) * 7;
                if day < date::days(next.0, next.1, 1) { day } else { day - 7 }
            }
            Kind::Julian(day) => {
                let is_leap = date::days(year, 3, 1) - date::days(year, 2, 1) == 29;
                date::days(year, 1, 1) + day - 1 + i64::from(is_leap && day > 59)
            }
            Kind::Number(day) => date::days(year, 1, 1) + day,
        };
        day * DAY + self.second
    }
}

/// What follows the name of a zone: letters, or anything in angle brackets.
fn after_name(text: &str) -> Option<&str> {
    match text.strip_prefix('<') {
        Some(rest) => Some(rest.split_once('>')?.1),
        None => {
            let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
            (end >= 3).then(|| &text[end..])
        }
    }
}

/// Hours, minutes and seconds with an optional sign, as seconds, and what follows.
fn offset(text: &str) -> Option<(i64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-:".contains(c)).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let mut seconds = 0;
    for (part, unit) in number.splitn(3, ':').zip([3600, 60, 1]) {
        seconds += part.parse::<i64>().ok().filter(|part| (0..=167).contains(part))? * unit;
    }
    Some((sign * seconds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        date::unix_millis(text).unwrap()
    }

    fn by(rule: &str, text: &str) -> String {
        let zone = Zone { rule: Some(Rule::parse(rule).unwrap()), ..Zone::default() };
        clock(&zone, at(text))
    }

    #[test]
    fn rules_hold_for_both_halves_of_the_earth() {
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        assert_eq!(by(berlin, "2026-01-10T12:00:00Z"), "13:00:00");
        assert_eq!(by(berlin, "2026-07-10T12:00:00Z"), "14:00:00");
        // The last Sunday of March 2026 is the 29th; the change is at one o'clock UTC.
        assert_eq!(by(berlin, "2026-03-29T00:59:59Z"), "01:59:59");
        assert_eq!(by(berlin, "2026-03-29T01:00:00Z"), "03:00:00");
        assert_eq!(by(berlin, "2026-10-25T00:59:59Z"), "02:59:59");
        assert_eq!(by(berlin, "2026-10-25T01:00:00Z"), "02:00:00");
        let new_york = "EST5EDT,M3.2.0,M11.1.0";
        assert_eq!(by(new_york, "2026-12-31T23:00:00Z"), "18:00:00");
        assert_eq!(by(new_york, "2026-03-08T07:00:00Z"), "03:00:00");
        let sydney = "AEST-10AEDT,M10.1.0,M4.1.0/3";
        assert_eq!(by(sydney, "2026-01-01T00:00:00Z"), "11:00:00");
        assert_eq!(by(sydney, "2026-06-01T00:00:00Z"), "10:00:00");
        assert_eq!(by("<+0545>-5:45", "2026-06-01T00:00:00Z"), "05:45:00");
        assert_eq!(by("XYZ0XZZ,J60,J300", "2024-03-01T12:00:00Z"), "13:00:00");
        assert_eq!(by("UTC0", "2026-06-01T00:00:00Z"), "00:00:00");
    }

    #[test]
    fn what_is_no_rule_is_none() {
        for text in ["", "x", "CET", "CET-1CEST,M13.1.0,M1.1.0", "CET-1CEST", "<x", "EST5EDT,M3,M4"]
        {
            assert_eq!(Rule::parse(text), None, "{text}");
        }
    }

    /// A file as the system has them: two changes, then a rule.
    fn file() -> Vec<u8> {
        let header = |counts: [u32; 6]| {
            let mut bytes = b"TZif2".to_vec();
            bytes.extend([0; 15]);
            bytes.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
            bytes
        };
        let mut bytes = header([0, 0, 0, 0, 1, 4]);
        bytes.extend([0; 10]);
        bytes.extend(header([0, 0, 0, 2, 2, 8]));
        bytes.extend([1_000_i64, 2_000].iter().flat_map(|from| from.to_be_bytes()));
        bytes.extend([1, 0]);
        for offset in [3_600_i32, 7_200] {
            bytes.extend(offset.to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend(b"CET\0CST\0\nXYZ-3\n");
        bytes
    }

    #[test]
    fn a_zone_file_is_read_and_a_broken_one_is_none() {
        let zone = Zone::of_file(&file()).unwrap();
        assert_eq!((zone.offset(0), zone.offset(1_000), zone.offset(1_999)), (3_600, 7_200, 7_200));
        assert_eq!(zone.offset(2_000), 3 * 3_600, "the rule, after the last change");
        for length in 0..file().len() - 8 {
            // It must not panic; what is left may still be a zone without its rule.
            drop(Zone::of_file(&file()[..length]));
        }
        assert_eq!(Zone::of_file(b"no zone"), None);
        assert_eq!(Zone::find(Some("../../etc/passwd")), Zone::default());
    }

    #[test]
    fn another_day_is_named() {
        let zone = Zone::default();
        let now = at("2026-03-02T00:00:10Z");
        assert_eq!(moment_in(&zone, now - 5_000, now), "00:00:05");
        assert_eq!(moment_in(&zone, now - 20_000, now), "2026-03-01 23:59:50");
    }
}
