// Approvals: what waits for a person. What is approved is named by the hash of what is shown here.
import { act, ask as request } from "./api.js";
import { badge, card, empty, h, put, time } from "./dom.js";

export async function view({ content, ask, poll }) {
  let print = "";
  const look = async () => {
    const told = await ask("approvals");
    const next = JSON.stringify(told);
    // What somebody is reading or filling in is not replaced by the same.
    if (next === print) return;
    print = next;
    draw(told);
  };
  const decided = (button, name, params, done) => act(button, async () => {
    const result = await request(name, params);
    print = "";
    await look();
    return result;
  }, done);
  const draw = ({ mayApprove, plans, projects, changes, calls, granted, grantedError }) => {
    const limited = mayApprove ? null : h("div", { class: "note" }, h("strong", {}, "This page can only look and decline."),
      " It was opened by a program. Run ", h("code", {}, "metamcp ui"), " in a terminal to approve.");
    put(content, limited,
      card("Servers that a model asked for", plans.length ? plans.map((one) => plan(one, mayApprove, decided))
        : empty("No installation waits for you. When a model asks for a server that you do not have, its plan is shown here and in the terminal with metamcp approve.")),
      card("Project files", projects.length ? projects.map((one) => project(one, mayApprove, decided))
        : empty("No project file waits for you. The .mcp.json of a folder is used only after you approved it.")),
      card("Changed servers", changes.length ? changes.map((one) => change(one, mayApprove, decided))
        : empty("No installed server changed its tools, and none was withdrawn.")),
      card("Calls", calls.length ? calls.map((one) => call(one, mayApprove, decided))
        : empty("No call waits for you. Which calls need your approval is said by approve in the configuration.")),
      card("Approvals of calls that count", grantedError ? h("p", { class: "failed" }, grantedError) : null,
        granted.length ? granted.map((one) => answer(one, decided)) : empty("None is stored.")));
  };
  await look();
  poll(look, 3_000);
}

let fields = 0;
function plan(one, mayApprove, decided) {
  const inputs = [...one.asked.map((input) => ({ ...input, required: true })), ...one.environment].map((input) => {
    const id = `v${(fields += 1)}`;
    const field = h("input", { id, type: input.secret ? "password" : "text", autocomplete: "off", spellcheck: "false", required: input.required && input.default === null, placeholder: input.default ?? "", "aria-describedby": `${id}h` });
    return { input, field, node: h("div", { class: "field" }, h("label", { for: id }, h("code", {}, input.name), input.required ? h("span", { class: "req" }, " required") : null), field, h("p", { class: "hint", id: `${id}h` }, input.description)) };
  });
  const install = h("button", { type: "submit", class: "main", disabled: !mayApprove || one.refused }, "Install exactly this");
  const deny = h("button", { type: "button", on: { click: () => decided(deny, "deny", { digest: one.digest }, `The plan for ${one.server} was dropped.`) } }, "Decline");
  return h("article", { class: "ask", "aria-label": `Install ${one.server}` },
    h("h3", {}, one.server, " ", one.refused ? badge("refused by the rules", "bad") : badge("waits for you", "warn"), " ", h("span", { class: "hint" }, "since ", time(one.since))),
    h("p", {}, one.description), h("p", {}, "Runs in ", one.contained, "."),
    h("pre", { tabindex: 0, role: "region", "aria-label": `The plan for ${one.server}` }, one.told),
    h("form", { on: { submit: (event) => {
      event.preventDefault();
      const values = {};
      for (const { input, field } of inputs) if (field.value !== "") Object.defineProperty(values, input.name, { value: field.value, enumerable: true });
      decided(install, "approve", { digest: one.digest, values }, `${one.server} is installed.`);
    } } }, inputs.map((input) => input.node), h("p", { class: "line" }, install, deny)));
}

