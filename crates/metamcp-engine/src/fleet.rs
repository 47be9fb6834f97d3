//! This gateway as one of many: the bus between them, and what the state machine of `metamcp-fleet` decides, done.
//! Owns: the one task that runs `Node`, what it may act for now, the connection to the bus.      Never: decides what a node does; knows how a server is called.
//! In: settings, calls, what comes of them.  Out: orders to a `Host`, which runs calls.
//! Tests: `metamcp/tests/fleet`; `metamcp-fleet/tests/sim.rs` for the decisions.

pub mod bus;
mod driver;
mod grant;
mod leases;
mod long_calls;
mod mailbox;
pub mod operator;
mod outgoing;
mod receiving;
mod settings;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use metamcp_fleet::directory::{About, Labels, PROTOCOL};
use metamcp_fleet::timing::STRAGGLER;
use metamcp_types::moment::Moment;
use parking_lot::RwLock;
use tokio::sync::{oneshot, watch};

pub use metamcp_fleet::drain::Target;
pub use metamcp_fleet::identity::{InstanceId, NodeName, NodeRef, Stamp};
pub use metamcp_fleet::message::Part;
pub use metamcp_fleet::node::{CallId, Readiness, Request, Run, Verdict, WhyNot};
pub use metamcp_fleet::placement::Requirements;
pub use metamcp_fleet::routing::Unknown;

use crate::clock::Clock;
use crate::task;
use bus::{Bus, BusConfig, BusError};
use leases::Leases;
use mailbox::{Input, Mailbox};

pub use grant::Grant;
pub use settings::FleetError;
pub use words::Body;

/// Longest piece of a result in one message: half of what a bus takes that nobody configured, so that one long result
/// does not hold up the others for long.
const PIECE: usize = 256 * 1024;

/// What this node is to be.
#[derive(Clone)]
pub struct FleetConfig {
    pub bus: BusConfig,
    pub labels: Labels,
    /// How many instances it takes.
    pub capacity: u32,
    /// The time to live of leases; the bucket's, where there is one.
    pub lease: Duration,
}

/// Who runs calls: the router.
pub trait Host: Send + Sync {
    /// Whether the configuration has that definition.
    fn knows(&self, definition: u128) -> bool;
    /// A call of this node's clients runs here, now.
    fn run_ours(&self, call: CallId, grant: &Arc<Grant>);
    /// A call of another node runs here, now. What comes of it goes to [`Fleet::output`].
    fn run(&self, run: Run, grant: &Arc<Grant>, body: &Body);
    /// The answer of the caller's client to a request of the server.
    fn input(&self, run: &Run, body: &Body);
    /// Nobody waits for it any more.
    fn abort(&self, run: &Run);
    /// Something came of a call that runs elsewhere.
    fn part(&self, call: CallId, rerun: u32, owner: Option<&NodeName>, part: Part<Body>);
    /// What came of its result so far is void.
    fn discard(&self, call: CallId);
    /// It ended without a result, or its result was told before.
    fn verdict(&self, call: CallId, verdict: Verdict);
    /// Whether the instance has a process here.
    fn is_running(&self, instance: InstanceId) -> bool;
    /// The process of that instance is to end: at once if this node may not act for it any more, else when its calls have
    /// ended. Then [`Fleet::ended`].
    fn end(&self, instance: InstanceId, epoch: Stamp, at_once: bool);
}

/// A node as this one knows it.
#[derive(Debug, Clone)]
pub struct NodeStatus {
    pub name: NodeName,
    pub incarnation: Stamp,
    /// How long nothing was heard of it; zero for this one.
    pub silent: Duration,
    pub is_alive: bool,
    pub is_draining: bool,
    pub labels: Labels,
    pub capacity: u32,
    pub instances: u32,
    pub calls: u32,
    /// The protocol between nodes that it speaks.
    pub protocol: u32,
}

/// The fleet as this node knows it.
#[derive(Debug, Clone)]
pub struct FleetStatus {
    pub me: NodeName,
    pub readiness: Readiness,
    pub nodes: Vec<NodeStatus>,
    /// Who owns what, and since which epoch.
    pub owners: Vec<(InstanceId, NodeName, Stamp)>,
    /// Calls of this node's clients that run elsewhere or wait for an owner.
    pub waiting: usize,
}

/// This node's part in a fleet.
pub struct Fleet {
    pub bus: Bus,
    clock: Clock,
    mailbox: Mailbox,
    grants: RwLock<HashMap<InstanceId, Arc<Grant>>>,
    readiness: watch::Sender<Readiness>,
    is_idle: watch::Sender<bool>,
    /// Nothing more is listened to.
    is_stopped: watch::Sender<bool>,
    /// Subscriptions that are read.
    listening: watch::Sender<usize>,
    long_calls: long_calls::LongCalls,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("bus", &self.bus).finish_non_exhaustive()
    }
}

/// A node that has registered and does nothing yet.
pub struct Joined {
    pub fleet: Arc<Fleet>,
    leases: Leases,
    me: NodeRef,
    about: About,
    listening: receiving::Listening,
}

/// How long a gateway that starts waits for a bus that is not ready: servers of NATS that start with it, or choose another
/// leader, take some seconds.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Does what a start needs of the bus, again and again while it does not answer. What only a person can mend is told at
/// once.
///
/// # Errors
/// What the last try said.
pub async fn patiently<T, F: Future<Output = Result<T, BusError>>>(
    clock: Clock,
    attempt: impl Fn() -> F,
) -> Result<T, BusError> {
    let end = clock.now() + STARTS_WITHIN;
    loop {
        match attempt().await {
            Err(error) if error.may_pass() && clock.now() < end => {
                tracing::info!("the bus is not ready ({error}); this gateway tries again");
                tokio::time::sleep(TRY_AGAIN).await;
            }
            outcome => return outcome,
        }
    }
}

