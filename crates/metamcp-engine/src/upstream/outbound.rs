//! Messages to one server: the only way to queue one is as a line of JSON, validated as it is written.
//! Owns: the outbox of a connection.      Never: takes raw bytes, which could contain several lines.
//! In: messages, through `wire::write::Line`.  Out: batches for the writer, or for the task that posts them.
//! Tests: below, `wire/src/write/line.rs`, and `metamcp/tests/hazards/frames.rs` with a worker that sends arbitrary values.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use metamcp_wire::scan::Defect;
use metamcp_wire::write::{Json, Line};
use tokio::io::AsyncWrite;

use crate::clock::Clock;
use crate::outbox::{Outbox, WriteEnd};

#[derive(Debug, Default)]
pub struct Outbound(Outbox);

impl Outbound {
    /// Queues one message; returns the stream position of its end.
    ///
    /// # Errors
    /// Part of it is not valid JSON. Nothing was queued.
    pub fn push(&self, build: impl FnOnce(&mut Line<'_>)) -> Result<u64, Defect> {
        self.0.try_push(|out| Line::append(out, build))
    }

    /// Queues one message whose middle is long and shared: a value, or an open object for `tail` to close. `tail` gets whether
    /// that object is still empty.
    ///
    /// # Errors
    /// As with [`Outbound::push`].
    pub fn push_long(
        &self,
        head: impl FnOnce(&mut Line<'_>),
        (body, is_open): (Bytes, bool),
        tail: impl FnOnce(&mut Line<'_>, bool),
    ) -> Result<u64, Defect> {
        let json = Json::new(body)?;
        let (body, is_empty) = if is_open { json.opened()? } else { (json.into_bytes(), false) };
        let (mut before, mut after) = (BytesMut::new(), BytesMut::new());
        Line::part(&mut before, head)?;
        Line::append(&mut after, |line| tail(line, is_empty))?;
        Ok(self.0.push_parts(&before, body, &after))
    }

    /// See [`Outbox::was_sent`].
    pub fn was_sent(&self, end: u64) -> bool {
        self.0.was_sent(end)
    }

    /// See [`Outbox::stands`].
    pub fn stands(&self) -> (u64, u64) {
        self.0.stands()
    }

    pub fn backlog(&self) -> u64 {
        self.0.backlog()
    }

    pub fn close(&self) {
        self.0.close();
    }

    /// Writes until closed, broken, or stalled for the given time. The only writer.
    pub async fn write_to<W: AsyncWrite + Unpin>(
        &self,
        writer: W,
        patience: Option<(Clock, Duration)>,
    ) -> WriteEnd {
        self.0.write_to(writer, patience).await
    }

    /// Takes the queued messages; see [`Outbox::next`].
    pub async fn next(&self, batch: &mut VecDeque<Bytes>) -> bool {
        self.0.next(batch).await
    }

    /// So many bytes of what was taken were sent.
    pub fn took(&self, bytes: usize) {
        self.0.took(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn written(outbound: &Outbound) -> String {
        outbound.close();
        let mut out = Vec::new();
        assert!(matches!(outbound.write_to(&mut out, None).await, WriteEnd::Closed));
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn a_refused_message_leaves_no_bytes_in_the_queue() {
        let outbound = Outbound::default();
        let long = |body: &str, is_open| {
            let body = Bytes::from(format!("{body}{}", " ".repeat(64 * 1024)));
            outbound.push_long(
                |line| line.text("<"),
                (body, is_open),
                |line, is_empty| line.text(if is_empty { "empty>" } else { ">" }),
            )
        };
        outbound.push(|line| line.json(b"{\"a\":\n1}")).unwrap();
        let before = outbound.backlog();
        assert!(outbound.push(|line| line.json(b"{}\n{}")).is_err());
        assert!(long("{}\n{}", false).is_err());
        assert!(long("{}}", true).is_err());
        assert!(long("[]", true).is_err());
        assert_eq!(outbound.backlog(), before);
        long("{\"a\":\n\"\u{2028}\"}", false).unwrap();
        long("{\"b\":\r1}", true).unwrap();
        long("{ }", true).unwrap();
        let spaces = " ".repeat(64 * 1024);
        let expected =
            ["{\"a\": 1}\n", "<{\"a\": \"\\u2028\"}", &spaces, ">\n<{\"b\": 1>\n<{empty>\n"];
        assert_eq!(written(&outbound).await, expected.concat());
    }
}
