//! Lengths of time and amounts as people read them.

/// How long something took, from microseconds to hours.
pub(crate) fn micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..9_995 => format!("{:.2} ms", micros as f64 / 1e3),
        9_995..999_500 => format!("{:.0} ms", micros as f64 / 1e3),
        999_500..59_995_000 => format!("{:.2} s", micros as f64 / 1e6),
        _ => age(micros / 1_000),
    }
}

/// A length of time in its largest unit that still says something.
pub(crate) fn age(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

pub(crate) fn megabytes(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.0} MB", bytes as f64 / 1e6),
    }
}

/// An amount of data of any size.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => megabytes(bytes),
    }
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// How often something happens in a second.
pub(crate) fn per_second(count: f64) -> String {
    match count {
        _ if count <= 0.0 => "0".to_owned(),
        _ if count < 9.95 => format!("{count:.1}"),
        _ => grouped(count.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (number, words) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_234, "1.23 ms"),
            (9_996, "10 ms"),
            (812_400, "812 ms"),
            (999_600, "1.00 s"),
            (59_999_000, "59 s"),
            (3_600_000_000, "60 min"),
        ] {
            assert_eq!(micros(number), words);
        }
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([bytes(12), bytes(4_500), bytes(4_500_000)], ["12 B", "4.5 kB", "4.5 MB"]);
        assert_eq!([0.0, 0.04, 9.9, 1234.0].map(per_second), ["0", "0.0", "9.9", "1,234"]);
    }
}
