// structuredClone of data: plain objects, arrays, Map, Set, Date, RegExp, errors, bytes, boxed values, cycles.
own => {
"use strict";

const {
  Array, ArrayBuffer, BigInt, Boolean, DOMException, DataView, Date, Error, EvalError, Map, Number, Object, Promise, RangeError,
  ReferenceError, RegExp, Set, String, SyntaxError, TypeError, URIError, WeakMap, WeakRef, WeakSet,
} = own.globals;

const refuse = what => {
  throw new DOMException(`${what} cannot be cloned`, "DataCloneError");
};

const structuredClone = (value, options) => {
  if (options?.transfer?.length > 0) refuse("a transferred value");
  const seen = new Map();
  const copy = value => {
    if (typeof value === "function") refuse(`the function ${value.name || "(anonymous)"}`);
    if (typeof value === "symbol") refuse("a symbol");
    if (value === null || typeof value !== "object") return value;
    if (seen.has(value)) return seen.get(value);
    const keep = made => {
      seen.set(value, made);
      return made;
    };
    if (Array.isArray(value)) {
      const made = keep(new Array(value.length));
      for (const key of Object.keys(value)) made[key] = copy(value[key]);
      return made;
    }
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof Map) {
      const made = keep(new Map());
      for (const [key, item] of [...value]) made.set(copy(key), copy(item));
      return made;
    }
    if (value instanceof Set) {
      const made = keep(new Set());
      for (const item of [...value]) made.add(copy(item));
      return made;
    }
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (ArrayBuffer.isView(value)) {
      const buffer = copy(value.buffer);
      const length = value instanceof DataView ? value.byteLength : value.length;
      return keep(new value.constructor(buffer, value.byteOffset, length));
    }
    if (value instanceof Error) {
      const kinds = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
      const made = keep(new (Object.hasOwn(kinds, value.name) ? kinds[value.name] : Error)(value.message));
      if (typeof value.stack === "string") Object.defineProperty(made, "stack", { value: value.stack, writable: true, configurable: true });
      if ("cause" in value) Object.defineProperty(made, "cause", { value: copy(value.cause), writable: true, configurable: true });
      return made;
    }
    if (value instanceof Boolean || value instanceof Number || value instanceof String || value instanceof BigInt) return keep(Object(value.valueOf()));
    if (value instanceof Promise) refuse("a promise");
    if (value instanceof WeakMap || value instanceof WeakSet || value instanceof WeakRef) refuse("a weak collection");
    const made = keep({});
    for (const key of Object.keys(value)) {
      Object.defineProperty(made, key, { value: copy(value[key]), writable: true, enumerable: true, configurable: true });
    }
    return made;
  };
  return copy(value);
};

return { structuredClone };
}
