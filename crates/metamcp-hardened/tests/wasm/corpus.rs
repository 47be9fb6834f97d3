//! The corpus of the native worker, in this engine: the same scripts, the same ends.

use std::fs;
use std::path::Path;

use metamcp_hardened::realm::ScriptEnd;

use crate::world::{Bounds, run};

/// Scripts of one file, each with the ends it may come to and its value; see the tests of the sandbox.
fn scripts(file: &str) -> Vec<(String, Vec<String>, Option<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../metamcp-sandbox/tests/corpus");
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let read = |code: &str| {
        let mut lines = code.lines();
        let expected = lines.next().unwrap().strip_prefix("// expect: ").unwrap();
        let value = lines.next().and_then(|line| line.strip_prefix("// value: "));
        let expected = expected.split('|').map(str::to_owned).collect();
        (code.to_owned(), expected, value.map(str::to_owned))
    };
    text.split("//---\n").map(read).collect()
}

fn word(end: Option<&ScriptEnd>) -> &'static str {
    match end {
        Some(ScriptEnd::Value(_)) => "ok",
        Some(ScriptEnd::Threw(_) | ScriptEnd::ResultTooLong { .. }) => "error",
        Some(ScriptEnd::Memory(_)) => "memory_limit",
        Some(ScriptEnd::Cpu) => "cpu_limit",
        Some(ScriptEnd::Broken { .. }) => "broken",
        None => "deadlock",
    }
}

/// What only the gateway can end is not in these files.
fn all_end_as_expected(files: &[&str], bounds: Bounds) {
    let mut wrong = Vec::new();
    for (code, expected, value) in files.iter().flat_map(|file| scripts(file)) {
        let end = run(&code, bounds).end;
        let word = word(end.as_ref());
        let differs = match (&value, &end) {
            (Some(value), Some(ScriptEnd::Value(got))) => value != got,
            _ => false,
        };
        // Here timers are due at once, so what waits for ever is busy for ever, and this engine takes
        // longer to fill a heap.
        let fits = |expected: &String| match expected.as_str() {
            "timeout" => word == "cpu_limit",
            "memory_limit" => ["memory_limit", "cpu_limit"].contains(&word),
            expected => expected == word,
        };
        if differs || !expected.iter().any(fits) {
            let end: String = format!("{end:?}").chars().take(300).collect();
            wrong.push(format!("{code}    came to {word}: {end}"));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn attacks_end_as_in_the_native_engine() {
    let bounds =
        Bounds { cpu_milliseconds: 600, heap: 16 << 20, result: 256 << 10, ..Bounds::default() };
    all_end_as_expected(
        &[
            "attacks/escape-constructors.js",
            "attacks/escape-modules.js",
            "attacks/escape-objects.js",
            "attacks/resource-memory.js",
            "attacks/resource-processor.js",
        ],
        bounds,
    );
}

#[test]
fn honest_scripts_end_as_in_the_native_engine() {
    all_end_as_expected(&["honest/plain.js"], Bounds::default());
}
