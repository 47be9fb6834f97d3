//! The example server `text`: counting, comparing, changing and encoding pieces of text.
//! Owns: nothing.      Never: reads files.
//! In: texts.  Out: texts and counts.
//! Tests: below.

use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use base64::{DecodeError, Engine as _, alphabet};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::declare::{Answer, Arguments, COUNT, Effect, Kind, Refusal, Tool, may, must, refuse};
use super::serve::Service;

/// The server has no state.
pub(super) struct Text;

/// Most lines of a text to compare; the comparison table grows with the square.
const MAX_LINES: usize = 2_000;
/// Longest text a replacement may grow to, in bytes.
const MAX_GROWTH: usize = 4 << 20;

/// A lenient decoder: unused trailing bits may be anything.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

pub(super) static SERVICE: Service<Text> = Service {
    name: "text",
    title: "Example text",
    instructions: "Everything here works on text given in the call; the files server reads and writes files.",
    tools: &[
        Tool {
            name: "count_words",
            title: "Count words",
            description: "Count the words, lines, characters and bytes of a text, and estimate the minutes it takes to read.",
            effect: Effect::Reads,
            takes: &[must("text", Kind::Text, "The text to count.")],
            gives: &[
                must("words", COUNT, ""),
                must("lines", COUNT, ""),
                must("characters", COUNT, ""),
                must("bytes", COUNT, "Length in UTF-8."),
                must("reading_minutes", Kind::Number, "At 230 words a minute."),
            ],
            run: count_words,
        },
        Tool {
            name: "slugify",
            title: "Make a slug",
            description: "Turn a title into a short lower-case name for addresses and file names: words joined by hyphens, everything else dropped.",
            effect: Effect::Reads,
            takes: &[
                must("text", Kind::Text, "The title."),
                may(
                    "separator",
                    Kind::Choice(&["-", "_"]),
                    "What joins the words. Default: a hyphen.",
                ),
                may(
                    "limit",
                    Kind::Whole(1, 200),
                    "Most characters; whole words are kept where possible. Default: 80.",
                ),
            ],
            gives: &[],
            run: slugify,
        },
        Tool {
            name: "diff",
            title: "Compare two texts",
            description: "Compare two texts line by line. Lines only in the first begin with a minus, lines only in the second with a plus, common lines with a space.",
            effect: Effect::Reads,
            takes: &[
                must("before", Kind::Text, "The first text."),
                must("after", Kind::Text, "The second text."),
                may(
                    "context",
                    Kind::Whole(0, 100),
                    "Common lines to show around each difference. Default: 3.",
                ),
            ],
            gives: &[],
            run: diff,
        },
        Tool {
            name: "replace",
            title: "Replace text",
            description: "Replace every occurrence of a piece of text by another, taken literally and not as a pattern. Answers with the new text and the number of replacements.",
            effect: Effect::Reads,
            takes: &[
                must("text", Kind::Text, "The text to change."),
                must("find", Kind::Text, "What to replace."),
                must("with", Kind::Text, "What to put in its place."),
                may("limit", Kind::Whole(1, 1_000_000), "Replace only the first so many."),
            ],
            gives: &[must("text", Kind::Text, ""), must("replaced", COUNT, "")],
            run: replace,
        },
        Tool {
            name: "encode_base64",
            title: "Encode as base64",
            description: "Encode a text as base64 (RFC 4648, with padding).",
            effect: Effect::Reads,
            takes: &[must("text", Kind::Text, "The text to encode, taken as UTF-8.")],
            gives: &[],
            run: encode_base64,
        },
        Tool {
            name: "decode_base64",
            title: "Decode base64",
            description: "Decode base64, in the standard or the URL-safe alphabet, with or without padding, into a text.",
            effect: Effect::Reads,
            takes: &[must(
                "base64",
                Kind::Text,
                "What to decode; blanks and line breaks are skipped.",
            )],
            gives: &[],
            run: decode_base64,
        },
        Tool {
            name: "sha256",
            title: "Hash with SHA-256",
            description: "Compute the SHA-256 checksum of a text as 64 hexadecimal digits.",
            effect: Effect::Reads,
            takes: &[must("text", Kind::Text, "The text to hash, taken as UTF-8.")],
            gives: &[],
            run: sha256,
        },
    ],
};

#[expect(clippy::unnecessary_wraps, reason = "every tool has this signature")]
fn count_words(_: &mut Text, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let text = arguments.text("text");
    let words = text.split_whitespace().count();
    Ok(Answer::Data(json!({
        "words": words,
        "lines": text.lines().count(),
        "characters": text.chars().count(),
        "bytes": text.len(),
        "reading_minutes": (words as f64 / 23.0).round() / 10.0,
    })))
}

