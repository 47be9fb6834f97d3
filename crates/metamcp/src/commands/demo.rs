//! `metamcp demo`: the gateway at work on the example servers, without a config and without a download.
//! Owns: the script of the demonstration and its verdict.      Never: uses the gateway's internals; it is a client.
//! In: nothing but the program itself.  Out: what the model sees and what it costs, or which step failed.
//! Tests: `demo/render.rs` for the text; `tests/demo.rs` runs it for real.

mod client;
mod demo_folder;
mod render;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use metamcp_engine::clock;
use serde_json::{Value, json};

use crate::{example, tokens};
use client::Client;
use demo_folder::DemoFolder;
use render::{Cost, Report, Step};

/// Runs the demonstration: text or one JSON document to `output`, errors to `diagnostics`.
///
/// # Errors
/// Says which steps failed; the report, if there is one, is written anyway.
pub(crate) fn run(
    as_json: bool,
    output: &mut impl Write,
    diagnostics: &mut impl Write,
) -> Result<()> {
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let demo_folder = DemoFolder::set(&program)?;
    let walked = walk(&program, &demo_folder);
    let cleared = demo_folder.clear();
    let report = walked?;
    if as_json {
        writeln!(output, "{:#}", report.to_json())?;
    } else {
        report.print(output)?;
    }
    output.flush()?;
    if let Err(error) = cleared {
        writeln!(diagnostics, "metamcp demo: {error:#}")?;
    }
    let failed: Vec<&Step> = report.steps.iter().filter(|step| step.problem.is_some()).collect();
    for step in &failed {
        let problem = step.problem.as_deref().unwrap_or_default();
        writeln!(diagnostics, "metamcp demo: step `{}` failed: {problem}", step.title)?;
    }
    match failed.len() {
        0 => Ok(()),
        count => bail!("{count} of {} steps of the demo failed", report.steps.len()),
    }
}

/// One request of the demonstration and what its response must contain.
struct Request {
    title: &'static str,
    tool: &'static str,
    arguments: Value,
    mentions: &'static [&'static str],
    /// Whether the response must be an error, as after a deliberate mistake.
    mistaken: bool,
}

fn script() -> Vec<Request> {
    let right = |title, tool, arguments, mentions| Request {
        title,
        tool,
        arguments,
        mentions,
        mistaken: false,
    };
    vec![
        right(
            "What is behind the gateway",
            "mcp_discover",
            json!({}),
            &["files", "notes", "clock", "text", "numbers"],
        ),
        right(
            "A description in plain words finds a tool",
            "mcp_discover",
            json!({ "query": "search text in files", "limit": 3 }),
            &["files:search_files"],
        ),
        right(
            "Another description, another server",
            "mcp_discover",
            json!({ "query": "how many days between two dates", "limit": 3 }),
            &["clock:days_between"],
        ),
        right(
            "And another",
            "mcp_discover",
            json!({ "query": "remember something in a note", "limit": 3 }),
            &["notes:add_note"],
        ),
        right(
            "One tool in full",
            "mcp_discover",
            json!({ "tool": "files:read_file", "detail": "schema" }),
            &["files:read_file", "offset", "properties"],
        ),
        right(
            "A call: when is the launch?",
            "mcp_call",
            json!({ "tool": "files:search_files", "args": { "text": "launch is" } }),
            &["plan.md", "2026-03-01"],
        ),
        right(
            "A call to another server: how long is that?",
            "mcp_call",
            json!({ "tool": "clock:days_between", "args": { "from": "2026-01-12", "to": "2026-03-01" } }),
            &["\"days\":48", "Sunday"],
        ),
        right(
            "And a third one stores the answer",
            "mcp_call",
            json!({ "server": "notes", "tool": "add_note", "args": {
                "title": "Launch", "text": "48 days from January 12 to the launch, a Sunday.", "tags": ["launch"] } }),
            &["Launch", "\"id\":4"],
        ),
        right(
            "Many tools at once, in code: only the answer comes back",
            "mcp_execute",
            json!({ "code": "const found = await files.searchFiles({ text: \"launch is\" });\n\
                             const day = found.matches[0].excerpt.match(/\\d{4}-\\d{2}-\\d{2}/)[0];\n\
                             const wait = await clock.daysBetween({ from: \"2026-01-12\", to: day });\n\
                             return `${day}: ${wait.days} days`" }),
            &["2026-03-01: 48 days"],
        ),
        Request {
            title: "A deliberate mistake: the error suggests the right name",
            tool: "mcp_call",
            arguments: json!({ "tool": "files:read_fiel", "args": { "path": "plan.md" } }),
            mentions: &["read_file"],
            mistaken: true,
        },
    ]
}

