// Servers: all of them with their state; one with its tools, its stderr, its calls, and what can be done with it.
import { act, ask as request, say } from "./api.js";
import { outcome } from "./calls.js";
import { age, badge, bytes, card, count, empty, facts, h, long, micros, plural, put, table, time } from "./dom.js";
import { ofServer } from "./tools.js";
import { event } from "./overview.js";

/** Lines of stderr that are kept on the page. */
const LINES = 500;

export const serverLink = (name) => h("a", { href: `#/server/${encodeURIComponent(name)}` }, name);

const ORDER = ["failed", "connecting", "active", "idle"];
const RUNS = new Set(["connecting", "active", "idle"]);

/** What the configuration and the daemon say of each server, as one row; those that need a look first. */
export function merged(configured, { status, serverCalls }) {
  const calls = new Map(serverCalls.map((one) => [one.name, one]));
  const running = new Map();
  for (const one of status.servers) {
    const known = running.get(one.name);
    running.set(one.name, known ? { ...known, queued: known.queued + one.queued, instances: [...known.instances, ...one.instances] } : one);
  }
  const names = new Set([...configured.map((one) => one.name), ...running.keys()]);
  const all = [...names].map((name) => {
    const config = configured.find((one) => one.name === name);
    const { instances = [], queued = 0, scope = "" } = running.get(name) ?? {};
    const known = calls.get(name) ?? {};
    const resting = instances.length === 0 ? config : undefined;
    const up = instances.filter((one) => RUNS.has(one.state));
    const best = ORDER.find((word) => instances.some((one) => one.state === word));
    const ages = up.map((one) => one.ageMs).filter((one) => one !== null && one !== undefined);
    const memory = up.map((one) => one.memoryBytes).filter(Boolean);
    return {
      name, scope, queued, instances: up.length,
      state: config && !config.enabled ? "off" : best ?? (config?.failure ? "failed" : "not running"),
      against: config?.against ?? null,
      breaker: instances.find((one) => one.breaker && one.breaker !== "normal")?.breaker ?? (resting?.breaker && resting.breaker !== "normal" ? resting.breaker : null),
      failure: instances.find((one) => one.failure)?.failure ?? resting?.failure ?? null,
      inFlight: instances.reduce((sum, one) => sum + one.inFlight, 0),
      upMs: ages.length ? Math.floor(Math.max(...ages) / 1_000) * 1_000 : null,
      memory: memory.length ? memory.reduce((sum, one) => sum + one, 0) : null,
      tools: config?.tools ?? null, remote: config?.remote ?? false, elsewhere: !config,
      calls: known.calls ?? 0, failed: known.failed ?? 0, p50Us: known.p50Us ?? null, p99Us: known.p99Us ?? null,
    };
  });
  const rank = (one) => (one.breaker ? 0 : one.state === "failed" ? 1 : RUNS.has(one.state) ? 2 : one.state === "off" ? 4 : 3);
  return all.sort((one, other) => rank(one) - rank(other) || one.name.localeCompare(other.name));
}

/** The state of a server in a few words. */
export function state(one) {
  const tone = { failed: "bad", connecting: "warn", active: "good", idle: "good", off: "plain" }[one.state] ?? "plain";
  const word = { active: one.inFlight > 1 ? `busy with ${one.inFlight}` : "busy", idle: "ready", connecting: "starting" }[one.state] ?? one.state;
  return [badge(word, tone), one.breaker ? [" ", badge(`breaker ${one.breaker}`, "bad")] : null,
    one.instances > 1 ? h("span", { class: "hint" }, ` ${one.instances} instances`) : null,
    one.queued ? h("span", { class: "hint" }, ` ${plural(one.queued, "call")} waiting`) : null];
}

