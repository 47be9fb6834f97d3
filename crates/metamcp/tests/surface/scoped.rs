//! A session restricted to a toolset cannot reach outside of it, on any path.

use metamcp_testkit::{Workspace, chaos_server, echo_server, stored_handle};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

/// Inside: two tools of `one`, all of `two`. Outside: the rest of `one`, and `vault`, which may not even start.
fn workspace() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]).setting("description", json!("first words")));
    workspace.server("two", echo_server().setting("tags", json!(["open"])));
    workspace.server(
        "vault",
        chaos_server(&[]).setting("description", json!("unspeakable things are kept here")),
    );
    workspace.setting(
        "toolsets",
        json!({
            "docs": {"servers": ["one"], "tags": ["open"], "allow": ["one:echo", "one:slow", "one:big", "two:*"], "deny": ["one:slow"]},
            "all": {},
        }),
    );
    workspace
}

fn scoped() -> Gateway {
    let gateway = Gateway::start(workspace(), &["--surface", "both", "--toolset", "docs"]);
    // The allowed servers are listed from here on, so that nothing depends on how fast they start.
    for server in ["one", "two"] {
        gateway.client.mcp_call_now(server, "echo", &json!({"text": "known now"}), HUNG).unwrap();
    }
    gateway
}

/// Nothing outside was named or started.
fn nothing_leaked(gateway: &Gateway) {
    let lines = gateway.client.lines();
    let all: String =
        lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect();
    for word in ["unspeakable", "effect_idempotent", "rpc_error"] {
        assert!(!all.contains(word), "{word} in {all}");
    }
    assert!(gateway.workspace.journal("vault").records().unwrap().is_empty(), "vault was started");
    let records = gateway.workspace.journal("one").records().unwrap();
    assert!(
        records.iter().all(|record| record
            .tool
            .as_deref()
            .is_none_or(|tool| tool == "echo" || tool == "big"))
    );
}

fn code(answer: &metamcp_testkit::Answer) -> Value {
    answer.value["result"]["structuredContent"]["code"].clone()
}