fn walk(program: &Path, demo_folder: &DemoFolder) -> Result<Report> {
    let mut alone = Cost::default();
    for (name, _, _) in example::SERVERS {
        let mut server = Client::start(
            &format!("example server {name}"),
            &mut demo_folder.example(program, name),
        )?;
        server.initialize()?;
        alone.add(&server.ask("tools/list", &json!({}))?)?;
        server.end()?;
    }
    let mut gateway = Client::start("the gateway", &mut demo_folder.gateway(program))?;
    let (mut steps, gateway_cost, surface) = first_look(&mut gateway)?;
    for request in script() {
        steps.push(take(&mut gateway, &request));
        if gateway.is_gone() {
            // The step says how the gateway exited; later ones would only repeat that.
            return Ok(Report { surface, steps, alone, gateway: gateway_cost });
        }
    }
    if let Err(error) = gateway.end() {
        let problem = Some(format!("{error:#}"));
        steps.push(Step { title: "The end of input ends the gateway", problem, ..Step::default() });
    }
    Ok(Report { surface, steps, alone, gateway: gateway_cost })
}

/// The handshake and the list of tools, which is all a model sees before its first call.
fn first_look(gateway: &mut Client) -> Result<(Vec<Step>, Cost, Vec<Value>)> {
    gateway.initialize()?;
    let began = clock::std_instant();
    let listed = gateway.ask("tools/list", &json!({}))?;
    let took = began.elapsed();
    let mut cost = Cost::default();
    cost.add(&listed)?;
    let tools: Vec<Value> = listed["tools"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    let missing: Vec<&str> =
        ["mcp_discover", "mcp_call"].into_iter().filter(|name| !has(name)).collect();
    let step = Step {
        title: "Everything the model sees at first",
        tool: "tools/list",
        tokens: cost.whole,
        took,
        problem: (!missing.is_empty()).then(|| format!("{} is not listed", missing.join(" and "))),
        ..Step::default()
    };
    Ok((vec![step], cost, tools))
}

/// Sends one request and checks its response.
fn take(gateway: &mut Client, request: &Request) -> Step {
    let began = clock::std_instant();
    let answer =
        gateway.ask("tools/call", &json!({ "name": request.tool, "arguments": request.arguments }));
    let took = began.elapsed();
    let step = Step {
        title: request.title,
        tool: request.tool,
        arguments: request.arguments.clone(),
        took,
        ..Step::default()
    };
    let result = match answer {
        Ok(result) => result,
        Err(error) => return Step { problem: Some(format!("{error:#}")), ..step },
    };
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let text = texts.join("\n");
    let is_error = result["isError"] == true;
    // Where no sandbox is available the response says so, which is not a failure.
    let unavailable =
        request.tool == "mcp_execute" && result["structuredContent"]["code"] == "execution_failed";
    let problem = if unavailable {
        None
    } else if is_error != request.mistaken {
        Some(if is_error {
            format!("an error came back: {text}")
        } else {
            "an error was expected, none came".to_owned()
        })
    } else {
        let missing: Vec<&str> =
            request.mentions.iter().copied().filter(|word| !text.contains(word)).collect();
        (!missing.is_empty())
            .then(|| format!("the answer does not mention {}: {text}", missing.join(", ")))
    };
    Step {
        is_error,
        tokens: tokens::about(&text) + tokens::about(&request.arguments.to_string()),
        structured: result.get("structuredContent").cloned(),
        text,
        problem,
        ..step
    }
}
