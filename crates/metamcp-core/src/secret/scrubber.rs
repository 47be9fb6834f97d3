//! Secrets taken out of JSON on its way to a model: values of this configuration, and tokens of well-known shapes.
//! What holds none is not copied, and looked at no closer than it must be: tokens are found by their beginnings. Those of
//! four bytes and more are searched for in one pass, sixteen bytes at a time; the three shorter ones each in a pass of
//! their own, since one of them among the others makes that pass six times slower on ordinary text.

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, Match, MatchKind};
use memchr::memmem::Finder;
use metamcp_wire::write::json_string;

use super::{SHORTEST_HUNTED, Secret};

/// Most bytes of one private key: a longer block is none.
const MAX_KEY_BLOCK: usize = 16 * 1024;
/// Values up to this many are searched for one by one, which is faster than together.
const FEW: usize = 4;

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub struct Scrubbed<'a> {
    /// The JSON; as it came in where nothing was found.
    pub json: Cow<'a, [u8]>,
    /// How many secrets were taken out.
    pub removed: usize,
}

/// See the module.
pub struct Scrubber {
    is_on: bool,
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
    label: &'static str,
    chars: fn(u8) -> bool,
    (least, most): (usize, usize),
) -> Shape {
    Shape { prefix, label, chars, least, most, is_mixed: false }
}

const fn mixed(shape: Shape) -> Shape {
    Shape { is_mixed: true, ..shape }
}

const ANY: usize = 4096;

/// Those with a beginning of four bytes or more.
static LONG: [Shape; 24] = [
    shape("ghp_", "GitHub token", alphanumeric, (36, 255)),
    shape("gho_", "GitHub token", alphanumeric, (36, 255)),
    shape("ghu_", "GitHub token", alphanumeric, (36, 255)),
    shape("ghs_", "GitHub token", alphanumeric, (36, 255)),
    shape("ghr_", "GitHub token", alphanumeric, (36, 255)),
    shape("github_pat_", "GitHub token", word, (36, 255)),
    shape("shpat_", "Shopify token", alphanumeric, (32, 64)),
    shape("npm_", "npm token", alphanumeric, (36, 36)),
    shape("sk_live_", "Stripe key", alphanumeric, (16, 255)),
    shape("rk_live_", "Stripe key", alphanumeric, (16, 255)),
    shape("sk_test_", "Stripe key", alphanumeric, (16, 255)),
    shape("dop_v1_", "DigitalOcean token", alphanumeric, (64, 64)),
    shape("glpat-", "GitLab token", word_or_dash, (20, 255)),
    shape("xoxb-", "Slack token", word_or_dash, (20, 255)),
    shape("xoxp-", "Slack token", word_or_dash, (20, 255)),
    shape("xoxa-", "Slack token", word_or_dash, (20, 255)),
    shape("xoxr-", "Slack token", word_or_dash, (20, 255)),
    shape("xoxs-", "Slack token", word_or_dash, (20, 255)),
    shape("xapp-", "Slack token", word_or_dash, (20, 255)),
    mixed(shape("pypi-", "PyPI token", word_or_dash, (50, ANY))),
    shape("ya29.", "Google token", word_or_dash, (30, ANY)),
    shape("AKIA", "AWS key", capital_or_digit, (16, 16)),
    shape("ASIA", "AWS key", capital_or_digit, (16, 16)),
    shape("AIza", "Google key", word_or_dash, (35, 35)),
];

/// Behind the beginnings of `LONG` in the search: the body of a signed token, and a private key.
const SIGNED: (usize, &str) = (LONG.len(), ".eyJ");
const KEY: (usize, &str) = (LONG.len() + 1, "BEGIN ");

/// Those with a shorter one.
static SHORT: [Shape; 3] = [
    mixed(shape("hf_", "Hugging Face token", alphanumeric, (30, 64))),
    mixed(shape("sk-", "API key", word_or_dash, (32, 255))),
    shape("SG.", "SendGrid key", dotted, (60, 80)),
];

