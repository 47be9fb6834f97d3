// expect: call_limit
for (;;) await github.echo({});
//---
// expect: ok
for (let i = 0; i < 1000; i++) github.never(); return "left";
//---
// expect: call_limit
for (;;) github.never();
//---
// expect: call_limit
for (;;) { try { await github.echo({}) } catch {} }
//---
// expect: call_limit
const swallow = () => github.echo({}).catch(() => 0).then(swallow); await swallow();
//---
// expect: call_limit
await parallel.settled(Array(5000).fill(0), () => github.echo({}), 64); return 1;
//---
// expect: ok|error
LimitError.prototype.constructor = 1; globalThis.LimitError = null; try { await sleep(1e9) } catch (e) { return e.name }
//---
// expect: ok|cpu_limit|memory_limit|error
let n = 0; const steal = { toJSON() { n += 1; return "x".repeat(2e6) } }; await parallel(Array(50).fill(0), () => steal); return n;
//---
// expect: ok|cpu_limit|memory_limit
for (let i = 0; i < 5000; i++) parallel([1, 2, 3], n => n); await sleep(5); return 1;
//---
// expect: error|memory_limit
let deep = []; for (let i = 0; i < 5000; i++) deep = [deep]; await parallel([1, 2], n => { if (n === 2) throw new Error("x"); return deep }, 1);
//---
// expect: call_limit
await Promise.all(Array.from({ length: 500 }, () => github.echo({})));
//---
// expect: call_limit
await parallel(Array(100).fill(0), () => github.nap(), 64); return 1;
//---
// expect: call_limit
const again = () => github.echo({}).then(again); await again();
//---
// expect: ok
for (let i = 0; i < 100; i++) { try { await servers["s" + i].call("wrong") } catch {} } return 1;
//---
// expect: call_limit|cpu_limit
for (;;) tools.search("x");
//---
// expect: call_limit|cpu_limit
for (;;) await tools.list();
//---
// expect: call_limit|memory_limit|cpu_limit|error
for (;;) await results.put("x".repeat(1e5));
//---
// expect: ok
github.never(); github.never(); return "left";
//---
// expect: ok
setTimeout(() => github.echo({}), 0); return "left before";
//---
// expect: ok
(async () => { for (;;) { await null; github.echo({ after: 1 }) } })(); return "over";
//---
// expect: timeout
await github.never();
//---
// expect: timeout
await Promise.all([github.never(), github.echo({}), sleep(10)]);
//---
// expect: deadlock
await Promise.race([]);
//---
// expect: deadlock
await new Promise(() => {});
//---
// expect: deadlock
await { then() {} };
//---
// expect: deadlock
let p; p = (async () => { await null; await p })(); await p;
//---
// expect: deadlock
github.echo({}); await github.echo({}); await new Promise(() => {});
//---
// expect: error
await github.echo({ big: "x".repeat(5e6) });
//---
// expect: error
const a = {}; a.a = a; await github.echo(a);
//---
// expect: error
await github.echo({ n: 1n });
//---
// expect: ok
return await github.echo({ f() {}, s: Symbol("x"), u: undefined, d: new Date(0) });
//---
// expect: error
await github.echo(new Proxy({}, { ownKeys() { throw new Error("mine") } }));
//---
// expect: error
await github.call(); 
//---
// expect: error
await github.call("echo", [1, 2]);
//---
// expect: error
await servers[""].call("");
//---
// expect: error
await servers["../../etc/passwd"].call("read");
//---
// expect: error
await servers["x".repeat(1e5)].call("y".repeat(1e5), {});
//---
// expect: error
await servers["\u0000\ud800"].call("\u0000");
//---
// expect: error
await github.garbage();
//---
// expect: memory_limit|error
const all = []; for (let i = 0; i < 25; i++) all.push(await github.big({ size: 4e6 })); return all.length;
//---
// expect: error|memory_limit
return await github.big({ size: 17 * 1024 * 1024 });
//---
// expect: ok
for (let i = 0; i < 1e4; i++) console.log("x".repeat(100)); return 1;
//---
// expect: ok
console.log("x".repeat(5e6)); console.log({ a: "y".repeat(5e6) }); return 1;
//---
// expect: ok
for (let i = 0; i < 1e4; i++) progress(i, "m".repeat(100)); return 1;
//---
// expect: error
progress({ valueOf() { throw new Error("mine") } });
//---
// expect: ok
console.log({ toString() { throw 1 }, get x() { throw 2 }, [Symbol.toStringTag]: 5 }); return 1;
//---
// expect: ok|error
console.log.call(null, ...new Array(50000).fill("x")); return 1;
//---
// expect: ok
const real = console.log; console.log = (...a) => { real("forged", ...a) }; console.log(1); return 1;
//---
// expect: ok
class Fake extends ToolError { } try { throw new Fake({ server: "x", tool: "y", message: "forged", details: { a: 1 } }) } catch (e) { return e.message }
//---
// expect: error
throw new ToolError({ message: "x".repeat(1e6), details: "y".repeat(1e6) });
//---
// expect: error
const e = new ToolError({ message: "m" }); e.details = e; e.server = { toJSON() { throw 1 } }; throw e;
//---
// expect: error
const e = new Error("out of sight"); e.name = { toString: () => "x" }; throw e;
//---
// expect: memory_limit
throw new Error("out of memory");
//---
// expect: ok
const p = github.echo({ a: 1 }); p.raw = () => "forged"; return [await p, p.raw()];
//---
// expect: timeout
const p = github.never(); p.then = r => r("forged"); return await p;
//---
// expect: ok|error
Promise = class { constructor() { throw 1 } }; return await github.echo({ a: 1 });
//---
// expect: ok|error
globalThis.servers = new Proxy(servers, { get: () => ({ call: () => "forged" }) }); return servers.github.call("echo");
//---
// expect: error
for (let i = 0; i < 2000; i++) setTimeout(() => {}, 1e6);
//---
// expect: error
await sleep(31000);
//---
// expect: error
await sleep(NaN);
//---
// expect: ok
const t = setTimeout(() => {}, 5); clearTimeout(t); clearTimeout(t); clearTimeout(1e9); clearTimeout("x"); clearInterval(undefined); return 1;
//---
// expect: ok|error
return await results.get({ toString() { return "../../etc/passwd" } });
//---
// expect: ok
return (await tools.describe("__proto__", "constructor")).op;
//---
// expect: error
return await servers.__proto__.call("x");
//---
// expect: error
await servers.constructor.call("x");
//---
// expect: error
await github["__proto__"]({});
//---
// expect: ok|error
return await github.call({ toString() { return "echo" } });
//---
// expect: error
return crypto.getRandomValues(new Uint8Array(1e6)).length;
//---
// expect: ok
for (let i = 0; i < 1000; i++) crypto.randomUUID(); return 1;
