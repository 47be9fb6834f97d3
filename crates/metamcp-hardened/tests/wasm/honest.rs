//! What a script is promised.

use metamcp_hardened::realm::ScriptEnd;

use crate::world::{Bounds, run};

fn value(code: &str) -> String {
    match run(code, Bounds::default()).end {
        Some(ScriptEnd::Value(value)) => value,
        other => panic!("{code}: {other:?}"),
    }
}

#[test]
fn values_come_back_as_json() {
    for (code, expected) in [
        ("return 1 + 1", "2"),
        ("", "null"),
        ("return [1, 'ü😀', null, {a: true}]", r#"[1,"ü😀",null,{"a":true}]"#),
        ("return await Promise.all([1, Promise.resolve(2)])", "[1,2]"),
        ("return new Map([['a', 1]])", r#"{"a":1}"#),
        ("return 12n ** 20n", r#""3833759992447475122176""#),
        ("let n = 0; for (let i = 0; i < 1e5; i++) n += i % 7; return n", "299995"),
        ("return [3, 1, 2].sort((a, b) => b - a)", "[3,2,1]"),
        ("return 'aXbX'.replace(/x/gi, s => s + s)", r#""aXXbXX""#),
        ("return JSON.parse('{\"a\":[1,2,{\"b\":3}]}').a[2].b", "3"),
        (
            "const g = async function* () { yield 1; yield 2 }; let s = 0; for await (const x of g()) s += x; return s",
            "3",
        ),
        ("class A { #x = 4; get x() { return this.#x } } return new A().x", "4"),
        ("return Math.floor(-1.5) + Math.trunc(2.7) + Math.round(2.5)", "3"),
        (
            "return [0.1 + 0.2, 1e21, 5e-324, 123456789.123]",
            "[0.30000000000000004,1e+21,5e-324,123456789.123]",
        ),
    ] {
        assert_eq!(value(code), expected, "{code}");
    }
}

#[test]
fn the_prelude_is_the_one_of_the_worker() {
    for (code, expected) in [
        ("await sleep(50); return 'slept'", r#""slept""#),
        ("return await new Promise(done => setTimeout(done, 10, 'late'))", r#""late""#),
        ("return new URL('https://a.b/c?d=1#e').searchParams.get('d')", r#""1""#),
        ("return new TextDecoder().decode(new TextEncoder().encode('ü😀'))", r#""ü😀""#),
        (
            "return new TextDecoder().decode(new Uint8Array([97, 0xff, 0xe2, 0x82, 98, 0xf0, 0x9f, 0x98]))",
            "\"a\u{fffd}\u{fffd}b\u{fffd}\"",
        ),
        (
            "try { new TextDecoder('utf-8', {fatal: true}).decode(new Uint8Array([0xed, 0xa0, 0x80])) } catch (e) { return e.name }",
            r#""TypeError""#,
        ),
        (
            "return structuredClone({a: [1, new Date(0)]})",
            r#"{"a":[1,"1970-01-01T00:00:00.000Z"]}"#,
        ),
        ("return crypto.randomUUID()", r#""5a5a5a5a-5a5a-4a5a-9a5a-5a5a5a5a5a5a""#),
        (
            "return await crypto.digest('SHA-256', 'abc')",
            r#""ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad""#,
        ),
        ("return new Date(2024, 0, 2, 3).toISOString()", r#""2024-01-02T03:00:00.000Z""#),
        ("return Date.now()", "1700000000000"),
        ("return await parallel([1, 2, 3], async x => x * 2, 2)", "[2,4,6]"),
    ] {
        assert_eq!(value(code), expected, "{code}");
    }
}

#[test]
fn calls_cross_and_come_back() {
    let run = run(
        "console.log('hello', {a: 1}); progress(0.5, 'half'); const r = await gitHub.createIssue({title: 'x'}); return r.arguments.title",
        Bounds::default(),
    );
    assert_eq!(run.end, Some(ScriptEnd::Value("\"x\"".into())));
    assert_eq!(run.world.logs, [(1, "hello { a: 1 }".to_owned())]);
    assert_eq!(run.world.progress, [(0.5, None, Some("half".to_owned()))]);
    assert_eq!(
        run.world.questions,
        [(0, r#"{"server":"git hub","tool":"createIssue","arguments":{"title":"x"}}"#.to_owned())]
    );
}

#[test]
fn a_promise_that_fails_unheard_is_told() {
    let run = run(
        "Promise.reject(new Error('lost')); const p = Promise.reject(1); await null; p.catch(() => {}); return 'é'.localeCompare('f')",
        Bounds::default(),
    );
    assert_eq!(run.end, Some(ScriptEnd::Value("-1".into())));
    assert_eq!(run.world.logs, [(3, "unhandled rejection: Error: lost".to_owned())]);
}

#[test]
fn errors_say_where() {
    let threw = |code: &str| match run(code, Bounds::default()).end {
        Some(ScriptEnd::Threw(thrown)) => thrown,
        other => panic!("{code}: {other:?}"),
    };
    let thrown = threw("let x = 1;\n  x.y.z()");
    assert_eq!(thrown.name, "TypeError");
    assert!(thrown.stack.contains("script:3:"), "{thrown:?}");
    let thrown = threw("let x = ;");
    assert_eq!(thrown.name, "SyntaxError");
    assert!(thrown.stack.contains("script:2:"), "{thrown:?}");
    let thrown = threw("await gitHub.fail()");
    assert_eq!(thrown.name, "ToolError");
    assert!(thrown.tool_error.is_some_and(|error| error.contains("\"retryable\":true")));
    assert_eq!(threw("await gitHub.garbage()").message, "the answer is not JSON");
    assert_eq!(threw("throw 'words'").message, "words");
}

#[test]
fn waiting_for_nobody_is_told_apart() {
    assert_eq!(run("await new Promise(() => {})", Bounds::default()).end, None);
}

#[test]
fn a_value_beyond_the_limit_is_not_handed_over() {
    let bounds = Bounds { result: 1000, ..Bounds::default() };
    let end = run("return 'x'.repeat(5000)", bounds).end;
    assert_eq!(end, Some(ScriptEnd::ResultTooLong { bytes: 5002 }));
}

#[test]
fn two_runs_share_nothing() {
    value("globalThis.left = 1; Object.prototype.left = 2; Array.prototype.map = null; return 1");
    assert_eq!(
        value("return [typeof left, typeof ({}).left, [1].map(x => x + 1)]"),
        r#"["undefined","undefined",[2]]"#
    );
}
