//! The bucket of leases: who owns what, and which bucket it is.
//! Owns: its keys, writes and reads of them, the watch.      Never: decides what is written.
//! In: effects of leases.  Out: inputs.
//! Tests: `metamcp/tests/fleet`.
//!
//! | key | value |
//! |---|---|
//! | `i.INSTANCE` | a lease; gone when it was not renewed for the age of the bucket |
//! | `node.NAME` | a registration, for its revision |
//! | `bucket` | which bucket this is, and whether claims may begin; it stays, and dies only with everything else |

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use metamcp_fleet::directory::About;
use metamcp_fleet::identity::{InstanceId, NodeName, NodeRef, Stamp};
use metamcp_fleet::lease::{Answer, Effect, Entry};
use parking_lot::Mutex;

use super::Fleet;
use super::bus::{Bucket, Bus, BusError, Change, Changes, Kv, Writable};
use super::mailbox::Input;
use super::words;
use crate::{clock, task};

const BUCKET: &str = "bucket";
/// All leases of a fleet: 100,000 instances take half of it.
const MAX_BYTES: i64 = 64 << 20;
/// How often it is looked whether the bucket is the same: nobody tells watchers of one that was made again.
const LOOK: Duration = Duration::from_secs(2);
/// Until the bus is asked again for what it did not give.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the log says that leases are not kept.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Attempts to register in one and the same bucket.
const ATTEMPTS: u32 = 5;

#[derive(Clone)]
pub(super) struct Leases {
    bus: Bus,
    kv: Kv,
    wanted: Duration,
    ttl: Duration,
    told: Arc<Mutex<Option<Instant>>>,
}

/// Which bucket it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    bucket: u64,
    is_ready: bool,
    revision: u64,
}

fn bucket_of(max_age: Duration) -> Bucket {
    Bucket {
        name: "leases",
        description: "which gateway owns which server instance",
        max_age: Some(max_age),
        max_bytes: MAX_BYTES,
    }
}

