//! A server that records every byte it receives before it does anything else.
//! Owns: the received bytes.      Never: judges them; a test does.
//! In: lines on stdin.  Out: a file, and the responses a client needs.
//! Tests: used by `metamcp/tests/hazards/frames.rs`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;

use serde_json::{Value, json};

/// The entry point. Its argument is the file.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let path = arguments.next().unwrap_or_default();
    match File::create(path).and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(mut journal: File) -> io::Result<()> {
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if stdin.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        journal.write_all(&line)?;
        // An unreadable line is in the journal; no response is expected.
        let Ok(message) = serde_json::from_slice::<Value>(&line) else { continue };
        if let Some(answer) = answer(&message) {
            stdout.write_all(format!("{answer}\n").as_bytes())?;
            stdout.flush()?;
        }
    }
}

fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let ok = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    Some(match message["method"].as_str()? {
        "initialize" => ok(json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "line-journal", "version": "1" },
        })),
        "tools/list" => ok(json!({ "tools": [tool("echo"), tool("secret")] })),
        "tools/call" => {
            let name = &message["params"]["name"];
            ok(json!({ "content": [{ "type": "text", "text": format!("did {name}") }] }))
        }
        "ping" => ok(json!({})),
        method => {
            let error = json!({ "code": -32601, "message": format!("no {method}") });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    })
}
