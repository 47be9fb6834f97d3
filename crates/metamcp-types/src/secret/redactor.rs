//! Redacts secrets from JSON on its way to a model: values of this configuration, and tokens in well-known formats.
//! Owns: how secrets are found, in any JSON encoding.      Never: changes a byte of text without secrets.
//! In: secrets; JSON or text.  Out: the same without them, and how many there were.
//! Tests: `redactor/tests.rs`.
//!
//! What holds none is not copied, and looked at no closer than it must be: every token has a mark in its beginning, a few
//! bytes that are rare in ordinary text, and all marks are searched for in one pass, many bytes at a time. Which bytes
//! those are matters: the pass looks at the first three of each, and with whole beginnings in their place (`ghp`, `sk_`,
//! `.ey`) it takes twice to three times as long on JSON, on prose and on source code.

mod escapes;

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, Input, Match, MatchKind};
use memchr::memmem::Finder;
use metamcp_wire::object;
use metamcp_wire::write::json_string;

use super::{SHORTEST_IN_RESULTS, Secret};

/// Most bytes of one private key: a longer block is none.
const MAX_KEY_BLOCK: usize = 16 * 1024;
/// Characters of a token among which there is a digit and a capital letter, if there is one at all.
const MIXED: usize = 64;
/// Values up to this many are searched for one by one, which is faster than together.
const FEW: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub struct Redacted<'a> {
    /// The JSON; as it came in where nothing was found.
    pub json: Cow<'a, [u8]>,
    /// How many secrets were taken out.
    pub removed: usize,
}

pub struct Redactor {
    is_on: bool,
    /// Whether tokens of known shapes are taken out too.
    knows_shapes: bool,
    values: Values,
    /// What each value is called, in their order.
    labels: Vec<String>,
}

/// How values of the configuration are searched for.
enum Values {
    Few(Vec<Finder<'static>>),
    Many(Box<AhoCorasick>),
}

/// A secret and where it stands.
struct Found<'s> {
    start: usize,
    end: usize,
    label: &'s str,
}

/// Tokens that begin alike.
#[derive(Clone, Copy)]
struct Shape {
    /// What it begins with.
    prefix: &'static str,
    /// The part of that which is searched for.
    mark: &'static str,
    /// What it is called where it stood.
    label: &'static str,
    /// Characters that follow.
    chars: fn(u8) -> bool,
    least: usize,
    most: usize,
    /// Whether what follows needs a digit and a capital letter, as words do not have.
    is_mixed: bool,
}

const fn shape(
    prefix: &'static str,
    mark: &'static str,
    label: &'static str,
    chars: fn(u8) -> bool,
    (least, most): (usize, usize),
) -> Shape {
    Shape { prefix, mark, label, chars, least, most, is_mixed: false }
}

const fn mixed(shape: Shape) -> Shape {
    Shape { is_mixed: true, ..shape }
}

const ANY: usize = 4096;

