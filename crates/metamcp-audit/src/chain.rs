//! Sealing: an entry becomes a line that continues the chain.
//! Owns: number, time and hashes of a line.      Never: writes it.
//! In: an entry and the head so far.  Out: the line's bytes, and the head after it.
//! Tests: below, and `tests/damage.rs`.

use metamcp_types::date;
use sha2::Digest as _;

use crate::entry::{Entry, number};
use crate::head::{Hash, Head};

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    head: Head,
    /// The last second that was written, and its text up to the milliseconds: most lines share it with the one before.
    second: Option<u64>,
    text: String,
}

impl Chain {
    /// Continues after this line.
    pub fn after(head: Head) -> Chain {
        Chain { head, ..Chain::default() }
    }

    pub fn head(&self) -> Head {
        self.head
    }

    /// Appends the line of an entry.
    pub fn seal(&mut self, out: &mut Vec<u8>, entry: &Entry<'_>) {
        let begin = out.len();
        out.extend_from_slice(b"{\"v\":1,\"seq\":");
        number(out, self.head.seq + 1);
        out.extend_from_slice(b",\"time\":\"");
        self.time(out, entry.at_ms);
        out.push(b'"');
        entry.write(out);
        out.extend_from_slice(b",\"prev\":\"");
        out.extend_from_slice(&self.head.hash.hex());
        out.push(b'"');
        let hash = Hash(sha2::Sha256::digest(&out[begin..]).into());
        out.extend_from_slice(b",\"hash\":\"");
        out.extend_from_slice(&hash.hex());
        out.extend_from_slice(b"\"}\n");
        self.head = Head { seq: self.head.seq + 1, hash };
    }

    /// `2026-03-25T20:04:50.123Z`.
    fn time(&mut self, out: &mut Vec<u8>, at_ms: u64) {
        let second = at_ms / 1000;
        if self.second != Some(second) {
            self.text = date::day(at_ms);
            self.text.pop();
            self.second = Some(second);
        }
        out.extend_from_slice(self.text.as_bytes());
        let millis = at_ms % 1000;
        let digit = |of: u64| b'0' + (millis / of % 10) as u8;
        out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::entry::{Kind, Who};

    #[test]
    fn each_line_names_the_one_before_and_can_be_checked_with_a_shell() {
        let mut chain = Chain::default();
        let mut out = Vec::new();
        for at_ms in [1_774_469_090_347, 1_774_469_090_999, 1_774_469_091_007] {
            let entry = Entry {
                at_ms,
                kind: Kind::Gateway,
                who: Who::default(),
                what: &[],
                verdict: "started",
                arguments: None,
                result: None,
            };
            chain.seal(&mut out, &entry);
        }
        let lines: Vec<&[u8]> = out.split_inclusive(|byte| *byte == b'\n').collect();
        let read: Vec<Value> =
            lines.iter().map(|line| serde_json::from_slice(line).unwrap()).collect();
        let times: Vec<&Value> = read.iter().map(|line| &line["time"]).collect();
        assert_eq!(
            times,
            ["2026-03-25T20:04:50.347Z", "2026-03-25T20:04:50.999Z", "2026-03-25T20:04:51.007Z"]
        );
        assert_eq!(read[0]["prev"], Hash::default().to_string());
        assert_eq!((&read[1]["prev"], &read[2]["prev"]), (&read[0]["hash"], &read[1]["hash"]));
        assert_eq!((&read[2]["seq"], chain.head().seq), (&Value::from(3), 3));
        assert_eq!(read[2]["hash"], chain.head().hash.to_string());
        // What the manual says: the hash is that of the line up to `,"hash":`.
        let text = std::str::from_utf8(lines[1]).unwrap();
        let hashed = text.split(",\"hash\":").next().unwrap();
        assert_eq!(read[1]["hash"], crate::digest(hashed.as_bytes()).to_string());
    }
}
