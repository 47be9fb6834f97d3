//! Scripts that use many resources, use names of any length, or contain mistakes: other calls are not affected, the
//! response stays short, and it says what was wrong.

use metamcp_testkit::{Answer, Server, Workspace, chaos_server};
use serde_json::{Value, json};

use crate::gateway::Gateway;

fn gateway() -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.server("missing", Server::new("/no/such/program", &[]));
    Gateway::start(workspace)
}

fn execute(gateway: &Gateway, code: &str) -> Answer {
    let id = gateway.call_tool("mcp_execute", &json!({ "code": code })).unwrap();
    gateway.answer(id)
}

/// A script's result, whether a value or an `ErrorObject`.
fn structured(gateway: &Gateway, code: &str) -> Value {
    execute(gateway, code).value["result"]["structuredContent"].clone()
}

#[test]
fn others_are_answered_while_a_script_asks_without_end() {
    let gateway = gateway();
    let code = "for (;;) { const all = []; for (let i = 0; i < 50; i++) all.push(tools.types('a'), tools.search('word ' + i)); await Promise.all(all) }";
    let id = gateway.call_tool("mcp_execute", &json!({ "code": code })).unwrap();
    for _ in 0..5 {
        gateway.ping();
    }
    let answer = gateway.answer(id).value;
    assert_eq!(
        answer["result"]["structuredContent"]["details"]["limit"], "questions",
        "{answer:#}"
    );
    gateway.end();
}

#[test]
fn names_a_script_invents_do_not_make_its_answer_long() {
    let gateway = gateway();
    for code in [
        "for (let i = 0; i < 100; i++) try { await a.call('y'.repeat(20000) + i) } catch {}\nreturn 1",
        "await a.call('y'.repeat(20000))",
        "await servers['z'.repeat(1e6)].call('t')",
        "throw new ToolError({ message: 'm', server: 's'.repeat(1e6), details: 'd'.repeat(1e6) })",
        "await tools.describe('a', 'y'.repeat(1e6))",
        "await tools.list('z'.repeat(1e6))",
        "await results.get('r'.repeat(1e6))",
    ] {
        let answer = execute(&gateway, code).value.to_string();
        assert!(answer.len() < 64 * 1024, "{code}: {} bytes", answer.len());
    }
    gateway.end();
}

#[test]
fn a_value_nested_too_deeply_loses_neither_output_nor_calls() {
    let gateway = gateway();
    let nested = "let v = []; for (let i = 0; i < 140; i++) v = [v];";
    let told = structured(
        &gateway,
        &format!("{nested} console.log('kept'); await a.echo({{ text: 'x' }}); return v"),
    );
    assert!(told["message"].as_str().unwrap().contains("nested 141 deep"), "{told}");
    assert_eq!(told["details"]["logs"], json!(["kept"]));
    assert_eq!(told["details"]["calls"][0]["tool"], "a:echo");
    let told = structured(&gateway, &format!("{nested} return await a.echo({{ text: v }})"));
    assert!(told["message"].as_str().unwrap().contains("nested too deeply"), "{told}");
    gateway.end();
}

#[test]
fn a_script_without_a_value_gets_a_hint() {
    let gateway = gateway();
    for code in [
        "const x = 1;",
        "if (true) { await a.echo({ text: 'x' }) }",
        "const main = async () => { return 1 };",
    ] {
        let answer = execute(&gateway, code);
        let text = answer.text().unwrap();
        assert!(text.contains("nothing was returned: end the script with `return …`"), "{text}");
    }
    for code in ["return null", "await a.echo({ text: 'x' })"] {
        let answer = execute(&gateway, code);
        assert!(!answer.text().unwrap().contains("nothing was returned"), "{code}");
    }
    gateway.end();
}

#[test]
fn catalog_lookups_of_a_script_are_answered_or_say_why_not() {
    let gateway = gateway();
    let value = |code: &str| {
        let answer = execute(&gateway, code);
        answer.returned().unwrap_or_else(|| panic!("{code}\n{:#}", answer.value))
    };
    let server = value("await tools.describe('a')");
    assert_eq!(server["server"], "a");
    assert!(server["tools"].as_array().unwrap().iter().any(|tool| tool["tool"] == "echo"));
    assert_eq!(value("(await tools.describe('a:echo')).tool"), "echo");
    for question in ["describe('missing')", "list('missing')", "types('missing')"] {
        let code = format!(
            "try {{ return await tools.{question} }} catch (e) {{ return [e.name, e.server, e.message] }}"
        );
        let told = value(&code);
        assert_eq!((&told[0], &told[1]), (&json!("ToolError"), &json!("missing")), "{question}");
        assert!(told[2].as_str().unwrap().contains("/no/such/program"), "{question}: {told}");
    }
    assert_eq!(
        value(
            "const kept = await results.put({ rows: [{ id: 1 }, { id: 2 }], text: 'abcdef' }); const text = await results.put('abcdef'); return [await results.get(kept, { pointer: '/rows/1' }), await results.get(text, { offset: 2, length: 3 }), await results.get(text, { offset: 4 })]"
        ),
        json!([{"id": 2}, "cde", "ef"])
    );
    for options in ["{ pointer: '/none' }", "{ offset: -1 }"] {
        let code = format!(
            "const kept = await results.put([1]); try {{ return await results.get(kept, {options}) }} catch (e) {{ return e.code }}"
        );
        assert_eq!(value(&code), "validation_input", "{options}");
    }
    gateway.end();
}

#[test]
fn an_error_of_a_tool_names_it_as_its_server_does() {
    let gateway = gateway();
    let code = "try { return await servers['mcp.a'].fail({}) } catch (e) { return [e.name, e.server, e.tool, e.code] }";
    let told = execute(&gateway, code).returned();
    assert_eq!(told, Some(json!(["ToolError", "a", "fail", "tool_error"])));
    let whole = execute(&gateway, "(await a.fail({}).raw()).isError");
    assert_eq!(whole.returned(), Some(json!(true)), "{:#}", whole.value);
    let whole = execute(&gateway, "(await a.fail.raw({})).isError");
    assert_eq!(whole.returned(), Some(json!(true)));
    assert!(whole.text().unwrap().contains("calls that failed: a:fail"), "{:#}", whole.value);
    gateway.end();
}

#[test]
fn what_is_no_function_gets_another_in_its_place() {
    let gateway = gateway();
    for (code, words) in [
        ("await tools.call('echo', {})", "`tools` has search"),
        ("const s = servers.get('a');", "`servers` holds"),
        ("await a({ text: 'x' })", "`a` is a server, so name a tool of it"),
        ("await callTool('a', 'echo', {})", "There is no `callTool` in scripts."),
        ("new AbortController()", "Promise.race"),
        ("Buffer.from('x')", "`TextEncoder`"),
    ] {
        let told = structured(&gateway, code);
        assert!(told["hint"].as_str().unwrap().contains(words), "{code}: {told:#}");
    }
    gateway.end();
}

#[test]
fn a_call_that_a_limit_ended_is_not_called_unawaited() {
    let gateway = gateway();
    let params = json!({"code": "await a.slow({ ms: 60000 })", "timeoutMs": 500});
    let id = gateway.call_tool("mcp_execute", &params).unwrap();
    let answer = gateway.answer(id);
    let text = answer.text().unwrap();
    assert!(text.contains("1 cancelled by the limit, which may have run"), "{text}");
    gateway.end();
}
