//! Replaces parts of a text in one pass: a hostile server decides how many there are.

use std::borrow::Cow;

/// A text and what becomes of its parts.
pub(crate) struct Edits<'a> {
    raw: &'a [u8],
    out: Vec<u8>,
    /// Where the text goes on behind the last part that was replaced.
    copied: usize,
}

impl<'a> Edits<'a> {
    pub(crate) fn new(raw: &'a [u8]) -> Edits<'a> {
        Edits { raw, out: Vec::new(), copied: 0 }
    }

    /// Replaces a slice of the text; they have to come in order.
    pub(crate) fn replace(&mut self, part: &[u8], by: &[u8]) {
        let start = (part.as_ptr() as usize).checked_sub(self.raw.as_ptr() as usize);
        let Some(before) = start.and_then(|start| self.raw.get(self.copied..start)) else { return };
        self.out.extend_from_slice(before);
        self.out.extend_from_slice(by);
        self.copied += before.len() + part.len();
    }

    pub(crate) fn done(mut self) -> Cow<'a, [u8]> {
        if self.copied == 0 {
            return Cow::Borrowed(self.raw);
        }
        self.out.extend_from_slice(self.raw.get(self.copied..).unwrap_or_default());
        Cow::Owned(self.out)
    }
}
