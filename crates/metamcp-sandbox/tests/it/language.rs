//! What a script sees: values, calls, errors, polyfills.

use std::sync::Arc;

use metamcp_sandbox::host::{CallStatus, Level, Limits, Op, Status};
use serde_json::{Value, json};

use crate::common::*;

/// Each script must return the value beside it.
fn table(rows: &[(&str, Value)]) {
    for (code, expected) in rows {
        assert_eq!(value(code), *expected, "{code}");
    }
}

#[test]
fn a_value_is_what_is_returned_as_json() {
    table(&[
        ("return 1 + 1", json!(2)),
        ("await null; return [await Promise.resolve(7)]", json!([7])),
        ("", json!(null)),
        ("return undefined", json!(null)),
        ("return [undefined, () => 1, Symbol('s')]", json!([null, null, "Symbol(s)"])),
        ("return function named() {}", json!("[function named]")),
        ("return Symbol('top')", json!("Symbol(top)")),
        ("return 12345678901234567890n", json!("12345678901234567890")),
        (
            "return { a: 1n, d: new Date(0), u: undefined }",
            json!({"a": "1", "d": "1970-01-01T00:00:00.000Z"}),
        ),
        ("return new Map([['a', new Map([[1, 2]])]])", json!({"a": [[1, 2]]})),
        ("return { s: new Set([1, 2]) }", json!({"s": [1, 2]})),
        ("return new TypeError('no')", json!({"name": "TypeError", "message": "no"})),
        ("return ['\\ud800', '😀', '\\\\ud800']", json!(["\u{fffd}", "😀", "\\ud800"])),
        ("return NaN", json!(null)),
        ("return github", json!("[server github]")),
        ("return { toJSON() { return 5 } }", json!(5)),
        ("x = 5; return x", json!(5)),
        (
            "return typeof process + typeof require + typeof fetch + typeof module + typeof Deno",
            json!("undefinedundefinedundefinedundefinedundefined"),
        ),
        ("return 1 // a comment at the end", json!(1)),
    ]);
}

#[test]
fn a_value_without_json_is_an_error_that_says_so() {
    for (code, words) in [
        ("const a = []; a.push(a); return a", "contains itself"),
        ("return Promise.resolve({ p: github.echo({}) })", "(in \"p\"); await it first"),
        ("return { toJSON() { throw new RangeError('mine') } }", "mine"),
    ] {
        let outcome = runs(code);
        assert_eq!(outcome.status, Status::Error, "{code}");
        let error = outcome.error.unwrap();
        assert!(error.message.contains(words), "{code}: {error:?}");
    }
}

#[test]
fn errors_have_the_position_of_the_code_as_given() {
    for (code, name, line, column) in [
        ("throw new TypeError('no')", "TypeError", 1, Some(11)),
        ("const a = 1;\n  a.b.c();", "TypeError", 2, None),
        ("await null;\n\nundefinedName", "ReferenceError", 3, None),
        ("let x = 1;\nlet y = = 2;", "SyntaxError", 2, Some(9)),
        ("if (true) {\n  1;", "SyntaxError", 2, None),
        ("function f() {\n  throw new RangeError('deep');\n}\nf();", "RangeError", 2, None),
        ("const n = 1;\nconst e = await github.wrong({});", "ToolError", 2, None),
        ("await servers.github.call('missing')", "ToolError", 1, None),
        ("1;\nawait servers.github.call.raw('missing')", "ToolError", 2, None),
        ("const f = () =>\n  github.wrong({});\nawait parallel([1], f)", "ToolError", 2, None),
        ("const f = github.wrong.bind(null, {});\n\nawait f()", "ToolError", 3, None),
    ] {
        let outcome = runs(code);
        assert_eq!(outcome.status, Status::Error, "{code}");
        let error = outcome.error.unwrap();
        assert_eq!((error.name.as_str(), error.line), (name, Some(line)), "{code}: {error:?}");
        if column.is_some() {
            assert_eq!(error.column, column, "{code}");
        }
        assert!(!error.stack.contains("prelude"), "{error:?}");
    }
}

#[test]
fn what_is_thrown_need_not_be_an_error() {
    for (code, name, message) in [
        ("throw 'words'", "Thrown", "words"),
        ("throw null", "Thrown", "null"),
        ("throw { a: 1 }", "Thrown", "{ a: 1 }"),
        ("throw { name: 'Mine', message: 'own' }", "Mine", "own"),
        (
            "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); throw e",
            "Error",
            "x",
        ),
        ("throw new Proxy({}, { get() { throw 1 } })", "Thrown", "{}"),
    ] {
        let error = runs(code).error.unwrap();
        assert_eq!((error.name.as_str(), error.message.as_str()), (name, message), "{code}");
    }
}

