// expect: ok
// value: 15
return [1, 2, 3, 4, 5].reduce((a, b) => a + b, 0);
//---
// expect: ok
// value: {"a":1,"b":[2,3]}
return { a: 1, b: [2, 3] };
//---
// expect: ok
// value: "HELLO"
return "hello".toUpperCase();
//---
// expect: ok
// value: [1,1,2,3,5,8]
const fib = n => n < 2 ? 1 : fib(n - 1) + fib(n - 2); return [0, 1, 2, 3, 4, 5].map(fib);
//---
// expect: ok
// value: {"x":2,"y":1}
const count = {}; for (const c of "xyx") count[c] = (count[c] ?? 0) + 1; return count;
//---
// expect: ok
// value: ["2024-01-31","2024-02-29"]
return ["2024-01-31T12:00:00Z", "2024-02-29T00:00:00Z"].map(d => new Date(d).toISOString().slice(0, 10));
//---
// expect: ok
// value: ["a","b"]
return [..."a,b".matchAll(/[a-z]/g)].map(m => m[0]);
//---
// expect: ok
// value: {"k":[1,2]}
return Object.groupBy ? { k: [1, 2] } : { k: [1, 2] };
//---
// expect: ok
// value: [[1,"a"],[2,"b"]]
return [...new Map([[1, "a"], [2, "b"]])];
//---
// expect: ok
// value: 6
class Box { #v = 1; add(n) { this.#v += n; return this } get v() { return this.#v } } return new Box().add(2).add(3).v;
//---
// expect: ok
// value: "caught: bad"
try { JSON.parse("{") ; } catch (e) { try { throw new Error("bad", { cause: e }) } catch (f) { return `caught: ${f.message}` } }
//---
// expect: ok
// value: [3,2,1]
return [1, 2, 3].toReversed();
//---
// expect: ok
// value: {"name":"n","rest":{"b":2}}
const { a: name = "n", ...rest } = { b: 2 }; return { name, rest };
//---
// expect: ok
// value: "1,234.5"
return (1234.5).toLocaleString();
//---
// expect: ok
// value: ["q","x y"]
const u = new URL("https://example.com/s?q=x%20y"); return [...u.searchParams][0];
//---
// expect: ok
// value: "ba7816bf"
return (await crypto.digest("SHA-256", "abc")).slice(0, 8);
//---
// expect: ok
// value: 3
let n = 0; for await (const x of [1, Promise.resolve(2)]) n += x; return n;
//---
// expect: ok
// value: "done"
const label = await new Promise(resolve => setTimeout(resolve, 5, "done")); return label;
//---
// expect: ok
// value: ["10","9","1"]
return ["1", "10", "9"].sort((a, b) => b - a);
//---
// expect: ok
// value: true
return structuredClone({ a: [1, { b: 2 }] }).a[1].b === 2;
//---
// expect: ok
// value: 1000000
let n = 0; for (let i = 0; i < 1e6; i++) n++; return n;
//---
// expect: ok
// value: 10000
return Array.from({ length: 1e4 }, (_, i) => ({ i })).filter(o => o.i >= 0).length;
//---
// expect: ok
// value: null
const nothing = undefined; return nothing?.deep?.value;
//---
// expect: ok
// value: "a-b-c"
return "a b c".split(/\s+/).join("-");
//---
// expect: ok
// value: {"sum":6,"max":3}
const numbers = [1, 2, 3]; return { sum: numbers.reduce((a, b) => a + b), max: Math.max(...numbers) };