static FINDERS: LazyLock<[Finder<'static>; 3]> =
    LazyLock::new(|| SHORT.each_ref().map(|shape| Finder::new(shape.prefix)));

/// The search for all long beginnings at once.
enum Beginnings {
    /// Sixteen bytes at a time.
    Packed(Searcher),
    /// Byte by byte, for processors that cannot.
    Plain(Option<AhoCorasick>),
}

static BEGINNINGS: LazyLock<Beginnings> = LazyLock::new(|| {
    let all = || LONG.iter().map(|shape| shape.prefix).chain([SIGNED.1, KEY.1]);
    Searcher::new(all())
        .map_or_else(|| Beginnings::Plain(AhoCorasick::new(all()).ok()), Beginnings::Packed)
});

impl Beginnings {
    /// Tells each beginning: its number and where it stands.
    fn each(&self, json: &[u8], mut told: impl FnMut(usize, usize)) {
        let tell = |one: Match| told(one.pattern().as_usize(), one.start());
        match self {
            Beginnings::Packed(searcher) => searcher.find_iter(json).for_each(tell),
            Beginnings::Plain(Some(automaton)) => automaton.find_iter(json).for_each(tell),
            // Two dozen short words always fit an automaton.
            Beginnings::Plain(None) => {}
        }
    }
}

impl Scrubber {
    /// A scrubber for the values of a configuration and for the known shapes.
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s Secret>) -> Scrubber {
        let mut needles: Vec<Vec<u8>> = Vec::new();
        let mut labels = Vec::new();
        for secret in secrets.into_iter().filter(|secret| secret.is_hunted()) {
            for needle in secret.needles().filter(|needle| needle.len() >= SHORTEST_HUNTED) {
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
        Scrubber { is_on: true, values, labels }
    }

    /// One that takes nothing out.
    pub fn off() -> Scrubber {
        Scrubber { is_on: false, values: Values::Few(Vec::new()), labels: Vec::new() }
    }

    /// JSON without secrets. It stays JSON: only text is replaced, and a number that is a secret becomes a text.
    pub fn scrub<'a>(&self, json: &'a [u8]) -> Scrubbed<'a> {
        let mut found = Vec::new();
        if self.is_on {
            self.find_values(json, &mut found);
            find_shapes(json, &mut found);
        }
        if found.is_empty() {
            return Scrubbed { json: Cow::Borrowed(json), removed: 0 };
        }
        found.sort_by_key(|one| (one.start, std::cmp::Reverse(one.end)));
        let mut clean = Vec::with_capacity(json.len());
        let (mut copied, mut removed) = (0, 0);
        let mut place = Place { at: 0, in_text: false };
        for Found { start, end, label } in found {
            if start < copied {
                continue;
            }
            removed += 1;
            place.go_to(json, start);
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
        Scrubbed { json: Cow::Owned(clean), removed }
    }

    fn find_values<'s>(&'s self, json: &[u8], found: &mut Vec<Found<'s>>) {
        match &self.values {
            Values::Few(finders) => {
                for (finder, label) in finders.iter().zip(&self.labels) {
                    let length = finder.needle().len();
                    let each = finder.find_iter(json);
                    found.extend(each.map(|start| Found { start, end: start + length, label }));
                }
            }
            Values::Many(all) => {
                for one in all.find_iter(json) {
                    let label = &self.labels[one.pattern().as_usize()];
                    found.push(Found { start: one.start(), end: one.end(), label });
                }
            }
        }
    }
}

fn find_shapes(json: &[u8], found: &mut Vec<Found<'_>>) {
    BEGINNINGS.each(json, |number, start| {
        found.extend(match LONG.get(number) {
            Some(shape) => shape.found(json, start),
            None if number == SIGNED.0 => signed_token(json, start),
            None => key_block(json, start),
        });
    });
    for (shape, finder) in SHORT.iter().zip(&*FINDERS) {
        found.extend(finder.find_iter(json).filter_map(|start| shape.found(json, start)));
    }
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrubber({})", self.labels.len())
    }
}

