// expect: ok
const p = new Proxy(github, {}); return typeof p.constructor;
//---
// expect: ok|error
return Object.getOwnPropertyDescriptors(servers.github);
//---
// expect: ok
return Object.getPrototypeOf(github) === null && Object.getOwnPropertyNames(github).length;
//---
// expect: ok|error
Object.setPrototypeOf(github, { echo: () => "@SECRET@" }); return 1;
//---
// expect: error
Object.defineProperty(servers, "github", { value: 1 }); return 1;
//---
// expect: error
Object.defineProperty(github, "echo", { value: () => 1 }); return 1;
//---
// expect: ok
Object.prototype.toJSON = function () { return { server: "evil", tool: "evil", arguments: {} } }; try { return await github.echo({}) } catch (e) { return e.code }
//---
// expect: ok|error
Object.prototype.server = "evil"; Object.prototype.tool = "evil"; return await github.echo({ a: 1 });
//---
// expect: ok|error
Array.prototype[Symbol.iterator] = function* () { yield "evil" }; return await github.echo({ a: [1] });
//---
// expect: ok|error
Object.defineProperty(Object.prototype, "then", { get() { return r => r("stolen") } }); return await github.echo({ a: 1 });
//---
// expect: ok|error|deadlock
Promise.prototype.constructor = function (e) { e(() => {}, () => {}) }; return await github.echo({ a: 1 });
//---
// expect: ok|error|deadlock
Object.defineProperty(Promise, Symbol.species, { value: function (e) { e(() => {}, () => {}) } }); return await github.echo({ a: 1 });
//---
// expect: ok
const seen = []; const g = Object.getOwnPropertyNames(globalThis); for (const n of g) { try { seen.push(typeof globalThis[n]) } catch { seen.push("x") } } return seen.length > 50;
//---
// expect: ok
Error.prepareStackTrace = (e, frames) => frames; const s = new Error().stack; return Array.isArray(s) ? s.map(f => typeof f.getThis?.() + typeof f.getFunction?.()) : typeof s;
//---
// expect: ok|error
Error.prepareStackTrace = (e, frames) => { try { return frames.map(f => f.getFunction?.()?.constructor("return typeof process")()) } catch { return [] } }; try { null.x } catch (e) { return e.stack }
//---
// expect: ok|error
Error.stackTraceLimit = Infinity; const f = n => n ? f(n - 1) : new Error().stack; return f(500).length > 0;
//---
// expect: ok
Error.stackTraceLimit = -1; try { await github.wrong() } catch (e) { return typeof e.stack }
//---
// expect: error
const e = new Error("x"); e.stack = { toString() { throw 1 } }; Object.defineProperty(e, "message", { get() { throw 2 } }); throw e;
//---
// expect: error
throw new Proxy(new Error("x"), { get() { throw new Error("again") } });
//---
// expect: error
throw Object.create(null);
//---
// expect: error
throw { get name() { return { toString: null } }, get message() { for (let i = 0; i < 10; i++); return 5 } };
//---
// expect: ok
const it = (async function* () { try { yield 1 } finally { yield typeof process } })(); await it.next(); return (await it.return()).value;
//---
// expect: ok
const g = (function* () { const x = yield; yield x })(); g.next(); try { g.throw({ constructor: Function }) } catch (e) { return typeof e.constructor("return typeof process")() }
//---
// expect: ok
const t = { [Symbol.toPrimitive]() { return "constructor" } }; return typeof github[t] + typeof servers[t];
//---
// expect: ok
return Object.getOwnPropertySymbols(globalThis).length + Reflect.ownKeys(github).length;
//---
// expect: ok
return typeof Symbol.for("nodejs.util.inspect.custom") && typeof console.log({ [Symbol.for("nodejs.util.inspect.custom")]: (d, o, i) => i.constructor("return process")() });
//---
// expect: error
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); return 1;
//---
// expect: ok|error
return Atomics.add(new Int32Array(new SharedArrayBuffer(8)), 0, 1);
//---
// expect: ok|error
const w = Atomics.waitAsync?.(new Int32Array(new SharedArrayBuffer(4)), 0, 0); return typeof w;
//---
// expect: ok
const r = new FinalizationRegistry(() => { throw 1 }); for (let i = 0; i < 1000; i++) r.register({}, i); return 1;
//---
// expect: ok
const w = new WeakRef({ a: 1 }); return typeof w.deref();
//---
// expect: ok|error
const b = new ArrayBuffer(8, { maxByteLength: 64 }); const v = new Uint8Array(b); const x = { valueOf() { b.resize(0); return 1 } }; v.fill(x); return v.length;
//---
// expect: ok|error
const a = new Uint8Array(64); const b = a.buffer; a.set({ length: 32, get 0() { b.transfer(); return 1 } }); return a.length;
//---
// expect: ok|error
const a = [1, 2, 3]; a.sort({ valueOf() { return 1 } }); return a;
//---
// expect: ok
const a = [3, 2, 1]; a.sort((x, y) => { a.length = 0; return x - y }); return a.length;
//---
// expect: ok
const a = []; for (let i = 0; i < 100; i++) a[i] = i; a.map((x, i) => { if (i === 5) a.length = 0; return x }); return a.length;
//---
// expect: ok|error
const m = new Map(); for (let i = 0; i < 100; i++) m.set(i, i); m.forEach((v, k) => { m.delete(k); m.clear() }); return m.size;
//---
// expect: ok|error
const d = new DataView(new ArrayBuffer(8)); return d.getBigUint64(0) === 0n && d.getFloat64(1);
//---
// expect: ok|error
return new Uint8Array(new ArrayBuffer(16), 17);
//---
// expect: ok
const s = "\ud800".repeat(100); console.log(s); return s;
//---
// expect: ok
return new Proxy(() => {}, { apply: Function, construct: Function, get: () => "x" }) && 1;
//---
// expect: ok|error
const p = new Proxy({}, { ownKeys() { return ["a", "a"] } }); console.log(p); return Object.keys(p);
//---
// expect: ok|error
const p = new Proxy([], { get(t, k) { return k === "length" ? 4294967295 : t[k] } }); console.log(p); return "shown";
//---
// expect: ok
const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); console.log(proxy); return "shown";
//---
// expect: ok|error
with ({ github: { echo: () => "own" } }) { return github.echo() }
//---
// expect: ok
var servers = { github: null }; return servers.github;
//---
// expect: error|deadlock|ok
}); globalThis.leaked = 1; (async () => { return typeof process;
//---
// expect: ok|error
}; throw 1; async () => {
//---
// expect: ok
using: for (;;) break using; return typeof DisposableStack;
