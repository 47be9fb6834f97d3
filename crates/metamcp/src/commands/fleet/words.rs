//! A fleet as text and JSON.

use std::io::{self, Write};

use metamcp_engine::fleet::operator::{FleetReport, NodeReadiness, NodeReport};
use serde_json::{Value, json};

use crate::render::{self, visible};

/// Instances that are listed; `--json` has all.
const MOST_LISTED: usize = 200;

pub(super) fn json(fleet: &FleetReport) -> Value {
    let nodes: Vec<Value> = fleet
        .nodes
        .iter()
        .map(|(name, node)| {
            let mut told = json!(node);
            told["name"] = json!(name);
            told
        })
        .collect();
    json!({ "nodes": nodes, "silent": fleet.silent() })
}

pub(super) fn write(fleet: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    if fleet.nodes.is_empty() {
        return writeln!(
            out,
            "No node answers: no gateway runs in this fleet, or not with this key, account and prefix."
        );
    }
    let silent = fleet.silent();
    let ready = fleet.nodes.values().filter(|node| node.readiness == NodeReadiness::Ready).count();
    writeln!(out, "{ready} of {} ready", render::plural(fleet.nodes.len() + silent.len(), "node"))?;
    let head = ["node", "state", "version", "up", "servers", "calls for others", "labels"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(fleet.nodes.iter().map(|(name, node)| row(name, node)));
    rows.extend(silent.iter().map(|name| vec![visible(name), "silent".to_owned()]));
    writeln!(out)?;
    render::table(out, &rows)?;
    instances(fleet, out)?;
    let refused: u64 = fleet.nodes.values().flat_map(|node| node.refused.values()).sum();
    if refused > 0 {
        writeln!(
            out,
            "\n{refused} messages on the bus were refused; the logs of the nodes say why"
        )?;
    }
    Ok(())
}

fn row(name: &str, node: &NodeReport) -> Vec<String> {
    let labels: Vec<String> =
        node.labels.iter().map(|(name, value)| visible(&format!("{name}={value}"))).collect();
    vec![
        visible(name),
        state(node.readiness).to_owned(),
        visible(&node.version),
        render::age(node.up_ms),
        format!("{} of {}", node.owned, node.capacity),
        node.foreign_calls.to_string(),
        labels.join(","),
    ]
}

fn instances(fleet: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    let mut all: Vec<Vec<String>> = fleet
        .nodes
        .iter()
        .flat_map(|(name, node)| {
            node.instances.iter().map(move |one| {
                let pid = one.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
                vec![visible(&one.server), visible(name), pid, visible(&one.epoch)]
            })
        })
        .collect();
    if all.is_empty() {
        return Ok(());
    }
    all.sort();
    let more = all.len().saturating_sub(MOST_LISTED);
    all.truncate(MOST_LISTED);
    all.insert(0, ["server", "node", "process", "epoch"].map(str::to_owned).to_vec());
    writeln!(out)?;
    render::table(out, &all)?;
    if more > 0 {
        writeln!(out, "  and {more} more; --json has all")?;
    }
    Ok(())
}

fn state(readiness: NodeReadiness) -> &'static str {
    match readiness {
        NodeReadiness::Ready => "ready",
        NodeReadiness::NoBus => "no bus",
        NodeReadiness::BucketTooNew => "waiting",
        NodeReadiness::Draining => "draining",
        NodeReadiness::Drained => "drained",
        NodeReadiness::Superseded => "superseded",
    }
}

pub(super) fn servers(count: usize) -> String {
    render::plural(count, "server")
}

pub(super) fn no_node(name: &str, fleet: &FleetReport) -> String {
    let names: Vec<&str> = fleet.nodes.keys().map(String::as_str).collect();
    format!("no node {:?} answers; the fleet has {}", visible(name), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use metamcp_engine::fleet::operator::{InstanceReport, PeerReport};

    #[test]
    fn a_fleet_reads_as_a_table_and_nothing_of_a_node_reaches_the_terminal_raw() {
        let instance = InstanceReport {
            server: "git\u{1b}[31m".to_owned(),
            epoch: "1.7".to_owned(),
            pid: Some(42),
            ..InstanceReport::default()
        };
        let peer = |name: &str| PeerReport {
            name: name.to_owned(),
            is_alive: true,
            ..PeerReport::default()
        };
        let node = NodeReport {
            version: "0.2.0".to_owned(),
            up_ms: 3_600_000,
            capacity: 8,
            owned: 1,
            instances: vec![instance],
            peers: vec![peer("b"), peer("c")],
            labels: [("gpu".to_owned(), "true".to_owned())].into(),
            ..NodeReport::default()
        };
        let draining = NodeReport { readiness: NodeReadiness::Draining, ..NodeReport::default() };
        let nodes = [("a".to_owned(), node), ("b".to_owned(), draining)].into();
        let fleet = FleetReport { nodes };
        let mut out = Vec::new();
        write(&fleet, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("1 of 3 nodes ready\n"), "{text}");
        for wanted in ["ready", "1 of 8", "gpu=true", "draining", "silent", "1.7", "42"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
        assert_eq!(json(&fleet)["silent"], json!(["c"]));
        assert_eq!(json(&fleet)["nodes"][0]["name"], "a");
    }
}
