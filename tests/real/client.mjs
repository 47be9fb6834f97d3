// A plain MCP client on the official TypeScript SDK, driven by a plan and judged by its reader.
//
//   node client.mjs PLAN.json > REPORT.json
//
// It knows nothing about metamcp: the same plan runs against a server directly or through the gateway.
// The plan says what to start, which SDK and era to use, how to answer what the server asks, and the steps.
// The report holds, per step, what the SDK made of it and every line as it came off the wire.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));
// The packages live in the build folder, not beside this file.
const need = createRequire(join(plan.installed, "package.json"));

const sdks = {
  v1: () => {
    const types = need("@modelcontextprotocol/sdk/types.js");
    const requests = {
      "elicitation/create": types.ElicitRequestSchema,
      "sampling/createMessage": types.CreateMessageRequestSchema,
      "roots/list": types.ListRootsRequestSchema,
    };
    return {
      Client: need("@modelcontextprotocol/sdk/client/index.js").Client,
      Transport: need("@modelcontextprotocol/sdk/client/stdio.js").StdioClientTransport,
      Http: need("@modelcontextprotocol/sdk/client/streamableHttp.js").StreamableHTTPClientTransport,
      Sse: need("@modelcontextprotocol/sdk/client/sse.js").SSEClientTransport,
      options: {},
      answer: (client, method, answer) => client.setRequestHandler(requests[method], answer),
      call: (client, params, options) => client.callTool(params, undefined, options),
    };
  },
  v2: () => ({
    Client: need("@modelcontextprotocol/client").Client,
    Transport: need("@modelcontextprotocol/client/stdio").StdioClientTransport,
    Http: need("@modelcontextprotocol/client").StreamableHTTPClientTransport,
    Sse: need("@modelcontextprotocol/client").SSEClientTransport,
    options: { versionNegotiation: { mode: plan.era ?? "legacy" } },
    answer: (client, method, answer) => client.setRequestHandler(method, answer),
    call: (client, params, options) => client.callTool(params, options),
  }),
};

// How long a step with `until` is repeated, and how long it rests between.
const UNTIL_MS = 60_000;
const PAUSE_MS = 200;

const sdk = sdks[plan.sdk]();
const report = { sdk: plan.sdk, steps: [], asked: [] };
let lines = [];

/** The SDK's own transport, with an ear on the bytes before the SDK parses them. */
class Overheard extends sdk.Transport {
  async start() {
    await super.start();
    let rest = Buffer.alloc(0);
    this._process.stdout.on("data", (chunk) => {
      rest = Buffer.concat([rest, chunk]);
      for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
        lines.push(rest.subarray(0, end).toString("utf8"));
      }
    });
  }
}

const answers = plan.answers ?? {};
const capabilities = {};
if (answers["elicitation/create"]) capabilities.elicitation = {};
if (answers["sampling/createMessage"]) capabilities.sampling = {};
if (answers["roots/list"]) capabilities.roots = {};

const client = new sdk.Client({ name: "real-client", version: "1.0.0" }, { ...sdk.options, capabilities });
for (const [method, answer] of Object.entries(answers)) {
  sdk.answer(client, method, async (request) => {
    report.asked.push({ method, params: request.params ?? null });
    return answer;
  });
}

const { command, args, env, cwd, url, over, headers } = plan.server;
const transport = url ? remote() : new Overheard({ command, args, env, cwd, stderr: "inherit" });

/** A server that runs already. Its messages are overheard as the SDK hands them over. */
function remote() {
  const Remote = over === "sse" ? sdk.Sse : sdk.Http;
  return new Remote(new URL(url), { requestInit: { headers } });
}

async function perform(step) {
  if (step.do === "list") return client.listTools();
  if (step.do === "call") {
    const options = { timeout: step.timeoutMs ?? 60_000 };
    const progress = [];
    if (step.progress) options.onprogress = (update) => progress.push(update);
    const params = { name: step.tool, arguments: step.arguments ?? {} };
    if (step.cancelAfterProgress) {
      const stop = new AbortController();
      options.signal = stop.signal;
      options.onprogress = (update) => {
        progress.push(update);
        if (progress.length === step.cancelAfterProgress) stop.abort("the plan says so");
      };
    }
    const started = performance.now();
    try {
      for (;;) {
        const value = await sdk.call(client, params, options);
        // A gateway may still be starting servers; the plan says what it waits for.
        const enough = JSON.stringify(value).includes(step.until ?? "");
        if (enough || performance.now() - started > UNTIL_MS) return value;
        lines.length = 0;
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    } finally {
      report.steps.at(-1).progress = progress;
    }
  }
  if (step.do === "many") {
    const all = step.calls.map(({ tool, arguments: given }) =>
      sdk.call(client, { name: tool, arguments: given }, { timeout: 60_000 }),
    );
    return Promise.all(all);
  }
  throw new Error(`the plan has an unknown step: ${step.do}`);
}

await client.connect(transport);
if (url) {
  const take = transport.onmessage;
  transport.onmessage = (message, ...rest) => {
    lines.push(JSON.stringify(message));
    return take(message, ...rest);
  };
}
report.server = client.getServerVersion() ?? null;
report.instructions = client.getInstructions() ?? null;
report.capabilities = client.getServerCapabilities() ?? null;
report.handshake = lines;
for (const step of plan.steps) {
  lines = [];
  const told = { name: step.name };
  report.steps.push(told);
  try {
    told.value = await perform(step);
  } catch (error) {
    told.error = { code: error.code ?? null, message: String(error.message ?? error) };
  }
  told.lines = lines;
}
await client.close();
process.stdout.write(JSON.stringify(report) + "\n");
