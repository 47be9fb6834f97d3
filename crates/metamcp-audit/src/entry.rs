//! One event, before it is a line: who, what, when, how it ended, and digests of what went in and came out.
//! Owns: the kinds of events, their fields, their written form without the chain.      Never: decides which values may be written.
//! In: facts.  Out: JSON up to the hashes.
//! Tests: below, and `chain.rs`.

use sha2::Digest as _;

use crate::head::Hash;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call that ended, or was refused.
    Call,
    /// A call that is about to be sent; written only where nothing may be sent unrecorded.
    Begun,
    /// A decision on the installation of a server.
    Approval,
    /// A server was installed, was not, or was removed.
    Installation,
    /// A sign-in at a remote server.
    Login,
    /// A decision on a project's file.
    Trust,
    /// The configuration changed.
    Config,
    /// Somebody was not let in.
    Refusal,
    /// A gateway began or ended.
    Gateway,
    /// Lines could not be written.
    Lost,
    /// The line before is cut: its writer died while writing it.
    Resumed,
    /// The first line of a file.
    File,
}

impl Kind {
    pub const ALL: [Kind; 12] = [
        Kind::Call,
        Kind::Begun,
        Kind::Approval,
        Kind::Installation,
        Kind::Login,
        Kind::Trust,
        Kind::Config,
        Kind::Refusal,
        Kind::Gateway,
        Kind::Lost,
        Kind::Resumed,
        Kind::File,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Kind::Call => "call",
            Kind::Begun => "begun",
            Kind::Approval => "approval",
            Kind::Installation => "installation",
            Kind::Login => "login",
            Kind::Trust => "trust",
            Kind::Config => "config",
            Kind::Refusal => "refusal",
            Kind::Gateway => "gateway",
            Kind::Lost => "lost",
            Kind::Resumed => "resumed",
            Kind::File => "file",
        }
    }

    pub fn from_word(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Who did it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who<'a> {
    /// `owner`, `token:NAME`, `sub:NAME`.
    pub principal: &'a str,
    /// The process that wrote the line; sessions and calls are counted in it.
    pub pid: u32,
    pub session: Option<u64>,
    /// Name and version of the client, as it gives them.
    pub client: Option<(&'a str, &'a str)>,
}

/// One fact about what was done.
#[derive(Clone, Copy, Debug)]
pub enum Fact<'a> {
    Text(&'a str),
    Number(u64),
    /// A length of time in microseconds, written in milliseconds.
    Micros(u64),
    Texts(&'a [String]),
    Is(bool),
}

/// SHA-256 of arguments or a result.
pub type Digest = Hash;

/// The digest of some bytes.
pub fn digest(bytes: &[u8]) -> Digest {
    Hash(sha2::Sha256::digest(bytes).into())
}

/// Arguments or a result.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// None where they were too many at once to be read.
    pub digest: Option<Digest>,
    pub bytes: usize,
    /// The value itself, redacted, and whether it is only the beginning.
    pub value: Option<(&'a str, bool)>,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    pub kind: Kind,
    pub who: Who<'a>,
    pub what: &'a [(&'static str, Fact<'a>)],
    /// How it ended, in one word.
    pub verdict: &'a str,
    pub arguments: Option<Part<'a>>,
    pub result: Option<Part<'a>>,
}

impl Entry<'_> {
    /// Appends the fields after `time`, each with a comma in front.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"kind\":\"");
        out.extend_from_slice(self.kind.word().as_bytes());
        out.extend_from_slice(b"\",\"who\":{\"principal\":");
        text(out, self.who.principal);
        out.extend_from_slice(b",\"pid\":");
        number(out, u64::from(self.who.pid));
        if let Some(session) = self.who.session {
            out.extend_from_slice(b",\"session\":");
            number(out, session);
        }
        if let Some((name, version)) = self.who.client {
            out.extend_from_slice(b",\"client\":");
            text(out, name);
            out.extend_from_slice(b",\"version\":");
            text(out, version);
        }
        out.extend_from_slice(b"},\"what\":{");
        for (at, (name, fact)) in self.what.iter().enumerate() {
            out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            fact.write(out);
        }
        out.extend_from_slice(b"},\"verdict\":");
        text(out, self.verdict);
        for (name, part) in [("arguments", &self.arguments), ("result", &self.result)] {
            let Some(part) = part else { continue };
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            part.write(out);
        }
    }
}

