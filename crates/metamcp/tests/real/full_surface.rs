//! The full surface over real servers, exercised by the official SDKs: they validate each result against the published
//! output schema, and reject one that does not match.

use serde_json::{Value, json};

use crate::installed::text;
use crate::plan::{Client, Plan};
use crate::world::World;

fn walk(client: Client) {
    let world = World::new();
    let mut gateway = world.gateway();
    gateway.args.extend(["--surface".to_owned(), "full".to_owned()]);
    let (files, repository) = (text(&world.files()), text(&world.repository()));
    let entity = json!({ "name": "Ada", "entityType": "person", "observations": ["counts"] });
    let run = |id: &str, args: Value| json!({ "tool_id": id, "args": args });
    let plan = Plan::new()
        .list("list")
        .call("namespaces", "list_namespaces", &json!({}))
        .call_until("search", "search_tools", &json!({ "query": "echo back a message" }), "everything:echo")
        .call_until("listed", "list_tools", &json!({ "namespace": "git", "limit": 3 }), "git:git_")
        .call("summary", "describe_tool", &json!({ "tool_id": "time:convert_time", "detail_level": "summary" }))
        .call("schema", "describe_tool", &json!({ "tool_id": "time:convert_time", "detail_level": "schema" }))
        .call("full", "describe_tool", &json!({ "tool_id": "filesystem:read_text_file", "detail_level": "full" }))
        .call("echo", "run_tool", &run("everything:echo", json!({ "message": "hi" })))
        .call("weather", "run_tool", &run("everything:get-structured-content", json!({ "location": "New York" })))
        .call("image", "run_tool", &run("everything:get-tiny-image", json!({})))
        .call("examples", "list_tool_examples", &json!({ "tool_id": "everything:echo" }))
        .call(
            "chain",
            "run_chain",
            &json!({ "steps": [
                run("memory:create_entities", json!({ "entities": [entity] })),
                { "tool_id": "memory:read_graph", "id": "graph" },
                run("everything:echo", json!({ "message": { "$from": "graph", "path": "/entities/0/observations/0" } })),
                run("git:git_status", json!({ "repo_path": repository })),
            ] }),
        )
        .call(
            "broken",
            "run_chain",
            &json!({ "steps": [
                run("filesystem:list_directory", json!({ "path": files })),
                run("filesystem:read_text_file", json!({ "path": format!("{files}/not-there.txt") })),
                run("everything:echo", json!({ "message": "never" })),
            ] }),
        )
        .call("code", "execute_code", &json!({ "code": "return (await everything.echo({ message: 'by code' }))" }))
        .call("nowhere", "run_tool", &run("everthing:echo", json!({})))
        .call("streamed", "run_tool", &json!({ "tool_id": "everything:echo", "stream": true }));
    let report = plan.run(&world, client, &gateway);
    let answer = |step: &str| report.step(step).value()["structuredContent"].clone();

    let listed = report.tools("list");
    assert_eq!(listed[..8], metamcp_surface::full_surface::NAMES);
    assert_eq!(listed[8..], ["mcp_provision"]);
    assert!(answer("namespaces")["namespaces"].as_array().unwrap().contains(&json!("everything")));
    assert!(answer("search")["tools"].to_string().contains("everything:echo"));
    assert_eq!(answer("listed")["tools"].as_array().unwrap().len(), 3);
    assert_eq!(answer("summary")["summary"]["id"], "time:convert_time");
    assert!(
        answer("schema")["schemaInfo"]["required"].as_array().unwrap().contains(&json!("time"))
    );
    assert!(answer("full")["tool"]["inputSchema"]["properties"]["path"].is_object());
    assert_eq!(answer("echo")["structured"], "Echo: hi");
    assert!(answer("weather")["structured"]["temperature"].is_number(), "{:#}", answer("weather"));
    let image = report.step("image");
    let parts = image.value()["content"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["type"] == "image"), "the picture is there to be seen");
    assert!(!answer("image")["mcpResult"].is_null());
    assert!(answer("examples")["examples"].to_string().contains("<string>"));
    let chain = answer("chain");
    assert!(chain["error"].is_null(), "{chain:#}");
    assert_eq!(chain["results"][2]["structured"], "Echo: counts");
    assert!(chain["final"].to_string().contains("new.txt"));
    let broken = answer("broken");
    assert_eq!(broken["error"]["code"], "chain_step_failed");
    assert_eq!(
        (broken["error"]["step_index"].clone(), broken["results"].as_array().unwrap().len()),
        (json!(1), 2)
    );
    assert!(broken["final"].to_string().contains("hello.txt"));
    assert_eq!(answer("code")["value"], "Echo: by code");
    assert_eq!(answer("nowhere")["error"]["code"], "server_not_found");
    assert_eq!(answer("streamed")["error"]["code"], "stream_not_supported");
    world.nothing_is_left();
}

#[test]
fn typescript_v1_walks_from_search_to_chain() {
    walk(Client::TypescriptV1);
}

#[test]
fn typescript_v2_walks_from_search_to_chain() {
    walk(Client::TypescriptV2);
}

#[test]
fn python_v1_walks_from_search_to_chain() {
    walk(Client::PythonV1);
}

#[test]
fn python_v2_walks_from_search_to_chain() {
    walk(Client::PythonV2);
}