impl Shape {
    /// A token that begins at `start`, if it is one.
    fn found(&self, json: &[u8], start: usize) -> Option<Found<'static>> {
        let from = start + self.prefix.len();
        let rest = &json[from..json.len().min(from + self.most + 1)];
        let length = rest.iter().position(|&byte| !(self.chars)(byte)).unwrap_or(rest.len());
        let body = &rest[..length];
        let is_mixed =
            || body.iter().any(u8::is_ascii_digit) && body.iter().any(u8::is_ascii_uppercase);
        let fits = match self.label {
            "SendGrid key" => has_parts(body, 2),
            _ => !self.is_mixed || is_mixed(),
        };
        let is_one = (self.least..=self.most).contains(&length) && fits && is_start(json, start);
        is_one.then_some(Found { start, end: from + length, label: self.label })
    }
}

/// A signed token whose body begins behind the dot at `dot`: three parts, two of them JSON objects, which begin with
/// `eyJ` in base64.
fn signed_token(json: &[u8], dot: usize) -> Option<Found<'static>> {
    if !json[dot..].starts_with(b".eyJ") {
        return None;
    }
    let before = json[..dot].iter().rev().take(ANY).take_while(|byte| word_or_dash(**byte)).count();
    // What stands before it in the same run, such as a word, does not belong to it.
    let head = memchr::memmem::find(&json[dot - before..dot], b"eyJ")?;
    let start = dot - before + head;
    let rest = &json[start..json.len().min(start + ANY)];
    let length = rest.iter().position(|&byte| !dotted(byte)).unwrap_or(rest.len());
    let body = rest[..length].strip_suffix(b".").unwrap_or(&rest[..length]);
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

/// A block from `-----BEGIN … PRIVATE KEY-----` to its end; `from` is where `BEGIN` stands.
fn key_block(json: &[u8], from: usize) -> Option<Found<'static>> {
    const RULE: &[u8] = b"-----";
    let start = from.checked_sub(RULE.len())?;
    let rest = &json[from..json.len().min(from + MAX_KEY_BLOCK)];
    if &json[start..from] != RULE || !rest.starts_with(b"BEGIN ") {
        return None;
    }
    let text_end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
    let inside = &rest[..text_end];
    memchr::memmem::find(&inside[..inside.len().min(64)], b"PRIVATE KEY")?;
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

/// Where in JSON a position is.
struct Place {
    at: usize,
    in_text: bool,
}

impl Place {
    /// Moves on to a position that is not in the middle of an escape.
    fn go_to(&mut self, json: &[u8], to: usize) {
        while let Some(next) = memchr::memchr2(b'"', b'\\', &json[self.at.min(to)..to]) {
            let at = self.at + next;
            if json[at] == b'"' {
                self.in_text = !self.in_text;
                self.at = at + 1;
            } else {
                self.at = at + 2;
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

/// Whether a token may begin here: not in the middle of a word. An escape before it is no word.
fn is_start(json: &[u8], at: usize) -> bool {
    let before = &json[..at];
    let Some(&last) = before.last() else { return true };
    if !word(last) {
        return true;
    }
    let is_escape = |length: usize| {
        let Some(from) = before.len().checked_sub(length) else { return false };
        let slashes = before[..=from].iter().rev().take_while(|byte| **byte == b'\\').count();
        slashes % 2 == 1
    };
    (matches!(last, b'n' | b'r' | b't' | b'b' | b'f') && is_escape(2))
        || (before.len() >= 6 && before[before.len() - 5] == b'u' && is_escape(6))
}

/// How a value may be written in JSON, and in JSON inside of JSON.
fn forms(value: &str) -> Vec<Vec<u8>> {
    let escaped = |text: &str| {
        let mut out = Vec::new();
        json_string(&mut out, text);
        String::from_utf8_lossy(&out[1..out.len() - 1]).into_owned()
    };
    let once = escaped(value);
    let ascii: String = once
        .chars()
        .map(|c| {
            if c.is_ascii() {
                return c.to_string();
            }
            c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
        })
        .collect();
    let mut forms = Vec::new();
    for form in [once.replace('/', "\\/"), escaped(&once), ascii, once] {
        if !forms.contains(&form.as_bytes().to_vec()) {
            forms.push(form.into_bytes());
        }
    }
    forms
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