static SHAPES: [Shape; 28] = [
    shape("ghp_", "hp_", "GitHub token", alphanumeric, (36, 255)),
    shape("gho_", "ho_", "GitHub token", alphanumeric, (36, 255)),
    shape("ghu_", "hu_", "GitHub token", alphanumeric, (36, 255)),
    shape("ghs_", "hs_", "GitHub token", alphanumeric, (36, 255)),
    shape("ghr_", "hr_", "GitHub token", alphanumeric, (36, 255)),
    shape("github_pat_", "b_pat_", "GitHub token", word, (36, 255)),
    shape("shpat_", "hpat_", "Shopify token", alphanumeric, (32, 64)),
    shape("npm_", "pm_", "npm token", alphanumeric, (36, 36)),
    shape("sk_live_", "k_live_", "Stripe key", alphanumeric, (16, 255)),
    shape("rk_live_", "k_live_", "Stripe key", alphanumeric, (16, 255)),
    shape("sk_test_", "k_test_", "Stripe key", alphanumeric, (16, 255)),
    shape("dop_v1_", "p_v1_", "DigitalOcean token", alphanumeric, (64, 64)),
    shape("glpat-", "glpat-", "GitLab token", word_or_dash, (20, 255)),
    shape("xoxb-", "xox", "Slack token", word_or_dash, (20, 255)),
    shape("xoxp-", "xox", "Slack token", word_or_dash, (20, 255)),
    shape("xoxa-", "xox", "Slack token", word_or_dash, (20, 255)),
    shape("xoxr-", "xox", "Slack token", word_or_dash, (20, 255)),
    shape("xoxs-", "xox", "Slack token", word_or_dash, (20, 255)),
    shape("xapp-", "xapp-", "Slack token", word_or_dash, (20, 255)),
    mixed(shape("pypi-", "pypi-", "PyPI token", word_or_dash, (50, ANY))),
    shape("ya29.", "a29.", "Google token", word_or_dash, (30, ANY)),
    shape("AKIA", "KIA", "AWS key", capital_or_digit, (16, 16)),
    shape("ASIA", "SIA", "AWS key", capital_or_digit, (16, 16)),
    shape("AIza", "Iza", "Google key", word_or_dash, (35, 35)),
    mixed(shape("hf_", "hf_", "Hugging Face token", alphanumeric, (30, 64))),
    mixed(shape("sk-", "sk-", "API key", word_or_dash, (32, 255))),
    shape("metamcp_", "tamcp_", "metamcp token", word_or_dash, (43, 64)),
    shape("SG.", "SG.", "SendGrid key", dotted, (60, 80)),
];

/// The mark of a signed token, which is the beginning of its body, and that of a private key.
const SIGNED: &str = "eyJ";
const KEY: &str = "EGIN ";

/// The search for all marks at once.
enum Search {
    /// Many bytes at a time.
    Packed(Searcher),
    /// Byte by byte, for processors that cannot.
    Plain(Option<AhoCorasick>),
}

static SEARCH: LazyLock<Search> =
    LazyLock::new(|| Searcher::new(marks()).map_or_else(Search::plain, Search::Packed));

/// Every mark, once.
fn marks() -> Vec<&'static str> {
    let mut marks: Vec<&str> = SHAPES.iter().map(|shape| shape.mark).collect();
    marks.dedup();
    marks.extend([SIGNED, KEY]);
    marks
}

impl Search {
    fn plain() -> Search {
        Search::Plain(AhoCorasick::new(marks()).ok())
    }

    /// Calls back with the position of each mark.
    fn each(&self, json: &[u8], mut told: impl FnMut(usize, usize)) {
        let tell = |one: Match| told(one.start(), one.end());
        match self {
            Search::Packed(searcher) => searcher.find_iter(json).for_each(tell),
            Search::Plain(Some(automaton)) => automaton.find_iter(json).for_each(tell),
            // Two dozen short words always fit an automaton.
            Search::Plain(None) => {}
        }
    }
}