#[test]
fn a_call_gives_the_useful_part_of_the_result() {
    table(&[
        ("return await servers.github.call('echo', { a: 1 })", json!({"a": 1})),
        ("return await github.echo({ a: [1] })", json!({"a": [1]})),
        ("return await servers['my files'].echo({ b: 2 })", json!({"b": 2})),
        ("return await servers.myFiles.echo({ b: 2 })", json!({"b": 2})),
        ("return await my_files.call('echo', { c: 3 })", json!({"c": 3})),
        ("return await github.text()", json!("hello")),
        ("return await github.text({ text: '{\"n\":1}' })", json!({"n": 1})),
        ("return await github.text({ text: '42' })", json!(42)),
        ("return await github.text({ text: '007' })", json!("007")),
        (
            "return await github.text({ text: '12345678901234567890' })",
            json!("12345678901234567890"),
        ),
        ("return await github.text({ text: 'null and void' })", json!("null and void")),
        ("return await github.parts()", json!("one\ntwo")),
        ("return await github.empty()", json!(null)),
        ("return (await github.image()).content[0].type", json!("image")),
        ("return (await github.text.raw()).content[0].text", json!("hello")),
        ("return (await github.text().raw()).content[0].text", json!("hello")),
        ("return (await github.wrong().raw()).isError", json!(true)),
        (
            "const p = github.text(); await p; return [await p, (await p.raw()).content[0].text, p.raw() === p.raw()]",
            json!(["hello", "hello", true]),
        ),
        ("return github.text.raw(5).catch(e => e.name)", json!("TypeError")),
        ("return Object.keys(servers)", json!(["github", "my files", "console"])),
        (
            "return typeof github.then + typeof github.toJSON + `${typeof servers.then}`",
            json!("undefinedundefinedundefined"),
        ),
        ("console.log('still the console'); return 1", json!(1)),
    ]);
}

#[test]
fn failures_are_tool_errors_with_facts() {
    assert_eq!(
        value(
            "try { await github.createIssue({}) } catch (e) { return [e instanceof ToolError, e instanceof Error, e.name, e.server, e.tool, e.code, e.retryable, e.message] }"
        ),
        json!([
            true,
            true,
            "ToolError",
            "github",
            "createIssue",
            "unknown_tool",
            false,
            "no tool \"createIssue\"; nearest: echo"
        ])
    );
    assert_eq!(
        value("try { await github.wrong() } catch (e) { return [e.code, e.message, e.tool] }"),
        json!(["tool_error", "no such issue", "wrong"])
    );
    assert_eq!(
        value("try { await github.garbage() } catch (e) { return [e.name, e.code] }"),
        json!(["ToolError", "invalid_result"])
    );
    assert_eq!(
        value("try { await github.echo('text') } catch (e) { return e.message }"),
        json!("the arguments of github.echo must be one object with named values, not a string")
    );
    let outcome = runs("await nothere.call('x')");
    assert_eq!(outcome.error.unwrap().name, "ReferenceError");
    let outcome = runs("return await servers.nothere.anything({})");
    let error: Value = serde_json::from_str(&outcome.error.unwrap().tool_error.unwrap()).unwrap();
    assert_eq!(error["server"], "nothere");
}

#[test]
fn the_gateway_is_asked_with_names_and_arguments() {
    let host = Arc::new(Table::default());
    let code = "await github.createIssue({ t: 'ü' }).catch(() => 0);
        await github['say \"it\"'](new Map([['a', 1]])).catch(() => 0);
        await github.call('x', { toJSON() {} }).catch(() => 0);";
    runtime().block_on(outcome_with(code, Limits::default(), Arc::clone(&host)));
    let asked = host.asked.lock().unwrap();
    assert_eq!(asked[0].0, Op::Call);
    let payloads = asked.iter().map(|(_, payload)| serde_json::from_str(payload).unwrap());
    assert_eq!(
        payloads.collect::<Vec<Value>>(),
        [
            json!({"server": "github", "tool": "createIssue", "arguments": {"t": "ü"}}),
            json!({"server": "github", "tool": "say \"it\"", "arguments": {"a": 1}}),
            json!({"server": "github", "tool": "x", "arguments": null}),
        ]
    );
}

