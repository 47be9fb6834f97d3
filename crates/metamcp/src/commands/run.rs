//! `metamcp run`: a script over many tools, as `mcp_execute` runs it.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use metamcp_engine::config::Loaded;
use metamcp_surface::execution::{self, CallTally, Logs};
use metamcp_types::text;
use serde_json::{Value, json};

use super::{call, gateway};
use crate::args::RunArgs;
use crate::console;
use crate::exit::{Exit, OrMisuse};

/// Runs one script. Its value goes to `out`, its console output to `diagnostics`.
pub(crate) fn run(
    loaded: &Loaded,
    args: &RunArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let code = read(&args.file)?;
    let mut params = json!({ "code": code });
    if let Some(limit) = args.timeout_ms {
        params["timeoutMs"] = limit.into();
    }
    let finished =
        gateway::with(loaded, async |gateway| call::make(gateway, "mcp_execute", &params).await)?;
    let result = gateway::result(finished)?;
    let structured = &result["structuredContent"];
    if args.json {
        return show_json(structured, out);
    }
    let is_error = result["isError"] == true;
    let left = if is_error { &structured["details"] } else { structured };
    for line in left["logs"].as_array().into_iter().flatten() {
        writeln!(diagnostics, "{}", text::clean(line.as_str().unwrap_or_default(), usize::MAX))?;
    }
    for note in left["notes"].as_array().into_iter().flatten() {
        writeln!(diagnostics, "{}", text::clean(note.as_str().unwrap_or_default(), usize::MAX))?;
    }
    if is_error {
        call::failure(diagnostics, structured)?;
        let calls = left["calls"].as_array().into_iter().flatten();
        let calls: Vec<CallTally> = calls.map(CallTally::from_json).collect();
        let made = execution::footer(&Logs::default(), &calls, left["limit"].is_string());
        if !made.is_empty() {
            writeln!(diagnostics, "{}", text::clean(made.trim_start(), usize::MAX))?;
        }
        return Ok(exit(structured));
    }
    match &structured["value"] {
        Value::Null => {}
        Value::String(said) => writeln!(out, "{}", text::clean(said, usize::MAX))?,
        value => writeln!(out, "{value:#}")?,
    }
    Ok(Exit::Success)
}

/// The same shape for every outcome: status, value, logs, calls, and the error if there is one.
fn show_json(structured: &Value, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if structured["status"] == "ok" {
        writeln!(out, "{structured:#}")?;
        return Ok(Exit::Success);
    }
    let mut error = structured.clone();
    let details = error.get_mut("details").map(Value::take).unwrap_or_default();
    let or = |value: &Value, other: Value| if value.is_null() { other } else { value.clone() };
    let told = json!({
        "status": or(&details["status"], "error".into()),
        "value": null,
        "logs": or(&details["logs"], json!([])),
        "calls": or(&details["calls"], json!([])),
        "error": {
            "code": error["code"],
            "message": error["message"],
            "hint": error["hint"],
            "line": details["line"],
            "column": details["column"],
            "limit": details["limit"],
            "tool_error": details["tool_error"],
        },
    });
    writeln!(out, "{told:#}")?;
    Ok(exit(structured))
}

/// A script that failed counts as a tool that failed; one that never ran, because it is invalid or there is no sandbox,
/// does not.
fn exit(error: &Value) -> Exit {
    let was_run = error["details"]["calls"].is_array();
    match error["code"].as_str() {
        Some("code_error" | "limit_exceeded") if !was_run => Exit::Usage,
        Some("denied") => Exit::Failure,
        Some("timeout" | "execution_failed" | "shutting_down") => Exit::Unavailable,
        _ => Exit::ToolError,
    }
}

/// The script, from its file or from stdin.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        return console::read_stdin().context("cannot read the script from stdin");
    }
    console::read_file(file)
        .with_context(|| format!("cannot read the script {}", file.display()))
        .or_misuse()
}
