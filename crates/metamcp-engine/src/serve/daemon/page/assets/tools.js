// Tools: the search as a model gets it, with why; all of them, page by page; one, with a form to run it.
import { act, ask as request, say, told } from "./api.js";
import { add, badge, bytes, card, count, empty, facts, h, long, micros, plural, put, table } from "./dom.js";
import { form } from "./form.js";

const PAGE = 100;
export const toolLink = (id) => h("a", { href: `#/tool/${encodeURIComponent(id)}` }, id);

export async function view({ content, ask, query }) {
  const found = h("div", { "aria-live": "polite" });
  const field = h("input", { type: "search", id: "q", value: query.get("q") ?? "", placeholder: "read a file", autocomplete: "off", "aria-describedby": "q-hint" });
  const search = h("form", { role: "search", class: "line", on: { submit: async (event) => {
    event.preventDefault();
    await look();
  } } }, h("label", { for: "q", class: "sr" }, "What the tool should do"), field, h("button", { type: "submit", class: "main" }, "Search"));
  const look = async () => {
    const words = field.value.trim();
    history.replaceState(null, "", words ? `#/tools?q=${encodeURIComponent(words)}` : "#/tools");
    if (words === "") return put(found);
    put(found, h("p", { class: "loading" }, "Searching …"));
    try {
      put(found, answer(await ask("search", { query: words })));
    } catch (error) {
      if (error.name !== "AbortError") put(found, told(error));
    }
    return undefined;
  };
  put(content,
    card("Search as a model does", search, h("p", { class: "hint", id: "q-hint" }, "The answer below is what mcp_discover would give a model, word for word."), found),
    await all({ ask, query }));
  if (field.value) await look();
}

function answer(result) {
  const why = result.hits.map((hit) => h("li", {},
    h("details", {}, h("summary", {}, h("strong", {}, hit.id), hit.confidence === null ? null : h("span", { class: "num" }, ` ${Math.round(hit.confidence * 100)} % sure`)),
      h("p", {}, "Score ", h("span", { class: "num" }, hit.score.toFixed(2)), ". Words in common, with how rare each is: ",
        hit.words.length ? hit.words.map((one) => `${one.word} (${one.rarity.toFixed(1)})`).join(", ") : "none", "."),
      hit.features ? h("table", {}, h("caption", { class: "sr" }, `What ranks ${hit.id}`),
        h("thead", {}, h("tr", {}, ["Feature", "Value", "Adds"].map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", {}, hit.features.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name), h("td", { class: "num" }, one.value.toFixed(2)), h("td", { class: "num" }, one.adds.toFixed(2))))))
        : h("p", {}, "Not among the best fifty, so not re-ranked."),
      h("p", {}, toolLink(hit.id)))));
  return h("div", { class: "two" },
    h("div", {}, h("h3", {}, "What the model reads"), long(result.text, { label: "What the model reads" })),
    h("div", {}, h("h3", {}, "Why"), why.length ? h("ol", { class: "why" }, why) : empty("Nothing was ranked.")));
}

async function all({ ask, query, server }) {
  const filter = h("input", { type: "search", id: "filter", placeholder: "part of a name", autocomplete: "off", value: query?.get("filter") ?? "" });
  const { node, fill } = table("Tools", [
    ["Tool", (tool) => toolLink(tool.id)],
    ["About", (tool) => [tool.flag ? [badge(tool.flag, "warn"), " "] : null, tool.about]],
    ["Effect", (tool) => (tool.readOnly ? badge("reads", "good") : tool.destructive ? badge("may delete", "warn") : "")],
  ]);
  const total = h("p", { class: "hint", role: "status" });
  const more = h("nav", { class: "pager", "aria-label": "Pages of tools" });
  let offset = 0;
  const turn = async () => {
    const page = await ask("tools", { filter: filter.value.trim(), offset, limit: PAGE, ...(server ? { server } : {}) });
    fill(page.tools, (tool) => tool.id);
    node.hidden = page.tools.length === 0;
    put(total, page.total === 0 ? (filter.value ? "No tool has that in its name." : server ? "No tool of it is known yet. It lists them when it is first needed; Restart starts it now."
        : "No tool is known yet. Servers list theirs when they are first needed: a search starts them.")
      : `${count(offset + 1)} to ${count(offset + page.tools.length)} of ${plural(page.total, "tool")}`);
    const step = (title, to, off) => h("button", { type: "button", disabled: off, on: { click: () => { offset = to; turn().catch(() => {}); } } }, title);
    put(more, page.total > PAGE ? [step("Previous", Math.max(0, offset - PAGE), offset === 0), step("Next", offset + PAGE, offset + PAGE >= page.total)] : null);
  };
  let typing;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { offset = 0; turn().catch(() => {}); }, 250);
  });
  await turn();
  return card(server ? "Tools" : "All tools", h("div", { class: "line" }, h("label", { for: "filter" }, "Filter"), filter), total, node, more);
}

