use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::execution::CallTally;
use metamcp_search::search::Hit;
use metamcp_tools::tool::{Listing, ServerTools};

fn fits(tool: &str, structured: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(structured)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(structured)));
    let schema = output_schema(tool);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{tool}: {wrong:?}\n{value:#}");
    value
}

fn listed(tools: &Value) -> Arc<ServerTools> {
    let mut listing = Listing::new();
    drop(listing.page(json!({ "tools": tools }).to_string().as_bytes()));
    Arc::new(listing.finish(None, None))
}

fn documented<'a>(hit: &'a Hit, tags: &'a [String], used: Option<&'a Value>) -> Documented<'a> {
    Documented { hit, tags, about: Some("a server\u{1b}[31m"), configured: &[], used }
}

fn some_error(code: &str, step: Option<usize>) -> Value {
    let mut error = json!({ "code": code, "message": "m", "retryable": false });
    if let Some(step) = step {
        error["step_index"] = step.into();
        error["details"] = json!({ "cause": { "code": "timeout" } });
    }
    error
}

#[test]
fn every_tool_is_listed_with_both_schemas_and_the_schemas_are_schemas() {
    let tools = tools("a - files\nb - mail", Some("2000 calls, 120 s"));
    assert_eq!(tools.len(), NAMES.len());
    for tool in &tools {
        for schema in ["inputSchema", "outputSchema"] {
            assert_eq!(tool[schema]["type"], "object", "{tool}");
            assert!(jsonschema::meta::is_valid(&tool[schema]), "{tool}");
        }
        assert!(tool["title"].is_string() && tool["annotations"]["readOnlyHint"].is_boolean());
    }
    assert!(tools[0]["description"].as_str().unwrap().contains("a - files"));
    assert_eq!(super::tools("", None).len(), NAMES.len() - 1);
}

#[test]
fn a_refusal_of_any_tool_fits_its_schema() {
    for name in NAMES {
        let answer = refused(name, &some_error("timeout", Some(3)));
        let value = fits(name, answer.to_string().as_bytes());
        assert_eq!(value["error"]["step_index"], 3);
    }
}

