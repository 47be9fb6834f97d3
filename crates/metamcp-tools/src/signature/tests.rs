//! How schemas read.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_CHARS, MAX_DETAIL_CHARS, fuzz_signature, of_schema, within};

fn check(schema: impl std::borrow::Borrow<Value>, expected: &str) {
    assert_eq!(of_schema("f", Some(schema.borrow())), expected);
}

#[test]
fn types_read_as_a_programmer_writes_them() {
    check(json!({}), "f()");
    check(json!({"type": "object", "properties": {}}), "f()");
    check(
        json!({"properties": {"head": {"type": "number"}, "path": {"type": "string"}}, "required": ["path"]}),
        "f(path: string, head?: number)",
    );
    check(json!({"properties": {"m": {"enum": ["a", "b", 3, null]}}}), "f(m?: \"a\"|\"b\"|3|null)");
    check(json!({"properties": {"m": {"const": "x"}}}), "f(m?: \"x\")");
    check(json!({"properties": {"m": {"enum": [1, 2, 3, 4, 5, 6, 7]}}}), "f(m?: 1|2|3|4|5|6|…)");
    check(
        json!({"properties": {"t": {"type": "array", "items": {"type": "string"}}}}),
        "f(t?: string[])",
    );
    check(
        json!({"properties": {"t": {"type": "array", "items": {"enum": ["a", "b"]}}}}),
        "f(t?: (\"a\"|\"b\")[])",
    );
    check(json!({"properties": {"t": {"type": "array"}}}), "f(t?: array)");
    check(
        json!({"properties": {"t": {"prefixItems": [{"type": "string"}, {"type": "null"}], "type": "array"}}}),
        "f(t?: [string, null])",
    );
    check(json!({"properties": {"t": {"type": ["string", "null"]}}}), "f(t?: string|null)");
    check(
        json!({"properties": {"t": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]}}}),
        "f(t?: string|integer)",
    );
    check(json!({"properties": {"t": {"type": "number", "default": 5}}}), "f(t?: number = 5)");
    check(
        json!({"properties": {"t": {"type": "string", "default": "x y"}}}),
        "f(t?: string = \"x y\")",
    );
    check(
        json!({"properties": {"o": {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "string"}}, "required": ["a"]}}}),
        "f(o?: {a: string, b?: number})",
    );
    check(
        json!({"properties": {"o": {"type": "object", "additionalProperties": {"type": "string"}}}}),
        "f(o?: {[key]: string})",
    );
    check(json!({"additionalProperties": {"type": "number"}}), "f([key]: number)");
    check(json!({"properties": {"x": {}, "y": true, "z": 7}}), "f(x?: any, y?: any, z?: any)");
    check(json!({"properties": {"two words": {"type": "string"}}}), "f(\"two words\"?: string)");
    check(json!({"properties": {"a\u{202e}\u{1b}[31mb": {"type": "string"}}}), "f(ab?: string)");
}

#[test]
fn more_room_shows_what_is_inside() {
    let names = ["include", "exclude", "extensions", "languages", "owners", "labels", "folders"];
    let option =
        |name: &str| (name.to_owned(), json!({"type": "array", "items": {"enum": ["one", "two"]}}));
    let options: serde_json::Map<_, _> = names.iter().map(|name| option(name)).collect();
    let inside = json!({"type": "object", "properties": options});
    let schema = json!({"properties": {"first": inside, "second": inside, "options": inside}});
    let short = of_schema("f", Some(&schema));
    assert_eq!(short, "f(first?: object, second?: object, options?: object)");
    let full = within("f", Some(&schema), MAX_DETAIL_CHARS);
    assert!(full.contains("options?: {include?: (\"one\"|\"two\")[], "), "{full}");
    let many: serde_json::Map<_, _> =
        (0..500).map(|at| (format!("parameter_{at}"), json!({"type": "string"}))).collect();
    let bounded = within("f", Some(&json!({"properties": many})), MAX_DETAIL_CHARS);
    assert!(bounded.chars().count() <= MAX_DETAIL_CHARS && bounded.contains("…+"), "{bounded}");
}

#[test]
fn references_are_followed_and_loops_end() {
    check(
        json!({"properties": {"p": {"$ref": "#/$defs/point"}}, "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}}}),
        "f(p?: {x?: number})",
    );
    check(
        json!({"$ref": "#/definitions/args", "definitions": {"args": {"properties": {"a": {"type": "string"}}}}}),
        "f(a?: string)",
    );
    check(
        json!({"properties": {"node": {"$ref": "#"}, "n": {"type": "integer"}}}),
        "f(node?: {node?: {node?: {node?: object, n?: integer}, n?: integer}, n?: integer}, n?: integer)",
    );
    check(json!({"$ref": "#"}), "f()");
    check(json!({"properties": {"r": {"$ref": "https://example.com/x"}}}), "f(r?: any)");
}

#[test]
fn long_ones_lose_their_insides_first_and_then_their_tail() {
    let member = json!({"type": "object", "properties": {
        "one_rather_long_name": {"type": "string"}, "another_rather_long_name": {"type": "string"}
    }});
    let properties: serde_json::Map<String, Value> =
        (0..6).map(|n| (format!("param{n}"), member.clone())).collect();
    check(
        json!({"properties": properties}),
        "f(param0?: object, param1?: object, param2?: object, param3?: object, param4?: object, param5?: object)",
    );
    let many: serde_json::Map<String, Value> =
        (0..500).map(|n| (format!("param{n}"), json!({"type": "string"}))).collect();
    let line = of_schema("f", Some(&json!({"properties": many, "required": ["param499"]})));
    assert!(line.starts_with("f(param499: string, param0?: string, "), "{line}");
    assert!(line.ends_with("…+484)"), "{line}");
    assert!(line.chars().count() <= MAX_CHARS);
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string"})),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/properties/a"})),
        Just(json!({"enum": ["x", 1, null, {}]})),
        Just(json!(true)),
        Just(json!(null)),
        any::<String>().prop_map(|text| json!({"const": text, "type": text})),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec((any::<String>(), inner.clone()), 0..4).prop_map(|pairs| {
                let names: Vec<String> = pairs.iter().map(|(name, _)| name.clone()).collect();
                json!({"type": "object", "properties": serde_json::Map::from_iter(pairs), "required": names})
            }),
            prop::collection::vec(inner.clone(), 0..8).prop_map(|parts| json!({"anyOf": parts})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

proptest! {
    #[test]
    fn every_signature_is_one_short_visible_line(schema in schema(), a in schema()) {
        fuzz_signature(json!({"properties": {"a": a, "b": schema}}).to_string().as_bytes());
        fuzz_signature(schema.to_string().as_bytes());
    }

    #[test]
    fn anything_like_a_schema_is_read(text in r#"([{}\[\],: ]|"(type|properties|items|enum|anyOf|\$ref|required|default|object|array|#|\\u202e|\\u0007)"|[0-9e.-]|true|null){0,40}"#) {
        fuzz_signature(text.as_bytes());
    }

    #[test]
    fn numbers_and_words_of_any_length_are_cut(word in any::<String>(), number in any::<f64>(), times in 1usize..400) {
        let long = word.repeat(times);
        let schema = json!({"properties": {&long: {"default": number, "enum": [&long, number]}}, "required": [&long]});
        fuzz_signature(schema.to_string().as_bytes());
    }
}
