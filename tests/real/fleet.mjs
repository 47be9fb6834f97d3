// A client on the official TypeScript SDK that calls through a balancer without a pause, and says what it was told.
//
//   node fleet.mjs PLAN.json < (ends when this does) > one line of JSON for each call
//
// Its answers are judged by who reads them. When its input ends it calls every server until that answers, and says so.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));
const need = createRequire(join(plan.installed, "package.json"));
const v1 = plan.sdk === "v1";
const { Client } = need(v1 ? "@modelcontextprotocol/sdk/client/index.js" : "@modelcontextprotocol/client");
const { StreamableHTTPClientTransport } = v1
  ? need("@modelcontextprotocol/sdk/client/streamableHttp.js")
  : need("@modelcontextprotocol/client");

// Longer than a call may take in a fleet that has just lost its bus.
const PATIENCE_MS = 90_000;
const LANES = 2;
const PAUSE_MS = 50;

let isOver = false;
process.stdin.resume();
process.stdin.on("end", () => (isOver = true));
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let random = plan.seed;
const below = (end) => ((random = (random * 1103515245 + 12345) & 0x7fffffff) >> 8) % end;

async function connected() {
  for (let tries = 0; ; tries += 1) {
    const client = new Client({ name: plan.name, version: "1.0.0" }, {});
    const transport = new StreamableHTTPClientTransport(new URL(plan.url), {
      requestInit: { headers: { Authorization: `Bearer ${plan.token}` } },
      // One stream for what comes by itself is not what this is about.
      reconnectionOptions: { initialReconnectionDelay: 100, maxReconnectionDelay: 500, reconnectionDelayGrowFactor: 1.5, maxRetries: 100 },
    });
    try {
      await client.connect(transport, { timeout: PATIENCE_MS });
      return client;
    } catch (error) {
      if (tries > 600) throw error;
      await pause(100);
    }
  }
}

/** What the SDK made of the end of a call: a result, an error of the protocol, or that it was not answered. */
async function told(client, name, args) {
  const options = { timeout: PATIENCE_MS };
  try {
    const params = { name, arguments: args };
    return { result: v1 ? await client.callTool(params, undefined, options) : await client.callTool(params, options) };
  } catch (error) {
    const isOfServer = typeof error.code === "number" && error.code < 0 && error.code !== -32000 && error.code !== -32001;
    if (isOfServer) return { error: { code: error.code, message: error.message } };
    const isTimeout = error.code === -32001 || /timed?.?out/i.test(`${error.code} ${error.message}`);
    return { [isTimeout ? "hung" : "broke"]: `${error.code} ${error.message} ${error.cause ?? ""}`.slice(0, 300) };
  }
}

async function lane(number) {
  let client = await connected();
  const call = async (server, tool, key) => {
    const args = tool === "echo" ? { text: key } : tool === "slow" ? { key, ms: below(120) } : { key };
    const began = Date.now();
    const answer = await told(client, `${server}__${tool}`, args);
    say({ key, server, tool, ms: Date.now() - began, ...answer });
    // A session that is not known any more, or a gateway that is gone: like any program, it connects again.
    if (answer.broke) {
      await client.close().catch(() => {});
      client = await connected();
    }
    return answer.result !== undefined && answer.result.isError !== true;
  };
  for (let count = 0; !isOver; count += 1) {
    const server = plan.servers[below(plan.servers.length)];
    const tool = ["effect", "effect", "echo", "slow"][below(4)];
    await call(server, tool, `${plan.name}.${number}-${count}`);
  }
  for (const server of plan.servers) {
    for (let tries = 0; !(await call(server, "echo", `${plan.name}.${number}-${server}-last-${tries}`)); tries += 1) {
      await pause(PAUSE_MS);
    }
    say({ reached: server });
  }
}

await Promise.all(Array.from({ length: LANES }, (_, number) => lane(number)));
say({ done: true });
process.exit(0);