#[test]
fn questions_reach_the_gateway_each_as_what_it_is() {
    table(&[
        (
            "return await tools.search('an invoice', { limit: 5 })",
            json!({"op": "search", "payload": {"query": "an invoice", "options": {"limit": 5}}}),
        ),
        (
            "return await tools.describe('github', 'x')",
            json!({"op": "describe", "payload": {"server": "github", "tool": "x"}}),
        ),
        (
            "return await tools.describe(github, 'x')",
            json!({"op": "describe", "payload": {"server": "github", "tool": "x"}}),
        ),
        (
            "return await tools.list()",
            json!({"op": "list", "payload": {"server": null, "options": null}}),
        ),
        (
            "return await tools.types('github')",
            json!({"op": "types", "payload": {"server": "github", "tool": null}}),
        ),
        (
            "return await tools.types(github, 'x')",
            json!({"op": "types", "payload": {"server": "github", "tool": "x"}}),
        ),
        ("return await results.put([1])", json!({"op": "results_put", "payload": {"value": [1]}})),
        (
            "return await results.get('h')",
            json!({"op": "results_get", "payload": {"handle": "h", "options": null}}),
        ),
    ]);
}

#[test]
fn many_at_once_keep_their_order_and_their_bound() {
    let host = Arc::new(Table::default());
    let code =
        "return await parallel([3, 1, 2], async (n, i) => { await github.nap(); return [n, i] })";
    let outcome = runtime().block_on(outcome_with(code, Limits::default(), host));
    assert_eq!(outcome.value.as_deref(), Some("[[3,0],[1,1],[2,2]]"));

    let host = Arc::new(Table::default());
    let code = "await Promise.all(Array.from({ length: 40 }, () => github.nap())); return 1";
    let outcome = runtime().block_on(outcome_with(code, Limits::default(), Arc::clone(&host)));
    assert_eq!((outcome.status, outcome.calls.len()), (Status::Ok, 40));
    assert_eq!(host.most(), 8, "the bound at one server");

    let host = Arc::new(Table::default());
    let code = "await Promise.all(Array.from({ length: 60 }, (_, i) => [github, my_files, servers.c][i % 3].nap())); return 1";
    let outcome = runtime().block_on(outcome_with(code, Limits::default(), Arc::clone(&host)));
    assert_eq!((outcome.status, outcome.calls.len()), (Status::Ok, 60));
    assert_eq!(host.most(), 16, "the bound in all");
}

#[test]
fn parallel_stops_at_a_failure_unless_told_to_settle() {
    table(&[
        (
            "try { await parallel([1, 2, 3], n => n === 2 ? github.wrong() : n, 1) } catch (e) { return e.message }",
            json!("no such issue"),
        ),
        (
            "return (await parallel.settled([1, 2], n => n === 2 ? github.wrong() : n)).map(r => r.status)",
            json!(["fulfilled", "rejected"]),
        ),
        ("return await parallel([() => 1, async () => 2])", json!([1, 2])),
        ("return await parallel(new Set([1, 2]), n => n * 2, 1)", json!([2, 4])),
        (
            "return await parallel((async function* () { yield 1; yield 2 })(), n => n)",
            json!([1, 2]),
        ),
        ("return await parallel([], n => n)", json!([])),
        (
            "const told = []; for (const odd of [{ a: 1 }, 5, null, undefined]) await parallel(odd, n => n).catch(e => told.push(e.message)); return told",
            json!([
                "parallel takes a list of items, not an object",
                "parallel takes a list of items, not a number",
                "parallel takes a list of items, not null",
                "parallel takes a list of items, not nothing",
            ]),
        ),
    ]);
}

#[test]
fn time_passes_and_timers_fire_in_order() {
    table(&[
        ("const t = Date.now(); await sleep(20); return Date.now() - t >= 19", json!(true)),
        (
            "const seen = []; setTimeout(() => seen.push('b'), 20); setTimeout(v => seen.push(v), 1, 'a'); const id = setTimeout(() => seen.push('c'), 5); clearTimeout(id); await sleep(40); return seen",
            json!(["a", "b"]),
        ),
        (
            "let n = 0; const id = setInterval(() => { n += 1; if (n === 3) clearInterval(id) }, 2); await sleep(60); return n",
            json!(3),
        ),
        ("return await Promise.race([sleep(5).then(() => 'slow'), github.never()])", json!("slow")),
        (
            "try { await sleep(60000) } catch (e) { return [e.name, e.code, e.limit, e.value, e instanceof LimitError] }",
            json!(["LimitError", "limit_exceeded", "sleep", 30000, true]),
        ),
        (
            "const seen = []; queueMicrotask(() => seen.push(1)); await null; return seen",
            json!([1]),
        ),
        (
            "setTimeout(() => { throw new Error('in a timer') }, 1); await sleep(10); return 1",
            json!(1),
        ),
    ]);
}

