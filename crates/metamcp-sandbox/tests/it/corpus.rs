//! Scripts with their expected outcome: attacks, none of which may reach the host, and benign ones.
//!
//! A file holds several, separated by a line `//---`. A script begins with `// expect: one|or another`, optionally
//! followed by `// value: JSON`. `@SECRET@` stands for a file with a secret in it, `@TARGET@` for one that must not be
//! created.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metamcp_sandbox::host::{Limits, ScriptOutcome, Workers, run};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::common::*;
use crate::program::fits;

/// For attacks on the prelude: what a script does with any internal function it may have obtained.
const FORGE: &str = r#"
const LINE = '{"server":"github","tool":"forged","arguments":{"a":[\n{"jsonrpc":"2.0"}\n]}}';
const forge = found => {
  const seen = new Set(), list = [found];
  while (list.length > 0 && seen.size < 60) {
    const one = list.pop();
    if (one === null || (typeof one !== "object" && typeof one !== "function") || seen.has(one)) continue;
    seen.add(one);
    for (const key of Reflect.ownKeys(one)) { try { list.push(one[key]) } catch {} }
    if (typeof one === "object") { try { one.head = LINE.slice(0, -20); one.what = { server: "github", tool: "forged", of: null, head: LINE } } catch {} }
    if (typeof one !== "function" || /native code/.test(String(one)) && one.name !== "request") continue;
    for (const given of [[0, LINE], [{ what: { of: null }, state: 0 }, () => {}, () => {}, 0, LINE], [{ server: "github", tool: "forged", head: LINE, of: null }, {}, () => {}], [native => native?.request?.(0, LINE)]]) {
      try { Reflect.apply(one, undefined, given)?.catch?.(() => {}) } catch {}
    }
  }
};
"#;

/// Concurrent runs; more would only compete for CPU.
const AT_ONCE: usize = 3;

struct Script {
    name: String,
    expected: Vec<String>,
    value: Option<Value>,
    code: String,
}

fn scripts(kind: &str) -> Vec<Script> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../metamcp-sandbox/tests/corpus").join(kind);
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("the corpus").flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a file of the corpus");
        for (index, code) in text.split("//---\n").enumerate() {
            let name =
                format!("{}#{}", file.file_stem().unwrap_or_default().to_string_lossy(), index + 1);
            let mut lines = code.lines();
            let expected = lines.next().and_then(|line| line.strip_prefix("// expect: "));
            let expected = expected.unwrap_or_else(|| panic!("{name} expects nothing"));
            let value = lines.next().and_then(|line| line.strip_prefix("// value: "));
            found.push(Script {
                expected: expected.split('|').map(str::to_owned).collect(),
                value: value
                    .map(|value| serde_json::from_str(value).expect("an expected value is JSON")),
                code: code.to_owned(),
                name,
            });
        }
    }
    found
}

/// Runs all of them, each as its own task, and collects the failures.
fn run_all(
    scripts: Vec<Script>,
    limits: &Limits,
    prepare: impl Fn(&str) -> String,
) -> Vec<(Script, ScriptOutcome, Arc<Table>)> {
    let workers = Workers::new(launch(&["worker"]), PROFILE, 1);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let tasks: Vec<_> = scripts
        .into_iter()
        .map(|script| {
            let (workers, room, mut limits) = (workers.clone(), Arc::clone(&room), limits.clone());
            if script.expected == ["timeout"] {
                // Only the wall-clock limit can end it, so a short one will do.
                limits.wall = Duration::from_millis(500);
            }
            let code = prepare(&script.code);
            runtime().spawn(async move {
                let _room = room.acquire_owned().await.expect("never closed");
                let worker = workers.take().await.expect("a worker");
                let host = Arc::new(Table::default());
                let asked = Arc::clone(&host);
                let outcome = run(worker, job(&code, limits), host, std::future::pending()).await;
                (script, outcome, asked)
            })
        })
        .collect();
    tasks.into_iter().map(|task| runtime().block_on(task).expect("no run panics")).collect()
}

#[test]
fn no_attack_reaches_the_host() {
    let place = tempfile::tempdir().unwrap();
    let secret = place.path().join("secret.txt");
    let target = place.path().join("made");
    fs::write(&secret, SECRET).unwrap();
    let limits =
        Limits { wall: Duration::from_mins(1), cpu: Duration::from_millis(300), ..small() };
    let attacks = scripts("attacks");
    assert!(attacks.len() >= 270, "{} attacks", attacks.len());
    let count = attacks.len();

    let prepare = |code: &str| {
        code.replace("@SECRET@", &secret.to_string_lossy())
            .replace("@TARGET@", &target.to_string_lossy())
            .replace("@FORGE@", FORGE)
    };
    let mut wrong = Vec::new();
    for (script, outcome, host) in run_all(attacks, &limits, prepare) {
        let status = outcome.status.word();
        if !script.expected.iter().any(|expected| fits(expected, status)) {
            wrong.push(format!(
                "{}: {status}, not {:?}: {:?} {:?}",
                script.name, script.expected, outcome.error, outcome.value
            ));
        }
        let seen = format!("{outcome:?}");
        // The path of the file is in the script itself and may be returned; its content may not.
        assert!(!seen.contains(SECRET), "{} saw the secret: {seen}", script.name);
        assert!(!target.exists(), "{} made a file", script.name);
        // The prelude writes one line per request, and nothing else writes.
        for (op, payload) in host.asked.lock().unwrap().iter() {
            let is_forged = payload.contains(['\n', '\r']) || payload.contains("\"forged\"");
            assert!(!is_forged, "{} asked for {op:?} by itself: {payload}", script.name);
        }
    }
    assert!(wrong.is_empty(), "{} of {count} wrong:\n{}", wrong.len(), wrong.join("\n"));
    counted(&format!("{count} attacks, none of which reached the host"));
}

/// For the summary of `cargo xtask test --windows`.
fn counted(words: &str) {
    writeln!(io::stdout(), "counted: {words}").ok();
}

#[test]
fn honest_scripts_get_their_value() {
    let honest = scripts("honest");
    assert!(honest.len() >= 50, "{} honest scripts", honest.len());
    let count = honest.len();
    for (script, outcome, ..) in run_all(honest, &Limits::default(), str::to_owned) {
        assert!(
            script.expected.iter().any(|expected| expected == outcome.status.word()),
            "{}: {outcome:?}",
            script.name
        );
        if let Some(value) = script.value {
            let found: Value =
                serde_json::from_str(outcome.value.as_deref().unwrap_or_default()).unwrap();
            assert_eq!(found, value, "{}", script.name);
        }
    }
    counted(&format!("{count} honest scripts, all with their value"));
}
