use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    CLIENTS, Client, ClientVariables, Dialect, Imported, Passes, Places, Syntax, System, World,
    is_the_gateway, named, of_file, variables_of,
};
use crate::edit::{self, Format};

fn places(system: System) -> Places {
    Places {
        system,
        home: "/home/me".into(),
        config: "/home/me/.config".into(),
        app_data: "/home/me/AppData/Roaming".into(),
        claude: None,
        codex: None,
    }
}

/// The folder of a client's file, as this system writes an absolute path.
const FOLDER: &str = if cfg!(windows) { "C:\\me\\.client" } else { "/home/me/.client" };

/// An entry taken over where these variables are set.
fn import((dialect, syntax): (Dialect, Syntax), name: &str, entry: &Value, own: &str) -> Imported {
    let is_set = |name: &str| ["HOME", "TOKEN", "GEM_TOKEN", "lower"].contains(&name);
    let world = World { is_set: &is_set, folder: Some(Path::new(FOLDER)) };
    super::import((dialect, syntax), name, entry, own, &world)
}

#[test]
fn every_client_has_a_file_of_its_own_on_every_system() {
    for system in [System::Linux, System::Mac, System::Windows] {
        let at = places(system);
        let mut files: Vec<PathBuf> = CLIENTS.iter().flat_map(|client| client.files(&at)).collect();
        let count = files.len();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), count);
        assert!(files.iter().all(|file| file.starts_with("/home/me")));
    }
    let desktop = named("Claude Desktop").unwrap().files(&places(System::Mac));
    let expected = "/home/me/Library/Application Support/Claude/claude_desktop_config.json";
    assert_eq!(desktop, [Path::new(expected)]);
    assert!(named("VS_code").is_some() && named("nothing").is_none());
}

