//! Metrics by OTLP: the histograms of the semantic conventions, and the main readings.

use std::sync::Arc;
use std::time::Duration;

use metamcp_types::text;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Histogram, Meter, MeterProvider as _};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;

use super::SCOPE;
use super::spans::error_of;
use super::watched::Watched;
use crate::metrics::{Metrics, Readings, ServerReading};
use crate::observe::{CallRecord, Event, Interest, Subscriber};

/// The bounds that the semantic conventions for MCP ask for.
const SECONDS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Longest name of a tool or a server. The SDK bounds how many there are.
const MAX_NAME: usize = 100;

pub(super) struct Instruments {
    provider: SdkMeterProvider,
    server: Histogram<f64>,
    client: Histogram<f64>,
}

impl Instruments {
    pub(super) fn new(
        exporter: Watched<MetricExporter>,
        resource: Resource,
        readings: &Arc<Metrics>,
    ) -> Instruments {
        let provider = SdkMeterProvider::builder().with_resource(resource);
        let provider = provider.with_periodic_exporter(exporter).build();
        let meter = provider.meter(SCOPE);
        let duration = |name: &'static str, what: &'static str| {
            let histogram = meter.f64_histogram(name).with_unit("s").with_description(what);
            histogram.with_boundaries(SECONDS.to_vec()).build()
        };
        let server = duration(
            "mcp.server.operation.duration",
            "Duration of a request, as the gateway answered it",
        );
        let client = duration(
            "mcp.client.operation.duration",
            "Duration of a request, as the server behind the gateway answered it",
        );
        observe(&meter, readings);
        Instruments { provider, server, client }
    }

    fn ended(&self, record: &CallRecord) {
        let name = |text: &str| text::clean_line(text, MAX_NAME).into_owned();
        let mut attributes = vec![KeyValue::new("mcp.method.name", record.method)];
        if record.method == "tools/call" {
            attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
            attributes.push(KeyValue::new("gen_ai.tool.name", name(&record.tool)));
        }
        attributes.push(KeyValue::new("metamcp.server", name(&record.server)));
        attributes.extend(error_of(record).0.map(|word| KeyValue::new("error.type", word)));
        let took = |from| record.ended.since(from).as_secs_f64();
        self.server.record(took(record.arrived), &attributes);
        if let Some(attempt) = &record.attempt {
            self.client.record(took(attempt.sent), &attributes);
        }
    }

    pub(super) fn shut_down(&self, limit: Duration) {
        // What could not be sent is lost, which nobody can be told any more.
        drop(self.provider.shutdown_with_timeout(limit));
    }
}

impl Subscriber for Instruments {
    fn interest(&self) -> Interest {
        Interest::CALLS
    }

    fn on_event(&self, event: &Event<'_>) {
        if let Event::Call(record, _) = event {
            self.ended(record);
        }
    }
}

/// Registers what is read when an export is due, on the thread of the SDK.
fn observe(meter: &Meter, readings: &Arc<Metrics>) {
    type Whole = fn(&Readings) -> Option<u64>;
    let whole: [(&'static str, &'static str, Whole); 5] = [
        ("metamcp.calls.open", "{call}", |read| Some(read.calls_open as u64)),
        ("metamcp.sessions", "{session}", |read| Some(read.sessions as u64)),
        ("metamcp.pool.slots.used", "{connection}", |read| Some(read.pool.used as u64)),
        ("metamcp.pool.waiting", "{server}", |read| Some(read.pool.waiting as u64)),
        ("metamcp.memory", "By", |read| read.memory),
    ];
    for (name, unit, value) in whole {
        let readings = Arc::clone(readings);
        meter
            .u64_observable_gauge(name)
            .with_unit(unit)
            .with_callback(move |to: &dyn AsyncInstrument<u64>| {
                if let Some(value) = value(&readings.readings()) {
                    to.observe(value, &[]);
                }
            })
            .build();
    }
    type OfServer = fn(&ServerReading) -> Option<u64>;
    let servers: [(&'static str, &'static str, OfServer); 4] = [
        ("metamcp.server.calls.in_flight", "{call}", |one| Some(u64::from(one.in_flight))),
        ("metamcp.server.calls.queued", "{call}", |one| Some(one.queued as u64)),
        ("metamcp.server.breakers.open", "{breaker}", |one| {
            let open = one.phases.iter().find(|(phase, _)| *phase == "open");
            Some(open.map_or(0, |(_, count)| u64::from(*count)))
        }),
        ("metamcp.server.memory", "By", |one| one.memory),
    ];
    for (name, unit, value) in servers {
        let readings = Arc::clone(readings);
        meter
            .u64_observable_gauge(name)
            .with_unit(unit)
            .with_callback(move |to: &dyn AsyncInstrument<u64>| {
                for server in &readings.readings().servers {
                    let of = [KeyValue::new("metamcp.server", server.name.to_string())];
                    if let Some(value) = value(server) {
                        to.observe(value, &of);
                    }
                }
            })
            .build();
    }
    let tokens: [(&'static str, Whole); 2] = [
        ("metamcp.tokens.shown", |read| Some(read.tokens.shown)),
        ("metamcp.tokens.saved", |read| Some(read.tokens.saved)),
    ];
    for (name, value) in tokens {
        let readings = Arc::clone(readings);
        meter
            .u64_observable_counter(name)
            .with_unit("{token}")
            .with_callback(move |to: &dyn AsyncInstrument<u64>| {
                to.observe(value(&readings.readings()).unwrap_or(0), &[]);
            })
            .build();
    }
}
