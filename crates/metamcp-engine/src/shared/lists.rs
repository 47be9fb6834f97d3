//! Lists of tools of all gateways: one that never started a server lists and searches its tools.
//! Owns: one bucket, watched.      Never: replaces what a server has said here itself.
//! In: lists that servers of this gateway give, and those of the others.  Out: both, known to all.
//! Tests: `metamcp/tests/fleet/lists.rs`, with a real nats-server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::catalog::{Catalog, DefinitionId, Received};
use crate::fleet::bus::{Bucket, Bus, BusError, Kv, Writable};
use crate::task;

const LISTS: Bucket = Bucket {
    name: "lists",
    description: "tools of servers, as the schema cache has them",
    // A server that nobody has any more goes with its list.
    max_age: Some(Duration::from_hours(30 * 24)),
    max_bytes: 32 << 20,
};
/// Pause before the bus is tried again. What is on it then is told from the beginning.
const AGAIN: Duration = Duration::from_secs(2);

/// Shares the lists of this catalog with the other gateways, for as long as the process lives.
pub fn share(bus: &Bus, catalog: &Arc<Catalog>) {
    let (bus, catalog) = (bus.clone(), Arc::clone(catalog));
    task::spawn("lists of the fleet", async move {
        loop {
            let error = follow(&bus, &catalog).await;
            tracing::debug!("lists of tools are not shared for now: {error}");
            sleep(AGAIN).await;
        }
    });
}

/// Takes and gives lists until the bus breaks off.
async fn follow(bus: &Bus, catalog: &Arc<Catalog>) -> BusError {
    match following(bus, catalog).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn following(bus: &Bus, catalog: &Arc<Catalog>) -> Result<Infallible, BusError> {
    let kv = bus.kv(&LISTS).await?;
    let mut changes = kv.watch().await?;
    catalog.loaded().await;
    // What another gateway gave is newer than what is on the disk here.
    for server in catalog.all_listed() {
        give(&kv, catalog, server, Writable::IfAbsent).await?;
    }
    loop {
        tokio::select! {
            change = changes.next() => {
                let change = change.ok_or(BusError::Gone)??;
                let Some(packed) = change.value else { continue };
                if catalog.unpack(&change.key, &packed).await == Received::Unusable {
                    kv.refuse(&change.key);
                }
            }
            server = catalog.next_listed() => {
                let given = give(&kv, catalog, server, Writable::Always).await;
                if given.is_err() {
                    catalog.has_listed(server);
                }
                given?;
            }
        }
    }
}

async fn give(
    kv: &Kv,
    catalog: &Arc<Catalog>,
    server: DefinitionId,
    when: Writable,
) -> Result<(), BusError> {
    let Some((key, packed)) = catalog.packed(server).await else { return Ok(()) };
    match kv.put(&key, &packed, when).await {
        Ok(_) | Err(BusError::Conflict) => Ok(()),
        // The others start the server to see its tools.
        Err(error @ (BusError::TooLong { .. } | BusError::Full { .. })) => {
            tracing::warn!("a list of tools cannot be shared: {error}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}
