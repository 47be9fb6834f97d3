// Formatting of console values and thrown errors. `own` has the builtins captured before any guest code ran.
own => {
"use strict";

const {
  stringify, ownKeys, getPrototypeOf, getOwnPropertyDescriptor, isArray, objectPrototype, max,
  NativePromise, NativeMap, NativeSet, NativeString, NativeDate, NativeRegExp,
  join, push, wellFormed, symbolText, isoDate, expressionText, isErrorObject, is,
  cut, limits, ToolError, LimitError, TypeError, serverOf, isListing, keptOf, lasts,
} = own;

const DEPTH = 5, ENTRIES = 100;

/** Formats a value, bounded. Getters are not called. */
const show = value => {
  const seen = [];
  let room = limits.line;
  const spend = text => {
    room -= text.length;
    return text;
  };
  const inside = (value, depth) => {
    if (room <= 0) return "…";
    switch (typeof value) {
      case "string": return spend(stringify(cut(value, max(room, 16))));
      case "bigint": return spend(`${value}n`);
      case "symbol": return spend(symbolText(value));
      case "function": return spend(functionName(value));
      // Thrown by the engine without memory even for an error.
      case "unknown": return spend("out of memory");
      case "object": break;
      default: return spend(is(value, -0) ? "-0" : NativeString(value));
    }
    if (value === null) return spend("null");
    const server = serverOf(value);
    if (server !== undefined) return spend(`[server ${server}]`);
    for (let i = 0; i < seen.length; i++) if (seen[i] === value) return spend("[circular]");
    if (isErrorObject(value)) return spend(errorText(value));
    if (value instanceof NativeDate) return spend(safely(() => isoDate(value), "Invalid Date"));
    if (value instanceof NativeRegExp) return spend(expressionText(value));
    if (value instanceof NativePromise) return spend("[promise; await it]");
    if (depth >= DEPTH) return spend(isArray(value) ? "[…]" : "{…}");
    if (isListing(value)) return spend(cut(join(listing(value), "\n"), max(room, 16)));
    push(seen, value);
    const parts = [];
    let open = "{ ", close = " }", left = 0;
    if (isArray(value)) {
      open = "[ ", close = " ]";
      const length = value.length;
      for (let i = 0; i < length && i < ENTRIES && room > 0; i++) push(parts, member(value, i, depth));
      left = length - parts.length;
    } else if (value instanceof NativeMap) {
      open = `Map(${value.size}) { `;
      for (const entry of value) {
        if (parts.length >= ENTRIES || room <= 0) break;
        push(parts, `${inside(entry[0], depth + 1)} => ${inside(entry[1], depth + 1)}`);
      }
      left = value.size - parts.length;
    } else if (value instanceof NativeSet) {
      open = `Set(${value.size}) { `;
      for (const entry of value) {
        if (parts.length >= ENTRIES || room <= 0) break;
        push(parts, inside(entry, depth + 1));
      }
      left = value.size - parts.length;
    } else {
      const name = className(value);
      if (name !== "") open = `${name} { `;
      const keys = ownKeys(value);
      for (let i = 0; i < keys.length; i++) {
        if (parts.length >= ENTRIES || room <= 0) {
          left = keys.length - i;
          break;
        }
        const key = keys[i], found = getOwnPropertyDescriptor(value, key);
        if (found === undefined || !found.enumerable) continue;
        push(parts, spend(`${keyText(key)}: `) + ("value" in found ? inside(found.value, depth + 1) : "[getter]"));
      }
    }
    seen.length -= 1;
    if (left > 0) push(parts, `… ${left} more`);
    return parts.length === 0 ? open[0] === "{" || open[0] === "[" ? open[0] + close[1] : open + "}" : open + join(parts, ", ") + close;
  };
  const member = (list, index, depth) => {
    const found = getOwnPropertyDescriptor(list, index);
    return found === undefined ? "" : "value" in found ? inside(found.value, depth + 1) : "[getter]";
  };
  return safely(() => inside(value, 0), "[a value that cannot be shown]");
};

const safely = (run, otherwise) => {
  try {
    return run();
  } catch {
    return otherwise;
  }
};
const keyText = key => typeof key === "symbol" ? `[${symbolText(key)}]` : /^[A-Za-z_$][\w$]*$/.test(key) ? key : stringify(key);
const className = value => safely(() => {
  const prototype = getPrototypeOf(value);
  if (prototype === null || prototype === objectPrototype) return "";
  const name = getOwnPropertyDescriptor(prototype, "constructor")?.value?.name;
  return typeof name === "string" ? cut(name, 64) : "";
}, "");
const functionName = value => safely(() => {
  const name = getOwnPropertyDescriptor(value, "name")?.value;
  return typeof name === "string" && name !== "" ? `[function ${cut(name, 64)}]` : "[function]";
}, "[function]");
const errorText = error => {
  const { 0: name, 1: message } = describe(error);
  return message === "" ? name : `${name}: ${message}`;
};

/** Tools or servers, a line each. */
const SENTENCE = 160;
const listing = list => {
  const lines = [];
  for (let i = 0; i < list.length; i++) lines[i] = safely(() => listed(list[i]), "") || show(list[i]);
  return lines;
};
const listed = one => {
  const text = name => typeof one[name] === "string" ? one[name] : "";
  const said = text("description") === "" ? "" : ` - ${cut(text("description"), SENTENCE)}`;
  if (text("name") !== "") return `${text("name")}: ${text("state")}${typeof one.tools === "number" ? `, ${one.tools} tools` : ""}${said}`;
  const sure = typeof one.confidence === "number" ? ` (${(one.confidence * 100).toFixed(0)} %)` : "";
  return text("id") === "" ? "" : `${text("signature") === "" ? text("id") : `${text("server")}:${text("signature")}`}${said}${sure}`;
};

/** Refuses an option that does not exist, with the nearest one that does. */
const checkOptions = (name, options, known) => {
  const has = join(known, ", ");
  if (typeof options !== "object" || isArray(options)) throw new TypeError(`the options of ${name} are an object: { ${has} }`);
  for (const key of ownKeys(options)) {
    let near, best = 3, isKnown = false;
    for (const option of known) {
      if (option === key) isKnown = true;
      const off = typeof key === "string" && key.length < 32 ? distance(key.toLowerCase(), option) : best;
      if (off < best) near = option, best = off;
    }
    if (!isKnown) throw new TypeError(`${name} has no option ${keyText(key)}${near === undefined ? `; it has ${has}` : `; did you mean ${near}?`}`);
  }
};
/** Letters to change, add or drop between two short words. */
const distance = (from, to) => {
  let row = [];
  for (let j = 0; j <= to.length; j++) row[j] = j;
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const swap = row[j - 1] + (from[i - 1] === to[j - 1] ? 0 : 1), other = (row[j] < next[j - 1] ? row[j] : next[j - 1]) + 1;
      next[j] = swap < other ? swap : other;
    }
    row = next;
  }
  return row[to.length];
};

