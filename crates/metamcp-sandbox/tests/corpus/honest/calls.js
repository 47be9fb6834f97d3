// expect: ok
// value: {"title":"x"}
return await servers.github.call("echo", { title: "x" });
//---
// expect: ok
// value: 34
const rows = await github.list({ count: 100 }); return rows.filter(r => r.open).length;
//---
// expect: ok
// value: ["row 0","row 3"]
return (await github.list({ count: 5 })).filter(r => r.open).map(r => r.name);
//---
// expect: ok
// value: [{"n":1},{"n":2},{"n":3}]
return await parallel([1, 2, 3], n => github.echo({ n }), 2);
//---
// expect: ok
// value: [1,2]
const [a, b] = await Promise.all([github.echo({ v: 1 }), my_files.echo({ v: 2 })]); return [a.v, b.v];
//---
// expect: ok
// value: "no such issue"
try { await github.wrong({}) } catch (e) { return e.message }
//---
// expect: ok
// value: ["fulfilled","rejected"]
return (await Promise.allSettled([github.echo({}), github.wrong()])).map(r => r.status);
//---
// expect: ok
// value: 3
let tries = 0; for (;;) { try { tries += 1; if (tries < 3) await github.wrong(); return tries } catch (e) { await sleep(1) } }
//---
// expect: ok
// value: [{"id":1,"left":"row 1","right":"row 1"}]
const [left, right] = await Promise.all([github.list({ count: 3 }), my_files.list({ count: 2 })]); const by = new Map(right.map(r => [r.id, r])); return left.filter(l => l.id > 0 && by.has(l.id)).map(l => ({ id: l.id, left: l.name, right: by.get(l.id).name }));
//---
// expect: ok
// value: "hello"
const raw = await github.text.raw(); return raw.content[0].text;
//---
// expect: ok
// value: true
try { await github.createIssue({}) } catch (e) { return e instanceof ToolError && e.message.includes("nearest") }
//---
// expect: ok
// value: "search"
return (await tools.search("an invoice", { limit: 5 })).op;
//---
// expect: ok
// value: "results_get"
const handle = await results.put({ a: 1 }); return (await results.get("h")).op;
//---
// expect: ok
// value: 4
let total = 0; for (const page of [1, 2]) { progress(page / 2, `page ${page}`); total += (await github.list({ count: 2 })).length; console.log("page", page, total) } return total;
//---
// expect: ok
// value: "rested"
return await Promise.race([github.nap(), sleep(5000).then(() => "late")]);
//---
// expect: ok
// value: [0,1,2]
const out = []; for (const n of [0, 1, 2]) out.push((await github.echo({ n })).n); return out;
//---
// expect: ok
// value: "one\ntwo"
return await github.parts();
//---
// expect: ok
// value: {"n":1}
return await github.text({ text: JSON.stringify({ n: 1 }) });
//---
// expect: ok
// value: 20
return (await parallel.settled(Array.from({ length: 20 }, (_, i) => i), n => n % 7 === 3 ? github.wrong() : github.echo({ n }))).length;
//---
// expect: ok
// value: ["github","my files","console"]
return Object.keys(servers);
//---
// expect: ok
// value: "image"
return (await github.image()).content[0].type;
//---
// expect: ok
// value: 2
const work = [github.nap(), github.nap()]; return (await Promise.all(work)).length;
//---
// expect: error
const issue = await github.echo({}); return issue.number.toFixed(2);
//---
// expect: error
return await github.nap().missing();
//---
// expect: ok
// value: {"github":3}
const count = {}; for (const s of ["github", "github", "github"]) { await servers[s].echo({}); count[s] = (count[s] ?? 0) + 1 } return count;
