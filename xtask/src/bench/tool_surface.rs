//! The full tool surface compared with the compact one, and what redaction costs where there are no secrets.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::{Programs, numbers, route, servers};

/// A load for measuring redaction: many concurrent calls, since a single call costs mostly its wake-up time, which
/// varies between runs by more than redaction takes.
struct Load {
    what: &'static str,
    payload: &'static str,
    at_once: &'static str,
    calls: &'static str,
}

const SCRUBBED: [Load; 3] = [
    Load { what: "64 B", payload: "64", at_once: "64", calls: "200000" },
    Load { what: "4 KB", payload: "4096", at_once: "64", calls: "50000" },
    Load { what: "64 KB", payload: "65536", at_once: "8", calls: "6000" },
];

pub(super) fn rows(
    programs: &Programs,
    folder: &Path,
    rounds: usize,
    page: &mut String,
) -> Result<()> {
    let config = servers(programs, folder, 1, &[])?;
    let one = |options: &[&str], flags: &[&str], name: &str| -> Result<f64> {
        let mut command = route(programs, folder, options);
        command.arg(&programs.metamcp).arg("--config").arg(&config).args(flags);
        Ok(numbers(&mut command)?[name].as_f64().unwrap_or(f64::NAN))
    };
    // In turns, so that a busy moment of the machine affects both; the best of each counts, since noise only adds.
    let turns = rounds.max(3) * 2;
    let text = "x".repeat(64);
    let run = json!({ "tool_id": "s0:echo", "args": { "text": text } }).to_string();
    let step = json!({ "tool_id": "s0:echo", "args": { "text": text } });
    let chain = json!({ "steps": vec![step; 10] }).to_string();
    let (mut called, mut ran, mut ten) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..turns {
        called = called.min(one(&["--gateway", "--calls", "10000"], &[], "p50_us")?);
        ran = ran.min(one(&["--call", "run_tool", &run, "--calls", "10000"], &[], "p50_us")?);
        ten = ten.min(one(&["--call", "run_chain", &chain, "--calls", "1000"], &[], "p50_us")?);
    }
    page.push_str("\n## The full surface, and redaction\n\n| what | number |\n|---|---|\n");
    writeln!(
        page,
        "| `run_tool` of 64 B next to `mcp_call`, p50 | {ran:.1} us / {called:.1} us, **{:.2}** |",
        ran / called
    )?;
    writeln!(
        page,
        "| a chain of 10 steps next to ten `mcp_call`s, p50 | {ten:.0} us / {:.0} us, **{:.2}** |",
        called * 10.0,
        ten / (called * 10.0)
    )?;
    for load in &SCRUBBED {
        let options = [
            "--gateway",
            "--payload",
            load.payload,
            "--calls",
            load.calls,
            "--in-flight",
            load.at_once,
        ];
        let mut best = [f64::INFINITY; 3];
        for _ in 0..turns {
            for (best, flag) in best.iter_mut().zip(["true", "false", "false"]) {
                *best = best.min(one(&options, &["--scrub", flag], "cpu_us_per_call")?);
            }
        }
        let [on, off, again] = best;
        let what = load.what;
        writeln!(
            page,
            "| CPU of `mcp_call` of {what}, redaction on / off / off again | {on:.2} us / {off:.2} us / {again:.2} us, **{:.2}**, where noise alone is {:.2} |",
            on / off.min(again),
            off.max(again) / off.min(again)
        )?;
    }
    Ok(())
}
