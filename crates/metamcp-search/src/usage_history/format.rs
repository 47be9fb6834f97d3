//! The usage history as JSON: a version, and one line per pair, the most valuable first.

use serde::Deserialize;

use super::{Counts, MAX_BYTES, MAX_COUNT, MAX_PAIRS, Pair, QueryWords, UsageHistory};

/// Moves when the meaning of a line changes; hashes of words are part of it.
const VERSION: u64 = 1;

const HEAD: &str = "{\"version\":1,\"habits\":[";
const TAIL: &str = "\n]}\n";

/// Hexadecimal digits of one word.
const DIGITS: usize = 6;

/// Why a text is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Another version of this program wrote it.
    #[error("written by another version")]
    Version,
    /// Nobody wrote it so.
    #[error("not a usage history")]
    Damaged,
}

/// The hashes of the words, the id, what worked, what failed, the time.
type Line<'a> = (&'a str, std::borrow::Cow<'a, str>, f32, f32, u64);

#[derive(Deserialize)]
struct Version {
    version: u64,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    habits: Vec<Line<'a>>,
}

impl UsageHistory {
    /// As text of no more than `MAX_BYTES`; the least valuable pairs are dropped where it does not fit.
    pub fn to_json(&self) -> String {
        let mut all: Vec<(&Pair, &Counts)> = self.pairs.iter().collect();
        all.sort_by(|a, b| b.1.worth().total_cmp(&a.1.worth()).then_with(|| a.0.cmp(b.0)));
        let mut text = HEAD.to_owned();
        for (number, (pair, counts)) in all.into_iter().enumerate() {
            let words: String = pair.words.iter().map(|word| format!("{word:06x}")).collect();
            let line = (words, &pair.id, counts.worked, counts.failed, counts.last);
            let line = serde_json::to_string(&line).expect("text and finite numbers");
            if text.len() + line.len() + TAIL.len() + 2 > MAX_BYTES {
                break;
            }
            text.push_str(if number == 0 { "\n" } else { ",\n" });
            text.push_str(&line);
        }
        text.push_str(TAIL);
        text
    }

    /// What `to_json` wrote; nothing from anything else.
    pub fn from_json(text: &str) -> UsageHistory {
        UsageHistory::parse(text).unwrap_or_default()
    }

    /// The same for those who want to know why there is nothing.
    pub fn parse(text: &str) -> Result<UsageHistory, Unreadable> {
        let version: Version = serde_json::from_str(text).map_err(|_| Unreadable::Damaged)?;
        if version.version != VERSION {
            return Err(Unreadable::Version);
        }
        let file: File<'_> = serde_json::from_str(text).map_err(|_| Unreadable::Damaged)?;
        let mut history = UsageHistory::default();
        for line in file.habits.into_iter().take(MAX_PAIRS) {
            let (pair, counts) = read(line).ok_or(Unreadable::Damaged)?;
            history.add(pair, counts);
        }
        Ok(history)
    }
}

fn read((words, id, worked, failed, last): Line<'_>) -> Option<(Pair, Counts)> {
    let digits = words.as_bytes();
    if digits.len() % DIGITS != 0 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let hashes: Option<Vec<u32>> = digits
        .chunks(DIGITS)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .collect();
    let count = |value: f32| (0.0..=MAX_COUNT).contains(&value);
    (count(worked) && count(failed)).then_some(())?;
    let pair = Pair { words: QueryWords::from_hashes(hashes?), id: id.into() };
    Some((pair, Counts { worked, failed, last }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_as_documented() {
        let mut history = UsageHistory::default();
        history.record("create an issue", "github:create_issue", true, 1_700_000_000);
        history.record("create an issue", "github:create_issue", false, 1_700_000_000);
        insta::assert_snapshot!(history.to_json(), @r#"
        {"version":1,"habits":[
        ["80299187d8ed","github:create_issue",1.0,1.0,1700000000]
        ]}
        "#);
    }

    #[test]
    fn nothing_is_read_from_garbage() {
        for text in ["", "[]", "{}", "{\"version\":1}", "{\"version\":1,\"habits\":[1]}", "\u{0}"] {
            assert_eq!(UsageHistory::parse(text), Err(Unreadable::Damaged), "{text}");
        }
        let line = |line: &str| format!("{{\"version\":1,\"habits\":[{line}]}}");
        for bad in [
            r#"["abc","a:b",1,0,1]"#,
            r#"["zzzzzz","a:b",1,0,1]"#,
            r#"["abcdef","a:b",-1,0,1]"#,
            r#"["abcdef","a:b",1e30,0,1]"#,
            r#"["abcdef","a:b",1,0,-1]"#,
        ] {
            assert_eq!(UsageHistory::parse(&line(bad)), Err(Unreadable::Damaged), "{bad}");
        }
        assert_eq!(
            UsageHistory::parse(&line(r#"["abcdef","a:b",1,0,1]"#)).map(|all| all.len()),
            Ok(1)
        );
        assert_eq!(UsageHistory::parse("{\"version\":2,\"more\":[]}"), Err(Unreadable::Version));
        assert!(UsageHistory::from_json("{\"version\":2}").is_empty());
    }
}
