//! What Windows has in place of signals.

use std::process::Stdio;

use serde_json::json;

use crate::world::{Client, User, program, said};

#[test]
fn ctrl_break_ends_the_gateway_in_order() {
    // Sending one takes a call that no test may make, so the test command builds a small program in C.
    let Some(console) = said("METAMCP_TEST_CONSOLE") else { return };
    let example = json!({ "command": program(), "args": ["__example", "text"] });
    let user = User::with_servers(&json!({ "text": example }));
    let now = user.path("now");
    let mut command = user.start(&console);
    command.arg(&now).arg(program()).arg("serve").stderr(Stdio::inherit());
    let mut client = Client::start(&mut command);
    client.initialize();
    client.call("text", "count", &json!({ "text": "a" }));
    std::fs::write(now, "").unwrap();
    assert_eq!(client.exit_code(), Some(0), "as after SIGTERM elsewhere");
}