impl Redactor {
    /// A scrubber for the values of a configuration and for the known shapes.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Redactor {
        let mut needles: Vec<Vec<u8>> = Vec::new();
        let mut labels = Vec::new();
        for secret in secrets.into_iter().filter(|secret| secret.is_redacted_in_results()) {
            for needle in secret.needles().filter(|needle| needle.len() >= SHORTEST_IN_RESULTS) {
                for form in forms(needle) {
                    if !needles.contains(&form) {
                        needles.push(form);
                        labels.push(label(secret.name()));
                    }
                }
            }
        }
        let finder = |needle: &Vec<u8>| Finder::new(needle).into_owned();
        let values = if needles.len() <= FEW {
            Values::Few(needles.iter().map(finder).collect())
        } else {
            let all = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&needles);
            match all {
                Ok(all) => Values::Many(Box::new(all)),
                // Too many for one automaton: slow is better than open.
                Err(_) => Values::Few(needles.iter().map(finder).collect()),
            }
        };
        Redactor { is_on: true, knows_shapes: true, values, labels }
    }

    /// One for the values alone: for what is stored on disk, which must hold no secret of ours and is otherwise unchanged.
    pub fn of_values<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Redactor {
        Redactor { knows_shapes: false, ..Redactor::new(secrets) }
    }

    /// One that takes nothing out.
    pub fn off() -> Redactor {
        Redactor {
            is_on: false,
            knows_shapes: false,
            values: Values::Few(Vec::new()),
            labels: Vec::new(),
        }
    }

    /// JSON without secrets. It stays JSON: only text is replaced, and a number that is a secret becomes a text.
    pub fn redact<'a>(&self, json: &'a [u8]) -> Redacted<'a> {
        let mut found = if self.is_on { self.find(json) } else { Vec::new() };
        if found.is_empty() {
            return Redacted { json: Cow::Borrowed(json), removed: 0 };
        }
        found.sort_by_key(|one| (one.start, std::cmp::Reverse(one.end)));
        let mut clean = Vec::with_capacity(json.len());
        let (mut copied, mut removed) = (0, 0);
        let mut place = Place { at: 0, in_text: false };
        for Found { start, end, label } in found {
            if start < copied {
                continue;
            }
            place.go_to(json, start);
            if place.at > start {
                // In the middle of an escape: the `n` of a line break, say. Whatever begins there is not in the text.
                continue;
            }
            removed += 1;
            let (start, end, quote): (usize, usize, &[u8]) = if place.in_text {
                (start, end, b"")
            } else {
                let (start, end) = token(json, start, end);
                (start.max(copied), end, b"\"")
            };
            clean.extend_from_slice(&json[copied..start]);
            for part in [quote, b"[secret ", label.as_bytes(), b"]", quote] {
                clean.extend_from_slice(part);
            }
            copied = end;
            place.at = place.at.max(copied);
        }
        clean.extend_from_slice(&json[copied..]);
        Redacted { json: Cow::Owned(clean), removed }
    }

    /// A text that is no JSON, without secrets.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut json = Vec::with_capacity(text.len() + 2);
        json_string(&mut json, text);
        match self.redact(&json).json {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(clean) => {
                // It went in as one text and comes out as one.
                Cow::Owned(object::text(&clean).unwrap_or_default().into_owned())
            }
        }
    }

    /// Every secret, however its characters are written in JSON, or in JSON inside of it.
    fn find<'s>(&'s self, json: &[u8]) -> Vec<Found<'s>> {
        if !escapes::may_hide(json) {
            return self.find_as_written(json);
        }
        let plain = escapes::plain(json, escapes::OUTER);
        let text = plain.as_deref().unwrap_or(json);
        let mut found = self.find_as_written(text);
        // Whether a text is JSON itself nobody can say, so it is searched as both.
        if let Some(inner) = escapes::plain(text, escapes::INNER) {
            let mut within = self.find_as_written(&inner);
            escapes::restore(text, escapes::INNER, &mut within);
            found.append(&mut within);
        }
        if plain.is_some() {
            escapes::restore(json, escapes::OUTER, &mut found);
        }
        found
    }

    fn find_as_written<'s>(&'s self, json: &[u8]) -> Vec<Found<'s>> {
        let mut found = Vec::new();
        self.find_values(json, &mut found);
        if self.knows_shapes {
            find_shapes(json, &mut found);
        }
        found
    }

    fn find_values<'s>(&'s self, json: &[u8], found: &mut Vec<Found<'s>>) {
        match &self.values {
            Values::Few(finders) => {
                for (finder, label) in finders.iter().zip(&self.labels) {
                    let length = finder.needle().len();
                    each_value(json, found, |from| {
                        let start = from + finder.find(&json[from..])?;
                        Some(Found { start, end: start + length, label })
                    });
                }
            }
            Values::Many(all) => each_value(json, found, |from| {
                let one = all.find(Input::new(json).range(from..))?;
                let label = &self.labels[one.pattern().as_usize()];
                Some(Found { start: one.start(), end: one.end(), label })
            }),
        }
    }
}

/// Every value that `next` finds from a place on. One that begins in the middle of an escape is not in the text, and one
/// that overlaps it may be.
fn each_value<'s>(
    json: &[u8],
    found: &mut Vec<Found<'s>>,
    next: impl Fn(usize) -> Option<Found<'s>>,
) {
    let mut place = Place { at: 0, in_text: false };
    let mut from = 0;
    while let Some(one) = next(from) {
        place.go_to(json, one.start);
        if place.at > one.start {
            from = one.start + 1;
        } else {
            from = one.end;
            found.push(one);
        }
    }
}