impl Fleet {
    /// Reaches the bus and takes a name there.
    ///
    /// # Errors
    /// Why this gateway cannot be part of the fleet.
    pub async fn join(config: FleetConfig, clock: Clock) -> Result<Joined, BusError> {
        let FleetConfig { bus, labels, capacity, lease } = config;
        let bus = Bus::connect(bus).await?;
        let about = About { protocol: PROTOCOL, labels, capacity };
        let leases = Leases::open(&bus, lease).await?;
        let me = leases.register(bus.node(), &about).await?;
        let listening = receiving::Listening::begin(&bus).await?;
        let fleet = Arc::new(Fleet {
            bus,
            clock,
            mailbox: Mailbox::default(),
            grants: RwLock::default(),
            readiness: watch::Sender::new(Readiness::BucketTooNew),
            is_idle: watch::Sender::new(false),
            is_stopped: watch::Sender::new(false),
            listening: watch::Sender::new(receiving::SUBSCRIPTIONS),
            long_calls: long_calls::LongCalls::default(),
        });
        Ok(Joined { fleet, leases, me, about, listening })
    }

    /// A client calls. It gets one verdict, by the host. False if too many wait already.
    pub fn call(&self, id: CallId, request: Request<Body>) -> bool {
        self.mailbox.offer(Input::Call { id, request })
    }

    /// The client takes its call back, and hears nothing more of it.
    pub fn cancel(&self, id: CallId) {
        self.mailbox.push(Input::Cancel(id));
    }

    /// The client answers a request of a server.
    pub fn answer(&self, call: CallId, rerun: u32, body: Body) {
        self.mailbox.push(Input::Answer { call, rerun, body });
    }

    /// Something came of a call of another node that runs here.
    pub fn output(&self, run: &Run, part: Part<Body>) {
        let input = Input::Output { run: run.clone(), part };
        match &input {
            Input::Output { part: Part::Notification(_), .. } => {
                self.mailbox.offer(input);
            }
            _ => self.mailbox.push(input),
        }
    }

    /// The result, whatever its length.
    pub fn result(&self, run: &Run, bytes: &bytes::Bytes) {
        let piece = PIECE.min(self.bus.max_payload() / 2).max(1024);
        let mut from = 0;
        while bytes.len() - from > piece {
            self.output(run, Part::Chunk(Body(bytes.slice(from..from + piece))));
            from += piece;
        }
        self.output(run, Part::Last(Body(bytes.slice(from..))));
    }

    /// The process of an instance and epoch has ended, or there was none.
    pub fn ended(&self, instance: InstanceId, epoch: Stamp) {
        self.mailbox.push(Input::Ended { instance, epoch });
    }

    /// What this node may do for an instance, if it owns it.
    pub fn grant(&self, instance: InstanceId) -> Option<Arc<Grant>> {
        self.grants.read().get(&instance).cloned()
    }

    /// Nothing new runs here from now on; what is owned leaves when its calls have ended, at the latest after that time.
    pub fn drain(&self, within: Duration) {
        self.mailbox.push(Input::Drain { within });
    }

    /// An instance leaves this node, to another if one is named.
    pub fn leave(&self, instance: InstanceId, to: Option<Target>, within: Duration) {
        self.mailbox.push(Input::Leave { instance, to, within });
    }

    /// Waits until a drain is over, then stops listening, so that whoever sends a call is told that nobody is there,
    /// answers what came before, and leaves the bus.
    pub async fn left(&self, limit: Duration) {
        let mut is_idle = self.is_idle.subscribe();
        let idle = is_idle.wait_for(|is_idle| *is_idle);
        let in_time = self.clock.timeout(limit, idle).await.is_some();
        tracing::info!(in_time, "this gateway leaves the fleet");
        // Who has not heard yet that the leases are gone is told by this node that it is not the owner.
        tokio::time::sleep(STRAGGLER).await;
        self.is_stopped.send_replace(true);
        let mut listening = self.listening.subscribe();
        let heard = async { listening.wait_for(|count| *count == 0).await.is_ok() };
        let heard = self.clock.timeout(STRAGGLER, heard).await;
        tracing::debug!(all = heard.is_some(), "nothing more is heard");
        let (done, stopped) = oneshot::channel();
        self.mailbox.push(Input::Stop(done));
        let _said = self.clock.timeout(limit.max(STRAGGLER), stopped).await;
        self.bus.close().await;
    }

    /// Whether this node should be given clients, and why not.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// How many instances this node owns.
    pub fn owned(&self) -> usize {
        self.grants.read().values().filter(|grant| !grant.is_lost()).count()
    }

    /// Whether nothing is left that keeps this node from stopping.
    pub fn is_idle(&self) -> bool {
        *self.is_idle.borrow()
    }

    /// The time by which leases are counted.
    pub fn now(&self) -> Moment {
        self.clock.with_pauses()
    }

    /// The fleet as this node knows it; `None` while it does not answer.
    pub async fn status(&self) -> Option<FleetStatus> {
        let (done, status) = oneshot::channel();
        self.mailbox.push(Input::Status(done));
        status.await.ok()
    }
}

impl Joined {
    /// From now on calls run. The task ends with the fleet or its host.
    pub fn run(self, host: Weak<dyn Host>) -> Arc<Fleet> {
        let Joined { fleet, leases, me, about, listening } = self;
        tracing::info!("this gateway is {me:?} in the fleet");
        listening.spawn(&fleet, &me);
        leases.spawn_watch(&fleet);
        let driver = driver::Driver::new(&fleet, host, leases, me, about);
        task::spawn("fleet", driver.run());
        fleet
    }
}