#[test]
fn a_promise_nobody_can_settle_is_a_deadlock_at_once() {
    for code in [
        "await new Promise(() => {})",
        "await { then() {} }",
        "const p = new Promise(() => {}); for await (const x of [p]) {}",
    ] {
        let outcome = runs(code);
        assert_eq!(outcome.status, Status::Deadlock, "{code}");
    }
}

#[test]
fn the_console_is_streamed_shown_and_bounded() {
    let host = Arc::new(Table::default());
    let code = r#"
        console.log("plain", 1, { a: [1, { b: null }], f() {}, get g() { return 1 } });
        console.warn(new Map([["k", new Set([1])]]), [undefined, -0, 5n], github);
        const loop = { name: "loop" }; loop.self = loop; console.error(loop, new RangeError("bad"));
        console.debug(new Date(0), /x/g, Symbol("s"), class Foo {}, new (class Bar { x = 1 })(), Promise.resolve());
    "#;
    let outcome = runtime().block_on(outcome_with(code, Limits::default(), Arc::clone(&host)));
    let lines: Vec<_> = outcome.logs.iter().map(|line| (line.level, line.text.as_str())).collect();
    assert_eq!(
        lines,
        [
            (Level::Info, "plain 1 { a: [ 1, { b: null } ], f: [function f], g: [getter] }"),
            (Level::Warn, "Map(1) { \"k\" => Set(1) { 1 } } [ undefined, -0, 5n ] [server github]"),
            (Level::Error, "{ name: \"loop\", self: [circular] } RangeError: bad"),
            (
                Level::Debug,
                "1970-01-01T00:00:00.000Z /x/g Symbol(s) [function Foo] Bar { x: 1 } [promise; await it]"
            ),
        ]
    );
    assert_eq!(host.said.lock().unwrap().len(), 4);

    let limits = Limits { logs: 10_000, ..Limits::default() };
    let outcome = runtime().block_on(crate::common::outcome("for (let i = 0; i < 50; i++) console.log('x'.repeat(1000)); console.log({ big: 'y'.repeat(1e6) }); return 1", limits));
    assert_eq!(outcome.status, Status::Ok);
    // The first lines up to the limit, and the last ones.
    assert_eq!((outcome.logs_before_drop, outcome.logs.len()), (10, 19));
    assert!(outcome.logs_dropped > 30_000);
    assert!(outcome.logs.last().unwrap().text.starts_with("{ big: \"yyy"));
}

#[test]
fn progress_reaches_the_gateway() {
    let host = Arc::new(Table::default());
    let code = "progress(0.5, 'half way'); progress(3, 10); progress(4, 10, 'four'); await github.echo({})";
    runtime().block_on(outcome_with(code, Limits::default(), Arc::clone(&host)));
    let steps = host.steps.lock().unwrap();
    let half = (0.5, None, Some("half way".to_owned()));
    assert_eq!(*steps, [half, (3.0, Some(10.0), None), (4.0, Some(10.0), Some("four".to_owned()))]);
}

#[test]
fn calls_are_in_the_books_also_those_nobody_waited_for() {
    let outcome = runs(
        "github.never(); await github.echo({}); try { await github.wrong() } catch {} return 1",
    );
    let calls: Vec<_> = outcome.calls.iter().map(|c| (c.tool.as_str(), c.ended)).collect();
    assert_eq!(
        calls,
        [("echo", CallStatus::Ok), ("wrong", CallStatus::Failed), ("never", CallStatus::Dropped)]
    );
}

