//! Times as people type them: a date, a moment, or how long ago.
//! Owns: the forms.      Never: reads a clock.
//! In: text, and the present.  Out: milliseconds since 1970.
//! Tests: below.

use metamcp_types::date;

/// `2026-11-18`, `2026-11-18T10:00:00Z`, or `90s`, `15m`, `2h`, `7d`, `3w` ago.
pub fn moment(text: &str, now_ms: u64) -> Option<u64> {
    let text = text.trim();
    let ago = || {
        let unit = match text.chars().last()? {
            's' => 1_000,
            'm' => 60_000,
            'h' => 3_600_000,
            'd' => 86_400_000,
            'w' => 7 * 86_400_000,
            _ => return None,
        };
        let count: u64 = text[..text.len() - 1].parse().ok()?;
        Some(now_ms.saturating_sub(count.saturating_mul(unit)))
    };
    let day = || {
        let is_date = text.len() == 10 && text.is_ascii();
        is_date.then(|| date::unix_millis(&format!("{text}T00:00:00Z"))).flatten()
    };
    ago().or_else(day).or_else(|| date::unix_millis(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_a_moment_or_an_age() {
        let now = date::unix_millis("2026-11-18T12:00:00Z").unwrap();
        for (text, expected) in [
            ("2026-11-18", Some("2026-11-18T00:00:00Z")),
            ("2026-11-18T10:30:00Z", Some("2026-11-18T10:30:00Z")),
            ("2026-11-18T10:30:00+02:00", Some("2026-11-18T08:30:00Z")),
            ("90s", Some("2026-11-18T11:58:30Z")),
            ("15m", Some("2026-11-18T11:45:00Z")),
            ("2h", Some("2026-11-18T10:00:00Z")),
            ("7d", Some("2026-11-11T12:00:00Z")),
            ("1w", Some("2026-11-11T12:00:00Z")),
            ("99999999999999999999d", None),
            ("999999999999999999d", Some("1970-01-01T00:00:00Z")),
            ("yesterday", None),
            ("2026-11-18T10:30", None),
            ("é", None),
            ("", None),
        ] {
            assert_eq!(moment(text, now), expected.and_then(date::unix_millis), "{text}");
        }
    }
}
