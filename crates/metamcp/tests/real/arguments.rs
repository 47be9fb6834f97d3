//! Secrets that a package accepts only as arguments: the server gets them, and no command line shows them.
//!
//! A gateway starts each kind of program twice: with the secret as a secret, and with a plain value in its place. The
//! program must see the same in both cases.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use metamcp_engine::provision::Record;
use metamcp_provisioning::provision::{Argument, Facts, Input, Kind, Plan, Verdict, builtin};
use serde_json::{Value, json};

use crate::provision::{HUNG, Place, yes};

const SECRET: &str = "wheel://ada:hunter2@wheels.example.com/\"ü\"";
/// The same in every respect, except that it is not a secret.
const OPEN: &str = "plain word";

/// Speaks MCP over lines; its one tool returns what the program sees of itself.
const NODE: &str = r#"
const { execFileSync, fork } = child;
if (process.argv[2] === 'forked') {
  process.send({ options: process.execArgv, words: process.argv.slice(2), variable: process.env.METAMCP_ARGUMENTS ?? null });
  process.disconnect();
} else {
  readline.createInterface({ input: process.stdin }).on('line', async line => {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) return;
    const say = part => console.log(JSON.stringify({ jsonrpc: '2.0', id, ...part }));
    if (method === 'initialize')
      return say({ result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'wheel', version: '1' } } });
    if (method === 'tools/list')
      return say({ result: { tools: [{ name: 'seen', inputSchema: { type: 'object' } }] } });
    if (method !== 'tools/call') return say({ error: { code: -32601, message: 'no' } });
    const forked = await new Promise(done => fork(file, ['forked']).on('message', done));
    const thread = await new Promise((done, failed) =>
      new Worker('require("worker_threads").parentPort.postMessage(process.argv.length)', { eval: true })
        .on('message', done).on('error', failed));
    const words = process.argv.slice(1);
    const has = params.arguments.expected === words[2];
    words[2] = 'the value';
    const inherited = execFileSync('/usr/bin/env', { encoding: 'utf8' }).includes('METAMCP_ARGUMENTS');
    const seen = { has, words, main, file, options: process.execArgv, forked, thread, inherited, variable: process.env.METAMCP_ARGUMENTS ?? null };
    say({ result: { content: [{ type: 'text', text: JSON.stringify(seen) }] } });
  });
}
"#;

const COMMON: &str = "const child = require('child_process'), readline = require('readline'), { Worker } = require('worker_threads');
const main = require.main === module, file = __filename;";

const MODULE: &str = "import child from 'node:child_process'; import readline from 'node:readline';
import { Worker } from 'node:worker_threads'; import { pathToFileURL, fileURLToPath } from 'node:url';
await Promise.resolve();
const main = import.meta.url === pathToFileURL(process.argv[1]).href, file = fileURLToPath(import.meta.url);";

/// The script that pip and uv generate for an entry point.
const SCRIPT: &str = "import sys
from wheel import main
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(main())
";

const PYTHON: &str = r#"
import json, os, subprocess, sys

def main():
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        def say(**part):
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **part}), flush=True)
        if asked["method"] == "initialize":
            version = asked["params"]["protocolVersion"]
            say(result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "wheel", "version": "1"}})
        elif asked["method"] == "tools/list":
            say(result={"tools": [{"name": "seen", "inputSchema": {"type": "object"}}]})
        elif asked["method"] == "tools/call":
            words = list(sys.argv)
            has = asked["params"]["arguments"]["expected"] == words[2]
            words[2] = "the value"
            module = sys.modules["__main__"]
            inherited = "METAMCP_ARGUMENTS" in subprocess.run(["/usr/bin/env"], capture_output=True, text=True).stdout
            seen = {"has": has, "words": words, "main": [module.__name__, module.__file__, module.__package__],
                    "path": sys.path, "executable": sys.executable, "inherited": inherited,
                    "variable": os.environ.get("METAMCP_ARGUMENTS")}
            say(result={"content": [{"type": "text", "text": json.dumps(seen)}]})
        else:
            say(error={"code": -32601, "message": "no"})
"#;

/// Writes the files of an installed server whose second argument is the given value.
fn install(place: &Place, kind: Kind, entry: &str, is_secret: bool) -> PathBuf {
    let home = place.folder.path().join(".metamcp");
    let mut candidate =
        builtin().into_iter().find(|one| one.name.ends_with("server-memory")).unwrap();
    candidate.offer.kind = kind;
    "wheel".clone_into(&mut candidate.offer.identifier);
    candidate.offer.environment.clear();
    let name = if is_secret { "connection-key" } else { "connection" };
    let input = Input { name: name.to_owned(), ..Input::default() };
    candidate.offer.arguments = vec![Argument::Asked { flag: Some("--at".to_owned()), input }];
    let facts = Facts { exists: true, entry: Some(entry.to_owned()), ..Facts::default() };
    // One after the other in the same place, so that both see the same paths.
    let prefix = home.join("provisioned/wheel");
    drop(fs::remove_dir_all(&prefix));
    fs::create_dir_all(&prefix).unwrap();
    let prefix = prefix.canonicalize().unwrap();
    let sandbox_available = metamcp_child::process_sandbox::available();
    let at = prefix.to_str().unwrap();
    let plan = Plan::new(
        "wheel".to_owned(),
        &candidate,
        &facts,
        Verdict::default(),
        at,
        sandbox_available,
    );
    let value = if is_secret { SECRET } else { OPEN };
    let consent = plan.complete(&[(name.to_owned(), value.to_owned())]).unwrap();
    let record = Record::new(plan, &consent, 1);
    fs::write(prefix.join("server.json"), serde_json::to_vec(&record).unwrap()).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    prefix
}