#[test]
fn addresses_are_taken_apart_and_put_together() {
    table(&[
        (
            "const u = new URL('HTTPS://us%40er:pw@Example.COM:443/a/./b/../c d?q=1&q=2#f'); return [u.href, u.origin, u.host, u.port, u.username, u.pathname, u.search, u.hash, u.searchParams.getAll('q')]",
            json!([
                "https://us%40er:pw@example.com/a/c%20d?q=1&q=2#f",
                "https://example.com",
                "example.com",
                "",
                "us%40er",
                "/a/c%20d",
                "?q=1&q=2",
                "#f",
                ["1", "2"]
            ]),
        ),
        (
            "return ['../x?y', '/z', '//other/p', '?q', '#h', 'mailto:a@b', ''].map(r => new URL(r, 'http://h:8080/a/b/c?d#e').href)",
            json!([
                "http://h:8080/a/x?y",
                "http://h:8080/z",
                "http://other/p",
                "http://h:8080/a/b/c?q",
                "http://h:8080/a/b/c?d#h",
                "mailto:a@b",
                "http://h:8080/a/b/c?d"
            ]),
        ),
        (
            "const u = new URL('http://h/p'); u.searchParams.append('a b', 'c&d'); u.pathname = '/é'; u.hash = 'x'; u.port = '81'; return String(u)",
            json!("http://h:81/%C3%A9?a+b=c%26d#x"),
        ),
        (
            "return ['', 'nonsense', 'http://', 'http://a b/', 'http://x:99999/', 'http://256.1.1.1/'].map(u => URL.canParse(u))",
            json!([false, false, false, false, false, false]),
        ),
        (
            "return [new URL('http://0x7f.1/').hostname, new URL('http://[::1]:80/').host]",
            json!(["127.0.0.1", "[::1]"]),
        ),
        (
            "const p = new URLSearchParams({ a: '1', b: 'x y' }); p.set('a', '2'); p.delete('b'); p.append('c', '%'); return [p.toString(), [...p], p.has('a'), p.get('z')]",
            json!(["a=2&c=%25", [["a", "2"], ["c", "%"]], true, null]),
        ),
        ("return JSON.stringify({ u: new URL('http://h') })", json!("{\"u\":\"http://h/\"}")),
    ]);
}

#[test]
fn small_parts_of_other_runtimes_are_there() {
    table(&[
        (
            "return [...new TextEncoder().encode('é😀')]",
            json!([0xc3, 0xa9, 0xf0, 0x9f, 0x98, 0x80]),
        ),
        (
            "return new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 0x68, 0xff]))",
            json!("h\u{fffd}"),
        ),
        (
            "try { new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([255])) } catch (e) { return e.name }",
            json!("TypeError"),
        ),
        (
            "const a = { d: new Date(0), m: new Map([[1, { x: 1 }]]), s: new Set([1]) }; a.self = a; const b = structuredClone(a); b.m.get(1).x = 2; return [b.self === b, a.m.get(1).x, b.d instanceof Date, b.s.has(1)]",
            json!([true, 1, true, true]),
        ),
        ("try { structuredClone(() => 1) } catch (e) { return e.name }", json!("DataCloneError")),
        (
            "return /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID()) && crypto.randomUUID() !== crypto.randomUUID()",
            json!(true),
        ),
        (
            "return await crypto.digest('SHA-256', 'abc')",
            json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ),
        (
            "return new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode('abc')))[0]",
            json!(0xba),
        ),
        ("return crypto.getRandomValues(new Uint32Array(4)).length", json!(4)),
        ("return [btoa('hi'), atob('aGk=')]", json!(["aGk=", "hi"])),
        (
            "return [(1234567.891).toLocaleString(), new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' }).format(-1234.5), (0.256).toLocaleString('en-US', { style: 'percent' }), new Intl.NumberFormat('en-US', { notation: 'compact' }).format(1234567)]",
            json!(["1,234,567.891", "-$1,234.50", "26%", "1.2M"]),
        ),
        (
            "return [new Intl.DateTimeFormat('en-US', { timeZone: 'UTC' }).format(0), new Intl.DateTimeFormat('en-US', { timeZone: 'UTC', dateStyle: 'medium', timeStyle: 'short' }).format(0)]",
            json!(["1/1/1970", "Jan 1, 1970, 12:00 AM"]),
        ),
        (
            "return typeof performance.now() + typeof new Date().getTimezoneOffset() + typeof new Date(2020, 5, 1).toString()",
            json!("numbernumberstring"),
        ),
    ]);
}

