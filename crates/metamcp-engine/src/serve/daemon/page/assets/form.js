// A form made from a JSON Schema. What it cannot say in fields is a field of JSON.
import { h, put, visible } from "./dom.js";

const MOST_FIELDS = 60;

const typeOf = (schema) => (Array.isArray(schema?.type) ? schema.type.find((one) => one !== "null") : schema?.type);

/** One property as a field: its label, its control, and how its value is read. */
function field(name, schema, required, id) {
  const type = typeOf(schema);
  const hintId = `${id}-hint`;
  const common = { id, name: id, required, "aria-describedby": hintId, autocomplete: "off", spellcheck: "false" };
  const given = schema?.default;
  const text = (value) => (value === undefined || value === null ? undefined : typeof value === "string" ? value : JSON.stringify(value));
  let control;
  let read;
  if (Array.isArray(schema?.enum) && schema.enum.length > 0 && schema.enum.length <= 200) {
    control = h("select", common, required ? null : h("option", { value: "" }, "—"),
      schema.enum.map((one, at) => h("option", { value: String(at), selected: one === given }, text(one))));
    read = () => (control.value === "" ? undefined : schema.enum[Number(control.value)]);
  } else if (type === "boolean") {
    control = h("select", common, required ? null : h("option", { value: "" }, "—"),
      h("option", { value: "true", selected: given === true }, "true"), h("option", { value: "false", selected: given === false }, "false"));
    read = () => (control.value === "" ? undefined : control.value === "true");
  } else if (type === "number" || type === "integer") {
    control = h("input", { ...common, type: "number", step: type === "integer" ? "1" : "any", value: text(given) });
    // A number of more digits than a double has stays as it was typed.
    read = () => (control.value === "" ? undefined : Number(control.value));
  } else if (type === "array" && ["string", "number", "integer"].includes(typeOf(schema.items))) {
    control = h("textarea", { ...common, rows: 3, placeholder: "one per line" }, Array.isArray(given) ? given.join("\n") : "");
    read = () => {
      const lines = control.value.split("\n").filter((line) => line !== "");
      if (lines.length === 0) return required ? [] : undefined;
      return typeOf(schema.items) === "string" ? lines : lines.map(Number);
    };
  } else if (type === "string") {
    const isLong = /content|text|body|query|code|script|message|markdown|html/i.test(name);
    control = isLong ? h("textarea", { ...common, rows: 3 }, text(given)) : h("input", { ...common, type: "text", value: text(given) });
    let touched = given !== undefined;
    control.addEventListener("input", () => { touched = true; });
    read = () => (control.value === "" && (!required || !touched) && !required ? undefined : control.value);
  } else {
    control = h("textarea", { ...common, rows: 3, placeholder: "JSON" }, text(given));
    read = () => (control.value.trim() === "" ? undefined : JSON.parse(control.value));
  }
  const about = [type ?? "any", schema?.description].filter(Boolean);
  const node = h("div", { class: "field" },
    h("label", { for: id }, h("code", {}, name), required ? h("span", { class: "req" }, " required") : null), control,
    h("p", { class: "hint", id: hintId }, about.join(": ").slice(0, 600)));
  return { name, control, node, read };
}

/** A form for a schema; `read` gives the arguments as an object, or throws with words for people. */
export function form(schema, prefix = "f") {
  const properties = Object.entries(schema?.properties ?? {});
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  const fields = properties.slice(0, MOST_FIELDS).map(([name, one], at) => field(name, one, required.has(name), `${prefix}${at}`));
  const raw = h("textarea", { id: `${prefix}raw`, rows: 8, spellcheck: "false" }, "{}");
  const rawField = h("div", { class: "field", hidden: true }, h("label", { for: `${prefix}raw` }, "Arguments as JSON"), raw);
  const inFields = h("div", {}, fields.map((one) => one.node));
  const isAlone = fields.length === 0 && schema?.additionalProperties !== false;
  let asJson = false;
  const fromFields = () => {
    // Without a prototype, so that no name of a stranger's is special.
    const given = Object.create(null);
    for (const one of fields) {
      let value;
      try {
        value = one.read();
      } catch {
        one.control.focus();
        throw new Error(`${visible(one.name)} is not JSON`);
      }
      if (value === undefined) continue;
      if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${visible(one.name)} is not a number`);
      given[one.name] = value;
    }
    return given;
  };
  const fromJson = () => {
    let value;
    try {
      value = JSON.parse(raw.value);
    } catch (error) {
      raw.focus();
      throw new Error(`the arguments are not JSON: ${error.message}`);
    }
    if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("the arguments have to be an object");
    return value;
  };
  const toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false" }, "Edit as JSON");
  const turn = (on) => {
    asJson = on;
    rawField.hidden = !on;
    inFields.hidden = on;
    // Fields that are not seen must not keep the form from being sent.
    for (const one of fields) one.control.disabled = on;
    toggle.setAttribute("aria-pressed", String(on));
  };
  toggle.addEventListener("click", () => {
    if (!asJson) {
      try {
        raw.value = JSON.stringify(fromFields(), null, 2);
      } catch {
        // What cannot be read yet is typed anew.
      }
    }
    turn(!asJson);
  });
  if (isAlone && fields.length === 0) turn(true);
  const note = h("p", { class: "hint" });
  if (properties.length === 0) put(note, "This tool lists no parameters.");
  if (properties.length > MOST_FIELDS) put(note, `Only the first ${MOST_FIELDS} of ${properties.length} parameters have a field; the others go in as JSON.`);
  return { node: h("div", { class: "form" }, note, inFields, rawField, toggle), read: () => (asJson ? fromJson() : fromFields()) };
}
