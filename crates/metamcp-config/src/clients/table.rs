//! The table of known clients, with their files on each system.

use std::path::PathBuf;

use super::{Client, Dialect, Passes, Places, Syntax, System};
use crate::edit::Format;

const MCP_SERVERS: &[&str] = &["mcpServers"];

/// Project files of clients, and file names that only one client uses; by the end of their path.
pub(super) const IN_PROJECTS: &[(&str, &str)] = &[
    (".vscode/mcp.json", "vscode"),
    (".roo/mcp.json", "roo"),
    (".amazonq/mcp.json", "amazon-q"),
    (".zed/settings.json", "zed"),
    ("crush.json", "crush"),
    (".crush.json", "crush"),
    ("opencode.json", "opencode"),
    ("opencode.jsonc", "opencode"),
    ("claude_desktop_config.json", "claude-desktop"),
    ("cline_mcp_settings.json", "cline"),
];

/// A client whose file is JSON with `mcpServers`.
const fn usual(id: &'static str, name: &'static str, files: fn(&Places) -> Vec<PathBuf>) -> Client {
    Client {
        id,
        name,
        format: Format::Json,
        key: MCP_SERVERS,
        dialect: Dialect::Standard,
        variables: Syntax::Braces,
        passes: Passes::Everything,
        projects: None,
        folder: None,
        made: true,
        files,
    }
}

/// The clients, in the order in which they are shown.
pub static CLIENTS: &[Client] = &[
    Client {
        variables: Syntax::Plain,
        ..usual("claude-desktop", "Claude Desktop", |at| {
            vec![at.desktop().join("Claude/claude_desktop_config.json")]
        })
    },
    Client {
        dialect: Dialect::Typed,
        projects: Some("projects"),
        made: false,
        ..usual("claude-code", "Claude Code", |at| {
            vec![at.claude.as_ref().unwrap_or(&at.home).join(".claude.json")]
        })
    },
    Client {
        variables: Syntax::Editor,
        ..usual("cursor", "Cursor", |at| vec![at.home.join(".cursor/mcp.json")])
    },
    Client {
        key: &["servers"],
        dialect: Dialect::Typed,
        variables: Syntax::VsCode,
        ..usual("vscode", "VS Code", |at| vec![at.desktop().join("Code/User/mcp.json")])
    },
    Client {
        key: &["servers"],
        dialect: Dialect::Typed,
        variables: Syntax::VsCode,
        ..usual("vscode-insiders", "VS Code Insiders", |at| {
            vec![at.desktop().join("Code - Insiders/User/mcp.json")]
        })
    },
    Client {
        key: &["servers"],
        dialect: Dialect::Typed,
        variables: Syntax::VsCode,
        ..usual("vscode-server", "VS Code Server", |at| {
            vec![at.home.join(".vscode-server/data/User/mcp.json")]
        })
    },
    Client {
        variables: Syntax::Editor,
        ..usual("windsurf", "Windsurf", |at| {
            vec![at.home.join(".codeium/windsurf/mcp_config.json")]
        })
    },
    Client {
        variables: Syntax::Editor,
        made: false,
        ..usual("windsurf-jetbrains", "Windsurf for JetBrains", |at| {
            vec![at.home.join(".codeium/mcp_config.json")]
        })
    },
    Client {
        format: Format::Toml,
        key: &["mcp_servers"],
        dialect: Dialect::Codex,
        variables: Syntax::Plain,
        passes: Passes::Names("env_vars"),
        ..usual("codex", "Codex", |at| {
            let folder = at.codex.clone().unwrap_or_else(|| at.home.join(".codex"));
            vec![folder.join("config.toml")]
        })
    },
    Client {
        dialect: Dialect::Gemini,
        variables: Syntax::Dollar,
        // It withholds variables that look like secrets, unless the entry names them.
        passes: Passes::Env("$", ""),
        ..usual("gemini", "Gemini CLI", |at| vec![at.home.join(".gemini/settings.json")])
    },
    Client {
        dialect: Dialect::Gemini,
        variables: Syntax::Dollar,
        passes: Passes::Env("$", ""),
        ..usual("qwen", "Qwen Code", |at| vec![at.home.join(".qwen/settings.json")])
    },
    usual("antigravity", "Antigravity", |at| {
        vec![at.home.join(".gemini/antigravity/mcp_config.json")]
    }),
    Client {
        key: &["context_servers"],
        dialect: Dialect::Zed,
        variables: Syntax::Plain,
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
        variables: Syntax::Curly,
        ..usual("opencode", "OpenCode", |at| {
            let folder = at.config.join("opencode");
            vec![folder.join("opencode.jsonc"), folder.join("opencode.json")]
        })
    },
    Client {
        key: &["mcp"],
        dialect: Dialect::Crush,
        variables: Syntax::Shell,
        ..usual("crush", "Crush", |at| vec![at.config.join("crush/crush.json")])
    },
    Client {
        format: Format::Yaml,
        key: &["extensions"],
        dialect: Dialect::Goose,
        variables: Syntax::Plain,
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
        variables: Syntax::Secrets,
        folder: Some(|at| at.home.join(".continue/mcpServers")),
        // Without models and a version the client rejects the file, so we do not create it.
        made: false,
        ..usual("continue", "Continue", |at| vec![at.home.join(".continue/config.yaml")])
    },
    Client {
        dialect: Dialect::Cline,
        variables: Syntax::Env,
        // Its servers get a short list of variables and those the entry names.
        passes: Passes::Env("${env:", "}"),
        ..usual("cline", "Cline", |at| {
            let folder = "Code/User/globalStorage/saoudrizwan.claude-dev/settings";
            vec![at.desktop().join(folder).join("cline_mcp_settings.json")]
        })
    },
    Client {
        dialect: Dialect::Cline,
        variables: Syntax::Env,
        // Its servers get a short list of variables and those the entry names.
        passes: Passes::Env("${env:", "}"),
        ..usual("roo", "Roo Code", |at| {
            let folder = "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings";
            vec![at.desktop().join(folder).join("mcp_settings.json")]
        })
    },
    Client {
        variables: Syntax::Editor,
        ..usual("amazon-q", "Amazon Q", |at| vec![at.home.join(".aws/amazonq/mcp.json")])
    },
    usual("warp", "Warp", |at| vec![at.home.join(".warp/.mcp.json")]),
    usual("junie", "Junie", |at| vec![at.home.join(".junie/mcp/mcp.json")]),
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
