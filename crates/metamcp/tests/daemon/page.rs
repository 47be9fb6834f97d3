//! The page byte by byte: who is let in, and who is not. What it shows is judged in a real browser, in `tests/real/page.rs`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use metamcp_testkit::{EventKind, Workspace, chaos_server};
use serde_json::{Value, json};

/// How long an answer may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Page {
    workspace: Workspace,
}

/// A link, in parts.
struct Link {
    port: u16,
    token: String,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Page {
    fn new() -> Page {
        let mut workspace = Workspace::new().unwrap();
        workspace.with_daemon();
        workspace.write_config().unwrap();
        Page { workspace }
    }

    fn link(&self) -> Link {
        self.link_by(Stdio::null())
    }

    /// The same, asked for at a terminal.
    fn link_by_a_person(&self) -> Link {
        let terminal = nix::pty::openpty(None, None).unwrap();
        self.link_by(Stdio::from(terminal.slave))
    }

    fn link_by(&self, input: Stdio) -> Link {
        let mut command = self.workspace.command_as_it_is(Path::new(env!("CARGO_BIN_EXE_metamcp")));
        let output = command.args(["ui", "--no-open", "--json"]).stdin(input).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rest = told["url"].as_str().unwrap().strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = rest.split_once("/enter#").unwrap();
        assert_eq!(token.len(), 43, "256 bits");
        Link { port: port.parse().unwrap(), token: token.to_owned() }
    }
}

fn send(port: u16, request: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    // Names of headers in small letters, as hyper writes them; values as they are.
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

fn get(port: u16, path: &str, more: &str) -> Answer {
    send(
        port,
        &format!(
            "GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n{more}\r\n"
        ),
    )
}

/// A POST with these headers besides those that any has.
fn post_with(port: u16, path: &str, host: &str, more: &str, body: &str) -> Answer {
    let length = body.len();
    send(
        port,
        &format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n{body}"
        ),
    )
}

fn post(port: u16, path: &str, more: &str, body: &str) -> Answer {
    let usual = format!("origin: http://127.0.0.1:{port}\r\ncontent-type: application/json\r\n");
    post_with(port, path, &format!("127.0.0.1:{port}"), &(usual + more), body)
}

/// The two halves that a link is exchanged for: the cookie's pair, and the key.
fn entered(link: &Link) -> (String, String) {
    let answer = post(link.port, "/enter", "", &format!("{{\"token\":\"{}\"}}", link.token));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    let head = answer.head;
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let pair = cookie.split(';').next().unwrap().to_owned();
    (pair, body["key"].as_str().unwrap().to_owned())
}

#[test]
fn a_link_lets_in_once_and_a_request_needs_both_halves() {
    let page = Page::new();
    let link = page.link();
    let port = link.port;
    // Without a cookie there is nothing but the way in.
    for path in ["/", "/assets/app.js", "/assets/nothing", "/api/overview", "/x"] {
        let answer = get(port, path, "");
        assert!(matches!(answer.status, 401 | 404 | 405), "{path}: {}", answer.status);
        assert!(
            answer.status == 405 || answer.body.contains("metamcp ui"),
            "{path}: {}",
            answer.body
        );
        for header in [
            "content-security-policy: default-src 'none';",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "cross-origin-opener-policy: same-origin",
            "cross-origin-resource-policy: same-origin",
            "x-frame-options: DENY",
        ] {
            assert!(answer.head.contains(header), "{path} lacks {header}: {}", answer.head);
        }
    }
    assert_eq!(post(port, "/api/overview", "", "{}").status, 401);
    assert_eq!(post(port, "/enter", "", "{\"token\":\"guess\"}").status, 403);
    assert_eq!(post(port, "/enter", "", "not json").status, 403);

    let (cookie, key) = entered(&link);
    assert_eq!(post(port, "/enter", "", &format!("{{\"token\":\"{}\"}}", link.token)).status, 403);
    let other = page.link();
    assert_eq!(other.port, port, "one port for all links");
    let (other_cookie, other_key) = entered(&other);
    let with = |cookie: &str, key: &str| {
        post(port, "/api/overview", &format!("cookie: {cookie}\r\nx-metamcp-key: {key}\r\n"), "{}")
            .status
    };
    assert_eq!((with(&cookie, &key), with(&other_cookie, &other_key)), (200, 200));
    assert_eq!((with(&cookie, &other_key), with(&cookie, ""), with("a=b", &key)), (401, 401, 401));
    let page_itself = get(port, "/", &format!("cookie: {cookie}\r\n"));
    assert!(page_itself.status == 200 && !page_itself.body.contains(&key));
    // A cookie that another port was sent shows the empty page and no data.
    assert_eq!(post(port, "/api/head", &format!("cookie: {cookie}\r\n"), "{}").status, 401);
    let left = post(port, "/leave", &format!("cookie: {cookie}\r\nx-metamcp-key: {key}\r\n"), "{}");
    assert_eq!(
        (left.status, with(&cookie, &key), with(&other_cookie, &other_key)),
        (200, 401, 200)
    );
}

#[test]
fn other_origins_hosts_and_forms_are_turned_away() {
    let page = Page::new();
    let link = page.link();
    let port = link.port;
    let (cookie, key) = entered(&link);
    let halves = format!("cookie: {cookie}\r\nx-metamcp-key: {key}\r\n");
    let ours = format!("127.0.0.1:{port}");
    let own = format!("origin: http://{ours}\r\n");
    let json = "content-type: application/json\r\n";
    let api = |host: &str, more: &str| {
        post_with(port, "/api/overview", host, &format!("{halves}{more}"), "{}").status
    };
    assert_eq!(api(&ours, &format!("{own}{json}")), 200);
    for (host, more, status) in [
        ("evil.example", format!("{own}{json}"), 421),
        ("localhost", format!("{own}{json}"), 421),
        (&*ours, json.to_owned(), 403),
        (&*ours, format!("origin: https://evil.example\r\n{json}"), 403),
        (&*ours, format!("origin: null\r\n{json}"), 403),
        (&*ours, format!("origin: http://localhost:{port}\r\n{json}"), 403),
        (&*ours, format!("{own}sec-fetch-site: same-site\r\n{json}"), 403),
        (&*ours, format!("{own}sec-fetch-site: cross-site\r\n{json}"), 403),
        (&*ours, format!("{own}{own}{json}"), 403),
        (&*ours, format!("{own}content-type: text/plain\r\n"), 415),
        (&*ours, format!("{own}content-type: application/x-www-form-urlencoded\r\n"), 415),
        (&*ours, own.clone(), 415),
    ] {
        assert_eq!(api(host, &more), status, "{host} {more}");
    }
    let rebound = send(
        port,
        &format!(
            "GET / HTTP/1.1\r\nhost: evil.example:{port}\r\nconnection: close\r\n{halves}\r\n"
        ),
    );
    assert_eq!(rebound.status, 421, "{}", rebound.body);
    let absolute = send(
        port,
        &format!(
            "GET http://{ours}/ HTTP/1.1\r\nhost: {ours}\r\nconnection: close\r\n{halves}\r\n"
        ),
    );
    assert_eq!(absolute.status, 421, "{}", absolute.body);
    let script = get(
        port,
        "/assets/app.js",
        &format!("{halves}sec-fetch-site: cross-site\r\nsec-fetch-mode: no-cors\r\n"),
    );
    assert_eq!(script.status, 403);
    let preflight = send(
        port,
        &format!(
            "OPTIONS /api/overview HTTP/1.1\r\nhost: {ours}\r\norigin: https://evil.example\r\naccess-control-request-method: POST\r\nconnection: close\r\n\r\n"
        ),
    );
    assert!(
        preflight.status == 405 && !preflight.head.contains("access-control"),
        "{}",
        preflight.head
    );
    assert_eq!(get(port, "/api/overview", &halves).status, 405);
    let unknown = post(port, "/api/nothing", &halves, "{}");
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    // Only the local socket gives links.
    assert_eq!(post(port, "/api/page.open", &halves, "{\"person\":true}").status, 404);
    assert_eq!(post(port, "/api/call", &halves, "{\"id\":\"x\"}").status, 400);
    assert_eq!(post(port, "/api/call", &halves, "{").status, 400);
}

#[test]
fn wrong_links_are_refused_ever_more_briefly_and_keep_nobody_out() {
    let page = Page::new();
    let link = page.link();
    let status = |_| post(link.port, "/enter", "", "{\"token\":\"guess\"}").status;
    let all: Vec<u16> = (0..25).map(status).collect();
    assert!(all[..20].iter().all(|status| *status == 403), "{all:?}");
    assert!(all[20..].iter().all(|status| *status == 429), "{all:?}");
    entered(&link);
}

#[test]
fn a_configuration_without_a_daemon_has_no_page() {
    let page = Page::new();
    let mut command = page.workspace.command_as_it_is(Path::new(env!("CARGO_BIN_EXE_metamcp")));
    let output = command.args(["ui", "--json"]).env("METAMCP_DAEMON", "off").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("daemon.mode: off"), "{said}");
}

