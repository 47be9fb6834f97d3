// A little of Intl, as it is in English of the United States. Other locales are accepted and written the same way.
() => {
"use strict";

const SYMBOLS = { __proto__: null, USD: "$", EUR: "€", GBP: "£", JPY: "¥", INR: "₹", CNY: "CN¥", KRW: "₩", BRL: "R$", CAD: "CA$", AUD: "A$", MXN: "MX$", ILS: "₪", VND: "₫", NZD: "NZ$" };
const WHOLE = { __proto__: null, JPY: 1, KRW: 1, VND: 1 };
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const grouped = digits => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

class NumberFormat {
  #options;
  constructor(locale, options = {}) {
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
  format(value) {
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

class DateTimeFormat {
  #options; #zone;
  constructor(locale, options = {}) {
    const zone = options.timeZone;
    if (zone !== undefined && !/^(utc|gmt|etc\/utc|etc\/gmt)$/i.test(zone)) throw new RangeError(`the time zone ${zone} is not known here, only UTC and that of the machine`);
    this.#zone = zone === undefined ? "local" : "UTC";
    const wanted = { ...options };
    if (options.dateStyle !== undefined) Object.assign(wanted, STYLES[options.dateStyle]);
    if (options.timeStyle !== undefined) Object.assign(wanted, { hour: "numeric", minute: "2-digit" }, options.timeStyle === "short" ? {} : { second: "2-digit" });
    if (!["weekday", "year", "month", "day", "hour", "minute", "second"].some(name => wanted[name] !== undefined)) {
      Object.assign(wanted, { year: "numeric", month: "numeric", day: "numeric" });
    }
    this.#options = wanted;
  }
  format(value) {
    const date = value === undefined ? new Date() : new Date(value);
    if (Number.isNaN(date.getTime())) throw new RangeError("Invalid time value");
    const at = name => this.#zone === "UTC" ? date[`getUTC${name}`]() : date[`get${name}`]();
    const want = this.#options;
    const year = want.year === undefined ? "" : want.year === "2-digit" ? two(at("FullYear") % 100) : String(at("FullYear"));
    const day = want.day === undefined ? "" : want.day === "2-digit" ? two(at("Date")) : String(at("Date"));
    const weekday = want.weekday === undefined ? "" : want.weekday === "long" ? DAYS[at("Day")] : DAYS[at("Day")].slice(0, 3);
    let text = "";
    if (want.month === "long" || want.month === "short") {
      const month = want.month === "long" ? MONTHS[at("Month")] : MONTHS[at("Month")].slice(0, 3);
      text = [weekday, [month, day].filter(Boolean).join(" "), year].filter(Boolean).join(", ");
      if (day === "" && year !== "") text = [weekday, `${month} ${year}`].filter(Boolean).join(", ");
    } else {
      const month = want.month === undefined ? "" : want.month === "2-digit" ? two(at("Month") + 1) : String(at("Month") + 1);
      text = [weekday, [month, day, year].filter(Boolean).join("/")].filter(Boolean).join(", ");
    }
    if (want.hour !== undefined || want.minute !== undefined || want.second !== undefined) {
      const half = want.hour12 ?? !(want.hourCycle === "h23" || want.hourCycle === "h24");
      const hours = at("Hours"), shown = half ? hours % 12 || 12 : hours;
      const parts = [];
      if (want.hour !== undefined) parts.push(want.hour === "2-digit" || !half ? two(shown) : String(shown));
      if (want.minute !== undefined) parts.push(two(at("Minutes")));
      if (want.second !== undefined) parts.push(two(at("Seconds")));
      const time = parts.join(":") + (half && want.hour !== undefined ? hours < 12 ? " AM" : " PM" : "");
      text = text === "" ? time : `${text}${want.dateStyle === "full" || want.dateStyle === "long" ? " at" : ","} ${time}`;
    }
    if (want.timeZoneName !== undefined && this.#zone === "UTC") text += " UTC";
    return text;
  }
  resolvedOptions() { return { locale: "en-US", calendar: "gregory", numberingSystem: "latn", timeZone: this.#zone }; }
}

class Collator {
  #numeric; #base;
  constructor(locale, options = {}) {
    this.#numeric = options.numeric === true;
    this.#base = options.sensitivity === "base" || options.sensitivity === "accent";
    this.compare = (a, b) => {
      a = String(a), b = String(b);
      if (this.#base) a = a.toLowerCase(), b = b.toLowerCase();
      if (this.#numeric) {
        const left = a.split(/(\d+)/), right = b.split(/(\d+)/);
        for (let i = 0; i < left.length && i < right.length; i++) {
          const order = i % 2 === 1 ? Number(left[i]) - Number(right[i]) : left[i].localeCompare(right[i]);
          if (order !== 0) return Math.sign(order);
        }
        return Math.sign(left.length - right.length);
      }
      return a.localeCompare(b);
    };
  }
}

class ListFormat {
  #word; 
  constructor(locale, options = {}) { this.#word = options.type === "disjunction" ? "or" : "and"; }
  format(list) {
    const items = [...list];
    if (items.length < 2) return items.join("");
    if (items.length === 2) return `${items[0]} ${this.#word} ${items[1]}`;
    return `${items.slice(0, -1).join(", ")}, ${this.#word} ${items.at(-1)}`;
  }
}

return { Intl: { NumberFormat, DateTimeFormat, Collator, ListFormat, getCanonicalLocales: locales => [locales ?? []].flat() } };
}
