//! OAuth logins of all gateways of a fleet: kept on the bus, encrypted with the cluster's key, each token requested by one
//! gateway for all.
//! Owns: two buckets: the logins, and who requests a token now.      Never: knows what a login says.
//! In: names and bytes of `login`.  Out: the same for every gateway.
//! Tests: `metamcp/tests/fleet/logins.rs`, with a real nats-server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use crate::clock;
use crate::fleet::bus::{Bucket, Bus, BusError, Kv, Writable};
use crate::login::{Lease, SharedError, SharedLogins};
use crate::task;

const LOGINS: Bucket = Bucket {
    name: "logins",
    description: "OAuth logins, encrypted with the cluster's key",
    max_age: None,
    max_bytes: 8 << 20,
};
/// Longer than a request for a token takes; a gateway that died holds nobody up for longer.
const LEASE: Duration = Duration::from_secs(20);
const LEASES: Bucket = Bucket {
    name: "login_leases",
    description: "which gateway requests a token now",
    max_age: Some(LEASE),
    max_bytes: 1 << 20,
};
/// How long a gateway waits for another's request: after that its server decides about the old token.
const WAIT: Duration = Duration::from_secs(15);
/// How often it looks whether the other is done.
const LOOK: Duration = Duration::from_millis(100);
/// Before a login that could not be written is written again; within the time of a lease.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3)];
/// Largest login taken from the bus.
const MAX_BYTES: usize = 256 * 1024;

/// See the module.
#[derive(Clone)]
pub struct FleetLogins {
    logins: Kv,
    leases: Kv,
}

impl std::fmt::Debug for FleetLogins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetLogins")
    }
}

impl FleetLogins {
    /// On this bus; makes what is not there.
    ///
    /// # Errors
    /// The bus does not keep it.
    pub async fn open(bus: &Bus) -> Result<FleetLogins, BusError> {
        Ok(FleetLogins { logins: bus.kv(&LOGINS).await?, leases: bus.kv(&LEASES).await? })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` wants")]
fn failed(error: BusError) -> SharedError {
    SharedError(error.to_string())
}

#[async_trait]
impl SharedLogins for FleetLogins {
    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, SharedError> {
        let Some(value) = self.logins.get(name).await.map_err(failed)? else { return Ok(None) };
        if value.bytes.len() > MAX_BYTES {
            self.logins.refuse(name);
            return Err(SharedError("what the bus holds is longer than any login".to_owned()));
        }
        Ok(Some(value.bytes.to_vec()))
    }

    async fn write(&self, name: &str, plain: &[u8]) -> Result<(), SharedError> {
        // What was refreshed cannot be refreshed again, so a bus that is away for a moment must not lose it.
        for pause in PAUSES {
            match self.logins.put(name, plain, Writable::Always).await {
                Err(BusError::TimedOut | BusError::Gone | BusError::Other(_)) => sleep(pause).await,
                written => return written.map(drop).map_err(failed),
            }
        }
        self.logins.put(name, plain, Writable::Always).await.map(drop).map_err(failed)
    }

    async fn lease(&self, name: &str) -> Result<Option<Lease>, SharedError> {
        // Not a name of this gateway: the one before under the same name may hold it still.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let holder = LAST.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let end = clock::instant() + WAIT;
        loop {
            match self.leases.put(name, &holder, Writable::IfAbsent).await {
                Ok(revision) => {
                    let (leases, name) = (self.leases.clone(), name.to_owned());
                    return Ok(Some(Box::new(Held { leases, name, revision })));
                }
                Err(BusError::Conflict) if clock::instant() < end => sleep(LOOK).await,
                Err(BusError::Conflict) => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// A lease; given back when it is dropped, or when it is too old.
struct Held {
    leases: Kv,
    name: String,
    revision: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let (leases, name, revision) = (self.leases.clone(), self.name.clone(), self.revision);
        task::spawn("lease of a login", async move {
            // Only if it is still this one: an old one may have expired, and another gateway has it now.
            if let Err(error) = leases.delete(&name, revision).await {
                tracing::debug!("the lease of a login expires by itself: {error}");
            }
        });
    }
}
