// Freezes the builtins, so that our functions use the originals whatever a script does.
// `own` has the builtins captured by the core. Returns the function that freezes what is created later.
own => {
"use strict";

const { global, console, ownKeys, getPrototypeOf, getOwnPropertyDescriptor, defineProperty, freeze, hasName, plain, Error, ToolError, TypeError, WeakSet, Object, Function } = own;
const has = plain(WeakSet.prototype.has), add = plain(WeakSet.prototype.add);

/** A property of a frozen prototype that inheriting objects can still override by assignment: `this.name = "MyError"`.
 * A frozen data property would forbid that (the override mistake); a setter defines it on the receiver. */
const yielding = (prototype, key) => {
  const found = getOwnPropertyDescriptor(prototype, key);
  if (found === undefined || !found.configurable || !hasName(found, "value")) return;
  const { value, enumerable } = found;
  defineProperty(prototype, key, {
    get: () => value,
    set(other) {
      const isOwn = this !== prototype && this !== null && (typeof this === "object" || typeof this === "function")
        && defineProperty(this, key, { value: other, writable: true, enumerable: true, configurable: true });
      if (!isOwn) throw new TypeError("what the language brings along cannot be changed here");
    },
    enumerable,
    configurable: false,
  });
};

// Stack traces stay text: `prepareStackTrace` would expose the functions of frames.
let site;
Error.prepareStackTrace = (_, frames) => { site = frames[0]; };
new Error();
Error.prepareStackTrace = undefined;
defineProperty(Error, "prepareStackTrace", { get: () => undefined, set: () => {}, enumerable: false, configurable: false });

/** Visited, or not to be frozen: the global object and the console are the script's own. */
const done = new WeakSet();
add(done, global);
add(done, console);

/** Freezes a value and whatever can be reached from it. */
const harden = root => {
  const list = [root];
  for (let i = 0; i < list.length; i++) {
    const value = list[i];
    if (value === null || (typeof value !== "object" && typeof value !== "function") || has(done, value)) continue;
    add(done, value);
    freeze(value);
    list[list.length] = getPrototypeOf(value);
    const keys = ownKeys(value);
    for (let j = 0; j < keys.length; j++) {
      const found = getOwnPropertyDescriptor(value, keys[j]);
      list[list.length] = found.value;
      list[list.length] = found.get;
      list[list.length] = found.set;
    }
  }
  return root;
};

for (const key of ownKeys(Object.prototype)) yielding(Object.prototype, key);
yielding(Function.prototype, "toString");
const names = ownKeys(global);
for (let i = 0; i < names.length; i++) {
  const found = getOwnPropertyDescriptor(global, names[i])?.value;
  if (typeof found === "function" && found.prototype instanceof Error || found === Error || found === ToolError) {
    for (const key of ["constructor", "name", "message", "toString"]) yielding(found.prototype, key);
  }
}

// Freezing a value freezes its prototypes too.
if (site !== undefined) {
  const frames = getPrototypeOf(site);
  delete frames.getFunction;
  delete frames.getThis;
  harden(frames);
}
for (let i = 0; i < names.length; i++) {
  const found = getOwnPropertyDescriptor(global, names[i]);
  if (hasName(found, "value")) harden(found.value);
}
// Intrinsics that no global names.
harden([
  (async () => {}).constructor, (function* () {}).constructor, (async function* () {}).constructor,
  (function* () {})(), (async function* () {})(), [][Symbol.iterator](), ""[Symbol.iterator](), new Map()[Symbol.iterator](),
  new Set()[Symbol.iterator](), "".matchAll(/x/g), Iterator.from({ next() {} }), [].values().map(x => x),
  getOwnPropertyDescriptor(function () { return arguments; }(), "callee"),
]);
return harden;
}
