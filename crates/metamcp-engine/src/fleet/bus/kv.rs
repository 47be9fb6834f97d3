//! Keys that all nodes see, written by compare-and-set and watched.
//! Owns: one bucket, the seal of its values.      Never: knows what a value says.
//! In: keys, values, expected revisions.  Out: revisions, values, changes.
//! Tests: `metamcp/tests/fleet/messages.rs`.

use std::time::Duration;

use async_nats::jetstream::kv::{Config, Operation, Store, Watch};
use async_nats::jetstream::stream::StorageType;
use async_nats::{HeaderMap, header};
use bytes::Bytes;
use futures_util::StreamExt as _;

use super::error::{self, BusError};
use super::{Bus, Refused};

/// How long the bus tells watchers that a key has expired, by a marker that then goes too.
const MARKERS: Duration = Duration::from_mins(1);
const KV_OPERATION: &str = "KV-Operation";
const MARKER_REASON: &str = "Nats-Marker-Reason";
const FOREVER: &str = "never";

/// What a bucket is to be. One that is there already keeps what it is.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Letters, digits and `_`; the fleet's prefix is put before it.
    pub name: &'static str,
    pub description: &'static str,
    /// Keys are gone when they were not written for so long. `None`: they stay.
    pub max_age: Option<Duration>,
    /// All keys together.
    pub max_bytes: i64,
}

/// Under which condition a key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writable {
    Always,
    /// There is none, or it was deleted or expired.
    IfAbsent,
    /// It still has that revision.
    IfAt(u64),
}

#[derive(Debug, Clone)]
pub struct Value {
    pub revision: u64,
    pub bytes: Bytes,
    /// Nanoseconds since 1970, by the bus.
    pub written: i128,
}

/// A key changed. `value` is `None` if it was deleted or has expired.
#[derive(Debug, Clone)]
pub struct Change {
    pub key: String,
    pub revision: u64,
    pub value: Option<Bytes>,
    /// Everything that was there when the watch began has been told.
    pub is_current: bool,
}

#[derive(Clone)]
pub struct Kv {
    bus: Bus,
    store: Store,
}

impl Kv {
    pub(super) async fn open(bus: Bus, bucket: &Bucket) -> Result<Kv, BusError> {
        let name = format!("{}_{}", bus.inner.prefix, bucket.name);
        let config = Config {
            bucket: name.clone(),
            description: bucket.description.to_owned(),
            history: 1,
            max_age: bucket.max_age.unwrap_or_default(),
            max_bytes: bucket.max_bytes,
            storage: StorageType::File,
            num_replicas: bus.inner.replicas,
            limit_markers: bucket.max_age.map(|_| MARKERS),
            ..Config::default()
        };
        // One made by another node in other words (replicas, an age) stays as it is.
        let store = match bus.inner.jetstream.get_key_value(&name).await {
            Ok(store) => store,
            Err(_) => match bus.inner.jetstream.create_key_value(config).await {
                Ok(store) => store,
                Err(error) => match bus.inner.jetstream.get_key_value(&name).await {
                    Ok(store) => store,
                    Err(_) => return Err(error::bucket(&name, &error)),
                },
            },
        };
        Ok(Kv { bus, store })
    }

    /// After how long its keys expire: as whoever made it decided.
    pub fn max_age(&self) -> Option<Duration> {
        let age = self.store.stream.cached_info().config.max_age;
        (!age.is_zero()).then_some(age)
    }

    /// Writes a key. Returns its revision.
    ///
    /// # Errors
    /// `Conflict` if the condition does not hold. After `TimedOut` it may have been written.
    pub async fn put(&self, key: &str, value: &[u8], when: Writable) -> Result<u64, BusError> {
        self.sealed_put(key, value, when, HeaderMap::new()).await
    }