fn slugify(_: &mut Text, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let separator = arguments.text_if("separator").unwrap_or("-");
    let limit = arguments.count_or("limit", 80);
    let folded = arguments.text("text").to_lowercase().replace(['\'', '’'], "");
    let mut slug = String::new();
    for word in folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let joined =
            if slug.is_empty() { word.to_owned() } else { format!("{slug}{separator}{word}") };
        if joined.chars().count() > limit && !slug.is_empty() {
            break;
        }
        slug = joined.chars().take(limit).collect();
    }
    if slug.is_empty() {
        refuse!("text holds no letter or digit to make a slug of");
    }
    Ok(Answer::Text(slug))
}

fn diff(_: &mut Text, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let before: Vec<&str> = arguments.text("before").lines().collect();
    let after: Vec<&str> = arguments.text("after").lines().collect();
    if before.len().max(after.len()) > MAX_LINES {
        refuse!("at most {MAX_LINES} lines are compared");
    }
    let compared = compare(&before, &after);
    if compared.iter().all(|(mark, _)| *mark == ' ') {
        return Ok(Answer::Text("The texts are the same.".to_owned()));
    }
    let context = arguments.count_or("context", 3);
    let changed: Vec<usize> = compared
        .iter()
        .enumerate()
        .filter(|(_, (mark, _))| *mark != ' ')
        .map(|(index, _)| index)
        .collect();
    let near = |index: usize| {
        let next = changed.partition_point(|changed| *changed < index);
        changed.get(next).is_some_and(|changed| changed - index <= context)
            || next > 0 && index - changed[next - 1] <= context
    };
    let mut shown = String::new();
    let mut hidden = 0;
    for (index, (mark, line)) in compared.iter().enumerate() {
        if near(index) {
            if hidden > 0 {
                shown.push_str(&format!("@ {hidden} common lines\n"));
                hidden = 0;
            }
            shown.push_str(&format!("{mark}{line}\n"));
        } else {
            hidden += 1;
        }
    }
    if hidden > 0 {
        shown.push_str(&format!("@ {hidden} common lines\n"));
    }
    Ok(Answer::Text(shown))
}

/// A diff by the longest common subsequence of lines, as marked lines.
fn compare<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<(char, &'a str)> {
    // common[i][j]: how many lines before[i..] and after[j..] have in common; the count fits, since MAX_LINES is small.
    let width = after.len() + 1;
    let mut common = vec![0_u16; (before.len() + 1) * width];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i * width + j] = if before[i] == after[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut marked = Vec::with_capacity(before.len().max(after.len()));
    loop {
        match (before.get(i), after.get(j)) {
            (Some(old), Some(new)) if old == new => {
                marked.push((' ', *old));
                (i, j) = (i + 1, j + 1);
            }
            (Some(old), new)
                if new.is_none() || common[(i + 1) * width + j] >= common[i * width + j + 1] =>
            {
                marked.push(('-', *old));
                i += 1;
            }
            (_, Some(new)) => {
                marked.push(('+', *new));
                j += 1;
            }
            (_, None) => return marked,
        }
    }
}

fn replace(_: &mut Text, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let (text, find, with) =
        (arguments.text("text"), arguments.text("find"), arguments.text("with"));
    if find.is_empty() {
        refuse!("find must not be empty");
    }
    let replaced = text.matches(find).count().min(arguments.count_or("limit", usize::MAX));
    if text.len() - replaced * find.len() + replaced.saturating_mul(with.len()) > MAX_GROWTH {
        refuse!("the new text would be larger than {MAX_GROWTH} bytes");
    }
    Ok(Answer::Data(json!({ "text": text.replacen(find, with, replaced), "replaced": replaced })))
}

#[expect(clippy::unnecessary_wraps, reason = "every tool has this signature")]
fn encode_base64(_: &mut Text, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    Ok(Answer::Text(STANDARD.encode(arguments.text("text"))))
}

