use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{CLIENTS, Client, Dialect, Imported, Places, System, import, is_the_gateway, named};
use crate::edit::{self, Format};

fn places(system: System) -> Places {
    Places {
        system,
        home: "/home/me".into(),
        config: "/home/me/.config".into(),
        app_data: "/home/me/AppData/Roaming".into(),
        claude: None,
    }
}

#[test]
fn every_client_has_a_file_of_its_own_on_every_system() {
    for system in [System::Linux, System::Mac, System::Windows] {
        let at = places(system);
        let mut files: Vec<PathBuf> =
            CLIENTS.iter().flat_map(|client| (client.files)(&at)).collect();
        let count = files.len();
        files.sort();
        files.dedup();
        assert_eq!(files.len(), count);
        assert!(files.iter().all(|file| file.starts_with("/home/me")));
    }
    let desktop = (named("Claude Desktop").unwrap().files)(&places(System::Mac));
    let expected = "/home/me/Library/Application Support/Claude/claude_desktop_config.json";
    assert_eq!(desktop, [Path::new(expected)]);
    assert!(named("VS_code").is_some() && named("nothing").is_none());
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
            import(client.dialect, "metamcp", &entry, ""),
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
        assert_eq!(import(dialect, "one", &entry, ""), Imported::Server(expect), "{entry}");
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
    check(
        Dialect::OpenCode,
        json!({ "type": "local", "command": ["npx", "{env:PACKAGE}"], "environment": { "A": "Bearer {env:A_TOKEN}!", "K": "{file:~/.key}" } }),
        json!({ "type": "local", "command": ["npx", "${PACKAGE}"], "environment": { "A": "Bearer ${A_TOKEN}!", "K": "file:~/.key" } }),
    );
    check(
        Dialect::Cline,
        json!({ "command": "npx", "timeout": 90 }),
        json!({ "command": "npx", "timeoutMs": 90_000 }),
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
    for (dialect, entry) in [
        (
            Dialect::OpenCode,
            json!({ "type": "local", "command": ["x"], "environment": { "K": "a{file:./key}" } }),
        ),
        (
            Dialect::Typed,
            json!({ "type": "stdio", "command": "x", "env": { "K": "${input:key}" } }),
        ),
        (Dialect::Standard, json!({ "command": "x", "cwd": "${workspaceFolder}" })),
        (Dialect::Goose, json!({ "type": "builtin", "name": "developer" })),
        (Dialect::Zed, json!({ "source": "extension", "settings": {} })),
        (Dialect::Standard, json!({ "args": ["x"] })),
        (
            Dialect::Codex,
            json!({ "url": "https://x.example", "http_headers": "x", "bearer_token_env_var": "T" }),
        ),
        (Dialect::Codex, json!({ "command": "x", "env": ["A"], "env_vars": ["A"] })),
        (Dialect::Standard, json!("npx x")),
    ] {
        let outcome = import(dialect, "one", &entry, "");
        assert!(matches!(&outcome, Imported::Left(why) if !why.is_empty()), "{entry}: {outcome:?}");
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
                let _outcome = import(dialect, name, entry, "");
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