#[test]
fn a_call_from_the_page_waits_for_a_person_as_any_other() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace.server("a", chaos_server(&[]).setting("approve", json!("destructive")));
    workspace.write_config().unwrap();
    let page = Page { workspace };
    let enter = |link: Link| {
        let (cookie, key) = entered(&link);
        let halves = format!("cookie: {cookie}\r\nx-metamcp-key: {key}\r\n");
        move |name: &str, body: &Value| {
            let answer = post(link.port, &format!("/api/{name}"), &halves, &body.to_string());
            (answer.status, serde_json::from_str::<Value>(&answer.body).unwrap_or_default())
        }
    };
    let (program, person) = (enter(page.link()), enter(page.link_by_a_person()));
    let run = |key: &str| json!({ "tool": "a:effect", "args": { "key": key } });
    let executed = || {
        let journal = page.workspace.journal("a");
        journal.of(EventKind::Execute).unwrap_or_default().len()
    };
    let refused = person("run", &run("one")).1.to_string();
    assert!(refused.contains("approval_required"), "{refused}");
    let waiting = |of: &dyn Fn(&str, &Value) -> (u16, Value)| of("approvals", &json!({})).1;
    let shown = waiting(&person);
    let call = shown.pointer("/calls/0").or_else(|| shown.pointer("/ok/calls/0")).unwrap();
    assert!(call["told"].as_str().unwrap().contains("\"key\": \"one\""), "{call:#}");
    let answer = json!({ "id": call["id"], "approve": true, "for": "once" });
    // What a program opened approves nothing.
    let (status, said) = program("answer_call", &answer);
    assert!(status != 200 && said.to_string().contains("cannot approve"), "{status} {said}");
    assert!(person("run", &run("one")).1.to_string().contains("approval_required"));
    assert_eq!(executed(), 0);
    assert_eq!(person("answer_call", &answer).0, 200);
    let ran = person("run", &run("one")).1.to_string();
    assert!(!ran.contains("approval_required"), "{ran}");
    assert!(person("run", &run("one")).1.to_string().contains("approval_required"));
    assert_eq!(executed(), 1);
    // For longer, and taken back; what is unknown is refused.
    let rule = json!({ "id": call["id"], "approve": true, "for": "always", "anyArguments": true });
    assert_eq!(person("answer_call", &rule).0, 200);
    person("run", &run("two"));
    assert_eq!(executed(), 2);
    let granted = waiting(&program);
    let granted = granted.pointer("/granted/0").or_else(|| granted.pointer("/ok/granted/0"));
    let granted = granted.unwrap().clone();
    assert_eq!(granted["anyArguments"], true);
    assert_eq!(program("revoke", &json!({ "id": granted["id"] })).0, 200);
    assert!(person("run", &run("three")).1.to_string().contains("approval_required"));
    assert_ne!(person("answer_call", &json!({ "id": "0123456789ab", "approve": true })).0, 200);
    assert_eq!(executed(), 2);
}