    /// The same, for a key that stays although the others of the bucket expire.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub async fn put_forever(
        &self,
        key: &str,
        value: &[u8],
        when: Writable,
    ) -> Result<u64, BusError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_MESSAGE_TTL, FOREVER);
        self.sealed_put(key, value, when, headers).await
    }

    /// Deletes a key, if it still has that revision. Returns the revision of the deletion.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub async fn delete(&self, key: &str, revision: u64) -> Result<u64, BusError> {
        let mut headers = HeaderMap::new();
        headers.insert(KV_OPERATION, "DEL");
        self.write(key, Bytes::new(), Some(revision), headers).await
    }

    /// The key as the leader of the bus has it.
    ///
    /// # Errors
    /// It cannot be read, or does not open.
    pub async fn get(&self, key: &str) -> Result<Option<Value>, BusError> {
        let Some(message) = self.last(key).await? else { return Ok(None) };
        if is_deletion(&message.headers) {
            return Ok(None);
        }
        let bytes = self.open_value(key, &message.payload)?;
        let written = message.time.unix_timestamp_nanos();
        Ok(Some(Value { revision: message.sequence, bytes, written }))
    }

    /// Every key, and every change from then on.
    ///
    /// # Errors
    /// It cannot be watched.
    pub async fn watch(&self) -> Result<Changes, BusError> {
        let watch = self.store.watch_with_history(">").await;
        let watch = watch.map_err(|error| BusError::Other(error::chain(&error)))?;
        Ok(Changes { kv: self.clone(), watch })
    }

    async fn sealed_put(
        &self,
        key: &str,
        value: &[u8],
        when: Writable,
        headers: HeaderMap,
    ) -> Result<u64, BusError> {
        if value.len() > self.bus.max_payload() {
            return Err(BusError::TooLong { bytes: value.len(), limit: self.bus.max_payload() });
        }
        let sealed = self.bus.inner.seal.value(&self.place(key), value);
        let expected = match when {
            Writable::Always => None,
            Writable::IfAbsent => Some(0),
            Writable::IfAt(revision) => Some(revision),
        };
        let written = self.write(key, sealed.clone(), expected, headers.clone()).await;
        if when != Writable::IfAbsent || !matches!(written, Err(BusError::Conflict)) {
            return written;
        }
        // A deletion leaves a marker, over which one writes.
        match self.last(key).await? {
            Some(message) if is_deletion(&message.headers) => {
                self.write(key, sealed, Some(message.sequence), headers).await
            }
            _ => Err(BusError::Conflict),
        }
    }

    async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        expected: Option<u64>,
        mut headers: HeaderMap,
    ) -> Result<u64, BusError> {
        if let Some(revision) = expected {
            headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, revision.to_string());
        }
        let jetstream = &self.bus.inner.jetstream;
        let sent = jetstream.publish_with_headers(self.place(key), headers, bytes).await;
        let answer = sent.map_err(|error| error::write(&error))?;
        let written = answer.await.map_err(|error| error::write(&error))?;
        Ok(written.sequence)
    }

    async fn last(
        &self,
        key: &str,
    ) -> Result<Option<async_nats::jetstream::message::StreamMessage>, BusError> {
        // From the leader: the direct way reads any replica, which may lag.
        match self.store.stream.get_last_raw_message_by_subject(&self.place(key)).await {
            Ok(message) => Ok(Some(message)),
            Err(error) => error::read(&error).map_or(Ok(None), Err),
        }
    }

    fn open_value(&self, key: &str, sealed: &[u8]) -> Result<Bytes, BusError> {
        let opened = self.bus.inner.seal.open_value(&self.place(key), sealed);
        opened.map_err(|why| {
            self.bus.inner.refused.note(why.into(), key);
            BusError::NotOpened(why)
        })
    }

    /// A value that opened and makes no sense.
    pub fn refuse(&self, key: &str) {
        self.bus.inner.refused.note(Refused::Content, key);
    }

    fn place(&self, key: &str) -> String {
        format!("{}{key}", self.store.prefix)
    }
}

fn is_deletion(headers: &HeaderMap) -> bool {
    headers.get(MARKER_REASON).is_some()
        || headers.get(KV_OPERATION).is_some_and(|op| op.as_str() != "PUT")
}

/// Changes of a bucket, in order. After the bus was away some may be missing, and expired keys are not told of by every
/// version of it.
pub struct Changes {
    kv: Kv,
    watch: Watch,
}

impl Changes {
    /// The next change.
    ///
    /// # Errors
    /// The watch has ended, and another one has to be begun. `None` says the same.
    pub async fn next(&mut self) -> Option<Result<Change, BusError>> {
        loop {
            let entry = match self.watch.next().await? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(BusError::Other(error::chain(&error)))),
            };
            let value = match entry.operation {
                // A value that does not open is as good as none, and counted.
                Operation::Put => match self.kv.open_value(&entry.key, &entry.value) {
                    Ok(value) => Some(value),
                    Err(_) => continue,
                },
                Operation::Delete | Operation::Purge => None,
            };
            let (key, revision, is_current) = (entry.key, entry.revision, entry.seen_current);
            return Some(Ok(Change { key, revision, value, is_current }));
        }
    }
}