export async function list({ content, ask, poll }) {
  const filter = h("input", { type: "search", id: "which", placeholder: "part of a name", autocomplete: "off" });
  const { node, fill } = table("Servers", [
    ["Server", (one) => serverLink(one.name)],
    ["State", state],
    ["Why", (one) => h("span", { class: "why" }, one.state === "off" || one.state === "failed" || one.breaker ? one.against ?? one.failure ?? "" : one.elsewhere ? "of another folder" : "")],
    ["Tools", (one) => count(one.tools), "num"],
    ["Calls", (one) => count(one.calls), "num"],
    ["Failed", (one) => count(one.failed), "num"],
    ["p50", (one) => micros(one.p50Us), "num"],
    ["p99", (one) => micros(one.p99Us), "num"],
    ["Up", (one) => (one.upMs === null ? "–" : age(one.upMs)), "num"],
    ["Memory", (one) => bytes(one.memory), "num"],
  ]);
  const none = h("div");
  const total = h("p", { class: "hint", role: "status" });
  let all = [];
  let configured = null;
  let round = 0;
  const draw = () => {
    const words = filter.value.trim().toLowerCase();
    const rows = all.filter((one) => one.name.toLowerCase().includes(words));
    fill(rows, (one) => one.name);
    node.hidden = rows.length === 0;
    put(total, all.length ? `${plural(rows.length, "server")}, ${rows.filter((one) => RUNS.has(one.state)).length} running` : "");
    put(none, all.length === 0 ? empty("No server is configured. Add one:", h("pre", {}, "metamcp add memory\nmetamcp init"))
      : rows.length === 0 ? empty("No server has that in its name.") : null);
  };
  const look = async () => {
    if (configured === null || round % 3 === 0) configured = (await ask("configured")).servers;
    round += 1;
    all = merged(configured, await ask("overview", { seconds: 1 }));
    draw();
  };
  filter.addEventListener("input", draw);
  await look();
  put(content, h("div", { class: "line" }, h("label", { for: "which" }, "Filter"), filter), total, none, node);
  poll(look, 2_000);
}

