// A remote MCP server that wants a login, and the authorization server that gives it: both made with public packages,
// `oidc-provider` and the official SDK, as strict as they come.
//
//   node oauth.mjs serve NPM_FOLDER PORT      the server at /mcp of PORT, the authorization server at the port after it
//   node oauth.mjs visit ADDRESS              what a browser does there, with cookies; prints the last status
//
// GET /grants tells how often tokens were given for what; POST /retire ends every access token there is.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const [mode, ...rest] = process.argv.slice(2);
if (mode === "visit") await visit(rest[0]);
else await serve(rest[0], Number(rest[1]));

/** Follows redirects and keeps cookies, for each host its own. */
async function visit(address) {
  const jar = new Map();
  for (let hop = 0; hop < 10; hop++) {
    const { host } = new URL(address);
    const cookies = jar.get(host) ?? new Map();
    jar.set(host, cookies);
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(address, { redirect: "manual", headers: { cookie } });
    for (const line of response.headers.getSetCookie()) {
      const [name, value] = line.split(";")[0].split(/=(.*)/s);
      if (value) cookies.set(name, value);
      else cookies.delete(name);
    }
    const next = response.headers.get("location");
    if (!next) return console.log(response.status);
    address = new URL(next, address).href;
  }
  throw new Error("redirected for ever");
}

async function serve(folder, port) {
  const need = createRequire(join(folder, "package.json"));
  const { Provider } = await import(need.resolve("oidc-provider"));
  const express = need("express");
  const { McpServer } = need("@modelcontextprotocol/sdk/server/mcp.js");
  const { StreamableHTTPServerTransport } = need("@modelcontextprotocol/sdk/server/streamableHttp.js");
  const { requireBearerAuth } = need("@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js");
  const { InvalidTokenError } = need("@modelcontextprotocol/sdk/server/auth/errors.js");

  const issuer = `http://127.0.0.1:${port + 1}`;
  const resource = `http://127.0.0.1:${port}/mcp`;
  const grants = {};
  const retired = new Set();
  const shown = new Set();

  const provider = new Provider(issuer, {
    scopes: ["openid", "offline_access"],
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, asked) => {
          if (asked !== resource) throw new Error("another resource");
          return { scope: "mcp:use", audience: resource, accessTokenTTL: 3600, accessTokenFormat: "opaque" };
        },
        useGrantedResource: () => true,
      },
    },
    // A client that needs no person.
    clients: [{ client_id: "machine", client_secret: "machine-s3cret", grant_types: ["client_credentials"], redirect_uris: [], response_types: [], token_endpoint_auth_method: "client_secret_basic" }],
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    interactions: { url: (_, { uid }) => `/agree/${uid}` },
    rotateRefreshToken: true,
    ttl: { AccessToken: 3600, AuthorizationCode: 60, Grant: 3600, Interaction: 600, RefreshToken: 3600, Session: 3600 },
    cookies: { keys: ["only for tests"] },
    pkce: { required: () => true },
  });
  provider.on("grant.success", ({ oidc }) => {
    const kind = oidc.params.grant_type;
    grants[kind] = (grants[kind] ?? 0) + 1;
  });
  const complain = (_, error) => console.error(error.message, error.error_description ?? error.stack);
  for (const event of ["authorization.error", "grant.error", "registration_create.error", "server_error"]) provider.on(event, complain);

  /** The person is Ada, and she agrees to everything. */
  async function agree(request, response) {
    const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
    if (prompt.name === "login") {
      return provider.interactionFinished(request, response, { login: { accountId: "ada" } });
    }
    const known = grantId ? await provider.Grant.find(grantId) : undefined;
    const grant = known ?? new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    grant.addOIDCScope("openid offline_access");
    grant.addResourceScope(resource, "mcp:use");
    const consent = { grantId: await grant.save() };
    return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
  }
  const answer = provider.callback();
  createServer((request, response) => {
    if (!request.url.startsWith("/agree/")) return answer(request, response);
    agree(request, response).catch((error) => {
      console.error(error);
      response.writeHead(500).end();
    });
  }).listen(port + 1, "127.0.0.1");

  const verifier = {
    async verifyAccessToken(value) {
      const token = retired.has(value) ? undefined : (await provider.AccessToken.find(value)) ?? (await provider.ClientCredentials.find(value));
      if (!token || token.isExpired || token.aud !== resource) throw new InvalidTokenError("not a token for this server");
      shown.add(value);
      return { token: value, clientId: token.clientId, scopes: [...token.scopes], expiresAt: token.exp };
    },
  };
  const application = express();
  const about = `http://127.0.0.1:${port}/.well-known/oauth-protected-resource/mcp`;
  application.get("/.well-known/oauth-protected-resource/mcp", (_, response) =>
    response.json({ resource, authorization_servers: [issuer], scopes_supported: ["mcp:use", "mcp:more"] }),
  );
  application.get("/grants", (_, response) => response.json(grants));
  application.post("/retire", (_, response) => {
    shown.forEach((token) => retired.add(token));
    response.end();
  });
  application.use("/mcp", requireBearerAuth({ verifier, requiredScopes: ["mcp:use"], resourceMetadataUrl: about }));
  application.post("/mcp", express.json(), async (request, response) => {
    const server = new McpServer({ name: "behind a login", version: "1.0.0" });
    server.registerTool("whoami", {}, (extra) => ({ content: [{ type: "text", text: extra.authInfo.scopes.join(" ") }] }));
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on("close", () => server.close());
    await server.connect(transport);
    await transport.handleRequest(request, response, request.body);
  });
  application.listen(port, "127.0.0.1");
}
