//! `metamcp init --http`: every kind of client gets the address and the token, and undo removes them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::Value;

use crate::Shell;

const FILES: &[(&str, &str)] = &[
    (
        "user/.config/Claude/claude_desktop_config.json",
        "{\n  \"mcpServers\": {\n    \"files\": { \"command\": \"npx\" }\n  }\n}\n",
    ),
    ("user/.claude.json", "{\n  \"numStartups\": 7,\n  \"mcpServers\": {}\n}\n"),
    (
        "user/.cursor/mcp.json",
        "{\n\t// cursor, with tabs\n\t\"mcpServers\": {\n\t\t\"metamcp\": { \"command\": \"metamcp\" },\n\t\t\"git\": { \"command\": \"uvx\" }\n\t}\n}\n",
    ),
    ("user/.codeium/windsurf/mcp_config.json", "{ \"mcpServers\": {} }"),
    ("user/.codex/config.toml", "# codex\nmodel = \"x\" # the model\n"),
    ("user/.gemini/settings.json", "{\n  \"theme\": \"dark\"\n}\n"),
    ("user/.config/zed/settings.json", "// Zed settings\n{\n  \"vim_mode\": true\n}\n"),
    ("user/.config/opencode/opencode.json", "{\n  \"mcp\": {}\n}\n"),
    ("user/.config/goose/config.yaml", "# goose\nGOOSE_MODEL: m\nextensions: {}\n"),
    (
        "user/.continue/config.yaml",
        "name: Mine\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: goes-on\n    command: goes-on\n",
    ),
    ("user/.kiro/settings/mcp.json", "{ \"mcpServers\": { \"broken\": \n"),
];

fn home() -> Shell {
    let shell = Shell::new();
    for (path, text) in FILES {
        shell.write(path, text);
        // The usual mode of most programs' files.
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(shell.path(path), mode).unwrap();
    }
    shell
}

#[test]
fn clients_are_configured_for_an_http_gateway_and_restored() {
    let shell = home();
    let mut shown = shell.told(&["init", "--http", "--dry-run"]);
    assert!(!shell.path("user/.metamcp/http-token").exists(), "nothing is done");
    shown.push_str(&shell.told(&["init", "--http", "--yes"]));
    let token = shell.read("user/.metamcp/http-token");
    let token = token.trim();
    assert!(!shown.contains(token), "{shown}");
    for (path, before) in FILES {
        let text = shell.read(path);
        if text != *before {
            let mode = std::fs::metadata(shell.path(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{path} holds the token");
            shown.push_str(&format!("\n== {path}\n{}", text.replace(token, "TOKEN")));
        }
    }
    // A second run has nothing to do, except with a new token.
    let again = shell.json(&["init", "--http", "--dry-run", "--json"]);
    assert_eq!(clients(&again, "writes", true), Vec::<String>::new());
    shell.json(&["token", "--rotate", "--json"]);
    let again = shell.json(&["init", "--http", "--dry-run", "--json"]);
    assert!(clients(&again, "writes", true).contains(&"cursor".to_owned()), "{again:#}");
    shown.push_str(&format!("\n{}", shell.told(&["init", "--undo"])));
    for (path, before) in FILES {
        assert_eq!(shell.read(path), *before, "{path}");
    }
    assert_snapshot!(shown);
}

#[test]
fn clients_that_cannot_be_configured_are_named() {
    let shell = home();
    let told = shell.told(&["init", "--http", "--client", "claude-desktop", "--yes"]);
    let odd = shell.told(&["init", "--http", "localhost:8080", "--yes"]);
    let tokens = ["--token-env", "TOKEN", "init", "--http", "--yes"];
    assert_snapshot!([told, odd, shell.told(&tokens)].join("\n"));
    assert!(!Path::new(&shell.path("user/.metamcp/http-token")).exists());
}

fn clients(told: &Value, key: &str, value: bool) -> Vec<String> {
    let all = told["clients"].as_array().unwrap().iter();
    let wanted = all.filter(|client| client[key] == value);
    wanted.map(|client| client["client"].as_str().unwrap().to_owned()).collect()
}