/** The tools of one server, for its page. */
export const ofServer = (context, server) => all({ ask: context.ask, server });

export async function one({ content, ask, name }) {
  const tool = await ask("tool", { id: name });
  const { node, read } = form(tool.inputSchema ?? {}, "arg");
  const result = h("div", { "aria-live": "polite" });
  const run = h("button", { type: "submit", class: "main" }, "Run");
  let running = null;
  const stop = h("button", { type: "button", hidden: true, on: { click: () => running?.abort() } }, "Give up");
  const body = h("form", { on: { submit: async (event) => {
    event.preventDefault();
    let args;
    try {
      args = read();
    } catch (error) {
      return say(error.message, "bad");
    }
    running = new AbortController();
    stop.hidden = false;
    put(result, h("p", { class: "loading" }, "Running …"));
    await act(run, async () => {
      try {
        put(result, outcome(await request("run", { tool: tool.id, args }, { signal: running.signal })));
      } catch (error) {
        put(result, error.name === "AbortError" ? empty("The call was given up.") : told(error));
      }
    });
    stop.hidden = true;
    return undefined;
  } } }, node, h("p", { class: "line" }, run, stop));
  put(content,
    h("p", {}, h("a", { href: `#/server/${encodeURIComponent(tool.server)}` }, tool.server), " ",
      tool.flag ? badge(tool.flag, "warn") : null, tool.blocked ? badge("blocked until you accept its change", "bad") : null,
      tool.readOnly ? badge("reads", "good") : null, tool.destructive ? badge("may delete", "warn") : null),
    tool.description ? h("p", { class: "prose" }, tool.description) : empty("Its server says nothing about it."),
    card("Run it", h("p", { class: "hint" }, "The call takes the same path as a model's, and is recorded like one."), body, result),
    card("Definition", facts([["Signature", h("code", {}, tool.signature)], ["Title", tool.title]]),
      h("h3", {}, "Input schema"), tool.inputSchema ? long(tool.inputSchema, { label: "Input schema" }) : empty("It has none."),
      tool.outputSchema ? [h("h3", {}, "Output schema"), long(tool.outputSchema, { label: "Output schema" })] : null));
}

/** A result as a client sees it. */
function outcome({ result, tookMs }) {
  const parts = (result.content ?? []).map((one) => {
    if (one.type === "text") return long(one.text ?? "", { label: "Text of the result" });
    // Nothing of a server's is shown but as text: its pictures and links too.
    const data = one.data ?? one.resource?.blob ?? "";
    const about = [one.type, one.mimeType ?? one.resource?.mimeType, one.uri ?? one.resource?.uri, data ? `${bytes(Math.floor(data.length * 0.75))}` : null];
    return h("div", {}, h("p", {}, badge(about.filter(Boolean).join(", "))), one.resource?.text ? long(one.resource.text, { label: "Text of the resource" }) : null);
  });
  const node = h("div", {}, h("p", {}, result.isError ? badge("error", "bad") : badge("ok", "good"), " after ", micros(tookMs * 1_000)), parts);
  if (parts.length === 0) add(node, [empty("The result has no content.")]);
  if (result.structuredContent !== undefined) add(node, [h("details", {}, h("summary", {}, "Structured content"), long(result.structuredContent, { label: "Structured content" }))]);
  add(node, [h("details", {}, h("summary", {}, "The whole result as JSON"), long(result, { label: "The whole result" }))]);
  return node;
}
