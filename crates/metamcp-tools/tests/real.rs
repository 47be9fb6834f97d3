//! The declarations of real servers, as recorded in `schemas/`, compiled by the TypeScript compiler.
//! `cargo xtask test` installs it.

#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use metamcp_tools::declarations::{self, Declared, identifier};
use metamcp_tools::tool::{Listing, ServerTools, Tool};
use serde_json::Value;

/// What a server's declarations may take here; the largest needs about 100 KiB.
const BOUND: usize = 512 * 1024;

/// Every recorded server with its tools.
fn recorded() -> Vec<(String, ServerTools)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| {
        path.extension().is_some_and(|end| end == "json") && !path.ends_with("servers.json")
    });
    files.sort();
    let read = |path: PathBuf| {
        let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut listing = Listing::new();
        let page = serde_json::json!({ "tools": record["tools"] }).to_string();
        listing.page(page.as_bytes()).unwrap();
        let tools = listing.finish(None, None);
        assert!(tools.skipped.is_empty(), "{}: {:?}", path.display(), tools.skipped);
        (record["name"].as_str().unwrap().to_owned(), tools)
    };
    files.into_iter().map(read).collect()
}

fn declared(name: &str, tools: &ServerTools, bound: usize) -> String {
    let tools: Vec<Declared<'_>> = tools.tools.iter().map(Declared::from).collect();
    declarations::for_server(name, &identifier(name), &tools, bound)
}

#[test]
fn declarations_of_real_servers_compile() {
    let servers = recorded();
    assert!(servers.len() >= 25, "only {} servers are recorded", servers.len());
    let npm = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("real").join("npm");
    let compiler = npm.join("node_modules/typescript/bin/tsc");
    assert!(
        compiler.exists(),
        "the TypeScript compiler is not installed in {}; run `cargo xtask test --only real`",
        npm.display()
    );
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (name, tools) in &servers {
        // With all detail, and squeezed to each lesser one.
        for bound in [BOUND, 8_000, 2_500, 900] {
            let path = folder.path().join(format!("{name}-{bound}.ts"));
            let text = declared(name, tools, bound);
            assert!(text.len() <= bound, "{name}: {} of {bound} bytes", text.len());
            // A module each, so that the same name twice is no clash.
            fs::write(&path, format!("{text}export {{}};\n")).unwrap();
            files.push(path);
        }
    }
    let output = Command::new("node")
        .arg(compiler)
        .args(["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022"])
        .args(&files)
        .output()
        .expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn every_tool_can_be_called_by_what_its_declaration_calls_it() {
    for (name, tools) in recorded() {
        let names: Vec<&str> = tools.tools.iter().map(|tool| &*tool.name).collect();
        for tool in &names {
            let exact = declarations::resolve_tool(tool, names.iter().copied());
            assert_eq!(exact, Some(*tool), "{name}");
            let camel = declarations::camel(tool);
            let like = declarations::resolve_tool(&camel, names.iter().copied());
            let rivals = names.iter().filter(|other| declarations::camel(other) == camel).count();
            assert!(
                like == Some(*tool) || rivals > 1 || camel.is_empty(),
                "{name}: {tool} as {camel}"
            );
        }
    }
}

/// What is recorded is what is pinned, and openly licensed.
#[test]
fn the_recordings_are_those_that_are_pinned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas");
    let json = |path: PathBuf| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let pinned = json(folder.join("servers.json"));
    let pinned = pinned.as_array().unwrap();
    for server in pinned {
        let record = json(folder.join(format!("{}.json", server["name"].as_str().unwrap())));
        for field in ["name", "package", "version", "licence"] {
            assert_eq!(record[field], server[field], "{server}");
        }
        let licence = server["licence"].as_str().unwrap();
        assert!(["MIT", "Apache-2.0", "ISC"].contains(&licence), "{server}");
    }
    assert_eq!(recorded().len(), pinned.len(), "every recording is pinned");
}

/// What a model pays for knowing all recorded tools, in three forms.
#[test]
fn declarations_cost_less_than_schemas() {
    let counter = tiktoken_rs::cl100k_base().unwrap();
    let count = |text: &str| counter.encode_ordinary(text).len();
    let (mut servers, mut tools) = (0, 0);
    let (mut schemas, mut declarations, mut signatures) = (0, 0, 0);
    for (name, listed) in recorded() {
        servers += 1;
        tools += listed.tools.len();
        schemas += count(&listed.to_json());
        declarations += count(&declared(&name, &listed, BOUND));
        let lines: Vec<&str> = listed.tools.iter().map(Tool::signature).collect();
        signatures += count(&lines.join("\n"));
    }
    let share = |part: usize| (part * 1_000).div_ceil(schemas);
    let (declared, signed) = (share(declarations), share(signatures));
    insta::assert_snapshot!(format!(
        "{tools} tools of {servers} servers, cl100k tokens\n\
         schemas      {schemas}\n\
         declarations {declarations}, {declared} of 1000\n\
         signatures   {signatures}, {signed} of 1000"
    ));
    assert!(declared < 600 && signed < declared);
}
