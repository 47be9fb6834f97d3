//! The corpus against swc, whose stripping Node itself uses. `cargo xtask test` installs it.

#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]

use std::path::Path;
use std::process::Command;

use metamcp_script::prepare;
use oxc_allocator::Allocator;
use oxc_ast::ast::{ClassElement, Statement};
use oxc_ast_visit::{Visit, walk};
use oxc_parser::Parser;
use oxc_span::SourceType;

const SNIPPETS: &str = include_str!("corpus/snippets.txt");

/// Strips each source of a JSON array with swc; an error is its text with a mark in front.
const STRIP: &str = r#"
const { transformSync } = require("@swc/wasm-typescript");
const sources = JSON.parse(require("fs").readFileSync(0, "utf8"));
const stripped = sources.map((source) => {
  try { return transformSync(source, { mode: "strip-only", module: true }).code; }
  catch (error) { return "refused: " + (error.message ?? JSON.stringify(error)); }
});
process.stdout.write(JSON.stringify(stripped));
"#;

/// Snippets that swc refuses, strips differently or cannot see inside a function, each with the reason.
const DIFFERENT: &[(&str, &str)] = &[
    ("import type", "imports cannot stand in a function"),
    ("export type", "exports cannot stand in a function"),
    ("exported values", "exports cannot stand in a function"),
];

#[test]
fn swc_strips_the_same() {
    let snippets: Vec<(&str, String)> = SNIPPETS
        .split("\n=== ")
        .map(|snippet| snippet.strip_prefix("=== ").unwrap_or(snippet).split_once('\n').unwrap())
        .filter(|(title, _)| !title.ends_with("[ours]"))
        .filter(|(title, _)| !DIFFERENT.iter().any(|(different, _)| different == title))
        .map(|(title, source)| (title, source.trim_end().replace("\\r", "\r")))
        .collect();
    assert!(snippets.len() >= 110);
    // In a function, so that `return` and `await` are allowed; with a `return`, so that we insert none.
    let wrapped: Vec<String> = snippets
        .iter()
        .map(|(_, source)| format!("async function f() {{\n{source}\nreturn 0;\n}}"))
        .collect();
    let theirs = strip_with_swc(&wrapped);
    let mut different = Vec::new();
    for ((title, source), theirs) in snippets.iter().zip(&theirs) {
        let ours = prepare(&format!("{source}\nreturn 0;\n")).expect(title).code;
        let ours = format!("async function f() {{\n{ours}\n}}");
        if bare(&ours) != bare(theirs) || Census::of(&ours) != Census::of(theirs) {
            different.push(format!("=== {title}\n{ours}\n--- swc\n{theirs}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
}

/// How many statements and class members a code has: a missing semicolon would join two of them.
#[derive(Debug, Default, PartialEq)]
struct Census {
    statements: usize,
    members: usize,
}

impl Census {
    fn of(code: &str) -> Census {
        let allocator = Allocator::default();
        let read = Parser::new(&allocator, code, SourceType::mjs()).parse();
        assert!(read.errors.is_empty(), "{:?}\n{code}", read.errors);
        let mut census = Census::default();
        census.visit_program(&read.program);
        census
    }
}

impl<'a> Visit<'a> for Census {
    fn visit_statement(&mut self, it: &Statement<'a>) {
        self.statements += usize::from(!matches!(it, Statement::EmptyStatement(_)));
        walk::walk_statement(self, it);
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        self.members += 1;
        walk::walk_class_element(self, it);
    }
}

/// Without blanks and semicolons, which either side puts where it likes.
fn bare(code: &str) -> String {
    code.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, ';' | '\u{a0}' | '\u{feff}' | '\u{2002}'))
        .collect()
}

fn strip_with_swc(sources: &[String]) -> Vec<String> {
    let npm = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("real").join("npm");
    assert!(
        npm.join("node_modules/@swc/wasm-typescript").exists(),
        "swc is not installed in {}; run `cargo xtask test --only real`",
        npm.display()
    );
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("sources.json");
    std::fs::write(&input, serde_json::to_string(sources).unwrap()).unwrap();
    let output = Command::new("node")
        .args(["-e", STRIP])
        .current_dir(&npm)
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
