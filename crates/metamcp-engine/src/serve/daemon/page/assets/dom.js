// Elements from text, never from markup. Whatever a server, a client or a file said is shown as it is: what cannot be
// seen is spelt out.

// Controls but for tab and line breaks, soft hyphen, marks and overrides of direction, zero width, variation selectors,
// interlinear, tags.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\uffff]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

const spelt = (sign) => `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** The text with what cannot be seen spelt out: for attributes. */
export const visible = (text) => String(text).replace(HIDDEN, (sign) => `⟨${spelt(sign)}⟩`);

/** The same as nodes, with what was spelt out set apart. */
export function shown(text) {
  const all = String(text).replaceAll("\r\n", "\n");
  HIDDEN.lastIndex = 0;
  const isPlain = !HIDDEN.test(all);
  HIDDEN.lastIndex = 0;
  if (isPlain) return [document.createTextNode(all)];
  const nodes = [];
  let from = 0;
  for (const found of all.matchAll(HIDDEN)) {
    if (found.index > from) nodes.push(document.createTextNode(all.slice(from, found.index)));
    const mark = document.createElement("span");
    mark.className = "unseen";
    mark.textContent = spelt(found[0]);
    nodes.push(mark);
    from = found.index + found[0].length;
  }
  if (from < all.length) nodes.push(document.createTextNode(all.slice(from)));
  return nodes;
}

// No other attribute is ever set, so no text becomes a handler or a style.
const ATTRIBUTES = new Set([
  "class", "id", "for", "type", "name", "value", "placeholder", "title", "role", "scope", "tabindex", "colspan", "rows",
  "min", "max", "step", "minlength", "autocomplete", "spellcheck", "rel", "target", "hidden", "disabled", "required",
  "checked", "selected", "open", "multiple", "inputmode", "dir", "lang", "datetime", "width", "height",
]);

/** An element: attributes, `on` for listeners, children as text or nodes. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "href") {
      // Our own pages, and addresses that the gateway checked.
      const at = String(value);
      if (at.startsWith("#/") || at.startsWith("https:") || /^http:\/\/(127\.0\.0\.1|localhost)[:/]/.test(at)) {
        element.setAttribute("href", at);
      }
    } else if (name.startsWith("aria-") || name.startsWith("data-") || ATTRIBUTES.has(name)) {
      element.setAttribute(name, value === true ? "" : visible(value));
    }
  }
  add(element, children);
  return element;
}

/** Appends text and nodes, however deep their lists are. */
export function add(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    if (child instanceof Node) element.append(child);
    else element.append(...shown(child));
  }
  return element;
}

/** Replaces what is in an element. */
export function put(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

const SVG = "http://www.w3.org/2000/svg";

/** An element of a drawing; its attributes are numbers and words of ours. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, visible(value));
  for (const child of children.flat()) element.append(child);
  return element;
}

/** A table with a caption and headers; `columns` are `[title, cell of a row, class]`. */
export function table(caption, columns, { id } = {}) {
  const body = h("tbody");
  const head = columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title));
  const node = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { id }, h("caption", { class: "unseen-caption" }, caption), h("thead", {}, h("tr", {}, head)), body));
  const known = new Map();
  /** Shows these rows, and touches only those that changed. */
  const fill = (rows, keyOf) => {
    const wanted = new Set();
    let last = null;
    for (const row of rows) {
      const key = keyOf(row);
      wanted.add(key);
      const print = JSON.stringify(row);
      let line = known.get(key);
      if (line === undefined || line.print !== print) {
        const fresh = h("tr", {}, columns.map(([title, cell, kind], at) =>
          h(at === 0 ? "th" : "td", { class: kind, scope: at === 0 ? "row" : undefined, "data-title": title }, cell(row))));
        const focused = line?.node.contains(document.activeElement) ? document.activeElement.textContent : null;
        line?.node.replaceWith(fresh);
        line = { node: fresh, print };
        known.set(key, line);
        if (focused !== null) {
          [...fresh.querySelectorAll("a,button")].find((one) => one.textContent === focused)?.focus();
        }
      }
      const place = last === null ? body.firstChild : last.nextSibling;
      if (place !== line.node) body.insertBefore(line.node, place);
      last = line.node;
    }
    for (const [key, line] of known) {
      if (!wanted.has(key)) {
        line.node.remove();
        known.delete(key);
      }
    }
  };
  return { node, fill };
}

/** A small word with a colour and a shape, so that the colour is not all that tells. */
export function badge(word, tone = "plain") {
  return h("span", { class: `badge ${tone}` }, h("span", { class: "sign", "aria-hidden": "true" }), word);
}

/** What is shown where there is nothing yet. */
export const empty = (words, ...more) => h("div", { class: "empty" }, h("p", {}, words), more);

export const code = (words) => h("code", {}, words);

/** A title and what belongs to it. */
export function card(title, ...children) {
  const id = `c${(card.count = (card.count ?? 0) + 1)}`;
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** Pairs of a name and a value. */
export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

/** Long text in pieces, so that a megabyte does not stall the page. */
export function long(text, { most = 20_000, label } = {}) {
  const all = typeof text === "string" ? text : JSON.stringify(text, null, 2) ?? "";
  const pre = h("pre", { tabindex: 0, role: "region", "aria-label": label ?? "Text" }, all.slice(0, most));
  if (all.length <= most) return pre;
  let at = most;
  const more = h("button", { type: "button", on: { click: () => {
    add(pre, all.slice(at, at + most));
    at += most;
    if (at >= all.length) more.remove();
    else more.textContent = `Show more (${count(all.length - at)} characters left)`;
  } } }, `Show more (${count(all.length - most)} characters left)`);
  return h("div", {}, pre, more);
}

// -- numbers as people read them --

const plain = new Intl.NumberFormat("en-US");
export const count = (number) => (number === undefined || number === null ? "–" : plain.format(number));
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

export function micros(us) {
  if (us === undefined || us === null) return "–";
  if (us < 1_000) return `${Math.round(us)} µs`;
  if (us < 10_000) return `${(us / 1_000).toFixed(1)} ms`;
  if (us < 1_000_000) return `${Math.round(us / 1_000)} ms`;
  return us < 100_000_000 ? `${(us / 1_000_000).toFixed(1)} s` : age(us / 1_000);
}

export function age(ms) {
  if (ms === undefined || ms === null) return "–";
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} days`;
}

export function bytes(number) {
  if (number === undefined || number === null) return "–";
  if (number < 1_000) return `${number} B`;
  if (number < 1_000_000) return `${(number / 1e3).toFixed(1)} kB`;
  return number < 1e9 ? `${(number / 1e6).toFixed(1)} MB` : `${(number / 1e9).toFixed(1)} GB`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A time of day, with the date for who asks. */
export function time(ms) {
  if (!ms) return "–";
  const at = new Date(ms);
  return h("time", { datetime: at.toISOString(), title: day.format(at) }, clock.format(at));
}
