use super::*;

const PAGE_TEXT: &str = "# Map\n\n```rooms\ntop\nleft, right > bottom   # side by side\n```\n";

fn found(files: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec![(PAGE, PAGE_TEXT)];
    let paths: Vec<(String, &str)> =
        files.iter().map(|(within, text)| (format!("{SOURCE}{within}"), *text)).collect();
    all.extend(paths.iter().map(|(path, text)| (path.as_str(), *text)));
    let of_rooms = ["top.rs", "left.rs", "right.rs", "bottom.rs"];
    let doors: Vec<String> = of_rooms
        .iter()
        .filter(|door| files.iter().all(|(within, _)| within != *door))
        .map(|door| format!("{SOURCE}{door}"))
        .collect();
    all.extend(doors.iter().map(|path| (path.as_str(), "")));
    rooms(&Tree::of(&all))
        .into_iter()
        .map(|f| format!("{}:{} {}", f.path.trim_start_matches(SOURCE), f.line, f.message))
        .collect()
}

#[test]
fn imports_go_down_or_aside() {
    for (within, line) in [
        ("top.rs", "use crate::bottom::A;"),
        ("top.rs", "use crate::{left, right::{A, B}};"),
        ("left.rs", "use crate::right;"),
        ("right/inner.rs", "use crate::{left::A, right::B};"),
        ("right/inner.rs", "use super::top;"),
        ("bottom.rs", "use crate::macros; fn f() { crate::made_up!(); }"),
        ("bottom.rs", "// crate::top is far above"),
        ("bottom.rs", "const A: &str = \"crate::top\";"),
        ("bottom.rs", "use other_crate::top;"),
        ("bottom.rs", "pub(crate) fn top() {}"),
        ("bottom.rs", "use crate::{\n    left_over,\n};"),
        ("lib.rs", "pub use crate::top::A;"),
    ] {
        assert_eq!(found(&[(within, line)]), [""; 0], "{within}: {line}");
    }
}

#[test]
fn an_import_from_above_is_found_wherever_it_is_written() {
    for (within, text, line) in [
        ("bottom.rs", "use crate::top::A;", 1),
        ("bottom.rs", "fn f() -> crate::top::A {}", 1),
        ("bottom.rs", "use crate::{\n    bottom::{A, B},\n    top,\n};", 3),
        ("bottom.rs", "macro_rules! m { () => { $crate::top::A } }", 1),
        ("bottom.rs", "use super::top;", 1),
        ("bottom/inner.rs", "\nuse super::super::top;", 2),
        ("bottom/inner.rs", "use super::super::{top, left_over};", 1),
        ("bottom/inner/deep.rs", "use super::super::super::top::A;", 1),
    ] {
        assert_eq!(
            found(&[(within, text)]),
            [format!("{within}:{line} bottom may not import top, which stands above it in {PAGE}")],
            "{text}"
        );
    }
}

#[test]
fn each_room_that_is_imported_is_told_once_a_line() {
    let text = "use crate::top::{A, B}; type C = crate::top::C;\nuse crate::left::A;\n";
    assert_eq!(
        found(&[("bottom.rs", text)]),
        [
            format!("bottom.rs:1 bottom may not import top, which stands above it in {PAGE}"),
            format!("bottom.rs:2 bottom may not import left, which stands above it in {PAGE}"),
        ]
    );
}

#[test]
fn tests_import_what_they_like() {
    for text in [
        "#[cfg(test)]\nmod tests {\n    use crate::top::A;\n    fn f() { if a { b } }\n}\n",
        "#[cfg(test)]\nuse crate::{top, left};",
        "#[cfg(test)]\n#[expect(dead_code, reason = \"a\")]\nfn f(a: [u8; 2]) -> crate::top::A {\n    crate::top::a()\n}",
        "#[cfg(all(test, unix))]\nmod tests { use crate::top::A; }",
    ] {
        assert_eq!(found(&[("bottom.rs", text)]), [""; 0], "{text}");
    }
    let declared =
        ("bottom.rs", "#[cfg(test)]\nmod tests;\n#[cfg(test)]\npub(crate) mod fake;\nmod inner;\n");
    let uses = "use crate::top::A;";
    assert_eq!(
        found(&[
            declared,
            ("bottom/tests.rs", uses),
            ("bottom/tests/more.rs", uses),
            ("bottom/fake.rs", uses),
            ("bottom/inner.rs", uses),
        ]),
        [format!("bottom/inner.rs:1 bottom may not import top, which stands above it in {PAGE}")]
    );
    let after = "#[cfg(test)]\nmod tests {}\nuse crate::top;";
    assert_eq!(found(&[("bottom.rs", after)]).len(), 1);
    let not_only = "#[cfg(any(test, unix))]\nuse crate::top;";
    assert_eq!(found(&[("bottom.rs", not_only)]).len(), 1);
}

#[test]
fn the_list_and_the_disk_know_the_same_rooms() {
    assert_eq!(
        found(&[("attic.rs", ""), ("cellar/deep.rs", "")]),
        [
            format!("{PAGE}:0 attic is a room of the engine and on no floor"),
            format!("{PAGE}:0 cellar is a room of the engine and on no floor"),
        ]
    );
    let page = PAGE_TEXT.replace("bottom", "bottom, gone, top");
    let tree = Tree::of(&[
        (PAGE, &page),
        ("crates/metamcp-engine/src/top.rs", ""),
        ("crates/metamcp-engine/src/left.rs", ""),
        ("crates/metamcp-engine/src/right.rs", ""),
        ("crates/metamcp-engine/src/bottom.rs", ""),
    ]);
    let messages: Vec<String> =
        rooms(&tree).into_iter().map(|f| format!("{}: {}", f.line, f.message)).collect();
    assert_eq!(messages, ["5: the engine has no room gone", "5: top stands on two floors"]);
}

#[test]
fn a_page_without_floors_is_found() {
    let tree = Tree::of(&[("crates/metamcp-engine/src/top.rs", "")]);
    assert_eq!(rooms(&tree).len(), 1);
    assert!(rooms(&Tree::of(&[("README.md", "")])).is_empty());
}
