//! Fair sharing between clients: no client's scripts block those of another.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use metamcp_testkit::{Workspace, chaos_server, eventually, returned};
use serde_json::{Value, json};

use crate::served::{Served, initialize};
use crate::wire::{PATIENCE, Request};

/// The number of scripts that run concurrently.
const PLACES: usize = 4;

fn execute(code: &str) -> Value {
    let arguments = json!({ "code": code });
    let params = json!({ "name": "mcp_execute", "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params })
}

#[test]
fn scripts_that_sleep_keep_no_other_client_waiting() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let file = workspace.file("tokens");
    fs::write(&file, "token-of-ann\ntoken-of-bob\n").unwrap();
    let served = Served::start_in(
        workspace,
        &["--token-file", file.to_str().unwrap(), "--code-profile", "standard"],
    );
    let request = |token: &str, code: &str| {
        let bearer = format!("Bearer {token}");
        let hello = Request::post(&initialize("2025-11-25", &json!({})));
        let opened = hello.with("Authorization", &bearer).send(served.address);
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        let request = Request::post(&execute(code)).with("Authorization", &bearer);
        request.with("Mcp-Session-Id", &session)
    };
    let sleeps = "await a.effectIdempotent({ key: 'ann sleeps' }); for (;;) await sleep(5000)";
    let mut asleep: Vec<TcpStream> = (0..PLACES)
        .map(|_| {
            let mut socket = TcpStream::connect(served.address).unwrap();
            let bytes = request("token-of-ann", sleeps).bytes(served.address);
            socket.write_all(&bytes).unwrap();
            socket
        })
        .collect();
    let journal = served.workspace.journal("a");
    let began = || journal.executions("ann sleeps").is_ok_and(|count| count == PLACES);
    assert!(eventually(PATIENCE, began), "ann's scripts run");
    let mut answer = request("token-of-bob", "return 1").send(served.address);
    assert_eq!(returned(&answer.json()["result"]), Some(json!(1)));
    for socket in &mut asleep {
        socket.set_nonblocking(true).unwrap();
        let heard = socket.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(heard, Err(ErrorKind::WouldBlock), "ann's scripts are not over");
    }
    drop(asleep);
    served.end();
}
