//! NATS with JetStream, as the nodes of a fleet use it.
//! Owns: the connection, subjects, and that every byte on them is sealed.      Never: knows what a message says.
//! In: bytes, keys, names of nodes.  Out: bytes of those who have the cluster's key, and who says so.
//! Tests: `metamcp/tests/fleet/messages.rs`, with a real nats-server.
//!
//! Subjects end with the name of their sender, so that an account's permissions can hold each node to its own:
//! `PREFIX.to.NODE.TOPIC.SENDER` for one node, `PREFIX.all.TOPIC.SENDER` for all. Whatever is published is sealed with the
//! cluster's key for exactly that subject ([`seal`]); what does not open is refused, counted and logged.

mod connecting;
mod error;
mod kv;
mod link;
mod objects;
mod refused;
mod seal;
mod subscription;

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;

pub use metamcp_fleet::identity::NodeName;

pub use connecting::{BusConfig, Credentials};
pub use error::BusError;
pub use kv::{Bucket, Change, Changes, Kv, Value, Writable};
pub use link::Link;
pub use objects::Objects;
pub use refused::{Refused, RefusedCounts};
pub use subscription::{Heard, Subscription, Undelivered};

use link::Links;
use refused::RefusedLog;
use seal::Seal;

/// How long JetStream has for an answer: what `metamcp_fleet::timing::BUS_ANSWER` waits for.
const ANSWER: Duration = metamcp_fleet::timing::BUS_ANSWER;
/// What a seal, the subject and headers take of the bus's largest message.
const OVERHEAD: usize = 1024;

/// The connection of one node. Cheap to clone.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

struct Inner {
    client: async_nats::Client,
    jetstream: jetstream::Context,
    node: NodeName,
    prefix: Box<str>,
    replicas: usize,
    seal: Seal,
    links: Links,
    refused: RefusedLog,
    /// Where the bus says that nobody took a message, followed by its number. Nobody else can guess it.
    undelivered: Box<str>,
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("node", &self.inner.node).finish_non_exhaustive()
    }
}

impl Bus {
    /// Connects, and tries again for a while where nobody answers. What no patience cures (a wrong password, a certificate
    /// that is not trusted, an account without JetStream) is told at once.
    ///
    /// # Errors
    /// Why there is no bus.
    pub async fn connect(config: BusConfig) -> Result<Bus, BusError> {
        let links = Links::default();
        let client = connecting::client(&config, &links).await?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(ANSWER);
        let undelivered = format!("{}.undelivered", client.new_inbox()).into_boxed_str();
        let bus = Bus {
            inner: Arc::new(Inner {
                client,
                jetstream,
                node: config.node,
                prefix: config.prefix.into_boxed_str(),
                replicas: config.replicas,
                seal: Seal::new(config.keyring),
                links,
                refused: RefusedLog::default(),
                undelivered,
            }),
        };
        bus.inner.jetstream.query_account().await.map_err(|error| error::account(&error))?;
        Ok(bus)
    }

    /// The name of this node.
    pub fn node(&self) -> &NodeName {
        &self.inner.node
    }

    /// Whether the bus is reached now, how often it was, and a way to wait for a change.
    pub fn link(&self) -> tokio::sync::watch::Receiver<Link> {
        self.inner.links.subscribe()
    }

    /// What the bus holds for all nodes under that name; made if it is not there.
    ///
    /// # Errors
    /// Why it cannot be had, with the right to ask for if it is that.
    pub async fn kv(&self, bucket: &Bucket) -> Result<Kv, BusError> {
        Kv::open(self.clone(), bucket).await
    }

