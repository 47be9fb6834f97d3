//! Servers written for Windows, in other languages.

use std::fs;

use serde_json::json;

use crate::world::{User, folder_of};

/// A server as small as one can be, without any package.
const NODE_SERVER: &str = r#"
const lines = require("node:readline").createInterface({ input: process.stdin });
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");
lines.on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = {
    initialize: () => ({
      protocolVersion: params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: "small", version: "1" },
    }),
    "tools/list": () => ({
      tools: [{ name: "echo", description: "Says it again", inputSchema: { type: "object", properties: { text: { type: "string" } } } }],
    }),
    "tools/call": () => ({
      content: [{ type: "text", text: `${process.platform} ${process.argv.slice(2).join("|")} ${params.arguments.text}` }],
    }),
  }[method];
  say(result ? { jsonrpc: "2.0", id, result: result() } : { jsonrpc: "2.0", id, error: { code: -32601, message: "no" } });
});
"#;

/// The same in Python, as small as any of that language runs it.
const PYTHON_SERVER: &str = r#"
import json, sys

def answer(method, params):
    if method == "initialize":
        info = {"name": "small", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return {"tools": [{"name": "echo", "description": "Says it again", "inputSchema": schema}]}
    if method == "tools/call":
        text = " ".join([sys.platform, "|".join(sys.argv[1:]), params["arguments"]["text"]])
        return {"content": [{"type": "text", "text": text}]}

while True:
    line = sys.stdin.readline()
    if not line:
        break
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params"))
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "no"}
        else:
            reply["result"] = result
        sys.stdout.write(json.dumps(reply) + "\n")
        if hasattr(sys.stdout, "flush"):
            sys.stdout.flush()
"#;

/// What npm writes for a package's command.
const COMMAND: &str = "@ECHO off\r\nGOTO start\r\n:find_dp0\r\nSET dp0=%~dp0\r\nEXIT /b\r\n:start\r\nSETLOCAL\r\nCALL :find_dp0\r\n\r\nIF EXIST \"%dp0%\\node.exe\" (\r\n  SET \"_prog=%dp0%\\node.exe\"\r\n) ELSE (\r\n  SET \"_prog=node\"\r\n  SET PATHEXT=%PATHEXT:;.JS;=;%\r\n)\r\n\r\nendLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & \"%_prog%\"  \"%dp0%\\node_modules\\small\\index.js\" %*\r\n";

/// Whether a node for Windows is there.
fn node() -> Option<std::path::PathBuf> {
    folder_of("node.exe", "TEST_NODE")
}

#[test]
fn a_node_server_answers_by_every_way_to_start_it() {
    let Some(node) = node() else { return };
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("npm");
    fs::create_dir_all(bin.join("node_modules/small")).unwrap();
    fs::write(bin.join("node_modules/small/index.js"), NODE_SERVER).unwrap();
    fs::write(bin.join("small.cmd"), COMMAND).unwrap();
    let script = bin.join("node_modules/small/index.js");
    let ways = json!({
        "node": { "command": "node", "args": [script, "a b", "c&d"] },
        "command": { "command": "small", "args": ["a b", "c&d"] },
        "script": { "command": script, "args": ["a b", "c&d"] },
    });
    let user = User::with_servers(&ways).with_path(&bin).with_path(&node);
    let mut client = user.client();
    client.initialize();
    for way in ["node", "command", "script"] {
        let said = client.call(way, "echo", &json!({ "text": "hällo 日本" }));
        assert_eq!(said, "win32 a b|c&d hällo 日本", "{way}");
    }
    client.close();
    assert_eq!(client.exit_code(), Some(0));
}

/// Many servers of the registry are started by `npx`; npm itself runs here, from a package that is on the disk.
#[test]
fn npx_runs_an_installed_package_without_itself_in_between() {
    let Some(node) = node() else { return };
    let user = User::new().with_path(&node);
    let modules = "work/node_modules/small";
    user.write(&format!("{modules}/index.js"), NODE_SERVER);
    let about = json!({ "name": "small", "version": "1.0.0", "bin": { "small": "index.js" } });
    user.write(&format!("{modules}/package.json"), &about.to_string());
    user.write("work/package.json", "{}");
    let server = json!({ "command": "npx", "args": ["-y", "small@1.0.0", "x"] });
    let servers = json!({ "mcpServers": { "small": server } });
    user.write(".metamcp/mcp.json", &servers.to_string());
    let mut client = user.client();
    client.initialize();
    let said = client.call("small", "echo", &json!({ "text": "y" }));
    assert_eq!(said, "win32 x y");
}

#[test]
fn a_python_server_answers_by_its_interpreter_and_as_a_script() {
    let Some(python) = folder_of("python.exe", "TEST_PYTHON") else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("small server.py");
    fs::write(&script, PYTHON_SERVER).unwrap();
    let ways = json!({
        "python": { "command": "python", "args": [script, "a b"] },
        "script": { "command": script, "args": ["a b"] },
    });
    let user = User::with_servers(&ways).with_path(&python);
    let mut client = user.client();
    client.initialize();
    for way in ["python", "script"] {
        let said = client.call(way, "echo", &json!({ "text": "one" }));
        assert_eq!(said, "win32 a b one", "{way}");
    }
}
