//! What the gateway does, published once: a record of every call and script, searches, state changes, redactions.
//! Owns: the events, the records of calls and scripts, the list of subscribers, what models were spared.      Never: decides anything, waits, stores an argument or a result.
//! In: events from router, surface, sessions, logins, installs and reloads.  Out: the same events, to every subscriber that wants them.
//! Tests: below, `observe/record.rs`, `metamcp/tests/surface/records.rs`.

mod action;
mod log;
mod record;
mod redactions;
mod script;
mod totals;
mod tracer;

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use metamcp_calls::state_change::StateChange;
use metamcp_types::moment::Moment;
use parking_lot::RwLock;

pub use action::{Action, Subject};
pub use log::EventLog;
pub use record::{Attempt, CallRecord, ClientInfo, Identity, Origin, StartTimes, Verdict};
pub use redactions::Redactions;
pub use script::{ScriptPayload, ScriptRecord};
pub use totals::{TokenTotals, Totals};
pub use tracer::{AttemptTrace, CallTrace, ClientLink, Tracer};

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A call ended, or was refused before it was sent. Published before the response, so that subscribers are up to
    /// date when the caller continues.
    Call(&'a CallRecord, Payload<'a>),
    /// A client searched and was shown these tools.
    Search { identity: &'a Identity, query: &'a str, ids: &'a [String], at: Moment },
    /// A breaker, a connection or the pool changed its state.
    State { server: &'a str, change: &'a StateChange },
    /// A login at a remote server changed its state.
    Login { server: &'a str, change: LoginChange },
    /// So many secrets were redacted from one message to a client.
    Redaction { removed: u64 },
    /// A script ended, or was not run.
    Script(&'a ScriptRecord, ScriptPayload<'a>),
    /// Something was decided or changed.
    Action(Action<'a>),
}

/// Arguments and result of a call. Subscribers may read them; they are not part of the record, because they may contain
/// secrets and be megabytes long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payload<'a> {
    pub arguments: Option<&'a Bytes>,
    /// The same, or the params of a request that is forwarded unchanged.
    pub body: Option<&'a Bytes>,
    pub result: Option<&'a Bytes>,
}

/// What happened to a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginChange {
    /// A person has to sign in.
    Needed,
    /// It waits for a person in a browser.
    Started,
    /// It led to a token.
    Granted,
    /// The token was replaced without a person.
    Refreshed,
    /// It did not lead to a token.
    Failed,
    /// It was removed.
    Forgotten,
}

/// Which events a subscriber wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    pub const NOTHING: Interest = Interest(0);
    pub const CALLS: Interest = Interest(1);
    pub const SEARCHES: Interest = Interest(1 << 1);
    pub const STATES: Interest = Interest(1 << 2);
    /// Connections becoming busy and idle, which most calls cause.
    pub const ACTIVITY: Interest = Interest(1 << 3);
    pub const LOGINS: Interest = Interest(1 << 4);
    pub const REDACTIONS: Interest = Interest(1 << 5);
    pub const SCRIPTS: Interest = Interest(1 << 6);
    pub const ACTIONS: Interest = Interest(1 << 7);

    #[must_use]
    pub const fn and(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    const fn has(self, other: Interest) -> bool {
        self.0 & other.0 != 0
    }
}

impl Event<'_> {
    fn interest(&self) -> Interest {
        match self {
            Event::Call(..) => Interest::CALLS,
            Event::Search { .. } => Interest::SEARCHES,
            Event::State { change, .. } if change.is_activity() => Interest::ACTIVITY,
            Event::State { .. } => Interest::STATES,
            Event::Login { .. } => Interest::LOGINS,
            Event::Redaction { .. } => Interest::REDACTIONS,
            Event::Script(..) => Interest::SCRIPTS,
            Event::Action(_) => Interest::ACTIONS,
        }
    }
}