#[test]
fn on_windows_each_client_has_its_file_where_its_program_looks() {
    let expected = [
        ("claude-desktop", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("claude-code", ".claude.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", "AppData/Roaming/Code/User/mcp.json"),
        ("vscode-insiders", "AppData/Roaming/Code - Insiders/User/mcp.json"),
        ("vscode-server", ".vscode-server/data/User/mcp.json"),
        ("windsurf", ".codeium/windsurf/mcp_config.json"),
        ("windsurf-jetbrains", ".codeium/mcp_config.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("qwen", ".qwen/settings.json"),
        ("antigravity", ".gemini/antigravity/mcp_config.json"),
        ("zed", "AppData/Roaming/Zed/settings.json"),
        ("opencode", ".config/opencode/opencode.json"),
        ("crush", ".config/crush/crush.json"),
        ("goose", "AppData/Roaming/Block/goose/config/config.yaml"),
        ("continue", ".continue/config.yaml"),
        (
            "cline",
            "AppData/Roaming/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        ),
        (
            "roo",
            "AppData/Roaming/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        ),
        ("amazon-q", ".aws/amazonq/mcp.json"),
        ("warp", ".warp/.mcp.json"),
        ("junie", ".junie/mcp/mcp.json"),
        ("lm-studio", ".lmstudio/mcp.json"),
        ("kiro", ".kiro/settings/mcp.json"),
        ("copilot", ".copilot/mcp-config.json"),
        ("factory", ".factory/mcp.json"),
        ("kimi", ".kimi/mcp.json"),
        ("qoder", ".qoder/mcp.json"),
        ("trae", "AppData/Roaming/Trae/User/mcp.json"),
        ("amp", ".config/amp/settings.json"),
    ];
    let at = places(System::Windows);
    let made: Vec<_> = CLIENTS.iter().map(|client| (client.id, client.files(&at).pop())).collect();
    let expected: Vec<_> =
        expected.iter().map(|(id, file)| (*id, Some(at.home.join(file)))).collect();
    assert_eq!(made, expected);
}

#[test]
fn what_a_client_is_given_is_never_taken_over() {
    for client in CLIENTS {
        let entry = client.dialect.own_entry("/opt/bin/metamcp", &["--home".into(), "/x".into()]);
        let text = edit::set(client.format, "", &[client.key, &["metamcp"]].concat(), &entry);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", client.id));
        let read = edit::read(client.format, &text, &[client.key, &["metamcp"]].concat());
        assert_eq!(read, Ok(Some(entry.clone())), "{}", client.id);
        assert_eq!(
            import((client.dialect, client.variables), "metamcp", &entry, ""),
            Imported::Itself,
            "{}",
            client.id
        );
    }
    assert!(is_the_gateway(&json!({ "command": "npx", "args": ["-y", "metamcp@1.2.3"] }), ""));
    assert!(is_the_gateway(&json!({ "command": "C:\\bin\\MetaMCP.exe" }), ""));
    assert!(!is_the_gateway(&json!({ "command": "npx", "args": ["-y", "metamcp-notes"] }), ""));
    assert!(!is_the_gateway(&json!({ "command": "cat", "args": ["metamcp"] }), ""));
    let download = json!({ "command": "/opt/metamcp-0.1.0-x86_64", "args": ["--config", "x"] });
    assert!(is_the_gateway(&download, "/home/ada/metamcp-0.1.0-x86_64"));
    assert!(!is_the_gateway(&download, "/home/ada/metamcp"));
    assert!(!is_the_gateway(&json!({ "command": "npx", "args": ["x"] }), "/home/ada/npx"));
}

/// A file of this client with comments, things that are none of ours, and one server.
fn sample(client: &Client) -> String {
    let key = client.key.join(".");
    match client.format {
        Format::Json => format!(
            "// mine\n{{\n  \"other\": [1, 2], // kept\n  \"{key}\": {{\n    /* first */\n    \"one\": {{ \"command\": \"x\", \"unknown\": true }} // last\n  }}\n}}\n"
        ),
        Format::Toml => format!(
            "# mine\nmodel = \"m\" # kept\n\n[{key}.one] # first\ncommand = \"x\"\nunknown = true\n\n[other]\na = 1\n"
        ),
        Format::Yaml => format!(
            "# mine\nother: 1 # kept\n{key}:\n  # first\n  one:\n    cmd: x # last\n    unknown: true\nbehind: 2\n"
        ),
        Format::YamlList => format!(
            "# mine\nother: 1 # kept\n{key}:\n  # first\n  - name: one\n    command: x # last\n    unknown: true\nbehind: 2\n"
        ),
    }
}

#[test]
fn every_file_comes_back_byte_for_byte_with_its_comments() {
    for client in CLIENTS {
        let text = sample(client);
        let own = client.dialect.own_entry("/opt/bin/metamcp", &["--home".into(), "/x".into()]);
        let path = [client.key, &["metamcp"]].concat();
        let with = edit::set(client.format, &text, &path, &own)
            .unwrap_or_else(|error| panic!("{}: {error}\n{text}", client.id));
        for kept in ["mine", "kept", "first", "unknown", "one"] {
            assert!(with.contains(kept), "{} lost {kept}:\n{with}", client.id);
        }
        let without = edit::remove(client.format, &with, &path).unwrap().unwrap();
        assert_eq!(without, text, "{}", client.id);
        // The only other one out and in again: what is around it stays.
        let one = [client.key, &["one"]].concat();
        let entry = edit::read(client.format, &text, &one).unwrap().unwrap();
        let out = edit::remove(client.format, &text, &one).unwrap().unwrap();
        let back = edit::set(client.format, &out, &one, &entry).unwrap();
        assert_eq!(edit::read(client.format, &back, &one), Ok(Some(entry)), "{}", client.id);
        assert!(back.contains("mine") && back.contains("kept"), "{}:\n{back}", client.id);
    }
}

#[test]
fn entries_of_every_dialect_become_ours() {
    let check = |dialect, entry, expect| {
        let of_it = |client: &&Client| client.dialect == dialect;
        let syntax = CLIENTS.iter().find(of_it).map_or(Syntax::Braces, |client| client.variables);
        let imported = import((dialect, syntax), "one", &entry, "");
        assert_eq!(imported, Imported::Server(expect, ClientVariables::new()), "{entry}");
    };
    let usual = json!({ "command": "npx", "args": ["-y", "x"], "env": { "A": "1" } });
    check(Dialect::Standard, usual.clone(), usual.clone());
    check(
        Dialect::Zed,
        json!({ "source": "custom", "command": { "path": "npx", "args": ["-y", "x"], "env": { "A": "1" } } }),
        usual.clone(),
    );
    check(
        Dialect::Goose,
        json!({ "name": "one", "type": "stdio", "cmd": "npx", "args": ["-y", "x"], "envs": { "A": "1" }, "timeout": 300, "bundled": null }),
        json!({ "type": "stdio", "args": ["-y", "x"], "command": "npx", "env": { "A": "1" }, "timeoutMs": 300_000 }),
    );
    check(
        Dialect::Codex,
        json!({ "url": "https://x.example/mcp", "bearer_token_env_var": "TOKEN", "startup_timeout_sec": 5 }),
        json!({ "url": "https://x.example/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }),
    );
    check(
        Dialect::Gemini,
        json!({ "url": "https://x.example/sse" }),
        json!({ "url": "https://x.example/sse", "type": "sse" }),
    );
    check(
        Dialect::OpenCode,
        json!({ "type": "local", "command": ["npx", "x"], "environment": { "A": "1" }, "enabled": false }),
        json!({ "type": "local", "command": ["npx", "x"], "environment": { "A": "1" }, "enabled": false }),
    );
    let beside = format!("file:{}", Path::new(FOLDER).join("key").display());
    check(
        Dialect::OpenCode,
        json!({ "type": "local", "command": ["npx", "{env:PACKAGE}"], "environment": { "A": "Bearer {env:A_TOKEN}!", "K": "{file:~/.key}", "R": "{file:./key}" } }),
        json!({ "type": "local", "command": ["npx", "${PACKAGE}"], "environment": { "A": "Bearer ${A_TOKEN}!", "K": "file:~/.key", "R": beside } }),
    );
    for dialect in [Dialect::Cline, Dialect::Crush] {
        check(
            dialect,
            json!({ "command": "npx", "timeout": 90 }),
            json!({ "command": "npx", "timeoutMs": 90_000 }),
        );
    }
    check(
        Dialect::OpenCode,
        json!({ "type": "remote", "url": "https://x.example", "oauth": { "clientId": "{env:ID}", "clientSecret": "{env:SECRET}" } }),
        json!({ "type": "remote", "url": "https://x.example", "oauth": { "clientId": "${ID}", "clientSecret": "${SECRET}" } }),
    );
    check(
        Dialect::Goose,
        json!({ "type": "stdio", "cmd": "npx", "envs": { "A": "1" }, "env_keys": ["A", "TOKEN"] }),
        json!({ "type": "stdio", "command": "npx", "env": { "A": "1", "TOKEN": "${TOKEN}" } }),
    );
    check(
        Dialect::Goose,
        json!({ "type": "stdio", "cmd": "npx", "envs": {}, "env_keys": [] }),
        json!({ "type": "stdio", "command": "npx", "env": {} }),
    );
    let plain = Syntax::Plain;
    for (shape, entry) in [
        (
            (Dialect::OpenCode, Syntax::Curly),
            json!({ "type": "local", "command": ["x"], "environment": { "K": "a{file:./key}" } }),
        ),
        (
            (Dialect::OpenCode, Syntax::Curly),
            json!({ "type": "local", "command": ["x", "{file:/key}"] }),
        ),
        (
            (Dialect::Standard, Syntax::Braces),
            json!({ "command": "x", "cwd": "${workspaceFolder}" }),
        ),
        ((Dialect::Typed, Syntax::VsCode), json!({ "command": "x", "envFile": "/home/me/.env" })),
        (
            (Dialect::Typed, Syntax::VsCode),
            json!({ "command": "x", "env": { "A": "${input:a-b}", "B": "${input:a_b}" } }),
        ),
        (
            (Dialect::Standard, Syntax::Editor),
            json!({ "command": "x", "env": { "K": "${input:key}" } }),
        ),
        ((Dialect::Goose, plain), json!({ "type": "builtin", "name": "developer" })),
        ((Dialect::Zed, plain), json!({ "source": "extension", "settings": {} })),
        ((Dialect::Standard, Syntax::Braces), json!({ "args": ["x"] })),
        (
            (Dialect::Codex, plain),
            json!({ "url": "https://x.example", "http_headers": "x", "bearer_token_env_var": "T" }),
        ),
        ((Dialect::Codex, plain), json!({ "command": "x", "env_vars": "A" })),
        (
            (Dialect::Codex, plain),
            json!({ "command": "x", "env_vars": [{ "name": "A", "source": "remote" }] }),
        ),
        (
            (Dialect::Continue, Syntax::Secrets),
            json!({ "command": "x", "env": { "A": "${{ inputs.A }}" } }),
        ),
        ((Dialect::Typed, Syntax::Shell), json!({ "command": "x", "args": ["$(date)"] })),
        ((Dialect::Typed, Syntax::Shell), json!({ "command": "x", "env": { "A": "${A:?no}" } })),
        ((Dialect::Gemini, Syntax::Dollar), json!({ "command": "x", "args": ["$$TOKEN"] })),
        ((Dialect::Standard, Syntax::Braces), json!("npx x")),
    ] {
        let outcome = import(shape, "one", &entry, "");
        let (Imported::Left(why) | Imported::Wrong { why, .. }) = &outcome else {
            panic!("{entry}: {outcome:?}");
        };
        assert!(!why.is_empty(), "{entry}");
    }
}

/// The value of one variable or header, and of one argument, as each client writes them and as our own file does.
#[test]
fn variables_of_every_client_become_ours_and_a_plain_dollar_stays_one() {
    let check = |id: &str, written: &str, expect: &str| {
        let client = named(id).unwrap();
        let shape = (Dialect::Standard, client.variables);
        let entry = json!({ "command": "x", "env": { "A": written } });
        let Imported::Server(ours, _) = import(shape, "one", &entry, "") else {
            panic!("{id}: {written} is left");
        };
        assert_eq!(ours["env"]["A"], expect, "{id}: {written}");
    };
    for id in ["claude-code", "kiro", "amp", "copilot", "junie", "warp"] {
        check(id, "Bearer ${TOKEN}", "Bearer ${TOKEN}");
        check(id, "${TOKEN:-none}", "${TOKEN:-none}");
        check(id, "${env:TOKEN}", "${TOKEN}");
        check(id, "$TOKEN pa$$word ${a.b}", "$TOKEN pa$$word $${a.b}");
    }
    for id in ["claude-desktop", "zed", "codex"] {
        check(id, "${TOKEN} $TOKEN {env:TOKEN}", "$${TOKEN} $TOKEN {env:TOKEN}");
        check(id, "$${TOKEN}", "$$${TOKEN}");
    }
    for id in ["gemini", "qwen"] {
        check(id, "Bearer $GEM_TOKEN", "Bearer ${GEM_TOKEN}");
        check(id, "Bearer ${GEM_TOKEN}!", "Bearer ${GEM_TOKEN}!");
        check(id, "$NOT_SET-x", "${NOT_SET}-x");
        check(id, "$lower", "${lower}");
        check(id, "pa$$word costs $5 ${no.name} $", "pa$$word costs $5 $${no.name} $");
    }
    check("crush", "Bearer $TOKEN", "Bearer ${TOKEN}");
    check("crush", "${TOKEN:-none}", "${TOKEN:-none}");
    check("crush", "$(pass show key)", "cmd:sh -c 'printf %s \"$(pass show key)\"'");
    check(
        "crush",
        "Bearer $(op read \"op://a\")",
        "cmd:sh -c 'printf %s \"Bearer $(op read \"op://a\")\"'",
    );
    check("crush", "costs $5", "costs $5");
    for id in ["vscode", "cursor", "windsurf", "cline", "roo", "amazon-q"] {
        check(id, "Bearer ${env:TOKEN}", "Bearer ${TOKEN}");
        check(id, "$TOKEN", "$TOKEN");
    }
    for id in ["vscode", "cursor", "windsurf"] {
        check(id, "${userHome}${pathSeparator}x", "${HOME}/x");
    }
    check("vscode", "${TOKEN}", "$${TOKEN}");
    check("roo", "${TOKEN}", "$${TOKEN}");
    check("cline", "${TOKEN}", "$${TOKEN}");
    check("cursor", "${TOKEN}", "${TOKEN}");
    check("windsurf", "${file:/run/key}", "file:/run/key");
    check("vscode", "${input:git-hub}", "${VSCODE_INPUT_GIT_HUB}");
    check("opencode", "Bearer {env:TOKEN} ${TOKEN}", "Bearer ${TOKEN} $${TOKEN}");
    check("continue", "Bearer ${{ secrets.TOKEN }}", "Bearer ${TOKEN}");
    check("continue", "${{secrets.TOKEN}} ${TOKEN}", "${TOKEN} $${TOKEN}");
    // What only looks as if it said where a secret is.
    for id in ["claude-code", "codex", "cursor", "opencode"] {
        check(id, "file:/home/me/dev.db", "literal:file:/home/me/dev.db");
        check(id, "op://vault/item/field", "literal:op://vault/item/field");
    }
}

#[test]
fn what_codex_and_goose_name_beside_their_values() {
    let codex = (Dialect::Codex, Syntax::Plain);
    let entry = json!({ "command": "x", "env": { "A": "${B}" }, "env_vars": ["TOKEN", { "name": "OTHER", "source": "local" }] });
    let ours = json!({ "command": "x", "env": { "A": "$${B}" }, "passEnv": ["TOKEN", "OTHER"] });
    assert_eq!(variables_of(&ours), ["OTHER", "TOKEN"]);
    assert_eq!(import(codex, "one", &entry, ""), Imported::Server(ours, ClientVariables::new()));
    let entry = json!({ "url": "https://x.example", "bearer_token_env_var": "TOKEN", "env_http_headers": { "X-Key": "KEY" } });
    let ours = json!({ "url": "https://x.example", "headers": { "X-Key": "${KEY}", "Authorization": "Bearer ${TOKEN}" } });
    assert_eq!(variables_of(&ours), ["KEY", "TOKEN"]);
    assert_eq!(import(codex, "one", &entry, ""), Imported::Server(ours, ClientVariables::new()));
    let goose = (Dialect::Goose, Syntax::Plain);
    let entry = json!({ "type": "streamable_http", "uri": "https://x.example", "envs": { "KEY": "k" }, "env_keys": ["TOKEN"],
        "headers": { "A": "Bearer $TOKEN", "B": "${KEY}", "C": "$OTHER ${OTHER}" } });
    let ours = json!({ "type": "streamable_http", "url": "https://x.example",
        "headers": { "A": "Bearer ${TOKEN}", "B": "k", "C": "$OTHER $${OTHER}" } });
    assert_eq!(import(goose, "one", &entry, ""), Imported::Server(ours, ClientVariables::new()));
}

#[test]
fn clients_are_told_to_pass_on_what_servers_use() {
    let names = ["A".to_owned(), "B".to_owned()];
    let asked = vec![("VSCODE_INPUT_K".to_owned(), "${input:k}".to_owned())];
    let added = |id: &str, own: Value, asked: &ClientVariables| {
        let client = named(id).unwrap();
        client.passes.added(client.dialect, &own, &names, asked)
    };
    let none = ClientVariables::new();
    assert_eq!(added("codex", json!({}), &none), [("env_vars", json!(["A", "B"]))]);
    assert_eq!(
        added("codex", json!({ "env_vars": ["X", { "name": "A" }] }), &none),
        [("env_vars", json!(["X", { "name": "A" }, "B"]))]
    );
    assert_eq!(added("codex", json!({ "env_vars": ["A", "B"] }), &none), []);
    assert_eq!(added("gemini", json!({}), &none), [("env", json!({ "A": "$A", "B": "$B" }))]);
    let there = json!({ "env": { "A": "mine", "Z": "1" } });
    for id in ["roo", "cline"] {
        assert_eq!(
            added(id, there.clone(), &none),
            [("env", json!({ "A": "mine", "Z": "1", "B": "${env:B}" }))]
        );
    }
    assert_eq!(
        added("vscode", json!({}), &asked),
        [("env", json!({ "VSCODE_INPUT_K": "${input:k}" }))]
    );
    assert_eq!(added("cursor", json!({}), &none), []);
    assert!(CLIENTS.iter().any(|client| client.passes == Passes::Everything));
}

#[test]
fn what_is_wrong_with_an_entry_is_named_by_its_key() {
    let usual = (Dialect::Standard, Syntax::Braces);
    for (entry, expect) in
        [(json!({ "command": "x", "args": "y" }), Some("args")), (json!({ "args": ["x"] }), None)]
    {
        let Imported::Wrong { key, .. } = import(usual, "a.b", &entry, "") else {
            panic!("{entry} is fine");
        };
        assert_eq!(key.as_deref(), expect, "{entry}");
    }
}

#[test]
fn a_file_is_known_by_the_end_of_its_path() {
    for (path, client) in [
        ("/srv/shop/.gemini/settings.json", Some("gemini")),
        ("/mnt/old/home/ada/.qwen/settings.json", Some("qwen")),
        ("/mnt/old/.config/crush/crush.json", Some("crush")),
        ("/srv/shop/crush.json", Some("crush")),
        ("/srv/shop/.vscode/mcp.json", Some("vscode")),
        ("/mnt/old/.config/Code/User/mcp.json", Some("vscode")),
        ("/mnt/old/.config/Code/User/profiles/7f3a/mcp.json", Some("vscode")),
        ("/mnt/old/Library/Application Support/Trae/User/mcp.json", Some("trae")),
        ("/srv/shop/.cursor/mcp.json", Some("cursor")),
        ("/mnt/old/.claude.json", Some("claude-code")),
        ("/srv/shop/opencode.jsonc", Some("opencode")),
        ("/tmp/cline_mcp_settings.json", Some("cline")),
        ("/srv/shop/.roo/mcp.json", Some("roo")),
        ("/srv/shop/.mcp.json", None),
        ("/srv/shop/mcp.json", None),
        ("/srv/shop/settings.json", None),
        ("/srv/shop/config.toml", None),
    ] {
        assert_eq!(of_file(Path::new(path)).map(|client| client.id), client, "{path}");
    }
}

/// Something of every dialect, so that a change of it may hit any of their keys.
fn busy() -> Value {
    json!({
        "name": "two", "type": "stdio", "source": "custom", "command": "x", "cmd": "x",
        "args": ["-y", "a: b"], "env": { "A": "1" }, "envs": {}, "env_vars": ["A"],
        "url": "https://x.example/mcp", "http_headers": { "H": "v" }, "bearer_token_env_var": "T",
        "requestOptions": { "headers": { "H": "v" } }, "timeout": 300, "tool_timeout_sec": 1.5,
    })
}

/// What people and programs leave in files, in places where nobody expects it.
const PIECES: [&str; 20] = [
    "\u{a0}",
    "{}",
    "[]",
    "#",
    " # ",
    "- ",
    "-",
    "\"",
    "'",
    "\t",
    "\n",
    "\r\n",
    ":",
    ": ",
    ",",
    "{",
    "}",
    "//",
    "/*",
    "\u{1f41f}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_file_of_a_client_is_too_odd(
        client in prop::sample::select(CLIENTS.iter().collect::<Vec<_>>()),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(&PIECES[..]), any::<bool>()),
            1..5,
        ),
    ) {
        let Client { format, key, dialect, .. } = *client;
        let at = |name: &'static str| [key, &[name]].concat();
        let mut text = edit::set(format, &sample(client), &at("two"), &busy()).unwrap();
        for (place, piece, replaces) in changes {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let start = places[place.index(places.len())];
            let taken = text[start..].chars().next().filter(|_| replaces);
            text.replace_range(start..start + taken.map_or(0, char::len_utf8), piece);
        }
        // Refusing is right, ending is not.
        if let Ok(Some(Value::Object(all))) = edit::read(format, &text, key) {
            for (name, entry) in &all {
                let _outcome = import((dialect, client.variables), name, entry, "");
            }
        }
        let _outcome = edit::remove(format, &text, &at("one"));
        let own = dialect.own_entry("/opt/bin/metamcp", &["--home".into(), "/x".into()]);
        if let Ok(with) = edit::set(format, &text, &at("metamcp"), &own) {
            let read = edit::read(format, &with, &at("metamcp"));
            prop_assert_eq!(read, Ok(Some(own)), "{}\n---\n{}", text, with);
            prop_assert!(!matches!(edit::remove(format, &with, &at("metamcp")), Ok(None)));
        }
    }
}
