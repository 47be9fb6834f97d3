//! The validator against the `jsonschema` crate, then its messages, then its bounds.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::node::NodeId;
use super::validate::{Validator, Validity};
use super::{Checker, Violation, render};

fn check(schema: &Value, arguments: &Value) -> Result<(), Vec<Violation>> {
    Checker::new(schema).check(arguments)
}

fn validate(schema: &Value, value: &Value) -> Validity {
    Validator::new(&Checker::new(schema)).validate(NodeId::ROOT, value)
}

/// What the oracle says; nothing where it cannot read the schema.
fn oracle(schema: &Value, value: &Value) -> Option<bool> {
    jsonschema::validator_for(schema).ok().map(|validator| validator.is_valid(value))
}

/// Values small enough to hit each other's edges often.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        prop_oneof![
            Just(0.5),
            Just(1.0),
            Just(2.0),
            Just(-1.5),
            Just(1e300),
            Just(9_007_199_254_740_993.0)
        ]
        .prop_map(Value::from),
        prop_oneof![Just(u64::MAX), Just(9_007_199_254_740_993), Just(1 << 53)]
            .prop_map(Value::from),
        prop_oneof![Just(""), Just("a"), Just("ab"), Just("é"), Just("1"), Just("abcdef")]
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::Object),
        ]
    })
}

fn members(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((prop::sample::select(vec!["a", "b", "c", "d"]), inner), 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn type_name() -> impl Strategy<Value = Value> {
    prop::sample::select(vec!["null", "boolean", "integer", "number", "string", "array", "object"])
        .prop_map(Value::from)
}

/// One keyword and its value. `judged` leaves out what the checker does not judge.
fn keyword(inner: &BoxedStrategy<Value>, judged: bool) -> BoxedStrategy<(String, Value)> {
    let named = |name: &'static str, value: BoxedStrategy<Value>| {
        value.prop_map(move |value| (name.to_owned(), value)).boxed()
    };
    let small = || (0u64..4).prop_map(Value::from).boxed();
    let number = || {
        prop_oneof![(-2i64..4).prop_map(Value::from), Just(json!(0.5)), Just(json!(1.0))].boxed()
    };
    let list = |inner: &BoxedStrategy<Value>| {
        prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from).boxed()
    };
    let names = || {
        prop::sample::subsequence(vec!["a", "b", "c", "x"], 0..3)
            .prop_map(|names| json!(names))
            .boxed()
    };
    let types = || {
        prop::sample::subsequence(
            vec!["null", "boolean", "integer", "string", "array", "object"],
            1..4,
        )
    };
    let mut all = vec![
        named("type", type_name().boxed()),
        named("type", types().prop_map(|names| json!(names)).boxed()),
        named("properties", members(inner.clone()).prop_map(Value::Object).boxed()),
        named("required", names()),
        named("additionalProperties", inner.clone()),
        named("items", inner.clone()),
        named("prefixItems", list(inner)),
        named("enum", prop::collection::vec(value(), 1..4).prop_map(Value::from).boxed()),
        named("const", value().boxed()),
        named("minimum", number()),
        named("maximum", number()),
        named("exclusiveMinimum", number()),
        named("exclusiveMaximum", number()),
        named("minLength", small()),
        named("maxLength", small()),
        named("minItems", small()),
        named("maxItems", small()),
        named("minProperties", small()),
        named("maxProperties", small()),
        named("anyOf", list(inner)),
        named("oneOf", list(inner)),
        named("allOf", list(inner)),
        named("not", inner.clone()),
        named("if", inner.clone()),
        named("then", inner.clone()),
        named("else", inner.clone()),
        named(
            "$ref",
            prop::sample::select(vec!["#/$defs/one", "#/$defs/two"]).prop_map(Value::from).boxed(),
        ),
    ];
    if !judged {
        all.extend([
            named("pattern", Just(json!("^a")).boxed()),
            named("format", Just(json!("date")).boxed()),
            named("multipleOf", Just(json!(2)).boxed()),
            named("uniqueItems", Just(json!(true)).boxed()),
            named("contains", inner.clone()),
            named("propertyNames", Just(json!({"maxLength": 1})).boxed()),
            named("patternProperties", Just(json!({"^a": {"type": "string"}})).boxed()),
            named("unevaluatedProperties", Just(json!(false)).boxed()),
            named("dependentRequired", Just(json!({"a": ["b"]})).boxed()),
            named("$anchor", Just(json!("here")).boxed()),
            named("title", Just(json!("a title")).boxed()),
            named("default", value().boxed()),
        ]);
    }
    proptest::strategy::Union::new(all).boxed()
}