/// Receives events on the thread that relays calls: it must not block, and must not subscribe or unsubscribe there.
pub trait Subscriber: Send + Sync {
    fn interest(&self) -> Interest;
    fn on_event(&self, event: &Event<'_>);
}

/// See the module.
#[derive(Default)]
pub struct Observer {
    subscribers: RwLock<Vec<Row>>,
    /// The union of their interests, so that no event is built without a subscriber.
    wanted: AtomicU8,
    last: AtomicU64,
    totals: Totals,
    tracer: OnceLock<Arc<dyn Tracer>>,
}

struct Row {
    number: u64,
    interest: Interest,
    subscriber: Arc<dyn Subscriber>,
}

/// A subscription.
#[must_use = "dropping it ends the subscription"]
pub struct Subscription {
    observer: Arc<Observer>,
    number: u64,
}

impl Observer {
    /// Subscribes for the life of the gateway.
    pub fn attach(&self, subscriber: Arc<dyn Subscriber>) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let interest = subscriber.interest();
        let mut rows = self.subscribers.write();
        rows.push(Row { number, interest, subscriber });
        self.wanted.store(all_of(&rows).0, Ordering::Release);
        number
    }

    /// Subscribes until the returned value is dropped.
    pub fn subscribe(self: &Arc<Self>, subscriber: Arc<dyn Subscriber>) -> Subscription {
        Subscription { number: self.attach(subscriber), observer: Arc::clone(self) }
    }

    /// What models were shown and spared so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Traces calls from now on; the first one counts.
    pub fn trace_with(&self, tracer: Arc<dyn Tracer>) {
        drop(self.tracer.set(tracer));
    }

    /// Who traces calls, if anybody does.
    pub fn tracer(&self) -> Option<&Arc<dyn Tracer>> {
        self.tracer.get()
    }

    /// Whether such events have a subscriber: check before building an expensive one.
    pub fn wants(&self, interest: Interest) -> bool {
        Interest(self.wanted.load(Ordering::Acquire)).has(interest)
    }

    pub fn publish(&self, event: &Event<'_>) {
        let interest = event.interest();
        if !self.wants(interest) {
            return;
        }
        let rows = self.subscribers.read();
        for row in rows.iter().filter(|row| row.interest.has(interest)) {
            row.subscriber.on_event(event);
        }
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut rows = self.observer.subscribers.write();
        rows.retain(|row| row.number != self.number);
        self.observer.wanted.store(all_of(&rows).0, Ordering::Release);
    }
}

fn all_of(rows: &[Row]) -> Interest {
    rows.iter().fold(Interest::NOTHING, |all, row| all.and(row.interest))
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    struct Seen(Interest, Mutex<Vec<String>>);

    impl Subscriber for Seen {
        fn interest(&self) -> Interest {
            self.0
        }

        fn on_event(&self, event: &Event<'_>) {
            self.1.lock().push(format!("{event:?}"));
        }
    }

    #[test]
    fn each_hears_what_it_wants_while_it_is_subscribed() {
        let observer = Arc::new(Observer::default());
        assert!(!observer.wants(Interest::REDACTIONS));
        let seen = Arc::new(Seen(Interest::REDACTIONS.and(Interest::LOGINS), Mutex::default()));
        let subscription = observer.subscribe(seen.clone());
        assert!(observer.wants(Interest::REDACTIONS) && !observer.wants(Interest::CALLS));
        observer.publish(&Event::Redaction { removed: 2 });
        observer.publish(&Event::Login { server: "a", change: LoginChange::Granted });
        let identity = Identity::owner();
        observer.publish(&Event::Search {
            identity: &identity,
            query: "q",
            ids: &[],
            at: Moment::START,
        });
        assert_eq!(
            *seen.1.lock(),
            ["Redaction { removed: 2 }", "Login { server: \"a\", change: Granted }"]
        );
        drop(subscription);
        assert!(!observer.wants(Interest::REDACTIONS));
        observer.publish(&Event::Redaction { removed: 1 });
        assert_eq!(seen.1.lock().len(), 2);
    }
}
