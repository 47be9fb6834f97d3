//! The bodies of the fuzz targets on generated texts and on a small corpus, so that every test run exercises them.

#[path = "bodies/bridge.rs"]
mod bridge;
#[path = "bodies/codec.rs"]
mod codec;
#[path = "bodies/envelope.rs"]
mod envelope;
#[path = "bodies/sse.rs"]
mod sse;

use proptest::collection::vec;
use proptest::prelude::*;

/// Texts at the edges of the grammar and of the protocol.
const CORPUS: &[&[u8]] = &[
    b"",
    b" ",
    b"null",
    b"nul",
    b"[]",
    b"[ ]",
    b"[1,]",
    b"[,1]",
    b"[1 2]",
    b"{}",
    b"{,}",
    b"{\"a\"}",
    b"{\"a\":}",
    b"{\"a\":1,}",
    b"{a:1}",
    b"[}",
    b"{]",
    b"[[]",
    b"{}{}",
    b"0",
    b"-",
    b"-0",
    b"00",
    b"01",
    b"1.",
    b".5",
    b"1.5e",
    b"1.5e+",
    b"1.5E-7",
    b"1e400",
    b"-1e400",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"123456789012345678901234567890",
    b"0.1000000000000000055511151231257827",
    b"+1",
    b"NaN",
    b"Infinity",
    b"\"",
    b"\"\\\"",
    b"\"\\",
    b"\"\\u\"",
    b"\"\\u00\"",
    b"\"\\u00g0\"",
    b"\"\\x\"",
    b"\"\\ud83d\\ude00\"",
    b"\"\\ud83d\"",
    b"\"\\ude00\"",
    b"\"\\ud83dx\"",
    b"\"\\ud83d\\n\"",
    b"\"\\ud83d\\u0041\"",
    b"\"\\ud83d\\ud83d\\ude00\"",
    b"\"a\x00b\"",
    b"\"a\x1fb\"",
    b"\"a\x7fb\"",
    b"\"\\u0000\"",
    b"\"\xff\"",
    b"\"\xed\xa0\x80\"",
    b"\"\xc0\xaf\"",
    b"\xff",
    b"\xef\xbb\xbf{}",
    "\"grüße, 漢字, 😀\"".as_bytes(),
    b"'a'",
    b"// comment\n1",
    b"tru",
    b"truee",
    b"true false",
    b"\r\n\t 1 \r\n",
    b"\x0c1",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
    b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"x/y\",\"params\":{\"a\":[1,2,{\"b\":null}]}}",
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
    b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":null}",
    b"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":7}",
    b"{\"result\":{\"content\":[]},\"jsonrpc\":\"2.0\",\"id\":7}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1.0,\"result\":null}",
    b"{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"result\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"x\"}}",
    b"{\"jsonrpc\":\"2.0\",\"error\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"x\"}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"result\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"result\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"Id\":2,\"result\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\\u0000\":2,\"result\":{}}",
    b"{\"jsonrpc\":\"2.0\",\"\\u0069d\":1,\"result\":{}}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"reſult\":{}}".as_bytes(),
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"x\":0,\"x\":0,\"result\":{}}",
    b"{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}",
    b"{\"jsonrpc\":2.0,\"id\":1,\"result\":{}}",
    b"{\"jsonrpc\":\"2\\u002e0\",\"id\":1,\"result\":{}}",
    b"{\"level\":\"info\",\"msg\":\"started\"}",
    b"{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"m\"}",
    b"[{\"jsonrpc\":\"2.0\",\"method\":\"m\"}, 7 ]",
    b"{ \"a\" : 1 , \"k\" : 2 , \"b\" : 3 }",
    b"{\"k\":1,\"k\":2,\"a\":3,\"k\":4}",
    b"{\"\":0,\"\\u0000\":1}",
];

#[test]
fn agrees_with_serde_json_on_the_corpus() {
    for text in CORPUS {
        envelope::check(text);
        // The same with another alignment, and inside a longer text.
        let nested = [b"[\"0123456789\", ".as_slice(), text, b"]"].concat();
        envelope::check(&nested);
        bridge::check(text);
        bridge::check(&nested);
    }
}

#[test]
fn every_cut_and_every_byte_of_a_message_agrees() {
    for text in CORPUS.iter().filter(|text| text.starts_with(b"{\"jsonrpc")) {
        for cut in 0..text.len() {
            envelope::check(&text[..cut]);
            for byte in [0, b'"', b'\\', b'{', b'}', b',', b' ', 0x80] {
                let mut changed = text.to_vec();
                changed[cut] = byte;
                envelope::check(&changed);
            }
        }
    }
}

