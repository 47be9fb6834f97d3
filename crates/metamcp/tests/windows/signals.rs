//! What Windows has in place of signals.

use std::os::windows::process::CommandExt;

use serde_json::json;

use crate::world::{Client, User, program, said};

/// A console of its own, which nobody sees.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

/// A gateway that has called a server ends as after SIGTERM elsewhere.
#[test]
fn ctrl_c_and_ctrl_break_end_the_gateway_in_order() {
    // Wine ends all on a console by Ctrl-Break, whether or not they would hear it.
    let is_wine = said("TEST_WINE").is_some();
    let events =
        ["ctrl-c", "ctrl-break"].into_iter().filter(|event| !is_wine || *event == "ctrl-c");
    for event in events {
        let example = json!({ "command": program(), "args": ["__example", "text"] });
        let user = User::with_servers(&json!({ "text": example }));
        let mut command = user.command(&["serve"]);
        command.creation_flags(CREATE_NO_WINDOW);
        let mut client = Client::start(&mut command);
        client.initialize();
        client.call("text", "count_words", &json!({ "text": "a" }));
        let gateway = client.child.id().to_string();
        // The program sends what it has servers hear when they are to end.
        let sent = user.command(&["__shim", event, &gateway]).status().unwrap();
        assert!(sent.success(), "{event}: {sent}");
        assert_eq!(client.exit_code(), Some(0), "{event}");
    }
}
