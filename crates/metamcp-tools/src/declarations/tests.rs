//! How schemas read as declarations.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Declared, camel, for_server, for_tool, fuzz_declarations, identifier, resolve_tool};
use crate::tool::{Listing, ServerTools};

fn listed(tools: &Value) -> ServerTools {
    let mut listing = Listing::new();
    listing.page(json!({ "tools": tools }).to_string().as_bytes()).unwrap();
    listing.finish(None, None)
}

fn declared(tools: &Value, bound: usize) -> String {
    let tools = listed(tools);
    let tools: Vec<Declared<'_>> = tools.tools.iter().map(Declared::from).collect();
    for_server("my-server", "myServer", &tools, bound)
}

/// The type of one parameter.
fn type_of(schema: &Value) -> String {
    let tool =
        json!([{"name": "f", "inputSchema": {"properties": {"x": schema}, "required": ["x"]}}]);
    let tools = listed(&tool);
    for_tool(Declared::from(&tools.tools[0]), usize::MAX)
        .trim()
        .trim_start_matches("f(args: { x: ")
        .trim_end_matches(" }): Promise<any>;")
        .to_owned()
}

#[test]
fn names_of_the_language_are_no_methods() {
    let tools = json!([
        {"name": "then", "inputSchema": {"type": "object"}},
        {"name": "to_string", "inputSchema": {"type": "object"}}
    ]);
    let declared = declared(&tools, 10_000);
    assert!(
        declared.contains("// the tool then is no method here: call(\"then\", {…})"),
        "{declared}"
    );
    assert!(declared.contains("  to_string(") && !declared.contains("toString"), "{declared}");
}

#[test]
fn a_server_reads_like_a_library() {
    let tools = json!([
        {
            "name": "create_issue",
            "description": "Creates an issue. It is not idempotent. */ alert(1)",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "labels": {"type": "array", "items": {"type": "string"}, "description": "Names of labels.\nMore."},
                    "owner": {"type": "string", "description": "Account */ or organisation"},
                    "repo": {"type": "string"},
                    "due": {"type": "string", "format": "date-time"},
                    "per-page": {"type": "integer", "default": 30}
                },
                "required": ["owner", "repo"]
            },
            "outputSchema": {"type": "object", "properties": {"number": {"type": "integer"}, "url": {"type": "string"}}, "required": ["number"]}
        },
        {"name": "ping", "inputSchema": {"type": "object", "properties": {}}},
        {"name": "list-all", "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}},
        {"name": "get_x", "inputSchema": {"type": "object"}},
        {"name": "getX", "inputSchema": {"type": "object"}},
        {"name": "3d.render", "inputSchema": {"type": "object"}},
        {"name": "delete", "inputSchema": {"type": "object"}}
    ]);
    insta::assert_snapshot!(declared(&tools, 100_000));
}

#[test]
fn less_room_means_less_detail_before_fewer_tools() {
    let tool = |name: &str| {
        json!({"name": name, "description": "Does something with a tree.", "inputSchema": {
            "properties": {"node": {"description": "Where to start.", "properties": {"id": {"type": "string"}, "kind": {"enum": ["leaf", "branch"]}}}}
        }})
    };
    let tools: Value = (0..4).map(|n| tool(&format!("tool_{n}"))).collect();
    let all = [900, 720, 600, 400].map(|bound| declared(&tools, bound)).join("\n");
    insta::assert_snapshot!(all);
}

#[test]
fn types_are_those_of_the_schema() {
    for (schema, expected) in [
        (json!({"type": "string"}), "string"),
        (json!({"type": "integer"}), "number"),
        (json!({"type": ["string", "null"]}), "string | null"),
        (json!({"type": "string", "nullable": true}), "string | null"),
        (json!({"enum": ["a", 1, true, null, "a"]}), "\"a\" | 1 | true | null"),
        (json!({"const": "only"}), "\"only\""),
        (json!({"type": "array", "items": {"enum": ["a", "b"]}}), "(\"a\" | \"b\")[]"),
        (json!({"type": "array"}), "any[]"),
        (
            json!({"prefixItems": [{"type": "string"}, {"type": "number"}], "items": {"type": "null"}}),
            "[string, number, ...null[]]",
        ),
        (json!({"items": [{"type": "string"}]}), "[string]"),
        (json!({"type": "object"}), "Record<string, any>"),
        (json!({"additionalProperties": {"type": "number"}}), "Record<string, number>"),
        (
            json!({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "number"}}),
            "{ a?: string } & Record<string, number>",
        ),
        (
            json!({"patternProperties": {"^x": {"type": "number"}}, "type": "object"}),
            "Record<string, number>",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
            "string | string[]",
        ),
        (
            json!({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}),
            "{ a?: string } & { b: string }",
        ),
        (
            json!({"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            "{ a?: string }",
        ),
        (
            json!({"properties": {"a-b": {"type": "string"}, "class": {}, "": {}, "q\"": {}}}),
            "{ \"a-b\"?: string; class?: any; \"\"?: any; \"q\\\"\"?: any }",
        ),
        (json!(true), "any"),
        (json!(false), "never"),
        (json!({"type": "unheard-of"}), "any"),
        (json!({"$ref": "https://elsewhere"}), "any"),
        (json!({"enum": []}), "never"),
    ] {
        assert_eq!(type_of(&schema), expected, "{schema}");
    }
}

#[test]
fn references_are_followed_and_recursion_is_cut() {
    let tools = json!([{"name": "f", "inputSchema": {
        "properties": {"tree": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}}
    }}]);
    insta::assert_snapshot!(declared(&tools, 10_000));
}

