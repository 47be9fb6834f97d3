// The server behind the gateway when the official conformance suite looks at it: it has the tools, resources and prompts
// that the suite asks for by name, and leaves everything else to the official SDK.
//
// usage: conformance.mjs INSTALLED [legacy]
//
// INSTALLED is the folder that npm filled. With `legacy` the server knows only revisions with `initialize`.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [installed, era] = process.argv.slice(2);
const resolve = createRequire(`${installed}/package.json`).resolve;
const load = (name) => import(pathToFileURL(resolve(name)).href);
const sdk = await load('@modelcontextprotocol/server');
const { StdioServerTransport, serveStdio } = await load('@modelcontextprotocol/server/stdio');
const { McpServer, ResourceTemplate, acceptedContent, createRequestStateCodec, fromJsonSchema, inputRequired } = sdk;

const PIXEL =
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const SILENCE = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const text = (words) => ({ type: 'text', text: words });
const says = (...content) => ({ content });
const user = (content) => ({ role: 'user', content });
const object = (properties = {}, more = {}) => ({ type: 'object', properties, ...more });
const words = { type: 'string' };
const form = (message, properties, required = Object.keys(properties)) => ({
    message,
    requestedSchema: object(properties, { required })
});
const thought = (prompt, maxTokens) => ({ messages: [user(text(prompt))], maxTokens });

const states = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

function build() {
    const server = new McpServer(
        { name: 'conformance-child', version: '1.0.0' },
        {
            capabilities: {
                tools: { listChanged: true },
                resources: { subscribe: true, listChanged: true },
                prompts: { listChanged: true },
                logging: {},
                completions: {}
            },
            instructions: 'Everything here is for tests.',
            requestState: { verify: states.verify }
        }
    );
    const tool = (name, run, schema = object()) =>
        server.registerTool(name, { description: `Does ${name}.`, inputSchema: fromJsonSchema(schema) }, run);
    contents(tool);
    chatter(tool);
    questions(tool);
    rounds(tool);
    shapes(server, tool);
    resources(server);
    prompts(server);
    server.server.setRequestHandler('completion/complete', async () => ({
        completion: { values: ['paris', 'parma'], total: 2, hasMore: false }
    }));
    return server;
}

/** Every kind of content. */
function contents(tool) {
    const image = { type: 'image', data: PIXEL, mimeType: 'image/png' };
    const embedded = (uri, mimeType, body) => ({ type: 'resource', resource: { uri, mimeType, text: body } });
    tool('test_simple_text', async () => says(text('This is a simple text response for testing.')));
    tool('test_image_content', async () => says(image));
    tool('test_audio_content', async () => says({ type: 'audio', data: SILENCE, mimeType: 'audio/wav' }));
    tool('test_embedded_resource', async () =>
        says(embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.'))
    );
    tool('test_multiple_content_types', async () =>
        says(
            text('Multiple content types test:'),
            image,
            embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}')
        )
    );
    tool('test_error_handling', async () => {
        throw new Error('This tool intentionally returns an error for testing');
    });
    tool('test_reconnection', async () => {
        await pause(100);
        return says(text('Reconnection test completed successfully.'));
    });
    tool('test_streaming_elicitation', async () => says(text('one result and nothing else')));
}

/** Logs and progress on the way. */
function chatter(tool) {
    const steps = ['Tool execution started', 'Tool processing data', 'Tool execution completed'];
    tool('test_tool_with_logging', async (_args, ctx) => {
        for (const data of steps) {
            await ctx.mcpReq.notify({ method: 'notifications/message', params: { level: 'info', data } });
            await pause(50);
        }
        return says(text('Tool with logging executed successfully'));
    });
    tool('test_tool_with_progress', async (_args, ctx) => {
        const progressToken = ctx.mcpReq._meta?.progressToken;
        for (const progress of progressToken === undefined ? [] : [0, 50, 100]) {
            const params = { progressToken, progress, total: 100, message: `at ${progress}` };
            await ctx.mcpReq.notify({ method: 'notifications/progress', params });
            await pause(50);
        }
        return says(text(String(progressToken ?? 'no progress token')));
    });
    tool('test_logging_tool', async (_args, ctx) => {
        await ctx.mcpReq.log('info', 'only for those who asked');
        return says(text('logged'));
    });
}

