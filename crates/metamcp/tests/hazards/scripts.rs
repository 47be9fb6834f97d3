//! A model's scripts over servers: what they get, what they leave behind, and that they affect nobody else.

use std::process::{Command, Stdio};
use std::time::Duration;

use metamcp_testkit::census::{self, Process};
use metamcp_testkit::{Answer, EventKind, Workspace, chaos_server, eventually, stored_handle};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG, command};

/// Long enough that only something else ends it within a test.
const FOR_EVER: u64 = 240_000;

fn two_servers() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.server("my-server", chaos_server(&[]));
    workspace
}

fn execute(gateway: &Gateway, code: &str) -> Answer {
    let id = gateway.call_tool("mcp_execute", &json!({ "code": code })).unwrap();
    gateway.answer(id)
}

/// The value of a script that must succeed.
fn value(gateway: &Gateway, code: &str) -> Value {
    let answer = execute(gateway, code);
    answer.returned().unwrap_or_else(|| panic!("{code}\n{:#}", answer.value))
}

/// The `ErrorObject` of a script that must fail.
fn error(gateway: &Gateway, code: &str) -> Value {
    let answer = execute(gateway, code);
    assert_eq!(answer.value["result"]["isError"], true, "{code}\n{:#}", answer.value);
    answer.value["result"]["structuredContent"].clone()
}