#[test]
fn names_are_written_as_code() {
    for (server, expected) in [
        ("github", "github"),
        ("my-server", "myServer"),
        ("my_server", "myServer"),
        ("7zip", "_7zip"),
        ("new", "new_"),
        ("a.b c", "aBC"),
        ("", "_"),
        ("日本", "_"),
        ("GitHub", "gitHub"),
        ("AWS", "AWS"),
        ("_x", "_x"),
        ("--x--", "x"),
    ] {
        assert_eq!(identifier(server), expected, "{server}");
    }
    assert_eq!(camel("create_issue"), "createIssue");
    assert_eq!(camel("API-get-user"), "APIGetUser");
    let names = ["create_issue", "get_x", "getX", "a_b", "a-b"];
    assert_eq!(resolve_tool("create_issue", names), Some("create_issue"));
    assert_eq!(resolve_tool("createIssue", names), Some("create_issue"));
    assert_eq!(resolve_tool("getX", names), Some("getX"));
    assert_eq!(resolve_tool("aB", names), None);
    assert_eq!(resolve_tool("nothing", names), None);
}

#[test]
fn observed_shapes_stand_in_for_a_missing_output_schema() {
    let tools = listed(&json!([{"name": "f", "inputSchema": {}}]));
    let observed = json!({"type": "array", "items": {"properties": {"id": {"type": "number"}}, "required": ["id"]}});
    let text = for_tool(Declared { tool: &tools.tools[0], observed: Some(&observed) }, 1_000);
    assert_eq!(text, "  f(): Promise<{ id: number }[]>;\n");
}

#[test]
fn a_hostile_schema_stays_within_its_bound() {
    let mut deep = json!({"type": "string"});
    for _ in 0..60 {
        deep = json!({"anyOf": [deep.clone(), {"properties": {"a": deep}}]})
            .as_object()
            .map(|_| json!({"properties": {"n": deep}}))
            .unwrap();
    }
    let wide: Value = Value::Object(
        (0..5_000)
            .map(|n| (format!("p{n}"), json!({"type": "string", "description": "x".repeat(50)})))
            .collect(),
    );
    for schema in [json!({"properties": {"d": deep}}), json!({"properties": wide})] {
        let text = declared(&json!([{"name": "f", "inputSchema": schema}]), 4_000);
        assert!(text.len() <= 4_000, "{} bytes", text.len());
    }
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "description": "a */ b\u{202e}\n// c"})),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/properties/a"})),
        Just(json!({"enum": ["x", 1, null, {}]})),
        Just(json!(null)),
        any::<String>().prop_map(|text| json!({"const": text, "type": text, "default": text})),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec((any::<String>(), inner.clone()), 0..5).prop_map(|pairs| {
                let names: Vec<String> = pairs.iter().map(|(name, _)| name.clone()).collect();
                json!({"type": "object", "properties": serde_json::Map::from_iter(pairs), "required": names})
            }),
            prop::collection::vec(inner.clone(), 0..8).prop_map(|parts| json!({"anyOf": parts})),
            prop::collection::vec(inner.clone(), 0..8).prop_map(|parts| json!({"allOf": parts, "nullable": true})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            inner.prop_map(|values| json!({"type": "object", "additionalProperties": values})),
        ]
    })
}

proptest! {
    #[test]
    fn every_declaration_stays_within_its_bound(a in schema(), b in schema(), bound in 300usize..5_000) {
        let schema = json!({"properties": {"a": a, "b": b}});
        fuzz_declarations(schema.to_string().as_bytes());
        let text = declared(&json!([{"name": "f", "description": "*/ x", "inputSchema": schema, "outputSchema": a}]), bound);
        prop_assert!(text.len() <= bound, "{} of {bound} bytes", text.len());
    }

    #[test]
    fn every_server_gets_an_identifier(name in any::<String>()) {
        let identifier = identifier(&name);
        prop_assert!(super::name::is_identifier(&identifier), "{identifier}");
    }
}
