// The globals of a script besides the language. Runs once in a fresh realm, before any guest code.
// `native` has the native functions (worker/natives.rs); it is reachable from here only.
// The returned functions are held by the worker, not the realm: a script cannot settle its own calls.
//
// The process is the security boundary, and the gateway trusts nothing it sends. Defence in depth: nothing in here is
// reachable by a script. Every builtin our functions use is captured before a script runs, and frozen (`freeze.js`), so
// that none of them calls a replacement made by a script, and no stack trace exposes one as an object.
(native, limits) => {
"use strict";

// Under their usual names; these are the originals, whatever a script does to its globals.
const {
  Array, ArrayBuffer, BigInt, Boolean, DOMException, DataView, Date, Error, EvalError, Float32Array, Float64Array,
  InternalError, JSON, Map, Math, Number, Object, Promise, Proxy, RangeError, ReferenceError, Reflect, RegExp, Set,
  String, Symbol, SyntaxError, TypeError, URIError, Uint8Array, WeakMap, WeakRef, WeakSet,
  decodeURIComponent, encodeURIComponent, parseInt,
} = globalThis;

const { parse, stringify } = JSON;
const { apply, ownKeys, getPrototypeOf, setPrototypeOf, defineProperty, getOwnPropertyDescriptor } = Reflect;
const { isArray, from: arrayFrom } = Array;
const { create, freeze, fromEntries, is, prototype: objectPrototype } = Object;
const { min, max, floor } = Math;
const NativePromise = Promise, NativeProxy = Proxy, NativeMap = Map, NativeSet = Set;
const NativeError = Error, { captureStackTrace } = Error, NativeString = String, NativeDate = Date, NativeRegExp = RegExp;
const isFiniteNumber = Number.isFinite;
const global = globalThis;

/** A function of a prototype as a plain one: `push(list, item)`. */
const plain = method => (self, ...rest) => apply(method, self, rest);
const join = plain(Array.prototype.join), push = plain(Array.prototype.push), map = plain(Array.prototype.map);
const slice = plain(String.prototype.slice), trimStart = plain(String.prototype.trimStart);
const wellFormed = plain(String.prototype.toWellFormed), normalize = plain(String.prototype.normalize);
const then = plain(Promise.prototype.then), symbolText = plain(Symbol.prototype.toString);
const isoDate = plain(Date.prototype.toISOString), expressionText = plain(RegExp.prototype.toString);
const isErrorObject = NativeError.isError ?? (value => value instanceof NativeError);

/** A map whose methods a changed prototype cannot replace. */
const ownMap = () => {
  const made = new NativeMap();
  for (const name of ["get", "set", "has", "delete", "forEach"]) defineProperty(made, name, { value: NativeMap.prototype[name] });
  return made;
};

const define = (name, value) =>
  defineProperty(global, name, { value, writable: true, enumerable: false, configurable: true });

const cut = (text, most) =>
  text.length <= most ? text : slice(text, 0, most) + `… (${text.length - most} more characters)`;

// --- calls -------------------------------------------------------------------------------------------

const CALL = 0, SEARCH = 1, DESCRIBE = 2, LIST = 3, TYPES = 4, RESULTS_GET = 5, RESULTS_PUT = 6, PARTIAL = 7, KEEP = 8;

class ToolError extends NativeError {
  constructor(fact) {
    super(typeof fact === "string" ? fact : fact?.message);
    if (fact !== null && typeof fact === "object") {
      this.server = fact.server ?? null;
      this.tool = fact.tool ?? null;
      this.code = fact.code ?? null;
      this.retryable = fact.retryable === true;
      if (fact.details !== undefined) this.details = fact.details;
    }
  }
}
defineProperty(ToolError.prototype, "name", { value: "ToolError", writable: true, enumerable: false, configurable: true });
const hasName = plain(Object.prototype.hasOwnProperty);

/** A limit that a script can survive: it may catch this and return what it has. */
class LimitError extends NativeError {
  constructor(fact) {
    super(typeof fact === "string" ? fact : fact?.message);
    this.code = "limit_exceeded";
    this.retryable = false;
    if (fact !== null && typeof fact === "object") {
      this.limit = fact.limit ?? null;
      this.value = fact.value ?? null;
    }
  }
}
defineProperty(LimitError.prototype, "name", { value: "LimitError", writable: true, enumerable: false, configurable: true });
const beyond = (limit, value, message) => new LimitError({ limit, value, message });

/** An error that arrives with the response, with the stack of the request. */
const toolError = (fact, site) => {
  const error = fact.limit === undefined ? new ToolError(fact) : new LimitError(fact);
  defineProperty(error, "stack", { value: site, writable: true, enumerable: false, configurable: true });
  return error;
};

/** An array that a script cannot intercept by changing Array.prototype. */
const ownList = () => {
  const made = [];
  setPrototypeOf(made, null);
  return made;
};

/** Pending requests by their ids, which are consecutive: the waiter and the functions that settle its promise. */
const pending = ownList(), resolvers = ownList(), rejecters = ownList();

// Settles the promise created last. One executor for all, instead of a closure for each.
let resolveLast, rejectLast;
const take = (resolve, reject) => {
  resolveLast = resolve;
  rejectLast = reject;
};

const UNASKED = 0, OPEN = 1, ANSWERED = 2, FAILED = 3;

/** A pending request; `what` describes it. Made by a constructor, so that all of them share one hidden class. */
class Waiting {
  constructor(what, by) {
    this.what = what;
    this.state = UNASKED;
    // Captures only the frames below our own: formatting those as well took an eighth of a call.
    captureStackTrace(this, by);
  }
}
setPrototypeOf(Waiting.prototype, null);

const send = (waiting, resolve, reject, op, text) => {
  if (text.length > limits.payload) {
    throw beyond("arguments", limits.payload, `the arguments are ${text.length} characters of JSON, ${limits.payload} at most`);
  }
  const id = native.request(op, text);
  pending[id] = waiting;
  resolvers[id] = resolve;
  rejecters[id] = reject;
  waiting.state = OPEN;
};

/** Whether arguments hold only what JSON can represent. Most do, and this check is cheaper than a replacer. */
const isFlat = args => {
  if (getPrototypeOf(args) !== objectPrototype) return false;
  const keys = ownKeys(args);
  for (let i = 0; i < keys.length; i++) {
    const value = args[keys[i]];
    switch (typeof value) {
      case "object": if (value === null) break;
      case "bigint":
      case "symbol": return false;
    }
  }
  return true;
};

const QUESTION = freeze({ __proto__: null, server: null, tool: null, head: null, of: null, last: null });

// Calls and questions are counted here, so that the one beyond the limit fails where a script can catch it, and by the
// gateway, which ends a script that sends more. Refusals have an end too: a loop that swallows them is stopped there.
const REFUSALS = 1000;
let calls = 0, questions = 0, refusals = 0;

const ask = (op, question, what = QUESTION) => {
  const answer = new NativePromise(take), resolve = resolveLast, reject = rejectLast;
  try {
    if (questions >= limits.questions && refusals < REFUSALS) {
      refusals += 1;
      throw beyond("questions", limits.questions, `tools, results and the like can be asked ${limits.questions} times in a script`);
    }
    send(new Waiting(what, ask), resolve, reject, op, stringify(question, plainSent));
    questions += 1;
  } catch (error) {
    reject(error);
  }
  return answer;
};

/** A parsed response, or the error. */
const settle = (id, ok, value) => {
  const waiting = pending[id];
  if (waiting === undefined) return;
  const resolve = resolvers[id], reject = rejecters[id];
  pending[id] = resolvers[id] = rejecters[id] = undefined;
  let { what } = waiting;
  if (!ok && value?.result !== undefined) {
    // A result with `isError`, and the real name of its tool.
    what = { __proto__: null, server: value.server ?? what.server, tool: value.tool ?? what.tool, of: what.of, last: null };
    ok = true;
    value = value.result;
  }
  waiting.state = ok ? ANSWERED : FAILED;
  const answer = waiting.answer = ok ? value : toolError({ server: what.server, tool: what.tool, ...value }, waiting.stack);
  if (waiting.raw !== undefined) (ok ? waiting.raw.resolve : waiting.raw.reject)(answer);
  if (!ok) return reject(answer);
  if (what.of === null) return resolve(answer);
  let made;
  try {
    made = what.of(answer, what, waiting);
    if (what.last !== null) remember(what, made);
  } catch (error) {
    return reject(error);
  }
  resolve(made);
};

/** What came last of each tool: its kind and how it begins, for an error that a wrong guess at it leads to. */
const LAST = 32, START = 48, KEYS = 8;
const lasts = ownList();
const remember = ({ server, tool, last }, value) => {
  const kind = value === null ? "null" : isArray(value) ? "array" : typeof value;
  if (last.times === 0) {
    if (lasts.length >= LAST) return;
    lasts[lasts.length] = last;
  }
  last.mixed ||= last.times > 0 && last.kind !== kind;
  last.times += 1;
  last.server = server;
  last.tool = tool;
  last.kind = kind;
  last.size = kind === "string" || kind === "array" ? value.length : null;
  last.start = kind === "string" ? wellFormed(slice(value, 0, START)) : null;
  last.keys = null;
  if (kind !== "object") return;
  const keys = ownKeys(value), some = [];
  for (let i = 0; i < keys.length && i < KEYS; i++) some[i] = cut(keys[i], START);
  last.size = keys.length;
  last.keys = some;
};

/** Links a call's promise to its waiter: a private field that only this class sees, put on the promise. */
class Stamp extends function (call) { return call; } {
  #waiting;
  constructor(call, waiting) {
    super(call);
    this.#waiting = waiting;
  }
  static of(call) {
    return typeof call === "object" && call !== null && #waiting in call ? call.#waiting : undefined;
  }
}
const waitingOf = Stamp.of;

/** The unprocessed result: a call's `raw`. */
const raw = freeze(function () {
  const waiting = waitingOf(this);
  if (waiting === undefined) throw new TypeError("raw belongs to the call it is taken from: call.raw()");
  // A request that could not be sent fails the same either way.
  if (waiting.state === UNASKED || waiting.what.of === null) return this;
  if (waiting.whole === undefined) {
    // Whoever awaits `raw` gets the rejection there.
    then(this, undefined, () => undefined);
    waiting.whole = new NativePromise((resolve, reject) => {
      if (waiting.state === OPEN) waiting.raw = { resolve, reject };
      else (waiting.state === ANSWERED ? resolve : reject)(waiting.answer);
    });
  }
  return waiting.whole;
});

const textsOf = content => {
  const texts = [];
  let count = 0;
  for (let i = 0; i < content.length; i++) {
    const part = content[i];
    if (part === null || typeof part !== "object" || part.type !== "text" || typeof part.text !== "string") return undefined;
    // A word of the gateway to a reader, such as that there is more, is no part of the value.
    const { _meta } = part;
    if (_meta !== null && typeof _meta === "object" && _meta["metamcp/note"] === true) continue;
    texts[count++] = part.text;
  }
  return texts;
};

/** Text that is JSON as its value. A number whose text would not come back (`007`, 20 digits) stays text. */
const valueOfText = text => {
  const first = trimStart(slice(text, 0, 64))[0];
  if (first === undefined || !(first === "{" || first === "[" || first === "\"" || first === "-" || (first >= "0" && first <= "9") || first === "t" || first === "f" || first === "n")) return text;
  let value;
  try {
    value = parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
  return typeof value === "number" && NativeString(value) !== text ? text : value;
};

/** The useful part of a tool's result, for a script. */
const useful = (result, { server, tool }, { stack }) => {
  if (result === null || typeof result !== "object") return result;
  const isError = result.isError === true, { structuredContent } = result;
  if (!isError && structuredContent !== undefined && structuredContent !== null) return structuredContent;
  const texts = isArray(result.content) ? textsOf(result.content) : undefined;
  if (isError) {
    const message = texts !== undefined && texts.length > 0 ? join(texts, "\n") : "the tool reported an error and did not say which";
    throw toolError({ server, tool, code: "tool_error", retryable: false, message }, stack);
  }
  if (texts === undefined) return result;
  if (texts.length === 0) return null;
  return valueOfText(texts.length === 1 ? texts[0] : join(texts, "\n"));
};

/** Describes a call: server, tool, and whether its result is passed on raw or as its useful part. */
const whatOf = (server, tool, isRaw) => freeze({
  __proto__: null,
  server,
  tool,
  head: `{"server":${stringify(server)},"tool":${stringify(tool)},"arguments":`,
  of: isRaw ? null : useful,
  last: isRaw ? null : { __proto__: null, times: 0, mixed: false },
});

/** A call that is not made. Its `raw` fails the same. */
const unmade = error => {
  const answer = NativePromise.reject(error);
  answer.raw = () => answer;
  return answer;
};

const callTool = (what, args, by) => {
  if (args === undefined || args === null) args = {};
  let isPlain;
  try {
    isPlain = typeof args === "object" && isFlat(args);
  } catch (error) {
    return unmade(error);
  }
  if (!isPlain && (typeof args !== "object" || isArray(args))) {
    const given = isArray(args) ? "an array" : `a ${typeof args}`;
    return unmade(new TypeError(`the arguments of ${what.server}.${what.tool} must be one object with named values, not ${given}`));
  }
  if (calls >= limits.calls && refusals < REFUSALS) {
    refusals += 1;
    return unmade(beyond("calls", limits.calls, `${what.server}.${what.tool} was not called: a script makes ${limits.calls} tool calls at most`));
  }
  const answer = new NativePromise(take), resolve = resolveLast, reject = rejectLast, waiting = new Waiting(what, by);
  try {
    const json = isPlain ? stringify(args) : stringify(args, plainSent);
    send(waiting, resolve, reject, CALL, `${what.head}${json ?? null}}`);
    calls += 1;
  } catch (error) {
    reject(error);
  }
  new Stamp(answer, waiting);
  answer.raw = raw;
  return answer;
};

// --- servers -----------------------------------------------------------------------------------------

/** Property names the language itself reads; a tool of such a name is reached by `call`. */
const LANGUAGE = freeze({ __proto__: null, then: 1, toString: 1, valueOf: 1, toJSON: 1, constructor: 1, toLocaleString: 1, hasOwnProperty: 1 });

const standIns = new WeakMap();
const weakGet = plain(WeakMap.prototype.get), weakSet = plain(WeakMap.prototype.set);

const standIn = server => {
  const tools = create(null);
  /** A function that calls a tool. */
  const asking = (name, isRaw) => {
    const what = whatOf(server, name, isRaw);
    if (name !== "call") {
      const by = args => callTool(what, args, by);
      return by;
    }
    // `call("tool", arguments)`, unless a server really has a tool of that name.
    const others = create(null);
    const by = (first, args) => {
      if (typeof first !== "string") return callTool(what, first, by);
      if (first === "") return NativePromise.reject(new TypeError(`which tool of ${server}? call("tool", arguments)`));
      return callTool(others[first] ??= whatOf(server, first, isRaw), args, by);
    };
    return by;
  };
  const toolOf = name => {
    if (typeof name !== "string" || name in LANGUAGE || name === "__proto__") return undefined;
    const tool = asking(name, false);
    tool.raw = asking(name, true);
    return tools[name] = freeze(tool);
  };
  const made = new NativeProxy(freeze(create(null)), {
    __proto__: null,
    get: (_, name) => tools[name] ?? toolOf(name),
    set(_, name) {
      throw new TypeError(`${server} is a server; its tool ${NativeString(name)} cannot be replaced`);
    },
  });
  weakSet(standIns, made, server);
  return made;
};

const begin = (list, sleep, result, most) => {
  limits.sleep = sleep;
  limits.result = result;
  if (most !== undefined) limits.calls = most;
  partialLeft = limits.partial;
  const known = create(null), aliases = create(null), others = create(null);
  for (let i = 0; i < list.length; i++) {
    const { name, identifiers } = list[i];
    const server = known[name] = standIn(name);
    for (let j = 0; j < identifiers.length; j++) {
      const identifier = identifiers[j];
      aliases[identifier] ??= server;
      if (!(identifier in global)) define(identifier, server);
    }
  }
  freeze(known);
  define("servers", new NativeProxy(known, {
    __proto__: null,
    get(_, name) {
      if (typeof name !== "string") return undefined;
      // The gateway suggests the right name: it knows more of them.
      return known[name] ?? aliases[name] ?? (name in LANGUAGE ? undefined : others[name] ??= standIn(name));
    },
  }));
};

define("ToolError", ToolError);
define("LimitError", LimitError);

// What is given beyond what a function takes would be ignored, and its author would not know.
const checked = (name, takes, rest, options, known) => {
  if (rest.length > 0) throw new TypeError(`${name} takes ${takes}, nothing more`);
  if (options !== undefined && options !== null) wordsNow().checkOptions(name, options, known);
};
/** Lists of tools and servers, which are shown as lines. */
const LISTING = freeze({
  ...QUESTION,
  __proto__: null,
  of: found => {
    if (isArray(found)) weakSet(listings, found, true);
    return found;
  },
});
const listings = new WeakMap();

define("tools", freeze({
  search: async (query, options, ...rest) => {
    checked("tools.search", "a query and { limit, server, detail }", rest, options, ["limit", "server", "detail"]);
    if (typeof query !== "string") throw new TypeError("tools.search takes a query in words first");
    return ask(SEARCH, { query, options: typeof options?.server === "object" ? { ...options, server: nameOf(options.server) } : options ?? null }, LISTING);
  },
  describe: async (server, tool, ...rest) => {
    checked("tools.describe", "a server and a tool, or \"server:tool\"", rest);
    return ask(DESCRIBE, { server: nameOf(server), tool: tool ?? null });
  },
  list: async (server, ...rest) => {
    checked("tools.list", "a server, or nothing for all servers", rest);
    return ask(LIST, { server: nameOf(server), options: null }, LISTING);
  },
  types: async (server, tool, ...rest) => {
    checked("tools.types", "a server and perhaps a tool, or \"server:tool\"", rest);
    return ask(TYPES, { server: nameOf(server), tool: tool ?? null });
  },
}));
define("results", freeze({
  get: async (handle, options, ...rest) => {
    checked("results.get", "a handle and { pointer }, { offset, length } or { grep }", rest, options, ["pointer", "offset", "length", "grep"]);
    return ask(RESULTS_GET, { handle, options: options ?? null });
  },
  put: async (value, ...rest) => {
    checked("results.put", "one value", rest);
    return ask(RESULTS_PUT, { value: value === undefined ? null : value });
  },
}));

/** A server may be named or given as it stands: `tools.list(github)`. */
const nameOf = server => (server !== null && typeof server === "object" ? weakGet(standIns, server) : undefined) ?? server ?? null;

// --- time --------------------------------------------------------------------------------------------

const timers = ownMap();
let timersSet = 0;

const startTimer = (run, delay, args, again) => {
  if (typeof run !== "function") throw new TypeError("the first argument of a timer must be a function");
  if (timersSet >= limits.timers) throw beyond("timers", limits.timers, `${limits.timers} timers are set, which is the most`);
  delay = +delay;
  delay = delay > 0 ? delay : 0;
  const id = native.timer(delay);
  timersSet += 1;
  timers.set(id, { run, args, again: again ? max(delay, 1) : -1, current: id });
  return id;
};

const stopTimer = id => {
  const timer = timers.get(id);
  if (timer === undefined) return;
  timers.delete(id);
  timersSet -= 1;
  native.clear(timer.current);
};

const due = number => {
  // An interval is set anew under a number of its own and known to the script by its first one.
  const id = intervals.get(number) ?? number;
  const timer = timers.get(id);
  if (timer === undefined) return;
  if (timer.again < 0) {
    timers.delete(id);
    timersSet -= 1;
  } else {
    intervals.delete(number);
    timer.current = native.timer(timer.again);
    intervals.set(timer.current, id);
  }
  try {
    apply(timer.run, undefined, timer.args);
  } catch (error) {
    native.log(3, wellFormed(cut(`uncaught in a timer: ${show(error)}`, limits.line)));
  }
};
const intervals = ownMap();

define("setTimeout", (run, delay, ...args) => startTimer(run, delay, args, false));
define("setInterval", (run, delay, ...args) => startTimer(run, delay, args, true));
define("clearTimeout", stopTimer);
define("clearInterval", stopTimer);
define("sleep", (ms, ...rest) => new NativePromise(resolve => {
  checked("sleep", "milliseconds", rest);
  ms = +ms;
  if (!(ms >= 0)) throw new RangeError("sleep takes milliseconds");
  if (ms > limits.sleep) throw beyond("sleep", limits.sleep, `sleep takes ${limits.sleep} ms at most, not ${ms}`);
  startTimer(() => resolve(), ms, [], false);
}));

// --- many at once ------------------------------------------------------------------------------------

// What each item of a `parallel` gave goes to the gateway as it comes, so that it outlives a failure, a limit and a kill.
let groups = 0, partialLeft = 0;
const partials = freeze({
  __proto__: null,
  open: total => ({ __proto__: null, number: groups++, total, finished: 0, sent: 0 }),
  /** An item ended; `given` is its value, or what it threw. */
  item(group, index, isDone, given) {
    if (isDone) group.finished += 1;
    if (partialLeft <= 0) return;
    let text;
    try {
      text = isDone ? typeof given === "string" && given.length > limits.partial_item ? undefined : stringify(given, plainReturned) ?? "null" : stringify(cut(show(given), limits.line));
    } catch {
      // It has no JSON, which is no failure of the script.
    }
    const item = text === undefined || text.length > limits.partial_item
      ? `{"status":"fulfilled","value":null,"omitted":true}`
      : isDone ? `{"status":"fulfilled","value":${text}}` : `{"status":"rejected","reason":${text}}`;
    partialLeft -= item.length;
    group.sent += item.length;
    native.request(PARTIAL, wellFormed(`{"group":${group.number},"total":${group.total},"index":${index},"item":${item}}`));
  },
  ended(group) {
    partialLeft += group.sent;
    if (group.sent > 0) native.request(PARTIAL, `{"group":${group.number}}`);
  },
  /** The handle of what finished is put on the error, which stays the same one. */
  async failed(group, reason) {
    if (group.finished === 0) return partials.ended(group);
    const { finished, total } = group;
    let handle;
    try {
      handle = await ask(KEEP, { group: group.number });
    } catch {
      return;
    }
    const told = `${finished} of ${total} items of parallel had finished: results.get(${stringify(handle)}) has them`;
    kept = { __proto__: null, reason, told: kept !== undefined && is(kept.reason, reason) ? `${kept.told}; ${told}` : told };
    if (reason !== null && typeof reason === "object") {
      try {
        defineProperty(reason, "partial", { value: handle, writable: true, enumerable: true, configurable: true });
      } catch {
        // A proxy that minds.
      }
    }
  },
});
/** What was kept of the `parallel` that failed last, and its error. */
let kept;

let spread;
const lanes = (...given) => {
  spread ??= native.part("lanes")({ __proto__: null, globals, NativePromise, arrayFrom, push, then, min, max, floor, partials, iterator: Symbol.iterator, asyncIterator: Symbol.asyncIterator });
  return spread(...given);
};
const parallel = async (items, each, limit = 8, ...rest) => {
  checked("parallel", "a list, a function and how many at once", rest);
  return lanes(items, each, limit, false);
};
parallel.settled = async (items, each, limit = 8, ...rest) => {
  checked("parallel.settled", "a list, a function and how many at once", rest);
  return lanes(items, each, limit, true);
};
define("parallel", freeze(parallel));

// --- console -----------------------------------------------------------------------------------------

define("progress", (value, total, message) => {
  if (typeof total === "string") {
    message = total;
    total = undefined;
  }
  value = +value;
  if (!isFiniteNumber(value)) throw new TypeError("progress takes a number");
  native.progress(value, isFiniteNumber(total) ? total : undefined, message === undefined ? undefined : wellFormed(cut(NativeString(message), limits.line)));
});

// Formatting of values and errors is a separate part: most scripts print only text.
let words;
const wordsNow = () => words ??= native.part("words")({
  __proto__: null,
  stringify, ownKeys, getPrototypeOf, getOwnPropertyDescriptor, isArray, objectPrototype, max,
  NativePromise, NativeMap, NativeSet, NativeString, NativeDate, NativeRegExp,
  join, push, wellFormed, symbolText, isoDate, expressionText, isErrorObject, is,
  cut, limits, ToolError, LimitError, TypeError, serverOf: value => weakGet(standIns, value),
  isListing: value => weakGet(listings, value) === true, keptOf: error => kept !== undefined && is(kept.reason, error) ? kept.told : undefined,
  lasts,
});
const show = value => wordsNow().show(value);
const describe = error => wordsNow().describe(error);

const ENTRIES = 100;
const line = (level, values) => {
  const words = [];
  for (let i = 0; i < values.length && i < ENTRIES; i++) words[i] = typeof values[i] === "string" ? values[i] : show(values[i]);
  native.log(level, wellFormed(cut(join(words, " "), limits.line)));
};
const console = {};
for (const { 0: name, 1: level } of [["debug", 0], ["log", 1], ["info", 1], ["dir", 1], ["table", 1], ["group", 1], ["warn", 2], ["trace", 2], ["error", 3]]) {
  defineProperty(console, name, { value: (...values) => line(level, values), writable: true, enumerable: true, configurable: true });
}
console.assert = (holds, ...values) => { if (!holds) line(3, ["assertion failed:", ...values]); };
console.groupEnd = console.time = console.timeEnd = console.count = () => undefined;
define("console", console);

// --- the end -----------------------------------------------------------------------------------------

/** Replaces values that JSON cannot represent, without loss. */
const inside = key => key === "" ? "" : ` (in ${stringify(key)})`;
const plainer = isSent => function (key, value) {
  switch (typeof value) {
    case "bigint":
      // A tool that takes a number would reject text.
      if (isSent) throw new TypeError(`a BigInt cannot be sent${inside(key)}; use Number(…) or String(…)`);
      return NativeString(value);
    case "symbol": return symbolText(value);
    case "object": break;
    case "function": return key === "" ? show(value) : undefined;
    default: return value;
  }
  if (value === null) return value;
  if (isArray(value)) {
    if (isSent || weakGet(listings, value) !== true) return value;
    const lines = wordsNow().listing(value);
    return key === "" ? join(lines, "\n") : lines;
  }
  if (value instanceof NativeMap) {
    const entries = arrayFrom(value);
    for (let i = 0; i < entries.length; i++) if (typeof entries[i][0] !== "string") return entries;
    return fromEntries(entries);
  }
  if (value instanceof NativeSet) return arrayFrom(value);
  if (value instanceof NativePromise) throw new TypeError(`a promise cannot be ${isSent ? "sent" : "returned"}${inside(key)}; await it first`);
  if (isErrorObject(value)) {
    const { 0: name, 1: message } = describe(value);
    return { name, message, ...value };
  }
  const server = weakGet(standIns, value);
  return server === undefined ? value : `[server ${server}]`;
};

const plainReturned = plainer(false), plainSent = plainer(true);

/** Unhandled rejections: promise → reason. Bounded. */
const unhandled = ownMap();
const UNHANDLED = 100, UNHANDLED_TOLD = 10;
let failures = 0;

/** The engine's rejection tracker: a promise was rejected without a handler, or got one later. */
const rejected = (promise, reason, handled) => {
  if (handled) {
    if (unhandled.delete(promise)) failures -= 1;
  } else if (failures < UNHANDLED) {
    unhandled.set(promise, reason);
    failures += 1;
  }
};

const tellUnhandled = () => {
  let told = 0;
  unhandled.forEach(reason => {
    if (told < UNHANDLED_TOLD) native.log(3, wellFormed(cut(`unhandled rejection: ${show(reason)}`, limits.line)));
    told += 1;
  });
  if (told > UNHANDLED_TOLD) native.log(3, `unhandled rejection: ${told - UNHANDLED_TOLD} more`);
};

const encode = value => {
  if (failures > 0) tellUnhandled();
  let text;
  try {
    text = stringify(value, plainReturned);
  } catch (error) {
    if (error instanceof TypeError && error.message === "circular reference") {
      throw new TypeError("the value contains itself and has no JSON; return the parts that are needed");
    }
    throw error;
  }
  if (text === undefined) return "null";
  // Too long already in characters: only the length is needed.
  return text.length > limits.result ? text.length : wellFormed(text);
};

// --- parts that are loaded on first use -------------------------------------------------------------

/** The captured builtins for parts, by name. */
const globals = freeze({
  __proto__: null,
  Array, ArrayBuffer, BigInt, Boolean, DOMException, DataView, Date, Error, EvalError, Float32Array, Float64Array, Map,
  Math, Number, Object, Promise, Proxy, RangeError, ReferenceError, RegExp, Set, String, Symbol, SyntaxError, TypeError,
  URIError, Uint8Array, WeakMap, WeakRef, WeakSet, decodeURIComponent, encodeURIComponent, parseInt,
});

/** What each part gets in addition. */
const given = {
  __proto__: null,
  intl: {},
  clone: {},
  url: { decoder: () => partNow("text").TextDecoder },
  text: { encode: native.encode, decode: native.decode },
  crypto: { encode: native.encode, random: native.random, sha256: native.sha256 },
};
const parts = { __proto__: null };
const partNow = name => parts[name] ??= harden(native.part(name)({ __proto__: null, globals, ...given[name] }));
const intlNow = () => partNow("intl");

const later = (part, names) => {
  for (const name of names) {
    defineProperty(global, name, {
      enumerable: false,
      configurable: true,
      get() {
        const made = partNow(part);
        // Globals that a script has replaced meanwhile stay as they are.
        for (const name of names) if (getOwnPropertyDescriptor(global, name)?.get !== undefined) define(name, made[name]);
        return made[name];
      },
      set(value) {
        define(name, value);
      },
    });
  }
};
later("url", ["URL", "URLSearchParams"]);
later("text", ["TextEncoder", "TextDecoder"]);
later("clone", ["structuredClone"]);
later("crypto", ["crypto"]);
later("intl", ["Intl"]);

// The engine's own locale methods ignore locale and options.
const locally = (prototype, methods) => {
  for (const name of ownKeys(methods)) defineProperty(prototype, name, { value: methods[name], writable: true, enumerable: false, configurable: true });
};
locally(Number.prototype, {
  toLocaleString(locale, options) { return new (intlNow().Intl.NumberFormat)(locale, options).format(+this); },
});
locally(NativeDate.prototype, {
  toLocaleString(locale, options) { return intlNow().dateText(this, locale, options, "any", "all"); },
  toLocaleDateString(locale, options) { return intlNow().dateText(this, locale, options, "date", "date"); },
  toLocaleTimeString(locale, options) { return intlNow().dateText(this, locale, options, "time", "time"); },
});
locally(NativeString.prototype, {
  localeCompare(other, locale, options) {
    if (this === null || this === undefined) throw new TypeError("localeCompare needs a string");
    return intlNow().compare(NativeString(this), NativeString(other), options);
  },
  /** Out of memory, the engine's own throws an uninitialized value. */
  normalize(form) {
    try {
      return normalize(this, form);
    } catch (error) {
      throw typeof error === "unknown" ? new InternalError("out of memory") : error;
    }
  },
});

// --- frozen from here on -----------------------------------------------------------------------------

const harden = native.part("freeze")({
  __proto__: null,
  global, console, ownKeys, getPrototypeOf, getOwnPropertyDescriptor, defineProperty, freeze, hasName, plain,
  Error, ToolError, TypeError, WeakSet, Object, Function: global.Function,
});

return [begin, settle, due, describe, encode, rejected];
}
