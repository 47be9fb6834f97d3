//! `init` and `init --undo` for each client, with its file where it lies on Windows.

use std::fs;

use crate::world::User;

/// Each client, the end of its file's path, and a file of its user's, as an editor of that system may have left it.
const CLIENTS: &[(&str, &str, &str)] = &[
    ("claude-desktop", "AppData/Roaming/Claude/claude_desktop_config.json", STANDARD),
    ("claude-code", ".claude.json", STANDARD),
    ("cursor", ".cursor/mcp.json", STANDARD),
    ("vscode", "AppData/Roaming/Code/User/mcp.json", SERVERS),
    ("vscode-insiders", "AppData/Roaming/Code - Insiders/User/mcp.json", SERVERS),
    ("vscode-server", ".vscode-server/data/User/mcp.json", SERVERS),
    ("windsurf", ".codeium/windsurf/mcp_config.json", STANDARD),
    ("windsurf-jetbrains", ".codeium/mcp_config.json", STANDARD),
    (
        "codex",
        ".codex/config.toml",
        "# meins\r\n[mcp_servers.one]\r\nurl = \"https://a.example/mcp\"\r\n",
    ),
    ("gemini", ".gemini/settings.json", GEMINI),
    ("qwen", ".qwen/settings.json", GEMINI),
    ("antigravity", ".gemini/antigravity/mcp_config.json", STANDARD),
    (
        "zed",
        "AppData/Roaming/Zed/settings.json",
        "{\r\n  // meins\r\n  \"context_servers\": {}\r\n}\r\n",
    ),
    ("opencode", ".config/opencode/opencode.json", "{\r\n  \"mcp\": {}\r\n}\r\n"),
    ("crush", ".config/crush/crush.json", "{\r\n  \"mcp\": {}\r\n}\r\n"),
    ("goose", "AppData/Roaming/Block/goose/config/config.yaml", "# meins\nextensions: {}\n"),
    ("continue", ".continue/config.yaml", "name: meins\nversion: 1.0.0\nschema: v1\n"),
    (
        "cline",
        "AppData/Roaming/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        STANDARD,
    ),
    (
        "roo",
        "AppData/Roaming/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        STANDARD,
    ),
    ("amazon-q", ".aws/amazonq/mcp.json", STANDARD),
    ("warp", ".warp/.mcp.json", STANDARD),
    ("junie", ".junie/mcp/mcp.json", STANDARD),
    ("lm-studio", ".lmstudio/mcp.json", STANDARD),
    ("kiro", ".kiro/settings/mcp.json", STANDARD),
    ("copilot", ".copilot/mcp-config.json", STANDARD),
    ("factory", ".factory/mcp.json", STANDARD),
    ("kimi", ".kimi/mcp.json", STANDARD),
    ("qoder", ".qoder/mcp.json", STANDARD),
    ("trae", "AppData/Roaming/Trae/User/mcp.json", STANDARD),
    ("amp", ".config/amp/settings.json", "{\r\n  \"amp.mcpServers\": {}\r\n}\r\n"),
];

const STANDARD: &str = "{\r\n  \"mcpServers\": {\r\n    \"one\": { \"url\": \"https://a.example/mcp\" }\r\n  }\r\n}\r\n";
const SERVERS: &str = "{\r\n  // meins\r\n  \"servers\": {\r\n    \"one\": { \"type\": \"http\", \"url\": \"https://a.example/mcp\" }\r\n  }\r\n}\r\n";
const GEMINI: &str = "{\r\n  \"mcpServers\": {\r\n    \"one\": { \"httpUrl\": \"https://a.example/mcp\" }\r\n  }\r\n}\r\n";

#[test]
fn every_client_gets_metamcp_and_its_own_file_back() {
    let user = User::new();
    for (_, path, text) in CLIENTS {
        user.write(path, text);
    }
    let planned = user.told(&["init", "--dry-run"]);
    for (id, path, text) in CLIENTS {
        let path = user.path(path);
        let path: std::path::PathBuf = path.components().collect();
        assert!(planned.contains(path.to_str().unwrap()), "{id}: {} in {planned}", path.display());
        assert_eq!(fs::read_to_string(&path).unwrap(), *text, "{id}: only planned");
    }
    user.told(&["init", "--yes"]);
    for (id, path, _) in CLIENTS {
        let now = fs::read_to_string(user.path(path)).unwrap();
        assert!(now.contains("metamcp.exe"), "{id}: {now}");
    }
    user.told(&["init", "--undo", "--yes"]);
    for (id, path, text) in CLIENTS {
        assert_eq!(fs::read_to_string(user.path(path)).unwrap(), *text, "{id}");
        let beside = user.path(path).with_file_name("x");
        let names: Vec<_> = fs::read_dir(beside.parent().unwrap()).unwrap().flatten().collect();
        let is_ours = |name: &str| name.ends_with(".lock") || name.starts_with(".mcp.json.");
        assert!(!names.iter().any(|entry| is_ours(&entry.file_name().to_string_lossy())), "{id}");
    }
}
