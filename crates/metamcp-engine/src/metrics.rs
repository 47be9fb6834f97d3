//! Metrics: what happens counted as it happens, what is the case read when somebody asks.
//! Owns: names, labels and bounds of every metric, their text forms.      Never: serves them, blocks a call, keeps a value of one.
//! In: events of `observe`; the router, when asked.  Out: `OpenMetrics`, or the older text form of Prometheus.
//! Tests: below `metrics/`, `metamcp/tests/observability/`, and by a real parser in `metamcp/tests/real/observability.rs`.

mod calls;
mod collector;
mod events;
mod format;
mod names;
mod readings;

use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use format::Format;
pub use names::{METRICS, Metric};
pub use readings::{PoolReading, Readings, ServerReading};

use crate::observe::{Event, Interest, Subscriber};
use crate::router::Router;
use calls::Calls;
use collector::Gauges;
use events::Events;
use readings::Source;

/// See the module.
pub struct Metrics {
    calls: Calls,
    events: Events,
    source: Arc<Source>,
    registry: Registry,
}

impl Metrics {
    /// Of everything that goes through this router.
    pub fn new(router: &Arc<Router>) -> Metrics {
        let mut registry = Registry::with_prefix("metamcp");
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", names::help("build"), Info::new(version));
        let calls = Calls::register(&mut registry);
        let events = Events::register(&mut registry);
        let source = Arc::new(Source::new(router));
        registry.register_collector(Box::new(Gauges::new(Arc::clone(&source))));
        Metrics { calls, events, source, registry }
    }

    /// All of them as text. Reads what processes use, which takes a millisecond each: not for a thread that relays calls.
    pub fn render(&self, format: Format) -> String {
        let mut whole = String::new();
        match text::encode(&mut whole, &self.registry) {
            Ok(()) => format.of(whole),
            // A `String` takes everything; half a page would be read as a whole one.
            Err(_) => format.of("# EOF\n".to_owned()),
        }
    }

    /// What is the case now. Blocks as `render` does.
    pub fn readings(&self) -> Readings {
        self.source.read()
    }
}

impl Subscriber for Metrics {
    fn interest(&self) -> Interest {
        let counted = Interest::CALLS.and(Interest::SEARCHES).and(Interest::STATES);
        counted.and(Interest::LOGINS).and(Interest::REDACTIONS).and(Interest::SCRIPTS)
    }

    fn on_event(&self, event: &Event<'_>) {
        match event {
            Event::Call(record, _) => self.calls.count(record),
            other => self.events.count(other),
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}
