//! Failures before the first call.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Next;
use crate::chaos::honest;
use crate::chaos::message::{Request, result_line};
use crate::chaos::server_state::{ServerState, die};

/// How often the installer prints something: more often than any sensible silence timeout.
const DOT: Duration = Duration::from_millis(250);

pub(in crate::chaos) fn exit_at_start(_: &Arc<ServerState>, _: u64) {
    complain("chaos-child: cannot find module 'left-pad'");
    die(1);
}

pub(in crate::chaos) fn exit_later(_: &Arc<ServerState>, milliseconds: u64) {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(milliseconds));
        die(1)
    });
}

pub(in crate::chaos) fn exit_on_initialize(_: &Arc<ServerState>, _: u64, _: &Request) -> Next {
    complain("chaos-child: no licence for initialize");
    die(1)
}

pub(in crate::chaos) fn never_initialize(_: &Arc<ServerState>, _: u64, _: &Request) -> Next {
    Next::Done
}

pub(in crate::chaos) fn initialize_late(
    _: &Arc<ServerState>,
    milliseconds: u64,
    _: &Request,
) -> Next {
    thread::sleep(Duration::from_millis(milliseconds));
    Next::Honest
}

pub(in crate::chaos) fn wrong_protocol_version(
    server: &Arc<ServerState>,
    _: u64,
    request: &Request,
) -> Next {
    let mut result = honest::handshake(&request.params);
    result["protocolVersion"] = "1999-12-31".into();
    server.send(&result_line(&request.id, &result.to_string()));
    Next::Done
}

pub(in crate::chaos) fn initialize_twice(
    server: &Arc<ServerState>,
    _: u64,
    request: &Request,
) -> Next {
    let mut result = honest::handshake(&request.params);
    server.send(&result_line(&request.id, &result.to_string()));
    result["serverInfo"]["name"] = "someone-else".into();
    result["capabilities"] = Value::Null;
    server.send(&result_line(&request.id, &result.to_string()));
    Next::Done
}

pub(in crate::chaos) fn capabilities_null(
    server: &Arc<ServerState>,
    _: u64,
    request: &Request,
) -> Next {
    let mut result = honest::handshake(&request.params);
    result["capabilities"] = Value::Null;
    server.send(&result_line(&request.id, &result.to_string()));
    Next::Done
}

pub(in crate::chaos) fn slow_installer(_: &Arc<ServerState>, milliseconds: u64) {
    let end = Instant::now() + Duration::from_millis(milliseconds);
    while Instant::now() < end {
        // A full or closed stderr does not stop an installer.
        drop(io::stderr().write_all(b"."));
        thread::sleep(DOT.min(end.saturating_duration_since(Instant::now())));
    }
    complain("\ninstalled");
}

fn complain(text: &str) {
    // If nobody reads stderr the message is lost.
    drop(writeln!(io::stderr(), "{text}"));
}