    /// Values too long for a key, by name; made if it is not there. Each is gone after `max_age`.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub async fn objects(&self, name: &str, max_age: Duration) -> Result<Objects, BusError> {
        Objects::open(self.clone(), name, max_age).await
    }

    /// The longest payload of one message.
    pub fn max_payload(&self) -> usize {
        self.inner.client.max_payload().saturating_sub(OVERHEAD)
    }

    /// To all nodes that listen to the topic, this one included.
    ///
    /// # Errors
    /// It was not sent. That it was says nothing of who hears it.
    pub async fn broadcast(&self, topic: &str, payload: &[u8]) -> Result<(), BusError> {
        let subject = format!("{}.all.{topic}.{}", self.inner.prefix, self.inner.node.as_str());
        self.publish(subject, payload, None).await
    }

    /// To one node.
    ///
    /// # Errors
    /// It was not sent.
    pub async fn send(&self, to: &NodeName, topic: &str, payload: &[u8]) -> Result<(), BusError> {
        self.publish(self.to(to, topic), payload, None).await
    }

    /// To one node; [`Bus::undelivered`] gives the number out again if the bus says that nobody was there.
    ///
    /// # Errors
    /// It was not sent.
    pub async fn send_tracked(
        &self,
        to: &NodeName,
        topic: &str,
        payload: &[u8],
        number: u64,
    ) -> Result<(), BusError> {
        let reply = format!("{}.{number}", self.inner.undelivered);
        self.publish(self.to(to, topic), payload, Some(reply)).await
    }

    /// The numbers of messages that nobody was there to take.
    ///
    /// # Errors
    /// It cannot be listened to.
    pub async fn undelivered(&self) -> Result<Undelivered, BusError> {
        let subject = format!("{}.*", self.inner.undelivered);
        let messages = self.inner.client.subscribe(subject).await?;
        Ok(Undelivered::new(messages, self.inner.undelivered.len() + 1))
    }

    /// What is sent to this node by [`Bus::send`] and [`Bus::request`].
    ///
    /// # Errors
    /// It cannot be listened to.
    pub async fn inbox(&self, topic: &str) -> Result<Subscription, BusError> {
        let subject = format!("{}.to.{}.{topic}.*", self.inner.prefix, self.inner.node.as_str());
        self.subscribe(subject).await
    }

    /// What is sent to all by [`Bus::broadcast`], by this node too.
    ///
    /// # Errors
    /// It cannot be listened to.
    pub async fn listen(&self, topic: &str) -> Result<Subscription, BusError> {
        self.subscribe(format!("{}.all.{topic}.*", self.inner.prefix)).await
    }

    /// Asks one node, which answers by [`Heard::answer`].
    ///
    /// # Errors
    /// Nobody was there, nobody answered in time, or the answer does not open.
    pub async fn request(
        &self,
        to: &NodeName,
        topic: &str,
        payload: &[u8],
        limit: Duration,
    ) -> Result<Bytes, BusError> {
        let subject = self.to(to, topic);
        let sealed = self.seal(&subject, payload)?;
        let request = async_nats::Request::new().payload(sealed).timeout(Some(limit));
        let answer = self.inner.client.send_request(subject.clone(), request).await?;
        // For the question it answers, so that no other answer can be given instead.
        let place = format!("{subject} answered");
        self.inner.seal.open_message(&place, &answer.payload).map_err(|why| {
            self.inner.refused.note(why.into(), to.as_str());
            BusError::NotOpened(why)
        })
    }

    /// Waits until everything that was published has left for the bus.
    ///
    /// # Errors
    /// The bus is not reached.
    pub async fn flush(&self) -> Result<(), BusError> {
        self.inner.client.flush().await.map_err(|_| BusError::Gone)
    }

    /// Waits until the bus has taken what was said so far, subscriptions too: whoever sends from then on is heard.
    ///
    /// # Errors
    /// The bus does not answer.
    pub async fn settled(&self) -> Result<(), BusError> {
        // A question on the same connection is answered after everything before it.
        self.inner.jetstream.query_account().await.map(drop).map_err(|error| error::account(&error))
    }

    /// What was refused since the start, by reason: messages without the key, of another version, too long.
    pub fn refused(&self) -> RefusedCounts {
        self.inner.refused.counts()
    }

    /// Ends the connection; everything that was published leaves first.
    pub async fn close(&self) {
        let drained = self.inner.client.drain().await;
        tracing::debug!(is_closed = drained.is_ok(), "the connection to the bus is closed");
    }

    fn to(&self, node: &NodeName, topic: &str) -> String {
        let (prefix, from) = (&self.inner.prefix, self.inner.node.as_str());
        format!("{prefix}.to.{}.{topic}.{from}", node.as_str())
    }

    async fn publish(
        &self,
        subject: String,
        payload: &[u8],
        reply: Option<String>,
    ) -> Result<(), BusError> {
        let sealed = self.seal(&subject, payload)?;
        match reply {
            Some(reply) => self.inner.client.publish_with_reply(subject, reply, sealed).await?,
            None => self.inner.client.publish(subject, sealed).await?,
        }
        Ok(())
    }

    async fn subscribe(&self, subject: String) -> Result<Subscription, BusError> {
        let messages = self.inner.client.subscribe(subject).await?;
        Ok(Subscription::new(self.clone(), messages))
    }

    fn seal(&self, place: &str, payload: &[u8]) -> Result<Bytes, BusError> {
        if payload.len() > self.max_payload() {
            return Err(BusError::TooLong { bytes: payload.len(), limit: self.max_payload() });
        }
        Ok(self.inner.seal.message(place, payload))
    }
}
