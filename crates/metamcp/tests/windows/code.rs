//! Code mode as the default profile of this system has it; `metamcp-hardened/tests/workers` has the attacks.

use serde_json::{Value, json};

use crate::world::{Client, User, program};

fn user() -> User {
    let example = json!({ "command": program(), "args": ["__example", "text"] });
    User::with_servers(&json!({ "text": example }))
}

fn executed(client: &mut Client, code: &str) -> Value {
    let params = json!({ "name": "mcp_execute", "arguments": { "code": code } });
    client.ask("tools/call", &params)["result"].take()
}

#[test]
fn a_script_calls_a_server_and_one_that_spins_is_ended() {
    let user = user();
    let mut client = user.client();
    client.initialize();
    let code =
        "return (await parallel(['a', 'a b'], words => text.countWords({ text: words }))).length";
    let honest = executed(&mut client, code);
    assert!(honest["isError"] != true, "{honest}");
    assert!(honest["content"][0]["text"].as_str().unwrap().starts_with('2'), "{honest}");
    let spinning = executed(&mut client, "console.log('kept'); for (;;) {}");
    assert_eq!(spinning["structuredContent"]["details"]["status"], "cpu_limit", "{spinning}");
    let file = executed(&mut client, "return typeof require + typeof process + typeof fetch");
    assert!(file.to_string().contains("undefinedundefined"), "{file}");
    client.close();
    assert_eq!(client.exit_code(), Some(0));
}

#[test]
fn doctor_says_which_walls_stand() {
    let user = user();
    let told = user.told(&["doctor", "--json"]);
    assert!(told.contains("the sandbox of scripts (profile `wasm`) has"), "{told}");
    assert!(told.contains("WebAssembly alone keeps scripts from files"), "{told}");
}
