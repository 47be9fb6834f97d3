// Formatting of console values and thrown errors. `own` has the builtins captured before any guest code ran.
own => {
"use strict";

const {
  stringify, ownKeys, getPrototypeOf, getOwnPropertyDescriptor, isArray, objectPrototype, max,
  NativePromise, NativeMap, NativeSet, NativeString, NativeDate, NativeRegExp,
  join, push, wellFormed, symbolText, isoDate, expressionText, isErrorObject, is,
  cut, limits, ToolError, serverOf,
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

/** A thrown value as [name, message, stack, the ToolError as JSON or null]. */
const describe = error => {
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
  return [text("name", 128) || "Error", wellFormed(cut(text("message", MESSAGE) + because(error, 0), MESSAGE)), text("stack", STACK), tool];
};

return { show, describe };
}
