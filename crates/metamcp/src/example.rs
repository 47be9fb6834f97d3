//! Example MCP servers built into the binary, so that trying metamcp needs no download.
//! Owns: five small servers, started as `metamcp __example NAME [ARGUMENT]`.      Never: knows the gateway.
//! In: JSON-RPC lines, `initialize` era 2024-11-05 to 2025-11-25.  Out: JSON-RPC lines.
//! Tests: `example/tests.rs` talks to each server over its lines; computations are tested beside the code.

mod clock;
mod declare;
mod files;
mod notes;
mod numbers;
mod serve;
#[cfg(test)]
mod tests;
mod text;

use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};

use serve::{Server, Service};

/// Name, command-line argument and one-line description of each example server.
pub(crate) const SERVERS: [(&str, &str, &str); 5] = [
    ("files", "DIR", "List, read, search and write files inside one folder"),
    ("notes", "FILE", "Keep short notes with tags, and find them again"),
    ("clock", "", "Time of day, time zones, durations and calendar dates"),
    ("text", "", "Count, compare, replace, encode and hash text"),
    ("numbers", "", "Statistics, arithmetic, units and number bases"),
];

/// Runs one example server until `input` ends.
pub(crate) fn run(
    name: &str,
    arguments: &[String],
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<()> {
    let served = match (name, arguments) {
        ("files", [folder]) => {
            let state = files::Folder::open(Path::new(folder))
                .with_context(|| format!("example server files cannot use the folder {folder}"))?;
            serve(&files::SERVICE, state, input, output)
        }
        ("notes", [file]) => {
            serve(&notes::SERVICE, notes::Notebook::at(Path::new(file)), input, output)
        }
        ("clock", []) => serve(&clock::SERVICE, clock::Clock, input, output),
        ("text", []) => serve(&text::SERVICE, text::Text, input, output),
        ("numbers", []) => serve(&numbers::SERVICE, numbers::Numbers, input, output),
        _ => bail!("no example server is started by `{name} {}`; {}", arguments.join(" "), usage()),
    };
    served.with_context(|| format!("example server {name} lost its client"))
}

fn serve<S>(
    service: &'static Service<S>,
    state: S,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> std::io::Result<()> {
    Server { service, state }.serve(input, output)
}

fn usage() -> String {
    let forms: Vec<String> = SERVERS
        .iter()
        .map(|(name, takes, _)| format!("{name} {takes}").trim_end().to_owned())
        .collect();
    format!("use one of: {}", forms.join(", "))
}
