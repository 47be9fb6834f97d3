//! Values that are too long for a key: kept in pieces by the bus, until they are too old.
//! Owns: one store, the seal of its values.      Never: keeps a value in memory.
//! In: names and bytes.  Out: bytes.
//! Tests: `metamcp/tests/fleet/messages.rs`.

use std::time::Duration;

use async_nats::jetstream::object_store::{Config, GetErrorKind, ObjectStore};
use async_nats::jetstream::stream::StorageType;
use bytes::Bytes;
use tokio::io::AsyncReadExt as _;

use super::Bus;
use super::error::{self, BusError};

#[derive(Clone)]
pub struct Objects {
    bus: Bus,
    store: ObjectStore,
    name: Box<str>,
}

impl Objects {
    pub(super) async fn open(bus: Bus, name: &str, max_age: Duration) -> Result<Objects, BusError> {
        let name = format!("{}_{name}", bus.inner.prefix);
        let config = Config {
            bucket: name.clone(),
            max_age,
            // What is set here is reserved at once; the account's own limit bounds all stores together.
            max_bytes: -1,
            storage: StorageType::File,
            num_replicas: bus.inner.replicas,
            ..Config::default()
        };
        let jetstream = &bus.inner.jetstream;
        let store = match jetstream.get_object_store(&name).await {
            Ok(store) => store,
            Err(_) => match jetstream.create_object_store(config).await {
                Ok(store) => store,
                Err(error) => match jetstream.get_object_store(&name).await {
                    Ok(store) => store,
                    Err(_) => return Err(error::stream(&name, &error)),
                },
            },
        };
        Ok(Objects { bus, store, name: name.into_boxed_str() })
    }

    /// Keeps a value under a name, over what was there.
    ///
    /// # Errors
    /// It is not kept: the bus is away, or has no room.
    pub async fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BusError> {
        let sealed = self.bus.inner.seal.value(&self.place(name), bytes);
        let mut reader = &sealed[..];
        let put = self.store.put(name, &mut reader).await;
        put.map(drop).map_err(|error| error::stream(&self.name, &error))
    }

    /// The value of that name, if it is no longer than `max_bytes`.
    ///
    /// # Errors
    /// It cannot be read, is longer, or does not open.
    pub async fn get(&self, name: &str, max_bytes: usize) -> Result<Option<Bytes>, BusError> {
        let mut object = match self.store.get(name).await {
            Ok(object) => object,
            Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error::stream(&self.name, &error)),
        };
        // What is read counts, not what the entry says.
        let limit = max_bytes + super::OVERHEAD;
        let mut sealed = Vec::new();
        let mut bounded = (&mut object).take(limit as u64 + 1);
        bounded
            .read_to_end(&mut sealed)
            .await
            .map_err(|error| BusError::Other(error.to_string()))?;
        if sealed.len() > limit {
            return Err(BusError::TooLong { bytes: sealed.len(), limit: max_bytes });
        }
        let opened = self.bus.inner.seal.open_value(&self.place(name), &sealed);
        opened.map(Some).map_err(|why| {
            self.bus.inner.refused.note(why.into(), name);
            BusError::NotOpened(why)
        })
    }

    /// # Errors
    /// It may still be there.
    pub async fn delete(&self, name: &str) -> Result<(), BusError> {
        match self.store.delete(name).await {
            Ok(()) => Ok(()),
            Err(error) if error.to_string().contains("not found") => Ok(()),
            Err(error) => Err(error::stream(&self.name, &error)),
        }
    }

    fn place(&self, name: &str) -> String {
        format!("objects {} {name}", self.name)
    }
}
