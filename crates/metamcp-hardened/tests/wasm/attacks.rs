//! Scripts that use up what they are given. Each ends by the limit it runs into, and nothing else does.

use metamcp_hardened::realm::ScriptEnd;

use crate::world::{Bounds, run};

#[derive(Debug, PartialEq)]
enum ExpectedEnd {
    Cpu,
    Memory,
    /// An error of this name.
    Threw(&'static str),
    /// The script notices by itself and goes on.
    Value(&'static str),
    Deadlock,
}
use ExpectedEnd::{Cpu, Deadlock, Memory, Threw, Value};

/// Each with the ends it may come to: which of two limits strikes first is a matter of the machine.
const ATTACKS: &[(&str, &[ExpectedEnd])] = &[
    // Loops, and ways not to be interrupted in one.
    ("for (;;) {}", &[Cpu]),
    ("while (1) new Promise(() => { for (;;) {} })", &[Cpu]),
    ("while (1) { try { for (;;) {} } catch {} finally { continue } }", &[Cpu]),
    ("for (;;) await null", &[Cpu]),
    ("const f = () => Promise.resolve().then(f); await f()", &[Cpu, Memory]),
    (
        "const spin = () => queueMicrotask(spin); if (typeof queueMicrotask === 'function') { spin(); await new Promise(() => {}) } for (;;) {}",
        &[Cpu],
    ),
    (
        "const g = function* () { try { for (;;) yield 1 } finally { for (;;) {} } }; for (const x of g()) break;",
        &[Cpu],
    ),
    ("const p = new Proxy({}, { get: () => { for (;;) {} } }); return p.x", &[Cpu]),
    ("return { toJSON() { for (;;) {} } }", &[Cpu]),
    ("throw { get message() { for (;;) {} } }", &[Cpu]),
    ("return { get then() { for (;;) {} } }", &[Cpu]),
    (
        "class E extends Error { get stack() { for (;;) {} } }; throw new E()",
        &[Cpu, Threw("Error")],
    ),
    ("console.log({ get a() { return 1 }, toString() { for (;;) {} } }); for (;;) {}", &[Cpu]),
    ("setTimeout(() => { for (;;) {} }); await new Promise(() => {})", &[Cpu]),
    ("setInterval(() => {}, 0); await new Promise(() => {})", &[Cpu]),
    ("gitHub.x().then(() => { for (;;) {} }); await new Promise(() => {})", &[Cpu]),
    ("eval('for (;;) {}')", &[Cpu]),
    ("new Function('for (;;) {}')()", &[Cpu]),
    (
        "async function* g() { for (;;) yield* g() } for await (const x of g()) {}",
        &[Cpu, Memory, Threw("RangeError")],
    ),
    // Functions of the engine that do not look at any clock.
    ("new Array(4294967295).indexOf(1)", &[Cpu]),
    ("Array.prototype.includes.call({ length: 2 ** 53 - 1 }, 1)", &[Cpu]),
    (
        "Array.prototype.join.call({ length: 4294967295 })",
        &[Cpu, Memory, Threw("RangeError"), Threw("InternalError")],
    ),
    ("new Array(4294967295).lastIndexOf(1)", &[Cpu]),
    ("Array.prototype.reverse.call({ length: 2 ** 53 - 1 })", &[Cpu]),
    ("new Uint8Array(3e7).sort((a, b) => b - a)", &[Cpu, Memory]),
    (
        "const a = []; for (let i = 0; i < 2e5; i++) a[i] = i; for (;;) a.sort(() => Math.random() - 0.5)",
        &[Cpu],
    ),
    ("[3, 2, 1].sort(() => { for (;;) {} })", &[Cpu]),
    (
        "let a = [3, 2, 1]; a.sort((x, y) => { a.length = 0; a.push(...Array(1000).fill(1)); return -1 }); for (;;) {}",
        &[Cpu],
    ),
    ("let x = 3n; for (;;) x = x * x", &[Cpu, Memory, Threw("RangeError")]),
    ("return String(7n ** 3000000n).length", &[Cpu, Threw("RangeError")]),
    ("(2n ** 1000000n).toString(); for (;;) {}", &[Cpu, Threw("RangeError")]),
    ("const s = 'a'.repeat(1e6); for (;;) s.indexOf('b'.repeat(1e5))", &[Cpu]),
    (
        "const s = 'ab'.repeat(5e6); for (;;) s.split('a').join('b')",
        &[Cpu, Memory, Threw("InternalError")],
    ),
    ("for (;;) JSON.parse('['.repeat(1000) + ']'.repeat(1000))", &[Cpu]),
    ("for (;;) 'x'.repeat(1e6).normalize('NFKD')", &[Cpu]),
    ("for (;;) encodeURIComponent('ü'.repeat(1e6))", &[Cpu]),
    ("Array.from({ length: 1e12 })", &[Cpu, Memory, Threw("RangeError")]),
    // Regular expressions.
    ("/^(a+)+$/.test('a'.repeat(40) + 'b')", &[Cpu]),
    ("/(x+x+)+y/.exec('x'.repeat(60))", &[Cpu]),
    ("/(.*)*(.*)*(.*)*(.*)*(.*)*[^a]$/.test('a'.repeat(200))", &[Cpu]),
    ("'a'.repeat(50).replace(/(a|a)*b/g, '')", &[Cpu]),
    ("/^(?:a?){40}a{40}$/.test('a'.repeat(39)); for (;;) {}", &[Cpu]),
    ("/(?=(a+))*b/.test('a'.repeat(100000)); for (;;) {}", &[Cpu, Threw("SyntaxError")]),
    (
        "new RegExp('(?:'.repeat(50000) + ')'.repeat(50000))",
        &[Threw("SyntaxError"), Threw("InternalError"), Threw("RangeError"), Memory],
    ),
    // Memory.
    ("const a = []; for (;;) a.push(new Array(1000).fill(1))", &[Memory]),
    ("let s = 'x'; for (;;) s += s", &[Memory, Threw("InternalError"), Threw("RangeError")]),
    ("return 'x'.repeat(2 ** 29).length", &[Memory, Threw("InternalError"), Threw("RangeError")]),
    ("return new ArrayBuffer(1 << 30).byteLength", &[Memory, Threw("RangeError")]),
    ("const a = []; for (;;) a.push(new Uint8Array(1 << 20))", &[Memory, Threw("RangeError")]),
    ("const m = new Map(); for (let i = 0; ; i++) m.set(i, {})", &[Memory]),
    ("let o = {}; for (;;) o = { o }", &[Memory]),
    ("for (let i = 0; ; i++) globalThis['k' + i] = i", &[Cpu, Memory]),
    ("for (;;) Symbol.for('x'.repeat(1000) + Math.random())", &[Cpu, Memory]),
    ("const a = []; for (;;) { try { for (;;) a.push({}) } catch {} }", &[Cpu, Memory]),
    ("const a = []; for (;;) a.push(() => a)", &[Memory]),
    ("const a = [...Array(1e9)]", &[Memory, Threw("RangeError"), Threw("InternalError")]),
    (
        "return JSON.stringify(Array(1e8).fill('x'.repeat(100))).length",
        &[Memory, Threw("RangeError"), Threw("InternalError")],
    ),
    ("const p = []; for (;;) p.push(new Promise(() => {}))", &[Cpu, Memory]),
    ("for (;;) Promise.reject(new Error('x'.repeat(10000)))", &[Cpu, Memory]),
    ("for (;;) new WeakRef({}), new FinalizationRegistry(() => {})", &[Cpu, Memory]),
    ("const r = []; for (;;) r.push(/a/g.exec('a'))", &[Memory]),
    (
        "return 'x'.padEnd(2 ** 30 - 1).length",
        &[Memory, Threw("RangeError"), Threw("InternalError")],
    ),
    ("'a,'.repeat(1e7).split(',')", &[Cpu, Memory]),
    // Stack.
    ("const f = () => f(); f()", &[Threw("RangeError"), Threw("InternalError")]),
    (
        "const f = () => { try { f() } finally { f() } }; f()",
        &[Cpu, Threw("RangeError"), Threw("InternalError")],
    ),
    (
        "let a = []; for (let i = 0; i < 1e6; i++) a = [a]; return JSON.stringify(a)",
        &[Memory, Threw("RangeError"), Threw("InternalError")],
    ),
    (
        "return JSON.parse('['.repeat(1e6))",
        &[Threw("SyntaxError"), Threw("RangeError"), Threw("InternalError")],
    ),
    (
        "eval('('.repeat(1e6))",
        &[Threw("SyntaxError"), Threw("RangeError"), Threw("InternalError"), Memory],
    ),
    (
        "eval('[' .repeat(1e5) + ']'.repeat(1e5))",
        &[Threw("SyntaxError"), Threw("RangeError"), Threw("InternalError"), Memory, Value("null")],
    ),
    (
        "const p = new Proxy({}, {}); let q = p; for (let i = 0; i < 1e5; i++) q = new Proxy(q, {}); return q.x",
        &[Threw("RangeError"), Threw("InternalError"), Memory],
    ),
    (
        "let o = {}; for (let i = 0; i < 1e6; i++) o = Object.create(o); return 'x' in o",
        &[Value("false"), Cpu, Memory],
    ),
    (
        "let f = () => 1; for (let i = 0; i < 1e5; i++) f = f.bind(null); return f()",
        &[Memory, Threw("RangeError"), Threw("InternalError")],
    ),
    (
        "const a = []; a[0] = a; return String(a) + a.flat(Infinity)",
        &[Threw("RangeError"), Threw("InternalError"), Memory],
    ),
    (
        "class A { constructor() { return Reflect.construct(A, [], new.target) } } new A()",
        &[Threw("RangeError"), Threw("InternalError")],
    ),
    (
        "const o = { toString() { return `${this}` } }; return `${o}`",
        &[Threw("RangeError"), Threw("InternalError")],
    ),
    (
        "const o = { get x() { return this.x } }; return o.x",
        &[Threw("RangeError"), Threw("InternalError")],
    ),
    ("throw new Error('x', { get cause() { throw this } })", &[Threw("Error"), Threw("Thrown")]),
    // The way out: there is none.
    (
        "return typeof process + typeof require + typeof Deno + typeof WebAssembly + typeof std + typeof os",
        &[Value("\"undefinedundefinedundefinedundefinedundefinedundefined\"")],
    ),
    ("await import('std')", &[Threw("ReferenceError"), Threw("TypeError")]),
    ("return this === undefined || this === globalThis", &[Value("true")]),
    ("return [].constructor.constructor('return typeof native')()", &[Value("\"undefined\"")]),
    ("Promise.prototype.then = () => { for (;;) {} }; await 1; return 1", &[Value("1"), Cpu]),
    (
        "Object.defineProperty(Object.prototype, 'then', { get() { return undefined } }); return [1]",
        &[Threw("TypeError")],
    ),
    (
        "JSON.stringify = () => 'forged'; JSON.parse = () => 'forged'; return { a: 1 }",
        &[Value("{\"a\":1}")],
    ),
    ("await new Promise(() => {})", &[Deadlock]),
    ("await { then() {} }", &[Deadlock]),
];

#[test]
fn each_ends_by_the_limit_it_runs_into() {
    let bounds = Bounds { cpu_milliseconds: 800, heap: 24 << 20, ..Bounds::default() };
    let mut wrong = Vec::new();
    for (code, expected) in ATTACKS {
        let end = run(code, bounds).end;
        let fits = expected.iter().any(|verdict| match (verdict, &end) {
            (Cpu, Some(ScriptEnd::Cpu))
            | (Memory, Some(ScriptEnd::Memory(_)))
            | (Deadlock, None) => true,
            (Threw(name), Some(ScriptEnd::Threw(thrown))) => thrown.name == *name,
            (Value(value), Some(ScriptEnd::Value(got))) => got == value,
            _ => false,
        });
        if !fits {
            wrong.push(format!("{code}\n    expected {expected:?}\n    got {end:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ATTACKS.len(), wrong.join("\n"));
}

#[test]
fn memory_comes_back_to_whoever_lets_go_of_it() {
    let bounds = Bounds { heap: 16 << 20, ..Bounds::default() };
    let code = "let n = 0; for (let i = 0; i < 200; i++) { const a = new Uint8Array(4 << 20); n += a.length >> 20 } return n";
    assert_eq!(run(code, bounds).end, Some(ScriptEnd::Value("800".into())));
}

#[test]
fn an_error_for_want_of_memory_can_be_caught() {
    let code = "try { 'x'.repeat(2 ** 29) } catch (e) { return 'caught' }";
    assert_eq!(run(code, Bounds::default()).end, Some(ScriptEnd::Value("\"caught\"".into())));
}

#[test]
fn the_largest_answer_still_fits_beside_a_heap_in_use() {
    let code = "const keep = 'y'.repeat(20 << 20); const r = await gitHub.echo({ text: 'x'.repeat(3 << 20) }); return [keep.length, r.arguments.text.length]";
    assert_eq!(
        run(code, Bounds::default()).end,
        Some(ScriptEnd::Value("[20971520,3145728]".into()))
    );
}
