// The gallery: servers that could be installed, which of them answer a need, and what installing one would do.
import { told } from "./api.js";
import { badge, card, empty, facts, h, put, table } from "./dom.js";

const link = (name) => h("a", { href: `#/listed/${encodeURIComponent(name)}` }, name);

export async function view({ content, ask, query }) {
  const found = h("div", { "aria-live": "polite" });
  const field = h("input", { type: "search", id: "need", value: query.get("need") ?? "", placeholder: "what is on my calendar tomorrow", autocomplete: "off", "aria-describedby": "need-hint" });
  const look = async () => {
    const need = field.value.trim();
    history.replaceState(null, "", need ? `#/gallery?need=${encodeURIComponent(need)}` : "#/gallery");
    if (need === "") return put(found);
    try {
      const { servers } = await ask("gallery", { need });
      put(found, servers.length ? servers.map(plan) : empty("No server of the gallery does that. A model that asks with mcp_provision looks in the registries too."));
    } catch (error) {
      if (error.name !== "AbortError") put(found, told(error));
    }
    return undefined;
  };
  const search = h("form", { role: "search", class: "line", on: { submit: (event) => { event.preventDefault(); look(); } } },
    h("label", { for: "need", class: "sr" }, "What you need"), field, h("button", { type: "submit", class: "main" }, "Find a server"));
  const { servers } = await ask("gallery");
  const filter = h("input", { type: "search", id: "filter", placeholder: "part of a name or a group", autocomplete: "off" });
  const { node, fill } = table("Servers of the gallery", [
    ["Server", (one) => link(one.name)],
    ["Group", (one) => one.group],
    ["About", (one) => one.about],
    ["Tools", (one) => h("span", { class: "num" }, one.tools ?? "")],
    ["Account", (one) => (one.needs ? badge("needs values", "warn") : "")],
  ]);
  const total = h("p", { class: "hint", role: "status" });
  const show = () => {
    const part = filter.value.trim().toLowerCase();
    const shown = servers.filter((one) => [one.name, one.group, one.about, one.package].some((text) => text.toLowerCase().includes(part)));
    fill(shown, (one) => one.package);
    put(total, `${shown.length} of ${servers.length} servers`);
  };
  filter.addEventListener("input", show);
  put(content,
    card("Find a server for a need", search, h("p", { class: "hint", id: "need-hint" }, "Answered from this program alone; nobody is asked."), found),
    card("All servers", h("p", { class: "line" }, h("label", { for: "filter", class: "sr" }, "Filter"), filter), total, node));
  show();
  if (field.value) await look();
}

export async function one({ content, ask, name }) {
  put(content, plan(await ask("listed", { name })));
}

function plan(one) {
  return h("article", { class: "ask", "aria-label": `Install ${one.name}` },
    h("h3", {}, link(one.name), " ", one.installed ? badge("installed", "good") : null, one.refused ? badge("refused by the rules", "bad") : null),
    h("p", {}, one.about),
    facts([["Package", `${one.source} ${one.package} ${one.version}`], ["Age", one.age_days === null ? "not known" : `${one.age_days} days`]]),
    h("p", {}, "Installing it would do this:"),
    h("pre", { tabindex: 0, role: "region", "aria-label": `What installing ${one.name} would do` }, one.told),
    h("p", { class: "hint" }, "It begins in a terminal: ", h("code", {}, one.add)));
}
