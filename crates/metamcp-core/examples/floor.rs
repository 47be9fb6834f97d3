//! How often a first hit is sure enough, by floor: for questions of a catalog itself, and for those of another one.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement, run by hand")]

use std::path::Path;

use metamcp_core::eval::Corpus;
use metamcp_core::search::Strategy;
use serde_json::Value;

fn main() {
    let folder = std::env::args().nth(1).expect("the folder of the sets");
    let sets = ["metatool", "mcpzero", "ultratool"];
    let text = |set: &str, file: &str| {
        std::fs::read_to_string(Path::new(&folder).join(set).join(file)).unwrap()
    };
    let queries = |set: &str| -> Vec<String> {
        let all = text(set, "queries.jsonl");
        let lines: Vec<&str> = all.lines().collect();
        let step = (lines.len() / 150).max(1);
        let query = |line: &&str| {
            let value: Value = serde_json::from_str(line).unwrap();
            value["query"].as_str().unwrap().to_owned()
        };
        lines.iter().step_by(step).map(query).collect()
    };
    let floors = [0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7];
    println!("set: share above each floor {floors:?}");
    for set in sets {
        let corpus = Corpus::read(&text(set, "tools.jsonl")).unwrap();
        for other in sets {
            let sure: Vec<f32> = queries(other)
                .iter()
                .map(|query| {
                    let hits = corpus.index.search(query, Strategy::Hybrid, 1, None);
                    hits.first().and_then(|hit| hit.confidence).unwrap_or(0.0)
                })
                .collect();
            let share = |floor: f32| {
                let above = sure.iter().filter(|sure| **sure >= floor).count();
                format!("{:.2}", above as f32 / sure.len() as f32)
            };
            let shares: Vec<String> = floors.iter().map(|floor| share(*floor)).collect();
            println!("{set} asked {other}: {}", shares.join(" "));
        }
    }
}
