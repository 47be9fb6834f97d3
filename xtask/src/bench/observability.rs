//! What it costs to be watched: the same build and load with metrics, with the audit log, and with neither, in turns.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::{Programs, Row, client, numbers, row};
use crate::workspace::Workspace;

/// How often each is measured: medians of fewer runs vary by more than the difference to detect.
const TURNS: usize = 11;

/// The load for which the limits hold.
const LOAD: Row = row("64 B, 64 in flight", 64, 64, 1, 200_000);

/// What is switched on, by the name of its section in the configuration, and how much it may cost.
const WAYS: [(&str, Option<&str>, f64); 3] = [
    ("metrics", Some("metrics"), 1.03),
    ("the audit log", Some("audit"), 1.10),
    ("nothing, once more", None, 1.02),
];

pub(super) fn rows(
    _: &Workspace,
    programs: &Programs,
    folder: &Path,
    _: usize,
    page: &mut String,
) -> Result<()> {
    page.push_str("\n## Being watched\n\n");
    writeln!(
        page,
        "`mcp_call` of {}, with nothing that watches and with one thing switched on, in turns; the median of the ratios of neighbouring runs.\n\
         The last row compares nothing with nothing and says how much of a ratio is noise.\n\n\
         | with | p50 without | p50 | ratio | CPU per call without | CPU | ratio | at most |\n|---|---|---|---|---|---|---|---|",
        LOAD.name
    )?;
    let plain = config(programs, folder, None)?;
    for (what, section, most) in WAYS {
        drop(writeln!(io::stderr(), "bench: {what}, in turns"));
        let watched = config(programs, folder, section)?;
        let one = |config: &Path| -> Result<Value> {
            let mut command = client(programs, folder, &LOAD);
            command.args(["--gateway", "--"]).arg(&programs.metamcp).arg("--config").arg(config);
            numbers(&mut command)
        };
        let mut turns = Vec::new();
        for turn in 0..TURNS {
            // Alternate the order, because the first of two is often the slower one.
            turns.push(if turn % 2 == 0 {
                let without = one(&plain)?;
                [without, one(&watched)?]
            } else {
                let with = one(&watched)?;
                [one(&plain)?, with]
            });
        }
        let of = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let way = |at: usize, name| median(turns.iter().map(|turn| of(&turn[at], name)).collect());
        let ratio = |name| {
            median(turns.iter().map(|[without, with]| of(with, name) / of(without, name)).collect())
        };
        writeln!(
            page,
            "| {what} | {:.0} us | {:.0} us | **{:.3}** | {:.2} us | {:.2} us | **{:.3}** | {most:.2} |",
            way(0, "p50_us"),
            way(1, "p50_us"),
            ratio("p50_us"),
            way(0, "cpu_us_per_call"),
            way(1, "cpu_us_per_call"),
            ratio("cpu_us_per_call"),
        )?;
    }
    Ok(())
}

/// A configuration with one trivial server, and this section switched on.
fn config(programs: &Programs, folder: &Path, section: Option<&str>) -> Result<PathBuf> {
    let off = json!({ "enabled": false });
    let server = json!({ "command": programs.echo });
    let mut config = json!({ "mcpServers": { "s0": server }, "metrics": off, "audit": off });
    if let Some(section) = section {
        config[section] = json!({ "enabled": true });
    }
    let path = folder.join(format!("watched-{}.json", section.unwrap_or("off")));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