impl Fact<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Fact::Text(fact) => text(out, fact),
            Fact::Number(fact) => number(out, fact),
            Fact::Micros(fact) => {
                number(out, fact / 1000);
                let digit = |of: u64| b'0' + (fact / of % 10) as u8;
                out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
            }
            Fact::Is(fact) => out.extend_from_slice(if fact { b"true" } else { b"false" }),
            Fact::Texts(facts) => {
                out.push(b'[');
                for (at, fact) in facts.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    text(out, fact);
                }
                out.push(b']');
            }
        }
    }
}

impl Part<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"bytes\":");
        number(out, self.bytes as u64);
        if let Some(digest) = &self.digest {
            out.extend_from_slice(b",\"sha256\":\"");
            out.extend_from_slice(&digest.hex());
            out.push(b'"');
        }
        if let Some((value, is_cut)) = self.value {
            out.extend_from_slice(b",\"value\":");
            text(out, value);
            if is_cut {
                out.extend_from_slice(b",\"cut\":true");
            }
        }
        out.push(b'}');
    }
}

/// A JSON string: whatever is in it, the line stays one line.
fn text(out: &mut Vec<u8>, text: &str) {
    #[expect(
        clippy::needless_bitwise_bool,
        reason = "without an early end many bytes are looked at in one step"
    )]
    let is_special = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    if !text.bytes().fold(false, |any, byte| any | is_special(byte)) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else if serde_json::to_writer(&mut *out, text).is_err() {
        // Neither the text nor the memory it goes to can refuse.
        out.extend_from_slice(b"\"\"");
    }
}

pub(crate) fn number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn whatever_is_recorded_is_one_line_of_json() {
        let names = ["a\n\"b".to_owned(), "\u{2028}".to_owned()];
        let what = [
            ("server", Fact::Text("x\ty\\")),
            ("call", Fact::Number(u64::MAX)),
            ("added", Fact::Texts(&names)),
            ("required", Fact::Is(true)),
            ("ms", Fact::Micros(12_034)),
        ];
        let part = Part { digest: Some(digest(b"{}")), bytes: 2, value: Some(("{\n}", true)) };
        let entry = Entry {
            at_ms: 0,
            kind: Kind::Config,
            who: Who {
                principal: "owner",
                pid: 0,
                session: Some(7),
                client: Some(("c\u{1}", "1")),
            },
            what: &what,
            verdict: "ok",
            arguments: Some(part),
            result: Some(Part { digest: None, bytes: 10, value: None }),
        };
        let mut out = b"{\"v\":1".to_vec();
        entry.write(&mut out);
        out.push(b'}');
        assert!(!out.contains(&b'\n'));
        let read: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            read["who"],
            json!({ "principal": "owner", "pid": 0, "session": 7, "client": "c\u{1}", "version": "1" })
        );
        assert_eq!(
            read["what"],
            json!({ "server": "x\ty\\", "call": u64::MAX, "added": names, "required": true, "ms": 12.034 })
        );
        assert_eq!(
            read["arguments"]["sha256"],
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
        assert_eq!(
            (&read["arguments"]["value"], &read["arguments"]["cut"]),
            (&json!("{\n}"), &json!(true))
        );
        assert_eq!(read["result"], json!({ "bytes": 10 }));
    }

    #[test]
    fn every_kind_has_a_word_of_its_own() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(Kind::from_word("nothing"), None);
    }
}
