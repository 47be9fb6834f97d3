//! The page in a real Chromium: every view and action, what a hostile server says, 20,000 tools, accessibility by axe.
//! Pictures of what it saw are in `target/page-screenshots`.

mod actions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use metamcp_engine::catalog::schema_cache::{SchemaCache, Server as CachedServer};
use metamcp_engine::clock::unix_millis;
use metamcp_testkit::client::Client;
use metamcp_testkit::{Server, Workspace, echo_server};
use serde_json::{Value, json};

use crate::installed::{Installed, sources, text};

const SCRIPT: &str = "const { factors } = await numbers.factorize({ number: 1001 });\n\
    console.log(`factors of 1001: ${factors}`);\nreturn factors;\n";

/// How long an answer may take that downloads a package first.
const HUNG: Duration = Duration::from_mins(3);

fn metamcp() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_metamcp"))
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("page-screenshots")
}

fn example(name: &str) -> Server {
    Server::new(metamcp(), &["__example", name])
}

fn python(installed: &Installed, script: &str) -> Server {
    let script = sources().join("page").join(script);
    Server::new(installed.python("python"), &[&text(&script)])
}

/// A browser on the page of a workspace.
struct Page {
    workspace: Workspace,
    installed: Installed,
    /// Whether the project's file is found in the folder instead of being named.
    is_discovered: bool,
    /// Variables of every command, and so of the daemon.
    variables: Vec<(String, String)>,
}

impl Page {
    fn new(workspace: Workspace) -> Page {
        let (installed, variables) = (Installed::find(), Vec::new());
        Page { workspace, installed, is_discovered: false, variables }
    }