const MESSAGE = 4096, STACK = 8192, NAME = 200, DETAILS = 8192;
const CAUSES = 3, ERRORS = 5;

/** The causes of an error: `cause`, and the errors of an AggregateError. */
const because = (error, depth) => safely(() => {
  if (depth >= CAUSES) return "";
  const own = name => getOwnPropertyDescriptor(error, name)?.value;
  const brief = value => {
    if (!isErrorObject(value)) return cut(show(value), 512);
    const text = name => {
      const found = value[name];
      return typeof found === "string" ? cut(found, 512) : "";
    };
    return `${text("name") || "Error"}: ${text("message")}${because(value, depth + 1)}`;
  };
  let said = "";
  const errors = own("errors");
  if (isArray(errors)) {
    for (let i = 0; i < errors.length && i < ERRORS; i++) said += `; ${i + 1}. ${brief(errors[i])}`;
    if (errors.length > ERRORS) said += `; ${errors.length - ERRORS} more`;
  }
  const cause = own("cause");
  return cause === undefined ? said : `${said}; cause: ${brief(cause)}`;
}, "");

/** Of each tool what came last, for the reader of a TypeError. */
const seenOf = () => safely(() => {
  const seen = [];
  for (let i = 0; i < lasts.length; i++) {
    const { server, tool, times, mixed, kind, size, start, keys } = lasts[i];
    seen[i] = { server: cut(server, NAME), tool: cut(tool, NAME), times, mixed, kind, size, start, keys };
  }
  return stringify({ seen });
}, null);

/** A thrown value as [name, message, stack, facts as JSON or null: of a ToolError, a LimitError, a TypeError]. */
const describe = error => {
  const told = described(error), partial = keptOf(error);
  if (partial !== undefined) told[1] = wellFormed(cut(`${told[1]}; ${partial}`, MESSAGE));
  return told;
};
const described = error => {
  if (typeof error === "unknown") return ["InternalError", "out of memory", "", null];
  if (error === null || (typeof error !== "object" && typeof error !== "function")) {
    return ["Thrown", wellFormed(cut(typeof error === "string" ? error : show(error), MESSAGE)), "", null];
  }
  const text = (name, most) => safely(() => {
    const value = error[name];
    return typeof value === "string" ? wellFormed(cut(value, most)) : "";
  }, "");
  if (!isErrorObject(error)) {
    return [text("name", 128) || "Thrown", text("message", MESSAGE) || wellFormed(cut(show(error), MESSAGE)), "", null];
  }
  let tool = null;
  if (error instanceof ToolError) {
    const details = safely(() => stringify(error.details), undefined);
    tool = safely(() => stringify({
      server: text("server", NAME) || null, tool: text("tool", NAME) || null, code: text("code", NAME) || null,
      retryable: error.retryable === true, message: text("message", MESSAGE),
      details: details === undefined || details.length <= DETAILS ? error.details : `(${details.length} characters of details)`,
    }), null);
  }
  if (error instanceof LimitError) {
    const value = safely(() => error.value, null);
    tool = stringify({ limit: text("limit", NAME) || null, value: typeof value === "number" ? value : null });
  }
  if (error instanceof TypeError) tool = seenOf();
  return [text("name", 128) || "Error", wellFormed(cut(text("message", MESSAGE) + because(error, 0), MESSAGE)), text("stack", STACK), tool];
};

return { show, describe, listing, checkOptions };
}
