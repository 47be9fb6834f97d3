//! A server that lists what a real one listed when it was recorded.
//! Owns: the responses to `initialize` and to lists.  Never: does what a tool would do; it says that it is a recording.
//! In: a recorded file, requests on stdin.  Out: responses on stdout until stdin ends.
//! Tests: below and `tests/it/programs.rs`.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::listings::Listing;

/// Serves on stdin and stdout until stdin ends.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let served = arguments
        .next()
        .context("the file of a recorded listing is needed")
        .and_then(|file| Listing::read(Path::new(&file)))
        .and_then(|listing| serve(&listing));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With stderr closed as well there is nowhere left to report to.
            drop(writeln!(io::stderr(), "replay-child: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn serve(listing: &Listing) -> Result<()> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        if let Some(response) = response(listing, &line?) {
            writeln!(output, "{response}")?;
            output.flush()?;
        }
    }
    Ok(())
}

/// The response to one line, if it needs one.
fn response(listing: &Listing, line: &str) -> Option<Value> {
    let request: Value = serde_json::from_str(line).ok()?;
    let id = request.get("id")?.clone();
    let result = match request["method"].as_str()? {
        "initialize" => listing.initialize.clone(),
        "tools/list" => json!({ "tools": listing.tools }),
        // Many servers announce these and list nothing; what they listed was not recorded.
        "resources/list" => json!({ "resources": [] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "prompts/list" => json!({ "prompts": [] }),
        "ping" | "logging/setLevel" => json!({}),
        "tools/call" => json!({
            "isError": true,
            "content": [{"type": "text", "text": "this is a recording of the server; its tools do nothing"}],
        }),
        _ => {
            let error = json!({"code": -32601, "message": "method not found"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_listed_and_nothing_else_is_claimed() {
        let listing = Listing {
            name: "a".into(),
            package: "a-mcp".into(),
            version: "1".into(),
            licence: "MIT".into(),
            initialize: json!({"protocolVersion": "2025-11-25"}),
            tools: vec![json!({"name": "b", "inputSchema": {"type": "object"}})],
        };
        let ask = |method: &str| {
            response(&listing, &json!({"jsonrpc": "2.0", "id": 7, "method": method}).to_string())
                .unwrap()
        };
        assert_eq!(ask("initialize")["result"], listing.initialize);
        assert_eq!(ask("tools/list")["result"]["tools"], json!(listing.tools));
        assert_eq!(ask("tools/call")["result"]["isError"], true);
        assert_eq!(ask("server/discover")["error"]["code"], -32601);
        assert!(
            response(&listing, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
                .is_none()
        );
    }
}
