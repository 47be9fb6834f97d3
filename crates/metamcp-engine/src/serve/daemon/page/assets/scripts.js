// Scripts: what ran in code mode, its code, calls and output.
import { columns } from "./calls.js";
import { badge, bytes, card, count, empty, facts, h, long, micros, put, table, time } from "./dom.js";

const verdict = (one) => badge(one.verdict, one.verdict === "ok" ? "good" : one.verdict === "cancelled" ? "warn" : "bad");

export async function list({ content, ask, poll }) {
  const { node, fill } = table("Scripts, the newest first", [
    ["Script", (one) => h("a", { href: `#/script/${one.id}` }, String(one.id))],
    ["Time", (one) => time(one.atMs)],
    ["Outcome", verdict],
    ["Took", (one) => micros(one.tookUs), "num"],
    ["Calls", (one) => count(one.calls), "num"],
    ["By", (one) => one.client || `session ${one.session}`],
    ["Begins", (one) => h("code", { class: "cut" }, one.head)],
  ]);
  const none = h("div");
  const look = async () => {
    const { scripts } = await ask("scripts", { most: 200 });
    const rows = scripts.toReversed();
    fill(rows, (one) => one.id);
    node.hidden = rows.length === 0;
    put(none, rows.length ? null : empty("No script ran yet. Try:", h("pre", {}, "echo 'return await tools.search(\"files\")' | metamcp run -")));
  };
  await look();
  put(content, none, node);
  poll(look, 2_000);
}

export async function one({ content, heading, ask, name }) {
  const told = await ask("script", { id: Number(name) });
  const { script } = told;
  const { calls } = await ask("calls", { script: Number(name), most: 200 });
  put(heading, `Script ${name}`);
  const { node, fill } = table("Calls of the script", columns.filter(([title]) => title !== "By"));
  fill(calls, (call) => call.id);
  put(content,
    h("p", {}, verdict(script), " took ", micros(script.tookUs), ", ended at ", time(script.atMs)),
    told.error ? h("div", { class: "failed" }, told.error) : null,
    told.isCut ? h("p", { class: "hint" }, "Code or logs are longer than what is kept.") : null,
    card("Code", told.code ? long(told.code, { label: "Code of the script" }) : empty("Its code is not kept.")),
    card("Logs", told.logs.length ? long(told.logs.map((line) => `${line.level}: ${line.text}`).join("\n"), { label: "Logs of the script" }) : empty("It logged nothing.")),
    card("Calls", calls.length ? node : empty("It called no tool, or they are no longer kept.")),
    card("Facts", facts([["Client", script.client], ["Session", String(script.session)], ["Result", bytes(script.bytesOut)]])));
}