#[test]
fn dates_and_words_are_in_the_order_and_zone_that_was_asked_for() {
    table(&[
        (
            "const d = new Date(Date.UTC(2024, 0, 5, 15, 4, 9)), utc = { timeZone: 'UTC' }; return [d.toLocaleString('en-US', utc), d.toLocaleDateString(undefined, utc), d.toLocaleTimeString([], { ...utc, hour: '2-digit', minute: '2-digit' }), d.toLocaleDateString('en-US', { ...utc, weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' }), d.toLocaleString('en-US', { timeZone: '+02:00', hour: 'numeric' }), d.toLocaleDateString('en-CA', utc), new Date(NaN).toLocaleDateString()]",
            json!([
                "1/5/2024, 3:04:09 PM",
                "1/5/2024",
                "03:04 PM",
                "Friday, January 5, 2024",
                "5 PM",
                "2024-01-05",
                "Invalid Date"
            ]),
        ),
        (
            "try { return new Date(0).toLocaleString('en-US', { timeZone: 'Asia/Tokyo' }) } catch (e) { return [e.name, e.message.slice(0, 37)] }",
            json!(["RangeError", "the time zone Asia/Tokyo is not known"]),
        ),
        (
            "const zone = Intl.DateTimeFormat().resolvedOptions().timeZone; return [/^(UTC|[+-]\\d\\d:\\d\\d)$/.test(zone), new Date(0).toLocaleString('en-US', { timeZone: zone }).length > 0]",
            json!([true, true]),
        ),
        (
            "return ['Zebra', 'äpfel', 'apple', 'résumé', 'Resume', 'resume', 'banana', '_x', '10', '9'].sort((a, b) => a.localeCompare(b))",
            json!([
                "_x", "10", "9", "äpfel", "apple", "banana", "resume", "Resume", "résumé", "Zebra"
            ]),
        ),
        (
            "const numeric = { numeric: true }; return [['f10', 'f9', 'F1'].sort((a, b) => a.localeCompare(b, 'en', numeric)), 'a'.localeCompare('Á', undefined, { sensitivity: 'base' }), 'a'.localeCompare('A', 'en', { sensitivity: 'accent' }), ['b', 'a'].sort(new Intl.Collator().compare)]",
            json!([["F1", "f9", "f10"], 0, 0, ["a", "b"]]),
        ),
        (
            "return [Intl.NumberFormat('en-US').format(1234.5), [1, 2000].map(Intl.NumberFormat().format), Intl.Collator('en').compare('a', 'b')]",
            json!(["1,234.5", ["1", "2,000"], -1]),
        ),
    ]);
}

#[test]
fn arguments_lose_nothing_without_a_word() {
    table(&[
        (
            "return await github.echo({ m: new Map([['a', 1]]), s: new Set([1, 2]), d: new Date(0), n: { o: [new Set(['x'])] } })",
            json!({"m": {"a": 1}, "s": [1, 2], "d": "1970-01-01T00:00:00.000Z", "n": {"o": [["x"]]}}),
        ),
        ("return await github.echo(new Map([['a', 1]]))", json!({"a": 1})),
        ("return (await results.put(new Set([1]))).payload", json!({"value": [1]})),
    ]);
    for (code, words) in [
        (
            "await github.echo({ p: github.echo({}) })",
            "a promise cannot be sent (in \"p\"); await it first",
        ),
        ("await github.echo({ n: [1n] })", "a BigInt cannot be sent (in \"0\")"),
    ] {
        let error = runs(code).error.unwrap();
        assert!(error.message.contains(words), "{code}: {error:?}");
    }
}

#[test]
fn a_promise_that_fails_unheard_is_told() {
    let told = |code: &str| -> Vec<String> {
        let outcome = runs(code);
        assert_eq!(outcome.status, Status::Ok, "{code}: {:?}", outcome.error);
        outcome.logs.into_iter().map(|line| line.text).collect()
    };
    let lost = "unhandled rejection: Error: lost";
    assert_eq!(told("Promise.reject(new Error('lost')); return 1"), [lost]);
    assert_eq!(told("(async () => { throw new Error('lost') })(); return 1"), [lost]);
    assert_eq!(
        // The answer to a later call says that there has been time for the first one.
        told("github.wrong(); await github.echo({}); await sleep(50); return 1"),
        ["unhandled rejection: ToolError: no such issue"]
    );
    for heard in [
        "try { await github.wrong() } catch {} return 1",
        "try { await github.wrong().raw() } catch {} return 1",
        "const p = Promise.reject(1); await sleep(1); p.catch(() => {}); return 1",
        "await Promise.allSettled([github.wrong(), Promise.reject(1)]); return 1",
        "try { await parallel([1, 2, 3], () => github.wrong()) } catch {} return 1",
        "await parallel.settled([1, 2], () => github.wrong()); return 1",
    ] {
        assert_eq!(told(heard), [""; 0], "{heard}");
    }
    let many = told("for (let i = 0; i < 500; i++) Promise.reject(i); return 1");
    assert_eq!((many.len(), many[10].as_str()), (11, "unhandled rejection: 90 more"));
}

