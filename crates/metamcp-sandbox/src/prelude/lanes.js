// `parallel`: bounded concurrency. `own` has the builtins captured before any guest code ran.
own => {
"use strict";

const { TypeError } = own.globals;
const { NativePromise, arrayFrom, push, then, min, max, floor, partials, iterator, asyncIterator } = own;

const spread = async (items, each, limit, failed) => {
  if (items !== null && typeof items === "object" && typeof items[asyncIterator] === "function") {
    const all = [];
    for await (const item of items) push(all, item);
    items = all;
  }
  if (items === null || items === undefined || typeof items[iterator] !== "function") {
    const given = items === null ? "null" : typeof items === "object" ? "an object" : `a ${typeof items}`;
    throw new TypeError(`parallel takes a list of items, not ${items === undefined ? "nothing" : given}`);
  }
  const list = arrayFrom(items);
  if (each !== undefined && each !== null && typeof each !== "function" && typeof each !== "number") {
    throw new TypeError(`the second argument of parallel is a function of an item, not ${typeof each === "object" ? "an object" : `a ${typeof each}`}`);
  }
  const run = typeof each === "function" ? each : task => typeof task === "function" ? task() : task;
  if (typeof each === "number") limit = each;
  if (typeof limit !== "number") throw new TypeError("the third argument of parallel is how many run at once, a number: parallel(items, fn, 8)");
  limit = min(max(floor(+limit) || 1, 1), 64, max(list.length, 1));
  const results = [];
  const group = partials.open(list.length);
  let next = 0, stop = false;
  const lane = async () => {
    while (!stop && next < list.length) {
      const index = next++;
      try {
        const value = await run(await list[index], index);
        results[index] = failed ? { status: "fulfilled", value } : value;
        if (!stop) partials.item(group, index, true, value);
      } catch (reason) {
        if (!stop) partials.item(group, index, false, reason);
        if (!failed) {
          stop = true;
          throw reason;
        }
        results[index] = { status: "rejected", reason };
      }
    }
  };
  const lanes = [];
  for (let i = 0; i < limit; i++) lanes[i] = lane();
  try {
    await new NativePromise((resolve, reject) => {
      let left = lanes.length;
      for (let i = 0; i < lanes.length; i++) then(lanes[i], () => { left -= 1; if (left === 0) resolve(); }, reject);
    });
  } catch (reason) {
    await partials.failed(group, reason);
    throw reason;
  }
  partials.ended(group);
  return results;
};
return spread;
}
