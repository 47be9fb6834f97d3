use super::*;

fn messages(rule: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<String> {
    rule(&Tree::of(&[(path, text)]))
        .into_iter()
        .map(|f| format!("{}: {}", f.line, f.message))
        .collect()
}

const DECIDES: &str = "crates/metamcp-calls/src/a.rs";

#[test]
fn comments_strings_and_characters_are_blanked() {
    let cases = [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("f(\"x\\\"y\") + g", "f(      ) + g"),
        ("r#\"a\"b\"# + c", "         + c"),
        ("br\"a\" + for", "      + for"),
        ("'\"' + 'a, '\\'' 'static", "    + 'a,      'static"),
        ("var\"x\"", "var   "),
        ("\"ü\nx\" y", "  \n   y"),
    ];
    for (text, code) in cases {
        assert_eq!(code_only(text), code, "{text}");
    }
}

#[test]
fn an_unfinished_string_or_comment_ends_with_the_file() {
    for text in ["a \"b", "a /* b", "a r#\"b\"", "'", "'\\", "//"] {
        assert_eq!(code_only(text).len(), text.len(), "{text}");
    }
}

#[test]
fn a_pure_crate_that_acts_is_found() {
    for (line, name) in [
        ("use std::fs;", "std::fs"),
        ("use std::fs::File;", "std::fs"),
        ("let a = std::env::var(\"A\");", "std::env"),
        ("use tokio::sync::mpsc;", "tokio"),
        ("let now = Instant::now();", "Instant::now"),
        ("use std::time::SystemTime;", "SystemTime"),
        ("use std::{collections::HashMap, net};", "std::net"),
        ("use std::{\n    io,\n    process::{self, Command},\n};", "std::process"),
    ] {
        let found = messages(purity, DECIDES, line);
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].contains(&format!("names `{name}`")), "{found:?}");
    }
}

#[test]
fn a_group_is_found_on_its_own_line() {
    let found = messages(purity, DECIDES, "use std::{\n    io,\n    env,\n};\n");
    assert_eq!(found, ["3: names `std::env`; take the value as an argument"]);
}

#[test]
fn mentioning_is_not_using_and_others_may_act() {
    for line in [
        "// std::fs is not for us",
        "const A: &str = \"std::env\";",
        "use crate::tokio_like;",
        "use std::{collections::HashMap, fmt};",
        "fn f(environment: std::environment::X) {}",
    ] {
        assert!(messages(purity, DECIDES, line).is_empty(), "{line}");
    }
    assert!(messages(purity, "crates/metamcp-engine/src/a.rs", "use std::fs;").is_empty());
    assert!(messages(purity, "crates/metamcp-calls/tests/sim.rs", "use std::env;").is_empty());
}

#[test]
fn long_files_are_warned_about_and_longer_ones_refused() {
    let long = |lines: usize| size(&Tree::of(&[("a.rs", &"x\n".repeat(lines))]));
    assert!(long(SOFT_LINES).is_empty());
    assert!(long(SOFT_LINES + 1)[0].warning);
    assert!(long(HARD_LINES)[0].warning);
    assert!(!long(HARD_LINES + 1)[0].warning);
}

#[test]
fn a_mod_file_is_found() {
    assert_eq!(messages(layout, "crates/a/src/b/mod.rs", "").len(), 1);
    assert!(messages(layout, "crates/a/src/b/model.rs", "").is_empty());
}

#[test]
fn tests_that_do_not_run_and_leftovers_are_found() {
    assert_eq!(messages(ignored, "a.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}").len(), 1);
    assert!(messages(ignored, "a.rs", "// #[ignore] is banned").is_empty());
    assert_eq!(messages(leftovers, "a.rs", "fn a() { todo!() }\nfn b() { dbg!(1); }").len(), 2);
    assert!(messages(leftovers, "a.rs", "fn a() { mastodo!() }").is_empty());
}

#[test]
fn an_allowance_is_an_expectation_with_a_reason() {
    assert_eq!(messages(allowed, "a.rs", "#[allow(dead_code)]\nfn a() {}").len(), 1);
    assert_eq!(messages(allowed, "a.rs", "#![allow(dead_code)]").len(), 1);
    assert_eq!(messages(allowed, "a.rs", "#[expect(dead_code)]").len(), 1);
    assert!(
        messages(allowed, "a.rs", "#[expect(\n    dead_code,\n    reason = \"x\"\n)]").is_empty()
    );
}

#[test]
fn empty_words_in_names_are_found() {
    for line in [
        "struct PoolHelper;",
        "pub(crate) fn helper() {}",
        "pub async fn get_tool() {}",
        "mod string_utils;",
        "    enum MiscEvent { A }",
    ] {
        assert_eq!(messages(names, "a.rs", line).len(), 1, "{line}");
    }
    for line in [
        "struct Helps;",
        "struct RequestHandler;",
        "fn copy_proxy() {}",
        "fn target() {}",
        "let helper = 1;",
        "fn getaway() {}",
        "// fn helper()",
    ] {
        assert!(messages(names, "a.rs", line).is_empty(), "{line}");
    }
    assert_eq!(messages(names, "crates/a/src/util.rs", "").len(), 1);
}