#[test]
fn wrong_arguments_are_named_with_the_tool() {
    let check = |said: Result<(), BadArguments>, expected: &str| {
        assert_eq!(said.unwrap_err().to_string(), expected);
    };
    let search = |raw: &str| SearchRequest::decode(Some(raw.as_bytes())).map(drop);
    check(search("[]"), "the arguments of search_tools cannot be used: they are not an object");
    check(search("{}"), "search_tools needs `query`: what the tool should do, in words");
    check(search(r#"{"query":1}"#), "`query` of search_tools must be a string");
    check(search(r#"{"query":"x","limit":1.5}"#), "`limit` of search_tools must be a whole number");
    check(search(r#"{"qurey":"x"}"#), "search_tools does not know `qurey`; did you mean `query`?");
    check(
        search(r#"{"query":"x","query":"y"}"#),
        "the arguments of search_tools cannot be used: `query` is given twice",
    );
    let describe = |raw: &str| DescribeRequest::decode(Some(raw.as_bytes())).map(drop);
    check(
        describe(r#"{"tool_id":"a:b","detail_level":"all"}"#),
        "`detail_level` of describe_tool must be \"summary\", \"schema\" or \"full\"",
    );
    let run = |raw: &str| RunRequest::decode(Some(raw.as_bytes())).map(drop);
    check(
        run(r#"{"tool_id":"a:b","arguments":{}}"#),
        "run_tool does not know `arguments`; it takes tool_id, args, stream, include_tool, include_backend, include_mcp_result, backend_override",
    );
    let chain = |raw: &str| ChainRequest::decode(Some(raw.as_bytes())).map(drop);
    check(
        chain(r#"{"steps":[]}"#),
        "run_chain needs `steps`: a list of {\"tool_id\": …, \"args\": {…}}",
    );
    check(
        chain(r#"{"steps":[{"tool_id":"a:b","use_previous":true}]}"#),
        "`steps[0].use_previous` of run_chain must be false or absent in the first step, which has none before it",
    );
    check(
        chain(r#"{"steps":[{"tool_id":"a:b","id":"x"},{"tool_id":"a:b","id":"x"}]}"#),
        "`steps[1].id` of run_chain must be an id that no other step has",
    );
    check(
        chain(r#"{"steps":[{"args":{}}]}"#),
        "run_chain needs `steps[0].tool_id`: a tool's id, NAMESPACE:NAME",
    );
    let many = format!("{{\"steps\":[{}]}}", vec![r#"{"tool_id":"a:b"}"#; 33].join(","));
    check(chain(&many), "`steps` of run_chain must be at most 32 steps");
}

#[test]
fn less_than_nothing_is_refused() {
    let code = |member: &str| {
        let raw = format!("{{\"code\":\"1\",{member}}}");
        CodeRequest::decode(Some(raw.as_bytes())).map_err(|bad| bad.to_string())
    };
    let wrong = |name, least| {
        Err(format!("`{name}` of execute_code must be a whole number, {least} or more"))
    };
    assert_eq!(code("\"timeout_ms\":-5").map(drop), wrong("timeout_ms", 1));
    assert_eq!(code("\"timeout_ms\":0").map(drop), wrong("timeout_ms", 1));
    assert_eq!(code("\"max_tool_calls\":-1").map(drop), wrong("max_tool_calls", 0));
    assert_eq!(code("\"max_tool_calls\":0").map(|asked| asked.max_tool_calls), Ok(Some(0)));
}

#[test]
fn limits_are_clamped_and_never_an_error() {
    let limit = |raw: &str| SearchRequest::decode(Some(raw.as_bytes())).unwrap().limit;
    assert_eq!(limit(r#"{"query":"x"}"#), 0, "how many are shown is left to the search");
    assert_eq!(limit(r#"{"query":"x","limit":1e9}"#), 100);
    assert_eq!(limit(r#"{"query":"x","limit":-5}"#), 1);
    let examples = |raw: &str| ExamplesRequest::decode(Some(raw.as_bytes())).unwrap().max;
    assert_eq!(
        (examples(r#"{"tool_id":"a:b","max":99}"#), examples(r#"{"tool_id":"a:b"}"#)),
        (5, 5)
    );
}

#[test]
fn references_are_replaced_byte_for_byte() {
    let done = [
        CompletedStep {
            id: Some("first"),
            structured: br#"{"items":[{"n":12345678901234567890}],"a/b":"x"}"#,
        },
        CompletedStep { id: None, structured: b"[1,2]" },
    ];
    let check = |args: &str, use_previous: bool, expected: &str| {
        let made = arguments_of(Some(args.as_bytes()), use_previous, &done).unwrap();
        assert_eq!(std::str::from_utf8(&made).unwrap(), expected);
    };
    check(r#"{"x":{"$from":"first","path":"/items/0/n"}}"#, false, r#"{"x":12345678901234567890}"#);
    check(r#"{"x":[{"$from":0,"path":"/a~1b"},{"$from":"1"}]}"#, false, r#"{"x":["x",[1,2]]}"#);
    check(r#"{"x":{"\u0024from":1,"path":"/1"}}"#, false, r#"{"x":2}"#);
    check(r#"{"keep":  1.50}"#, false, r#"{"keep":  1.50}"#);
    check(r#"{"a":1}"#, true, r#"{"a":1,"previous":[1,2]}"#);
    check(r#"{"cost":"$5"}"#, false, r#"{"cost":"$5"}"#);
    assert_eq!(&*arguments_of(None, true, &done).unwrap(), br#"{"previous":[1,2]}"#);
}

#[test]
fn a_reference_that_leads_nowhere_says_so() {
    let done = [CompletedStep { id: Some("first"), structured: br#"{"items":[]}"# }];
    let check = |args: &str, expected: &str| {
        let error = arguments_of(Some(args.as_bytes()), false, &done).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        r#"{"x":{"$from":"other"}}"#,
        "no step before this one is called \"other\"; there are 0 to 0 and first",
    );
    check(
        r#"{"x":{"$from":1}}"#,
        "no step before this one is called \"1\"; there are 0 to 0 and first",
    );
    check(
        r#"{"x":{"$from":0,"path":"/items/3"}}"#,
        "the result of step 0 has nothing at \"/items/3\"; it is an object with items",
    );
    check(
        r#"{"x":{"$from":0,"pth":""}}"#,
        "a reference is {\"$from\": step id or index, \"path\": \"/json/pointer\"}, and this one has something else in it",
    );
    check(
        r#"{"x":{"$from":0,"path":7}}"#,
        "a reference is {\"$from\": step id or index, \"path\": \"/json/pointer\"}, and the path of this one is no string",
    );
}

#[test]
fn a_result_is_read_as_the_value_it_means() {
    let check = |result: &Value, value: &str, is_plain: bool| {
        let raw = result.to_string();
        let outcome = read(raw.as_bytes());
        assert_eq!(
            (std::str::from_utf8(&outcome.structured).unwrap(), outcome.is_plain),
            (value, is_plain),
            "{raw}"
        );
    };
    let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    check(&text("hello"), "\"hello\"", true);
    check(&text("{\"a\": 1}"), "{\"a\": 1}", true);
    check(&text("[1,\n2]"), "[1, 2]", true);
    check(&text("42"), "42", true);
    check(&text("007"), "\"007\"", true);
    check(&text("1.0"), "\"1.0\"", true);
    check(&text("12345678901234567890"), "\"12345678901234567890\"", true);
    check(&text("{broken"), "\"{broken\"", true);
    check(&json!({ "content": [] }), "null", true);
    check(&json!({ "content": [{ "type": "image", "data": "AA" }] }), "null", false);
    check(&json!({ "content": [], "structuredContent": { "a": 1 } }), "{\"a\":1}", true);
    check(
        &json!({ "content": [{ "type": "text", "text": "{ \"a\": 1 }" }], "structuredContent": { "a": 1 } }),
        "{\"a\":1}",
        true,
    );
    check(
        &json!({ "content": [{ "type": "text", "text": "in words" }], "structuredContent": { "a": 1 } }),
        "{\"a\":1}",
        false,
    );
    check(
        &json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }),
        "\"a\\nb\"",
        false,
    );
    check(
        &json!({ "content": [{ "type": "text", "text": "a" }], "_meta": { "x": 1 } }),
        "\"a\"",
        false,
    );
}

#[test]
fn a_failed_tool_is_quoted_without_control_characters() {
    let raw = json!({ "isError": true, "content": [{ "type": "text", "text": "no \u{1b}[31msuch file" }] })
        .to_string();
    let outcome = read(raw.as_bytes());
    assert!(outcome.is_error);
    assert_eq!(outcome.message(), "no such file");
    assert_eq!(read(br#"{"isError":true,"content":[]}"#).message(), "it did not say why");
}

#[test]
fn data_is_a_part_of_its_own_and_not_letters_in_the_text() {
    let data = "QUJD".repeat(100);
    let image = json!({ "type": "image", "data": data, "mimeType": "image/png" }).to_string();
    let result = format!("{{\"content\":[{image}]}}");
    let outcome = read(result.as_bytes());
    let ran = run(&RunResponse {
        structured: &outcome.structured,
        error: None,
        duration_ms: 1,
        tool: None,
        backend: None,
        mcp_result: Some(result.as_bytes()),
    });
    let whole: Value = serde_json::from_slice(&answer(&ran, None, &outcome.others)).unwrap();
    assert_eq!(whole["structuredContent"]["mcpResult"]["content"][0]["data"], data);
    assert_eq!(whole["content"][1]["data"], data);
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert!(!text.contains(&data) && text.contains("400 characters of base64"), "{text}");
    fits("run_tool", &ran);
}

#[test]
fn a_tool_is_described_level_by_level() {
    let tools = listed(&json!([{
        "name": "search",
        "title": "Search",
        "description": "Searches. See https://example.org/docs, or (http://example.com).\u{200b}",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": { "type": "string", "examples": ["rust"] },
                "limit": { "type": ["integer", "null"], "default": 10 },
                "kind": { "enum": ["a", "b"] },
            },
            "required": ["query"],
            "examples": [{ "query": "from the root" }, { "limit": 3 }],
        },
        "annotations": { "readOnlyHint": true },
    }]));
    let hit = Hit::all_of(&"docs".into(), &tools).remove(0);
    let used = json!({ "type": "object", "properties": { "query": { "type": "string" } } });
    let tags = vec!["work".to_owned()];
    let tool = documented(&hit, &tags, Some(&used));
    let levels: Vec<Value> = [Level::Summary, Level::Schema, Level::Full]
        .iter()
        .map(|level| fits("describe_tool", describe(&tool, *level, 5).to_string().as_bytes()))
        .collect();
    let page = format!("{:#}", Value::from(levels));
    insta::assert_snapshot!(page);
    let few = fits("list_tool_examples", list_examples(&tool, 1).to_string().as_bytes());
    assert_eq!(few["examples"].as_array().unwrap().len(), 1);
}

#[test]
fn what_servers_say_of_parameters_is_cleaned_too() {
    let tools = listed(&json!([{
        "name": "search",
        "inputSchema": {
            "type": "object",
            "properties": { "query": { "type": "string", "description": "a\u{202e}b\u{1b}[31mc\u{e0041}" } },
        },
    }]));
    let hit = Hit::all_of(&"docs".into(), &tools).remove(0);
    let shown = describe(&documented(&hit, &[], None), Level::Full, 5);
    let query = &shown["tool"]["inputSchema"]["properties"]["query"];
    assert_eq!(query["description"], "abc", "{shown}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z$~/]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_tool() -> impl Strategy<Value = Value> {
    ("[a-zA-Z_]{1,12}", "\\PC{0,300}", any_json(), any_json(), any_json()).prop_map(
        |(name, description, properties, required, annotations)| {
            json!({
                "name": name,
                "title": description.chars().take(10).collect::<String>(),
                "description": description,
                "inputSchema": {
                    "type": "object", "properties": properties, "required": required, "examples": annotations,
                },
                "outputSchema": required,
                "annotations": annotations,
            })
        },
    )
}

fn any_result() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        "\\PC{0,40}".prop_map(|text| json!({ "type": "text", "text": text })),
        any_json().prop_map(|value| json!({ "type": "text", "text": value.to_string() })),
        "[A-Za-z0-9+/]{0,80}".prop_map(|data| json!({ "type": "image", "data": data })),
        any_json(),
    ];
    let content = prop_oneof![prop::collection::vec(part, 0..4).prop_map(Value::from), any_json()];
    (content, prop::option::of(any_json()), any::<bool>(), prop::option::of(any_json())).prop_map(
        |(content, structured, is_error, meta)| {
            let mut result = json!({ "content": content });
            if let Some(structured) = structured {
                result["structuredContent"] = structured;
            }
            if is_error {
                result["isError"] = true.into();
            }
            if let Some(meta) = meta {
                result["_meta"] = meta;
            }
            result
        },
    )
}

/// A tool result must hold the same JSON twice, once as text.
fn twice(result: &[u8], structured: &Value, others: usize) {
    let whole: Value = serde_json::from_slice(result).unwrap();
    assert_eq!(whole["structuredContent"], *structured);
    let texts: Vec<&str> = whole["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    let json = texts.iter().rev().find(|text| text.starts_with('{')).unwrap();
    if others == 0 {
        assert_eq!(serde_json::from_str::<Value>(json).unwrap(), *structured);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_about_any_catalog_fits_its_schema(
        definitions in prop::collection::vec(any_tool(), 0..4),
        tags in prop::collection::vec("\\PC{1,8}", 0..3),
        used in any_json(),
        cursor in prop::option::of("[a-z]{1,8}"),
    ) {
        let tools = listed(&Value::from(definitions));
        let hits = Hit::all_of(&"server".into(), &tools);
        let summaries = hits.iter().map(|hit| summary(hit, &tags)).collect();
        let pending = vec!["slow".to_owned()];
        let failed = vec![("dead".to_owned(), "exited".to_owned())];
        let page = found(&SearchResponse { tools: summaries, next_cursor: cursor.as_deref(), pending: &pending, failed: &failed, note: cursor.as_deref() });
        let value = fits("search_tools", page.to_string().as_bytes());
        twice(&answer(page.to_string().as_bytes(), None, &[]), &value, 0);
        fits("list_tools", page.to_string().as_bytes());
        fits("list_namespaces", namespaces(&["a"], cursor.as_deref()).to_string().as_bytes());
        for hit in &hits {
            let tool = documented(hit, &tags, Some(&used));
            for level in [Level::Summary, Level::Schema, Level::Full] {
                fits("describe_tool", describe(&tool, level, 5).to_string().as_bytes());
            }
            fits("list_tool_examples", list_examples(&tool, 5).to_string().as_bytes());
        }
    }

    #[test]
    fn every_answer_with_any_result_fits_its_schema(
        results in prop::collection::vec(any_result(), 1..4),
        logs in prop::collection::vec("\\PC{0,20}", 0..3),
        ms in any::<u32>(),
    ) {
        let raws: Vec<String> = results.iter().map(Value::to_string).collect();
        let outcomes: Vec<ToolResult<'_>> = raws.iter().map(|raw| read(raw.as_bytes())).collect();
        let error = some_error("tool_error", None);
        let backend = json!({ "kind": "mcp", "serverName": "s" });
        let mut steps = Vec::new();
        for (raw, outcome) in raws.iter().zip(&outcomes) {
            let ran = run(&RunResponse {
                structured: &outcome.structured,
                error: outcome.is_error.then_some(&error),
                duration_ms: ms.into(),
                tool: None,
                backend: Some(&backend),
                mcp_result: (!outcome.is_plain).then_some(raw.as_bytes()),
            });
            let value = fits("run_tool", &ran);
            let line = outcome.is_error.then(|| outcome.message());
            twice(&answer(&ran, line.as_deref(), &outcome.others), &value, outcome.others.len());
            steps.push(StepResponse {
                tool_id: "s:t".into(),
                id: outcome.is_error.then(|| "id".into()),
                structured: outcome.structured.to_vec(),
                error: outcome.is_error.then(|| error.clone()),
                duration_ms: ms.into(),
                tool: None,
                backend: Some(backend.clone()),
                mcp_result: (!outcome.is_plain).then(|| raw.clone().into_bytes()),
            });
        }
        let failed = some_error("chain_step_failed", Some(1));
        let made = chain(&steps, &outcomes[0].structured, Some(&failed), ms.into());
        fits("run_chain", &made);
        let tally = |cancelled| CallTally { tool: "s:t".into(), calls: 3, failed: 1, cancelled };
        let calls = [tally(0), tally(1)];
        let ran = code(&CodeResponse { value: &outcomes[0].structured, handle: None, logs: &logs, calls: &calls, duration_ms: ms.into(), error: None });
        fits("execute_code", &ran);
    }

    #[test]
    fn a_reference_gives_what_serde_json_finds(value in any_json(), path in "(/[a-z0-9$~]{0,3}){0,3}") {
        let path = path.replace('~', "~0");
        let raw = value.to_string();
        let found = pointed(raw.as_bytes(), &path).map(|raw| serde_json::from_slice::<Value>(raw).unwrap());
        prop_assert_eq!(found.as_ref(), value.pointer(&path));
    }
}

/// What may happen between two pages.
#[derive(Debug, Clone)]
enum Event {
    Page,
    Set { server: u8, tools: u8 },
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Page),
        1 => (0_u8..3, 0_u8..12).prop_map(|(server, tools)| Event::Set { server, tools }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// A list that is read to its end without a refusal is the list as it was all the while: nothing missing, nothing
    /// twice. Whenever it changed in between, the next page is refused.
    #[test]
    fn paging_loses_and_repeats_nothing_while_tools_come_and_go(
        events in prop::collection::vec(any_event(), 1..80),
        limit in 1_usize..5,
        only in prop::option::of(0_u8..3),
    ) {
        use metamcp_tools::cursor::{CursorError, CursorKey};
        use metamcp_search::search::{Index, ServerIndex, Strategy as Ranking};
        let key = CursorKey::new([3; 32]);
        let mut sizes = [3_u8, 5, 0];
        let build = |sizes: &[u8; 3]| {
            let parts = sizes.iter().enumerate().map(|(server, count)| {
                let tools: Vec<Value> = (0..*count).map(|n| json!({"name": format!("read_{n}"), "description": "Reads a file"})).collect();
                Arc::new(ServerIndex::build(&format!("s{server}"), None, &listed(&Value::from(tools))))
            });
            Index::new(parts.collect())
        };
        let server = only.map(|only| format!("s{only}"));
        let (mut index, mut generation) = (build(&sizes), 1_u64);
        let (mut cursor, mut read, mut began): (Option<String>, Vec<String>, u64) = (None, Vec::new(), 1);
        for event in events {
            match event {
                Event::Set { server, tools } => {
                    let place = &mut sizes[usize::from(server)];
                    if *place != tools {
                        *place = tools;
                        generation += 1;
                        index = build(&sizes);
                    }
                }
                Event::Page => {
                    let offset = match &cursor {
                        None => {
                            (read, began) = (Vec::new(), generation);
                            0
                        }
                        Some(cursor_text) => match key.decode(cursor_text, generation, "read file") {
                            Ok(offset) => {
                                prop_assert_eq!(began, generation, "an old page was given");
                                offset as usize
                            }
                            Err(error) => {
                                prop_assert_eq!(error, CursorError::Stale);
                                prop_assert!(began != generation, "a good page was refused");
                                cursor = None;
                                continue;
                            }
                        },
                    };
                    let page = index.page("read file", Ranking::Hybrid, offset, limit, server.as_deref());
                    read.extend(page.hits.iter().map(Hit::id));
                    let next = offset + page.hits.len();
                    cursor = (next < page.total).then(|| key.encode(generation, u32::try_from(next).unwrap(), "read file"));
                    if cursor.is_none() {
                        let mut whole: Vec<String> = index.search("read file", Ranking::Hybrid, 1000, server.as_deref()).iter().map(Hit::id).collect();
                        prop_assert_eq!(&read, &whole);
                        whole.sort();
                        whole.dedup();
                        prop_assert_eq!(whole.len(), read.len());
                    }
                }
            }
        }
    }
}