/** Questions in the middle of a call, as revisions with a handshake have them; without one the answer asks. */
function questions(tool) {
    const asks = (name, schema, request, tell) =>
        tool(
            name,
            async (args, ctx) => {
                const { method, params } = request(args);
                const answer = ctx.mcpReq.inputResponses?.answer;
                if (answer !== undefined) return says(text(tell(answer)));
                if (era !== 'legacy') {
                    const ask = method === 'elicitation/create' ? inputRequired.elicit : inputRequired.createMessage;
                    return inputRequired({ inputRequests: { answer: ask(params) } });
                }
                try {
                    return says(text(tell(await ctx.mcpReq.send({ method, params }))));
                } catch (error) {
                    return { ...says(text(`not answered: ${error.message}`)), isError: true };
                }
            },
            schema
        );
    const told = (what) => (answer) => `${what}: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`;
    const elicit = (params) => ({ method: 'elicitation/create', params });
    asks(
        'test_sampling',
        object({ prompt: words }, { required: ['prompt'] }),
        (args) => ({ method: 'sampling/createMessage', params: thought(args.prompt, 100) }),
        (answer) => `LLM response: ${answer.content?.text ?? 'none'}`
    );
    asks(
        'test_elicitation',
        object({ message: words }, { required: ['message'] }),
        (args) => elicit(form(args.message, { response: { ...words, description: "User's response" } })),
        told('User response')
    );
    const defaults = {
        name: { ...words, default: 'John Doe' },
        age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 },
        status: { ...words, enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', default: true }
    };
    asks(
        'test_elicitation_sep1034_defaults',
        object(),
        () => elicit(form('Review these defaults', defaults, [])),
        told('Elicitation completed')
    );
    const titled = ['1', '2', '3'].map((n) => ({ const: `value${n}`, title: `Choice ${n}` }));
    const plain = ['option1', 'option2', 'option3'];
    const enums = {
        untitledSingle: { ...words, enum: plain },
        titledSingle: { ...words, oneOf: titled },
        legacyEnum: { ...words, enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option 1', 'Option 2', 'Option 3'] },
        untitledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { ...words, enum: plain } },
        titledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { anyOf: titled } }
    };
    asks(
        'test_elicitation_sep1330_enums',
        object(),
        () => elicit(form('Choose', enums, [])),
        told('Elicitation completed')
    );
}

/** Questions as answers, as the revision without a handshake has them. */
function rounds(tool) {
    const name = () => inputRequired.elicit(form('What is your name?', { name: words }));
    const greeting = () => inputRequired.createMessage(thought('Write a greeting', 50));
    const sure = () => inputRequired.elicit(form('Are you sure?', { ok: { type: 'boolean' } }));
    const given = (ctx, key) => ctx.mcpReq.inputResponses?.[key];
    const accepted = (ctx, key) => acceptedContent(ctx.mcpReq.inputResponses, key);
    /** Asks until `done` has an answer. */
    const until = (key, ask, done, state) => async (_args, ctx) => {
        const answer = done(ctx);
        if (answer !== undefined) return says(text(answer));
        const requestState = state && (await states.mint({ about: key, at: Date.now() }));
        return inputRequired({ inputRequests: ask(ctx), ...(state ? { requestState } : {}) });
    };
    tool(
        'test_input_required_result_elicitation',
        until('name', () => ({ user_name: name() }), (ctx) => {
            const answer = accepted(ctx, 'user_name');
            return typeof answer?.name === 'string' ? `Hello, ${answer.name}!` : undefined;
        })
    );
    tool(
        'test_input_required_result_sampling',
        until(
            'capital',
            () => ({ capital_question: inputRequired.createMessage(thought('What is the capital of France?', 100)) }),
            (ctx) => given(ctx, 'capital_question') && `Sampled: ${JSON.stringify(given(ctx, 'capital_question'))}`
        )
    );
    tool(
        'test_missing_capability',
        until(
            'llm',
            () => ({ llm_answer: greeting() }),
            (ctx) => given(ctx, 'llm_answer') && 'sampled'
        )
    );
    const roots = (ctx) => given(ctx, 'client_roots')?.roots;
    tool(
        'test_input_required_result_list_roots',
        until(
            'roots',
            () => ({ client_roots: inputRequired.listRoots() }),
            (ctx) => (Array.isArray(roots(ctx)) ? `Roots: ${roots(ctx).map((root) => root.uri).join(' ')}` : undefined)
        )
    );
    const confirmed = (ctx) =>
        accepted(ctx, 'confirm') && ctx.mcpReq.requestState() !== undefined ? 'state-ok' : undefined;
    for (const which of ['request_state', 'tampered_state']) {
        tool(`test_input_required_result_${which}`, until(which, () => ({ confirm: sure() }), confirmed, true));
    }
    tool(
        'test_input_required_result_multiple_inputs',
        until(
            'several',
            () => ({ user_name: name(), greeting: greeting(), client_roots: inputRequired.listRoots() }),
            (ctx) => accepted(ctx, 'user_name') && given(ctx, 'greeting') && roots(ctx) && 'all three came',
            true
        )
    );
    tool('test_input_required_result_multi_round', async (_args, ctx) => {
        const round = ctx.mcpReq.requestState()?.round ?? 0;
        if (round === 2) return says(text('both rounds came'));
        const step = `step${round + 1}`;
        return inputRequired({
            inputRequests: { [step]: inputRequired.elicit(form(`Round ${round + 1}`, { answer: words })) },
            requestState: await states.mint({ round: round + 1, at: Date.now() })
        });
    });
    tool('test_input_required_result_capabilities', async (_args, ctx) => {
        if (ctx.mcpReq.inputResponses !== undefined) return says(text('answered'));
        const able = ctx.mcpReq.envelope?.[sdk.CLIENT_CAPABILITIES_META_KEY] ?? {};
        const inputRequests = {
            ...(able.elicitation ? { user_name: name() } : {}),
            ...(able.sampling ? { greeting: greeting() } : {})
        };
        return Object.keys(inputRequests).length > 0 ? inputRequired({ inputRequests }) : says(text('nobody to ask'));
    });
}

