//! Moments as others write them, in registries and in headers. Headers are `httpdate`'s; for the rest, 60 lines of calendar
//! are less than a library of it would bring, of which those in the lock file are banned from our own code (`deny.toml`).
//! Owns: the calendar.      Never: reads a clock.
//! In: text, and the time where it matters.  Out: milliseconds since 1970, text, or how long to wait.
//! Tests: below.

use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999, beyond which headers have no date.
const LAST_HTTP_SECOND: u64 = 253_402_300_799;

/// Milliseconds since 1970 of an RFC 3339 moment, such as `2026-03-25T20:04:50.347000+00:00`.
pub fn unix_millis(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let mut number = || parts.next()?.parse::<i64>().ok();
    let (year, month, day) = (number()?, number()?, number()?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let zone = time.rfind(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone);
    let offset = match zone.strip_prefix(['+', '-']) {
        None => 0,
        Some(ahead) => {
            let (hours, minutes) = ahead.split_once(':')?;
            let minutes = hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    let mut parts = clock.splitn(3, ':');
    let hours = parts.next()?.parse::<i64>().ok()?;
    let minutes = parts.next()?.parse::<i64>().ok()?;
    let seconds = parts.next()?.parse::<f64>().ok()?;
    if !(0..24).contains(&hours) || !(0..60).contains(&minutes) || !(0.0..61.0).contains(&seconds) {
        return None;
    }
    let minutes = (days(year, month, day) * 24 + hours) * 60 + minutes - offset;
    u64::try_from(minutes * 60_000 + (seconds * 1000.0) as i64).ok()
}

/// How long a `Retry-After` header asks to wait: seconds, or until a moment. None where it names no time to come, since a
/// server that refuses a request and says "at once" has not said when.
pub fn retry_after(value: &str, now_ms: u64) -> Option<Duration> {
    let value = value.trim();
    let pause = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than can be counted are many.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let until = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
        until.saturating_sub(Duration::from_millis(now_ms))
    };
    (!pause.is_zero()).then_some(pause)
}

/// The moment as `2026-03-25T20:04:50Z`, which every client reads.
pub fn day(millis: u64) -> String {
    let seconds = i64::try_from(millis / 1000).unwrap_or(0);
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = of_days(days);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

/// The second as headers have it: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn http(seconds: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_HTTP_SECOND)))
}

/// Year, month and day so many days after 1970-01-01.
pub fn of_days(days: i64) -> (i64, i64, i64) {
    // Counted from 1 March of the year 0, so that the leap day ends a year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Days since 1970-01-01 in the Gregorian calendar.
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_every_form_that_occurs() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2024-11-29T11:30:55.031967Z", Some(1_732_879_855_031)),
            ("2026-03-25T20:04:50.347000+00:00", Some(1_774_469_090_347)),
            ("2026-03-25T22:04:50+02:00", Some(1_774_469_090_000)),
            ("2024-02-29T00:00:00Z", Some(1_709_164_800_000)),
            ("yesterday", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-03-25", None),
        ] {
            assert_eq!(unix_millis(text), expected, "{text}");
        }
        for moment in ["2024-02-29T23:59:59Z", "2026-11-16T08:20:00Z", "1970-01-01T00:00:00Z"] {
            assert_eq!(day(unix_millis(moment).unwrap()), moment);
        }
    }

    #[test]
    fn a_second_is_written_as_headers_have_it() {
        assert_eq!(http(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn a_pause_is_named_in_seconds_or_by_its_end() {
        let now = unix_millis("1994-11-06T08:49:07Z").unwrap();
        for (value, expected) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(30)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(30)),
            ("Sun Nov  6 08:49:37 1994", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", None),
            ("0", None),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Mon, 07 Nov 1994 08:49:07 GMT", Some(86_400)),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 06 Nov 1994 25:49:37 GMT", None),
            ("Mon, 06 Nov 1994 08:49:37 GMT", None),
            ("Thu, 01 Jan 1970 00:00:00 GMT", None),
            ("-5", None),
            ("soon", None),
            ("", None),
        ] {
            let found = retry_after(value, now).map(|pause| pause.as_secs());
            assert_eq!(found, expected, "{value:?}");
        }
    }
}
