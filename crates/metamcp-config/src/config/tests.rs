//! The parser from outside: what is accepted, what is rejected, and with which messages.
//! Owns: the cases.      Never: looks inside the reader.
//! In: texts.  Out: models, problems, warnings, snapshots.
//! Tests: this module.

mod cases;

use std::path::Path;
use std::time::Duration;

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::Value as Json;

use self::cases::{
    DOUBTFUL_FILES, DOUBTFUL_SERVERS, GOOD_SERVERS, WRONG_BEYOND_SCHEMA, WRONG_FILES, WRONG_SERVERS,
};
use super::*;

fn lookup(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/me".to_owned()),
        "TOKEN" => Some("t0ken-value-123".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn load(text: &str) -> Loaded {
    parse(text, &lookup).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// The only server of a file that has no other content and gives no warnings.
fn server(body: &str) -> ServerConfig {
    let mut loaded = load(&format!(r#"{{ "mcpServers": {{ "s": {body} }} }}"#));
    assert_eq!(loaded.warnings, [], "{body}");
    loaded.config.servers.remove(0)
}

/// Everything a user is shown for a file: problems with their excerpt, and warnings.
fn told(text: &str) -> String {
    let (problems, warnings) = match parse(text, &lookup) {
        Ok(loaded) => (loaded.faults, loaded.warnings),
        Err(error) => (error.problems, error.warnings),
    };
    let problems = problems.into_iter().map(|Problem { place, message, hint, excerpt }| {
        let hint = hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        format!("{place}: {message}\n{excerpt}{hint}")
    });
    let warnings = warnings.into_iter().map(|Warning { place, severity, message, hint }| {
        let hint = hint.map(|hint| format!("\n    hint: {hint}")).unwrap_or_default();
        format!("{severity:?} {place}: {message}{hint}")
    });
    problems.chain(warnings).collect::<Vec<_>>().join("\n")
}

/// What is told about one server with this body.
fn told_of(body: &str) -> String {
    told(&format!("{{ \"mcpServers\": {{\n\"s\": {body}\n}} }}"))
}

/// Command, arguments, variables, directory.
type Launch<'a> = (&'a str, Vec<&'a str>, Vec<(&'a str, &'a str)>, Option<&'a str>);

fn stdio(server: &ServerConfig) -> Launch<'_> {
    let Some(LocalCommand { command, args, env, cwd }) = server.transport.local() else {
        panic!("{server:?}")
    };
    let env = env.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    (
        command,
        args.iter().map(String::as_str).collect(),
        env,
        cwd.as_deref().and_then(|cwd| cwd.to_str()),
    )
}

#[test]
fn a_file_as_clients_write_it() {
    let loaded = load(
        r#"{
            // comments and trailing commas are fine
            "mcpServers": {
                "files": { "command": "npx", "args": ["-y", "server-filesystem", "${HOME}/notes"], },
                "web": { "type": "http", "url": "https://mcp.example.com/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } },
            },
            /* as an editor writes it */
            "servers": { "clock": { "type": "stdio", "command": ["uvx", "mcp-server-time"], "args": ["--utc"] } },
            "pool": { "poolSize": 7, "idleTimeoutMs": 1000 },
            "replay": "never",
        }"#,
    );
    assert_eq!(loaded.warnings, []);
    let names: Vec<&str> =
        loaded.config.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["files", "web", "clock"]);
    assert_eq!(
        stdio(&loaded.config.servers[0]),
        ("npx", vec!["-y", "server-filesystem", "/home/me/notes"], vec![], None)
    );
    assert_eq!(
        stdio(&loaded.config.servers[2]),
        ("uvx", vec!["mcp-server-time", "--utc"], vec![], None)
    );
    let Some(RemoteEndpoint { url, headers, kind, .. }) =
        loaded.config.servers[1].transport.remote()
    else {
        panic!()
    };
    assert_eq!((url.as_str(), *kind), ("https://mcp.example.com/mcp", HttpKind::Streamable));
    assert_eq!(headers[0].1.expose(), "Bearer t0ken-value-123");
    assert_eq!(loaded.config.settings.pool.size, 7);
    assert_eq!(loaded.config.settings.replay, crate::settings::Replay::Never);
    assert_eq!(loaded.given.len(), 3);
}

#[test]
fn every_key_reaches_the_model() {
    let server = server(
        r#"{ "command": "a", "env": { "A": "x", "B": 1.50, "C": true }, "cwd": "~/w", "timeoutMs": 5000,
             "description": "What it is", "vital": true, "lifecycle": { "mode": "keep-alive", "idleTimeoutMs": 7 },
             "retry": { "default": "never", "tools": { "get_*": "always", "get_x": "annotated" } },
             "exclusive": true, "eager": true, "maxInFlight": 1, "share": "project", "instances": 4, "tools": { "allow": ["get_*"], "deny": ["get_secret"] },
             "containment": "shim" }"#,
    );
    let cwd = Path::new("/home/me").join("w");
    assert_eq!(
        stdio(&server),
        ("a", vec![], vec![("A", "x"), ("B", "1.50"), ("C", "true")], cwd.to_str())
    );
    assert_eq!(server.timeout, Some(Duration::from_secs(5)));
    assert_eq!(server.description.as_deref(), Some("What it is"));
    assert!(server.vital && server.exclusive && server.eager && server.is_enabled());
    assert_eq!(
        server.lifecycle,
        Lifecycle::KeepAlive { idle_timeout: Some(Duration::from_millis(7)) }
    );
    assert_eq!(server.max_in_flight, Some(1));
    assert_eq!((server.share, server.instances), (Some(Scope::Project), 4));
    assert_eq!(server.containment, Some(Containment::Shim));
    assert!(
        server.tools.permits("get_a")
            && !server.tools.permits("get_secret")
            && !server.tools.permits("put")
    );
    assert_eq!(
        ["put", "get_y", "get_x"].map(|tool| server.retry.for_tool(tool)),
        [Retry::Never, Retry::Always, Retry::Annotated]
    );
}

#[test]
fn transports_by_any_name() {
    for word in ["stdio", "local", "STDIO"] {
        for key in ["type", "transportType", "transport"] {
            let server = server(&format!(r#"{{ "{key}": "{word}", "command": "x" }}"#));
            assert!(!server.transport.is_remote(), "{word}");
        }
    }
    let kinds = [
        ("http", HttpKind::Streamable),
        ("streamable-http", HttpKind::Streamable),
        ("streamableHttp", HttpKind::Streamable),
        ("streamable_http", HttpKind::Streamable),
        ("streamable", HttpKind::Streamable),
        ("remote", HttpKind::Streamable),
        ("sse", HttpKind::Sse),
        ("SSE", HttpKind::Sse),
    ];
    for (word, expect) in kinds {
        for key in ["url", "serverUrl", "httpUrl", "uri"] {
            let server =
                server(&format!(r#"{{ "type": "{word}", "{key}": "http://localhost:1/mcp" }}"#));
            assert!(
                server.transport.remote().is_some_and(|remote| remote.kind == expect),
                "{word}"
            );
        }
    }
    let plain = server(r#"{ "url": "https://example.com" }"#);
    assert_eq!(plain.transport.remote().map(|remote| remote.kind), Some(HttpKind::Either));
    let same = server(
        r#"{ "url": "https://a.example", "serverUrl": "https://a.example", "type": "http", "transport": "http" }"#,
    );
    assert!(same.transport.is_remote());
}

#[test]
fn an_api_and_what_contradicts_it() {
    let api = server(
        r#"{ "openapi": "~/shop.yaml", "baseUrl": "https://api.example/v1", "bearerToken": "t0ken",
             "headers": { "X-A": "b" }, "credentials": { "key": "k1", "basic": "op://vault/item" },
             "include": ["tag:a"], "exclude": ["DELETE"] }"#,
    );
    let endpoint = api.transport.api().unwrap();
    assert_eq!(Path::new(&endpoint.description), Path::new("/home/me").join("shop.yaml"));
    assert!(!endpoint.is_fetched() && api.transport.is_remote());
    assert_eq!(endpoint.base_url(), Some("https://api.example/v1"));
    let headers: Vec<&str> = endpoint.headers().map(|(name, _)| name.as_str()).collect();
    assert_eq!(headers, ["X-A", "Authorization"]);
    let credentials: Vec<(&str, bool)> =
        endpoint.credentials().map(|(name, value)| (name, value.is_reference())).collect();
    assert_eq!(credentials, [("key", false), ("basic", true)]);
    assert_eq!((api.transport.name(), api.transport.secrets().count()), ("openapi", 4));
    assert!(!endpoint.remote.options.login.wanted, "nobody looks for a sign-in unasked");
    let signs_in = server(
        r#"{ "type": "openapi", "openapi": "HTTPS://a.example/openapi.json", "oauth": { "clientId": "c", "tokenUrl": "https://a.example/t" } }"#,
    );
    let endpoint = signs_in.transport.api().unwrap();
    let login = &endpoint.remote.options.login;
    assert!(endpoint.is_fetched() && login.wanted);
    assert_eq!(
        login.endpoints.as_ref().map(|all| all.token_url.as_str()),
        Some("https://a.example/t")
    );
    for (entry, told) in [
        (r#"{ "openapi": "a.yaml", "command": "x" }"#, "contradicts `openapi`"),
        (r#"{ "openapi": "a.yaml", "type": "http" }"#, "contradicts `type`, which is `http`"),
        (r#"{ "openapi": "" }"#, "is empty"),
        (r#"{ "openapi": "https://" }"#, "the address names no host"),
        (
            r#"{ "openapi": "a.yaml", "baseUrl": "api.example" }"#,
            "expected an address with http:// or https://",
        ),
        (r#"{ "openapi": "a.yaml", "include": "x" }"#, "expected a list of strings"),
        (r#"{ "openapi": "a.yaml", "credentials": { "a": 1 } }"#, "expected a string"),
        (
            r#"{ "url": "https://a.example", "oauth": { "authorizationUrl": "https://a.example/o" } }"#,
            "needs `tokenUrl` beside it",
        ),
        (
            r#"{ "url": "https://a.example", "oauth": { "tokenUrl": "http://a.example/t" } }"#,
            "must begin with https://",
        ),
        (r#"{ "type": "openapi" }"#, "is of type `openapi` but has no `openapi`"),
    ] {
        let text = format!(r#"{{ "mcpServers": {{ "s": {entry} }} }}"#);
        let read = parse(&text, &|_| None).unwrap();
        let faults: Vec<String> = read.faults.iter().map(ToString::to_string).collect();
        assert!(faults.iter().any(|fault| fault.contains(told)), "{entry}: {faults:?}");
    }
}

#[test]
fn idle_time_by_lifecycle() {
    let global = Duration::from_mins(5);
    let rule = |body: &str| server(&format!(r#"{{ "command": "x" {body} }}"#)).idle_rule(global);
    assert_eq!(rule(""), IdleRule::After(global));
    assert_eq!(rule(r#", "idleTimeoutMs": 5"#), IdleRule::After(Duration::from_millis(5)));
    assert_eq!(rule(r#", "lifecycle": "keep-alive""#), IdleRule::Never);
    assert_eq!(rule(r#", "lifecycle": "keepAlive""#), IdleRule::Never);
    assert_eq!(
        rule(r#", "lifecycle": "keep-alive", "idleTimeoutMs": 5"#),
        IdleRule::After(Duration::from_millis(5))
    );
    assert_eq!(rule(r#", "lifecycle": { "mode": "ephemeral" }"#), IdleRule::AtOnce);
}

#[test]
fn calls_at_once() {
    let limit = |body: &str| server(&format!(r#"{{ "command": "x" {body} }}"#)).in_flight_limit(64);
    assert_eq!(limit(""), 64);
    assert_eq!(limit(r#", "maxInFlight": 3"#), 3);
    assert_eq!(limit(r#", "exclusive": true"#), 1);
}

#[test]
fn tool_lists_by_any_name() {
    for body in [
        r#""tools": { "allow": ["a*"], "deny": ["ab"] }"#,
        r#""tools": ["a*"], "deniedTools": ["ab"]"#,
        r#""allowedTools": ["a*"], "disabledTools": ["ab"]"#,
        r#""includeTools": ["a*"], "excludeTools": ["ab"]"#,
        r#""enabled_tools": ["a*"], "disabled_tools": ["ab"]"#,
    ] {
        let filter = server(&format!(r#"{{ "command": "x", {body} }}"#)).tools;
        assert_eq!(
            ["aa", "ab", "b"].map(|tool| filter.permits(tool)),
            [true, false, false],
            "{body}"
        );
    }
}

#[test]
fn a_missing_variable_disables_one_server_only() {
    let loaded = load(
        r#"{ "mcpServers": {
            "broken": { "command": "x", "args": ["${NOPE}", "${NOPE}"], "env": { "K": "${input:key}" } },
            "fine": { "command": "x", "args": ["${NOPE:-default}"] },
            "off": { "command": "x", "args": ["${NOPE}"], "disabled": true },
            "remote": { "url": "${NOPE}/mcp" }
        } }"#,
    );
    let states: Vec<&ServerState> =
        loaded.config.servers.iter().map(|server| &server.state).collect();
    let disabled = |reason: &str| ServerState::Disabled { reason: reason.to_owned() };
    assert_eq!(
        states,
        [
            &disabled(
                "environment variable NOPE is not set; ${input:key} can only be resolved by the program it was written for"
            ),
            &ServerState::Enabled,
            &disabled("turned off in the config file"),
            &disabled("environment variable NOPE is not set"),
        ]
    );
    assert_eq!(loaded.warnings.len(), 4);
    assert_snapshot!(loaded.warnings[0], @"2:50: mcpServers.broken.args[0]: environment variable NOPE is not set; the server is disabled");
}

#[test]
fn a_misspelt_rule_is_an_error() {
    for (file, meant) in [
        (r#"{ "mcpServers": { "a": { "command": "x", "tools": { "alow": ["y"] } } } }"#, "allow"),
        (r#"{ "mcpServers": { "a": { "command": "x", "deniedTool": ["y"] } } }"#, "deniedTools"),
        (r#"{ "mcpServers": { "a": { "command": "x", "excludeTool": ["y"] } } }"#, "excludeTools"),
        (
            r#"{ "mcpServers": { "a": { "command": "x", "disabledTool": ["y"] } } }"#,
            "disabledTools",
        ),
        (r#"{ "mcpServers": { "a": { "command": "x", "blockedTool": ["y"] } } }"#, "blockedTools"),
        (r#"{ "mcpServers": { "a": { "command": "x", "includeTool": ["y"] } } }"#, "includeTools"),
        (r#"{ "mcpServers": { "a": { "command": "x", "disabeld": true } } }"#, "disabled"),
        (r#"{ "mcpServers": { "a": { "command": "x", "enabeld": false } } }"#, "enabled"),
        (r#"{ "mcpServers": {}, "toolsets": { "t": { "alow": ["a:y"] } } }"#, "allow"),
        (r#"{ "mcpServers": {}, "toolset": { "t": { "allow": ["a:y"] } } }"#, ""),
    ] {
        let read = parse(file, &|_| None);
        // What it was meant to keep out stays out: the server is not used, the toolset has nothing in it.
        if let Ok(Loaded { config, .. }) = &read {
            assert!(config.servers.iter().all(|server| !server.is_enabled()), "{file}");
            let any = ServerConfig::stdio("a", "x", &[]);
            assert!(config.toolsets.iter().all(|set| !set.has_server(&any)), "{file}");
        }
        let error = read.and_then(Loaded::sound).expect_err(file);
        let told = error.problems[0].hint.clone().unwrap_or_default();
        assert!(told.contains(meant), "{file}: {told}");
    }
    let comment = r#"{ "mcpServers": { "a": { "command": "x", "tools": { "// why": "", "allow": ["y"] } } } }"#;
    assert!(parse(comment, &|_| None).is_ok());
}

#[test]
fn a_key_that_only_shares_words_with_a_rule_is_a_warning() {
    for file in [
        r#"{ "mcpServers": { "a": { "command": "x", "cacheToolsList": true } } }"#,
        r#"{ "mcpServers": { "a": { "command": "x", "default_tools_approval_mode": "auto" } } }"#,
        r#"{ "mcpServers": {}, "tools": {} }"#,
    ] {
        let loaded = parse(file, &|_| None).expect(file);
        assert_eq!(loaded.warnings.len(), 1, "{file}");
    }
}

#[test]
fn the_gateway_does_not_start_itself() {
    for (body, itself) in [
        (r#"{ "command": "metamcp" }"#, true),
        (r#"{ "command": "/opt/bin/metamcp", "args": ["serve", "--max-connections", "3"] }"#, true),
        (r#"{ "command": "C:\\bin\\metamcp.exe", "args": ["--log-level=debug"] }"#, true),
        (r#"{ "command": "metamcp", "args": ["--config", "other.json"] }"#, false),
        (r#"{ "command": "metamcp", "args": ["--config=other.json"] }"#, false),
        (r#"{ "command": "metamcp", "env": { "METAMCP_CONFIG": "other.json" } }"#, false),
        (r#"{ "command": "metamcp", "args": ["demo-server"] }"#, false),
        (r#"{ "command": "metamcp-other" }"#, false),
    ] {
        let loaded = load(&format!(r#"{{ "mcpServers": {{ "metamcp": {body} }} }}"#));
        assert_eq!(loaded.config.servers[0].is_enabled(), !itself, "{body}");
        assert_eq!(loaded.warnings.len(), usize::from(itself), "{body}");
    }
}

#[test]
fn secrets_are_known_and_never_printed() {
    let loaded = load(
        r#"{ "mcpServers": {
            "a": { "command": "x", "args": ["--key=${TOKEN}"], "cwd": "${HOME}", "env": { "PASSWORD": "hunter2!", "ROOT": "/srv/data" } },
            "b": { "url": "https://x.example/?k=${TOKEN}", "headers": { "X-Plain": "Bearer abcdefgh" } }
        } }"#,
    );
    let printed = format!("{loaded:?}");
    assert!(!printed.contains("hunter2!") && !printed.contains("abcdefgh"), "{printed}");
    let names = |at: usize| {
        let secrets = loaded.config.servers[at].secrets();
        secrets.into_iter().map(|secret| secret.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(0), ["PASSWORD", "TOKEN"]);
    assert_eq!(names(1), ["X-Plain", "TOKEN"]);
}

#[test]
fn secrets_in_a_command_line_are_warned_of() {
    let warned = |server: &str| {
        let lookup = |name: &str| match name {
            "API_KEY" => Some("k3y".to_owned()),
            "DATABASE" => Some("postgresql://ada:hunter2@db/notes".to_owned()),
            _ => Some("/home/me".to_owned()),
        };
        let loaded =
            parse(&format!(r#"{{ "mcpServers": {{ "a": {server} }} }}"#), &lookup).unwrap();
        let told = loaded.warnings.iter().map(|warning| {
            let hint = warning.hint.as_deref().unwrap_or_default();
            format!("{}: {} ({hint})", warning.place.path, warning.message)
        });
        told.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(warned(r#"{ "command": "x", "args": ["--key", "${API_KEY}"] }"#));
    insta::assert_snapshot!(warned(r#"{ "command": ["x", "--at=${DATABASE}"] }"#));
    insta::assert_snapshot!(warned(r#"{ "command": "x", "args": ["--key=op://work/x/key"] }"#));
    for fine in [
        r#"{ "command": "x", "args": ["${HOME}", "file:/data/notes.db", "--level=cmd"] }"#,
        r#"{ "command": "x", "env": { "API_KEY": "${API_KEY}", "KEY": "op://work/x/key" } }"#,
        r#"{ "command": "x", "args": ["${API_KEY}", "op://work/x/key"], "disabled": true }"#,
    ] {
        assert_eq!(warned(fine), "", "{fine}");
    }
}

#[test]
fn differences_are_of_meaning() {
    let old = load(
        r#"{ "mcpServers": { "same": { "command": "x", "env": { "A": "1", "B": "2" } }, "gone": { "command": "x" },
             "other": { "command": "x", "env": { "A": "1" } } } }"#,
    );
    let new = load(
        r#"{ "servers": { "other": { "command": "x", "env": { "A": "2" } }, "new": { "command": "x" },
             "same": { "env": { "B": 2, "A": "1" }, /* moved */ "command": ["x"] } } }"#,
    );
    let found = diff(&old.config, &new.config);
    assert_eq!(
        (found.added, found.changed, found.removed),
        (vec!["new".to_owned()], vec!["other".to_owned()], vec!["gone".to_owned()])
    );
    assert!(diff(&new.config, &new.config).is_empty());
}

#[test]
fn byte_order_marks_and_encodings() {
    assert_eq!(load("\u{feff}{ \"mcpServers\": {} }").config.servers, []);
    let told = |bytes: &[u8]| decode(bytes).expect_err("not text").to_string();
    assert_eq!(told(b"\xff\xfe{\0}\0"), "1:1: the file is UTF-16");
    assert_eq!(told(b"{\n\xe4 }"), "1:1: line 2 is not UTF-8");
}

#[test]
fn syntax_errors_show_the_line() {
    let all: Vec<String> = [
        "",
        "  // nothing but a comment",
        "[]",
        "{ \"mcpServers\": {\n    \"a\": { \"command\": \"x\" \"args\": [] }\n} }",
        "{ \"mcpServers\": {\n    \"a\": { \"command\": \"x\"\n} }",
        "{ \"mcpServers\": { \"a\": { \"args\": [\"x\" } } }",
        "{ \"mcpServers\": { \"a\": { \"command\": \"x } } }",
        "{ mcpServers: {} }",
        "{ 'mcpServers': {} }",
        "{ \"mcpServers\" {} }",
        "{ \"mcpServers\": }",
        "{ \"mcpServers\": nope }",
        "{ \"mcpServers\": {} } }",
        "{ \"a\": \"C:\\dir\" }",
        "{ \"a\": 1,, }",
        "{ \"a\": 0x10 }",
        "{ /* open",
        "{ \"env\": { \"API_KEY\": \"hunter2\" \"B\": \"x\" } }",
        "<html></html>",
    ]
    .into_iter()
    .map(|text| format!("----\n{}", told(text)))
    .collect();
    assert_snapshot!("syntax_errors", all.join("\n"));
}

#[test]
fn wrong_values_are_named_with_their_place() {
    let all: Vec<String> = WRONG_SERVERS
        .iter()
        .chain(WRONG_BEYOND_SCHEMA)
        .map(|body| format!("---- {body}\n{}", told_of(body)))
        .collect();
    assert_snapshot!("wrong_values", all.join("\n"));
}

#[test]
fn a_wrong_file_is_an_error_never_an_empty_list() {
    let all: Vec<String> =
        WRONG_FILES.iter().map(|text| format!("---- {text}\n{}", told(text))).collect();
    assert_snapshot!("wrong_files", all.join("\n"));
}

#[test]
fn doubtful_values_are_warned_of() {
    let servers = DOUBTFUL_SERVERS.iter().map(|body| format!("---- {body}\n{}", told_of(body)));
    let files = DOUBTFUL_FILES.iter().map(|text| format!("---- {text}\n{}", told(text)));
    assert_snapshot!("doubtful_values", servers.chain(files).collect::<Vec<_>>().join("\n"));
}

#[test]
fn several_problems_are_told_at_once() {
    let error = parse(
        r#"{ "mcpServers": { "a": { "command": 1 }, "b": {}, "c:d": { "command": "x" } } }"#,
        &lookup,
    )
    .and_then(Loaded::sound)
    .expect_err("three problems");
    assert_eq!(error.problems.len(), 3);
    assert_snapshot!(error, @"1:37: mcpServers.a.command: expected a string or a list of strings, found a number (and 2 more)");
}

#[test]
fn one_bad_entry_disables_that_entry_alone() {
    let good = r#""good": { "command": "x" }"#;
    for bad in WRONG_SERVERS.iter().chain(WRONG_BEYOND_SCHEMA) {
        let text = format!("{{ \"mcpServers\": {{\n\"bad\": {bad},\n{good} }} }}");
        let loaded = load(&text);
        let states: Vec<_> =
            loaded.config.servers.iter().map(|one| (&*one.name, &one.state)).collect();
        let [("bad", ServerState::Invalid { reason }), ("good", ServerState::Enabled)] = states[..]
        else {
            panic!("{text}\n{states:?}")
        };
        assert!(reason.starts_with("line 2, column "), "{reason}");
        assert_eq!(loaded.faults[0].place.line, 2, "{text}");
    }
}

#[test]
fn an_entry_with_a_bad_name_is_shown_under_one_that_can_be() {
    let loaded = load(
        r#"{ "mcpServers": { "a:b": { "command": "x" }, "a_b": { "command": "y" }, "": { "command": "x" },
             "mcp_call": { "command": "x" }, "\u202e": { "command": "x" }, "twice": { "command": "x" },
             "twice": { "command": "y" }, "both": { "command": "x" } },
             "servers": { "both": { "command": "z" }, "fine": { "command": "x" } } }"#,
    );
    let servers: Vec<String> = loaded
        .config
        .servers
        .iter()
        .map(|one| format!("{}: {}", one.name, one.state.against().unwrap_or("enabled")))
        .collect();
    assert_snapshot!(servers.join("\n"));
    for server in &loaded.config.servers {
        assert_eq!(super::names::name_fault(&server.name), None, "{}", server.name);
    }
}

#[test]
fn a_bad_setting_has_its_default_unless_that_would_open_something() {
    let loaded = load(
        r#"{ "mcpServers": { "a": { "command": "x" } },
             "pool": { "poolSize": "7", "cooldownMs": 9, "idleTimeoutMs": 1, "idleTimeoutMs": 2 }, "timeouts": 5, "logLevel": "loud" }"#,
    );
    assert_eq!(loaded.config.settings.pool.size, crate::settings::Settings::default().pool.size);
    assert_eq!(loaded.config.settings.pool.cooldown, Duration::from_millis(9));
    let told: Vec<String> = loaded.faults.iter().map(|fault| fault.place.path.clone()).collect();
    assert_eq!(told, ["pool.poolSize", "pool.idleTimeoutMs", "timeouts", "logLevel"]);
    assert!(loaded.given.iter().all(|given| given.setting.key != Some("pool.idleTimeoutMs")));
    for guard in [
        r#""toolset": 5"#,
        r#""scrub": "no""#,
        r#""replay": "nevr""#,
        r#""containment": 1"#,
        r#""tokenStore": 1"#,
        r#""serve": []"#,
        r#""serve": { "tokenFile": 5 }"#,
        r#""serve": { "jwks": [] }"#,
        r#""serve": { "allowedOrigins": ["a"] }"#,
        r#""provision": { "enabled": "no" }"#,
        r#""provision": { "registries": 1 }"#,
        r#""code": { "profile": "dcker" }"#,
        r#""search": { "learn": "no" }"#,
    ] {
        assert!(parse(&format!("{{ {guard} }}"), &lookup).is_err(), "{guard}");
    }
}

#[test]
fn nothing_is_resolved_of_a_file_that_is_only_looked_at() {
    let text = r#"{ "mcpServers": { "a": { "command": "${HOME}/x", "args": ["${NOPE}", "${TOKEN:-y}"], "cwd": "~/w", "env": { "K": "${TOKEN}" } },
        "b": { "url": "${NOPE}/mcp", "headers": { "A": "${TOKEN}" } } } }"#;
    let read = parse_as_written(text).unwrap();
    assert_eq!((read.faults.len(), read.warnings.len()), (0, 0));
    assert_eq!(
        stdio(&read.config.servers[0]),
        ("${HOME}/x", vec!["${NOPE}", "${TOKEN:-y}"], vec![("K", "${TOKEN}")], Some("~/w"))
    );
    let RemoteEndpoint { url, headers, .. } = read.config.servers[1].transport.remote().unwrap();
    assert_eq!((url.as_str(), headers[0].1.expose()), ("${NOPE}/mcp", "${TOKEN}"));
}

#[test]
fn findings_have_a_limit() {
    let many: String = (0..5_000).map(|at| format!("\"unknown{at}\": 1,")).collect();
    assert_eq!(load(&format!("{{ {many} }}")).warnings.len(), 100);
}

/// The schema refuses what the reader refuses, and takes what the reader takes without a word.
#[test]
fn the_schema_agrees_with_the_reader() {
    let validator = jsonschema::validator_for(&json_schema()).expect("a valid schema");
    let is_valid = |text: &str| {
        let json: Json =
            jsonc_parser::parse_to_serde_value(text, &jsonc_parser::ParseOptions::default())
                .unwrap_or_else(|error| panic!("{text}: {error}"));
        validator.is_valid(&json)
    };
    let in_file = |body: &str| format!(r#"{{ "mcpServers": {{ "s": {body} }} }}"#);
    for body in GOOD_SERVERS {
        assert_eq!(told_of(body), "", "{body}");
        assert!(is_valid(&in_file(body)), "{body}");
    }
    for body in WRONG_SERVERS {
        assert!(!is_valid(&in_file(body)), "{body}");
    }
    for body in WRONG_BEYOND_SCHEMA {
        assert!(is_valid(&in_file(body)), "{body} belongs into the other list");
    }
}

proptest! {
    #[test]
    fn any_bytes_give_a_config_or_an_error(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        fuzz_config(&data);
    }

    #[test]
    fn anything_like_json_gives_a_config_or_an_error(text in r#"([{}\[\],:"$\\/*\n ]|mcpServers|command|\$\{|:-|[a-zé0-9]){0,60}"#) {
        fuzz_config(text.as_bytes());
    }

    /// A well-formed file cut anywhere is still an error with a place inside the text, never a panic.
    #[test]
    fn a_file_cut_short_is_an_error(at in 0usize..3000, flip in any::<u8>()) {
        let whole = include_str!("../../../../examples/variables.jsonc");
        let at = at.min(whole.len() - 1);
        let cut: String = whole.chars().take(at).collect();
        fuzz_config(cut.as_bytes());
        let mut bytes = whole.as_bytes().to_vec();
        bytes[at] = flip;
        fuzz_config(&bytes);
    }
}

#[test]
fn variables_are_opened_by_name_for_one_server_or_for_all() {
    let pass = |body: &str| server(body).pass_env;
    assert_eq!(pass(r#"{ "command": "x" }"#), PassEnv::Usual(Vec::new()));
    let named = pass(r#"{ "command": "x", "passEnv": ["GITHUB_TOKEN", "AWS_*"] }"#);
    assert!(named.names("GITHUB_TOKEN") && named.names("AWS_SECRET") && !named.names("OTHER"));
    assert_eq!(pass(r#"{ "command": "x", "passEnv": "all" }"#), PassEnv::All);
    let told = told_of(r#"{ "command": "x", "passEnv": ["A=b", "${A}", ""] }"#);
    assert_eq!(told.matches("the name of a variable").count(), 3, "{told}");
    let told = told_of(r#"{ "command": "x", "passEnv": 5 }"#);
    assert!(told.contains("a list of names of variables, or `all`"), "{told}");
    let told = told_of(r#"{ "url": "https://x.example", "passEnv": ["A"] }"#);
    assert!(told.contains("no meaning for a remote server"), "{told}");
    for text in [r#"{ "mcpServers": {}, "passEnv": ["A", "B"] }"#, r#"{ "passEnv": "A,B" }"#] {
        assert_eq!(load(text).config.settings.pass_env, "A,B", "{text}");
    }
}
