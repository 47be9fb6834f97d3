//! Encoding and decoding of the fields of a frame.

use super::{HEADER, ProtocolViolation, ScriptError};

/// Writes one frame at the end of a buffer; the length is filled in by [`Writer::end`].
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn begin(out: &'a mut Vec<u8>) -> Writer<'a> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER]);
        Writer { out, start }
    }

    pub(super) fn end(self) {
        let length = self.out.len() - self.start - HEADER;
        // A frame above 4 GiB is never made: its texts are bounded long before. If one were, the peer would
        // reject this length.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.out[self.start..self.start + HEADER].copy_from_slice(&length.to_le_bytes());
    }

    pub(super) fn byte(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(super) fn four(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn eight(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn count(&mut self, count: usize) {
        self.four(u32::try_from(count).unwrap_or(u32::MAX));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn error(&mut self, error: &ScriptError) {
        self.text(&error.name);
        self.text(&error.message);
        self.option(error.line, Writer::four);
        self.option(error.column, Writer::four);
        self.text(&error.stack);
        self.option(error.tool_error.as_ref(), |w, json| w.text(json));
    }
}

/// Reads the fields of one frame.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Reader<'a> {
        Reader { rest: frame }
    }

    fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], ProtocolViolation> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(ProtocolViolation::Short { field })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ProtocolViolation> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or(ProtocolViolation::Short { field })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, ProtocolViolation> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(super) fn four(&mut self, field: &'static str) -> Result<u32, ProtocolViolation> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn eight(&mut self, field: &'static str) -> Result<u64, ProtocolViolation> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self, field: &'static str) -> Result<String, ProtocolViolation> {
        let length = self.four(field)? as usize;
        let bytes = self.take(length, field)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ProtocolViolation::Text { field })
    }

    pub(super) fn option<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, ProtocolViolation>,
    ) -> Result<Option<T>, ProtocolViolation> {
        match self.byte(field)? {
            0 => Ok(None),
            1 => read(self).map(Some),
            value => Err(ProtocolViolation::Unknown { field, value }),
        }
    }

    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        most: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, ProtocolViolation>,
    ) -> Result<Vec<T>, ProtocolViolation> {
        let count = self.four(field)? as usize;
        if count > most {
            return Err(ProtocolViolation::TooMany { field, count });
        }
        // No `with_capacity(count)`: the count is untrusted, and entries take more memory than bytes of the frame.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    pub(super) fn error(&mut self) -> Result<ScriptError, ProtocolViolation> {
        Ok(ScriptError {
            name: self.text("name")?,
            message: self.text("message")?,
            line: self.option("line", |r| r.four("line"))?,
            column: self.option("column", |r| r.four("column"))?,
            stack: self.text("stack")?,
            tool_error: self.option("tool_error", |r| r.text("tool_error"))?,
        })
    }

    pub(super) fn finished(&self) -> Result<(), ProtocolViolation> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(ProtocolViolation::Left { bytes }),
        }
    }
}