impl Leases {
    pub(super) async fn open(bus: &Bus, wanted: Duration) -> Result<Leases, BusError> {
        let kv = bus.kv(&bucket_of(wanted)).await?;
        // The first gateway decided.
        let ttl = kv.max_age().unwrap_or(wanted);
        if ttl != wanted {
            tracing::info!("leases last {} ms, as this fleet has them", ttl.as_millis());
        }
        Ok(Leases { bus: bus.clone(), kv, wanted, ttl, told: Arc::default() })
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Takes a name; whoever had it before gives up what it owns.
    pub(super) async fn register(
        &self,
        name: &NodeName,
        about: &About,
    ) -> Result<NodeRef, BusError> {
        let key = format!("node.{}", name.as_str());
        for _ in 0..ATTEMPTS {
            let before = self.identity().await?;
            let revision = self.kv.put(&key, &words::encoded(about), Writable::Always).await?;
            if self.identity().await?.bucket == before.bucket {
                let incarnation = Stamp { bucket: before.bucket, revision };
                return Ok(NodeRef { name: name.clone(), incarnation });
            }
        }
        Err(BusError::TimedOut)
    }

    /// Which bucket it is. The key is made where there is none, which happens once in the life of a bucket.
    async fn identity(&self) -> Result<Identity, BusError> {
        for _ in 0..ATTEMPTS {
            if let Some(value) = self.kv.get(BUCKET).await? {
                let revision = value.revision;
                if value.bytes.is_empty() {
                    // By the bus's clock: one that is made again has a greater one.
                    let bucket = u64::try_from(value.written).unwrap_or_default().max(1);
                    return Ok(Identity { bucket, is_ready: false, revision });
                }
                let read = words::decoded(&value.bytes);
                let (bucket, is_ready) = read.map_err(|_| BusError::Bucket {
                    what: BUCKET.to_owned(),
                    why: "it holds what no gateway of this version writes".to_owned(),
                })?;
                return Ok(Identity { bucket, is_ready, revision });
            }
            match self.kv.put_forever(BUCKET, b"", Writable::IfAbsent).await {
                Ok(_) | Err(BusError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(BusError::TimedOut)
    }

    /// Every old lease has run out.
    pub(super) fn mark_ready(&self, fleet: &Arc<Fleet>, expected: u64) {
        let (leases, fleet) = (self.clone(), Arc::downgrade(fleet));
        task::spawn("fleet ready", async move {
            let Ok(now) = leases.identity().await else { return };
            if now.bucket == expected && !now.is_ready {
                let value = words::encoded(&(now.bucket, true));
                let when = Writable::IfAt(now.revision);
                if leases.kv.put_forever(BUCKET, &value, when).await.is_ok() {
                    tracing::info!("the leases of the fleet may be claimed now");
                }
            }
            leases.tell_bucket(&fleet).await;
        });
    }

    /// Carries out what a lease needs of the bus, and says what came of it. Without an answer nothing is said.
    pub(super) fn carry_out(
        &self,
        fleet: &Arc<Fleet>,
        me: &NodeRef,
        instance: InstanceId,
        effect: Effect,
    ) {
        let (leases, fleet, me) = (self.clone(), Arc::downgrade(fleet), me.clone());
        task::spawn("fleet lease", async move {
            let done = leases.done(&me, instance, effect).await;
            let Some(fleet) = fleet.upgrade() else { return };
            match done {
                Ok(Some(input)) => fleet.mailbox.push(input),
                Ok(None) => {}
                Err(error) => leases.complain(&error),
            }
        });
    }

    /// What passes by itself is for debugging; what does not is said, now and then.
    fn complain(&self, error: &BusError) {
        if matches!(error, BusError::TimedOut | BusError::Gone) {
            return tracing::debug!("a lease: {error}");
        }
        let now = clock::std_instant();
        let mut told = self.told.lock();
        if told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY) {
            *told = Some(now);
            tracing::error!("the bus does not keep a lease: {error}");
        }
    }

    async fn done(
        &self,
        me: &NodeRef,
        instance: InstanceId,
        effect: Effect,
    ) -> Result<Option<Input>, BusError> {
        let key = key_of(instance);
        let entry = |attempt, epoch| words::entry(&Entry { owner: me.clone(), attempt, epoch });
        let (attempt, bucket, written) = match effect {
            Effect::Claim { attempt } => {
                let put = self.kv.put(&key, &entry(attempt, None), Writable::IfAbsent).await;
                match put {
                    Ok(revision) => {
                        // It counts only if the bucket is still the same, and ready, after it.
                        let now = self.identity().await?;
                        let stamp = Stamp { bucket: now.bucket, revision };
                        let answer =
                            if now.is_ready { Answer::Done(stamp) } else { Answer::Conflict };
                        return Ok(Some(Input::Written { instance, attempt, answer }));
                    }
                    Err(error) => (attempt, 0, Err(error)),
                }
            }
            Effect::Renew { attempt, over, epoch } => {
                let when = Writable::IfAt(over.revision);
                let put = self.kv.put(&key, &entry(attempt, Some(epoch)), when).await;
                (attempt, over.bucket, put)
            }
            Effect::Delete { attempt, over } => {
                (attempt, over.bucket, self.kv.delete(&key, over.revision).await)
            }
            Effect::Look { attempt } => {
                let bucket = self.identity().await?.bucket;
                let Some(value) = self.kv.get(&key).await? else {
                    return Ok(Some(Input::Absent { instance, attempt }));
                };
                let revision = Stamp { bucket, revision: value.revision };
                let entry = self.read(&key, &value.bytes);
                return Ok(entry.map(|entry| Input::Key {
                    instance,
                    revision,
                    entry: Some(entry),
                }));
            }
            Effect::End { .. } => return Ok(None),
        };
        let answer = match written {
            Ok(revision) => Answer::Done(Stamp { bucket, revision }),
            Err(BusError::Conflict) => Answer::Conflict,
            Err(error) => return Err(error),
        };
        Ok(Some(Input::Written { instance, attempt, answer }))
    }

    fn read(&self, key: &str, bytes: &[u8]) -> Option<Entry> {
        let read = words::read_entry(bytes);
        if read.is_err() {
            self.kv.refuse(key);
        }
        read.ok()
    }

    /// Follows the bucket for as long as the fleet lives.
    pub(super) fn spawn_watch(&self, fleet: &Arc<Fleet>) {
        let (leases, fleet) = (self.clone(), Arc::downgrade(fleet));
        task::spawn("fleet leases", async move {
            while fleet.strong_count() > 0 {
                if let Err(error) = leases.follow(&fleet).await {
                    tracing::debug!("the watch of leases is begun again: {error}");
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    async fn follow(&self, fleet: &Weak<Fleet>) -> Result<(), BusError> {
        // Made again, if it was deleted.
        self.bus.kv(&bucket_of(self.wanted)).await?;
        let mut link = self.bus.link();
        link.borrow_and_update();
        let mut bucket = self.identity().await?;
        self.tell(fleet, bucket);
        let mut changes: Changes = self.kv.watch().await?;
        let mut looks = tokio::time::interval(LOOK);
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                _ = link.changed() => return Ok(()),
                _ = looks.tick() => {
                    let now = self.identity().await?;
                    self.tell(fleet, now);
                    if now.bucket != bucket.bucket {
                        return Ok(());
                    }
                    continue;
                }
            };
            let Change { key, revision, value, .. } = match change {
                Some(change) => change?,
                None => return Ok(()),
            };
            if key == BUCKET {
                bucket = self.identity().await?;
                self.tell(fleet, bucket);
            }
            let Some(instance) = instance_of(&key) else { continue };
            let entry = match value {
                Some(bytes) => match self.read(&key, &bytes) {
                    Some(entry) => Some(entry),
                    None => continue,
                },
                None => None,
            };
            let is_our_claim = entry
                .as_ref()
                .is_some_and(|entry| entry.epoch.is_none() && entry.owner.name == *self.bus.node());
            if is_our_claim {
                // A claim counts only in a bucket that is the same after it.
                bucket = self.identity().await?;
                self.tell(fleet, bucket);
                if !bucket.is_ready {
                    continue;
                }
            }
            let Some(fleet) = fleet.upgrade() else { return Ok(()) };
            let revision = Stamp { bucket: bucket.bucket, revision };
            fleet.mailbox.push_slowly(Input::Key { instance, revision, entry }).await;
        }
    }

    async fn tell_bucket(&self, fleet: &Weak<Fleet>) {
        if let Ok(now) = self.identity().await {
            self.tell(fleet, now);
        }
    }

    #[expect(clippy::unused_self, reason = "what it says is of this bucket")]
    fn tell(&self, fleet: &Weak<Fleet>, now: Identity) {
        if let Some(fleet) = fleet.upgrade() {
            fleet.mailbox.push(Input::Bucket { bucket: now.bucket, is_ready: now.is_ready });
        }
    }
}

fn key_of(instance: InstanceId) -> String {
    format!("i.{:032x}", instance.0)
}

fn instance_of(key: &str) -> Option<InstanceId> {
    let digits = key.strip_prefix("i.").filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok().map(InstanceId)
}
