// URL and URLSearchParams: the WHATWG rules for http, https, ws, wss and ftp, and the plain ones for any other scheme.
own => {
"use strict";

const { decoder } = own;
const { Boolean, Math, Number, Object, String, Symbol, TypeError, Uint8Array, decodeURIComponent, encodeURIComponent, parseInt } = own.globals;

const PORTS = { __proto__: null, "http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21", "file:": "" };
const escapeSet = (text, keep) => {
  let out = "";
  for (const character of text.toWellFormed()) {
    if (keep(character)) out += character;
    else if (character.charCodeAt(0) < 128) out += "%" + character.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0");
    else out += encodeURIComponent(character);
  }
  return out;
};
const printable = character => character > " " && character < "\x7f";
const inPath = text => escapeSet(text, c => printable(c) && !"\"#<>?`{}^".includes(c));
const inQuery = text => escapeSet(text, c => printable(c) && !"\"#<>'".includes(c));
const inHash = text => escapeSet(text, c => printable(c) && !"\"<>`".includes(c));
const inUser = text => escapeSet(text, c => printable(c) && !"\"#<>?`{}/:;=@[]^|\\".includes(c));

const fail = text => {
  throw new TypeError(`Invalid URL: ${text}`);
};

const number = text => {
  if (text === "") return NaN;
  if (/^0[xX][0-9a-fA-F]*$/.test(text)) return text.length === 2 ? 0 : parseInt(text.slice(2), 16);
  if (/^0[0-7]+$/.test(text)) return parseInt(text, 8);
  return /^[0-9]+$/.test(text) ? Number(text) : NaN;
};

/** A host of a special scheme: a name in lower case, an IPv4 address in four parts, IPv6 in brackets. */
const hostOf = (text, whole) => {
  if (text[0] === "[") {
    if (!/^\[[0-9a-fA-F:.]+\]$/.test(text) || !text.includes(":")) fail(whole);
    return text.toLowerCase();
  }
  let host;
  try {
    host = decodeURIComponent(text).toLowerCase();
  } catch {
    fail(whole);
  }
  if (host === "" || /[\x00-\x20#%/:<>?@[\\\]^|\x7f]/.test(host)) fail(whole);
  const parts = host.split(".");
  if (parts.length > 1 && parts.at(-1) === "") parts.pop();
  if (/^([0-9]+|0x[0-9a-f]*)$/.test(parts.at(-1))) {
    const numbers = parts.map(number);
    const last = numbers.pop();
    if (parts.length > 4 || numbers.some(n => !(n <= 255)) || !(last < 256 ** (4 - numbers.length))) fail(whole);
    let address = last;
    numbers.forEach((n, i) => { address += n * 256 ** (3 - i); });
    return [24, 16, 8, 0].map(shift => Math.floor(address / 2 ** shift) % 256).join(".");
  }
  return host;
};

const withoutDots = path => {
  const out = [];
  const segments = path.split("/").slice(1);
  segments.forEach((segment, i) => {
    const plain = segment.toLowerCase().replaceAll("%2e", ".");
    const last = i === segments.length - 1;
    if (plain === "..") {
      out.pop();
      if (last) out.push("");
    } else if (plain === ".") {
      if (last) out.push("");
    } else {
      out.push(segment);
    }
  });
  return "/" + out.join("/");
};

const parse = (input, base) => {
  const text = String(input).replace(/^[\x00-\x20]+|[\x00-\x20]+$/g, "").replace(/[\t\n\r]/g, "");
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(text);
  if (scheme === null || (base !== undefined && scheme[1].toLowerCase() + ":" === base.protocol && base.protocol in PORTS && !/^[/\\]/.test(text.slice(scheme[0].length)))) {
    if (base === undefined) fail(text);
    return relative(scheme === null ? text : text.slice(scheme[0].length), base);
  }
  const protocol = scheme[1].toLowerCase() + ":";
  const rest = text.slice(scheme[0].length);
  if (protocol in PORTS) return authority(protocol, rest.replace(/^[/\\]*/, ""), text);
  if (rest.startsWith("//")) return authority(protocol, rest.slice(2), text);
  const { body, search, hash } = tail(rest);
  return { protocol, username: "", password: "", hostname: null, port: "", pathname: body[0] === "/" ? withoutDots(inPath(body)) : escapeSet(body, c => c >= " " && c < "\x7f"), search, hash };
};

const tail = text => {
  let search = "", hash = "";
  let at = text.indexOf("#");
  if (at >= 0) {
    hash = at + 1 < text.length ? "#" + inHash(text.slice(at + 1)) : "";
    text = text.slice(0, at);
  }
  at = text.indexOf("?");
  if (at >= 0) {
    search = at + 1 < text.length ? "?" + inQuery(text.slice(at + 1)) : "";
    text = text.slice(0, at);
  }
  return { body: text, search, hash };
};

const authority = (protocol, text, whole) => {
  const special = protocol in PORTS;
  const end = text.search(special ? /[/\\?#]/ : /[/?#]/);
  let host = end < 0 ? text : text.slice(0, end);
  const { body, search, hash } = tail(end < 0 ? "" : text.slice(end));
  let username = "", password = "";
  const at = host.lastIndexOf("@");
  if (at >= 0) {
    const colon = host.slice(0, at).indexOf(":");
    username = inUser(host.slice(0, colon < 0 ? at : colon));
    password = colon < 0 ? "" : inUser(host.slice(colon + 1, at));
    host = host.slice(at + 1);
  }
  let port = "";
  const colon = /:([0-9]*)$/.exec(host);
  if (colon !== null && !(host[0] === "[" && !host.slice(0, colon.index).endsWith("]"))) {
    host = host.slice(0, colon.index);
    port = colon[1] === "" ? "" : String(Number(colon[1]));
    if (Number(port) > 65535) fail(whole);
    if (port === PORTS[protocol]) port = "";
  }
  const hostname = special ? protocol === "file:" && host === "" ? "" : hostOf(host, whole) : host;
  const path = inPath(special ? body.replaceAll("\\", "/") : body);
  return { protocol, username, password, hostname, port, pathname: path === "" ? special ? "/" : "" : withoutDots(path), search, hash };
};

const relative = (text, base) => {
  const special = base.protocol in PORTS;
  if (special) text = text.replace(/^[^?#]*/, path => path.replaceAll("\\", "/"));
  if (base.hostname === null && base.pathname[0] !== "/" && text[0] !== "#") fail(text);
  if (text.startsWith("//")) return authority(base.protocol, text.slice(2), text);
  const { body, search, hash } = tail(text);
  const made = { ...base, hash };
  if (body === "") {
    if (text[0] === "?") made.search = search;
    return made;
  }
  made.search = search;
  made.pathname = withoutDots(body[0] === "/" ? inPath(body) : base.pathname.slice(0, base.pathname.lastIndexOf("/") + 1) + inPath(body));
  return made;
};

const formEncode = text => escapeSet(text, c => /[A-Za-z0-9*\-._ ]/.test(c)).replaceAll(" ", "+");
const formDecode = text => {
  text = text.replaceAll("+", " ");
  try {
    return decodeURIComponent(text);
  } catch {
    return text.replace(/(%[0-9a-fA-F]{2})+/g, run => new (decoder())().decode(Uint8Array.from(run.slice(1).split("%"), pair => parseInt(pair, 16))));
  }
};

let changed = () => undefined;
class URLSearchParams {
  #list = []; #owner = null;
  constructor(init = "") {
    if (init !== null && typeof init === "object" || typeof init === "function") {
      if (typeof init[Symbol.iterator] === "function") {
        for (const pair of init) {
          const entry = [...pair];
          if (entry.length !== 2) throw new TypeError("each entry must be a name and a value");
          this.#list.push([String(entry[0]), String(entry[1])]);
        }
      } else {
        for (const name of Object.keys(init)) this.#list.push([name, String(init[name])]);
      }
    } else {
      this.#read(String(init));
    }
  }
  #read(text) {
    this.#list = text.replace(/^\?/, "").split("&").filter(part => part !== "").map(part => {
      const at = part.indexOf("=");
      return at < 0 ? [formDecode(part), ""] : [formDecode(part.slice(0, at)), formDecode(part.slice(at + 1))];
    });
  }
  static {
    changed = (params, owner, text) => {
      params.#owner = owner;
      params.#read(text);
    };
  }
  #say() { this.#owner?.(this.toString()); }
  get size() { return this.#list.length; }
  append(name, value) { this.#list.push([String(name), String(value)]); this.#say(); }
  delete(name, value) {
    this.#list = this.#list.filter(pair => pair[0] !== String(name) || value !== undefined && pair[1] !== String(value));
    this.#say();
  }
  get(name) { return this.#list.find(pair => pair[0] === String(name))?.[1] ?? null; }
  getAll(name) { return this.#list.filter(pair => pair[0] === String(name)).map(pair => pair[1]); }
  has(name, value) { return this.#list.some(pair => pair[0] === String(name) && (value === undefined || pair[1] === String(value))); }
  set(name, value) {
    const found = this.#list.find(pair => pair[0] === String(name));
    if (found === undefined) {
      this.#list.push([String(name), String(value)]);
    } else {
      found[1] = String(value);
      this.#list = this.#list.filter(pair => pair === found || pair[0] !== String(name));
    }
    this.#say();
  }
  sort() { this.#list.sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0); this.#say(); }
  forEach(each, self) { for (const [name, value] of this.#list) each.call(self, value, name, this); }
  *entries() { for (const pair of this.#list) yield [...pair]; }
  *keys() { for (const pair of this.#list) yield pair[0]; }
  *values() { for (const pair of this.#list) yield pair[1]; }
  [Symbol.iterator]() { return this.entries(); }
  toString() { return this.#list.map(([name, value]) => `${formEncode(name)}=${formEncode(value)}`).join("&"); }
}

class URL {
  #parts; #params = new URLSearchParams();
  constructor(input, base) {
    this.#parts = parse(input, base === undefined ? undefined : parse(base));
    this.#refresh();
  }
  #refresh() {
    changed(this.#params, text => { this.#parts.search = text === "" ? "" : "?" + text; }, this.#parts.search);
  }
  static canParse(input, base) {
    try {
      return Boolean(new URL(input, base));
    } catch {
      return false;
    }
  }
  static parse(input, base) { return URL.canParse(input, base) ? new URL(input, base) : null; }
  get href() {
    const { protocol, username, password, hostname, port, pathname, search, hash } = this.#parts;
    const user = username === "" && password === "" ? "" : `${username}${password === "" ? "" : ":" + password}@`;
    return protocol + (hostname === null ? "" : `//${user}${hostname}${port === "" ? "" : ":" + port}`) + pathname + search + hash;
  }
  set href(text) { this.#parts = parse(text); this.#refresh(); }
  get origin() { const { protocol } = this.#parts; return protocol in PORTS && protocol !== "file:" ? `${protocol}//${this.host}` : "null"; }
  get protocol() { return this.#parts.protocol; }
  set protocol(text) {
    const word = /^([A-Za-z][A-Za-z0-9+.-]*):?$/.exec(text)?.[1].toLowerCase();
    if (word !== undefined && (word + ":" in PORTS) === (this.protocol in PORTS)) {
      this.#parts.protocol = word + ":";
      if (this.port === PORTS[this.protocol]) this.#parts.port = "";
    }
  }
  get username() { return this.#parts.username; }
  set username(text) { if (this.#parts.hostname) this.#parts.username = inUser(String(text)); }
  get password() { return this.#parts.password; }
  set password(text) { if (this.#parts.hostname) this.#parts.password = inUser(String(text)); }
  get host() { const { hostname, port } = this.#parts; return (hostname ?? "") + (port === "" ? "" : ":" + port); }
  set host(text) { this.#setHost(String(text), true); }
  get hostname() { return this.#parts.hostname ?? ""; }
  set hostname(text) { this.#setHost(String(text), false); }
  #setHost(text, withPort) {
    if (this.#parts.hostname === null || /[/\\?#@]/.test(text)) return;
    try {
      const { hostname, port } = authority(this.protocol, text, text);
      this.#parts.hostname = hostname;
      if (withPort && /:[0-9]+$/.test(text)) this.#parts.port = port;
    } catch {
      // Setters ignore an invalid host, as the standard says.
    }
  }
  get port() { return this.#parts.port; }
  set port(text) {
    const digits = /^[0-9]*/.exec(String(text))[0];
    if (!this.#parts.hostname || Number(digits) > 65535 || digits === "" && String(text) !== "") return;
    this.#parts.port = digits === "" || String(Number(digits)) === PORTS[this.protocol] ? "" : String(Number(digits));
  }
  get pathname() { return this.#parts.pathname; }
  set pathname(text) {
    if (this.#parts.hostname === null && this.pathname[0] !== "/") return;
    text = inPath(String(text));
    this.#parts.pathname = withoutDots(text[0] === "/" ? text : "/" + text);
  }
  get search() { return this.#parts.search; }
  set search(text) {
    text = String(text).replace(/^\?/, "");
    this.#parts.search = text === "" ? "" : "?" + inQuery(text);
    this.#refresh();
  }
  get searchParams() { return this.#params; }
  get hash() { return this.#parts.hash; }
  set hash(text) {
    text = String(text).replace(/^#/, "");
    this.#parts.hash = text === "" ? "" : "#" + inHash(text);
  }
  toString() { return this.href; }
  toJSON() { return this.href; }
}

return { URL, URLSearchParams };
}
