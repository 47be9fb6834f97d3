//! W3C trace context and baggage, as they stand in `_meta` and in HTTP headers.
//! Owns: what is valid, and how long it may be.      Never: makes an id, decides what is sampled.
//! In: header values, or a `_meta` object.  Out: a `TraceContext`; nothing where the sender wrote nonsense.
//! Tests: below.

use crate::object;

/// Longest `tracestate`, and most entries of it, by the recommendation.
const MAX_STATE: usize = 512;
const MAX_STATE_ENTRIES: usize = 32;
/// Longest `baggage`, and most entries of it, by the recommendation.
const MAX_BAGGAGE: usize = 8192;
const MAX_BAGGAGE_ENTRIES: usize = 64;
/// `00-` trace id `-` span id `-` flags.
const LENGTH: usize = 55;

/// Where in which trace a request was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// Whether whoever made it records the trace.
    pub is_sampled: bool,
    /// `tracestate` and `baggage`, as they were written.
    pub state: Option<Box<str>>,
    pub baggage: Option<Box<str>>,
}

impl TraceContext {
    /// From the values of the three headers. An invalid `traceparent` drops everything, the other two only themselves.
    pub fn of(parent: &str, state: Option<&str>, baggage: Option<&str>) -> Option<TraceContext> {
        let (trace, span, flags) = parse(parent)?;
        let state = state.filter(|text| is_list(text, MAX_STATE, MAX_STATE_ENTRIES));
        let baggage = baggage.filter(|text| is_list(text, MAX_BAGGAGE, MAX_BAGGAGE_ENTRIES));
        let (state, baggage) = (state.map(Box::from), baggage.map(Box::from));
        Some(TraceContext { trace, span, is_sampled: flags & 1 == 1, state, baggage })
    }

    /// From `_meta`, where the members have the names of the headers.
    pub fn of_meta(meta: &[u8]) -> Option<TraceContext> {
        memchr::memmem::find(meta, b"traceparent")?;
        let picked = object::pick(meta, ["traceparent", "tracestate", "baggage"]).ok()?;
        let [parent, state, baggage] = picked.map(|raw| raw.and_then(object::text));
        TraceContext::of(&parent?, state.as_deref(), baggage.as_deref())
    }
}

/// The value of `traceparent` for a span that is recorded.
pub fn sampled_parent(trace: [u8; 16], span: [u8; 8]) -> String {
    let mut text = String::with_capacity(LENGTH);
    text.push_str("00-");
    push_hex(&mut text, &trace);
    text.push('-');
    push_hex(&mut text, &span);
    text.push_str("-01");
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Trace, span and flags. Versions to come may have more behind them.
fn parse(text: &str) -> Option<([u8; 16], [u8; 8], u8)> {
    let bytes = text.as_bytes();
    let (known, rest) = bytes.split_at_checked(LENGTH)?;
    let [version] = hex(&known[..2])?;
    let fits = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || (rest[0] == b'-' && rest.len() <= MAX_STATE),
    };
    let is_divided = known[2] == b'-' && known[35] == b'-' && known[52] == b'-';
    let (trace, span) = (hex::<16>(&known[3..35])?, hex::<8>(&known[36..52])?);
    let [flags] = hex(&known[53..])?;
    let are_ids = trace != [0; 16] && span != [0; 8];
    (fits && is_divided && are_ids).then_some((trace, span, flags))
}

/// Lower case only, by the recommendation.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// A list with commas of `name=value`, in visible ASCII.
fn is_list(text: &str, longest: usize, most: usize) -> bool {
    let is_plain = |byte: u8| byte == b' ' || byte == b'\t' || byte.is_ascii_graphic();
    text.len() <= longest
        && text.bytes().all(is_plain)
        && text.split(',').count() <= most
        && text.split(',').all(|entry| entry.trim().is_empty() || entry.contains('='))
        && !text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_and_written_alike() {
        let read = TraceContext::of(PARENT, Some("a=1,b=2"), Some("user=x")).unwrap();
        assert!(read.is_sampled);
        assert_eq!(
            (read.state.as_deref(), read.baggage.as_deref()),
            (Some("a=1,b=2"), Some("user=x"))
        );
        assert_eq!(sampled_parent(read.trace, read.span), PARENT);
        let meta = format!(
            r#"{{"x":1,"traceparent":"{PARENT}","tracestate":"a=1,b=2","baggage":"user=x"}}"#
        );
        assert_eq!(TraceContext::of_meta(meta.as_bytes()), Some(read));
        let off = TraceContext::of(&PARENT.replace("-01", "-00"), None, None).unwrap();
        assert!(!off.is_sampled);
        let later = format!("cc{}-more", &PARENT[2..]);
        assert!(TraceContext::of(&later, None, None).is_some());
    }

    #[test]
    fn nonsense_is_dropped() {
        let long = format!("{PARENT}{}", "0".repeat(10_000));
        for wrong in [
            "",
            "x",
            &PARENT[..54],
            &long,
            &PARENT.to_uppercase(),
            &PARENT.replace("00-4", "ff-4"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &PARENT.replace('-', "_"),
            &PARENT.replace("4bf9", "é9f"),
            &format!("{PARENT}-more"),
        ] {
            assert_eq!(TraceContext::of(wrong, None, None), None, "{wrong}");
        }
        for meta in
            [&br#"{"traceparent":7}"#[..], b"{}", b"traceparent", br#"{"traceparent":null}"#]
        {
            assert_eq!(TraceContext::of_meta(meta), None);
        }
        let entries = vec!["a=1"; 100].join(",");
        for list in ["", " ", "a", "a=\u{e9}", "a=\n", &"a=1".repeat(5_000), &entries] {
            let read = TraceContext::of(PARENT, Some(list), Some(list)).unwrap();
            assert_eq!((read.state, read.baggage), (None, None), "{list}");
        }
    }
}
