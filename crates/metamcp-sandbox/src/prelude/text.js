// TextEncoder and TextDecoder, for UTF-8.
own => {
"use strict";

const { encode, decode } = own;
const { ArrayBuffer, Boolean, RangeError, String, TypeError, Uint8Array } = own.globals;

const bytesOf = value => {
  if (value === undefined) return new Uint8Array(0);
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  throw new TypeError("bytes must be an ArrayBuffer or a view on one");
};

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return encode(String(text).toWellFormed()); }
  encodeInto(text, target) {
    let read = 0, written = 0;
    for (const character of String(text).toWellFormed()) {
      const bytes = encode(character);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += character.length;
    }
    return { read, written };
  }
}

class TextDecoder {
  #fatal; #keepMark;
  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!["utf-8", "utf8", "unicode-1-1-utf-8"].includes(String(label).trim().toLowerCase())) {
      throw new RangeError(`the encoding ${label} is not known here, only utf-8`);
    }
    this.#fatal = Boolean(fatal);
    this.#keepMark = Boolean(ignoreBOM);
  }
  get encoding() { return "utf-8"; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#keepMark; }
  decode(bytes) {
    const text = decode(bytesOf(bytes).toHex(), this.#fatal);
    if (text === undefined) throw new TypeError("the bytes are not UTF-8");
    return !this.#keepMark && text[0] === "\uFEFF" ? text.slice(1) : text;
  }
}

return { TextEncoder, TextDecoder };
}
