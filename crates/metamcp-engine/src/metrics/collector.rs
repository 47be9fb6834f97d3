//! Readings as metrics, made anew each time somebody asks.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::names;
use super::readings::{FleetReading, Readings, ServerReading, Source};

/// See the module.
#[derive(Debug)]
pub(super) struct Gauges {
    source: Arc<Source>,
}

impl Gauges {
    pub(super) fn new(source: Arc<Source>) -> Gauges {
        Gauges { source }
    }
}

/// Labels of a value, and the value.
type Row = (Vec<(&'static str, Arc<str>)>, u64);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let read = self.source.read();
        let tokens = read.tokens;
        let by = |word: &str, tokens| (vec![("by", Arc::from(word))], tokens);
        let saved = vec![
            by("lists", tokens.saved_lists),
            by("scripts", tokens.saved_scripts),
            by("cuts", tokens.saved_cuts),
        ];
        let one = |value: usize| vec![(Vec::new(), value as u64)];
        let fleet = |value: fn(&FleetReading) -> usize| {
            read.fleet.map_or_else(Vec::new, |fleet| one(value(&fleet)))
        };
        let each = |value: &dyn Fn(&ServerReading) -> Option<u64>| of_servers(&read, value);
        for (name, rows) in [
            ("calls_open", one(read.calls_open)),
            ("calls_in_flight", each(&|server| Some(u64::from(server.in_flight)))),
            ("calls_queued", each(&|server| Some(server.queued as u64))),
            ("tokens_shown", vec![(Vec::new(), tokens.shown)]),
            ("tokens_saved", saved),
            ("server_instances", by_word(&read, "state", |server| &server.states)),
            ("server_memory", each(&|server| server.memory)),
            ("breakers", by_word(&read, "phase", |server| &server.phases)),
            ("pool_slots", one(read.pool.size)),
            ("pool_slots_used", one(read.pool.used)),
            ("pool_waiting", one(read.pool.waiting)),
            ("sessions", one(read.sessions)),
            ("fleet_ready", fleet(|fleet| usize::from(fleet.is_ready))),
            ("fleet_servers", fleet(|fleet| fleet.servers)),
            ("fleet_calls_for_others", fleet(|fleet| fleet.calls_for_others)),
            ("fleet_calls_elsewhere", fleet(|fleet| fleet.calls_elsewhere)),
            ("memory", read.memory.map(|bytes| (Vec::new(), bytes)).into_iter().collect()),
            ("uptime", vec![(Vec::new(), read.uptime.as_secs())]),
        ] {
            if !rows.is_empty() {
                write(&mut encoder, name, &rows)?;
            }
        }
        Ok(())
    }
}

fn of_servers(read: &Readings, value: &dyn Fn(&ServerReading) -> Option<u64>) -> Vec<Row> {
    let rows = read.servers.iter();
    let named = |server: &ServerReading| vec![("server", Arc::clone(&server.name))];
    rows.filter_map(|server| Some((named(server), value(server)?))).collect()
}

fn by_word(
    read: &Readings,
    label: &'static str,
    words: fn(&ServerReading) -> &[(&'static str, u32)],
) -> Vec<Row> {
    let mut rows = Vec::new();
    for server in &read.servers {
        for (word, count) in words(server) {
            let labels = vec![("server", Arc::clone(&server.name)), (label, Arc::from(*word))];
            rows.push((labels, u64::from(*count)));
        }
    }
    rows
}

fn write(encoder: &mut DescriptorEncoder<'_>, name: &str, rows: &[Row]) -> Result<(), Error> {
    let metric = names::by_name(name);
    let is_counter = metric.kind == "counter";
    let kind = if is_counter { MetricType::Counter } else { MetricType::Gauge };
    // The descriptor of a registered metric ends so too.
    let help = format!("{}.", metric.help);
    let unit = names::unit(metric);
    let mut encoder = encoder.encode_descriptor(metric.name, &help, unit.as_ref(), kind)?;
    let value = |encoder: MetricEncoder<'_>, value: u64| match is_counter {
        true => ConstCounter::new(value).encode(encoder),
        false => ConstGauge::new(value as f64).encode(encoder),
    };
    match rows {
        [(labels, only)] if labels.is_empty() => value(encoder, *only),
        rows => {
            rows.iter().try_for_each(|(labels, one)| value(encoder.encode_family(labels)?, *one))
        }
    }
}
