// expect: ok|error|cpu_limit
@FORGE@ const Real = RangeError; Error.prepareStackTrace = (_, frames) => frames; globalThis.RangeError = function (m) { forge(new Error().stack); for (const f of [].concat(new Error().stack)) forge(f?.getFunction?.()); return new Real(m) }; try { await github.echo({ text: "x".repeat(5e6) }) } catch {} return 1;
//---
// expect: ok|error|cpu_limit
@FORGE@ Object.defineProperty(Error, "prepareStackTrace", { value: (_, frames) => (frames.forEach(f => forge(f.getFunction?.())), frames) }); globalThis.TypeError = function () { forge(new Error().stack) }; try { await github.echo([1]) } catch {} try { await github.echo({ a: 1n }) } catch {} return 1;
//---
// expect: ok|cpu_limit
@FORGE@ class Own extends Error { static prepareStackTrace(_, frames) { forge(frames); return frames } } forge(new Own().stack); return typeof new Own().stack;
//---
// expect: ok|cpu_limit
@FORGE@ const o = { prepareStackTrace: (_, f) => f }; Error.captureStackTrace(o); forge(o.stack); return typeof o.stack;
//---
// expect: ok|error|cpu_limit
@FORGE@ for (const name of ["TypeError", "RangeError", "SyntaxError", "Error", "Promise", "Proxy", "Map", "Set", "String", "Object", "Array", "JSON", "Reflect", "Symbol", "WeakMap"]) { const Was = globalThis[name]; globalThis[name] = new Proxy(Was, { construct(t, args, n) { forge(args); return Reflect.construct(t, args, n) }, apply(t, self, args) { forge(self); forge(args); return t(...args) }, get(t, key, self) { return t[key] } }); } const call = github.echo({ a: 1 }); await call.raw(); try { await github.wrong() } catch {} await tools.search("x"); console.log(new Map([[1, {}]])); return await parallel([1, 2], x => x);
//---
// expect: ok|error|cpu_limit
@FORGE@ for (const key of ["get", "set", "value", "resolve", "reject", "raw", "what", "state", "answer", "whole", "of", "head", "server", "tool"]) { try { Object.defineProperty(Object.prototype, key, { get() { forge(this) }, set(v) { forge(this); forge(v) }, configurable: true }) } catch {} } const call = github.echo({ a: 1 }); await call.raw(); return await github.parts();
//---
// expect: ok|error|cpu_limit
@FORGE@ for (let i = 0; i < 3; i++) { try { Object.defineProperty(Array.prototype, i, { set(v) { forge(this); forge(v) }, get() { return undefined }, configurable: true }) } catch {} } console.log([1, 2], { a: 1 }); await github.echo({ a: [1] }); return await parallel([1, 2], x => x);
//---
// expect: ok|error|deadlock|cpu_limit
@FORGE@ try { const { then } = Promise.prototype; Promise.prototype.then = function (...all) { forge(all); forge(this); return then.apply(this, all) } } catch {} const call = github.echo({ a: 1 }); call.raw(); await call; return 1;
//---
// expect: ok|error|deadlock|cpu_limit
@FORGE@ class Mine extends Promise { constructor(run) { forge(run); super((a, b) => { forge(a); forge(b); run(a, b) }) } } try { Object.defineProperty(Promise, Symbol.species, { get: () => Mine }) } catch {} const call = github.echo({ a: 1 }); call.constructor = { [Symbol.species]: Mine }; await call.raw(); return 1;
//---
// expect: ok|cpu_limit
@FORGE@ const call = github.echo({ a: 1 }); const found = Reflect.ownKeys(call).filter(key => key !== "raw"); found.forEach(key => forge(call[key])); await call; return found.length;
//---
// expect: ok|error|cpu_limit
@FORGE@ const call = github.echo({ a: 1 }); forge(call.raw); forge(Object.getPrototypeOf(call.raw)); try { call.raw.call({ what: { of: null }, state: 1 }) } catch {} try { call.raw.call(new Proxy(call, { get(t, k) { forge(t); return t[k] } })) } catch {} return await call.raw();
//---
// expect: ok|error|cpu_limit
@FORGE@ const steal = { toJSON(key) { forge(this); forge(arguments); try { forge(arguments.callee.caller) } catch {} function f() { return f.caller } try { forge(f()) } catch {} return { a: 1 } } }; await github.echo(steal); await github.echo({ steal }); return 1;
//---
// expect: ok|error|cpu_limit
@FORGE@ const trap = new Proxy({ a: 1 }, new Proxy({}, { get: (_, name) => function (...all) { forge(all.slice(1)); return Reflect[name](...all) } })); return await github.echo(trap);
//---
// expect: ok|error|cpu_limit
@FORGE@ const args = { get a() { forge(new Error()); Error.prepareStackTrace = (_, f) => f; forge(new Error().stack); return 1 } }; return await github.echo(args);
//---
// expect: ok|error|cpu_limit
@FORGE@ for (const [of, names] of [[String.prototype, ["slice", "trimStart", "toWellFormed"]], [Array.prototype, ["push", "join", "map"]], [WeakMap.prototype, ["get", "set"]], [Map.prototype, ["get", "set", "delete", "forEach"]], [Function.prototype, ["call", "apply", "bind"]], [RegExp.prototype, ["test", "exec"]]]) for (const name of names) { const was = of[name]; try { of[name] = function (...all) { forge(this); forge(all); return Reflect.apply(was, this, all) } } catch {} } console.log({ a: [1, "x"] }, new Map([[1, 2]])); const call = github.text({ text: "[1]" }); call.raw(); return await call;
//---
// expect: ok|error|cpu_limit
@FORGE@ for (const made of [Map, Set, Promise, Error, Date, RegExp]) { try { Object.defineProperty(made, Symbol.hasInstance, { value: v => { forge(v); return false } }) } catch {} } console.log(new Map(), new Set(), new Error("x")); return [new Map([[1, 2]]), new Set([1]), new Error("x")];
//---
// expect: ok|error|cpu_limit
@FORGE@ for (const name of ["String", "Map", "Uint8Array", "TypeError", "Math", "Number", "Object", "Boolean", "ArrayBuffer", "Date", "DOMException", "parseInt", "decodeURIComponent", "encodeURIComponent"]) globalThis[name] = new Proxy(function () {}, { apply: (_, self, all) => (forge(self), forge(all), "x"), construct: (_, all) => (forge(all), {}), get: (_, key) => key === "prototype" ? {} : () => "x" }); const made = []; for (const run of [() => new URL("https://a.b/?c=%FF").searchParams.get("c"), () => new TextEncoder().encode("é"), () => crypto.randomUUID(), () => structuredClone({ a: [1] }), () => (1234.5).toLocaleString(), () => "é".localeCompare("f"), () => crypto.digest("SHA-256", "x")]) { try { made.push(typeof run()) } catch (e) { made.push("threw") } } return made;
//---
// expect: ok|error|cpu_limit
@FORGE@ globalThis.TextDecoder = class { decode(all) { forge(this); forge(all); return "stolen" } }; return new URLSearchParams("a=%FF%FE").get("a");
//---
// expect: ok|error|cpu_limit
@FORGE@ for (const name of ["URL", "TextEncoder", "TextDecoder", "structuredClone", "crypto", "Intl"]) { const found = Object.getOwnPropertyDescriptor(globalThis, name); forge(found.get); forge(found.set); try { found.get.call({}); found.set.call({}, 1) } catch {} } return typeof URL;
//---
// expect: ok|error|cpu_limit
@FORGE@ const pretends = { then(a, b) { forge(a); forge(b); a(pretends.value) }, value: 1 }; await github.echo(pretends); setTimeout(() => pretends, 1, pretends); return await parallel([pretends], () => pretends);
//---
// expect: ok|error|cpu_limit
@FORGE@ const items = { [Symbol.asyncIterator]() { forge(this); return { next() { forge(arguments); return { done: true } } } } }; await parallel(items, (...all) => forge(all)); return await parallel([1], (...all) => forge(all), { valueOf() { forge(this); return 2 } });
//---
// expect: ok|error|cpu_limit
@FORGE@ const reason = new Proxy(new Error("x"), { get(t, k, self) { forge(self); return t[k] }, getOwnPropertyDescriptor(t, k) { forge(t); return Reflect.getOwnPropertyDescriptor(t, k) } }); Promise.reject(reason); await sleep(1); throw reason;
//---
// expect: ok|error|cpu_limit
@FORGE@ const Was = ToolError; forge(Was); globalThis.ToolError = class extends Was { constructor(...all) { forge(all); super(...all) } }; try { Was.prototype.constructor = ToolError; Object.setPrototypeOf(Was, ToolError) } catch {} try { await github.wrong() } catch (e) { forge(e); return e.constructor === Was }
//---
// expect: ok|error|cpu_limit
@FORGE@ const made = []; for (const fn of [github.echo, github.echo.raw, servers.github.call, tools.search, results.put, sleep, parallel, progress, console.log, setTimeout]) { forge(Object.getPrototypeOf(fn)); try { made.push(String(fn).length); forge(fn.caller); forge(fn.arguments) } catch {} } return made.length;
//---
// expect: ok|error|cpu_limit
@FORGE@ Error.stackTraceLimit = { valueOf() { forge(new Error().stack); return 5 } }; Error.stackTraceLimit = Infinity; try { await github.wrong() } catch (e) { forge(e.stack); return typeof e.stack }
//---
// expect: ok|error|cpu_limit
@FORGE@ const key = { toString() { forge(this); return "echo" }, [Symbol.toPrimitive]() { forge(this); return "echo" } }; await github[key]({}); await servers[key]; return await github.call("echo", { a: 1 });
//---
// expect: ok|error|cpu_limit
@FORGE@ const raw = JSON.rawJSON; if (raw) { for (const text of ["1\n", "\n1", "{}", "1,\"x\":2"]) { try { await github.echo({ a: raw(text) }) } catch {} } } return await github.echo({ a: "line\nbreak\u2028" });
//---
// expect: ok|error|cpu_limit
@FORGE@ const evil = Object.create(Array.prototype); try { Array.isArray = () => false; JSON.stringify = () => LINE; JSON.parse = () => { forge(arguments) }; Object.freeze = x => (forge(x), x); Reflect.ownKeys = x => (forge(x), []); Reflect.apply = (...all) => (forge(all), undefined) } catch {} return await github.echo({ a: evil });
//---
// expect: ok|error|deadlock|cpu_limit
@FORGE@ const was = Function.prototype; try { Object.defineProperty(was, Symbol.toPrimitive, { value() { forge(this); return "x" } }); Object.defineProperty(was, "name", { get() { forge(this); return "x" } }) } catch {} console.log(github.echo, sleep); return await github.echo({ a: 1 });
//---
// expect: ok|error|cpu_limit
@FORGE@ const iterator = Object.getPrototypeOf([][Symbol.iterator]()); const was = iterator.next; try { iterator.next = function () { forge(this); return was.call(this) } } catch {} console.log(...[1, 2]); await tools.search("x", { server: github }); return await parallel(new Set([1, 2]), x => x);
//---
// expect: ok|error|cpu_limit
@FORGE@ with ({ RangeError: function () { forge(new Error().stack) }, native: 1 }) { try { await github.echo({ text: "x".repeat(5e6) }) } catch {} } return (0, eval)("typeof native") + new Function("return typeof send")() + (async () => {}).constructor("return typeof limits").name;
