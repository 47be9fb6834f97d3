// crypto: random numbers and SHA-256. Nothing that holds a key.
own => {
"use strict";

const { encode, random, sha256 } = own;
const { ArrayBuffer, DOMException, DataView, Float32Array, Float64Array, String, TypeError, Uint8Array } = own.globals;

const bytesOf = value => {
  if (typeof value === "string") return encode(value.toWellFormed());
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  throw new TypeError("digest takes bytes or a text");
};

const named = name => {
  const word = String(typeof name === "object" && name !== null ? name.name : name).toUpperCase().replace("-", "");
  if (word !== "SHA256") throw new DOMException(`${name} is not known here, only SHA-256`, "NotSupportedError");
};

const crypto = {
  getRandomValues(array) {
    if (!ArrayBuffer.isView(array) || array instanceof DataView || array instanceof Float32Array || array instanceof Float64Array) {
      throw new TypeError("getRandomValues takes an array of integers");
    }
    if (array.byteLength > 65536) throw new DOMException("65536 random bytes at once at most", "QuotaExceededError");
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(random(array.byteLength));
    return array;
  },
  randomUUID() {
    const bytes = random(16);
    bytes[6] = bytes[6] & 15 | 64;
    bytes[8] = bytes[8] & 63 | 128;
    const text = bytes.toHex();
    return `${text.slice(0, 8)}-${text.slice(8, 12)}-${text.slice(12, 16)}-${text.slice(16, 20)}-${text.slice(20)}`;
  },
  /** Short form: `await crypto.digest("SHA-256", text)` returns hexadecimal digits. */
  async digest(name, data) {
    named(name);
    return sha256(bytesOf(data).toHex()).toHex();
  },
  subtle: {
    async digest(name, data) {
      named(name);
      return sha256(bytesOf(data).toHex()).buffer;
    },
  },
};

return { crypto };
}
