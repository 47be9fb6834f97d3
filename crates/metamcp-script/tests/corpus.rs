//! Everything the crate does to a source, on the snippets in `corpus/`: told by snapshots, read again as
//! JavaScript, and every kept word found at its old place.

use std::fmt::Write as _;

use metamcp_script::{Position, PreparedScript, fuzz_script, prepare};
use oxc_allocator::Allocator;
use oxc_parser::{ParseOptions, Parser};
use oxc_span::SourceType;
use proptest::prelude::*;

const SNIPPETS: &str = include_str!("corpus/snippets.txt");
const REFUSED: &str = include_str!("corpus/refused.txt");

/// Title and source of each snippet; `\r` is spelt out in the file.
fn snippets(text: &str) -> impl Iterator<Item = (&str, String)> {
    text.split("\n=== ").map(|snippet| {
        let snippet = snippet.strip_prefix("=== ").unwrap_or(snippet);
        let (title, source) = snippet.split_once('\n').expect("a title has a line of its own");
        (title, source.trim_end_matches('\n').replace("\\r", "\r"))
    })
}

#[test]
fn what_becomes_of_each_snippet() {
    let mut told = String::new();
    for (title, source) in snippets(SNIPPETS) {
        let script = prepare(&source).unwrap_or_else(|error| panic!("{title}: {error}"));
        let names = script.names.join(" ");
        write!(told, "=== {title}\n{}\n--- {:?}: {names}\n", script.code, script.ending).unwrap();
    }
    assert!(snippets(SNIPPETS).count() >= 120);
    insta::assert_snapshot!(told);
}

#[test]
fn what_is_refused_says_where_and_what_to_do() {
    let mut told = String::new();
    for (title, source) in snippets(REFUSED) {
        let error = prepare(&source).expect_err(title);
        write!(told, "=== {title}\n{error}\n").unwrap();
    }
    insta::assert_snapshot!(told);
}

#[test]
fn what_comes_out_is_javascript() {
    for (title, source) in snippets(SNIPPETS) {
        assert_is_javascript(title, &prepare(&source).expect(title));
    }
}

fn assert_is_javascript(title: &str, script: &PreparedScript) {
    let allocator = Allocator::default();
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    let read =
        Parser::new(&allocator, &script.code, SourceType::mjs()).with_options(options).parse();
    assert!(read.errors.is_empty(), "{title}: {:?}\n{}", read.errors, script.code);
}

/// With a `return` of its own nothing has to be inserted, so every character stays.
#[test]
fn every_kept_character_stays_in_its_place() {
    for (title, source) in snippets(SNIPPETS).filter(|(title, _)| !title.ends_with("[ours]")) {
        let source = format!("{source}\nreturn 0;\n");
        let script = prepare(&source).expect(title);
        assert_eq!(source.chars().count(), script.code.chars().count(), "{title}\n{}", script.code);
        for (was, is) in source.chars().zip(script.code.chars()) {
            let blanked = is == ' ' && was != '\n';
            assert!(
                was == is || blanked || "();".contains(is),
                "{title}: {was:?} became {is:?}\n{}",
                script.code
            );
        }
    }
}

/// Where something is inserted, every word of the source is found again by its position.
#[test]
fn every_word_behind_an_insertion_is_found() {
    for (title, source) in snippets(SNIPPETS).filter(|(title, _)| title.starts_with("last")) {
        let script = prepare(&source).expect(title);
        let old: Vec<Vec<char>> = source.split('\n').map(|line| line.chars().collect()).collect();
        for (row, line) in script.code.split('\n').enumerate() {
            let inserted = line.find("return (").map(|at| at..at + "return (".len());
            for (column, c) in line.chars().enumerate() {
                let ours = inserted.as_ref().is_some_and(|range| range.contains(&column));
                if ours || c.is_whitespace() || "();".contains(c) {
                    continue;
                }
                let place = |number: usize| u32::try_from(number + 1).unwrap();
                let at = script.position(Position { line: place(row), column: place(column) });
                let was = old[at.line as usize - 1].get(at.column as usize - 1);
                assert_eq!(was, Some(&c), "{title}: {at:?}\n{}", script.code);
            }
        }
    }
}

#[test]
fn a_place_in_the_code_is_found_in_the_source() {
    let script = prepare("let a = 1; boom(a)").unwrap();
    assert_eq!(script.code, "let a = 1; return (boom(a))");
    let at = |column| script.position(Position { line: 1, column }).column;
    assert_eq!([at(1), at(11), at(20), at(25)], [1, 11, 12, 17]);

    let script = prepare("let a = 1\nboom(a)").unwrap();
    assert_eq!(script.code, "let a = 1;return (\nboom(a))");
    assert_eq!(script.position(Position { line: 2, column: 6 }), Position { line: 2, column: 6 });

    let script = prepare("{ a: boom(), b: 1 }").unwrap();
    let column = script.code.find("boom").unwrap() as u32 + 1;
    assert_eq!(script.position(Position { line: 1, column }).column, 6);
}

#[test]
fn a_source_that_is_too_long_says_so() {
    let error = prepare(&" ".repeat(metamcp_script::MAX_SOURCE_BYTES + 1)).unwrap_err();
    assert!(error.message.contains("65537") && error.message.contains("65536"), "{error}");
}

/// Pieces of sources, to be put together in every wrong way.
fn pieces() -> impl Strategy<Value = String> {
    let all: Vec<&'static str> = SNIPPETS
        .split_inclusive([' ', '\n', '(', ')', '{', '}', '<', '>', ':', ';', ',', '.', '`', '/'])
        .filter(|piece| !piece.starts_with("==="))
        .collect();
    prop::collection::vec(prop::sample::select(all), 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_source_panics(source in pieces()) {
        fuzz_script(source.as_bytes());
    }

    #[test]
    fn no_text_panics(source in any::<String>()) {
        fuzz_script(source.as_bytes());
    }

    #[test]
    fn snippets_in_a_row_are_javascript(picked in prop::collection::vec(0..200usize, 1..6)) {
        let all: Vec<(&str, String)> = snippets(SNIPPETS).filter(|(title, _)| !title.ends_with("[ours]")).collect();
        let source = picked.iter().map(|at| format!("{{ {}\n}}\n", all[at % all.len()].1)).collect::<String>();
        if let Ok(script) = prepare(&source) {
            assert_is_javascript(&source, &script);
        }
    }
}