#[test]
fn what_is_behind_an_error_is_told_with_it() {
    for (code, words) in [
        (
            "throw new Error('outer', { cause: new TypeError('inner') })",
            "outer; cause: TypeError: inner",
        ),
        (
            "await Promise.any([Promise.reject(new Error('one')), Promise.reject('two')])",
            "; 1. Error: one; 2. \"two\"",
        ),
        ("const e = new Error('round'); e.cause = e; throw e", "round; cause: Error: round"),
    ] {
        let error = runs(code).error.unwrap();
        assert!(error.message.contains(words), "{code}: {error:?}");
    }
}

#[test]
fn a_realm_in_pieces_is_not_taken_for_one_without_memory() {
    let outcome = runs("delete globalThis.Object; console.log({ a: 1 }); return 1");
    assert_eq!((outcome.status, outcome.logs[0].text.as_str()), (Status::Ok, "{ a: 1 }"));
}

#[test]
fn changed_prototypes_do_not_lose_calls() {
    table(&[
        (
            "Map.prototype.get = Map.prototype.set = () => { throw 1 }; return await github.echo({ a: 1 })",
            json!({"a": 1}),
        ),
        (
            "Array.prototype.push = Array.prototype.join = () => { throw 1 }; console.log([1], { a: 1 }); return await github.parts()",
            json!("one\ntwo"),
        ),
        (
            "JSON.parse = JSON.stringify = () => { throw 1 }; return await github.echo({ a: 1 })",
            json!({"a": 1}),
        ),
        ("Promise.prototype.then = undefined; return await github.echo({ a: 1 })", json!({"a": 1})),
        (
            "globalThis.Error = globalThis.Promise = globalThis.Map = undefined; return await github.echo({ a: 1 })",
            json!({"a": 1}),
        ),
        (
            "try { github.echo = 1 } catch (e) { return e.name }  return (await github.echo({})) && 'kept'",
            json!("TypeError"),
        ),
    ]);
}

#[test]
fn a_script_finds_nothing_at_its_calls_that_settles_them() {
    let code = "
        const call = github.echo({ a: 1 }), seen = [];
        const walk = (value, depth) => {
            if (value === null || (typeof value !== 'object' && typeof value !== 'function') || depth > 4) return;
            for (const key of Reflect.ownKeys(value)) {
                const own = Reflect.getOwnPropertyDescriptor(value, key).value;
                if (typeof own === 'function' && own !== call.raw && own.length === 1 && own.name === '') seen.push(String(key));
                walk(own, depth + 1);
            }
        };
        walk(call, 0);
        return [seen, (await call).a, (await call.raw()).structuredContent.a];";
    assert_eq!(value(code), serde_json::json!([[], 1, 1]));
}

#[test]
fn what_arguments_throw_fails_their_call_and_no_other() {
    let code = "
        const bad = [{ get a() { throw new Error('got') } }, new Proxy({}, { ownKeys() { throw new Error('listed') } }), { toJSON() { throw new Error('written') } }];
        const all = await Promise.allSettled([...bad, { b: 2 }].map(args => github.echo(args)));
        const { raw } = github.echo({});
        let lost;
        try { raw(); } catch (error) { lost = error.message; }
        return [all.map(one => one.reason?.message ?? one.value.b), lost];";
    let lost = "raw belongs to the call it is taken from: call.raw()";
    assert_eq!(value(code), serde_json::json!([["got", "listed", "written", 2], lost]));
}

