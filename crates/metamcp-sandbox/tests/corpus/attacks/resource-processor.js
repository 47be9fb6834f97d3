// expect: cpu_limit
for (;;) {}
//---
// expect: cpu_limit
while (1) new Promise(() => { for (;;) {} });
//---
// expect: cpu_limit
await null; while (true) {}
//---
// expect: cpu_limit
for (;;) { try { for (;;) {} } catch {} finally { continue } }
//---
// expect: cpu_limit
const f = () => { try { f() } catch { f() } }; for (;;) f();
//---
// expect: cpu_limit|memory_limit|deadlock
const spin = () => Promise.resolve().then(spin); spin(); await new Promise(() => {});
//---
// expect: cpu_limit
(function loop() { queueMicrotask(loop) })(); await sleep(1); return 1;
//---
// expect: cpu_limit
for await (const x of (async function* () { for (;;) yield 1 })()) {}
//---
// expect: cpu_limit
for (const x of (function* () { for (;;) yield 1 })()) {}
//---
// expect: cpu_limit|ok|error|memory_limit
return /^(a+)+$/.test("a".repeat(40) + "b");
//---
// expect: cpu_limit|ok|error|memory_limit
return "x".repeat(50000).match(/(x+x+)+y/);
//---
// expect: cpu_limit|ok|error|memory_limit
return /((a?){30}){30}a{60}/.test("a".repeat(30));
//---
// expect: cpu_limit
[].includes.call({ length: 2 ** 53 - 1 }, 1); return 1;
//---
// expect: cpu_limit
[].indexOf.call({ length: 2 ** 53 - 1 }, 1); return 1;
//---
// expect: cpu_limit
[].reverse.call({ length: 2 ** 53 - 1 }); return 1;
//---
// expect: cpu_limit|error|memory_limit|ok
[].fill.call({ length: 2 ** 53 - 1 }, 0); return 1;
//---
// expect: cpu_limit|error|memory_limit
[].copyWithin.call({ length: 2 ** 53 - 1 }, 0, 1); return 1;
//---
// expect: cpu_limit|error|memory_limit
[].unshift.call({ length: 2 ** 53 - 3 }, 1); return 1;
//---
// expect: cpu_limit|error|memory_limit
return [].join.call({ length: 2 ** 32 - 1 }, "").length;
//---
// expect: cpu_limit|error|memory_limit
new Array(2 ** 32 - 1).forEach(() => 1); new Array(2 ** 32 - 1).lastIndexOf(1, -1); return [].lastIndexOf.call({ length: 2 ** 53 - 1 }, 1);
//---
// expect: cpu_limit|memory_limit
const a = Array.from({ length: 3e5 }, () => Math.random()); for (;;) a.slice().sort();
//---
// expect: cpu_limit|memory_limit
const a = []; for (let i = 0; i < 1e5; i++) a[i] = String(i); for (;;) a.sort((x, y) => x < y ? -1 : 1);
//---
// expect: cpu_limit|memory_limit|error
let n = 3n; for (;;) n = n * n;
//---
// expect: cpu_limit|memory_limit|error
return (2n ** 2000000n).toString().length;
//---
// expect: cpu_limit|memory_limit|error
return BigInt("9".repeat(2000000)) % 7n;
//---
// expect: cpu_limit|memory_limit
const o = {}; for (let i = 0; i < 1e5; i++) o["k" + i] = i; for (;;) JSON.stringify(o);
//---
// expect: cpu_limit|memory_limit
const t = JSON.stringify(Array.from({ length: 1e5 }, (_, i) => i)); for (;;) JSON.parse(t);
//---
// expect: cpu_limit|memory_limit|error
let s = "ab"; for (;;) s = s.replaceAll("a", "ab");
//---
// expect: cpu_limit|memory_limit|ok
const s = "a".repeat(1e6); let n = 0; for (let i = 0; i < 1e6; i++) n += s.indexOf("b"); return n;
//---
// expect: cpu_limit|memory_limit|ok
const s = ("a".repeat(1000) + "b").repeat(500); for (let i = 0; i < 1e5; i++) s.lastIndexOf("a".repeat(1000) + "c"); return 1;
//---
// expect: cpu_limit|ok
for (let i = 0; i < 1e5; i++) "\u0344".repeat(10000).normalize("NFKD"); return 1;
//---
// expect: cpu_limit
return { toJSON() { for (;;) {} } };
//---
// expect: cpu_limit
throw { get message() { for (;;) {} } };
//---
// expect: cpu_limit
const e = new Error("x"); Object.defineProperty(e, "stack", { get() { for (;;) {} } }); throw e;
//---
// expect: cpu_limit
console.log(new Proxy({}, { ownKeys() { for (;;) {} } })); return 1;
//---
// expect: cpu_limit
return await { then(resolve) { for (;;) {} } };
//---
// expect: cpu_limit|error
Object.defineProperty(Object.prototype, "then", { get() { for (;;) {} }, configurable: true }); return {};
//---
// expect: cpu_limit
setTimeout(() => { for (;;) {} }, 0); await sleep(50); return 1;
//---
// expect: cpu_limit
class A { static { for (;;) {} } }
//---
// expect: cpu_limit
await github.echo({ toJSON() { for (;;) {} } });
//---
// expect: cpu_limit|memory_limit
await parallel({ [Symbol.iterator]() { return { next() { return { value: 1, done: false } } } } }, x => x);
//---
// expect: cpu_limit|memory_limit
const it = { next() { return { done: false } }, [Symbol.iterator]() { return this } }; for (;;) { new Set(it) }
//---
// expect: cpu_limit|ok|error
eval("a=>".repeat(5000) + "1"); for (;;) eval("1+".repeat(10000) + "1");
//---
// expect: cpu_limit
const d = new Date(); for (;;) d.toLocaleString();
//---
// expect: timeout
for (;;) await sleep(1000);
//---
// expect: timeout
setInterval(() => {}, 100); await new Promise(() => {});
