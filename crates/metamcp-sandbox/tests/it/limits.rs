//! Limits that a script can survive, and what is kept where it does not.

use std::sync::Arc;
use std::time::Duration;

use metamcp_sandbox::host::{Limits, ScriptOutcome, Status};
use serde_json::{Value, json};

use crate::common::*;

fn limited(code: &str, limits: Limits) -> ScriptOutcome {
    runtime().block_on(outcome(code, limits))
}

fn five_calls() -> Limits {
    Limits { calls: 5, ..Limits::default() }
}

#[test]
fn the_call_beyond_the_limit_can_be_caught_and_the_script_goes_on() {
    let code = "const got = []; let limit; try { for (let i = 0; i < 9; i++) got.push((await github.echo({ i })).i) } catch (e) { limit = [e instanceof LimitError, e.name, e.code, e.limit, e.value, e.retryable] } return [got, limit]";
    let outcome = limited(code, five_calls());
    assert_eq!((outcome.status, outcome.calls.len()), (Status::Ok, 5), "{:?}", outcome.error);
    let value: Value = serde_json::from_str(&outcome.value.unwrap()).unwrap();
    let told = json!([true, "LimitError", "limit_exceeded", "calls", 5, false]);
    assert_eq!(value, json!([[0, 1, 2, 3, 4], told]));
    let raw = "let n = 0; for (let i = 0; i < 9; i++) { try { await github.echo({}).raw() } catch (e) { n += e.limit === 'calls' } } return n";
    assert_eq!(limited(raw, five_calls()).value.as_deref(), Some("4"));
}

#[test]
fn uncaught_it_ends_the_script_as_the_call_limit_with_its_place() {
    let outcome =
        limited("1;\nfor (let i = 0; i < 9; i++) await github.echo({ i });", five_calls());
    assert_eq!(outcome.status, Status::CallLimit);
    let hit = outcome.limit.unwrap();
    assert_eq!((hit.name, hit.value.as_str()), ("calls", "5"));
    let error = outcome.error.unwrap();
    assert_eq!((error.name.as_str(), error.line), ("LimitError", Some(2)));
    assert!(error.message.contains("github.echo was not called"), "{error:?}");
}

#[test]
fn other_limits_that_leave_a_script_alive_are_limit_errors_too() {
    for (code, limit) in [
        ("await sleep(1e6)", "sleep"),
        ("for (;;) setTimeout(() => 0, 1e6)", "timers"),
        ("await github.echo({ text: 'x'.repeat(5e6) })", "arguments"),
        ("await github.big({ size: 17e6 })", "result"),
        ("for (;;) await tools.list()", "questions"),
    ] {
        let caught = format!(
            "try {{ {code} }} catch (e) {{ return [e.name, e.code, e.limit, typeof e.value] }}"
        );
        let told = json!(["LimitError", "limit_exceeded", limit, "number"]);
        assert_eq!(value(&caught), told, "{code}");
        let outcome = runs(code);
        assert_eq!(outcome.limit.as_ref().map(|hit| hit.name), Some(limit), "{outcome:?}");
    }
}

#[test]
fn what_finished_of_a_parallel_that_fails_is_kept_under_a_handle() {
    let code = "const all = parallel([1, 2, 3, 4, 5], async n => { if (n === 4) await github.wrong(); return { n } }, 1); try { await all } catch (e) { return [e.name, e.code, e.partial.op, e.partial.payload.value] }";
    let done = |n: u32| json!({"status": "fulfilled", "value": {"n": n}});
    let failed = json!({"status": "rejected", "reason": "ToolError: no such issue"});
    let kept = json!([done(1), done(2), done(3), failed, {"status": "pending"}]);
    assert_eq!(value(code), json!(["ToolError", "tool_error", "results_put", kept]));
    // The error is the same one, and uncaught it says what there is.
    let code = "await parallel([1, 2, 3], n => { if (n === 3) throw new RangeError('mine'); return n }, 1)";
    let error = runs(code).error.unwrap();
    assert_eq!((error.name.as_str(), error.line), ("RangeError", Some(1)));
    assert!(error.message.starts_with("mine; 2 of 3 items of parallel had finished: results.get("));
    // Nothing finished, nothing is kept.
    let code = "try { await parallel([1, 2], () => { throw new Error('at once') }) } catch (e) { return ['partial' in e, e.message] }";
    assert_eq!(value(code), json!([false, "at once"]));
    // What is thrown need not be an object.
    let code = "await parallel([1, 2], n => { if (n === 2) throw 'words'; return n }, 1)";
    let error = runs(code).error.unwrap();
    assert!(error.message.starts_with("words; 1 of 2 items"), "{error:?}");
    // Values without JSON are no failure.
    let code = "const loop = {}; loop.self = loop; try { await parallel([1, 2, 3], n => { if (n === 3) throw new Error('x'); return n === 1 ? loop : 5n }, 1) } catch (e) { return e.partial.payload.value.slice(0, 2) }";
    let omitted = json!({"status": "fulfilled", "value": null, "omitted": true});
    assert_eq!(value(code), json!([omitted, {"status": "fulfilled", "value": "5"}]));
}

