//! A text too long to show, cut where a reader would cut it: between lines, between items and members of JSON.

use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::{MAX_RESULT_DEPTH, check};
use serde_json::Value;

/// An excerpt is this part of the longest text that is shown whole: enough to see what it is and where to go on.
pub const SHARE: usize = 4;
/// Less room than this for a part of JSON, and only its size is told.
const MIN_ROOM: usize = 24;

/// Longest pointer that is told: names of members are the server's.
const MAX_POINTER: usize = 200;

/// What is shown of a long text, and where the first gap is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    pub text: String,
    pub gap: Gap,
}

/// Where an excerpt skips something for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// After so many characters.
    At(usize),
    /// Inside what a JSON pointer leads to: after so many items of a list or characters of a text.
    Inside { pointer: String, offset: usize },
}

/// At most about `room` characters of a text.
pub fn excerpt(whole: &str, room: usize) -> Excerpt {
    let trimmed = whole.trim();
    let is_json = trimmed.starts_with(['{', '[']);
    if is_json && check(trimmed.as_bytes(), MAX_RESULT_DEPTH).is_ok() {
        let mut pruner = Pruner { gap: None };
        let text = pruner.value(trimmed.as_bytes(), room, "");
        if let Some(gap) = pruner.gap {
            return Excerpt { text, gap };
        }
    }
    lines(whole, room)
}

/// Beginning and end of a text, whole lines as far as they are short.
fn lines(whole: &str, room: usize) -> Excerpt {
    let count = whole.chars().count();
    let at = |n: usize| whole.char_indices().nth(n).map_or(whole.len(), |(at, _)| at);
    let (head, tail) = (room - room / 4, room / 4);
    let head = &whole[..at(head)];
    // A break in the second half of it is worth the characters behind it.
    let head = match head.rfind('\n') {
        Some(end) if end >= head.len() / 2 => &head[..=end],
        _ => head,
    };
    let start = at(count.saturating_sub(tail)).max(head.len());
    let tail = &whole[start..];
    let tail = match tail.find('\n') {
        _ if whole[..start].ends_with('\n') => tail,
        Some(end) if end <= tail.len() / 2 => &tail[end + 1..],
        _ => tail,
    };
    let shown = head.chars().count();
    let skipped = count - shown - tail.chars().count();
    let gap = &whole[head.len()..whole.len() - tail.len()];
    let breaks = memchr::memchr_iter(b'\n', gap.as_bytes()).count();
    let size = if breaks > 1 { format!(", {breaks} lines") } else { String::new() };
    let separator = if head.ends_with('\n') { "" } else { "\n" };
    Excerpt {
        text: format!("{head}{separator}[… {skipped} characters{size} …]\n{tail}"),
        gap: Gap::At(shown),
    }
}

/// Writes JSON with less in it.
struct Pruner {
    gap: Option<Gap>,
}

impl Pruner {
    fn value(&mut self, raw: &[u8], room: usize, pointer: &str) -> String {
        if raw.len() <= room {
            return String::from_utf8_lossy(raw).into_owned();
        }
        match raw.first() {
            Some(b'[') => self.list(raw, room, pointer),
            Some(b'{') => self.object(raw, room, pointer),
            Some(b'"') => self.text(raw, room, pointer),
            // A number of many digits.
            _ => "…".to_owned(),
        }
    }

    /// The first items, and the last one if it is short. Millions of items are counted, not collected.
    fn list(&mut self, raw: &[u8], room: usize, pointer: &str) -> String {
        let items = || object::elements(raw);
        let (count, last) = items().fold((0, None), |(count, _), item| (count + 1, Some(item)));
        if room < MIN_ROOM {
            self.skips(pointer, 0);
            return format!("[… {count} items]");
        }
        let last = last.filter(|last| count > 1 && last.len() <= room / 4);
        let most = if last.is_some() { room - room / 4 } else { room };
        let (mut shown, mut used) = (Vec::new(), 0);
        for item in items() {
            if used + item.len() + 1 > most {
                break;
            }
            used += item.len() + 1;
            shown.push(String::from_utf8_lossy(item).into_owned());
        }
        if shown.is_empty() {
            let first = items().next().unwrap_or_default();
            shown.push(self.value(first, most / 2, &join(pointer, "0")));
        }
        let (first, ends) = (shown.len(), usize::from(last.is_some()));
        if let Some(left) = usize::checked_sub(count, first + ends).filter(|left| *left > 0) {
            self.skips(pointer, first);
            shown.push(format!("… {left} more items"));
        }
        if let Some(last) = last.filter(|_| first < count) {
            shown.push(String::from_utf8_lossy(last).into_owned());
        }
        format!("[{}]", shown.join(","))
    }

    /// Short members whole, long ones with an even share of the rest.
    fn object(&mut self, raw: &[u8], room: usize, pointer: &str) -> String {
        let count = object::members(raw).count();
        if room < MIN_ROOM {
            self.skips(pointer, 0);
            return format!("{{… {count} members}}");
        }
        let named: Vec<_> = object::members(raw).take((room / MIN_ROOM).max(1)).collect();
        let share = share(named.iter().map(|(name, value)| name.len() + value.len() + 4), room);
        let mut shown: Vec<String> = named
            .iter()
            .map(|(name, value)| {
                let inside = join(pointer, name);
                let room = share.saturating_sub(name.len() + 4);
                let name = text::cut(name, share.max(MIN_ROOM));
                format!("{}:{}", Value::from(&*name), self.value(value, room, &inside))
            })
            .collect();
        if let Some(left) = count.checked_sub(named.len()).filter(|left| *left > 0) {
            self.skips(pointer, 0);
            shown.push(format!("… {left} more members"));
        }
        format!("{{{}}}", shown.join(","))
    }