function project(one, mayApprove, decided) {
  const decide = (button, approve, words) => decided(button, "trust", { file: one.file, sha256: one.sha256, approve }, words);
  const trust = h("button", { type: "button", class: "main", disabled: !mayApprove, on: { click: () => decide(trust, true, "The file is approved; gateways in its folder use it from now on.") } }, "Trust exactly this");
  const decline = h("button", { type: "button", on: { click: () => decide(decline, false, "The file was declined.") } }, "Decline");
  const state = { waiting: badge("waits for you", "warn"), changed: badge("changed since you approved it", "warn"), declined: badge("declined") }[one.state];
  return h("article", { class: "ask", "aria-label": `Project file ${one.file}` },
    h("h3", {}, h("code", {}, one.file), " ", state), one.link ? h("p", {}, "is a link to ", h("code", {}, one.link)) : null,
    h("pre", { tabindex: 0, role: "region", "aria-label": `What ${one.file} would do` }, one.told),
    one.cut ? h("p", { class: "failed" }, "Some of it is too long to be shown; read the file first.") : null,
    h("p", { class: "hint id" }, `sha256 ${one.sha256}`),
    h("p", { class: "line" }, trust, one.state === "declined" ? null : decline));
}

function call(one, mayApprove, decided) {
  const id = `v${(fields += 1)}`;
  const span = h("select", { id }, h("option", { value: "once" }, "this call, once"),
    h("option", { value: "hour" }, "these arguments, for an hour"), h("option", { value: "always" }, "these arguments, always"),
    h("option", { value: "hour*" }, "any arguments, for an hour"), h("option", { value: "always*" }, "any arguments, always"));
  const approve = h("button", { type: "button", class: "main", disabled: !mayApprove, on: { click: () => decided(approve, "answer_call",
    { id: one.id, approve: true, for: span.value.replace("*", ""), anyArguments: span.value.endsWith("*") }, `The call of ${one.tool} may run; if nobody waits for it any more, it has to be made again.`) } }, "Allow exactly this");
  const decline = h("button", { type: "button", on: { click: () => decided(decline, "answer_call", { id: one.id, approve: false }, `The call of ${one.tool} was declined.`) } }, "Decline");
  return h("article", { class: "ask", "aria-label": `Call of ${one.tool}` },
    h("h3", {}, one.server, " ", h("code", {}, one.tool), " ", badge("waits for you", "warn"), " ", h("span", { class: "hint" }, "since ", time(one.since))),
    h("pre", { tabindex: 0, role: "region", "aria-label": `What the call of ${one.tool} would send` }, one.told),
    h("p", { class: "line" }, h("label", { for: id }, "Allow "), span, approve, decline));
}

function answer(one, decided) {
  const revoke = h("button", { type: "button", on: { click: () => decided(revoke, "revoke", { id: one.id }, `The approval for ${one.tool} no longer counts.`) } }, "Revoke");
  return h("p", { class: "line" }, badge(one.approved ? "allowed" : "refused", one.approved ? "good" : "warn"), " ", h("code", {}, `${one.server}:${one.tool}`), " ",
    one.anyArguments ? "with any arguments" : h("code", {}, one.about), one.once ? ", once" : null, one.until ? [", until ", time(one.until)] : ", always", " ", revoke);
}

function change(one, mayApprove, decided) {
  const accept = h("button", { type: "button", class: "main", disabled: !mayApprove, on: { click: () => decided(accept, "accept", { digest: one.digest }, `${one.server} is accepted as shown.`) } }, "Accept exactly this");
  return h("article", { class: "ask", "aria-label": `Changes of ${one.server}` }, h("h3", {}, one.server, " ", badge(one.withheld ? "withheld" : "tools changed", "warn")),
    one.withheld ? h("p", {}, one.withheld) : null,
    h("ul", { class: "plainlist" }, one.tools.map((tool) => h("li", {}, badge(tool.isNew ? "new" : "changed", "warn"), " ", h("code", {}, tool.signature), h("p", {}, tool.description)))),
    h("p", { class: "line" }, accept));
}
