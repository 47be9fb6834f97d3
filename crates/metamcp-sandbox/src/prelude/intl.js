// A subset of Intl for en-US. Other locales are accepted and formatted the same way.
own => {
"use strict";

const { BigInt, Boolean, Date, Map, Math, Number, Object, Proxy, RangeError, String, TypeError } = own.globals;

const SYMBOLS = { __proto__: null, USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", ILS: "₪", VND: "₫", NZD: "NZ$" };
const WHOLE = { __proto__: null, JPY: 1, KRW: 1, VND: 1 };
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const grouped = digits => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

class NumberFormat {
  #options; #bound;
  constructor(locale, options) {
    options ??= {};
    const style = options.style ?? "decimal";
    const currency = String(options.currency ?? "").toUpperCase();
    if (style === "currency" && !/^[A-Z]{3}$/.test(currency)) throw new TypeError("the currency style needs a currency code");
    const usual = style === "currency" ? currency in WHOLE ? 0 : 2 : 0;
    const least = options.minimumFractionDigits ?? (options.maximumFractionDigits === undefined ? usual : Math.min(usual, options.maximumFractionDigits));
    const compact = options.notation === "compact";
    const most = options.maximumFractionDigits ?? Math.max(least, style === "currency" ? usual : style === "percent" || compact ? 0 : 3);
    if (!(least >= 0 && most >= least && most <= 100)) throw new RangeError("the number of fraction digits is out of range");
    this.#options = { ...options, style, currency, least, most, compact, grouping: options.useGrouping ?? true };
  }
  #fixed(value, least, most) {
    let [whole, fraction = ""] = value.toFixed(most).split(".");
    while (fraction.length > least && fraction.endsWith("0")) fraction = fraction.slice(0, -1);
    return (this.#options.grouping === false ? whole : grouped(whole)) + (fraction === "" ? "" : "." + fraction);
  }
  get format() { return this.#bound ??= value => this.#format(value); }
  #format(value) {
    const { style, currency, least, most, compact, unit } = this.#options;
    if (typeof value === "bigint") {
      if (style === "decimal") return (value < 0n ? "-" : "") + grouped(String(value < 0n ? -value : value));
      value = Number(value);
    }
    value = Number(value);
    const sign = value < 0 || Object.is(value, -0) ? "-" : this.#options.signDisplay === "always" || this.#options.signDisplay === "exceptZero" && value !== 0 ? "+" : "";
    let size = Math.abs(value), text;
    if (style === "percent") size *= 100;
    if (Number.isNaN(size)) text = "NaN";
    else if (size === Infinity) text = "∞";
    else if (compact && size >= 1000) {
      const step = Math.min(4, Math.floor(Math.log10(size) / 3));
      const scaled = size / 1000 ** step;
      text = this.#fixed(scaled, least, this.#options.maximumFractionDigits ?? (scaled < 100 ? 1 : 0)) + ["", "K", "M", "B", "T"][step];
    } else if (this.#options.maximumSignificantDigits !== undefined) text = this.#fixed(Number(size.toPrecision(this.#options.maximumSignificantDigits)), 0, 20);
    else if (size >= 1e21) text = grouped(BigInt(size).toString());
    else text = this.#fixed(size, least, compact && this.#options.maximumFractionDigits === undefined ? size < 100 ? 1 : 0 : most);
    if (style === "percent") return `${sign}${text}%`;
    if (style === "currency") return this.#options.currencyDisplay === "code" ? `${sign}${currency} ${text}` : `${sign}${SYMBOLS[currency] ?? currency + " "}${text}`;
    if (style === "unit") return `${sign}${text} ${unit}`;
    return sign + text;
  }
  resolvedOptions() { const { style, least, most } = this.#options; return { locale: "en-US", numberingSystem: "latn", style, minimumFractionDigits: least, maximumFractionDigits: most }; }
}

const two = value => String(value).padStart(2, "0");
const STYLES = {
  __proto__: null,
  full: { weekday: "long", year: "numeric", month: "long", day: "numeric" },
  long: { year: "numeric", month: "long", day: "numeric" },
  medium: { year: "numeric", month: "short", day: "numeric" },
  short: { year: "2-digit", month: "numeric", day: "numeric" },
};
const DATE = ["weekday", "year", "month", "day"], TIME = ["dayPeriod", "hour", "minute", "second", "fractionalSecondDigits"];
const NUMERIC_DATE = { year: "numeric", month: "numeric", day: "numeric" };
const NUMERIC_TIME = { hour: "numeric", minute: "2-digit", second: "2-digit" };
/** Locales with ISO 8601 dates, which is why scripts use them. */
const STANDARD = /^(en-ca|sv)\b/i;

/** The requested fields, or the defaults if none was requested. */
const wanted = (options, required, usual) => {
  const has = names => names.some(name => options[name] !== undefined);
  if (options.dateStyle !== undefined || options.timeStyle !== undefined) {
    if (required === "date" && options.timeStyle !== undefined || required === "time" && options.dateStyle !== undefined) {
      throw new TypeError(`a ${required} alone has no ${required === "date" ? "timeStyle" : "dateStyle"}`);
    }
    return { ...options };
  }
  const asked = required !== "time" && has(DATE) || required !== "date" && has(TIME);
  if (asked) return { ...options };
  return { ...options, ...(usual === "time" ? {} : NUMERIC_DATE), ...(usual === "date" ? {} : NUMERIC_TIME) };
};

const offsetText = minutes => `${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;

/** Minutes east of UTC; undefined for the local time zone. */
const zoneOf = zone => {
  if (zone === undefined) return undefined;
  zone = String(zone);
  if (/^((etc\/)?(utc|gmt|uct|zulu|universal|greenwich)|z)$/i.test(zone)) return 0;
  const offset = /^([+-])(\d\d)(?::?(\d\d))?$/.exec(zone);
  if (offset !== null && +offset[2] < 24 && +(offset[3] ?? 0) < 60) return (offset[1] === "-" ? -1 : 1) * (+offset[2] * 60 + +(offset[3] ?? 0));
  // Their sign is the other way round.
  const etc = /^etc\/gmt([+-])(\d\d?)$/i.exec(zone);
  if (etc !== null && +etc[2] <= 14) return (etc[1] === "-" ? 60 : -60) * +etc[2];
  throw new RangeError(`the time zone ${zone.slice(0, 64)} is not known here, only UTC, offsets such as +02:00, and that of the machine (leave timeZone out)`);
};

class DateTimeFormat {
  #options; #zone; #standard; #bound;
  constructor(locale, options) {
    options ??= {};
    this.#zone = zoneOf(options.timeZone);
    this.#standard = STANDARD.test(String([locale].flat()[0] ?? ""));
    const shown = wanted(options, "any", "date");
    if (options.dateStyle !== undefined) Object.assign(shown, STYLES[options.dateStyle]);
    if (options.timeStyle !== undefined) Object.assign(shown, NUMERIC_TIME, options.timeStyle === "short" ? { second: undefined } : {});
    if (options.timeStyle === "full" || options.timeStyle === "long") shown.timeZoneName ??= "short";
    this.#options = shown;
  }
  get format() { return this.#bound ??= value => this.#format(value); }
  #format(value) {
    const given = value === undefined ? new Date() : new Date(value);
    if (Number.isNaN(given.getTime())) throw new RangeError("Invalid time value");
    const date = this.#zone === undefined ? given : new Date(given.getTime() + this.#zone * 60000);
    const at = name => this.#zone === undefined ? date[`get${name}`]() : date[`getUTC${name}`]();
    const want = this.#options;
    const year = want.year === undefined ? "" : want.year === "2-digit" ? two(at("FullYear") % 100) : String(at("FullYear"));
    const day = want.day === undefined ? "" : want.day === "2-digit" ? two(at("Date")) : String(at("Date"));
    const named = (names, index, width) => width === "long" ? names[index] : names[index].slice(0, width === "narrow" ? 1 : 3);
    const weekday = want.weekday === undefined ? "" : named(DAYS, at("Day"), want.weekday);
    let text = "";
    if (want.month === "long" || want.month === "short" || want.month === "narrow") {
      const month = named(MONTHS, at("Month"), want.month);
      text = [weekday, [month, day].filter(Boolean).join(" "), year].filter(Boolean).join(", ");
      if (day === "" && year !== "") text = [weekday, `${month} ${year}`].filter(Boolean).join(", ");
    } else {
      const month = want.month === undefined ? "" : want.month === "2-digit" ? two(at("Month") + 1) : String(at("Month") + 1);
      const parts = this.#standard ? [year, month && two(month), day && two(day)].filter(Boolean).join("-") : [month, day, year].filter(Boolean).join("/");
      text = [weekday, parts].filter(Boolean).join(", ");
    }
    if (want.hour !== undefined || want.minute !== undefined || want.second !== undefined) {
      const half = want.hour12 ?? !(want.hourCycle === "h23" || want.hourCycle === "h24");
      const hours = at("Hours"), shown = half ? hours % 12 || 12 : hours;
      const parts = [];
      if (want.hour !== undefined) parts.push(want.hour === "2-digit" || !half ? two(shown) : String(shown));
      if (want.minute !== undefined) parts.push(two(at("Minutes")));
      if (want.second !== undefined) parts.push(two(at("Seconds")));
      let time = parts.join(":");
      if (want.fractionalSecondDigits > 0) time += "." + String(at("Milliseconds")).padStart(3, "0").slice(0, want.fractionalSecondDigits);
      if (half && want.hour !== undefined) time += hours < 12 ? " AM" : " PM";
      text = text === "" ? time : `${text}${want.dateStyle === "full" || want.dateStyle === "long" ? " at" : ","} ${time}`;
    }
    if (want.timeZoneName !== undefined) {
      const east = this.#zone ?? -given.getTimezoneOffset();
      text += east === 0 ? " UTC" : ` GMT${east < 0 ? "-" : "+"}${Math.floor(Math.abs(east) / 60)}${east % 60 === 0 ? "" : ":" + two(Math.abs(east) % 60)}`;
    }
    return text;
  }
  resolvedOptions() {
    // The name of the local time zone is unknown here; its offset stands in.
    const east = this.#zone ?? -new Date().getTimezoneOffset();
    return { locale: "en-US", calendar: "gregory", numberingSystem: "latn", timeZone: east === 0 ? "UTC" : offsetText(east) };
  }
}

/** `Date.prototype.toLocaleString` and its date and time variants. */
const dateText = (date, locale, options, required, usual) => {
  const time = Date.prototype.getTime.call(date);
  if (Number.isNaN(time)) return "Invalid Date";
  return new DateTimeFormat(locale, wanted(options ?? {}, required, usual)).format(time);
};

const isPlain = text => /^[\x00-\x7f]*$/.test(text);
const apart = text => isPlain(text) ? text : text.normalize("NFD");
const unmarked = text => isPlain(text) ? text : text.normalize("NFD").replace(/\p{M}/gu, "");
const letters = text => isPlain(text) ? text.toLowerCase() : unmarked(text).toLowerCase().replaceAll("ß", "ss").replaceAll("æ", "ae").replaceAll("œ", "oe").replaceAll("ø", "o").replaceAll("ł", "l");
/** Punctuation before digits before letters. */
const place = code => code >= 97 && code <= 122 || code > 127 ? code + 0x20000 : code >= 48 && code <= 57 ? code + 0x10000 : code;
const inOrder = (a, b) => {
  const most = Math.min(a.length, b.length);
  for (let i = 0; i < most; i++) {
    const left = a.charCodeAt(i), right = b.charCodeAt(i);
    if (left !== right) return place(left) < place(right) ? -1 : 1;
  }
  return Math.sign(a.length - b.length);
};
const isDigit = code => code >= 48 && code <= 57;
/** As above, with runs of digits compared as numbers of any length. */
const byNumbers = (a, b) => {
  let i = 0, j = 0;
  const number = (text, from) => {
    let to = from;
    while (isDigit(text.charCodeAt(to))) to++;
    return { to, digits: text.slice(from, to).replace(/^0+(?=\d)/, "") };
  };
  while (i < a.length && j < b.length) {
    const left = a.charCodeAt(i), right = b.charCodeAt(j);
    if (isDigit(left) && isDigit(right)) {
      const one = number(a, i), other = number(b, j);
      const order = Math.sign(one.digits.length - other.digits.length) || (one.digits < other.digits ? -1 : one.digits > other.digits ? 1 : 0);
      if (order !== 0) return order;
      i = one.to, j = other.to;
      continue;
    }
    if (left !== right) return place(left) < place(right) ? -1 : 1;
    i++, j++;
  }
  return Math.sign((a.length - i) - (b.length - j));
};
/** The order of two texts that differ in case only. */
const byCase = (a, b, upperFirst) => {
  for (let i = 0; i < a.length && i < b.length; i++) {
    if (a[i] !== b[i]) {
      if (a[i].toLowerCase() !== b[i].toLowerCase()) return 0;
      const isLower = a[i] === a[i].toLowerCase();
      return isLower === upperFirst ? 1 : -1;
    }
  }
  return 0;
};

class Collator {
  #numeric; #sensitivity; #upperFirst; #ignores;
  constructor(locale, options) {
    options ??= {};
    this.#numeric = Boolean(options.numeric) || /-u-(?:.*-)?kn(?:-true)?(?:-|$)/i.test(String(locale ?? ""));
    this.#sensitivity = options.sensitivity ?? "variant";
    if (!["base", "accent", "case", "variant"].includes(this.#sensitivity)) throw new RangeError("the sensitivity is base, accent, case or variant");
    this.#upperFirst = options.caseFirst === "upper";
    this.#ignores = Boolean(options.ignorePunctuation);
    this.compare = (a, b) => this.#compare(String(a), String(b));
  }
  #compare(a, b) {
    if (a === b) return 0;
    if (this.#ignores) a = a.replace(/[\p{P}\s]/gu, ""), b = b.replace(/[\p{P}\s]/gu, "");
    const order = (this.#numeric ? byNumbers : inOrder)(letters(a), letters(b));
    if (order !== 0 || this.#sensitivity === "base") return order;
    if (this.#sensitivity === "case") a = unmarked(a), b = unmarked(b);
    else {
      a = apart(a), b = apart(b);
      const marks = inOrder(a.toLowerCase(), b.toLowerCase());
      if (marks !== 0 && !(this.#numeric && isPlain(a) && isPlain(b))) return marks;
    }
    return this.#sensitivity === "accent" ? 0 : byCase(a, b, this.#upperFirst);
  }
  resolvedOptions() { return { locale: "en-US", usage: "sort", sensitivity: this.#sensitivity, ignorePunctuation: this.#ignores, numeric: this.#numeric, caseFirst: this.#upperFirst ? "upper" : "false", collation: "default" }; }
}

/** `localeCompare`. Cached, since a sort repeats the same options. */
const usual = new Collator();
const collators = new Map();
const compare = (a, b, options) => {
  if (options === undefined || options === null) return usual.compare(a, b);
  const key = `${options.numeric} ${options.sensitivity} ${options.caseFirst} ${options.ignorePunctuation}`;
  let collator = collators.get(key);
  if (collator === undefined) {
    collator = new Collator(undefined, options);
    if (collators.size < 16) collators.set(key, collator);
  }
  return collator.compare(a, b);
};

class ListFormat {
  #word; 
  constructor(locale, options) { this.#word = options?.type === "disjunction" ? "or" : "and"; }
  format(list) {
    const items = [...list];
    if (items.length < 2) return items.join("");
    if (items.length === 2) return `${items[0]} ${this.#word} ${items[1]}`;
    return `${items.slice(0, -1).join(", ")}, ${this.#word} ${items.at(-1)}`;
  }
}

/** Three of them may be called without `new`. */
const callable = made => new Proxy(made, { apply: (_, self, given) => new made(...given) });
const supportedLocalesOf = locales => [locales ?? []].flat();
for (const made of [NumberFormat, DateTimeFormat, Collator, ListFormat]) made.supportedLocalesOf = supportedLocalesOf;

const Intl = {
  NumberFormat: callable(NumberFormat), DateTimeFormat: callable(DateTimeFormat), Collator: callable(Collator),
  ListFormat, getCanonicalLocales: supportedLocalesOf,
};
return { Intl, dateText, compare };
}