fn find_shapes(json: &[u8], found: &mut Vec<Found<'_>>) {
    // How far the characters of each shape are known to go on, and where the last key ended: text made of nothing but
    // beginnings is gone through once and not once for each.
    let mut known = [0; SHAPES.len()];
    let mut key_end = 0;
    SEARCH.each(json, |start, end| {
        let mark = &json[start..end];
        for (shape, known) in SHAPES.iter().zip(&mut known) {
            if shape.mark.as_bytes() == mark {
                found.extend(shape.found(json, start, known));
            }
        }
        if mark == SIGNED.as_bytes() {
            found.extend(signed_token(json, start));
        } else if mark == KEY.as_bytes() && start >= key_end {
            let key = key_block(json, start);
            key_end = key.as_ref().map_or(key_end, |key| key.end);
            found.extend(key);
        }
    });
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({})", self.labels.len())
    }
}

impl Shape {
    /// A token whose mark stands at `marked`, if it is one.
    fn found(&self, json: &[u8], marked: usize, known: &mut usize) -> Option<Found<'static>> {
        let start = marked.checked_sub(self.prefix.find(self.mark)?)?;
        if !json[start..].starts_with(self.prefix.as_bytes()) {
            return None;
        }
        let from = start + self.prefix.len();
        let rest = &json[from..json.len().min(from + self.most + 1)];
        let seen = known.saturating_sub(from).min(rest.len());
        let more = rest[seen..].iter().position(|&byte| !(self.chars)(byte));
        let length = more.map_or(rest.len(), |more| seen + more);
        *known = from + length;
        let body = &rest[..length];
        let is_mixed = || {
            let first = &body[..body.len().min(MIXED)];
            first.iter().any(u8::is_ascii_digit) && first.iter().any(u8::is_ascii_uppercase)
        };
        let fits = match self.label {
            "SendGrid key" => has_parts(body, 2),
            _ => !self.is_mixed || is_mixed(),
        };
        let is_one = (self.least..=self.most).contains(&length) && fits && is_start(json, start);
        is_one.then_some(Found { start, end: from + length, label: self.label })
    }
}

/// A signed token whose body begins at `body`, behind a dot: three parts, two of them JSON objects, which begin with `eyJ`
/// in base64. It may be of any length: only what stands between a few dots is looked at, so text of nothing but beginnings
/// is gone through a few times and not once for each.
fn signed_token(json: &[u8], body: usize) -> Option<Found<'static>> {
    let dot = body.checked_sub(1).filter(|&dot| json[dot] == b'.')?;
    let before = json[..dot].iter().rev().take_while(|byte| word_or_dash(**byte)).count();
    // What stands before it in the same run, such as a word, does not belong to it.
    let head = memchr::memmem::find(&json[dot - before..dot], b"eyJ")?;
    let start = dot - before + head;
    let rest = &json[start..];
    let mut dots = 0;
    let end = rest.iter().position(|&byte| {
        dots += usize::from(byte == b'.');
        dots == 3 || !dotted(byte)
    });
    let body = &rest[..end.unwrap_or(rest.len())];
    let is_one = has_parts(body, 3) && is_start(json, start);
    is_one.then_some(Found { start, end: start + body.len(), label: "signed token" })
}

/// Whether it is so many parts with dots between, none of them short.
fn has_parts(body: &[u8], count: usize) -> bool {
    let mut parts = 0;
    body.split(|byte| *byte == b'.').all(|part| {
        parts += 1;
        part.len() >= 10
    }) && parts == count
}

