//! The end of the chain: the number and hash of its last line, and the note of it that is kept beside the files.
//! Owns: their written forms.      Never: trusts a note (`verify` compares it).
//! In: text.  Out: `Head`, `HeadNote`, or why it is neither.
//! Tests: below.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The same in hexadecimal, 64 characters.
    pub fn hex(&self) -> [u8; 64] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (at, byte) in self.0.iter().enumerate() {
            hex[2 * at] = DIGITS[usize::from(byte >> 4)];
            hex[2 * at + 1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }

    /// Reads 64 digits, lower case only: each hash has one written form.
    pub fn from_hex(hex: &[u8]) -> Option<Hash> {
        let hex: &[u8; 64] = hex.try_into().ok()?;
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = digit(hex[2 * at])? << 4 | digit(hex[2 * at + 1])?;
        }
        Some(Hash(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.hex()).unwrap_or_default())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The last line of a chain. Whoever notes it elsewhere can prove later that nothing up to it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Head {
    /// Its number: the first line has 1.
    pub seq: u64,
    pub hash: Hash,
}

impl Head {
    /// Before the first line.
    pub const ORIGIN: Head = Head { seq: 0, hash: Hash([0; 32]) };
}

/// `NUMBER:HASH`, for people to note.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// Text that is no head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a head is written NUMBER:HASH, as `metamcp audit head` prints it")]
pub struct HeadError;

impl FromStr for Head {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Head, HeadError> {
        let (seq, hash) = text.trim().split_once(':').ok_or(HeadError)?;
        let seq = seq.parse().map_err(|_| HeadError)?;
        let hash = Hash::from_hex(hash.to_ascii_lowercase().as_bytes()).ok_or(HeadError)?;
        Ok(Head { seq, hash })
    }
}

/// Where the chain ends, as the last writer noted it beside the files: what tells that lines were removed from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HeadNote {
    /// The number of the file that the last line is in, and the bytes of that file.
    pub file: u64,
    pub size: u64,
    /// The oldest file that the limit has left.
    pub oldest: u64,
    pub head: Head,
}

impl HeadNote {
    /// Every note is this long, so that one is written over another in one piece.
    pub const LENGTH: usize = 224;

    pub fn to_bytes(&self) -> Vec<u8> {
        let HeadNote { file, size, oldest, head: Head { seq, hash } } = self;
        let mut note = format!(
            "{{\"v\":1,\"file\":{file},\"size\":{size},\"oldest\":{oldest},\"seq\":{seq},\"hash\":\"{hash}\"}}"
        );
        while note.len() < Self::LENGTH - 1 {
            note.push(' ');
        }
        note.push('\n');
        note.into_bytes()
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<HeadNote> {
        let note: Value = serde_json::from_slice(bytes).ok()?;
        let number = |name: &str| note.get(name)?.as_u64();
        if number("v")? != 1 {
            return None;
        }
        let hash = Hash::from_hex(note.get("hash")?.as_str()?.as_bytes())?;
        let head = Head { seq: number("seq")?, hash };
        let (file, size) = (number("file")?, number("size")?);
        Some(HeadNote { file, size, oldest: number("oldest")?, head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is() {
        let head = Head { seq: 77, hash: Hash([0xa7; 32]) };
        assert_eq!(head.to_string().parse(), Ok(head));
        for wrong in ["", "77", "77:", "x:00", &format!("77:{}", "g".repeat(64))] {
            assert_eq!(wrong.parse::<Head>(), Err(HeadError), "{wrong}");
        }
        let most = HeadNote {
            file: u64::MAX,
            size: u64::MAX,
            oldest: u64::MAX,
            head: Head { seq: u64::MAX, ..head },
        };
        for note in [HeadNote::default(), HeadNote { file: 3, size: 12, oldest: 2, head }, most] {
            assert_eq!(note.to_bytes().len(), HeadNote::LENGTH);
            assert_eq!(HeadNote::from_bytes(&note.to_bytes()), Some(note));
        }
        assert_eq!(HeadNote::from_bytes(&[0; HeadNote::LENGTH]), None);
        assert_eq!(HeadNote::from_bytes(&most.to_bytes()[..100]), None);
    }
}