#[test]
fn by_the_list_and_the_instructions() {
    let workspace = workspace();
    let mut command =
        workspace.command(std::path::Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.env("METAMCP_TOOLSET", "docs");
    let client = metamcp_testkit::Client::start(command).unwrap();
    let hello = client.initialize(&json!({}), HUNG).unwrap();
    let said = hello["instructions"].as_str().unwrap().to_owned();
    assert!(!said.contains("vault"), "{said}");
    let gateway = Gateway { client, workspace };
    let list = gateway.client.ask("tools/list", &json!({}), HUNG).unwrap();
    assert!(list.value.to_string().contains("first words"), "{}", list.value);
    nothing_leaked(&gateway);
}

#[test]
fn by_calls() {
    let gateway = scoped();
    let call = |server: &str, tool: &str| {
        code(&gateway.client.mcp_call_now(server, tool, &json!({"text": "x"}), HUNG).unwrap())
    };
    assert_eq!(call("one", "echo"), Value::Null);
    assert_eq!(call("two", "echo"), Value::Null);
    assert_eq!(call("one", "effect"), "denied");
    assert_eq!(call("one", "slow"), "denied");
    for name in ["vault", "mcp.vault"] {
        assert_eq!(call(name, "echo"), "server_not_found");
    }
    let by_id = gateway.call("mcp_call", &json!({"tool": "vault:echo", "args": {"text": "x"}}));
    assert_eq!(code(&by_id), "server_not_found");
    let bare = gateway.call("mcp_call", &json!({"tool": "effect"}));
    assert_eq!(code(&bare), "server_not_found");
    nothing_leaked(&gateway);
}

#[test]
fn by_discovery() {
    let gateway = scoped();
    let discover = |arguments: Value| {
        let answer = gateway.call("mcp_discover", &arguments);
        answer.value["result"].to_string()
    };
    assert!(discover(json!({})).contains("one") && !discover(json!({})).contains("vault"));
    assert!(discover(json!({"query": "echo text"})).contains("one:echo"));
    assert!(!discover(json!({"query": "change the world"})).contains("effect"));
    assert!(!discover(json!({"server": "one"})).contains("effect"));
    assert!(!discover(json!({"server": "one", "detail": "schema"})).contains("elicit"));
    assert!(discover(json!({"server": "vault"})).contains("server_not_found"));
    assert!(discover(json!({"tool": "vault:echo"})).contains("server_not_found"));
    assert!(discover(json!({"tool": "one:effect"})).contains("tool_not_found"));
    assert!(discover(json!({"tool": "effect"})).contains("tool_not_found"));
    nothing_leaked(&gateway);
}

#[test]
fn by_code() {
    let gateway = scoped();
    let run = |code: &str| {
        let answer = gateway.call("mcp_execute", &json!({ "code": code }));
        answer.returned().unwrap_or_else(|| panic!("{:#}", answer.value))
    };
    assert_eq!(run("return await one.echo({ text: 'in' })"), "in");
    let tried = run(
        "const tries = [() => one.call('effect', { key: 'k' }), () => one.slow({ ms: 1 }), () => servers['vault'].call('echo', { text: 'x' })];\n\
         const codes = []; for (const t of tries) { try { await t(); codes.push('reached') } catch (e) { codes.push(e.code ?? e.name) } }\n\
         return codes",
    );
    let codes = tried.as_array().unwrap().clone();
    assert!(codes.len() == 3 && codes.iter().all(|code| code != "reached"), "{tried:#}");
    let names = run("return (await tools.list()).map(s => s.name)");
    assert_eq!(names, json!(["one", "two"]));
    let found =
        run("return (await tools.search('change the world', { limit: 50 })).map(t => t.id)");
    assert!(!found.to_string().contains("effect"), "{found:#}");
    let types = run("return [await tools.types(), await tools.types('one')].join('')");
    assert!(types.to_string().contains("echo") && !types.to_string().contains("elicit"));
    let described =
        run("try { return await tools.describe('vault', 'echo') } catch (e) { return e.code }");
    assert_eq!(described, "server_not_found");
    nothing_leaked(&gateway);
}

#[test]
fn by_the_full_surface() {
    let gateway = scoped();
    let ids = |answer: &Value| {
        let tools = answer["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let listed = ids(&gateway.full("list_tools", &json!({"limit": 100})));
    assert_eq!(listed, ["one:echo", "one:big", "two:echo", "two:blob"]);
    let found = ids(&gateway
        .full("search_tools", &json!({"query": "change the world with text", "limit": 100})));
    assert!(found.iter().all(|id| listed.contains(id)), "{found:?}");
    assert_eq!(gateway.full("list_namespaces", &json!({}))["namespaces"], json!(["one", "two"]));
    let code =
        |tool: &str, arguments: Value| gateway.full(tool, &arguments)["error"]["code"].clone();
    assert_eq!(code("list_tools", json!({"namespace": "vault"})), "server_not_found");
    assert_eq!(code("describe_tool", json!({"tool_id": "vault:echo"})), "server_not_found");
    assert_eq!(code("describe_tool", json!({"tool_id": "one:effect"})), "tool_not_found");
    assert_eq!(code("list_tool_examples", json!({"tool_id": "one:effect"})), "tool_not_found");
    assert_eq!(code("run_tool", json!({"tool_id": "one:effect", "args": {"key": "k"}})), "denied");
    assert_eq!(
        code("run_tool", json!({"tool_id": "vault:echo", "args": {"text": "x"}})),
        "server_not_found"
    );
    let chain = gateway.full(
        "run_chain",
        &json!({"steps": [{"tool_id": "one:echo", "args": {"text": "x"}}, {"tool_id": "one:effect", "args": {"key": "k"}}]}),
    );
    assert_eq!(chain["error"]["details"]["cause"]["code"], "denied");
    assert_eq!(
        gateway.full("execute_code", &json!({"code": "return await one.echo({ text: 'x' })"}))["value"],
        "x"
    );
    nothing_leaked(&gateway);
}

#[test]
fn by_stored_results_only_its_own() {
    let gateway = scoped();
    let short = gateway.call("mcp_call", &json!({"tool": "one:big", "args": {"bytes": 600_000}}));
    let id = stored_handle(&short.value["result"]).unwrap().to_owned();
    let read = gateway.client.mcp_call_now("@results", "read", &json!({"id": id}), HUNG).unwrap();
    assert!(read.text().unwrap().starts_with("xxx"));
    nothing_leaked(&gateway);
}

#[test]
fn a_toolset_that_is_not_there_is_no_toolset_at_all() {
    let workspace = workspace();
    let mut command =
        workspace.command(std::path::Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    let output = command.args(["--toolset", "doc"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("there is no toolset \"doc\"; there are docs, all"), "{said}");
}

/// A rule about tools grants tools only: not the server's resources and prompts.
#[test]
fn by_what_servers_have_beside_tools() {
    let toolsets = json!({
        "part": {"servers": ["one"], "allow": ["one:echo"]},
        "parts": {"servers": ["one", "two"], "allow": ["one:echo", "two:*"], "deny": ["one:slow"]},
        "whole": {"servers": ["one"]},
    });
    for era in ["legacy", "modern"] {
        for (toolset, parts, wholes) in [
            ("part", &["one"][..], &[][..]),
            ("parts", &["one"], &["two"]),
            ("whole", &[], &["one"]),
        ] {
            for surface in ["direct", "compact"] {
                let mut workspace = Workspace::new().unwrap();
                for name in ["one", "two"] {
                    let server = chaos_server(&[]).argument("--era").argument(era);
                    workspace.server(
                        name,
                        server.argument("--offers").argument(&format!("some:{name}")),
                    );
                }
                workspace.setting("toolsets", toolsets.clone());
                let gateway =
                    Gateway::start(workspace, &["--surface", surface, "--toolset", toolset]);
                let tell = |method: &str, params: &Value| {
                    let first = gateway.client.ask(method, params, HUNG).unwrap().value.to_string();
                    let id = gateway.client.stateless(method, params, &json!({}), &json!({}));
                    first + &gateway.client.wait(id.unwrap(), HUNG).unwrap().value.to_string()
                };
                let mut told = String::new();
                for name in ["one", "two"] {
                    let prompt = format!("{name}__greet");
                    for (method, params) in [
                        ("resources/list", json!({})),
                        ("resources/templates/list", json!({})),
                        ("prompts/list", json!({})),
                        ("resources/read", json!({"uri": format!("memo://{name}/1")})),
                        ("resources/subscribe", json!({"uri": format!("memo://{name}/1")})),
                        ("prompts/get", json!({"name": prompt})),
                        ("prompts/get", json!({"name": "greet"})),
                        (
                            "completion/complete",
                            json!({"ref": {"type": "ref/prompt", "name": prompt}, "argument": {"name": "a", "value": "b"}}),
                        ),
                        (
                            "completion/complete",
                            json!({"ref": {"type": "ref/resource", "uri": format!("memo://{name}/1")}, "argument": {"name": "a", "value": "b"}}),
                        ),
                    ] {
                        told.push_str(&tell(method, &params));
                    }
                    for (offer, tool, args) in [
                        ("@resources", "list", json!({"server": name})),
                        ("@resources", "list", json!({})),
                        ("@prompts", "list", json!({})),
                        (
                            "@resources",
                            "read",
                            json!({"server": name, "uri": format!("memo://{name}/1")}),
                        ),
                        ("@prompts", "get", json!({"server": name, "name": "greet"})),
                    ] {
                        let call = json!({"server": offer, "tool": tool, "args": args});
                        told.push_str(&tell(
                            "tools/call",
                            &json!({"name": "mcp_call", "arguments": call}),
                        ));
                    }
                }
                // What only the server itself returns: its list, its text, its completions.
                let says = |name: &str| {
                    told.contains(&format!("{name} says hello"))
                        || told.contains(&format!("{name} asks greet"))
                        || told.contains(&format!("memo://{name}/2"))
                        || told.contains(&format!("[\"{name}\","))
                };
                for name in parts {
                    assert!(!says(name), "{era} {toolset} {surface} {name}: {told}");
                }
                for name in wholes {
                    assert!(says(name), "{era} {toolset} {surface} {name}: {told}");
                }
                if surface == "direct" {
                    let wish = json!({"uri": "memo://one/1"});
                    let answer = gateway.client.ask("resources/subscribe", &wish, HUNG).unwrap();
                    let is_refused = answer.value["error"].is_object();
                    assert_eq!(is_refused, wholes.is_empty(), "{toolset}: {:#}", answer.value);
                    let id = gateway.client.stateless(
                        "server/discover",
                        &json!({}),
                        &json!({}),
                        &json!({}),
                    );
                    let able = gateway.client.wait(id.unwrap(), HUNG).unwrap().value;
                    let able = &able["result"]["capabilities"];
                    assert!(able["tools"].is_object(), "{able}");
                    for beside in ["resources", "prompts", "completions"] {
                        assert_eq!(
                            able[beside].is_object(),
                            !wholes.is_empty(),
                            "{toolset}: {able}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn by_servers_shown_as_they_are() {
    let gateway = Gateway::start(workspace(), &["--surface", "direct", "--toolset", "docs"]);
    let list = gateway.client.ask("tools/list", &json!({}), HUNG).unwrap().value.to_string();
    assert!(list.contains("echo") && !list.contains("effect"), "{list}");
    for name in [
        "one__effect",
        "one_effect",
        "effect",
        "one:effect",
        "vault__echo",
        "vault_echo",
        "vault:echo",
    ] {
        let answer = gateway.call(name, &json!({"text": "x", "key": "k"})).value;
        assert!(
            !answer["error"].is_null() || answer["result"]["isError"] == true,
            "{name}: {answer:#}"
        );
    }
    for (method, params) in [
        ("resources/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/read", json!({"uri": "memo://1"})),
    ] {
        gateway.client.ask(method, &params, HUNG).unwrap();
    }
    nothing_leaked(&gateway);
}
