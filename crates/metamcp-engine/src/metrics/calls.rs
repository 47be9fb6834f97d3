//! Calls by server, tool and verdict. On the path of every call: two look-ups by name, or none where the call before was of
//! the same tool and ended alike, and numbers in place.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::names::{self, MAX_NAME, MAX_SERVERS, MAX_TOOLS, OTHER};
use crate::observe::{CallRecord, Verdict};

/// From what a warm server on this machine takes to the longest default timeout of a call.
pub(super) const SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 120.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCall {
    server: Arc<str>,
    tool: Arc<str>,
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfServer {
    pub(super) server: Arc<str>,
}

type Names<T> = HashMap<Box<str>, T, RandomState>;

/// See the module.
pub(super) struct Calls {
    table: Mutex<Table>,
    by_verdict: Family<OfCall, Counter>,
    duration: Family<OfServer, Histogram>,
    queue: Family<OfServer, Histogram>,
    again: Family<OfServer, Counter>,
    arguments: Family<OfServer, Counter>,
    results: Family<OfServer, Counter>,
}

#[derive(Default)]
struct Table {
    servers: Names<Server>,
    /// Tools of all servers together.
    tools: usize,
    last: Option<Last>,
}

struct Server {
    label: Arc<str>,
    numbers: Arc<Numbers>,
    tools: Names<Tool>,
}

/// The numbers of one server, ready to be counted.
struct Numbers {
    duration: Histogram,
    queue: Histogram,
    again: Counter,
    arguments: Counter,
    results: Counter,
}

/// What the last call was, and where it was counted: whoever makes many calls makes the same one again, mostly.
struct Last {
    server: Arc<str>,
    tool: Arc<str>,
    method: &'static str,
    verdict: Verdict,
    numbers: Arc<Numbers>,
    counter: Counter,
}

impl Last {
    fn is_like(&self, record: &CallRecord) -> bool {
        self.verdict == record.verdict
            && self.method == record.method
            && self.tool == record.tool
            && self.server == record.server
    }
}

struct Tool {
    label: Arc<str>,
    /// A tool has one or two of them as a rule, which a search finds faster than a hash.
    verdicts: Vec<(&'static str, Counter)>,
}

impl Calls {
    pub(super) fn register(registry: &mut Registry) -> Calls {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let calls = Calls {
            table: Mutex::default(),
            by_verdict: Family::default(),
            duration: Family::new_with_constructor(histogram),
            queue: Family::new_with_constructor(histogram),
            again: Family::default(),
            arguments: Family::default(),
            results: Family::default(),
        };
        names::register(registry, "calls", calls.by_verdict.clone());
        names::register(registry, "call_duration", calls.duration.clone());
        names::register(registry, "call_queue", calls.queue.clone());
        names::register(registry, "calls_sent_again", calls.again.clone());
        names::register(registry, "call_arguments", calls.arguments.clone());
        names::register(registry, "call_results", calls.results.clone());
        calls
    }

    pub(super) fn count(&self, record: &CallRecord) {
        let mut table = self.table.lock();
        let (numbers, counter) = match &table.last {
            Some(last) if last.is_like(record) => {
                last.counter.inc();
                return last.numbers.count(record);
            }
            _ => self.place_of(record, &mut table),
        };
        counter.inc();
        numbers.count(record);
        table.last = Some(Last {
            server: Arc::clone(&record.server),
            tool: Arc::clone(&record.tool),
            method: record.method,
            verdict: record.verdict,
            numbers,
            counter,
        });
    }

    /// Where such a call is counted; a place of its own if there is room for one.
    fn place_of(&self, record: &CallRecord, table: &mut Table) -> (Arc<Numbers>, Counter) {
        let (server, tool) = named(record);
        let verdict = record.verdict.word();
        let known = table.find(server, tool).and_then(|(server, tool)| {
            let (_, counter) = tool.verdicts.iter().find(|(word, _)| *word == verdict)?;
            Some((Arc::clone(&server.numbers), counter.clone()))
        });
        known.unwrap_or_else(|| self.first(table, (server, tool), verdict))
    }

    /// The first call of a tool, or the first that ended so.
    fn first(
        &self,
        table: &mut Table,
        (server, tool): (&str, &str),
        verdict: &'static str,
    ) -> (Arc<Numbers>, Counter) {
        let is_known = table.servers.contains_key(server);
        let server = if is_known || table.servers.len() < MAX_SERVERS { server } else { OTHER };
        let servers_tool =
            table.servers.get(server).is_some_and(|one| one.tools.contains_key(tool));
        let has_room = table.tools < MAX_TOOLS;
        let tool = if servers_tool || has_room { tool } else { OTHER };
        let Table { servers, tools, .. } = table;
        let known = servers.entry(server.into()).or_insert_with(|| self.server(server));
        let numbers = Arc::clone(&known.numbers);
        let label = Arc::clone(&known.label);
        let tool = known.tools.entry(tool.into()).or_insert_with(|| {
            *tools += 1;
            Tool { label: names::label(tool), verdicts: Vec::new() }
        });
        if let Some((_, counter)) = tool.verdicts.iter().find(|(word, _)| *word == verdict) {
            return (numbers, counter.clone());
        }
        let labels = OfCall { server: label, tool: Arc::clone(&tool.label), verdict };
        let counter = self.by_verdict.get_or_create_owned(&labels);
        tool.verdicts.push((verdict, counter.clone()));
        (numbers, counter)
    }

    fn server(&self, name: &str) -> Server {
        let label = names::label(name);
        let labels = OfServer { server: Arc::clone(&label) };
        let numbers = Numbers {
            duration: self.duration.get_or_create_owned(&labels),
            queue: self.queue.get_or_create_owned(&labels),
            again: self.again.get_or_create_owned(&labels),
            arguments: self.arguments.get_or_create_owned(&labels),
            results: self.results.get_or_create_owned(&labels),
        };
        Server { label, numbers: Arc::new(numbers), tools: Names::default() }
    }
}

impl Table {
    /// Where a call is counted, if it has a place already.
    fn find(&self, server: &str, tool: &str) -> Option<(&Server, &Tool)> {
        let known = match self.servers.get(server) {
            Some(known) => known,
            None if self.servers.len() >= MAX_SERVERS => self.servers.get(OTHER)?,
            None => return None,
        };
        let tool = match known.tools.get(tool) {
            Some(tool) => tool,
            None if self.tools >= MAX_TOOLS => known.tools.get(OTHER)?,
            None => return None,
        };
        Some((known, tool))
    }
}

impl Numbers {
    fn count(&self, record: &CallRecord) {
        self.duration.observe(record.ended.since(record.arrived).as_secs_f64());
        if let Some(sent) = record.sent {
            self.queue.observe(sent.since(record.arrived).as_secs_f64());
        }
        if record.attempts > 1 {
            self.again.inc();
        }
        self.arguments.inc_by(record.bytes_in as u64);
        self.results.inc_by(record.bytes_out as u64);
    }
}

/// The names under which a call is counted. What only a caller said to exist gets no label: it could say anything.
fn named(record: &CallRecord) -> (&str, &str) {
    let (server, tool) = match record.verdict {
        Verdict::Refused("server_not_found") => (OTHER, OTHER),
        Verdict::Refused("tool_not_found") => (&*record.server, OTHER),
        // The subject of any other request is an address, and there is no end of them.
        _ if record.method != "tools/call" => (&*record.server, record.method),
        _ => (&*record.server, &*record.tool),
    };
    let bounded = |name| if str::len(name) > 4 * MAX_NAME { OTHER } else { name };
    (bounded(server), bounded(tool))
}

#[cfg(test)]
mod tests {
    use metamcp_types::moment::Moment;
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::observe::{Identity, Origin};

    fn record(server: &str, tool: &str, verdict: Verdict) -> CallRecord {
        let names = (Arc::from(server), Arc::from(tool));
        let now = Moment::millis(5);
        let mut record = CallRecord::arriving(
            Arc::new(Identity::owner()),
            Origin::McpCall,
            names,
            "tools/call",
            None,
            now,
        );
        (record.sent, record.ended) = (Some(Moment::millis(7)), Moment::millis(9));
        (record.verdict, record.attempts, record.bytes_out) = (verdict, 1, 10);
        record
    }

    fn text(registry: &Registry) -> String {
        let mut whole = String::new();
        encode(&mut whole, registry).unwrap();
        whole
    }

    #[test]
    fn calls_are_counted_by_what_they_were() {
        let mut registry = Registry::with_prefix("metamcp");
        let calls = Calls::register(&mut registry);
        for _ in 0..3 {
            calls.count(&record("a", "echo", Verdict::Ok));
        }
        calls.count(&record("a", "echo", Verdict::Failed("timeout")));
        calls.count(&record("a", "invented", Verdict::Refused("tool_not_found")));
        calls.count(&record("invented", "x", Verdict::Refused("server_not_found")));
        let mut read = record("a", "file:///x", Verdict::Ok);
        read.method = "resources/read";
        calls.count(&read);
        let whole = text(&registry);
        for line in [
            r#"metamcp_calls_total{server="a",tool="echo",verdict="ok"} 3"#,
            r#"metamcp_calls_total{server="a",tool="echo",verdict="timeout"} 1"#,
            r#"metamcp_calls_total{server="a",tool="other",verdict="tool_not_found"} 1"#,
            r#"metamcp_calls_total{server="other",tool="other",verdict="server_not_found"} 1"#,
            r#"metamcp_calls_total{server="a",tool="resources/read",verdict="ok"} 1"#,
            r#"metamcp_call_duration_seconds_bucket{le="0.005",server="a"} 6"#,
            r#"metamcp_call_queue_seconds_count{server="a"} 6"#,
            r#"metamcp_call_results_bytes_total{server="a"} 60"#,
        ] {
            assert!(whole.lines().any(|known| known == line), "{line}\n{whole}");
        }
    }

    #[test]
    fn invented_names_cost_a_bounded_number_of_series() {
        let mut registry = Registry::with_prefix("metamcp");
        let calls = Calls::register(&mut registry);
        calls.count(&record("a", "real", Verdict::Ok));
        for at in 0..10_000 {
            calls.count(&record("a", &format!("tool{at}"), Verdict::RpcError));
            calls.count(&record(&format!("server{at}"), "x", Verdict::Ok));
        }
        calls.count(&record("a", &"long".repeat(10_000), Verdict::Ok));
        calls.count(&record("a", "real", Verdict::Ok));
        let whole = text(&registry);
        let series = whole.lines().filter(|line| line.starts_with("metamcp_calls_total{")).count();
        // Each server may have one more for what has no room.
        assert!(series <= MAX_TOOLS + MAX_SERVERS + 2, "{series}");
        let servers =
            whole.lines().filter(|line| line.starts_with("metamcp_call_results_bytes_total{"));
        assert!(servers.count() <= MAX_SERVERS + 1);
        assert!(whole.contains(r#"{server="a",tool="real",verdict="ok"} 2"#));
        assert!(whole.contains(r#"{server="a",tool="other",verdict="rpc_error"}"#));
        assert!(!whole.contains("longlong"));
    }
}
