// Calls: the newest, live and filtered; and the timeline of one.
import { timeline } from "./charts.js";
import { badge, bytes, card, count, empty, facts, h, micros, plural, put, table, time } from "./dom.js";

/** Rows that are kept; older ones are in `metamcp calls`. */
const KEPT = 500;
/** Rows that are shown until somebody asks for more. */
const SHOWN = 100;
/** Rows asked for at a time. */
const MOST = 200;

const TONES = { ok: "good", tool_error: "bad", failed: "bad", other: "warn" };
export const outcome = (call) => badge(call.verdict.replaceAll("_", " "), TONES[call.outcome] ?? "plain");

export const columns = [
  ["Time", (call) => h("a", { href: `#/call/${call.id}` }, time(call.atMs))],
  ["Tool", (call) => h("span", { class: "id" }, `${call.server}:${call.tool}`)],
  ["Outcome", outcome],
  ["Took", (call) => micros(call.tookUs), "num"],
  ["By", (call) => [call.script ? h("a", { href: `#/script/${call.script}` }, `script ${call.script}`) : call.origin.replaceAll("_", " "), call.client ? ` of ${call.client}` : ""]],
  ["In", (call) => bytes(call.bytesIn), "num"],
  ["Out", (call) => bytes(call.bytesOut), "num"],
];

export async function list({ content, ask, poll, query }) {
  const field = (id, label, more) => h("div", { class: "field" }, h("label", { for: id }, label), more);
  const server = h("input", { type: "search", id: "by-server", value: query.get("server") ?? "", placeholder: "any", autocomplete: "off" });
  const tool = h("input", { type: "search", id: "by-tool", value: query.get("tool") ?? "", placeholder: "any", autocomplete: "off" });
  const failed = h("input", { type: "checkbox", id: "by-failed", checked: query.get("failed") === "1" });
  const slow = h("input", { type: "number", id: "by-slow", min: 0, step: 1, value: query.get("slow") ?? "", placeholder: "ms" });
  const filters = h("form", { class: "filters", on: { submit: (event) => event.preventDefault() } },
    field("by-server", "Server", server), field("by-tool", "Tool", tool), field("by-slow", "Slower than, ms", slow),
    h("div", { class: "field check" }, failed, h("label", { for: "by-failed" }, "Only failed")));
  const { node, fill } = table("Calls, the newest first", columns, { id: "calls" });
  const none = h("div");
  const skipped = h("p", { class: "hint", role: "status" });
  const more = h("button", { type: "button", hidden: true }, "Show more");
  let rows = [];
  let last = 0;
  let shown = SHOWN;
  let lost = 0;
  const wanted = () => ({
    ...(server.value.trim() ? { server: server.value.trim() } : {}),
    ...(tool.value.trim() ? { tool: tool.value.trim() } : {}),
    ...(failed.checked ? { failed: true } : {}),
    ...(Number(slow.value) > 0 ? { slowerThanMs: Number(slow.value) } : {}),
  });
  const draw = () => {
    fill(rows.slice(0, shown), (call) => call.id);
    node.hidden = rows.length === 0;
    more.hidden = rows.length <= shown;
    const filtered = Object.keys(wanted()).length > 0;
    put(none, rows.length > 0 ? null : filtered ? empty("No call fits these filters.")
      : empty("No call yet. Try:", h("pre", {}, "metamcp call SERVER:TOOL name=value")));
    put(skipped, lost > 0 ? `${plural(lost, "call")} came faster than the page asks and ${lost === 1 ? "is" : "are"} not shown.` : "");
  };
  let asked = 0;
  const look = async () => {
    const mine = asked;
    const page = await ask("calls", { after: last, most: MOST, ...wanted() });
    // Filters that changed meanwhile have their own answer.
    if (mine !== asked) return;
    last = page.last;
    lost += page.skipped ?? 0;
    if (page.calls.length > 0) rows = [...page.calls.toReversed(), ...rows].slice(0, KEPT);
    draw();
  };
  const anew = () => {
    asked += 1;
    [rows, last, lost, shown] = [[], 0, 0, SHOWN];
    const words = new URLSearchParams();
    for (const [name, value] of [["server", server.value.trim()], ["tool", tool.value.trim()], ["slow", slow.value], ["failed", failed.checked ? "1" : ""]]) {
      if (value) words.set(name, value);
    }
    history.replaceState(null, "", `#/calls${words.size ? `?${words}` : ""}`);
    look().catch(() => {});
  };
  let typing;
  for (const one of [server, tool, slow, failed]) {
    one.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(anew, 250);
    });
  }
  more.addEventListener("click", () => {
    shown += SHOWN;
    draw();
  });
  await look();
  put(content, filters, skipped, none, node, more);
  poll(look, 1_000);
}

/** What the parts of a timeline are called, by the step that ends them. */
const PARTS = {
  starting: ["waited", "wait"], opened: ["process or connection opened", "start"], ready: ["handshake", "start"],
  sent: ["waited to be sent", "wait"], "first byte": ["server worked", "work"], answered: ["server worked", "work"],
  lost: ["on a connection that was lost", "lost"], ended: ["until it ended", "wait"],
};

export async function one({ content, heading, ask, name }) {
  const { call, cause, steps } = await ask("call", { id: Number(name) });
  put(heading, `Call ${name}`);
  const parts = [];
  let at = 0;
  let seenByte = false;
  for (const step of steps) {
    if (step.what === "arrived") continue;
    let [words, tone] = PARTS[step.what] ?? [step.what, "wait"];
    if (step.what === "answered" && seenByte) [words, tone] = ["response arrived", "arrive"];
    if (step.what === "first byte") seenByte = true;
    parts.push({ words, tone, from: at, to: step.atUs, step });
    at = step.atUs;
  }
  const total = Math.max(call.tookUs, at);
  const share = (part) => `${micros(part.to - part.from)}${total > 0 ? `, ${Math.round(((part.to - part.from) / total) * 100)} %` : ""}`;
  put(content,
    h("p", {}, outcome(call), " ", h("a", { href: `#/tool/${encodeURIComponent(`${call.server}:${call.tool}`)}` }, `${call.server}:${call.tool}`), " took ", micros(call.tookUs), ", ended at ", time(call.atMs)),
    cause ? h("div", { class: "failed" }, cause) : null,
    card("Timeline",
      parts.length === 0 ? empty("Nothing is known of its parts.") : h("div", { class: "gantt" },
        h("ol", {}, parts.map((part) => h("li", {}, h("span", { class: `dot ${part.tone}`, "aria-hidden": "true" }), h("span", {}, part.words), h("span", { class: "num" }, share(part))))),
        timeline(parts, total, `Timeline of the call: ${parts.map((part) => `${part.words} ${micros(part.to - part.from)}`).join(", ")}`))),
    card("Steps", h("ol", { class: "steps" }, steps.map((step) => h("li", {}, h("span", { class: "num" }, micros(step.atUs)), " ", h("strong", {}, step.what), step.why ? `: ${step.why}` : "")))),
    card("Facts", facts([
      ["Server", h("a", { href: `#/server/${encodeURIComponent(call.server)}` }, call.server)],
      ["Method", h("code", {}, call.method)], ["Made by", call.origin.replaceAll("_", " ")],
      ["Script", call.script ? h("a", { href: `#/script/${call.script}` }, String(call.script)) : null],
      ["Client", call.client], ["Principal", call.principal], ["Session", count(call.session)],
      ["Sent", call.attempts === 1 ? "once" : `${count(call.attempts)} times`],
      ["Arguments", bytes(call.bytesIn)], ["Result", bytes(call.bytesOut)],
    ])));
}
