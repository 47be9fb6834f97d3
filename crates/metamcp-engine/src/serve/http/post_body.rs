//! A POST body: one message, or a batch as revision 2025-03-26 allowed. Pure.

use std::borrow::Cow;

use bytes::Bytes;
use metamcp_wire::envelope::Envelope;
use metamcp_wire::scan::Defect;
use metamcp_wire::write;

/// A parsed body.
#[derive(Debug, PartialEq, Eq)]
pub struct PostBody<'a> {
    /// The messages.
    pub messages: Vec<Envelope<'a>>,
    /// Whether they came as a batch.
    pub batch: bool,
}

impl<'a> PostBody<'a> {
    /// Parses a body. One bad message rejects the whole batch: an error without an id could not be attributed.
    pub fn read(body: &'a [u8]) -> Result<PostBody<'a>, Defect> {
        match Envelope::parse(body)? {
            Envelope::Batch(parts) => {
                let messages: Result<Vec<Envelope<'a>>, Defect> =
                    parts.into_iter().map(Envelope::parse).collect();
                Ok(PostBody { messages: messages?, batch: true })
            }
            message => Ok(PostBody { messages: vec![message], batch: false }),
        }
    }

    /// The ids of the requests.
    pub fn requests(&self) -> Vec<Bytes> {
        let ids = self.messages.iter().filter_map(|message| match message {
            Envelope::Request { id, .. } => Some(Bytes::copy_from_slice(id.raw())),
            _ => None,
        });
        ids.collect()
    }

    /// The params of the request that it is, if it is one alone.
    pub fn params(&self) -> Option<&'a [u8]> {
        match &self.messages[..] {
            [Envelope::Request { params, .. }] if !self.batch => *params,
            _ => None,
        }
    }

    /// Whether a message begins a session.
    pub fn initializes(&self) -> bool {
        self.has("initialize")
    }

    /// Whether one of its requests has this method.
    pub fn has(&self, wanted: &str) -> bool {
        self.messages
            .iter()
            .any(|message| matches!(message, Envelope::Request { method, .. } if method == wanted))
    }
}

/// A body as one line, which stdio servers need. It is parsed before any byte is changed: a line break inside a string is
/// invalid JSON and must not be turned into something valid.
pub fn one_line(body: Bytes) -> Result<Bytes, Defect> {
    if let Cow::Borrowed(_) = write::one_line(&body) {
        return Ok(body);
    }
    PostBody::read(&body)?;
    Ok(Bytes::from(write::one_line(&body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_its_messages() {
        let body = br#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","id":"x","method":"initialize"}]"#;
        let post_body = PostBody::read(body).unwrap();
        assert!(post_body.batch && post_body.initializes());
        assert_eq!(post_body.requests(), [Bytes::from_static(b"1"), Bytes::from_static(b"\"x\"")]);
        let nested = br#"[[{"jsonrpc":"2.0","method":"b"}]]"#;
        assert!(!matches!(PostBody::read(nested).unwrap().messages[0], Envelope::Request { .. }));
        for bad in [&b"[]"[..], b"[1]", b"", b"{}", br#"[{"jsonrpc":"2.0","method":"b"},{}]"#] {
            assert!(PostBody::read(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn line_breaks_between_tokens_go_and_those_in_strings_are_defects() {
        let body = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\r\n \"method\":\"b\"\n}");
        assert_eq!(&one_line(body).unwrap()[..], b"{\"jsonrpc\":\"2.0\",   \"method\":\"b\" }");
        let body = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"method\":\"a\nb\"}");
        assert!(one_line(body).is_err());
    }
}
