//! JSON with every character written the way we write it, for searching: `\u0072` and `\/` hide nothing then. It stays JSON
//! of the same structure, so that what is found in it can be redacted at its origin.

use std::sync::LazyLock;

use memchr::memmem::{self, Finder};

use super::{Found, escaped};

/// What an escape begins with in JSON.
pub(super) const OUTER: &[u8] = b"\\";
/// What it begins with in JSON inside of a text of JSON.
pub(super) const INNER: &[u8] = b"\\\\";

static NUMBERED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\u"));
static SLASH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\\/"));

/// An escape that we would not write, and what we would write in its place.
struct Spelled {
    start: usize,
    end: usize,
    plain: Vec<u8>,
}

/// Whether there may be such an escape. Most results have none, and are looked at no closer.
pub(super) fn may_hide(json: &[u8]) -> bool {
    NUMBERED.find(json).is_some() || SLASH.find(json).is_some()
}

/// The JSON to search in place of this; `None` where that is the same.
pub(super) fn plain(json: &[u8], slash: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let (mut copied, mut place) = (0, 0);
    while let Some(spelled) = next(json, slash, &mut place) {
        plain.extend_from_slice(&json[copied..spelled.start]);
        plain.extend_from_slice(&spelled.plain);
        copied = spelled.end;
    }
    if copied == 0 {
        return None;
    }
    plain.extend_from_slice(&json[copied..]);
    Some(plain)
}

/// Puts what was found in the plain JSON where it stands in the other. Seldom is anything found, so the way back is gone
/// then and not remembered before.
pub(super) fn restore(json: &[u8], slash: &[u8], found: &mut [Found<'_>]) {
    let mut places: Vec<(&mut usize, bool)> = Vec::with_capacity(found.len() * 2);
    for Found { start, end, .. } in found {
        places.extend([(start, false), (end, true)]);
    }
    places.sort_by_key(|(at, _)| **at);
    let mut places = places.into_iter().peekable();
    // How far the other is ahead, and where the plain one is.
    let (mut ahead, mut place) = (0, 0);
    while let Some(spelled) = next(json, slash, &mut place) {
        let from = spelled.start - ahead;
        let to = from + spelled.plain.len();
        while let Some((at, is_end)) = places.next_if(|(at, _)| **at < to) {
            *at = match *at {
                at if at <= from => at + ahead,
                // In the middle of what is one escape: all of it goes.
                _ if is_end => spelled.end,
                _ => spelled.start,
            };
        }
        ahead = spelled.end - to;
    }
    places.for_each(|(at, _)| *at += ahead);
}

/// The next escape from a place on that we would not write.
fn next(json: &[u8], slash: &[u8], place: &mut usize) -> Option<Spelled> {
    while let Some(found) = memmem::find(json.get(*place..)?, slash) {
        let start = *place + found;
        let after = start + slash.len();
        let rest = &json[after..];
        let read = match rest.first()? {
            b'/' => Some((1, '/')),
            b'u' => character(rest, slash),
            _ => None,
        };
        if let Some((length, character)) = read {
            let end = after + length;
            *place = end;
            let plain = written(character, slash);
            if plain != json[start..end] {
                return Some(Spelled { start, end, plain });
            }
            continue;
        }
        // An escaped backslash is no beginning of an escape.
        *place = after + if rest.starts_with(slash) { slash.len() } else { 1 };
    }
    None
}

/// The character whose digits come next, behind a `u`, and how many bytes it is. Half of a pair is none.
fn character(rest: &[u8], slash: &[u8]) -> Option<(usize, char)> {
    const LENGTH: usize = 5;
    let unit = |rest: &[u8]| {
        let digits = rest.strip_prefix(b"u")?.get(..LENGTH - 1)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(rest)?;
    if let Some(character) = char::from_u32(first.into()) {
        return Some((LENGTH, character));
    }
    let second = unit(rest[LENGTH..].strip_prefix(slash)?)?;
    let pair = char::decode_utf16([first, second]).next()?.ok()?;
    Some((LENGTH * 2 + slash.len(), pair))
}

/// How we write a character in this layer.
fn written(character: char, slash: &[u8]) -> Vec<u8> {
    let once = escaped(&character.to_string());
    if slash == OUTER { once.into_bytes() } else { escaped(&once).into_bytes() }
}
