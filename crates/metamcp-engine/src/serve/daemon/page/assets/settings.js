// Settings: each value in force and where it comes from; problems of the configuration first.
import { badge, card, empty, facts, h, put, table } from "./dom.js";

export async function view({ content, ask }) {
  const told = await ask("settings");
  const filter = h("input", { type: "search", id: "setting", placeholder: "part of a name or of an origin", autocomplete: "off" });
  const only = h("input", { type: "checkbox", id: "changed" });
  const { node, fill } = table("Settings", [
    ["Setting", (one) => h("code", {}, one.key ?? `--${one.flag}`)],
    ["Value", (one) => (one.value === "" || one.value === null ? h("span", { class: "hint" }, "empty") : h("code", {}, String(one.value)))],
    ["From", (one) => (one.origin === "default" ? h("span", { class: "hint" }, "default") : badge(one.origin, "good"))],
    ["Variable", (one) => h("code", {}, one.env ?? "")],
  ]);
  const none = h("p", { role: "status", class: "hint" });
  const draw = () => {
    const words = filter.value.trim().toLowerCase();
    const fits = (one) => `${one.key} ${one.flag} ${one.origin}`.toLowerCase().includes(words) && (!only.checked || one.origin !== "default");
    const rows = told.settings.filter(fits);
    fill(rows, (one) => one.flag);
    node.hidden = rows.length === 0;
    put(none, rows.length ? "" : "No setting fits.");
  };
  filter.addEventListener("input", draw);
  only.addEventListener("change", draw);
  draw();
  const problem = (one, tone) => h("li", {}, badge(tone === "bad" ? "error" : one.severity ?? "warning", tone), " ", one.message,
    one.file ? h("span", { class: "hint" }, ` ${one.file}${one.line ? `:${one.line}` : ""}`) : null, one.hint ? h("p", { class: "hint" }, one.hint) : null);
  const problems = [...(told.errors ?? []).map((one) => problem(one, "bad")), ...(told.warnings ?? []).map((one) => problem(one, one.severity === "note" ? "plain" : "warn"))];
  put(content,
    card("Where from", facts([
      ["Config file", told.source?.path ? h("code", {}, told.source.path) : "none"],
      ["Project file", told.project ? [h("code", {}, told.project.path), " ", told.project.used ? badge("in use", "good") : h("a", { href: "#/approvals" }, "not approved")] : null],
      ["Folder", h("code", {}, told.folder)], ["Home of metamcp", h("code", {}, told.home)],
    ])),
    card("Problems", problems.length ? h("ul", { class: "plainlist" }, problems) : empty("None: the configuration is as it should be.")),
    card("Values", h("div", { class: "line" }, h("label", { for: "setting" }, "Filter"), filter, only, h("label", { for: "changed" }, "Only those that somebody set")), none, node));
}