/** Schemas that must come through as they are, and lists that change. */
function shapes(server, tool) {
    const reply = async (args) => says(text(JSON.stringify(args)));
    tool('json_schema_2020_12_tool', reply, {
        $schema: 'https://json-schema.org/draft/2020-12/schema',
        type: 'object',
        $defs: { address: { $anchor: 'addressDef', ...object({ street: words, city: words }) } },
        properties: {
            name: words,
            address: { $ref: '#/$defs/address' },
            contactMethod: { ...words, enum: ['phone', 'email'] },
            phone: words,
            email: words
        },
        allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
        if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
        then: { required: ['phone'] },
        else: { required: ['email'] },
        additionalProperties: false
    });
    tool('test_x_mcp_header', reply, object({ region: { ...words, 'x-mcp-header': 'Region' }, level: { type: 'integer' } }));
    let changes = 0;
    tool('test_trigger_tool_change', async () => {
        tool(`added_${++changes}`, reply);
        return says(text('one more tool'));
    });
    tool('test_trigger_prompt_change', async () => {
        server.registerPrompt(`added_${++changes}`, { description: 'Was added.' }, async () => ({ messages: [] }));
        return says(text('one more prompt'));
    });
}

function resources(server) {
    const resource = (name, at, mimeType, body) =>
        server.registerResource(name, at, { description: `The ${name}.`, mimeType }, async (uri, variables) => ({
            contents: [{ uri: uri.toString(), mimeType, ...body(variables) }]
        }));
    resource('static-text', 'test://static-text', 'text/plain', () => ({
        text: 'This is the content of the static text resource.'
    }));
    resource('static-binary', 'test://static-binary', 'image/png', () => ({ blob: PIXEL }));
    resource('watched-resource', 'test://watched-resource', 'text/plain', () => ({ text: 'watched' }));
    const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
    resource('template', template, 'application/json', ({ id }) => ({ text: JSON.stringify({ id, data: `of ${id}` }) }));
    for (const method of ['resources/subscribe', 'resources/unsubscribe']) {
        server.server.setRequestHandler(method, async () => ({}));
    }
}

function prompts(server) {
    const prompt = (name, args, run) => {
        const properties = Object.fromEntries(args.map((arg) => [arg, words]));
        const argsSchema = args.length > 0 ? { argsSchema: fromJsonSchema(object(properties, { required: args })) } : {};
        server.registerPrompt(name, { description: `Asks for ${name}.`, ...argsSchema }, run);
    };
    prompt('test_simple_prompt', [], async () => ({ messages: [user(text('This is a simple prompt for testing.'))] }));
    prompt('test_prompt_with_arguments', ['arg1', 'arg2'], async ({ arg1, arg2 }) => ({
        messages: [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))]
    }));
    prompt('test_prompt_with_embedded_resource', ['resourceUri'], async ({ resourceUri }) => ({
        messages: [
            user({
                type: 'resource',
                resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' }
            }),
            user(text('Please process the embedded resource above.'))
        ]
    }));
    prompt('test_prompt_with_image', [], async () => ({
        messages: [user({ type: 'image', data: PIXEL, mimeType: 'image/png' }), user(text('What is this?'))]
    }));
    prompt('test_input_required_result_prompt', [], async (ctx) => {
        const answer = acceptedContent(ctx.mcpReq.inputResponses, 'user_context');
        if (typeof answer?.context === 'string') return { messages: [user(text(`In mind: ${answer.context}`))] };
        const user_context = inputRequired.elicit(form('What should be kept in mind?', { context: words }));
        return inputRequired({ inputRequests: { user_context } });
    });
}

if (era === 'legacy') {
    await build().connect(new StdioServerTransport());
} else {
    serveStdio(build);
}
