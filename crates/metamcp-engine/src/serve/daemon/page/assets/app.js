// The page: which view is shown, and what is around it.
import { ask, isPaused, poll, setPaused, told } from "./api.js";
import { add, age, badge, h, put } from "./dom.js";
import * as approvals from "./approvals.js";
import * as calls from "./calls.js";
import * as fleet from "./fleet.js";
import * as gallery from "./gallery.js";
import * as overview from "./overview.js";
import * as scripts from "./scripts.js";
import * as servers from "./servers.js";
import * as sessions from "./sessions.js";
import * as settings from "./settings.js";
import * as tools from "./tools.js";

const PAGES = [
  ["", "Overview", overview.view],
  ["servers", "Servers", servers.list],
  ["tools", "Tools", tools.view],
  ["calls", "Calls", calls.list],
  ["scripts", "Scripts", scripts.list],
  ["approvals", "Approvals", approvals.view],
  ["gallery", "Gallery", gallery.view],
  ["sessions", "Sessions", sessions.view],
  ["fleet", "Fleet", fleet.view],
  ["settings", "Settings", settings.view],
];
// Views of one thing, below the page that lists them.
const DETAILS = new Map([
  ["server", ["servers", servers.one]],
  ["tool", ["tools", tools.one]],
  ["listed", ["gallery", gallery.one]],
  ["call", ["calls", calls.one]],
  ["script", ["scripts", scripts.one]],
]);

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const waiting = h("span", { class: "count", hidden: true });
const links = new Map(PAGES.map(([path, title]) => {
  const link = h("a", { href: `#/${path}` }, title, path === "approvals" ? [" ", waiting] : null);
  return [path, link];
}));
nav.append(h("ul", {}, [...links.values()].map((link) => h("li", {}, link))));
// Only where the configuration names a fleet.
const fleetItem = links.get("fleet").parentElement;
fleetItem.hidden = true;

let leaving = new AbortController();
let isFirst = true;

/** `#/call/12?server=a` as path, rest and parameters. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first = "", ...rest] = path.split("/");
  const decoded = (part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return { first, rest: rest.map(decoded).join("/"), query: new URLSearchParams(query) };
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const { first, rest, query } = address();
  const detail = DETAILS.get(first);
  const page = PAGES.find(([path]) => path === (detail ? detail[0] : first)) ?? PAGES[0];
  for (const [path, link] of links) {
    if (path === page[0]) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = detail && rest !== "" ? detail[1] : page[2];
  const title = detail && rest !== "" ? rest : page[1];
  const heading = h("h1", { tabindex: -1 }, title);
  document.title = `${title} · metamcp`;
  const content = h("div", { class: "content", "aria-busy": "true" }, h("p", { class: "loading" }, "Loading …"));
  put(main, heading, content);
  // A change of view is a change of page: the reader is told, but not when the page has just been loaded.
  if (!isFirst) heading.focus();
  isFirst = false;
  try {
    await view({ content, heading, signal, query, name: rest, poll: (work, every) => poll(work, every, signal), ask: (name, params) => ask(name, params, { signal }) });
  } catch (error) {
    if (error?.name === "AbortError") return;
    put(content, told(error), h("p", {}, h("button", { type: "button", on: { click: show } }, "Try again")));
  } finally {
    content.removeAttribute("aria-busy");
  }
}

// -- around the views --

const state = document.getElementById("state");
async function health() {
  const { daemon, approvals: pending, fleet: hasFleet } = await ask("head");
  fleetItem.hidden = !hasFleet;
  put(state, badge(daemon.draining ? "ending" : "running", daemon.draining ? "warn" : "good"),
    h("span", { class: "wide" }, ` ${daemon.version}, process ${daemon.pid}, up ${age(daemon.uptimeMs)}`));
  waiting.hidden = !pending;
  put(waiting, pending ? String(pending) : "", pending ? h("span", { class: "sr" }, " waiting") : null);
}
health().catch(() => put(state, badge("not reached", "bad")));
poll(() => health().catch((error) => { put(state, badge("not reached", "bad")); throw error; }), 3_000, new AbortController().signal);

const pause = document.getElementById("pause");
pause.addEventListener("click", () => {
  setPaused(!isPaused());
  pause.setAttribute("aria-pressed", String(isPaused()));
  pause.textContent = isPaused() ? "Go on" : "Pause";
});

const theme = document.getElementById("theme");
const THEMES = ["auto", "light", "dark"];
const chosen = () => document.documentElement.dataset.theme ?? "auto";
const name = () => { put(theme, "Theme: ", chosen()); };
theme.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(chosen()) + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  localStorage.setItem("metamcp.theme", next);
  name();
});
name();

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const field = main.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});
addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
add(nav, [h("p", { class: "hint wide" }, h("kbd", {}, "/"), " finds")]);
show();
