// metamcp as the client that the official conformance suite looks at: starts it in front of the scenario's server and
// does what the scenario is about, as a program and the person at it would.
//
//   conformance client --command "node conformance-client.mjs METAMCP" --suite all
//
// The suite appends the address of its server and says in the environment which scenario it is. Everything that reaches
// that server comes from metamcp; this file only asks metamcp, in direct mode, and opens the addresses it is told to.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [metamcp, address] = process.argv.slice(2);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? "";
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");

// The document that describes a client in this suite; only its address matters, nobody fetches it.
const CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json";
// Servers of these scenarios have no `server/discover` although their revision wants it. The official SDK's own client
// answers it in the server's place too; otherwise both fall back to a handshake that this revision does not have.
const WITHOUT_DISCOVER = ["http-standard-headers", "http-custom-headers", "http-invalid-tool-headers", "sep-2322-client-request-state"];
// How often a person logs in before they give up: an honest server wants at most two visits.
const VISITS = 3;

const log = (...words) => console.error(...words);

/** Answers `server/discover` and passes everything else on as it is. */
async function withDiscover(target) {
  const { hostname, port, pathname } = new URL(target);
  const server = createServer((incoming, outgoing) => {
    const parts = [];
    incoming.on("data", (part) => parts.push(part));
    incoming.on("end", () => {
      const body = Buffer.concat(parts);
      if (incoming.headers["mcp-method"] === "server/discover") {
        const capabilities = { tools: { listChanged: true }, resources: {}, prompts: {} };
        const serverInfo = { name: "conformance", version: "1" };
        const _meta = { "io.modelcontextprotocol/serverInfo": serverInfo };
        const result = { resultType: "complete", supportedVersions: ["2026-07-28"], capabilities, ttlMs: 0, cacheScope: "private", _meta };
        outgoing.setHeader("content-type", "application/json");
        return outgoing.end(JSON.stringify({ jsonrpc: "2.0", id: JSON.parse(body).id, result }));
      }
      const { method, url, headers } = incoming;
      const onward = httpRequest({ hostname, port, path: url, method, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode, answer.headers);
        answer.pipe(outgoing);
      });
      onward.on("error", () => outgoing.destroy());
      outgoing.on("close", () => onward.destroy());
      onward.end(body);
    });
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  server.unref();
  return `http://127.0.0.1:${server.address().port}${pathname}`;
}

function loginWishes() {
  if (!context.client_id) return { clientMetadataUrl: CLIENT_DOCUMENT };
  const wishes = { clientId: context.client_id };
  if (context.client_secret) wishes.clientSecret = context.client_secret;
  if (context.private_key_pem) {
    const file = join(folder, "client.pem");
    writeFileSync(file, context.private_key_pem);
    wishes.privateKey = file;
  }
  if (context.idp_id_token) {
    const { idp_token_endpoint: tokenUrl, idp_client_id: clientId, idp_id_token: idToken } = context;
    wishes.identityProvider = { tokenUrl, clientId, idToken };
  }
  if (scenario.includes("client-credentials")) wishes.grant = "client_credentials";
  return wishes;
}

// Below the home of whoever runs the suite, which is a place of its own for each run.
const folder = mkdtempSync(join(homedir(), "conformance-"));
const url = WITHOUT_DISCOVER.includes(scenario) ? await withDiscover(address) : address;
const config = join(folder, "mcp.json");
writeFileSync(config, JSON.stringify({ mcpServers: { far: { url, oauth: loginWishes() } } }));

const gateway = spawn(metamcp, ["--config", config, "--surface", "direct", "--log-level", "debug"], {
  env: { ...process.env, METAMCP_HOME: join(folder, "home") },
  stdio: ["pipe", "pipe", "inherit"],
});
const ended = new Promise((done) => gateway.on("exit", done));
const waiting = new Map();
let last = 0;
const send = (message) => gateway.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

createInterface({ input: gateway.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method && message.id !== undefined) return send({ id: message.id, result: answerTo(message) });
  waiting.get(message.id)?.(message);
});

/** What the person answers: yes, and the defaults of a form. */
function answerTo({ method, params }) {
  if (method === "elicitation/create") {
    const content = {};
    for (const [name, field] of Object.entries(params.requestedSchema?.properties ?? {})) {
      if ("default" in field) content[name] = field.default;
      else if (field.type === "boolean") content[name] = true;
    }
    return { action: "accept", content };
  }
  return method === "roots/list" ? { roots: [] } : {};
}

function once(method, params) {
  const id = ++last;
  const answer = new Promise((done) => waiting.set(id, done));
  send({ id, method, params });
  return answer;
}

/** A request; where a login is wanted, the person pays that visit and it is made again. */
async function ask(method, params = {}) {
  for (let visits = 0; ; visits++) {
    const answer = await once(method, params);
    log(method, JSON.stringify(answer).slice(0, 500));
    const place = placeToVisit(answer);
    if (!place || visits === VISITS) return answer.result;
    await visit(place);
  }
}

/** Where a person has to log in: a tool's error says it in its details, every other error in words. */
function placeToVisit({ result, error }) {
  if (error) return /Open (\S+) in a browser/.exec(error.message)?.[1];
  return result.isError ? result.structuredContent?.details?.url : undefined;
}

/** What a browser does: goes there, and wherever it is sent. */
async function visit(place) {
  const response = await fetch(place);
  log("visited", response.status, place.slice(0, 100));
}

/** Arguments that a schema takes, with whatever it wants in headers. */
function made(schema) {
  const values = { string: "x", integer: 1, number: 1.5, boolean: true, object: {}, array: [] };
  const wanted = ([name, field]) => schema.required?.includes(name) || "x-mcp-header" in field;
  const fields = Object.entries(schema.properties ?? {}).filter(wanted);
  return Object.fromEntries(fields.map(([name, field]) => [name, values[field.type] ?? {}]));
}

await once("initialize", {
  protocolVersion: "2025-11-25",
  capabilities: { elicitation: {}, sampling: {}, roots: {} },
  clientInfo: { name: "conformance-client", version: "1" },
});
send({ method: "notifications/initialized" });

const tools = (await ask("tools/list"))?.tools ?? [];
if (context.toolCalls) {
  for (const { name, arguments: args } of context.toolCalls) await ask("tools/call", { name, arguments: args });
} else {
  for (const { name, inputSchema } of tools) {
    const args = name === "add_numbers" ? { a: 5, b: 3 } : made(inputSchema);
    if (name === "json_schema_echo") {
      args.schema = tools.find((tool) => tool.name === "json_schema_2020_12_tool")?.inputSchema;
    }
    await ask("tools/call", { name, arguments: args });
  }
}
if (scenario === "http-standard-headers") {
  for (const { uri } of (await ask("resources/list"))?.resources ?? []) await ask("resources/read", { uri });
  for (const { name } of (await ask("prompts/list"))?.prompts ?? []) await ask("prompts/get", { name });
}

gateway.stdin.end();
await ended;
rmSync(folder, { recursive: true, force: true });
process.exit(0);
