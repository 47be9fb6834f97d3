//! What a setting's value may be, and how it is read from text.

use std::borrow::Cow;

use metamcp_types::text::shown;
use std::time::Duration;

use super::words::Word;
use super::{Origin, Setting};
use metamcp_types::nearest::nearest;

/// The type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number of things.
    Count {
        min: u64,
        max: u64,
    },
    /// A time in milliseconds.
    Millis {
        min: u64,
        max: u64,
    },
    /// A size in bytes.
    Bytes {
        min: u64,
        max: u64,
    },
    /// One of a few words.
    Word(&'static [Word]),
    /// `true` or `false`.
    Switch,
    Path,
    /// Any text on one line.
    Text,
    /// Names, with commas between them; in a file they may be a list.
    Names,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A count, a time in milliseconds or a size in bytes.
    Number(u64),
    /// One of the words of the kind.
    Word(&'static str),
    /// On or off.
    Switch(bool),
    /// A path as written.
    Path(Cow<'static, str>),
    /// Text as written.
    Text(Cow<'static, str>),
}

impl Value {
    /// The number; zero for other kinds, which the table never pairs with a number.
    pub(super) fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            Self::Word(_) | Self::Switch(_) | Self::Path(_) | Self::Text(_) => 0,
        }
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&self) -> bool {
        *self == Self::Switch(true)
    }

    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    pub(super) fn size(&self) -> usize {
        usize::try_from(self.number()).unwrap_or(usize::MAX)
    }

    pub(super) fn millis(&self) -> Duration {
        Duration::from_millis(self.number())
    }

    /// The value as written in a flag or in the file.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Word(word) => Cow::Borrowed(word),
            Self::Switch(true) => Cow::Borrowed("true"),
            Self::Switch(false) => Cow::Borrowed("false"),
            Self::Path(text) | Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// A value that a setting cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", origin.as_ref().map(|origin| format!("{origin}: ")).unwrap_or_default())]
pub struct ValueError {
    /// What is wrong and what would be right.
    pub message: String,
    /// Who gave it, once known.
    pub origin: Option<Origin>,
}

impl ValueError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), origin: None }
    }

    /// The same error with the place it comes from.
    pub fn at(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }
}

impl Kind {
    /// Reads a flag or a variable. Times may carry a unit: `1500`, `1500ms`, `90s`, `5m`, `1h`.
    pub fn from_text(self, text: &str) -> Result<Value, ValueError> {
        let text = text.trim();
        match self {
            Self::Count { .. } => self.from_number(number(text)?),
            Self::Millis { .. } => self.from_number(with_unit(
                text,
                &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)],
            )?),
            Self::Bytes { .. } => self.from_number(with_unit(
                text,
                &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)],
            )?),
            Self::Word(_) => self.from_word(text),
            Self::Switch => switch(text),
            Self::Path if text.is_empty() => Err(ValueError::new("expected a path, found nothing")),
            Self::Path if text.contains('\0') => {
                Err(ValueError::new("a path cannot hold a NUL byte"))
            }
            Self::Path => Ok(Value::Path(Cow::Owned(text.to_owned()))),
            Self::Text | Self::Names if text.chars().any(char::is_control) => {
                Err(ValueError::new("a setting is one line without control characters"))
            }
            Self::Text | Self::Names => Ok(Value::Text(Cow::Owned(text.trim().to_owned()))),
        }
    }

    /// Takes a number from the file, where it is in range.
    pub fn from_number(self, number: u64) -> Result<Value, ValueError> {
        match self {
            Self::Count { min, max } | Self::Millis { min, max } | Self::Bytes { min, max } => {
                if (min..=max).contains(&number) {
                    Ok(Value::Number(number))
                } else {
                    Err(ValueError::new(format!("{number} is out of range: {min} to {max}")))
                }
            }
            Self::Word(_) | Self::Switch | Self::Path | Self::Text | Self::Names => {
                Err(ValueError::new(format!("expected {}, found a number", self.describe())))
            }
        }
    }

    /// Takes one of the words.
    pub fn from_word(self, text: &str) -> Result<Value, ValueError> {
        let Self::Word(words) = self else {
            return Err(ValueError::new(format!("expected {}, found a word", self.describe())));
        };
        let is_meant = |known: &&Word| {
            let mut ways = std::iter::once(&known.word).chain(known.also);
            ways.any(|way| way.eq_ignore_ascii_case(text))
        };
        if let Some(known) = words.iter().find(is_meant) {
            return Ok(Value::Word(known.word));
        }
        let guess = nearest(text, words.iter().map(|known| known.word), 1);
        let guess =
            guess.first().map(|word| format!("; did you mean `{word}`?")).unwrap_or_default();
        Err(ValueError::new(format!("expected {}{guess}", self.describe())))
    }

    /// What is expected, as in "expected …".
    pub fn describe(self) -> String {
        match self {
            Self::Count { .. } => "a whole number".to_owned(),
            Self::Millis { .. } => "a whole number of milliseconds".to_owned(),
            Self::Bytes { .. } => "a whole number of bytes".to_owned(),
            Self::Word(words) => one_of(words),
            Self::Switch => "`true` or `false`".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Text => "a text".to_owned(),
            Self::Names => "names with commas between them".to_owned(),
        }
    }
}

