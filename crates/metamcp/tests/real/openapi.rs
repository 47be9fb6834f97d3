//! An API written with `FastAPI`, whose description it makes itself, called through `mcp_call`, a script and direct mode.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use metamcp_testkit::{Client, Workspace};
use serde_json::{Value, json};

use crate::installed::{Installed, sources};

const HUNG: Duration = Duration::from_mins(1);

/// The API as a process; ended on drop.
struct Shop {
    process: Child,
    url: String,
}

impl Shop {
    fn start() -> Shop {
        let mut command = Command::new(Installed::find().python("python"));
        command.arg(sources().join("api.py")).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = lines.next().expect("it says its port").unwrap();
        Shop { process, url: format!("http://127.0.0.1:{port}") }
    }

    fn gateway(&self, flags: &[&str]) -> (Client, Workspace) {
        let mut workspace = Workspace::new().unwrap();
        let entry = json!({
            "openapi": format!("{}/openapi.json", self.url),
            "credentials": { "APIKeyHeader": "s3cret-canary", "HTTPBasic": "me:pa:ss" },
        });
        workspace.entry("shop", entry);
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_metamcp"));
        let mut command = workspace.command(program).unwrap();
        command.env("METAMCP_HOME", workspace.home().join(".metamcp")).args(flags);
        let client = Client::start(command).unwrap();
        client.initialize(&json!({}), HUNG).unwrap();
        (client, workspace)
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn an_api_of_fastapi_is_a_server() {
    let shop = Shop::start();
    let (client, _workspace) = shop.gateway(&[]);
    let call = |tool: &str, arguments: Value| {
        let answer = client.mcp_call_now("shop", tool, &arguments, HUNG).unwrap().value;
        answer["result"].clone()
    };
    let first = call("list_items", json!({ "tag": ["a b", "c"], "page": 2 }));
    let items: Value = serde_json::from_str(first["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((items.as_array().unwrap().len(), &items[0]["tags"]), (10, &json!(["a b", "c"])));
    assert_eq!(first["content"][1]["text"], "[There is more: call it again with {\"page\":3}.]");
    let item = json!({ "name": "box", "price": 2.5, "size": "large", "parts": [{ "name": "lid", "price": 1 }] });
    let made = call("create_item", json!({ "body": item }));
    assert_eq!(made["structuredContent"]["item"]["parts"][0]["name"], "lid", "{made}");
    let got = call("get_item", json!({ "item_id": 3, "x-trace": "t1", "session": "s 1" }));
    assert_eq!(
        got["structuredContent"],
        json!({ "id": 3, "name": "item 3", "trace": "t1", "session": "s%201" })
    );
    let missing = call("get_item", json!({ "item_id": 300 }));
    assert_eq!(missing["content"][0]["text"], "HTTP 404 Not Found: {\"detail\":\"no item 300\"}");
    assert_eq!(
        call("delete_item", json!({ "item_id": 3 }))["content"][0]["text"],
        "[Done: HTTP 204 without a body.]"
    );
    let login = call("log_in", json!({ "body": { "user": "ü&x", "password": "p q" } }));
    assert_eq!(login["structuredContent"], json!({ "user": "ü&x", "length": 3 }));
    let files = json!([{ "text": "one", "filename": "1.txt" }, { "base64": "dHdv", "filename": "2.md", "contentType": "text/markdown" }]);
    let sent = call("upload", json!({ "body": { "note": "n", "files": files } }));
    assert_eq!(
        sent["structuredContent"]["files"][1],
        json!({ "name": "2.md", "type": "text/markdown", "text": "two" }),
        "{sent}"
    );
    assert_eq!(call("label", json!({}))["content"][0]["mimeType"], "image/png");
    assert_eq!(
        call("who_am_i", json!({}))["structuredContent"],
        json!({ "user": "me", "right": true })
    );
    assert_eq!(
        call("read_file", json!({ "path": "a/b c" }))["content"][0]["text"],
        "the text of a/b c"
    );
    // What the description forbids is told before anything is sent.
    let wrong = client
        .mcp_call_now("shop", "create_item", &json!({ "body": { "name": "x", "price": 0 } }), HUNG)
        .unwrap()
        .value;
    assert_eq!(wrong["result"]["structuredContent"]["code"], "validation_input", "{wrong}");
    let code = "let page = 1, all = []; while (true) { const items = await shop.list_items({ page }); all.push(...items); if (items.length < 10) break; page++; } return all.length;";
    let ran = client
        .ask("tools/call", &json!({ "name": "mcp_execute", "arguments": { "code": code } }), HUNG)
        .unwrap()
        .value;
    let told = ran["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(told.starts_with("25\n"), "{ran}");
    let found = client
        .ask(
            "tools/call",
            &json!({ "name": "mcp_discover", "arguments": { "query": "upload a file" } }),
            HUNG,
        )
        .unwrap()
        .value;
    assert!(found.to_string().contains("shop:upload"), "{found}");
}

#[test]
fn direct_mode_lists_its_operations() {
    let shop = Shop::start();
    let (client, _workspace) = shop.gateway(&["--surface", "direct"]);
    let listed = client.ask("tools/list", &json!({}), HUNG).unwrap().value;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 9, "{listed}");
    let create = tools.iter().find(|tool| tool["name"] == "create_item").unwrap();
    assert_eq!(create["inputSchema"]["required"], json!(["body"]));
    let answer = client
        .ask("tools/call", &json!({ "name": "get_item", "arguments": { "item_id": 1 } }), HUNG)
        .unwrap();
    assert_eq!(answer.value["result"]["structuredContent"]["name"], "item 1", "{}", answer.value);
}
