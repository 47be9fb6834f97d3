// The fleet: its nodes as each says it of itself, and which of them owns which server.
import { told } from "./api.js";
import { age, badge, count, empty, h, put, table } from "./dom.js";

const STATES = { ready: ["ready", "good"], noBus: ["no bus", "bad"], bucketTooNew: ["waiting", "warn"], draining: ["draining", "warn"], drained: ["drained", "warn"], superseded: ["superseded", "bad"] };

export async function view({ content, ask, poll }) {
  const said = h("div", { role: "status" });
  const order = (words, name, params, done) =>
    h("button", { type: "button", on: { click: async (event) => {
      const button = event.currentTarget;
      // A drain cannot be taken back: the second click says so.
      if (button.dataset.sure !== "yes") {
        button.dataset.sure = "yes";
        button.textContent = `${words}: sure?`;
        return;
      }
      button.disabled = true;
      try {
        await ask(name, params);
        put(said, h("p", {}, done));
      } catch (error) {
        if (error?.name !== "AbortError") put(said, told(error));
      }
      button.disabled = false;
      button.dataset.sure = "";
      button.textContent = words;
    } } }, words);
  const nodes = table("Nodes", [
    ["Node", (one) => h("span", { class: "id" }, one.name)],
    ["State", (one) => badge(...(one.silent ? ["silent", "bad"] : STATES[one.readiness] ?? [one.readiness, "plain"]))],
    ["Version", (one) => one.version ?? ""],
    ["Up", (one) => (one.silent ? "" : age(one.upMs)), "num"],
    ["Servers", (one) => (one.silent ? "" : `${count(one.owned)} of ${count(one.capacity)}`), "num"],
    ["Calls for others", (one) => count(one.foreignCalls), "num"],
    ["Labels", (one) => Object.entries(one.labels ?? {}).map(([name, value]) => `${name}=${value}`).join(", ")],
    ["", (one) => (one.readiness === "ready" ? order("Drain", "fleet_drain", { node: one.name }, `${one.name} drains; it may be stopped once it says drained.`) : null)],
  ]);
  const owned = table("Servers", [
    ["Server", (one) => h("span", { class: "id" }, one.server)],
    ["Node", (one) => h("span", { class: "id" }, one.node)],
    ["Process", (one) => one.pid ?? "", "num"],
    ["Epoch", (one) => one.epoch],
    ["", (one) => order("Move", "fleet_move", { server: one.server }, `${one.server} leaves ${one.node} once its calls are finished; the next call starts it where it fits best.`)],
  ]);
  const none = h("div");
  const look = async () => {
    const fleet = await ask("fleet");
    const silent = fleet.silent.map((name) => ({ name, silent: true }));
    const all = [...fleet.nodes.map((one) => ({ ...one, upMs: Math.floor(one.upMs / 60_000) * 60_000 })), ...silent];
    nodes.fill(all, (one) => one.name);
    const instances = fleet.nodes.flatMap((node) => node.instances.map((one) => ({ ...one, node: node.name })));
    owned.fill(instances, (one) => `${one.node} ${one.epoch} ${one.server}`);
    owned.node.hidden = instances.length === 0;
    put(none, all.length ? null : empty("No node answers."));
  };
  await look();
  put(content, said, none, nodes.node, owned.node);
  poll(look, 3_000);
}