/// The command lines of every process on this machine.
pub(crate) fn command_lines() -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let read = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    all.filter_map(read).map(|raw| String::from_utf8_lossy(&raw).replace('\0', " ")).collect()
}

/// What the server sees of itself, started by a gateway; checks that nobody else sees its secret.
fn seen(place: &Place, prefix: &Path, is_secret: bool) -> Value {
    let client = place.client(yes().0, &json!({}));
    let expected = if is_secret { SECRET } else { OPEN };
    let answer =
        client.mcp_call_now("wheel", "seen", &json!({ "expected": expected }), HUNG).unwrap();
    let seen = answer.text().and_then(|text| serde_json::from_str(text).ok());
    let lines = command_lines();
    let prefix = prefix.to_str().unwrap();
    let own: Vec<&String> = lines.iter().filter(|line| line.contains(prefix)).collect();
    let shown = if is_secret { "--at [secret connection-key]" } else { OPEN };
    assert!(own.iter().any(|line| line.contains(shown)), "{own:#?}");
    assert!(!lines.iter().any(|line| line.contains("hunter2")), "{own:#?}");
    assert!(!client.stderr().contains("hunter2"), "{}", client.stderr());
    seen.unwrap_or_else(|| panic!("{}: {}", answer.value, client.stderr()))
}

#[test]
fn a_package_of_npm_sees_its_secret_and_nobody_else_does() {
    for (entry, head, manifest) in [
        ("index.js", COMMON, r#"{"name": "wheel"}"#),
        ("index.js", MODULE, r#"{"name": "wheel", "type": "module"}"#),
        ("dist/index.mjs", MODULE, r#"{"name": "wheel"}"#),
        ("cli", COMMON, r#"{"name": "wheel"}"#),
    ] {
        let place = Place::new();
        let both = [false, true].map(|is_secret| {
            let prefix = install(&place, Kind::Npm, entry, is_secret);
            let package = prefix.join("node_modules/wheel");
            let file = package.join(entry);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(package.join("package.json"), manifest).unwrap();
            fs::write(file, format!("#!/usr/bin/env node\n{head}{NODE}")).unwrap();
            seen(&place, &prefix, is_secret)
        });
        let [open, secret] = &both;
        assert_eq!(open["has"], true, "{open:#}");
        assert_eq!(open["main"], true, "{open:#}");
        assert_eq!(open, secret, "{entry}");
        assert_eq!((&secret["variable"], &secret["inherited"]), (&Value::Null, &json!(false)));
    }
}

#[test]
fn a_package_of_pypi_sees_its_secret_and_nobody_else_does() {
    let place = Place::new();
    for long in [false, true] {
        let both = [false, true].map(|is_secret| {
            let prefix = install(&place, Kind::Pypi, "wheel", is_secret);
            let made = Command::new("python3")
                .args(["-m", "venv", "--without-pip"])
                .arg(prefix.join("venv"))
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
            let python = prefix.join("venv/bin/python");
            let libraries = fs::read_dir(prefix.join("venv/lib")).unwrap().next().unwrap();
            let modules = libraries.unwrap().path().join("site-packages");
            fs::write(modules.join("wheel.py"), PYTHON).unwrap();
            let python = python.display();
            // The second form is for paths that are too long for a shebang line.
            let first = if long {
                format!("#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''")
            } else {
                format!("#!{python}")
            };
            let script = prefix.join("venv/bin/wheel");
            fs::write(&script, format!("{first}\n{SCRIPT}")).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
            seen(&place, &prefix, is_secret)
        });
        let [open, secret] = &both;
        assert_eq!(open["has"], true, "{open:#}");
        assert_eq!(open["main"][0], "__main__", "{open:#}");
        assert_eq!((&secret["variable"], &secret["inherited"]), (&Value::Null, &json!(false)));
        assert_eq!(without_package(open), without_package(secret));
    }
}

/// A program run from its file has no package, which `runpy` represents differently.
fn without_package(seen: &Value) -> Value {
    let mut seen = seen.clone();
    let package = seen["main"][2].take();
    assert!(package.is_null() || package == "", "{package}");
    seen
}
