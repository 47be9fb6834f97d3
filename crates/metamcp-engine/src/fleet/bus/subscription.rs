//! Messages as they come in: opened, with their sender's name.
//! Owns: that nothing gets through that was not sealed for exactly this subject.      Never: knows what is inside.
//! In: messages of the bus.  Out: payloads and names, answers.
//! Tests: `metamcp/tests/fleet/messages.rs`.

use async_nats::{StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use metamcp_fleet::identity::NodeName;

use super::{Bus, BusError, Refused};

/// A message of somebody who has the cluster's key.
#[derive(Debug)]
pub struct Heard {
    pub from: NodeName,
    pub payload: Bytes,
    subject: async_nats::Subject,
    reply: Option<async_nats::Subject>,
}

impl Heard {
    /// Whether it was sent to that topic of one node.
    pub fn is_about(&self, topic: &str) -> bool {
        self.subject.rsplit('.').nth(1) == Some(topic)
    }

    /// Whether it came by [`Bus::request`].
    pub fn wants_answer(&self) -> bool {
        self.reply.is_some()
    }

    /// Answers [`Bus::request`].
    ///
    /// # Errors
    /// It was not sent.
    pub async fn answer(&self, bus: &Bus, payload: &[u8]) -> Result<(), BusError> {
        let Some(reply) = self.reply.clone() else { return Ok(()) };
        let sealed = bus.seal(&format!("{} answered", self.subject), payload)?;
        Ok(bus.inner.client.publish(reply, sealed).await?)
    }
}

/// Messages to a topic. Those of the bus's queue that nobody reads are dropped, with a line in the log.
pub struct Subscription {
    bus: Bus,
    messages: Subscriber,
}

impl Subscription {
    pub(super) fn new(bus: Bus, messages: Subscriber) -> Subscription {
        Subscription { bus, messages }
    }

    /// The next message. `None` when the connection was closed.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            let message = self.messages.next().await?;
            let from = message.subject.rsplit('.').next().unwrap_or_default();
            let refused = &self.bus.inner.refused;
            let Some(name) = NodeName::parse(from) else {
                refused.note(Refused::Name, from);
                continue;
            };
            match self.bus.inner.seal.open_message(&message.subject, &message.payload) {
                Ok(payload) => {
                    let (subject, reply) = (message.subject, message.reply);
                    return Some(Heard { from: name, payload, subject, reply });
                }
                Err(why) => refused.note(why.into(), from),
            }
        }
    }

    /// Nothing more is delivered: whoever sends hears from the bus that nobody is there. What came before is still read.
    pub async fn stop(&mut self) {
        let stopped = self.messages.drain().await;
        tracing::debug!(is_stopped = stopped.is_ok(), "a subscription ended");
    }

    /// It opened and makes no sense, or comes from another version.
    pub fn refuse(&self, from: &NodeName, why: Refused) {
        self.bus.inner.refused.note(why, from.as_str());
    }
}

/// Numbers of messages that nobody took.
pub struct Undelivered {
    messages: Subscriber,
    skip: usize,
}

impl Undelivered {
    pub(super) fn new(messages: Subscriber, skip: usize) -> Undelivered {
        Undelivered { messages, skip }
    }

    pub async fn next(&mut self) -> Option<u64> {
        loop {
            let message = self.messages.next().await?;
            let number = message.subject.get(self.skip..).and_then(|text| text.parse().ok());
            if message.status == Some(StatusCode::NO_RESPONDERS)
                && let Some(number) = number
            {
                return Some(number);
            }
        }
    }
}
