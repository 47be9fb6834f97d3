//! Every client that is known, with its file on each system.

use std::path::PathBuf;

use super::{Client, Dialect, Places, System};
use crate::edit::Format;

const MCP_SERVERS: &[&str] = &["mcpServers"];

/// A client whose file is JSON with `mcpServers`.
const fn usual(id: &'static str, name: &'static str, files: fn(&Places) -> Vec<PathBuf>) -> Client {
    Client {
        id,
        name,
        format: Format::Json,
        key: MCP_SERVERS,
        dialect: Dialect::Standard,
        made: true,
        files,
    }
}

/// The clients, in the order in which they are shown.
pub static CLIENTS: &[Client] = &[
    usual("claude-desktop", "Claude Desktop", |at| {
        vec![at.desktop().join("Claude/claude_desktop_config.json")]
    }),
    Client {
        dialect: Dialect::Typed,
        made: false,
        ..usual("claude-code", "Claude Code", |at| {
            vec![at.claude.as_ref().unwrap_or(&at.home).join(".claude.json")]
        })
    },
    usual("cursor", "Cursor", |at| vec![at.home.join(".cursor/mcp.json")]),
    Client {
        key: &["servers"],
        dialect: Dialect::Typed,
        ..usual("vscode", "VS Code", |at| vec![at.desktop().join("Code/User/mcp.json")])
    },
    Client {
        key: &["servers"],
        dialect: Dialect::Typed,
        ..usual("vscode-insiders", "VS Code Insiders", |at| {
            vec![at.desktop().join("Code - Insiders/User/mcp.json")]
        })
    },
    Client {
        key: &["servers"],
        dialect: Dialect::Typed,
        ..usual("vscode-server", "VS Code Server", |at| {
            vec![at.home.join(".vscode-server/data/User/mcp.json")]
        })
    },
    usual("windsurf", "Windsurf", |at| vec![at.home.join(".codeium/windsurf/mcp_config.json")]),
    Client {
        made: false,
        ..usual("windsurf-jetbrains", "Windsurf for JetBrains", |at| {
            vec![at.home.join(".codeium/mcp_config.json")]
        })
    },
    Client {
        format: Format::Toml,
        key: &["mcp_servers"],
        dialect: Dialect::Codex,
        ..usual("codex", "Codex", |at| vec![at.home.join(".codex/config.toml")])
    },
    Client {
        dialect: Dialect::Gemini,
        ..usual("gemini", "Gemini CLI", |at| vec![at.home.join(".gemini/settings.json")])
    },
    usual("antigravity", "Antigravity", |at| {
        vec![at.home.join(".gemini/antigravity/mcp_config.json")]
    }),
    Client {
        key: &["context_servers"],
        dialect: Dialect::Zed,
        ..usual("zed", "Zed", |at| {
            let folder = match at.system {
                System::Windows => at.app_data.join("Zed"),
                System::Linux => at.config.join("zed"),
                System::Mac => at.home.join(".config/zed"),
            };
            vec![folder.join("settings.json")]
        })
    },
    Client {
        key: &["mcp"],
        dialect: Dialect::OpenCode,
        ..usual("opencode", "OpenCode", |at| {
            let folder = at.config.join("opencode");
            vec![folder.join("opencode.jsonc"), folder.join("opencode.json")]
        })
    },
    Client {
        key: &["mcp"],
        dialect: Dialect::Typed,
        ..usual("crush", "Crush", |at| vec![at.config.join("crush/crush.json")])
    },
    Client {
        format: Format::Yaml,
        key: &["extensions"],
        dialect: Dialect::Goose,
        ..usual("goose", "Goose", |at| {
            vec![match at.system {
                System::Windows => at.app_data.join("Block/goose/config/config.yaml"),
                _ => at.config.join("goose/config.yaml"),
            }]
        })
    },
    Client {
        format: Format::YamlList,
        key: &["mcpServers"],
        dialect: Dialect::Continue,
        // A file without models and a version is none for this client.
        made: false,
        ..usual("continue", "Continue", |at| vec![at.home.join(".continue/config.yaml")])
    },
    Client {
        dialect: Dialect::Cline,
        ..usual("cline", "Cline", |at| {
            let folder = "Code/User/globalStorage/saoudrizwan.claude-dev/settings";
            vec![at.desktop().join(folder).join("cline_mcp_settings.json")]
        })
    },
    usual("lm-studio", "LM Studio", |at| vec![at.home.join(".lmstudio/mcp.json")]),
    usual("kiro", "Kiro", |at| vec![at.home.join(".kiro/settings/mcp.json")]),
    usual("copilot", "Copilot CLI", |at| vec![at.home.join(".copilot/mcp-config.json")]),
    usual("factory", "Factory", |at| vec![at.home.join(".factory/mcp.json")]),
    usual("kimi", "Kimi", |at| vec![at.home.join(".kimi/mcp.json")]),
    usual("qoder", "Qoder", |at| vec![at.home.join(".qoder/mcp.json")]),
    usual("trae", "Trae", |at| vec![at.desktop().join("Trae/User/mcp.json")]),
    Client {
        key: &["amp.mcpServers"],
        ..usual("amp", "Amp", |at| vec![at.config.join("amp/settings.json")])
    },
];
