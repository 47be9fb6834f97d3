use super::strings::WINDOW;
use super::*;

fn kind(text: &[u8]) -> Option<Kind> {
    check(text, MAX_DEPTH).err().map(|defect| defect.kind)
}

#[test]
fn says_what_is_wrong_and_where() {
    let cases: [(&[u8], Kind, usize); 22] = [
        (b"", Kind::End, 0),
        (b"  ", Kind::End, 2),
        (b"[1, 2", Kind::End, 5),
        (b"{\"a\"", Kind::End, 4),
        (b"\"abc", Kind::End, 4),
        (b"\"a\\", Kind::End, 3),
        (b"[1 2]", Kind::Unexpected, 3),
        (b"[1}", Kind::Unexpected, 2),
        (b"{\"a\":1]", Kind::Unexpected, 6),
        (b"{\"a\":1,}", Kind::Unexpected, 7),
        (b"[1,]", Kind::Unexpected, 3),
        (b"nulL", Kind::Unexpected, 3),
        (b"hello", Kind::Unexpected, 0),
        (b"\x00", Kind::Unexpected, 0),
        (b"{} x", Kind::Trailing, 3),
        (b"\"a\\x\"", Kind::Escape, 3),
        (b"\"\\u12g4\"", Kind::Escape, 5),
        (b"\"a\tb\"", Kind::Control, 2),
        (b"\"a\x00b\"", Kind::Control, 2),
        (b"[01]", Kind::Number, 2),
        (b"-x", Kind::Number, 1),
        (b"[\"\xc3\xa9\xff\"]", Kind::Encoding, 4),
    ];
    for (text, kind, at) in cases {
        let shown = String::from_utf8_lossy(text);
        assert_eq!(check(text, MAX_DEPTH), Err(Defect { kind, at }), "{shown}");
    }
}

#[test]
fn a_defect_reads_as_a_fragment() {
    let defect = check(b"[1 2]", MAX_DEPTH).expect_err("two values without a comma");
    assert_eq!(defect.to_string(), "unexpected character at byte 3");
}

#[test]
fn depth_is_counted_in_open_containers() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    for limit in [0, 1, 63, 64, 65, 127, 511, MAX_RESULT_DEPTH] {
        assert_eq!(check(&nested(limit), limit).is_ok(), limit > 0);
        let defect = check(&nested(limit + 1), limit).expect_err("one level too deep");
        assert_eq!(defect, Defect { kind: Kind::Depth, at: limit });
    }
    // What is asked for beyond what can be remembered is cut down to that.
    assert!(check(&nested(MAX_RESULT_DEPTH), usize::MAX).is_ok());
    assert!(check(&nested(MAX_RESULT_DEPTH + 1), usize::MAX).is_err());
}

#[test]
fn hostile_depth_costs_neither_stack_nor_time() {
    for opener in [&b"["[..], b"{\"a\":", b"[{\"a\":"] {
        let text = opener.repeat(100_000);
        assert_eq!(kind(&text), Some(Kind::Depth));
    }
}

#[test]
fn objects_and_arrays_are_told_apart_at_every_depth() {
    let mut text = Vec::new();
    let mut closers = Vec::new();
    for level in 0..MAX_RESULT_DEPTH {
        let object = level % 3 == 0 || level % 7 == 2;
        text.extend_from_slice(if object { b"{\"k\":" } else { b"[" });
        closers.push(if object { b'}' } else { b']' });
    }
    text.push(b'1');
    let opened = text.len();
    text.extend(closers.iter().rev());
    assert_eq!(check(&text, MAX_RESULT_DEPTH), Ok(()));
    for at in opened..text.len() {
        let mut wrong = text.clone();
        wrong[at] ^= b'}' ^ b']';
        let defect = check(&wrong, MAX_RESULT_DEPTH).expect_err("wrong closer");
        assert_eq!(defect, Defect { kind: Kind::Unexpected, at });
    }
}

#[test]
fn a_special_byte_is_found_wherever_it_stands() {
    // Long enough for words, windows and the tail; each place has its own code.
    for length in [0, 1, 7, 8, 9, 47, 48, 49, 64, 200, WINDOW - 1, WINDOW, WINDOW + 60] {
        let mut text = vec![b'x'; length + 2];
        text[0] = b'"';
        text[length + 1] = b'"';
        assert_eq!(kind(&text), None, "{length}");
        let places = (1..=length).filter(|at| *at < 80 || at % 97 == 0 || *at + 20 > length);
        for at in places {
            for (byte, expected) in [
                (0x00, Some(Kind::Control)),
                (0x1f, Some(Kind::Control)),
                (0x20, None),
                (0x21, None),
                (0x22, Some(Kind::Trailing)),
                (0x23, None),
                (0x5b, None),
                (0x5d, None),
                (0x7f, None),
                (0x80, Some(Kind::Encoding)),
                (0xa2, Some(Kind::Encoding)),
                (0xdc, Some(Kind::Encoding)),
                (0xff, Some(Kind::Encoding)),
            ] {
                let before = std::mem::replace(&mut text[at], byte);
                assert_eq!(kind(&text), expected, "{byte:#x} at {at} of {length}");
                text[at] = before;
            }
        }
    }
}
