//! `metamcp init` on homes with clients of every kind.

use insta::assert_snapshot;

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

/// Client files with comments, unrelated keys, and two servers.
const FILES: &[(&str, &str)] = &[
    (
        "user/.config/Claude/claude_desktop_config.json",
        "{\n  \"globalShortcut\": \"\",\n  \"mcpServers\": {\n    \"files\": { \"command\": \"npx\", \"args\": [\"-y\", \"files\"] }\n  }\n}\n",
    ),
    (
        "user/.claude.json",
        "{\n  \"numStartups\": 7,\n  \"mcpServers\": {\n    \"web\": { \"type\": \"http\", \"url\": \"https://web.example.com/mcp\" }\n  },\n  \"projects\": { \"/x\": { \"mcpServers\": {} } }\n}",
    ),
    (
        "user/.cursor/mcp.json",
        "{\n\t// cursor, with tabs\n\t\"mcpServers\": {\n\t\t\"files\": { \"command\": \"npx\", \"args\": [\"-y\", \"files\"] }, // the same\n\t\t\"git\": { \"command\": \"uvx\", \"args\": [\"mcp-server-git\"], \"env\": { \"TOKEN\": \"s3cret-value\" } },\n\t},\n}\n",
    ),
    (
        "user/.config/Code/User/mcp.json",
        "{\r\n  \"inputs\": [],\r\n  \"servers\": {\r\n    \"asks\": { \"type\": \"stdio\", \"command\": \"x\", \"env\": { \"K\": \"${input:k}\" } },\r\n    \"git\": { \"type\": \"stdio\", \"command\": \"another-git\" }\r\n  }\r\n}\r\n",
    ),
    (
        "user/.codeium/windsurf/mcp_config.json",
        "{ \"mcpServers\": { \"far\": { \"serverUrl\": \"https://far.example.com/mcp\" } } }",
    ),
    (
        "user/.codex/config.toml",
        "# codex\nmodel = \"x\" # the model\n\n[mcp_servers.docs] # the docs\ncommand = 'docs'\nargs = [\"a\"]\n\n[profiles.one]\nz = 1\n",
    ),
    (
        "user/.gemini/settings.json",
        "{\n  \"theme\": \"dark\",\n  \"mcpServers\": {\n    \"gem\": { \"httpUrl\": \"https://gem.example.com/mcp\" }\n  }\n}\n",
    ),
    (
        "user/.config/zed/settings.json",
        "// Zed settings\n{\n  \"vim_mode\": true, // yes\n  \"context_servers\": {\n    \"zedded\": { \"source\": \"custom\", \"command\": \"zs\", \"args\": [], \"env\": {} },\n    \"ext\": { \"source\": \"extension\", \"settings\": {} }\n  }\n}\n",
    ),
    (
        "user/.config/opencode/opencode.json",
        "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"mcp\": {\n    \"open\": { \"type\": \"local\", \"command\": [\"open-server\", \"-x\"], \"environment\": { \"KEY\": \"{env:OPEN_KEY}\" } }\n  }\n}\n",
    ),
    (
        "user/.config/goose/config.yaml",
        "# goose\nGOOSE_MODEL: m\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n  gander:\n    type: stdio\n    cmd: gander\n    args:\n    - --fast\n    envs: {}\n    enabled: true\n",
    ),
    (
        "user/.continue/config.yaml",
        "# continue\nname: Mine\nversion: 1.0.0\nschema: v1\nmodels:\n  - name: big # the model\n    provider: x\nmcpServers:\n  # searches\n  - name: goes-on\n    command: goes-on\n    args: [\"-x\"]\n  - name: kept\n    command: y\n    env:\n      K: ${{ secrets.K }}\n",
    ),
    (
        "user/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "{\n  \"mcpServers\": {\n    \"clined\": { \"command\": \"cl\", \"autoApprove\": [], \"disabled\": false, \"timeout\": 90 }\n  }\n}\n",
    ),
    ("user/.kiro/settings/mcp.json", "{ \"mcpServers\": { \"broken\": { \"command\": \"x\" } \n"),
];

fn shell() -> Shell {
    let shell = Shell::new();
    for (path, text) in FILES {
        shell.write(path, text);
    }
    for program in [
        "npx",
        "uvx",
        "x",
        "another-git",
        "docs",
        "zs",
        "open-server",
        "gander",
        "goes-on",
        "cl",
        "y",
    ] {
        shell.program(program, "#!/bin/sh\n");
    }
    shell
}

#[test]
fn what_init_shows_does_and_takes_back() {
    let shell = shell();
    let mut all = format!("$ metamcp init --dry-run\n{}\n\n", shell.told(&["init", "--dry-run"]));
    for (path, text) in FILES {
        assert_eq!(shell.read(path), *text, "a dry run touched {path}");
    }
    assert!(!shell.path(OWN).exists());
    all.push_str(&format!("$ metamcp init\n{}\n\n", shell.told(&["init"]).lines().last().unwrap()));
    assert!(!shell.path(OWN).exists(), "nobody said yes");
    let done = shell.run(&["init", "--yes"]);
    assert_eq!(done.status.code(), Some(0), "one file is left alone, and that is said");
    for (path, _) in FILES {
        all.push_str(&format!("--- {path}\n{}\n", shell.read(path)));
    }
    all.push_str(&format!("--- {OWN}\n{}\n", shell.read(OWN)));
    let plain = |text: String| {
        let text = text.replace(env!("CARGO_BIN_EXE_metamcp"), "METAMCP");
        text.replace(&shell.path("").display().to_string(), "ROOT/").replace('\r', "")
    };
    let again = shell.told(&["init", "--yes"]);
    assert!(again.contains("Nothing to change."), "{again}");
    let undone = shell.told(&["init", "--undo"]);
    for (path, text) in FILES {
        assert_eq!(shell.read(path), *text, "{path}");
    }
    assert!(!shell.path(OWN).exists());
    all.push_str(&format!("\n$ metamcp init --undo\n{undone}"));
    assert_snapshot!(plain(all));
}

/// Every client's file retains every line that is not about the moved servers.
#[test]
fn comments_and_unknown_keys_survive() {
    let shell = shell();
    shell.run(&["init", "--yes"]);
    for (path, kept) in [
        ("user/.config/Claude/claude_desktop_config.json", &["\"globalShortcut\": \"\","][..]),
        ("user/.claude.json", &["\"numStartups\": 7,", "\"projects\": { \"/x\""]),
        ("user/.cursor/mcp.json", &["// cursor, with tabs", "// the same"]),
        ("user/.config/Code/User/mcp.json", &["\"inputs\": [],\r\n", "${input:k}"]),
        ("user/.codex/config.toml", &["# codex", "# the model", "[profiles.one]"]),
        ("user/.config/zed/settings.json", &["// Zed settings", "// yes", "\"ext\""]),
        ("user/.config/goose/config.yaml", &["# goose", "developer:", "type: builtin"]),
        ("user/.continue/config.yaml", &["# continue", "# the model", "# searches", "name: kept"]),
    ] {
        let text = shell.read(path);
        for line in kept {
            assert!(text.contains(line), "{path} lost {line:?}:\n{text}");
        }
        assert!(text.contains("metamcp"), "{path}");
    }
    let checked =
        shell.run(&["config", "check", "--config", &shell.path(OWN).display().to_string()]);
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn a_file_that_its_client_wrote_since_keeps_what_it_wrote() {
    let shell = shell();
    shell.run(&["init", "--yes", "--client", "claude-code", "--client", "cursor"]);
    let path = "user/.claude.json";
    shell.write(path, &shell.read(path).replace("\"numStartups\": 7", "\"numStartups\": 8"));
    let undone = shell.told(&["init", "--undo"]);
    assert!(undone.contains("changed since"), "{undone}");
    let text = shell.read(path);
    assert!(text.contains("\"numStartups\": 8") && text.contains("web.example.com"), "{text}");
    assert!(!text.contains("metamcp"), "{text}");
}

/// A full disk, or a crash at the worst moment: the backup and its record come first.
#[test]
fn nothing_is_changed_that_could_not_be_taken_back() {
    let shell = shell();
    let (path, copies) = ("user/.cursor/mcp.json", "user/.metamcp/backups");
    let before = shell.read(path);
    // No backup can be made because a file is in the way.
    shell.write(copies, "");
    let told = shell.told(&["init", "--yes", "--client", "cursor"]);
    assert!(told.contains("--undo"), "{told}");
    assert_eq!(shell.read(path), before);
    std::fs::remove_file(shell.path(copies)).unwrap();
    let undone = shell.told(&["init", "--undo"]);
    assert!(!shell.path(OWN).exists(), "{undone}");
    // Recorded, but the change itself never happened.
    shell.run(&["init", "--yes", "--client", "cursor"]);
    shell.write(path, &before);
    let undone = shell.told(&["init", "--undo"]);
    assert!(undone.contains("is unchanged"), "{undone}");
    assert_eq!(shell.read(path), before);
    assert!(!shell.path(OWN).exists(), "{undone}");
}

#[test]
fn copies_of_two_inits_in_one_second_are_two() {
    let shell = shell();
    let path = "user/.cursor/mcp.json";
    let before = shell.read(path);
    shell.run(&["init", "--yes", "--keep", "--client", "cursor"]);
    shell.run(&["init", "--yes", "--client", "cursor"]);
    shell.run(&["init", "--undo", "--last"]);
    assert_ne!(shell.read(path), before);
    shell.run(&["init", "--undo", "--last"]);
    assert_eq!(shell.read(path), before);
}

/// Among others, such a client is skipped with a note; selected by name, it is an error.
#[test]
fn a_client_that_was_named_and_cannot_be_edited_is_a_failure() {
    let shell = shell();
    let told = shell.told(&["init", "--yes", "--client", "kiro"]);
    assert!(told.starts_with("exit: 1") && told.contains("skipped"), "{told}");
    let told = shell.told(&["init", "--yes"]);
    assert!(told.starts_with("exit: 0") && told.contains("skipped"), "{told}");
}

#[cfg(unix)]
#[test]
fn what_init_makes_is_for_this_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let shell = shell();
    std::fs::remove_dir(shell.path("user/.metamcp")).unwrap();
    shell.run(&["init", "--yes", "--client", "cursor"]);
    for path in ["user/.metamcp", "user/.metamcp/backups"] {
        let mode = std::fs::metadata(shell.path(path)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{path}");
    }
}

#[test]
fn keeping_the_servers_where_they_are() {
    let shell = shell();
    shell.run(&["init", "--yes", "--keep", "--client", "cursor"]);
    let text = shell.read("user/.cursor/mcp.json");
    assert!(text.contains("\"git\"") && text.contains("\"metamcp\""), "{text}");
    assert!(shell.read(OWN).contains("\"git\""));
    assert!(!shell.read("user/.claude.json").contains("metamcp"));
}

#[test]
fn a_machine_without_clients_and_names_that_are_none() {
    let shell = Shell::new();
    let all = [
        shell.told(&["init"]),
        shell.told(&["init", "--client", "nobody"]),
        shell.told(&["init", "--undo"]),
        shell.told(&["init", "--json"]),
    ];
    assert_snapshot!(all.join("\n"));
}

/// A user who broke metamcp's own config can still undo; that file stays as they left it.
#[test]
fn undo_needs_no_sound_file_of_ours() {
    let too_large = format!("{{ \"mcpServers\": {{}} }}{}", " ".repeat(2 << 20));
    for broken in ["{ broken", &too_large] {
        let shell = shell();
        shell.run(&["init", "--yes"]);
        shell.write(OWN, broken);
        let undone = shell.told(&["init", "--undo"]);
        for (path, text) in FILES {
            assert_eq!(shell.read(path), *text, "{path}: {undone}");
        }
        assert_eq!(shell.read(OWN), broken);
        if broken == "{ broken" {
            assert!(undone.contains("mcp.json: not restored: line 1"), "{undone}");
            shell.write(OWN, "{}");
            let again = shell.told(&["init", "--undo"]);
            assert!(again.starts_with("exit: 0"), "{again}");
        }
    }
}

#[test]
fn more_than_a_config_file_holds_is_refused_before_anything_is_done() {
    let shell = Shell::new();
    shell.program("probe", "#!/bin/sh\n");
    let entry = |at: usize| {
        let filler = "x".repeat(1_000);
        format!("    \"s{at}\": {{ \"command\": \"probe\", \"args\": [\"{at}\", \"{filler}\"] }}")
    };
    let entries: Vec<String> = (0..1_100).map(entry).collect();
    let text = format!("{{\n  \"mcpServers\": {{\n{}\n  }}\n}}\n", entries.join(",\n"));
    let path = "user/.cursor/mcp.json";
    shell.write(path, &text);
    for arguments in [&["init", "--yes"][..], &["init"], &["import", "cursor"]] {
        let told = shell.told(arguments);
        assert!(told.contains("was not changed") && told.contains("fewer servers"), "{told}");
        assert!(!told.starts_with("exit: 0"), "{told}");
        assert!(shell.read(path) == text && !shell.path(OWN).exists());
        assert!(!shell.path("user/.metamcp/init.json").exists());
    }
    let told = shell.told(&["init", "--yes", "--server", "s1"]);
    assert!(told.contains("Done."), "{told}");
}
