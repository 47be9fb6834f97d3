//! Long results of all gateways of a fleet: kept by the bus for as long as a gateway keeps one, encrypted with the
//! cluster's key.
//! Owns: one object store.      Never: decides who may read a value (`results` does).
//! In: handles and bytes.  Out: the same at every gateway.
//! Tests: `metamcp/tests/fleet/results.rs`, with a real nats-server.

use async_trait::async_trait;
use bytes::Bytes;

use crate::fleet::bus::{Bus, BusError, Objects};
use crate::results::{MAX_AGE, MAX_SHARED, SharedResults};

/// What belongs to a value beside its bytes.
const AROUND: usize = 64 * 1024;

/// See the module.
#[derive(Clone)]
pub struct FleetResults(Objects);

impl std::fmt::Debug for FleetResults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetResults")
    }
}

impl FleetResults {
    /// On this bus; made if it is not there.
    ///
    /// # Errors
    /// The bus does not keep it.
    pub async fn open(bus: &Bus) -> Result<FleetResults, BusError> {
        Ok(FleetResults(bus.objects("results", MAX_AGE).await?))
    }
}

#[async_trait]
impl SharedResults for FleetResults {
    async fn put(&self, handle: &str, bytes: &[u8]) -> Result<(), String> {
        self.0.put(handle, bytes).await.map_err(|error| error.to_string())
    }

    async fn get(&self, handle: &str) -> Result<Option<Bytes>, String> {
        let found = self.0.get(handle, MAX_SHARED + AROUND).await;
        found.map_err(|error| error.to_string())
    }
}