export async function one({ content, ask, poll, name }) {
  const top = h("div");
  const doings = h("div", { class: "line" });
  const about = h("div");
  const processes = table("Processes and connections", [
    ["Of", (one) => one.of || "everybody"],
    ["State", (one) => state({ ...one, instances: 1, queued: 0, breaker: one.breaker === "normal" ? null : one.breaker })],
    ["Process", (one) => (one.pid ? String(one.pid) : "–"), "num"],
    ["Up", (one) => (one.ageMs === null || one.ageMs === undefined ? "–" : age(one.ageMs)), "num"],
    ["Memory", (one) => bytes(one.memoryBytes), "num"],
    ["Used by sessions", (one) => one.sessions.join(", ")],
    ["Last failure", (one) => one.failure ?? ""],
  ]);
  const noProcess = h("div");
  const log = h("pre", { class: "log", tabindex: 0, role: "region", "aria-label": `stderr of ${name}` });
  const noLog = h("div");
  const calls = table(`Last calls of ${name}`, [
    ["Time", (call) => h("a", { href: `#/call/${call.id}` }, time(call.atMs))],
    ["Tool", (call) => h("span", { class: "id" }, call.tool)],
    ["Outcome", outcome],
    ["Took", (call) => micros(call.tookUs), "num"],
  ]);
  const noCalls = h("div");
  const events = h("ul", { class: "events" });
  const noEvents = h("div");

  const busy = (title, work, done, kind) => {
    const button = h("button", { type: "button", class: kind, on: { click: async () => {
      await act(button, work, done);
      await facts_().catch(() => {});
      await look().catch(() => {});
    } } }, title);
    return button;
  };
  let print = "";
  const facts_ = async () => {
    const told = await ask("server", { name });
    // What is the same stays, with whatever has the focus in it.
    const next = JSON.stringify(told, (key, value) => (key === "expiresInMs" || key === "running" ? undefined : value));
    if (next === print) return;
    print = next;
    const { config } = told;
    put(top, told.about ? h("p", { class: "prose" }, told.about) : null,
      told.against ? h("div", { class: "note" }, h("strong", {}, "It is not used: "), told.against, ".",
        told.missing.length ? h("p", {}, "Set ", told.missing.map((one, at) => [at ? ", " : "", h("code", {}, one)]), " where your client or shell starts metamcp, or give the server an env in the config file.") : null) : null,
      told.listFailure ? h("div", { class: "failed" }, `Its tools are not known: it ${told.listFailure}`) : null,
      told.installed?.withheld || told.installed?.blocked?.length ? h("div", { class: "note" }, "Some of it waits for you: ", h("a", { href: "#/approvals" }, "approvals"), ".") : null);
    put(doings,
      told.enabled ? busy("Restart", () => request("restart", { name }), `${name} was restarted.`, "main") : null,
      told.enabled ? busy("Restart at once", () => request("restart", { name, now: true }), `${name} was ended and started again.`) : null,
      told.enabled ? busy("Disable", () => request("disable", { name }), `${name} is disabled.`) : null,
      told.switchedOff ? busy("Enable", () => request("enable", { name }), `${name} is enabled.`, "main") : null,
      told.remote && told.enabled ? busy(told.login ? "Sign in anew" : "Sign in", async () => {
        const started = await request("login", { name });
        if (!started.url) return say(`Signed in to ${name}.`);
        // Opened by the person's own click, without a way back to this page.
        put(about, h("p", {}, h("a", { href: started.url, target: "_blank", rel: "noopener noreferrer" }, "Open the sign-in of its provider"), " in this browser; the server is tried again once you are back."), about.lastChild);
        return undefined;
      }, null) : null,
      told.login ? busy("Sign out", () => request("logout", { name }), `The token of ${name} was deleted.`) : null);
    put(about, facts([
      ["Title", told.title], ["Version", told.version], ["Shared by", told.scope], ["Config", config.from ? h("code", {}, config.from) : null],
      ["Command", config.command ? h("code", {}, [config.command, ...(config.args ?? [])].join(" ")) : null], ["Address", config.url ? h("code", {}, config.url) : null],
      ["Variables", config.env?.length ? config.env.map((one, at) => [at ? ", " : "", h("code", {}, one), "=***"]) : null],
      ["Headers", config.headers?.length ? config.headers.join(", ") : null],
      ["Signed in at", told.login?.issuer], ["Package", told.installed?.package], ["Pinned tools", told.installed ? count(told.installed.pins) : null],
      ["Tools", told.tools === null ? "not known yet" : count(told.tools)], ["Left out", told.leftOut],
      ["Overrides that do not fit", told.misfits?.length ? told.misfits.join("; ") : null],
    ]), h("details", {}, h("summary", {}, "Effective configuration"), long(config, { label: "Effective configuration" })));
  };

  let round = 0;
  let after = {};
  let lastCall = 0;
  let kept = [];
  let lastEvent = 0;
  const look = async () => {
    // Somebody may have edited the configuration, here or elsewhere.
    if (round % 2 === 1) await facts_();
    round += 1;
    const { status } = await ask("overview", { seconds: 1 });
    const instances = status.servers.filter((one) => one.name === name).flatMap((one) => one.instances);
    processes.fill(instances, (one) => `${one.of} ${one.pid} ${one.state}`);
    processes.node.hidden = instances.length === 0;
    put(noProcess, instances.length ? null : empty("Nothing of it runs. It is started when one of its tools is first called."));
    await logs();
    const page = await ask("calls", { server: name, after: lastCall, most: 50 });
    lastCall = page.last;
    if (page.calls.length) kept = [...page.calls.toReversed(), ...kept].slice(0, 50);
    calls.fill(kept, (call) => call.id);
    calls.node.hidden = kept.length === 0;
    put(noCalls, kept.length ? null : empty("No call yet."));
    const happened = await ask("events", { server: name, after: lastEvent, most: 20 });
    lastEvent = happened.last;
    events.prepend(...happened.events.toReversed().map(event));
    while (events.children.length > 20) events.lastChild.remove();
    put(noEvents, events.children.length ? null : empty("Nothing happened to it yet."));
  };
  const logs = async () => {
    let told;
    try {
      told = await ask("logs", { server: name, after, most: 200 });
    } catch (error) {
      if (error.code !== "not_found") throw error;
      told = { instances: [] };
    }
    const stays = log.scrollHeight - log.scrollTop - log.clientHeight > 40;
    for (const one of told.instances) {
      for (const line of one.lines) log.append(h("span", { class: "logline" }, told.instances.length > 1 && one.pid ? `${one.pid}: ${line}` : line));
      after[one.instance] = one.last;
    }
    while (log.children.length > LINES) log.firstChild.remove();
    const isEmpty = log.children.length === 0;
    log.hidden = isEmpty;
    put(noLog, isEmpty ? empty("It wrote nothing to stderr.") : null);
    if (!stays) log.scrollTop = log.scrollHeight;
  };
  await facts_();
  const tools = h("div");
  put(content, top, doings, card("About", about), card("Processes", noProcess, processes.node), card("stderr", h("p", { class: "hint" }, "Live, the newest last; at most ", count(LINES), " lines here."), noLog, log),
    card("Last calls", noCalls, calls.node, h("p", {}, h("a", { href: `#/calls?server=${encodeURIComponent(name)}` }, "All of its calls"))),
    card("Events", noEvents, events), tools);
  await look();
  put(tools, await ofServer({ ask }, name));
  poll(look, 2_000);
}
