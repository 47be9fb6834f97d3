// Records what real servers answer to `tools/list`, into <name>.json beside this file.
// Usage: node record.mjs FOLDER [NAME...]; the packages of servers.json are installed into FOLDER, without
// their install scripts. A server gets an empty home, a made-up key where it wants one, and half a minute.
import { spawn, execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [folder, ...names] = process.argv.slice(2);
if (!folder) throw new Error("usage: node record.mjs FOLDER [NAME...]");
const servers = JSON.parse(readFileSync(join(here, "servers.json"), "utf8"))
  .filter((server) => names.length === 0 || names.includes(server.name));

for (const server of servers) {
  try {
    const tools = await record(server);
    const { name, package: from, version, licence } = server;
    // Some servers name the folder they were started in.
    const home = join(resolve(folder, name), "home");
    const lines = tools.map((tool) => JSON.stringify(tool).replaceAll(home, "/home/user")).join(",\n");
    const head = JSON.stringify({ name, package: from, version, licence }).slice(0, -1);
    writeFileSync(join(here, `${name}.json`), `${head},"tools":[\n${lines}\n]}\n`);
    console.log(`${name}: ${tools.length} tools`);
  } catch (error) {
    console.log(`${server.name}: FAILED ${error.message.split("\n")[0]}`);
  }
}
process.exit(0);

async function record(server) {
  // A folder each: their dependencies contradict each other.
  const place = resolve(folder, server.name);
  const packageFolder = join(place, "node_modules", server.package);
  if (!existsSync(packageFolder)) {
    mkdirSync(join(place, "home"), { recursive: true });
    writeFileSync(join(place, "package.json"), "{}");
    execFileSync("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev",
      `${server.package}@${server.version}`], { cwd: place, stdio: "pipe" });
  }
  const manifest = JSON.parse(readFileSync(join(packageFolder, "package.json"), "utf8"));
  const bins = typeof manifest.bin === "string" ? [manifest.bin] : Object.values(manifest.bin ?? {});
  const entry = join(packageFolder, server.entry ?? bins[0] ?? manifest.main);
  const env = { PATH: process.env.PATH, HOME: join(place, "home"), ...server.env };
  const child = spawn(process.execPath, [entry, ...(server.args ?? [])],
    { cwd: join(place, "home"), env, stdio: ["pipe", "pipe", "pipe"] });
  let said = "";
  child.stderr.on("data", (data) => { said = (said + data).slice(-400); });
  const ended = new Promise((_, reject) => {
    child.on("exit", (code) => reject(new Error(`exit ${code}: ${said.trim().replaceAll("\n", " | ")}`)));
    child.on("error", reject);
    setTimeout(() => reject(new Error(`no answer: ${said.trim().replaceAll("\n", " | ")}`)), 30_000).unref();
  });
  ended.catch(() => {});
  const waiting = new Map();
  let buffer = "";
  child.stdout.on("data", (data) => {
    buffer += data;
    for (let at; (at = buffer.indexOf("\n")) >= 0; buffer = buffer.slice(at + 1)) {
      let message;
      try { message = JSON.parse(buffer.slice(0, at)); } catch { continue; }
      if (message.method === "roots/list") {
        child.stdin.write(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: { roots: [] } }) + "\n");
      } else if (message.method === undefined) {
        waiting.get(message.id)?.(message);
      }
    }
  });
  child.stdin.on("error", () => {});
  let last = 0;
  const ask = (method, params) => {
    const id = ++last;
    child.stdin.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
    const answer = new Promise((done) => waiting.set(id, done));
    return Promise.race([answer, ended]).then((message) => {
      if (message.error) throw new Error(`${method}: ${message.error.message}`);
      return message.result;
    });
  };
  try {
    await ask("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "record", version: "1" } });
    child.stdin.write(JSON.stringify({ jsonrpc: "2.0", method: "notifications/initialized" }) + "\n");
    const tools = [];
    let cursor;
    do {
      const page = await ask("tools/list", cursor ? { cursor } : {});
      tools.push(...page.tools);
      cursor = page.nextCursor;
    } while (cursor);
    if (tools.length === 0) throw new Error("it lists no tools");
    return tools.map(({ name, title, description, inputSchema, outputSchema, annotations }) =>
      ({ name, title, description, inputSchema, outputSchema, annotations }));
  } finally {
    child.kill();
  }
}