/// "one of `a`, `b` or `c`".
pub(crate) fn one_of(words: &[Word]) -> String {
    let quoted: Vec<String> = words.iter().map(|known| format!("`{}`", known.word)).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

/// Also the other words people write into variables.
fn switch(text: &str) -> Result<Value, ValueError> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(Value::Switch(true)),
        "false" | "off" | "no" | "0" => Ok(Value::Switch(false)),
        _ => Err(ValueError::new(format!("expected `true` or `false`, found `{}`", shown(text)))),
    }
}

fn number(text: &str) -> Result<u64, ValueError> {
    text.replace('_', "")
        .parse()
        .map_err(|_| ValueError::new(format!("expected a whole number, found `{}`", shown(text))))
}

/// A number with an optional unit at its end; the longest unit that fits is the one meant.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Result<u64, ValueError> {
    let folded = text.to_ascii_lowercase();
    let unit = units
        .iter()
        .filter(|(unit, _)| folded.ends_with(&unit.to_ascii_lowercase()))
        .max_by_key(|(unit, _)| unit.len());
    let Some((unit, factor)) = unit else { return number(text) };
    let amount = number(text[..text.len() - unit.len()].trim_end())?;
    amount
        .checked_mul(*factor)
        .ok_or_else(|| ValueError::new(format!("`{}` is too large", shown(text))))
}

impl Setting {
    /// The default as written, or `none`.
    pub fn default_text(&self) -> Cow<'_, str> {
        self.default.as_ref().map_or(Cow::Borrowed("none"), Value::text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Value};
    use crate::settings::Replay;

    const TIME: Kind = Kind::Millis { min: 1, max: 86_400_000 };

    #[test]
    fn reads_times_with_and_without_unit() {
        let check = |text: &str, expect: u64| {
            assert_eq!(TIME.from_text(text), Ok(Value::Number(expect)), "{text}");
        };
        check("1500", 1500);
        check("1500ms", 1500);
        check("90s", 90_000);
        check("5m", 300_000);
        check("1h", 3_600_000);
        check("2 s", 2_000);
        check("300_000", 300_000);
    }

    #[test]
    fn says_what_is_wrong() {
        let check = |kind: Kind, text: &str, expect: &str| {
            let error = kind.from_text(text).expect_err(text);
            assert_eq!(error.to_string(), expect);
        };
        check(TIME, "soon", "expected a whole number, found `soon`");
        check(TIME, "s", "expected a whole number, found ``");
        check(TIME, "-5", "expected a whole number, found `-5`");
        check(TIME, "0", "0 is out of range: 1 to 86400000");
        check(TIME, "18446744073709551615h", "`18446744073709551615h` is too large");
        check(Kind::Count { min: 1, max: 9 }, "10", "10 is out of range: 1 to 9");
        check(Kind::Path, "", "expected a path, found nothing");
        check(Kind::Switch, "maybe", "expected `true` or `false`, found `maybe`");
        check(
            Kind::Word(Replay::WORDS),
            "annotatd",
            "expected `annotated` or `never`; did you mean `annotated`?",
        );
        check(Kind::Word(Replay::WORDS), "\u{1b}[31m", "expected `annotated` or `never`");
    }

    #[test]
    fn reads_sizes_and_words() {
        let size = Kind::Bytes { min: 1, max: 1 << 40 };
        assert_eq!(size.from_text("16MiB"), Ok(Value::Number(16 << 20)));
        assert_eq!(size.from_text("4096"), Ok(Value::Number(4096)));
        assert_eq!(Kind::Word(Replay::WORDS).from_text("NEVER"), Ok(Value::Word("never")));
        assert_eq!(Kind::Switch.from_text("True"), Ok(Value::Switch(true)));
        assert_eq!(Kind::Switch.from_text("0"), Ok(Value::Switch(false)));
    }
}