    fn text(&mut self, raw: &[u8], room: usize, pointer: &str) -> String {
        let whole = object::text(raw).unwrap_or_default();
        let count = whole.chars().count();
        let head: String = whole.chars().take(room.saturating_sub(MIN_ROOM)).collect();
        let kept = head.chars().count();
        self.skips(pointer, kept);
        Value::from(format!("{head}… {} more characters", count - kept)).to_string()
    }

    fn skips(&mut self, pointer: &str, offset: usize) {
        self.gap.get_or_insert_with(|| match pointer.len() <= MAX_POINTER {
            true => Gap::Inside { pointer: pointer.to_owned(), offset },
            false => Gap::At(0),
        });
    }
}

/// The most that one of these may take so that all of them fit: those that need less leave theirs to the others.
fn share(sizes: impl Iterator<Item = usize>, room: usize) -> usize {
    let mut sizes: Vec<usize> = sizes.collect();
    sizes.sort_unstable();
    let mut left = room;
    for (index, size) in sizes.iter().enumerate() {
        let each = left / (sizes.len() - index);
        if *size > each {
            return each;
        }
        left -= size;
    }
    room
}

fn join(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_stay_whole() {
        let whole: String = (0..1000).map(|n| format!("line {n:04}\n")).collect();
        let cut = excerpt(&whole, 200);
        assert!(cut.text.starts_with("line 0000\nline 0001\n"), "{}", cut.text);
        assert!(cut.text.ends_with("line 0998\nline 0999\n"), "{}", cut.text);
        let gap = cut.text.lines().find(|line| line.starts_with('[')).unwrap();
        assert_eq!(gap, "[… 9800 characters, 980 lines …]");
        assert!(cut.text.lines().all(|line| line.len() == 9 || line.starts_with('[')));
        assert_eq!(cut.gap, Gap::At(150));
        let flat = excerpt(&"é".repeat(1000), 100);
        assert_eq!(flat.text.matches('é').count(), 100);
        assert_eq!(flat.gap, Gap::At(75));
    }

    #[test]
    fn json_is_cut_between_items_and_members() {
        let rows: Vec<Value> = (0..500).map(|n| json!({"id": n, "name": "row"})).collect();
        let whole = json!({"total": 500, "rows": rows, "note": "x".repeat(500)}).to_string();
        let cut = excerpt(&whole, 400);
        insta::assert_snapshot!(cut.text);
        assert_eq!(cut.gap, Gap::Inside { pointer: "/rows".to_owned(), offset: 6 });
        let list = excerpt(&json!(rows).to_string(), 200);
        assert_eq!(list.gap, Gap::Inside { pointer: String::new(), offset: 6 });
        assert!(
            list.text.ends_with("… 493 more items,{\"id\":499,\"name\":\"row\"}]"),
            "{}",
            list.text
        );
    }

    #[test]
    fn a_name_of_a_megabyte_and_a_million_items_stay_short() {
        let name = json!({ "n".repeat(1 << 20): 1, "b": 2 }).to_string();
        assert!(excerpt(&name, 600).text.len() < 2_000);
        let long = json!({ "n".repeat(1 << 20): "x".repeat(10_000) }).to_string();
        let cut = excerpt(&long, 600);
        assert!(cut.text.len() < 2_000 && cut.gap == Gap::At(0), "{:?}", cut.gap);
        let items = format!("[{}1]", "1,".repeat(1 << 20));
        let cut = excerpt(&items, 600);
        assert!(cut.text.len() < 700 && cut.text.contains("more items"), "{}", cut.text);
    }

    #[test]
    fn a_text_inside_is_cut_and_named() {
        let whole = json!({"a/b": {"text": "é".repeat(5000)}}).to_string();
        let cut = excerpt(&whole, 300);
        let Gap::Inside { pointer, offset } = cut.gap else { panic!("{cut:?}") };
        assert_eq!(pointer, "/a~1b/text");
        assert!(cut.text.contains(&format!("… {} more characters", 5000 - offset)), "{}", cut.text);
    }

    proptest! {
        #[test]
        fn an_excerpt_is_short_whatever_the_text(text in "\\PC{0,400}|[a-z\n]{0,400}", room in 40_usize..200) {
            let cut = excerpt(&text, room);
            prop_assert!(cut.text.chars().count() <= room + 80, "{}", cut.text);
        }

        #[test]
        fn an_excerpt_of_json_is_short(n in 1_usize..60, text in "\\PC{0,300}", room in 60_usize..400) {
            let items: Vec<Value> = (0..n).map(|n| json!({"n": n, "t": text, "l": [text, text]})).collect();
            let whole = json!({"items": items, "one": text, "deep": {"a": {"b": items}}}).to_string();
            let cut = excerpt(&whole, room);
            prop_assert!(cut.text.chars().count() <= 2 * room + 400, "{room}: {}", cut.text);
        }
    }
}
