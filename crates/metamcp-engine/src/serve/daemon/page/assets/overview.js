// The overview: how much is going on, which servers run, and what happened lately.
import { area } from "./charts.js";
import { age, badge, bytes, card, count, empty, h, micros, put, table, time } from "./dom.js";
import { merged, state, serverLink } from "./servers.js";

/** Servers on the overview: those that run or failed, and the rest behind a link. */
const MOST = 12;
const EVENTS = 8;

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

export async function view({ content, ask, poll }) {
  const tiles = h("dl", { class: "tiles" });
  const charts = h("div", { class: "two" });
  const servers = table("Servers that run, failed, or were called", [
    ["Server", (one) => serverLink(one.name)],
    ["State", state],
    ["Calls", (one) => count(one.calls), "num"],
    ["Failed", (one) => (one.failed ? h("a", { href: `#/calls?server=${encodeURIComponent(one.name)}&failed=1` }, count(one.failed)) : "0"), "num"],
    ["p50", (one) => micros(one.p50Us), "num"],
    ["p99", (one) => micros(one.p99Us), "num"],
    ["Up", (one) => (one.upMs === null ? "–" : age(one.upMs)), "num"],
    ["Memory", (one) => bytes(one.memory), "num"],
  ]);
  const rest = h("p", { class: "hint" });
  const none = h("div");
  const events = h("ul", { class: "events" });
  const noEvents = h("div");
  let configured = null;
  let round = 0;
  const look = async () => {
    const told = await ask("overview", { seconds: 60 });
    if (configured === null || round % 5 === 0) configured = (await ask("configured")).servers;
    round += 1;
    const { events: latest } = await ask("events", { most: EVENTS });
    draw(told, latest);
  };
  const draw = (told, latest) => {
    const calls = told.rates.map(([calls]) => calls);
    const failed = told.rates.map(([, failed]) => failed);
    const slowest = told.rates.map(([, , slowest]) => slowest / 1_000);
    const last = sum(calls.slice(-10)) / 10;
    const tile = (name, value, more, tone) => h("div", { class: `tile ${tone ?? ""}` }, h("dt", {}, name), h("dd", {}, h("span", { class: "big" }, value), h("span", { class: "hint" }, more)));
    const { status } = told;
    const broken = sum(failed);
    put(tiles,
      tile("Calls a second", last >= 10 ? count(Math.round(last)) : last.toFixed(1), `${count(told.calls)} in all`),
      tile("Median", micros(told.p50Us), "p50, last minute"),
      tile("Slow end", micros(told.p99Us), "p99, last minute"),
      tile("Failed", count(broken), "last minute", broken ? "bad" : ""),
      tile("Tokens saved", told.tokens ? count(told.tokens.saved) : "–", told.tokens ? `${count(told.tokens.shown)} shown to models` : "not counted yet"),
      tile("Sessions", count(status.sessions.length), h("a", { href: "#/sessions" }, "who")),
      tile("Servers running", `${told.pool.used} of ${told.pool.size}`, told.pool.waiting ? `${told.pool.waiting} waiting for a slot` : "slots of the pool"),
      tile("Memory", bytes(status.memoryBytes), "of the daemon itself"));
    put(charts,
      card("Calls", h("p", { class: "hint" }, `per second, last minute; most ${count(Math.max(...calls, 0))}`),
        area(calls, `Calls per second in the last minute: at most ${Math.max(...calls, 0)}, now ${last.toFixed(1)}; ${broken} failed`, { bars: failed })),
      card("Slowest call", h("p", { class: "hint" }, `of each second, last minute; at most ${micros(Math.max(...slowest, 0) * 1_000)}`),
        area(slowest, `Slowest call of each second in the last minute: at most ${Math.round(Math.max(...slowest, 0))} ms`, { tone: "second" })));
    const all = merged(configured, told);
    const shown = all.filter((one) => one.state !== "not running" || one.calls > 0).slice(0, MOST);
    servers.fill(shown, (one) => one.name);
    servers.node.hidden = shown.length === 0;
    put(none, all.length === 0 ? empty("No server is configured.", h("pre", {}, "metamcp init"), h("p", {}, "imports those of your clients."))
      : shown.length === 0 ? empty("No server runs: each is started when one of its tools is first called.") : null);
    put(rest, all.length > shown.length ? [`${count(all.length - shown.length)} more `, h("a", { href: "#/servers" }, "servers"), " do not run."] : null);
    put(noEvents, latest.length ? null : empty("Nothing happened yet."));
    put(events, latest.toReversed().map(event));
  };
  await look();
  put(content, tiles, charts, card("Servers", none, servers.node, rest), card("Events", noEvents, events));
  poll(look, 2_000);
}

/** One event of a list. */
export const event = (one) => h("li", {}, time(one.atMs), " ", one.severity === "warning" ? badge(one.kind, "warn") : badge(one.kind), " ",
  one.server ? [serverLink(one.server), ": "] : null, one.words);