fn decode_base64(_: &mut Text, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let digits: Vec<u8> =
        arguments.text("base64").bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let padding = digits.iter().rev().take_while(|digit| **digit == b'=').count();
    let digits = &digits[..digits.len() - padding];
    if digits.len() % 4 == 1
        || padding > 2
        || (padding > 0 && !(digits.len() + padding).is_multiple_of(4))
    {
        refuse!("base64 has a wrong length: {} digits and {padding} of padding", digits.len());
    }
    let plain = |digit: &u8| match digit {
        b'-' => b'+',
        b'_' => b'/',
        plain => *plain,
    };
    let bytes = match BASE64.decode(digits.iter().map(plain).collect::<Vec<u8>>()) {
        Ok(bytes) => bytes,
        Err(DecodeError::InvalidByte(_, digit)) => {
            refuse!("`{}` is no base64 digit", digit.escape_ascii())
        }
        Err(error) => refuse!("this is no base64: {error}"),
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Answer::Text(text)),
        Err(error) => {
            refuse!("what was decoded is {} bytes that are not UTF-8 text", error.as_bytes().len())
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "every tool has this signature")]
fn sha256(_: &mut Text, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let digest = Sha256::digest(arguments.text("text").as_bytes());
    Ok(Answer::Text(digest.iter().map(|byte| format!("{byte:02x}")).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn call(tool: &str, arguments: Value) -> Result<Value, String> {
        let tool = SERVICE.tools.iter().find(|known| known.name == tool).unwrap();
        let Value::Object(given) = arguments else { panic!("arguments are an object") };
        let answer = Arguments::checked(tool.takes, &given)
            .and_then(|arguments| (tool.run)(&mut Text, &arguments));
        match answer {
            Ok(Answer::Data(data)) => Ok(data),
            Ok(Answer::Text(text)) => Ok(json!(text)),
            Err(Refusal(why)) => Err(why),
        }
    }

    #[test]
    fn base64_both_ways() {
        // RFC 4648, section 10, and a text beyond ASCII.
        let known = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
            ("né→🦀", "bsOp4oaS8J+mgA=="),
        ];
        for (text, encoded) in known {
            assert_eq!(call("encode_base64", json!({ "text": text })).unwrap(), encoded);
            assert_eq!(call("decode_base64", json!({ "base64": encoded })).unwrap(), text);
        }
        assert_eq!(
            call("decode_base64", json!({ "base64": "bsOp4oaS\n8J-mgA" })).unwrap(),
            "né→🦀"
        );
        for (wrong, why) in [
            ("Z", "wrong length"),
            ("Zm8==", "wrong length"),
            ("Zm9!", "`!` is no"),
            ("/w==", "1 bytes"),
        ] {
            let refused = call("decode_base64", json!({ "base64": wrong })).unwrap_err();
            assert!(refused.contains(why), "{wrong}: {refused}");
        }
    }

    #[test]
    fn differences_by_line() {
        let before = "a\nb\nc\nd\ne\nf\n";
        let same = call("diff", json!({ "before": before, "after": before })).unwrap();
        assert_eq!(same, "The texts are the same.");
        let changed = json!({ "before": before, "after": "a\nb\nC\nd\ne\nf\ng\n", "context": 1 });
        assert_eq!(
            call("diff", changed).unwrap(),
            "@ 1 common lines\n b\n-c\n+C\n d\n@ 1 common lines\n f\n+g\n"
        );
        assert_eq!(call("diff", json!({ "before": "x", "after": "" })).unwrap(), "-x\n");
        assert_eq!(call("diff", json!({ "before": "", "after": "x" })).unwrap(), "+x\n");
    }

    #[test]
    fn slugs_counts_replacements_and_hashes() {
        assert_eq!(
            call("slugify", json!({ "text": " Don't Panic: 42 Ways! " })).unwrap(),
            "dont-panic-42-ways"
        );
        assert_eq!(
            call("slugify", json!({ "text": "one two three", "limit": 8 })).unwrap(),
            "one-two"
        );
        assert_eq!(
            call("slugify", json!({ "text": "incomprehensible", "limit": 5 })).unwrap(),
            "incom"
        );
        assert!(call("slugify", json!({ "text": "!?" })).is_err());
        let counted = call("count_words", json!({ "text": "zwölf Boxkämpfer\njagen" })).unwrap();
        assert_eq!(
            (&counted["words"], &counted["lines"], &counted["characters"], &counted["bytes"]),
            (&json!(3), &json!(2), &json!(22), &json!(24))
        );
        let replaced =
            call("replace", json!({ "text": "aXbXc", "find": "X", "with": "--", "limit": 1 }))
                .unwrap();
        assert_eq!(replaced, json!({ "text": "a--bXc", "replaced": 1 }));
        let huge = json!({ "text": "a".repeat(3_000), "find": "a", "with": "b".repeat(3_000) });
        assert!(call("replace", huge).unwrap_err().contains("would be larger"));
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(call("sha256", json!({ "text": "abc" })).unwrap(), hash);
    }
}
