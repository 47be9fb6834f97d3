// expect: memory_limit
const a = []; for (;;) a.push(new Array(1000).fill(1));
//---
// expect: memory_limit|error
let s = "x"; for (;;) s += s + Math.random();
//---
// expect: memory_limit|error
return "x".repeat(2 ** 29).length;
//---
// expect: memory_limit|error
return new ArrayBuffer(2 ** 31).byteLength;
//---
// expect: memory_limit|error
return new Uint8Array(1e9).length;
//---
// expect: memory_limit
const keep = []; for (;;) keep.push(new ArrayBuffer(1e6));
//---
// expect: memory_limit|error
return new Array(2 ** 32 - 1).fill(0).length;
//---
// expect: memory_limit|error|cpu_limit
return Array.from({ length: 2 ** 31 }).length;
//---
// expect: memory_limit|cpu_limit
const m = new Map(); for (let i = 0; ; i++) m.set(i, { i });
//---
// expect: memory_limit|cpu_limit
const o = {}; for (let i = 0; ; i++) o["key" + i] = "value" + i;
//---
// expect: memory_limit|cpu_limit
let o = null; for (;;) o = { o };
//---
// expect: memory_limit|cpu_limit|error
let f = () => 1; for (;;) { const g = f; f = () => g() }
//---
// expect: memory_limit|cpu_limit
const ps = []; for (;;) ps.push(new Promise(() => {}));
//---
// expect: memory_limit|cpu_limit
for (;;) Promise.resolve().then(() => 1);
//---
// expect: memory_limit|cpu_limit|error
for (;;) setTimeout(() => {}, 1e9);
//---
// expect: memory_limit|cpu_limit|ok
const a = []; for (;;) { try { for (;;) a.push("x".repeat(1e5) + a.length) } catch { a.length = 0; } }
//---
// expect: memory_limit|error|cpu_limit
let a = [1]; for (let i = 0; i < 40; i++) a = [a, a]; return a;
//---
// expect: memory_limit|error|cpu_limit
let a = "0123456789"; const o = {}; for (let i = 0; i < 30; i++) { o["k" + i] = a; a += a } return o;
//---
// expect: error|memory_limit|ok
let o = {}; for (let i = 0; i < 1e5; i++) o = { o }; return o;
//---
// expect: error|memory_limit|ok|cpu_limit
return JSON.parse("[".repeat(1e5) + "]".repeat(1e5));
//---
// expect: error|memory_limit|ok|cpu_limit
let o = []; for (let i = 0; i < 1e5; i++) o = [o]; console.log(o); return structuredClone(o);
//---
// expect: error
const f = n => f(n + 1) + 1; return f(0);
//---
// expect: error
const o = { get x() { return this.x } }; return o.x;
//---
// expect: error
const p = new Proxy({}, { get(t, k, r) { return r[k] } }); return p.x;
//---
// expect: error|ok|memory_limit
return new RegExp("(".repeat(20000) + ")".repeat(20000));
//---
// expect: error|ok|memory_limit
return eval("(".repeat(1e5) + "1" + ")".repeat(1e5));
//---
// expect: error|memory_limit|ok
return new Function("a,".repeat(70000) + "b", "return 1")();
//---
// expect: error|memory_limit
Math.max(...new Array(1e7)); return 1;
//---
// expect: error|memory_limit|ok
return String.fromCharCode.apply(null, { length: 1e8 }).length;
//---
// expect: memory_limit|error|cpu_limit
const e = new TextEncoder(); const keep = []; for (;;) keep.push(e.encode("x".repeat(1e5)));
//---
// expect: memory_limit|error|cpu_limit
let u = "http://h/?"; for (;;) { u += "a=1&".repeat(1e4); new URL(u) }
//---
// expect: memory_limit|error|cpu_limit
const syms = []; for (;;) syms.push(Symbol("x".repeat(100) + syms.length));
//---
// expect: error
return "x".repeat(300 * 1024);
//---
// expect: error
return Array.from({ length: 1e5 }, (_, i) => i);
//---
// expect: memory_limit|cpu_limit|error
const keep = []; for (;;) keep.push(structuredClone({ a: new Array(1000).fill(0) }));
