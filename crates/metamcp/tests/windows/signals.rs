//! What Windows has in place of signals.

use std::os::windows::process::CommandExt;
use std::process::Stdio;

use serde_json::json;

use crate::world::{Client, User, program, said};

/// A console of its own, which nobody sees.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

#[test]
fn ctrl_c_ends_the_gateway_in_order() {
    // Sending one takes a call that no test may make, so the test command builds a small program in C.
    let Some(console) = said("TEST_CONSOLE") else { return };
    let example = json!({ "command": program(), "args": ["__example", "text"] });
    let user = User::with_servers(&json!({ "text": example }));
    let now = user.path("now");
    let mut command = user.start(&console);
    command.creation_flags(CREATE_NO_WINDOW);
    command.arg(&now).arg(program()).arg("serve").stderr(Stdio::inherit());
    let mut client = Client::start(&mut command);
    client.initialize();
    client.call("text", "count_words", &json!({ "text": "a" }));
    std::fs::write(now, "").unwrap();
    assert_eq!(client.exit_code(), Some(0), "as after SIGTERM elsewhere");
}
