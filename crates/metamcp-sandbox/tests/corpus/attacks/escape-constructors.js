// expect: ok
return typeof setTimeout.constructor("return typeof process === 'undefined' ? 'none' : process.env")();
//---
// expect: ok|error
return this.constructor.constructor("return this.process || this.require || this.Deno || this.Bun || 'none'")();
//---
// expect: ok
return (() => {}).constructor("return Object.getOwnPropertyNames(globalThis).filter(n => /process|require|module|import|Deno|Bun|std|os|fs/i.test(n))")();
//---
// expect: ok
return (async () => {}).constructor("return typeof process")();
//---
// expect: ok
return (function* () {}).constructor("yield typeof process")().next().value;
//---
// expect: ok
return (async function* () {}).constructor("yield typeof require")().next().then(r => r.value);
//---
// expect: ok|error
return github.echo.constructor.constructor("return typeof std + typeof os")();
//---
// expect: ok|error
return servers.constructor.constructor("return globalThis.process")();
//---
// expect: ok|error
return github.constructor("return process")();
//---
// expect: ok
return ToolError.prototype.constructor.constructor("return typeof process")();
//---
// expect: ok
return console.log.constructor("return typeof bjson + typeof std + typeof scriptArgs")();
//---
// expect: ok|error
return parallel.constructor("return arguments.callee.caller")();
//---
// expect: ok
let o = {}; for (let i = 0; i < 20; i++) o = o.constructor; return typeof o("return typeof process")();
//---
// expect: ok
return Reflect.construct(Function, ["return typeof process"])();
//---
// expect: ok
return Reflect.apply(Function.prototype.constructor, null, ["return typeof require"])();
//---
// expect: ok
return [].map.constructor("return typeof load + typeof loadScript + typeof print")();
//---
// expect: ok
return Object.getPrototypeOf(async function () {}).constructor("return typeof __loadScript")();
//---
// expect: ok
class Sub extends Function { } return new Sub("return typeof process")();
//---
// expect: ok
return Function.prototype.call.call(Function, null, "return typeof process")();
//---
// expect: ok|error
return Function("return import('fs')")();