#[test]
fn what_the_language_brings_along_is_frozen_and_scripts_do_not_notice() {
    table(&[
        (
            "class Own extends Error { constructor(m) { super(m); this.name = 'Own'; this.message += '!'; } }
             const e = new Own('a'); return [e.name, e.message, String(e), e instanceof Error, Object.keys(e)]",
            json!(["Own", "a!", "Own: a!", true, ["name"]]),
        ),
        (
            "function Old(m) { this.message = m; } Old.prototype = Object.create(Error.prototype); Old.prototype.constructor = Old; Old.prototype.name = 'Old';
             Old.prototype.toString = function () { return 'old ' + this.message; }; return [String(new Old('a')), new Old('a').constructor === Old, new Old('b').name]",
            json!(["old a", true, "Old"]),
        ),
        (
            "const seen = {}; for (const word of 'constructor toString constructor valueOf'.split(' ')) seen[word] = (Object.hasOwn(seen, word) ? seen[word] : 0) + 1; return seen",
            json!({"constructor": 2, "toString": 1, "valueOf": 1}),
        ),
        (
            "const o = { a: 1 }; o.toString = () => 'o'; o.hasOwnProperty = 7; class P { constructor() { this.valueOf = () => 3; } } return [`${o}`, o.hasOwnProperty, +new P(), Object.prototype.toString.call([])]",
            json!(["o", 7, 3, "[object Array]"]),
        ),
        (
            "class T extends ToolError { constructor(m) { super(m); this.name = 'T'; } } return [new T('x').name, new T('x') instanceof Error]",
            json!(["T", true]),
        ),
        (
            "const wrong = []; for (const [name, change] of Object.entries({ own: () => { 'use strict'; Object.prototype.x = 1 }, yields: () => { Object.prototype.toString = 1 }, list: () => { 'use strict'; Array.prototype.push = 1 }, error: () => { Error.prototype.name = 'x' } })) { try { change(); wrong.push(name) } catch (e) { if (e.name !== 'TypeError') wrong.push(e.name) } } return wrong",
            json!([]),
        ),
        (
            "var console2 = console; console.log = (...all) => lines.push(all); const lines = []; console.log('a'); globalThis.String = x => 'mine ' + x; return [lines, String(1)]",
            json!([[["a"]], "mine 1"]),
        ),
        (
            "Error.prepareStackTrace = (e, frames) => frames; return [typeof new Error('x').stack, Error.prepareStackTrace === undefined]",
            json!(["string", true]),
        ),
    ]);
}

#[test]
fn parts_read_late_use_nothing_of_the_scripts() {
    let code = "
        const names = Object.getOwnPropertyNames(globalThis), keep = { URL: 1, URLSearchParams: 1, TextEncoder: 1, TextDecoder: 1, structuredClone: 1, crypto: 1, Intl: 1, console: 1, parallel: 1, github: 1, globalThis: 1, undefined: 1 };
        const { Error: E } = globalThis, made = {};
        for (const name of names) if (!(name in keep)) { try { globalThis[name] = () => { throw new E('stolen: ' + name) } } catch {} }
        made.url = new URL('HTTPS://a.b:443/c/../d?x=%FF&y=é').href;
        made.params = new URLSearchParams('a=%FF&b=1').get('b');
        made.text = new TextDecoder().decode(new TextEncoder().encode('é€'));
        made.clone = structuredClone({ a: [1, { b: null }] });
        made.digest = await crypto.digest('SHA-256', 'abc');
        made.number = (1234567.891).toLocaleString();
        made.order = ['é', 'f', 'e'].sort((a, b) => a.localeCompare(b));
        made.lanes = await parallel([1, 2, 3], n => n * 2);
        made.call = await github.echo({ a: { b: [1] } });
        console.log({ a: [1, 'x'] }, new E('y'));
        return made;";
    assert_eq!(
        value(code),
        json!({
            "url": "https://a.b/d?x=%FF&y=%C3%A9",
            "params": "1",
            "text": "é€",
            "clone": {"a": [1, {"b": null}]},
            "digest": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "number": "1,234,567.891",
            "order": ["e", "é", "f"],
            "lanes": [2, 4, 6],
            "call": {"a": {"b": [1]}},
        })
    );
}

#[test]
fn a_value_of_the_engine_own_is_an_error_like_any_other() {
    // The engine's normalizer runs out of memory and does not report it.
    let much = "const much = 'é'.repeat(5e6);";
    let caught = format!(
        "{much} try {{ much.localeCompare(much + 'x') }} catch (e) {{ return [typeof e, e instanceof Error, e.message] }}"
    );
    assert_eq!(value(&caught), json!(["object", true, "out of memory"]));
    let waited = format!(
        "{much} return await Promise.resolve().then(() => much.normalize('NFD')).catch(e => e.message)"
    );
    assert_eq!(value(&waited), json!("out of memory"));
    let outcome = runs(&format!("{much} return much.normalize('NFD')"));
    assert_eq!(outcome.status, Status::MemoryLimit, "{:?}", outcome.error);
    assert!(!format!("{outcome:?}").contains("uninitialized"));
    assert_eq!(
        value("return ['e\u{301}'.normalize(), 'é'.normalize('NFD').length]"),
        json!(["é", 2])
    );
    let outcome = runs("return 'a'.normalize('x')");
    assert_eq!(outcome.error.unwrap().name, "RangeError");
}
