// Sessions: who is connected, and which servers they use.
import { age, badge, count, empty, h, put, table } from "./dom.js";

export async function view({ content, ask, poll }) {
  const { node, fill } = table("Sessions", [
    ["Session", (one) => String(one.id)],
    ["Client", (one) => one.client || one.kind],
    ["By", (one) => badge(one.kind)],
    ["Folder", (one) => h("span", { class: "id" }, one.folder)],
    ["Since", (one) => age(one.ageMs), "num"],
    ["Calls", (one) => count(one.calls), "num"],
    ["Open", (one) => count(one.inFlight), "num"],
    ["Servers", (one) => (one.servers ?? []).map((name, at) => [at ? ", " : "", h("a", { href: `#/server/${encodeURIComponent(name)}` }, name)])],
  ]);
  const none = h("div");
  const look = async () => {
    const { status } = await ask("overview", { seconds: 1 });
    const uses = (id) => status.servers.filter((server) => server.instances.some((one) => one.sessions.includes(id))).map((server) => server.name);
    const sessions = status.sessions.map((one) => ({ ...one, ageMs: Math.floor(one.ageMs / 1_000) * 1_000, servers: uses(one.id) }));
    fill(sessions, (one) => one.id);
    node.hidden = sessions.length === 0;
    put(none, sessions.length ? null : empty("No client is connected. Put metamcp into a client:", h("pre", {}, "metamcp init")));
  };
  await look();
  put(content, none, node);
  poll(look, 2_000);
}
