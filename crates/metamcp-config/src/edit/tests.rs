use proptest::prelude::*;
use serde_json::{Value, json};

use super::{EditError, Format, line, read, remove, remove_all, set, set_all};

fn put(text: &str, path: &[&str], value: &Value) -> String {
    set(Format::Json, text, path, value).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn taken(text: &str, path: &[&str]) -> String {
    remove(Format::Json, text, path)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .expect("the entry is there")
}

const AT: &[&str] = &["mcpServers", "new"];

#[test]
fn a_new_entry_goes_behind_the_last_and_nothing_else_moves() {
    let check = |before: &str, after: &str| assert_eq!(put(before, AT, &json!(1)), after);
    check("", "{\n  \"mcpServers\": {\n    \"new\": 1\n  }\n}\n");
    check("{}", "{\n  \"mcpServers\": {\n    \"new\": 1\n  }\n}");
    check(
        "{\n    \"mcpServers\": {\n        \"a\": {}\n    }\n}\n",
        "{\n    \"mcpServers\": {\n        \"a\": {},\n        \"new\": 1\n    }\n}\n",
    );
    check(
        "{\n  \"mcpServers\": {\n    \"a\": {} // mine\n    // the end\n  }\n}\n",
        "{\n  \"mcpServers\": {\n    \"a\": {}, // mine\n    \"new\": 1\n    // the end\n  }\n}\n",
    );
    check(
        "{\n  \"mcpServers\": {\n    \"a\": {}, // mine\n  },\n}\n",
        "{\n  \"mcpServers\": {\n    \"a\": {}, // mine\n    \"new\": 1,\n  },\n}\n",
    );
    check("{ \"mcpServers\": { \"a\": 1 } }", "{ \"mcpServers\": { \"a\": 1, \"new\": 1 } }");
    check(
        "{\n\t\"mcpServers\": {\n\t\t// none yet\n\t}\n}",
        "{\n\t\"mcpServers\": {\n\t\t// none yet\n\t\t\"new\": 1\n\t}\n}",
    );
    check(
        "{\r\n  \"mcpServers\": {\r\n    \"a\": 1\r\n  }\r\n}\r\n",
        "{\r\n  \"mcpServers\": {\r\n    \"a\": 1,\r\n    \"new\": 1\r\n  }\r\n}\r\n",
    );
    check("\u{feff}{\"mcpServers\":{}}", "\u{feff}{\"mcpServers\":{\n  \"new\": 1\n}}");
    check(
        "{\n  \"mcpServers\": {\n    \"a\": 1 /* one\n two */\n  }\n}",
        "{\n  \"mcpServers\": {\n    \"a\": 1, /* one\n two */\n    \"new\": 1\n  }\n}",
    );
    check(
        "{\n  \"mcpServers\": {\n    \"new\": { \"x\": 1 }, // kept\n    \"b\": 2\n  }\n}",
        "{\n  \"mcpServers\": {\n    \"new\": 1, // kept\n    \"b\": 2\n  }\n}",
    );
}

#[test]
fn an_entry_goes_and_nothing_else_with_it() {
    let check = |before: &str, after: &str| assert_eq!(taken(before, &["m", "x"]), after);
    check("{\"m\":{\"x\":1}}", "{\"m\":{}}");
    check("{ \"m\": { \"x\": 1, \"b\": 2 } }", "{ \"m\": { \"b\": 2 } }");
    check("{ \"m\": { \"b\": 2, \"x\": 1 } }", "{ \"m\": { \"b\": 2 } }");
    check(
        "{\n  \"m\": {\n    \"x\": {\n      \"y\": 1\n    },\n    \"b\": 2\n  }\n}",
        "{\n  \"m\": {\n    \"b\": 2\n  }\n}",
    );
    check(
        "{\n  \"m\": {\n    \"b\": 2, // two\n    \"x\": 1\n  }\n}",
        "{\n  \"m\": {\n    \"b\": 2 // two\n  }\n}",
    );
    check(
        "{\n  \"m\": {\n    \"x\": 1, // why\n    \"b\": 2,\n  }\n}",
        "{\n  \"m\": {\n    // why\n    \"b\": 2,\n  }\n}",
    );
    assert_eq!(remove(Format::Json, "{\"m\":{}}", &["m", "x"]), Ok(None));
}

#[test]
fn what_cannot_be_edited_is_refused() {
    let fails = |text: &str| set(Format::Json, text, AT, &json!(1)).expect_err(text).to_string();
    assert!(fails("{ \"mcpServers\": { ").starts_with("line 1: "));
    assert_eq!(fails("[]"), "`the file` is not an object");
    assert_eq!(fails("{ \"mcpServers\": [] }"), "`mcpServers` is not an object");
    assert_eq!(
        fails("{ \"mcpServers\": {}, \"mcpServers\": {} }"),
        "`mcpServers` is given twice; keep one of the two"
    );
    assert!(matches!(
        set(Format::Json, "// only words\n", AT, &json!(1)),
        Err(EditError::Syntax { .. })
    ));
    assert!(set(Format::Toml, "a = [", &["x"], &json!(1)).is_err());
}

#[test]
fn toml_keeps_its_comments() {
    let before = "# my codex\nmodel = \"o\" # the model\n\n[mcp_servers.a] # first\ncommand = 'x'\n\n[profiles.b]\nz = 1\n";
    let entry = json!({ "command": "metamcp", "args": ["--x"], "env": { "K": "v" } });
    let after = set(Format::Toml, before, &["mcp_servers", "metamcp"], &entry).unwrap();
    for line in before.lines() {
        assert!(after.contains(line), "{line:?} is gone:\n{after}");
    }
    assert_eq!(read(Format::Toml, &after, &["mcp_servers", "metamcp"]), Ok(Some(entry)));
    let again = remove(Format::Toml, &after, &["mcp_servers", "metamcp"]).unwrap().unwrap();
    assert_eq!(again, before);
}

const GOOSE: &str = "# goose\nGOOSE_MODEL: x # which\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n\n  # mine\n  files:\n    args:\n    - -y\n    - \"a: b\"\n    cmd: npx\n    envs: {}\n    timeout: 300\nlast: 1\n";

#[test]
fn yaml_as_programs_write_it() {
    let files = read(Format::Yaml, GOOSE, &["extensions", "files"]).unwrap().unwrap();
    assert_eq!(files, json!({ "args": ["-y", "a: b"], "cmd": "npx", "envs": {}, "timeout": 300 }));
    let entry = json!({ "cmd": "/opt/meta mcp", "args": ["--x"], "enabled": true, "envs": {} });
    let after = set(Format::Yaml, GOOSE, &["extensions", "metamcp"], &entry).unwrap();
    for line in GOOSE.lines() {
        assert!(after.contains(line), "{line:?} is gone:\n{after}");
    }
    assert_eq!(read(Format::Yaml, &after, &["extensions", "metamcp"]), Ok(Some(entry.clone())));
    let again = remove(Format::Yaml, &after, &["extensions", "metamcp"]).unwrap();
    assert_eq!(again.as_deref(), Some(GOOSE));
    let replaced = set(Format::Yaml, &after, &["extensions", "metamcp"], &entry).unwrap();
    assert_eq!(replaced, after);
    for text in ["", "extensions: {}\n", "a: 1", "extensions:\n"] {
        let after = set(Format::Yaml, text, &["extensions", "m"], &entry).unwrap();
        assert_eq!(
            read(Format::Yaml, &after, &["extensions", "m"]),
            Ok(Some(entry.clone())),
            "{after}"
        );
    }
    for text in [
        "extensions: { a: 1 }\n",
        "a: 1\n---\nb: 2\n",
        "extensions:\n\tx: 1\n",
        "extensions:\n- a\n",
    ] {
        assert!(set(Format::Yaml, text, &["extensions", "m"], &entry).is_err(), "{text}");
    }
}

#[test]
fn yaml_of_hands_is_read_as_yaml_says() {
    let read = |text: &str| read(Format::Yaml, text, &["x"]).unwrap().unwrap();
    assert_eq!(read("x:\n- \n- # a note\n- a\n-  ~\n"), json!([null, null, "a", null]));
    let entry = json!({ "cmd": "m" });
    for (before, after) in [
        ("x: {} # none yet\n", "x: # none yet\n  m:\n    cmd: m\n"),
        ("x: {}\t\nb: 1\n", "x:\n  m:\n    cmd: m\nb: 1\n"),
        ("\"{}: x\": 1\nx:   {}   # y\r\n", "\"{}: x\": 1\nx: # y\r\n  m:\r\n    cmd: m\r\n"),
        ("'x': {}", "'x':\n  m:\n    cmd: m\n"),
    ] {
        assert_eq!(set(Format::Yaml, before, &["x", "m"], &entry).as_deref(), Ok(after));
    }
    // Other space than blanks is no indentation.
    let text = "x:\n  - name: a\n  \u{a0}- name: b\n";
    assert!(set(Format::YamlList, text, &["x", "m"], &entry).is_err());
}

#[test]
fn space_of_several_bytes_may_stand_around_values() {
    let text = "{\u{a0}\"m\":\u{a0}{\n\"a\": 1\u{a0},\u{a0}// c\u{a0}\n\"b\": 2\u{a0}\n}\u{a0}}";
    let after = put(text, &["m", "c"], &json!(3));
    let all = read(Format::Json, &after, &["m"]);
    assert_eq!(all, Ok(Some(json!({ "a": 1, "b": 2, "c": 3 }))), "{after}");
    let after = taken(&taken(text, &["m", "b"]), &["m", "a"]);
    assert_eq!(read(Format::Json, &after, &["m"]), Ok(Some(json!({}))), "{after}");
}

/// A scanner of our own went on to the line feed, and put a second comma in.
#[test]
fn a_comment_ends_at_a_carriage_return_too() {
    let text = "{ \"m\": { \"a\": 1 // one\r, // more\r } }";
    let after = put(text, &["m", "b"], &json!(2));
    assert_eq!(
        read(Format::Json, &after, &["m"]),
        Ok(Some(json!({ "a": 1, "b": 2 }))),
        "{after:?}"
    );
    assert_eq!(taken(&after, &["m", "b"]).matches("//").count(), 2);
    let gone = taken(text, &["m", "a"]);
    assert_eq!(read(Format::Json, &gone, &["m"]), Ok(Some(json!({}))), "{gone:?}");
}

/// Objects with comments in every place where one may stand.
fn commented() -> impl Strategy<Value = String> {
    let gap = prop_oneof![
        Just(""),
        Just(" "),
        Just("\n  "),
        Just(" // c\n"),
        Just("/* , } */"),
        Just("\r\n\t"),
    ];
    let entry = (gap.clone(), "[a-c]{1,3}", gap.clone(), gap.clone());
    (proptest::collection::vec(entry, 0..4), gap.clone(), any::<bool>()).prop_map(
        |(entries, last, trailing)| {
            let mut seen = std::collections::HashSet::new();
            let entries: Vec<_> =
                entries.into_iter().filter(|(_, key, ..)| seen.insert(key.clone())).collect();
            let count = entries.len();
            let mut text = "{\"m\":{".to_owned();
            for (at, (before, key, between, after)) in entries.into_iter().enumerate() {
                let comma = if at + 1 < count || trailing { "," } else { "" };
                text.push_str(&format!("{before}\"{key}\":{between}[1, \"//\"]{after}{comma}"));
            }
            text.push_str(&format!("{last}}}}}"));
            text
        },
    )
}

proptest! {
    #[test]
    fn what_was_put_in_is_there_and_goes_again(text in commented(), key in "[a-d]{1,3}") {
        let before = read(Format::Json, &text, &["m"]).unwrap().unwrap();
        let value = json!({ "k": [1, { "x": "y" }] });
        let after = set(Format::Json, &text, &["m", &key], &value).unwrap();
        let mut expected = before.clone();
        expected[&key] = value;
        prop_assert_eq!(read(Format::Json, &after, &["m"]).unwrap().unwrap(), expected, "{}", after);
        for comment in ["// c", "/* , } */"] {
            let count = |text: &str| text.matches(comment).count();
            prop_assert!(count(&after) == count(&text), "a comment is gone: {}", after);
        }
        let gone = remove(Format::Json, &after, &["m", &key]).unwrap().unwrap();
        let mut expected = before;
        expected.as_object_mut().unwrap().shift_remove(&key);
        prop_assert_eq!(read(Format::Json, &gone, &["m"]).unwrap().unwrap(), expected, "{}", gone);
    }

    #[test]
    fn never_panics(text in "[\\{\\}\\[\\],:\"/*a\n #'\u{a0}-]{0,40}") {
        let begun = [text.clone(), format!("m:\n{text}"), format!("m:\n  - name: x\n{text}")];
        for (format, text) in [Format::Json, Format::Toml, Format::Yaml, Format::YamlList]
            .iter()
            .flat_map(|format| begun.iter().map(|text| (*format, text)))
        {
            let _outcome = set(format, text, &["m", "x"], &json!({ "a": 1 }));
            let _outcome = remove(format, text, &["m", "x"]);
            let _outcome = read(format, text, &["m"]);
            let _outcome = read(format, text, &[]);
        }
    }
}

const CONTINUE: &str = "# my assistant
name: Mine
version: 1.0.0
models:
  - name: big
    roles: [chat]
    prompt: |
      mcpServers: not here
mcpServers:
  # reads files
  - name: files
    command: npx
    args:
      - -y
      - server-filesystem
    env:
      ROOT: /notes # where
  -   name: web
      type: streamable-http
      url: https://mcp.example.com/mcp
# the end
rules: []
";

#[test]
fn lists_of_named_entries_are_edited_item_by_item() {
    let files = json!({ "command": "npx", "args": ["-y", "server-filesystem"], "env": { "ROOT": "/notes" } });
    let web = json!({ "type": "streamable-http", "url": "https://mcp.example.com/mcp" });
    let all = read(Format::YamlList, CONTINUE, &["mcpServers"]);
    assert_eq!(all, Ok(Some(json!({ "files": files, "web": web }))));
    let entry = json!({ "command": "/opt/metamcp", "args": ["--home", "/x y"] });
    let after = set(Format::YamlList, CONTINUE, &["mcpServers", "metamcp"], &entry).unwrap();
    assert_eq!(read(Format::YamlList, &after, &["mcpServers", "metamcp"]), Ok(Some(entry.clone())));
    let (before, behind) = CONTINUE.split_at(CONTINUE.find("# the end").unwrap());
    assert!(after.starts_with(before) && after.ends_with(behind), "{after}");
    let again = remove(Format::YamlList, &after, &["mcpServers", "metamcp"]).unwrap();
    assert_eq!(again.as_deref(), Some(CONTINUE));
    // Down to the last, and up again.
    let mut text = CONTINUE.to_owned();
    for name in ["files", "web"] {
        text = remove(Format::YamlList, &text, &["mcpServers", name]).unwrap().unwrap();
    }
    assert_eq!(read(Format::YamlList, &text, &["mcpServers"]), Ok(Some(json!({}))), "{text}");
    assert!(text.contains("mcpServers: []\n") && text.contains("# reads files"), "{text}");
    let refilled = set(Format::YamlList, &text, &["mcpServers", "metamcp"], &entry).unwrap();
    assert_eq!(
        read(Format::YamlList, &refilled, &["mcpServers", "metamcp"]),
        Ok(Some(entry.clone())),
        "{refilled}"
    );
    assert!(refilled.contains("# the end\nrules: []\n"), "{refilled}");
    for text in [
        "",
        "name: Mine\n",
        "mcpServers:\n",
        "mcpServers: [] # none\r\nrules: []\r\n",
        "mcpServers:\n- name: a\n  command: b",
    ] {
        let after = set(Format::YamlList, text, &["mcpServers", "m"], &entry).unwrap();
        assert_eq!(
            read(Format::YamlList, &after, &["mcpServers", "m"]),
            Ok(Some(entry.clone())),
            "{after}"
        );
    }
    for text in [
        "mcpServers: [{name: a}]\n",
        "mcpServers:\n  - command: x\n",
        "mcpServers:\n  - uses: some/block\n",
        "mcpServers:\n  - name: a\n  - name: a\n",
        "mcpServers:\n  a:\n    command: x\n",
        "mcpServers:\n  - name: a\n    env: &x\n      A: b\n",
    ] {
        assert!(set(Format::YamlList, text, &["mcpServers", "m"], &entry).is_err(), "{text}");
    }
}

/// Entries put in and taken out together are what they are one by one.
#[test]
fn many_at_once_are_as_many_one_by_one() {
    let texts = [
        "{\n  // a\n  \"m\": {\n    \"one\": { \"x\": 1 }, // first\n    \"two\": 2,\n    /* c */ \"three\": [3]\n  }\n}\n",
        "{ \"m\": { \"one\": 1, \"two\": 2, \"three\": 3 } }",
        "{\n\t\"m\": {\n\t\t\"one\": 1,\n\t\t\"two\": 2,\n\t\t\"three\": 3,\n\t},\n}",
    ];
    let value = serde_json::json!({ "command": "x", "args": ["a"] });
    for text in texts {
        for names in
            [&["one"][..], &["two"], &["three"], &["one", "three"], &["two", "three"], &["none"]]
        {
            let together = remove_all(Format::Json, text, &["m"], names).unwrap();
            let mut each = text.to_owned();
            for name in names {
                each = remove(Format::Json, &each, &["m", name]).unwrap().unwrap_or(each);
            }
            let read = |text: &str| read(Format::Json, text, &[]).unwrap();
            assert_eq!(read(&together), read(&each), "{names:?}\n{together}");
            let fresh = [("four".to_owned(), value.clone()), ("two".to_owned(), value.clone())];
            let together = set_all(Format::Json, &together, &["m"], &fresh).unwrap();
            for (name, value) in &fresh {
                each = set(Format::Json, &each, &["m", name], value).unwrap();
            }
            assert_eq!(read(&together).unwrap()["m"]["four"], value, "{together}");
            assert_eq!(read(&together).unwrap()["m"]["two"], value, "{together}");
        }
        let none = remove_all(Format::Json, text, &["m"], &["three", "two", "one"]).unwrap();
        assert_eq!(read(Format::Json, &none, &["m"]), Ok(Some(serde_json::json!({}))), "{none}");
        let all = [("a".to_owned(), value.clone()), ("b".to_owned(), value.clone())];
        let back = set_all(Format::Json, &none, &["m"], &all).unwrap();
        assert_eq!(read(Format::Json, &back, &["m", "b"]), Ok(Some(value.clone())), "{back}");
    }
    let toml = "# mine\n[m.one]\na = 1 # kept\n\n[m.two]\nb = 2\n\n[z]\nc = 3\n";
    let without = remove_all(Format::Toml, toml, &["m"], &["two", "none"]).unwrap();
    assert_eq!(Ok(Some(without)), remove(Format::Toml, toml, &["m", "two"]));
    for (format, text) in [(Format::Toml, ""), (Format::Yaml, "a: 1\n"), (Format::Json, "")] {
        let all = [("a".to_owned(), value.clone()), ("b".to_owned(), value.clone())];
        let set = set_all(format, text, &["m"], &all).unwrap();
        assert_eq!(read(format, &set, &["m", "b"]), Ok(Some(value.clone())), "{set}");
    }
}

/// Texts of every format with the entries `one`, `two` and `three` under `m`, and line breaks of both kinds.
const SAMPLES: &[(Format, &str)] = &[
    (
        Format::Yaml,
        "# head\na: 1\nm:\n  # first\n  one:\n    x: 1\n\n  two:\n    args:\n    - a\n  three: {}\n\n# tail\nz: 2\n",
    ),
    (Format::Yaml, "m:\r\n  one:\r\n    x: 1\r\n  two: 2\r\n  three:\r\n    y: 3"),
    (
        Format::YamlList,
        "# head\nm:\n  # first\n  - name: one\n    x: 1\n\n  - name: two\n    args: [a]\n  - name: three\n    y: 1\n\n# tail\nz: 2\n",
    ),
    (Format::YamlList, "m:\r\n- name: one\r\n  x: 1\r\n- name: two\r\n- name: three"),
    (
        Format::Toml,
        "# head\n\n[m.one]\nx = 1\n\n# [m.old]\n# x = 2\n\n[m.two]\nb = 2 # b\n[m.two.env]\nK = 'v'\n\n[z]\nc = 3\n\n[m.three]\ny = 1\n",
    ),
    (
        Format::Toml,
        "[m]\n# about one\none = { x = 1 }\ntwo.x = [\n  1,\n]\nthree = 3\n\n[z]\nc = 1\n",
    ),
    (Format::Toml, "m.one.x = 1\r\nm.two.x = 2\r\nm.three.x = 3\r\n"),
    (Format::Toml, "m = { one = 1, two = 2, three = 3 }\n"),
    (
        Format::Json,
        "{\n  // a\n  \"m\": {\n    \"one\": 1,\n    \"two\": 2,\n    \"three\": 3\n  }\n}\n",
    ),
];

#[test]
fn the_text_of_many_at_once_is_that_of_one_by_one() {
    let entry = |value: u8| json!({ "command": "x", "args": ["a"], "env": { "K": value } });
    let all = ["one", "two", "three"];
    for &(format, text) in SAMPLES {
        for picked in 0..8 {
            let names: Vec<&str> = all
                .iter()
                .enumerate()
                .filter(|(at, _)| picked >> at & 1 == 1)
                .map(|(_, name)| *name)
                .collect();
            let without = remove_all(format, text, &["m"], &names).unwrap();
            let mut each = text.to_owned();
            for name in &names {
                each = remove(format, &each, &["m", name]).unwrap().expect("it is there");
                assert_eq!(remove(format, &each, &["m", name]), Ok(None), "{each}");
            }
            assert_eq!(without, each, "{text}");
            let fresh: Vec<(String, Value)> = [("four", 1), ("two", 2), ("five", 3), ("four", 4)]
                .map(|(name, value)| (name.to_owned(), entry(value)))
                .to_vec();
            let with = set_all(format, text, &["m"], &fresh).unwrap();
            let mut each = text.to_owned();
            for (name, value) in &fresh {
                each = set(format, &each, &["m", name], value).unwrap();
            }
            assert_eq!(with, each, "{text}");
            assert_eq!(read(format, &with, &["m", "four"]), Ok(Some(entry(4))), "{with}");
        }
    }
}

#[test]
fn an_entry_has_a_line() {
    let expected = [[5, 8, 11], [2, 4, 5], [4, 7, 9], [2, 4, 5], [3, 9, 17], [3, 4, 7], [1, 2, 3]];
    for (&(format, text), lines) in SAMPLES.iter().zip(expected) {
        for (name, at) in ["one", "two", "three"].into_iter().zip(lines) {
            assert_eq!(line(format, text, &["m", name]), Some(at), "{name} in\n{text}");
        }
        assert_eq!(line(format, text, &["m", "none"]), None);
    }
    assert_eq!(line(Format::Json, "{\n\"m\": {\n\"a\": 1 } }", &["m", "a"]), Some(3));
}

/// Read anew for each entry, this would take minutes.
#[test]
fn thousands_of_entries_are_put_in_and_taken_out_in_every_format() {
    for format in [Format::Json, Format::Toml, Format::Yaml, Format::YamlList] {
        let entry = json!({ "command": "npx", "args": ["-y", "server"], "env": { "K": "v" } });
        let all: Vec<(String, Value)> =
            (0..3_000).map(|at| (format!("s{at}"), entry.clone())).collect();
        let begun = set(format, "", &["m", "first"], &entry).unwrap();
        let with = set_all(format, &begun, &["m"], &all).unwrap();
        assert_eq!(set_all(format, &with, &["m"], &all).as_ref(), Ok(&with));
        let count =
            |text: &str| read(format, text, &["m"]).unwrap().unwrap().as_object().unwrap().len();
        assert_eq!(count(&with), all.len() + 1);
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(remove_all(format, &with, &["m"], &names), Ok(begun));
    }
}

#[test]
fn toml_stays_as_it_is_byte_for_byte_around_an_entry() {
    let head = "\u{feff}# my codex, by hand\r\nmodel = \"o\" # the model\r\n\r\n# [mcp_servers.old]\r\n# command = 'gone'\r\n";
    let entry = "\r\n[mcp_servers.a] # first\r\ncommand = 'x'\r\n# inside\r\nargs = [\r\n  \"y\", # why\r\n]\r\n\r\n[mcp_servers.a.env]\r\nK = \"\"\"\r\n[not.a.table]\r\n\"\"\"\r\n";
    let tail = "\r\n# about b\n[profiles.b]\nz = 1\r\n# the end";
    let before = format!("{head}{entry}{tail}");
    let gone = remove(Format::Toml, &before, &["mcp_servers", "a"]).unwrap();
    assert_eq!(gone, Some(format!("{head}{tail}")));
    let own = json!({ "command": "metamcp", "args": [] });
    let with = set(Format::Toml, &before, &["mcp_servers", "metamcp"], &own).unwrap();
    assert!(with.starts_with(&format!("{head}{entry}")) && with.ends_with(tail), "{with:?}");
    assert!(with.contains("\r\n[mcp_servers.metamcp]\r\ncommand = \"metamcp\"\r\n"), "{with:?}");
    assert_eq!(remove(Format::Toml, &with, &["mcp_servers", "metamcp"]), Ok(Some(before)));
    // At the top of the file, and alone in it.
    let gone = |text: &str| remove(Format::Toml, text, &["m", "a"]).unwrap().unwrap();
    assert_eq!(gone("[m.a]\nx = 1\n\n[z]\ny = 1\n"), "[z]\ny = 1\n");
    assert_eq!(gone("# head\n[m.a]\nx = 1"), "# head\n");
    assert_eq!(gone("[[m.a]]\nx = 1\n[[m.a]]\nx = 2\n# b\n[m.b]\n"), "# b\n[m.b]\n");
}