    fn command(&self, line: &[&str]) -> Command {
        let mut command = self.workspace.command_as_it_is(metamcp());
        if self.is_discovered {
            command.env_remove("METAMCP_CONFIG");
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(line).stdin(Stdio::null());
        command
    }

    /// A model asks for a server, which then waits for a person.
    fn asks_for(&self, intent: &str) -> Value {
        let mut command = self.command(&[]);
        command.stdin(Stdio::piped());
        let client = Client::start(command).unwrap();
        client.initialize(&json!({}), HUNG).unwrap();
        let wish = json!({ "intent": intent, "autoProvision": true });
        let call = client.call_tool("mcp_provision", &wish).unwrap();
        let answer = client.wait(call, HUNG).unwrap();
        let result = answer.result().unwrap_or_else(|| panic!("{answer:?}")).clone();
        let waits = result["_meta"]["metamcp/provision"].clone();
        assert_eq!(waits["status"], "needs_approval", "{result:#}");
        waits
    }

    fn told(&self, line: &[&str]) -> String {
        let output = self.command(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The link that opens the page; `by_a_person` asks for it at a terminal.
    fn link(&self, by_a_person: bool) -> String {
        let mut command = self.command(&["ui", "--no-open", "--json"]);
        let terminal = nix::pty::openpty(None, None).unwrap();
        if by_a_person {
            command.stdin(Stdio::from(terminal.slave));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        told["url"].as_str().unwrap().to_owned()
    }

    /// Plays a scenario, and checks what holds for each: nothing ran that is not ours, and everybody can use it.
    fn play(&self, scenario: &str, by_a_person: bool, more: &Value) -> Value {
        self.play_with_tabs(scenario, by_a_person, more, 0)
    }

    /// The same for a scenario that opens so many other tabs.
    fn play_with_tabs(
        &self,
        scenario: &str,
        by_a_person: bool,
        more: &Value,
        tabs: usize,
    ) -> Value {
        let command = self.command(&[]);
        let variables = command.get_envs();
        let env: serde_json::Map<String, Value> = variables
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.into())))
            .collect();
        let mut plan = json!({
            "scenario": scenario,
            "url": self.link(by_a_person),
            "person": by_a_person,
            "installed": self.installed.page(),
            "pictures": pictures(),
            "metamcp": [metamcp()],
            "folder": self.workspace.project(),
            "config": self.workspace.project().join(".mcp.json"),
            "env": env,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            plan[name] = value.clone();
        }
        let file = self.workspace.file("plan.json");
        fs::write(&file, plan.to_string()).unwrap();
        let script = sources().join("page/look.mjs");
        let output = Command::new(self.installed.node()).arg(script).arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no report: {said}"));
        assert_eq!(report["failure"], Value::Null, "{}", report["failure"].as_str().unwrap_or(""));
        for nothing in ["violations", "dialogs", "errors", "strangers"] {
            assert_eq!(report[nothing], json!([]), "{nothing} in {scenario}");
        }
        assert_eq!(report["opened"], tabs, "{scenario}");
        for (view, found) in report["axe"].as_object().unwrap() {
            assert_eq!(*found, json!([]), "axe on {view}: {found:#}");
        }
        for (view, nodes) in report["nodes"].as_object().unwrap() {
            assert!(nodes.as_u64().unwrap() < 9_000, "{view} has {nodes} elements");
        }
        report
    }
}

fn steps(report: &Value) -> Vec<&str> {
    report["steps"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[test]
fn an_empty_gateway_says_on_each_page_what_to_do() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace.write_config().unwrap();
    let page = Page::new(workspace);
    let report = page.play("empty", true, &Value::Null);
    assert_eq!(steps(&report).len(), 10, "{report:#}");
    page.play("ended", false, &Value::Null);
}

#[test]
fn everything_can_be_seen_and_done() {
    let installed = Installed::find();
    let mut workspace = Workspace::new().unwrap();
    for name in ["numbers", "clock", "text"] {
        workspace.server(name, example(name));
    }
    let github = example("clock").variable("GITHUB_TOKEN", "${PAGE_TOKEN_NOT_SET}");
    workspace
        .server("github", github)
        .server("talker", python(&installed, "talker.py"))
        .server("broken", Server::new("/nonexistent/program", &[]));
    workspace.with_daemon();
    workspace.write_config().unwrap();
    let page = Page::new(workspace);
    for number in ["91", "360360", "7919"] {
        page.told(&["call", "numbers:factorize", &format!("number={number}")]);
    }
    page.told(&["call", "text:count_words", "text=the quick brown fox"]);
    page.told(&["call", "talker:say", "words=at first"]);
    for failing in [["numbers:evaluate", "expression=1/"], ["broken:x", "a=1"]] {
        let output = page.command(&["call", failing[0], failing[1]]).output().unwrap();
        assert!(!output.status.success());
    }
    let script = page.workspace.file("report.ts");
    fs::write(&script, SCRIPT).unwrap();
    page.told(&["run", &text(&script)]);
    let report = page.play("full", true, &Value::Null);
    // Which servers failed or are still starting depends on when one asks.
    let hits = |text: &str| {
        let told = text
            .lines()
            .take_while(|line| !["pending:", "failed:"].iter().any(|word| line.starts_with(word)));
        told.collect::<Vec<_>>().join("\n")
    };
    let client = Client::start({
        let mut command = page.command(&[]);
        command.stdin(Stdio::piped());
        command
    });
    let client = client.unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    let query = json!({ "query": "work out the average" });
    let call = client.call_tool("mcp_discover", &query).unwrap();
    let answer = client.wait(call, HUNG).unwrap();
    let model = answer.result().unwrap()["content"][0]["text"].as_str().unwrap();
    assert_eq!(hits(report["search"].as_str().unwrap()), hits(model), "what a model is told");
    assert_eq!(report["json"].as_str().unwrap().replace([' ', '\n'], ""), r#"{"values":[2,4,9]}"#);
    let pids = &report["pids"];
    assert!(pids[0] != pids[1], "a restart is another process: {pids}");
    assert_eq!((&report["disabled"], &report["enabled"]), (&json!(true), &json!(false)));
    assert_eq!((&report["first"], &report["skipped"]), (&json!("Skip to content"), &json!("main")));
    assert_eq!((&report["focused"], &report["current"]), (&json!("H1 Servers"), &json!("Servers")));
    assert_eq!((&report["theme"], &report["kept"]), (&json!("dark"), &json!("dark")));
    assert_eq!(report["whilePaused"], 0, "nobody asks while it is paused");
    assert_eq!(report["opened"], 0);
}

#[test]
fn what_a_hostile_server_says_is_text_and_nothing_else() {
    let installed = Installed::find();
    let mut workspace = Workspace::new().unwrap();
    workspace.server("hostile", python(&installed, "hostile.py"));
    workspace.with_daemon();
    workspace.write_config().unwrap();
    let page = Page::new(workspace);
    let corpus = Command::new(installed.python("python"))
        .args(["-B", "-c", "import corpus, json; print(json.dumps(corpus.CORPUS))"])
        .current_dir(sources().join("page"))
        .output()
        .unwrap();
    let corpus: Vec<String> = serde_json::from_slice(&corpus.stdout).unwrap();
    assert!(corpus.len() >= 100, "{}", corpus.len());
    page.command(&["call", "hostile:tool1", "say=x"]).output().unwrap();
    let report = page.play("hostile", true, &json!({ "corpus": corpus }));
    assert_eq!(report["markup"], 0, "no element comes from a text");
    assert_eq!((&report["opened"], &report["title"]), (&json!(0), &json!("Servers · metamcp")));
    let rows: Vec<&str> =
        report["rows"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for number in [0, 16, 28, 40, 60, 80] {
        let words = &corpus[number];
        assert!(rows.iter().any(|row| row.contains(&**words)), "{words} is shown as it is");
    }
    let shown = report["shown"].as_str().unwrap();
    assert!(shown.contains(&corpus[0]) && shown.contains(&corpus[16]), "{shown:.500}");
    assert!(shown.contains("U+202E") && shown.contains("U+200B"), "what turns text is spelt out");
    assert!(!shown.contains('\u{202e}') && !shown.contains('\u{1b}'));
}

#[test]
fn two_hundred_servers_and_twenty_thousand_tools_stay_bounded() {
    let mut workspace = Workspace::new().unwrap();
    let crowd = || echo_server().argument("--tools").argument("100");
    workspace.server("crowd-0", crowd());
    workspace.write_config().unwrap();
    workspace.with_daemon();
    let mut page = Page::new(workspace);
    let list = page.command(&["tools", "--json"]).env("METAMCP_DAEMON", "off").output().unwrap();
    assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
    // The others list the same; lists are remembered on disk, so that no process has to run for the page.
    let cache = SchemaCache::new(&page.workspace.home().join(".metamcp"));
    let one = cache.read("crowd-0", unix_millis()).unwrap().found().unwrap();
    let file = page.workspace.home().join(".metamcp/cache/crowd-0/schema.json");
    let file = fs::read_to_string(file).unwrap();
    let header: Value = serde_json::from_str(file.lines().next().unwrap()).unwrap();
    let made_by = header["madeBy"].as_str();
    for number in 1..200 {
        let name = format!("crowd-{number}");
        page.workspace.server(&name, crowd());
        let whose = CachedServer { name: &name, made_by };
        cache.write_if_changed(whose, &one.tools, None, unix_millis()).unwrap();
    }
    page.workspace.setting("code", json!({ "maxCalls": 100_000, "timeoutMs": 60_000 }));
    page.workspace.write_config().unwrap();
    let flood = page.workspace.file("flood.ts");
    let script = "const all = Array.from({ length: 3000 }, (_, at) => String(at));\n\
        await parallel(all, (text) => servers[\"crowd-0\"].call(\"echo\", { text }), 16);\nreturn all.length;";
    fs::write(&flood, script).unwrap();
    let report = page.play("crowd", false, &json!({ "flood": flood }));
    let asked = report["requestsPerSecond"].as_f64().unwrap();
    assert!(asked < 6.0, "{asked} requests a second");
}

/// A home with a configuration of its own, a project file that nobody approved, and a plan that a model asked for.
fn with_something_waiting(audit: &Value) -> (Page, Value) {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("numbers", example("numbers")).with_daemon();
    workspace.write_config().unwrap();
    let home = workspace.home().join(".metamcp");
    fs::create_dir_all(&home).unwrap();
    let own = json!({ "mcpServers": {}, "audit": audit });
    fs::write(home.join("mcp.json"), own.to_string()).unwrap();
    let variables = [("METAMCP_REGISTRIES", "none"), ("UV_SYSTEM_CERTS", "1")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let page = Page { is_discovered: true, variables, ..Page::new(workspace) };
    let waits = page.asks_for("remember facts in a knowledge graph");
    let project: Value = serde_json::from_str(&page.told(&["trust", "--json"])).unwrap();
    let more = json!({ "waits": waits, "project": project["file"], "sha256": project["sha256"] });
    (page, more)
}

#[test]
fn a_person_approves_on_the_page_what_was_shown() {
    let (page, more) = with_something_waiting(&json!({ "enabled": true }));
    let report = page.play("approve", true, &more);
    assert_eq!(steps(&report), ["trusted", "installed"]);
    let project: Value = serde_json::from_str(&page.told(&["trust", "--json"])).unwrap();
    assert_eq!(project["standing"], "trusted");
    assert!(page.told(&["provisioned", "list"]).contains("server-memory"));
    assert!(page.told(&["approve"]).contains("No plan is pending"));
    for (kind, verdict) in
        [("trust", "approved"), ("approval", "approved"), ("installation", "installed")]
    {
        let lines = actions::audited(&page, kind);
        assert_eq!(actions::verdicts(&lines), [verdict], "{lines:#?}");
    }
}

#[test]
fn a_page_that_a_program_opened_only_declines() {
    let (page, more) = with_something_waiting(&json!({ "enabled": true }));
    let report = page.play("approve", false, &more);
    assert_eq!(steps(&report), ["declined"]);
    assert_eq!(report["canApprove"], false);
    let forced: Vec<&str> =
        report["forced"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(forced.len(), 3);
    for answer in forced {
        assert!(answer.starts_with("409") && answer.contains("cannot approve"), "{answer}");
    }
    let project: Value = serde_json::from_str(&page.told(&["trust", "--json"])).unwrap();
    assert_eq!(project["standing"], "declined");
    assert!(page.told(&["approve"]).contains("No plan is pending"));
    assert!(!page.told(&["provisioned", "list"]).contains("server-memory"));
    for kind in ["trust", "approval"] {
        assert_eq!(actions::verdicts(&actions::audited(&page, kind)), ["declined"], "{kind}");
    }
}