#[test]
fn splits_the_corpus_like_a_naive_splitter() {
    let stream = CORPUS.join(&b"\r\n"[..]);
    for limit in [0, 1, 16, 40, 60, 255] {
        for sizes in [&[1_u8][..], &[7], &[255], &[3, 90, 1, 1, 14]] {
            let head = [limit, sizes.len() as u8];
            codec::check(&[&head, sizes, &stream].concat());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_serde_json_on_json(text in json()) {
        envelope::check(text.as_bytes());
    }

    #[test]
    fn any_history_between_the_eras(events in vec(any::<u8>(), 0..200), text in json()) {
        bridge::check(&events);
        bridge::check(text.as_bytes());
    }

    #[test]
    fn agrees_with_serde_json_on_messages(text in message()) {
        envelope::check(text.as_bytes());
    }

    #[test]
    fn agrees_with_serde_json_on_damaged_messages(
        text in message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        how in 0..3,
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
        envelope::check(&bytes);
    }

    #[test]
    fn agrees_with_serde_json_on_noise(bytes in vec(prop::sample::select(b"{}[]\":,\\u0dE-.1tn \r\x00\x1f\xc3\xa9".to_vec()), 0..40)) {
        envelope::check(&bytes);
    }

    #[test]
    fn long_strings_agree(
        run in "[ -~é漢😀]{0,300}",
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = format!("\"{run}\"").into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        envelope::check(&bytes);
    }

    #[test]
    fn splits_like_a_naive_splitter(
        limit in any::<u8>(),
        sizes in vec(any::<u8>(), 0..8),
        lines in vec(prop_oneof![
            message(),
            "[ \t\r]{0,3}",
            "\u{feff}?[ -~]{0,80}\r?",
            "\\{(\"(id|method|a)\":(1|\"x\"|\\{\\}|-2.5 ),?){0,4}\\}?",
        ], 0..12),
    ) {
        let mut data = vec![limit, sizes.len() as u8];
        data.extend(sizes);
        data.extend(lines.join("\n").into_bytes());
        codec::check(&data);
    }

    #[test]
    fn any_slicing_of_a_stream_gives_the_same_events(
        limit in any::<u8>(),
        sizes in vec(any::<u8>(), 0..8),
        mark in any::<bool>(),
        lines in vec(prop_oneof![
            4 => "data: ?[ -~]{0,60}",
            2 => Just(String::new()),
            1 => message().prop_map(|text| format!("data: {text}")),
            1 => "(event|id|retry|data|:|x)(: ?[a-z0-9]{0,10})?",
            1 => "[ -~é]{0,20}",
            1 => (2000..2100_usize).prop_map(|length| format!("id: {}", "i".repeat(length))),
        ], 0..16),
        ends in vec(prop::sample::select(vec!["\n", "\r\n", "\r", "\n\n"]), 16),
    ) {
        let mut data = vec![limit, sizes.len() as u8];
        data.extend(sizes);
        data.extend(if mark { "\u{feff}" } else { "" }.as_bytes());
        for (line, end) in lines.iter().zip(&ends) {
            data.extend(line.as_bytes());
            data.extend(end.as_bytes());
        }
        sse::check(&data);
    }
}

/// Any JSON text, with spaces, escapes and numbers of all sorts.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        string(),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        prop_oneof![
            vec((space(), inner.clone(), space()), 0..6).prop_map(|elements| {
                let texts: Vec<_> = elements.iter().map(|(a, e, b)| format!("{a}{e}{b}")).collect();
                format!("[{}]", texts.join(","))
            }),
            vec((space(), string(), space(), inner, space()), 0..6).prop_map(|members| {
                let texts: Vec<_> =
                    members.iter().map(|(a, k, b, v, c)| format!("{a}{k}{b}:{a}{v}{c}")).collect();
                format!("{{{}}}", texts.join(","))
            }),
        ]
    })
}

fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ !#-\\[\\]-~]{0,12}",
        1 => "[é漢😀\u{7f}]{1,3}",
        1 => r#"\\["\\/bfnrt]"#,
        1 => "\\\\u00[0-9a-fA-F]{2}",
        1 => "\\\\ud83d\\\\ude0[0-9]",
        1 => "\\\\u[dD][89a-fA-F][0-9a-f]{2}",
    ];
    vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![6 => Just(String::new()), 1 => "[ \t\r\n]{1,3}"]
}

/// Something close to a message: known members in any order, some twice, some misspelt.
fn message() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => Just("jsonrpc"),
        6 => Just("id"),
        4 => Just("method"),
        3 => Just("params"),
        4 => Just("result"),
        3 => Just("error"),
        1 => Just("\\u0069d"),
        1 => Just("ID"),
        1 => Just("result\\u0000"),
        1 => Just("other"),
        1 => Just("_meta"),
    ];
    let value = prop_oneof![
        6 => Just("\"2.0\"".to_owned()),
        4 => Just("7".to_owned()),
        2 => Just("\"tools/call\"".to_owned()),
        2 => Just("{}".to_owned()),
        1 => Just("null".to_owned()),
        3 => json(),
    ];
    let likely = prop_oneof![
        3 => Just(String::new()),
        2 => Just("\"jsonrpc\":\"2.0\",".to_owned()),
        2 => Just("\"jsonrpc\":\"2.0\",\"id\":7,".to_owned()),
        1 => Just("\"id\":\"x\",\"jsonrpc\":\"2.0\",\"method\":\"m\",".to_owned()),
    ];
    (likely, vec((name, value, space()), 1..5)).prop_map(|(likely, members)| {
        let texts: Vec<_> = members.iter().map(|(k, v, s)| format!("\"{k}\":{s}{v}")).collect();
        format!("{{{likely}{}}}", texts.join(","))
    })
}