#[test]
fn what_finished_survives_the_limits_that_kill() {
    let quick =
        Limits { cpu: Duration::from_millis(300), heap: 16 * 1024 * 1024, ..Limits::default() };
    let cases = [
        ("await github.never()", Status::Timeout),
        ("for (;;) {}", Status::CpuLimit),
        ("const all = []; for (;;) all.push(new Array(1e5).fill(7))", Status::MemoryLimit),
        ("for (;;) await github.echo({})", Status::CallLimit),
    ];
    for (end, status) in cases {
        let code = format!(
            "await parallel([1, 2, 3, 4], async n => {{ if (n === 4) {{ {end} }} return (await github.echo({{ n }})).n * 10 }}, 1)"
        );
        // A short one only where it is what ends the script.
        let wall = match status {
            Status::Timeout => Duration::from_millis(700),
            _ => Duration::from_mins(1),
        };
        let outcome = limited(&code, Limits { calls: 20, wall, ..quick.clone() });
        assert_eq!(outcome.status, status, "{end}: {:?}", outcome.error);
        // Where the limit is thrown, the script's side asks for it to be kept; without memory it may not be able to.
        let told = outcome.error.as_ref().map_or("", |error| &error.message);
        let is_thrown = matches!(status, Status::CallLimit | Status::MemoryLimit);
        if is_thrown && told.contains("3 of 4 items of parallel") {
            continue;
        }
        assert_ne!(status, Status::CallLimit, "{told}");
        let [kept] = outcome.partial.as_slice() else { panic!("{end}: {outcome:?}") };
        assert_eq!((kept.finished, kept.total), (3, 4));
        let items: Value = serde_json::from_str(&kept.json).unwrap();
        assert_eq!(items[2], json!({"status": "fulfilled", "value": 30}));
        assert_eq!(items[3], json!({"status": "pending"}));
    }
    // What ended well is not kept.
    let short = Limits { wall: Duration::from_millis(700), ..quick };
    let outcome = limited("await parallel([1, 2], n => n); await github.never()", short);
    assert_eq!((outcome.status, outcome.partial), (Status::Timeout, Vec::new()));
}

#[test]
fn what_a_function_does_not_take_is_refused_with_the_nearest_name() {
    for (code, words) in [
        ("tools.search('x', { limt: 5 })", "tools.search has no option limt; did you mean limit?"),
        ("tools.search('x', { zebra: 5 })", "it has limit, server, detail"),
        ("tools.search('x', 5)", "the options of tools.search are an object"),
        ("tools.search()", "takes a query in words first"),
        ("tools.types('github', 'x', 1)", "tools.types takes a server and perhaps a tool"),
        ("tools.list('github', { limit: 5 })", "tools.list takes a server"),
        ("results.get('h', { ofset: 1 })", "did you mean offset?"),
        ("results.put(1, 2)", "results.put takes one value"),
        ("sleep(1, 2)", "sleep takes milliseconds, nothing more"),
        ("parallel([1], n => n, { concurrency: 4 })", "how many run at once, a number"),
        ("parallel([1], { concurrency: 4 })", "a function of an item, not an object"),
    ] {
        let error = runs(&format!("await {code}")).error.unwrap_or_else(|| panic!("{code}"));
        assert_eq!(error.name, "TypeError", "{code}");
        assert!(error.message.contains(words), "{code}: {error:?}");
    }
}

#[test]
fn lists_of_tools_are_shown_as_lines_and_are_data_all_the_same() {
    let tool = json!({"id": "git:log", "server": "git", "tool": "log", "signature": "log(path: string)", "description": "Shows commits.", "confidence": 0.87});
    let mut table = Table::default();
    table.listing = Some(json!([tool]));
    let host = Arc::new(table);
    let run = |code: &str| {
        let host = Arc::clone(&host);
        runtime().block_on(outcome_with(code, Limits::default(), host))
    };
    let line = "git:log(path: string) - Shows commits. (87 %)";
    let outcome = run("const hits = await tools.search('x'); console.log(hits); return hits");
    assert_eq!(outcome.logs[0].text, line);
    assert_eq!(outcome.value.unwrap(), Value::from(line).to_string());
    let outcome = run("return { hits: await tools.search('x') }");
    assert_eq!(outcome.value.unwrap(), json!({ "hits": [line] }).to_string());
    let outcome = run("const [hit] = await tools.search('x'); return [hit.id, hit.confidence]");
    assert_eq!(outcome.value.unwrap(), json!(["git:log", 0.87]).to_string());
}

#[test]
fn a_type_error_brings_along_what_tools_gave() {
    let error = runs(
        "const rows = await github.text({ text: \"[{'id': 1}]\" }); await github.echo({ a: 1, b: 2 }); await github.list({ count: 2 }); rows.map(r => r.id)",
    )
    .error
    .unwrap();
    assert_eq!((error.name.as_str(), error.message.as_str()), ("TypeError", "not a function"));
    let seen: Value = serde_json::from_str(&error.tool_error.unwrap()).unwrap();
    let text = json!({"server": "github", "tool": "text", "times": 1, "mixed": false, "kind": "string", "size": 11, "start": "[{'id': 1}]", "keys": null});
    assert_eq!(seen["seen"][0], text);
    assert_eq!(seen["seen"][1]["keys"], json!(["a", "b"]));
    assert_eq!((&seen["seen"][2]["kind"], &seen["seen"][2]["size"]), (&json!("array"), &json!(2)));
}