fn schema(judged: bool) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => type_name().prop_map(|name| json!({"type": name})),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(json!({})),
    ]
    .boxed();
    let part = leaf.prop_recursive(3, 24, 3, move |inner| {
        prop::collection::vec(keyword(&inner.boxed(), judged), 1..4)
            .prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
    });
    let drafts = prop::sample::select(vec![
        None,
        Some("http://json-schema.org/draft-07/schema#"),
        Some("http://json-schema.org/draft-04/schema#"),
        Some("https://json-schema.org/draft/2019-09/schema"),
    ]);
    (part.clone(), part.clone(), part, drafts).prop_map(|(root, one, two, draft)| {
        let mut root = match root {
            Value::Object(map) => map,
            other => Map::from_iter([("allOf".to_owned(), json!([other]))]),
        };
        root.insert(
            "$defs".to_owned(),
            json!({"one": without_references(one), "two": without_references(two)}),
        );
        if let Some(draft) = draft {
            root.insert("$schema".to_owned(), Value::from(draft));
        }
        Value::Object(root)
    })
}

/// Definitions that refer to each other can loop without consuming anything, which the oracle answers with a
/// stack overflow; such schemas are for the tests of the bounds.
fn without_references(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, _)| key != "$ref");
            Value::Object(kept.map(|(key, value)| (key, without_references(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_references).collect(),
        scalar => scalar,
    }
}

/// What may leave the checker unsure among the keywords it judges: draft 4 told 1.0 from 1, both ways to list
/// constants at once are not read, and floating point cannot tell some large numbers apart.
fn may_be_unsure(schema: &Value, value: &Value) -> bool {
    let text = format!("{schema} {value}");
    ["draft-04", "9007199254740", "18446744073709551615", "e300"]
        .iter()
        .any(|mark| text.contains(mark))
        || (text.contains("\"enum\"") && text.contains("\"const\""))
}

proptest! {
    #[test]
    fn what_the_oracle_accepts_is_never_refused(schema in schema(false), value in value()) {
        if oracle(&schema, &value) == Some(true) {
            prop_assert_eq!(check(&schema, &value), Ok(()));
        }
    }

    #[test]
    fn what_is_judged_is_judged_alike(schema in schema(true), value in value()) {
        if let Some(valid) = oracle(&schema, &value) {
            match validate(&schema, &value) {
                Validity::Yes => prop_assert!(valid),
                Validity::No => prop_assert!(!valid),
                Validity::Unknown => prop_assert!(may_be_unsure(&schema, &value)),
            }
        }
    }

    #[test]
    fn a_refusal_always_has_a_reason(schema in schema(false), value in value()) {
        if let Err(violations) = check(&schema, &value) {
            prop_assert!(!violations.is_empty() && violations.len() <= super::MAX_VIOLATIONS);
            prop_assert!(violations.iter().all(|violation| !violation.expected.is_empty()));
        }
    }
}

#[test]
fn words_for_each_kind_of_mistake() {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "mode": {"enum": ["read", "write"]},
            "count": {"type": "integer", "minimum": 1, "maximum": 10},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "target": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"id": {"type": "number"}}, "required": ["id"]}]},
            "options": {"$ref": "#/$defs/options"}
        },
        "required": ["path"],
        "additionalProperties": false,
        "$defs": {"options": {"type": "object", "properties": {"deep": {"type": ["boolean", "null"]}}}}
    });
    let said = |arguments: Value| match check(&schema, &arguments) {
        Ok(()) => "fine".to_owned(),
        Err(violations) => render(&violations, "f(path: string)"),
    };
    let cases = [
        json!({"path": "a"}),
        json!({}),
        json!([]),
        json!({"path": ""}),
        json!({"path": 5, "mode": "append", "count": 0, "tags": ["a", 1, "b"], "pth": 1}),
        json!({"path": "a", "count": 2.5}),
        json!({"path": "a", "target": {"id": "x"}}),
        json!({"path": "a", "target": 7}),
        json!({"path": "a", "options": {"deep": "yes"}}),
        json!({"path": "a", "zzz": {}}),
        json!({"paht": "a"}),
    ];
    let told: Vec<String> =
        cases.into_iter().map(|case| format!("{case}\n{}", said(case.clone()))).collect();
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn a_stranger_cannot_make_the_check_long() {
    let steep = json!({"$ref": "#/$defs/a", "$defs": {
        "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]},
        "b": {"anyOf": [{"$ref": "#/$defs/c"}, {"$ref": "#/$defs/c"}, {"$ref": "#/$defs/c"}]},
        "c": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}
    }});
    assert_eq!(check(&steep, &json!(1)), Ok(()));
    for endless in [
        json!({"$ref": "#"}),
        json!({"not": {"$ref": "#"}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
    ] {
        assert_eq!(check(&endless, &json!({})), Ok(()), "{endless}");
    }
    let wide: Map<String, Value> =
        (0..20_000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    assert_eq!(
        check(&json!({"properties": wide}), &json!({"p19999": 1})),
        Ok(()),
        "beyond what is read"
    );
    let long: Vec<Value> = (0..100_000).map(Value::from).collect();
    assert_eq!(check(&json!({"items": {"type": "string"}}), &json!(long)).unwrap_err().len(), 5);
    assert_eq!(check(&json!({"items": {"type": "integer"}}), &json!(long)), Ok(()));
    let mut deep = json!(1);
    let mut deep_schema = json!({"type": "integer"});
    for _ in 0..2_000 {
        deep = Value::from(vec![deep]);
        deep_schema = Value::Object(Map::from_iter([("items".to_owned(), deep_schema)]));
    }
    assert_eq!(check(&deep_schema, &deep), Ok(()));
    // Taken apart by hand: dropping nested values recurses, too.
    for value in [&mut deep, &mut deep_schema] {
        while let Some(inner) =
            value.get_mut(0).map(Value::take).or_else(|| value.get_mut("items").map(Value::take))
        {
            *value = inner;
        }
    }
}

#[test]
fn a_recursive_schema_is_followed_along_the_value() {
    let tree = json!({
        "type": "object",
        "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["value"]
    });
    let fine = json!({"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]});
    assert_eq!(check(&tree, &fine), Ok(()));
    let wrong = json!({"value": 1, "children": [{"value": 2, "children": [{"value": "3"}]}]});
    let violations = check(&tree, &wrong).unwrap_err();
    assert_eq!(
        violations[0].to_string(),
        "children[0].children[0].value: expected integer, got \"3\""
    );
}

#[test]
fn what_is_not_understood_passes() {
    for schema in [
        json!({"type": "string", "pattern": "^(a+)+$"}),
        json!({"not": {"pattern": "b"}}),
        json!({"$ref": "https://example.com/schema.json"}),
        json!({"not": {"$ref": "file:///etc/passwd"}}),
        json!({"type": "text"}),
        json!({"type": 7, "required": "a", "properties": []}),
        json!({"$id": "x", "properties": {"a": {"$id": "y", "$ref": "#/properties/a"}}}),
        json!("not a schema"),
        json!(null),
    ] {
        assert_eq!(check(&schema, &json!("aaaaaaaaaaaaaaaaaaaaaaaaaaaa!")), Ok(()), "{schema}");
    }
    assert_eq!(check(&json!({"type": "string", "nullable": true}), &json!(null)), Ok(()));
}

#[test]
fn only_a_schema_that_lets_every_object_pass_is_trivial() {
    for schema in [
        json!(true),
        json!({}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}}),
    ] {
        assert!(Checker::new(&schema).is_trivial(), "{schema}");
    }
    for schema in [
        json!(false),
        json!({"type": "array"}),
        json!({"required": ["a"]}),
        json!({"properties": {"a": {}}}),
        json!({"additionalProperties": false}),
        json!({"$ref": "#/a", "a": false}),
        json!({"minProperties": 1}),
    ] {
        assert!(!Checker::new(&schema).is_trivial(), "{schema}");
    }
}

#[test]
fn plain_arguments_are_told_without_building_them() {
    let checker = Checker::new(&json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "deep": {"type": "boolean", "default": false},
        },
        "required": ["text"],
        "additionalProperties": false,
    }));
    for raw in [r#"{"text":"a"}"#, r#"{ "count" : -12 , "text":"\u0061", "ratio":1e3,"deep":true}"#]
    {
        assert!(checker.surely_fits(raw.as_bytes()), "{raw}");
        assert_eq!(checker.check(&serde_json::from_str(raw).unwrap()), Ok(()));
    }
    for raw in [
        "{}",
        r#"{"text":1}"#,
        r#"{"text":"a","text":"b"}"#,
        r#"{"text":"a","\u0074ext":"b"}"#,
        r#"{"text":"a","count":1.0}"#,
        r#"{"text":"a","other":1}"#,
        r#"{"text":"a","deep":null}"#,
        r#"["text"]"#,
    ] {
        assert!(!checker.surely_fits(raw.as_bytes()), "{raw}");
    }
    for schema in [
        json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}),
        json!({"type": "object", "properties": {"a": {"type": "array"}}}),
        json!({"type": "object", "properties": {}, "minProperties": 1}),
        json!({"type": "object", "properties": {}, "required": ["a"]}),
    ] {
        assert!(!Checker::new(&schema).surely_fits(br#"{"a":"b"}"#), "{schema}");
        assert!(
            !Checker::new(&schema).surely_fits(b"{}") || schema["properties"].get("a").is_some(),
            "{schema}"
        );
    }
}

proptest! {
    #[test]
    fn what_surely_fits_passes_the_full_check(schema in schema(false), value in value()) {
        let checker = Checker::new(&schema);
        if checker.surely_fits(value.to_string().as_bytes()) {
            prop_assert_eq!(checker.check(&value), Ok(()));
        }
    }
}
