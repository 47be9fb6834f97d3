// One tool on any version of the TypeScript SDK, over stdio.
//
// usage: server.mjs INSTALLED ALIAS
//
// INSTALLED is the folder that npm filled, ALIAS the name under which the version lies there.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [installed, alias] = process.argv.slice(2);
const resolve = createRequire(`${installed}/package.json`).resolve;
const load = (name) => import(pathToFileURL(resolve(`${alias}${name}`)).href);
const inputSchema = { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] };
const list = async () => ({ tools: [{ name: 'echo', description: 'Says it again.', inputSchema }] });
const call = async ({ params }) => ({ content: [{ type: 'text', text: params.arguments.message }] });
const who = { name: 'typescript', version: '1.0.0' };

if (alias.startsWith('sdk-1.')) {
    const { Server } = await load('/server/index.js');
    const { StdioServerTransport } = await load('/server/stdio.js');
    const { ListToolsRequestSchema, CallToolRequestSchema } = await load('/types.js');
    const server = new Server(who, { capabilities: { tools: {} } });
    server.setRequestHandler(ListToolsRequestSchema, list);
    server.setRequestHandler(CallToolRequestSchema, call);
    await server.connect(new StdioServerTransport());
} else {
    const { Server } = await load('');
    const { serveStdio } = await load('/stdio');
    const build = () => {
        const server = new Server(who, { capabilities: { tools: {} } });
        server.setRequestHandler('tools/list', list);
        server.setRequestHandler('tools/call', call);
        return server;
    };
    serveStdio(build);
}