#[test]
fn a_script_calls_tools_by_every_name_they_have() {
    let gateway = Gateway::start(two_servers());
    let cases = [
        (r#"return (await servers.a.call("echo", { text: "x" }))"#, json!("x")),
        (r#"await a.echo({ text: "last expression" })"#, json!("last expression")),
        (r#"await myServer.effectIdempotent({ key: "k" })"#, json!("done k")),
        (r#"await myServer.effect_idempotent({ key: "k" })"#, json!("done k")),
        (r#"await servers["my-server"].call("effectIdempotent", { key: "k" })"#, json!("done k")),
        (r#"(await a.echo.raw({ text: "r" })).content[0].text"#, json!("r")),
        (r#"(await a.echo({ text: "r" }).raw()).content[0].text"#, json!("r")),
        (r#"await a.echo({ text: '{"n": [1, 2]}' })"#, json!({"n": [1, 2]})),
        ("interface P { n: number }\nconst p: P = { n: 2 };\np.n * (21 as number)", json!(42)),
        ("```ts\nreturn 'fenced';\n```", json!("fenced")),
        ("const x = 1;", Value::Null),
        ("(await tools.search('answers with the text')).length > 0", json!(true)),
        ("(await tools.list()).length", json!(2)),
        ("(await tools.types('a')).includes('effectIdempotent')", json!(true)),
        (
            "await parallel([1, 2, 3], async n => (await a.echo({ text: `n${n}` })), 2)",
            json!(["n1", "n2", "n3"]),
        ),
    ];
    for (code, expected) in cases {
        assert_eq!(value(&gateway, code), expected, "{code}");
    }
    gateway.end();
}

#[test]
fn a_server_in_full_is_declared_for_code() {
    let gateway = Gateway::start(two_servers());
    gateway.call("a", "echo", &json!({"text": "known now"}));
    let id =
        gateway.call_tool("mcp_discover", &json!({"server": "a", "detail": "schema"})).unwrap();
    let text = gateway.answer(id).text().unwrap().to_owned();
    assert!(text.contains("declare const a") && text.contains("effectIdempotent("), "{text}");
    assert!(text.contains("key: string"), "{text}");
    assert_eq!(
        value(&gateway, r#"await a.echo({ text: '{"rows": [{"id": 1}]}' })"#)["rows"][0]["id"],
        1
    );
    let types = value(&gateway, "await tools.types('a')");
    assert!(types.as_str().unwrap().contains("rows: "), "a result seen before has a type: {types}");
    gateway.end();
}

#[test]
fn the_answer_has_the_value_the_console_and_the_calls() {
    let gateway = Gateway::start(two_servers());
    let answer = execute(
        &gateway,
        "console.log('looking', { n: 1 });\nawait a.echo({ text: 'x' });\nawait a.echo({ text: 'y' });\nconsole.warn('done');\nreturn { found: 2 };",
    );
    let text = answer.text().unwrap();
    assert!(text.starts_with(r#"{"found":2}"#), "{text}");
    assert!(text.contains("looking") && text.contains("warn: done"), "{text}");
    assert!(text.contains("calls made: a:echo x2"), "{text}");
    // One answer, once.
    assert!(answer.value["result"].get("structuredContent").is_none(), "{:#}", answer.value);
    gateway.end();
}

#[test]
fn failures_are_tool_errors_a_script_can_catch() {
    let mut workspace = two_servers();
    let denied = chaos_server(&[]).setting("tools", json!({"deny": ["effect"]}));
    workspace.server("guarded", denied);
    let gateway = Gateway::start(workspace);
    let caught = |call: &str| {
        let code = format!(
            "try {{ await {call}; return 'no error' }} catch (e) {{ return {{ tool: e instanceof ToolError, code: e.code, message: e.message, retryable: e.retryable }} }}"
        );
        value(&gateway, &code)
    };
    let unknown = caught("a.ecko({ text: 'x' })");
    assert_eq!((&unknown["tool"], &unknown["code"]), (&json!(true), &json!("tool_not_found")));
    assert!(unknown["message"].as_str().unwrap().contains("echo"), "{unknown}");
    let server = caught("servers['my-servr'].call('echo', {})");
    assert!(server["message"].as_str().unwrap().contains("my-server"), "{server}");
    assert_eq!(caught("a.effect({ key: 7 })")["code"], "validation_input");
    assert_eq!(caught("a.fail({})")["code"], "tool_error");
    assert_eq!(caught("guarded.effect({ key: 'denied' })")["code"], "denied");
    assert_eq!(caught("a.rpcError({ code: -32000 })")["code"], "execution_failed");
    let workspace = gateway.end();
    assert_eq!(workspace.journal("guarded").executions("denied").unwrap(), 0);
    assert_eq!(workspace.journal("a").executions("7").unwrap(), 0);
}

#[test]
fn a_failing_script_reports_the_line_and_its_earlier_calls() {
    let gateway = Gateway::start(two_servers());
    let syntax = error(&gateway, "const a = 1;\nconst b = = 2;\n");
    assert_eq!((&syntax["code"], &syntax["details"]["line"]), (&json!("code_error"), &json!(2)));
    assert!(syntax["message"].as_str().unwrap().contains("const b = = 2;"), "{syntax}");
    let thrown = error(
        &gateway,
        "console.log('before');\nawait a.effect({ key: 'once' });\nconst o: any = undefined;\no.x.y();\n",
    );
    assert_eq!((&thrown["code"], &thrown["details"]["line"]), (&json!("code_error"), &json!(4)));
    let message = thrown["message"].as_str().unwrap();
    assert!(message.contains("TypeError") && message.contains("o.x.y();"), "{message}");
    assert_eq!(thrown["details"]["logs"], json!(["before"]));
    let effect = json!({"tool": "a:effect", "calls": 1, "failed": 0, "cancelled": 0});
    assert_eq!(thrown["details"]["calls"], json!([effect]));
    let uncaught = error(&gateway, "await a.fail({})");
    assert_eq!(uncaught["details"]["tool_error"]["code"], "tool_error", "{uncaught:#}");
    assert_eq!(uncaught["details"]["line"], 1);
    let workspace = gateway.end();
    assert_eq!(workspace.journal("a").executions("once").unwrap(), 1);
}

#[test]
fn every_limit_says_its_name_and_what_was_done_survives_it() {
    let mut workspace = two_servers();
    workspace.setting("code", json!({"cpuMs": 300, "maxCalls": 5, "timeoutMs": 20_000}));
    let gateway = Gateway::start(workspace);
    let prefix = "console.log('kept'); await a.echo({ text: 'x' });";
    let cases = [
        ("for (;;) {}", "limit_exceeded", "cpu_limit"),
        ("while (1) new Promise(() => { for (;;) {} })", "limit_exceeded", "cpu_limit"),
        (
            "const all = []; for (;;) all.push(new Array(1e6).fill(7))",
            "limit_exceeded",
            "memory_limit",
        ),
        ("for (let i = 0; i < 9; i++) await a.echo({ text: 'x' })", "limit_exceeded", "call_limit"),
        ("await new Promise(() => {})", "code_error", "deadlock"),
    ];
    for (code, expected, status) in cases {
        let told = error(&gateway, &format!("{prefix}\n{code}"));
        let seen = (told["code"].as_str().unwrap(), told["details"]["status"].as_str().unwrap());
        assert_eq!(seen, (expected, status), "{code}\n{told:#}");
        assert_eq!(told["details"]["logs"], json!(["kept"]), "{code}");
        assert_eq!(told["details"]["calls"][0]["tool"], "a:echo", "{code}");
    }
    let arguments = json!({"code": format!("{prefix} await sleep(25000)"), "timeoutMs": 300});
    let id = gateway.call_tool("mcp_execute", &arguments).unwrap();
    let told = gateway.answer(id).value["result"]["structuredContent"].clone();
    assert_eq!((&told["code"], &told["details"]["status"]), (&json!("timeout"), &json!("timeout")));
    assert_eq!(told["details"]["logs"], json!(["kept"]));
    gateway.end();
}

#[test]
fn a_limit_can_be_caught_and_its_value_is_in_the_list_of_tools() {
    let mut workspace = two_servers();
    workspace.setting("code", json!({"maxCalls": 3}));
    let gateway = Gateway::start(workspace);
    let list =
        gateway.ask("tools/list", &json!({}), HUNG).unwrap().raw_result().unwrap().to_owned();
    assert!(list.contains("At most 3 calls (LimitError), 120 s."), "{list}");
    let code = "const got = []; try { for (;;) got.push(await a.echo({ text: 'x' })) } catch (e) { if (!(e instanceof LimitError)) throw e; return [got.length, e.code, e.limit, e.value] }";
    assert_eq!(value(&gateway, code), json!([3, "limit_exceeded", "calls", 3]));
    // Asked for more than there is, the answer says so.
    let arguments = json!({"code": "return 1", "timeoutMs": 99_000_000});
    let id = gateway.call_tool("mcp_execute", &arguments).unwrap();
    let answer = gateway.answer(id);
    assert!(answer.text().unwrap().contains("120000 are the most here (code.timeoutMs)"));
    gateway.end();
}

#[test]
fn what_finished_of_a_parallel_is_read_by_the_next_script() {
    let gateway = Gateway::start(two_servers());
    let thrown = error(
        &gateway,
        "await parallel([1, 2, 3, 4], async n => { if (n === 3) await a.fail({}); return (await a.echo({ text: `n${n}` })) }, 1)",
    );
    let message = thrown["message"].as_str().unwrap();
    assert!(message.contains("2 of 4 items of parallel had finished"), "{message}");
    let handle = |message: &str| {
        message.split("results.get(\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    let read = |handle: &str| {
        let code = format!("(await results.get({handle:?})).map(r => r.value ?? r.status)");
        value(&gateway, &code)
    };
    assert_eq!(read(&handle(message)), json!(["n1", "n2", "rejected", "pending"]));
    let code =
        format!("await parallel([1, 2, {FOR_EVER}], async ms => (await a.slow({{ ms }}), ms))");
    let id = gateway.call_tool("mcp_execute", &json!({ "code": code, "timeoutMs": 3000 })).unwrap();
    let answer = gateway.answer(id);
    let told = &answer.value["result"]["structuredContent"];
    assert_eq!(told["code"], "timeout", "{told:#}");
    let partial = &told["details"]["partial"][0];
    assert_eq!((&partial["finished"], &partial["total"]), (&json!(2), &json!(3)), "{told:#}");
    let named = partial["handle"].as_str().unwrap();
    assert!(answer.text().unwrap().contains(named), "{}", answer.text().unwrap());
    assert_eq!(read(named), json!([1, 2, "pending"]));
    gateway.end();
}

#[test]
fn an_error_about_a_result_says_what_it_was() {
    let gateway = Gateway::start(two_servers());
    let said = |code: &str| {
        let told = error(&gateway, code);
        told["message"].as_str().unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(
        said("const rows = await a.echo({ text: \"[{'id': 1}]\" });\nreturn rows.map(k => k.id)"),
        "TypeError: `rows.map` is not a function: `rows` is a string from a:echo, starting `[{'id': 1}]` (line 2, column 17)"
    );
    let nested = said(
        "return await parallel([1], async n => { const d = await myServer.echo({ text: '{\"content\": 1}' }); return d.lines.length })",
    );
    assert!(
        nested.contains("cannot read `length` of `d.lines`, which is undefined: `d` is an object from my-server:echo with the keys content"),
        "{nested}"
    );
    let callback = said("[1].map(undefined)");
    assert!(callback.contains("what `map` was given is not a function"), "{callback}");
    let iterated = said("const d = await a.echo({ text: '{}' }); for (const x of d) {}");
    assert!(iterated.contains("`d` is not iterable: it is an object from a:echo"), "{iterated}");
    gateway.end();
}

#[test]
fn a_failure_is_short_however_many_calls_it_made() {
    let gateway = Gateway::start(two_servers());
    let answer = execute(
        &gateway,
        "for (let i = 0; i < 300; i++) { if (i < 3 || i > 290) console.log('line', i); if (i === 150) console.log('x'.repeat(8000)); await a.echo({ text: 'x' }) } throw new Error('at the end')",
    );
    let told = &answer.value["result"]["structuredContent"];
    let all = json!([{"tool": "a:echo", "calls": 300, "failed": 0, "cancelled": 0}]);
    assert_eq!(told["details"]["calls"], all);
    assert!(answer.value.to_string().len() < 20_000, "{}", answer.value.to_string().len());
    // The dump is cut; the lines around it are there.
    let logs = told["details"]["logs"].as_array().unwrap();
    let has = |line: &str| logs.iter().any(|logged| logged == line);
    assert!(has("line 0") && has("line 2") && has("line 299"), "{logs:#?}");
    // All that the text says is in the data as well.
    let text = answer.text().unwrap();
    for said in ["at the end", "line 299", "more characters]"] {
        assert!(text.contains(said) && told.to_string().contains(said), "{said}\n{text}");
    }
    assert!(text.contains("a:echo x300"), "{text}");
    gateway.end();
}

#[test]
fn servers_are_asked_for_progress_only_if_the_client_asks() {
    let gateway = Gateway::start(two_servers());
    let asked = |meta: Value| {
        let code = "return (await a.env({})).progressAsked";
        let params = json!({"name": "mcp_execute", "arguments": {"code": code}, "_meta": meta});
        let id = gateway.request("tools/call", &params).unwrap();
        gateway.answer(id).returned()
    };
    assert_eq!(asked(json!({})), Some(json!(false)));
    assert_eq!(asked(json!({"progressToken": "mine"})), Some(json!(true)));
    let chain = |meta: Value| {
        let arguments = json!({"steps": [{"tool_id": "a:env", "args": {}}]});
        let params = json!({"name": "run_chain", "arguments": arguments, "_meta": meta});
        let id = gateway.request("tools/call", &params).unwrap();
        gateway.answer(id).value["result"]["structuredContent"]["final"]["progressAsked"].clone()
    };
    assert_eq!(chain(json!({})), json!(false));
    assert_eq!(chain(json!({"progressToken": "mine"})), json!(true));
    gateway.end();
}

#[test]
fn tools_are_looked_up_by_their_ids_and_listed_as_lines() {
    let gateway = Gateway::start(two_servers());
    for code in ["tools.types('a:echo')", "tools.types('a', 'echo')", "tools.types('a.echo')"] {
        let types = value(&gateway, &format!("await {code}"));
        let types = types.as_str().unwrap();
        assert!(types.contains("echo(") && !types.contains("effect"), "{code}: {types}");
    }
    let wrong = value(
        &gateway,
        "try { await tools.types('a:ecko') } catch (e) { return [e.code, e.message] }",
    );
    assert_eq!(wrong[0], "tool_not_found");
    assert!(wrong[1].as_str().unwrap().contains("Did you mean echo?"), "{wrong}");
    // A result seen before has a type.
    value(&gateway, r#"await a.echo({ text: '{"rows": [{"id": 1}]}' })"#);
    assert!(value(&gateway, "await tools.types('a:echo')").as_str().unwrap().contains("rows: "));
    let answer = execute(
        &gateway,
        "const hits = await tools.search('answers with the text'); console.log(hits); return hits",
    );
    let text = answer.text().unwrap();
    assert_eq!(text.matches("a:echo(text: string").count(), 2, "{text}");
    assert!(!text.contains("\"openWorld\"") && !text.contains("score"), "{text}");
    let hit = value(
        &gateway,
        "(await tools.search('answers with the text', { server: 'a', limit: 1 }))[0]",
    );
    let mut names: Vec<&String> = hit.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["confidence", "description", "id", "server", "signature", "tool"], "{hit}");
    let servers = execute(&gateway, "return await tools.list()");
    assert!(servers.text().unwrap().starts_with("a: "), "{}", servers.text().unwrap());
    gateway.end();
}

#[test]
fn a_parameter_that_is_another_one_mistyped_is_refused() {
    let gateway = Gateway::start(two_servers());
    let code = "try { await a.progress({ count: 1, m_s: 1 }); return 'sent' } catch (e) { return [e.code, e.message] }";
    let told = value(&gateway, code);
    assert_eq!(told[0], "validation_input", "{told}");
    assert!(told[1].as_str().unwrap().contains("expected `ms`"), "{told}");
    let code = "return await a.echo({ text: 'sent', unrelated: 1 })";
    assert_eq!(value(&gateway, code), "sent");
    gateway.end();
}

#[test]
fn others_are_served_while_a_script_spins() {
    let mut workspace = two_servers();
    workspace.setting("code", json!({"cpuMs": 20_000}));
    let gateway = Gateway::start(workspace);
    gateway.call("a", "echo", &json!({"text": "warm"}));
    let script = gateway.call_tool("mcp_execute", &json!({"code": "for (;;) {}"})).unwrap();
    for n in 0..200 {
        let text = format!("call {n}");
        assert_eq!(gateway.call("a", "echo", &json!({ "text": text })).text(), Some(&*text));
    }
    assert!(gateway.wait(script, Duration::ZERO).is_err(), "it spun all the while");
    gateway.notify("notifications/cancelled", &json!({"requestId": script})).unwrap();
    assert!(eventually(HUNG, || !spinning(&gateway)));
    gateway.end();
}

#[test]
fn cancelling_a_script_cancels_its_calls() {
    let gateway = Gateway::start(two_servers());
    let code = format!(
        "await Promise.all([a.slow({{ ms: {FOR_EVER} }}), myServer.slow({{ ms: {FOR_EVER} }})])"
    );
    let id = gateway.call_tool("mcp_execute", &json!({ "code": code })).unwrap();
    let journals = ["a", "my-server"].map(|name| gateway.workspace.journal(name));
    for journal in &journals {
        assert!(eventually(HUNG, || journal.count(EventKind::Execute).unwrap() == 1));
    }
    gateway.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
    for journal in &journals {
        assert!(eventually(HUNG, || journal.count(EventKind::Cancelled).unwrap() == 1));
    }
    gateway.ping();
    assert!(gateway.wait(id, Duration::ZERO).is_err(), "a cancelled request was answered");
    gateway.end();
}

#[test]
fn a_call_nobody_awaits_is_called_off_with_its_script() {
    let gateway = Gateway::start(two_servers());
    gateway.call("a", "echo", &json!({"text": "warm"}));
    let journal = gateway.workspace.journal("a");
    let answer = execute(
        &gateway,
        &format!("a.slow({{ ms: {FOR_EVER} }}); await a.echo({{ text: 'x' }}); return 1"),
    );
    assert_eq!(answer.returned(), Some(json!(1)), "{:#}", answer.value);
    let text = answer.text().unwrap();
    assert!(text.contains("a:slow; 1 not awaited and cancelled"), "{text}");
    assert!(eventually(HUNG, || journal.count(EventKind::Cancelled).unwrap() == 1));
    gateway.end();
}

#[test]
fn a_long_value_is_stored_and_read_in_parts_or_by_the_next_script() {
    let gateway = Gateway::start(two_servers());
    let answer = execute(
        &gateway,
        "const rows = []; for (let i = 0; i < 9000; i++) rows.push({ id: i, name: `row ${i}` }); return rows",
    );
    let text = answer.text().unwrap();
    assert!(text.chars().count() < 7_000, "{}", text.len());
    assert!(text.contains("row 0") && text.contains("row 8999") && !text.contains("row 4500"));
    let handle = stored_handle(&answer.value["result"]).unwrap();
    let read = |arguments: Value| {
        let id = gateway.call_tool("mcp_call", &arguments).unwrap();
        gateway.answer(id).text().unwrap().to_owned()
    };
    let part =
        read(json!({"tool": "@results:read", "args": {"id": handle, "offset": 100, "length": 50}}));
    assert!(part.contains("[characters 100 to 150 of"), "{part}");
    let pointed = read(
        json!({"server": "@results", "tool": "query", "args": {"id": handle, "pointer": "/4500/name"}}),
    );
    assert_eq!(pointed, "row 4500");
    let found = read(json!({"tool": "@results:query", "args": {"id": handle, "grep": "ROW 4500"}}));
    assert!(found.contains("row 4500"), "{found}");
    let again =
        format!("(await results.get({handle:?})).filter(row => row.id % 1000 === 0).length");
    assert_eq!(value(&gateway, &again), 9);
    let kept = value(&gateway, "await results.put({ deep: [1, 2] })");
    assert_eq!(value(&gateway, &format!("(await results.get({kept})).deep[1]")), 2);
    let gone = error(&gateway, "await results.get('r0')");
    assert!(gone["message"].as_str().unwrap().contains("r0"), "{gone}");
    gateway.end();
}

#[test]
fn progress_of_a_script_rises_under_the_clients_own_token() {
    let gateway = Gateway::start(two_servers());
    let code = "progress(0.5, 'half'); await a.progress({ count: 2, ms: 1 }); progress(0.2, 'back'); return 1";
    let params = json!({"name": "mcp_execute", "arguments": {"code": code}, "_meta": {"progressToken": "mine"}});
    let id = gateway.request("tools/call", &params).unwrap();
    assert_eq!(gateway.answer(id).returned(), Some(json!(1)));
    let told = gateway.notifications("notifications/progress");
    let steps: Vec<f64> = told.iter().map(|one| one["progress"].as_f64().unwrap()).collect();
    assert!(told.len() >= 3, "{told:?}");
    assert!(told.iter().all(|one| one["progressToken"] == "mine"), "{told:?}");
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
    assert_eq!(told[0]["message"], "half");
    gateway.end();
}

#[test]
fn many_scripts_at_once_do_not_mix() {
    let gateway = Gateway::start(two_servers());
    let ids: Vec<u64> = (0..12)
        .map(|n| {
            let code = format!("const t = await a.echo({{ text: 'n{n}' }}); globalThis.seen = (globalThis.seen ?? '') + t; return seen");
            gateway.call_tool("mcp_execute", &json!({ "code": code })).unwrap()
        })
        .collect();
    for (n, id) in ids.into_iter().enumerate() {
        let answer = gateway.answer(id);
        assert_eq!(answer.returned(), Some(format!("n{n}").into()));
    }
    gateway.end();
}

#[test]
fn a_killed_gateway_leaves_no_worker_and_a_stopped_one_answers_for_its_script() {
    let mut gateway = Gateway::start(two_servers());
    gateway
        .call_tool("mcp_execute", &json!({"code": "await a.echo({ text: 'x' }); for (;;) {}"}))
        .unwrap();
    assert!(eventually(HUNG, || spinning(&gateway)));
    let left = workers(&gateway);
    gateway.client.signal(Signal::SIGKILL).unwrap();
    assert_eq!(gateway.workspace.survivors(HUNG), []);
    assert!(eventually(HUNG, || !alive(&left)), "{left:?}");
    gateway.client.wait_exit(HUNG).unwrap();

    let mut gateway = Gateway::start(two_servers());
    let id = gateway.call_tool("mcp_execute", &json!({"code": "console.log('first'); await a.effect({ key: 'k' }); await sleep(20000)"})).unwrap();
    let journal = gateway.workspace.journal("a");
    assert!(eventually(HUNG, || journal.executions("k").unwrap() == 1));
    let left = workers(&gateway);
    assert!(!left.is_empty());
    gateway.client.signal(Signal::SIGTERM).unwrap();
    let told = gateway.answer(id).value["result"]["structuredContent"].clone();
    assert_eq!(told["code"], "shutting_down", "{told:#}");
    assert_eq!(told["details"]["logs"], json!(["first"]));
    gateway.client.wait_exit(HUNG).unwrap();
    assert_eq!(gateway.workspace.survivors(HUNG), []);
    assert!(eventually(HUNG, || !alive(&left)), "{left:?}");
}

#[test]
fn what_a_profile_demands_is_had_or_refused() {
    for (profile, expected) in [("off", "denied"), ("docker", "execution_failed")] {
        let mut workspace = two_servers();
        workspace.setting("code", json!({ "profile": profile }));
        let gateway = Gateway::start(workspace);
        let told = error(&gateway, "return 1");
        assert_eq!(told["code"], expected, "{told:#}");
        let list =
            gateway.ask("tools/list", &json!({}), HUNG).unwrap().raw_result().unwrap().to_owned();
        assert_eq!(list.contains("mcp_execute"), profile != "off", "{list}");
        gateway.end();
    }
}

/// A stand-in for `docker` that uses a namespace as the container, and records its arguments.
fn container_engine(workspace: &Workspace) -> std::path::PathBuf {
    let folder = workspace.project().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let script = format!(
        r#"#!/bin/sh
echo "$@" >> {project}/told
case "$1" in
version) echo linux 28.2.2 ;;
run)
    for word; do case "$word" in --name=*) echo $$ > {project}/${{word#--name=}} ;; esac; done
    exec unshare --map-root-user --pid --fork --kill-child --mount-proc env -i {program} __worker container ;;
rm) kill -9 $(cat {project}/$4) ;;
esac
"#,
        project = workspace.project().display(),
        program = env!("CARGO_BIN_EXE_metamcp"),
    );
    let path = folder.join("docker");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    folder
}

#[test]
fn a_container_is_started_spoken_with_and_removed() {
    let mut workspace = two_servers();
    workspace.setting("code", json!({ "profile": "docker", "image": "local/image:1" }));
    let folder = container_engine(&workspace);
    let mut command = command(&workspace);
    command.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()));
    let client = metamcp_testkit::Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    let gateway = Gateway { client, workspace };
    assert_eq!(value(&gateway, "return (await a.echo({ text: 'inside' }))"), json!("inside"));
    // A script that never ends is stopped by the gateway's timeout, and its container with it.
    let id = gateway
        .call_tool("mcp_execute", &json!({ "code": "for (;;) {}", "timeoutMs": 300 }))
        .unwrap();
    assert_eq!(gateway.answer(id).value["result"]["isError"], true);
    let workspace = gateway.end();
    let log = workspace.project().join("told");
    let lines = |word: &str| {
        let told = std::fs::read_to_string(&log).unwrap();
        told.lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect::<Vec<_>>()
    };
    let started = lines("run ");
    assert!(started.len() >= 2, "{started:?}");
    assert!(
        started
            .iter()
            .all(|line| line.contains("--network=none") && line.contains("local/image:1"))
    );
    assert_eq!(lines("image inspect")[0], "image inspect --format {{.Id}} local/image:1");
    let name = |line: &String| line.split("--name=").nth(1)?.split(' ').next().map(str::to_owned);
    for name in started.iter().filter_map(name) {
        let removed = format!("rm --force --volumes {name}");
        assert!(eventually(HUNG, || lines("rm ").contains(&removed)), "{removed} is missing");
    }
}

#[test]
fn without_an_engine_the_container_is_refused_with_what_was_tried() {
    let mut workspace = two_servers();
    workspace.setting("code", json!({ "profile": "docker" }));
    let mut command = command(&workspace);
    command.env("PATH", "/nonexistent");
    let client = metamcp_testkit::Client::start(command).unwrap();
    client.initialize(&json!({}), HUNG).unwrap();
    let gateway = Gateway { client, workspace };
    let told = error(&gateway, "return 1");
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("no container engine: docker cannot be started"), "{message}");
    gateway.end();
}

#[test]
fn the_command_prints_the_value_and_its_exit_says_how_it_went() {
    let workspace = two_servers();
    let run = |code: &str, flags: &[&str]| {
        let file = workspace.project().join("script.ts");
        std::fs::write(&file, code).unwrap();
        let mut command: Command = command(&workspace);
        command.arg("run").arg(&file).args(flags).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, err) =
        run("console.log('on the side'); return (await a.echo({ text: 'hi' }))", &[]);
    assert_eq!((code, out.as_str()), (0, "hi\n"), "{err}");
    assert!(err.contains("on the side"), "{err}");
    let (code, out, _) = run("return [1, 'two']", &["--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["value"]), (0, &json!([1, "two"])));
    let (code, out, err) = run("const x = 1;\nthrow new Error('no luck')", &[]);
    assert_eq!((code, out.as_str()), (5, ""), "{err}");
    assert!(err.contains("no luck") && err.contains("line 2"), "{err}");
    let (_, out, _) = run("throw new Error('no luck')", &["--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told["status"], &told["error"]["line"]), (&json!("error"), &json!(1)));
}

/// Workers of the gateway; they carry neither mark nor directory of the test, so they are found by their parent.
fn workers(gateway: &Gateway) -> Vec<Process> {
    let mut all = census::descendants(gateway.pid());
    all.retain(|one| one.command.contains("__worker") && one.state != 'Z');
    all
}

fn spinning(gateway: &Gateway) -> bool {
    workers(gateway).iter().any(|one| one.state == 'R')
}

/// Whether any of these processes still runs.
fn alive(processes: &[Process]) -> bool {
    let all = census::all();
    processes.iter().any(|known| {
        all.iter()
            .any(|one| one.pid == known.pid && one.command == known.command && one.state != 'Z')
    })
}