/// A block from `-----BEGIN … PRIVATE KEY-----` to its end; `marked` is behind the first letter of `BEGIN`.
fn key_block(json: &[u8], marked: usize) -> Option<Found<'static>> {
    const RULE: &[u8] = b"-----";
    let from = marked.checked_sub(1)?;
    let start = from.checked_sub(RULE.len())?;
    let mut to = json.len().min(from + MAX_KEY_BLOCK);
    // Not in the middle of a character.
    while to > from && json.get(to).is_some_and(|byte| byte & 0xc0 == 0x80) {
        to -= 1;
    }
    let rest = &json[from..to];
    if &json[start..from] != RULE || !rest.starts_with(b"BEGIN ") {
        return None;
    }
    memchr::memmem::find(&rest[..rest.len().min(64)], b"PRIVATE KEY")?;
    let text_end = end_of_text(rest);
    let inside = &rest[..text_end];
    let marker = b"-----END ";
    let length = match memchr::memmem::find(inside, marker) {
        Some(at) => {
            let after = at + marker.len();
            let close = memchr::memmem::find(&inside[after..], RULE);
            close.map_or(text_end, |close| after + close + RULE.len())
        }
        // Without an end it is still one, up to the end of its text.
        None => text_end,
    };
    Some(Found { start, end: from + length, label: "private key" })
}

/// Where a text ends that goes on at the beginning of `rest`: before the next quotation mark, whether it is one of this
/// text or, escaped, of a text inside of it; never in the middle of an escape.
fn end_of_text(rest: &[u8]) -> usize {
    let mut at = 0;
    // Where the backslashes before `at` began, which belong to a quotation mark behind them.
    let mut slashes = 0;
    while let Some(&byte) = rest.get(at) {
        match (byte, rest.get(at + 1)) {
            (b'"', _) => return at,
            (b'\\', Some(b'"')) => return slashes,
            (b'\\', Some(b'\\')) => at += 2,
            (b'\\', _) => {
                let next = at + escape(&rest[at..]);
                if next > rest.len() {
                    return at;
                }
                (at, slashes) = (next, next);
            }
            _ => (at, slashes) = (at + 1, at + 1),
        }
    }
    slashes
}

/// How long the escape is that begins here.
fn escape(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'u') { 6 } else { 2 }
}

/// Where in JSON a position is.
struct Place {
    at: usize,
    in_text: bool,
}

impl Place {
    /// Moves on to a position, and past it where it is in the middle of an escape.
    fn go_to(&mut self, json: &[u8], to: usize) {
        while let Some(next) = memchr::memchr2(b'"', b'\\', &json[self.at.min(to)..to]) {
            let at = self.at + next;
            if json[at] == b'"' {
                self.in_text = !self.in_text;
                self.at = at + 1;
            } else {
                self.at = at + escape(&json[at..]);
            }
        }
        self.at = self.at.max(to);
    }
}

/// The whole of a number or word that holds this range.
fn token(json: &[u8], start: usize, end: usize) -> (usize, usize) {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let before = json[..start].iter().rev().take_while(|byte| is_part(byte)).count();
    let after = json[end..].iter().take_while(|byte| is_part(byte)).count();
    (start - before, end + after)
}

/// Whether a token may begin here: not in the middle of a word. An escape before it is no word, also if it is one in a
/// text inside of the text.
fn is_start(json: &[u8], at: usize) -> bool {
    let before = &json[..at];
    let Some(&last) = before.last() else { return true };
    if !word(last) {
        return true;
    }
    let is_escape =
        |length: usize| before.len().checked_sub(length).is_some_and(|from| before[from] == b'\\');
    (matches!(last, b'n' | b'r' | b't' | b'b' | b'f') && is_escape(2))
        || (before.len() >= 6 && before[before.len() - 5] == b'u' && is_escape(6))
}

/// How we write a value in JSON, and in JSON inside of JSON.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let once = escaped(value);
    let mut forms = vec![escaped(&once).into_bytes(), once.into_bytes()];
    forms.dedup();
    forms
}

/// A text as it stands between the quotation marks of JSON.
fn escaped(text: &str) -> String {
    let mut out = Vec::new();
    json_string(&mut out, text);
    String::from_utf8_lossy(&out[1..out.len() - 1]).into_owned()
}

/// A name that can stand inside a JSON string.
fn label(name: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.chars().filter(plain).take(64).collect()
}

fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn word_or_dash(byte: u8) -> bool {
    word(byte) || byte == b'-'
}

fn dotted(byte: u8) -> bool {
    word_or_dash(byte) || byte == b'.'
}

fn capital_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests;
