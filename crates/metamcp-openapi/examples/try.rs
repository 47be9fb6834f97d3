//! Reads descriptions as the gateway does and says of each what came of it: `cargo xtask openapi` runs it over published ones.
//! Every tool's schema is compiled by our checker and by the oracle, and every operation gets one request out of made-up arguments.

use std::time::Instant;

use metamcp_openapi::{Api, Document, Options};
use metamcp_tools::arguments::Checker;
use metamcp_tools::tool::Listing;
use metamcp_types::web::Address;
use serde_json::{Map, Value, json};

#[expect(clippy::print_stdout, reason = "a trial that is run by hand")]
fn main() {
    let mut failed = 0;
    for path in std::env::args().skip(1) {
        let row = match std::fs::read(&path) {
            Ok(bytes) => tried(&bytes),
            Err(error) => json!({ "error": error.to_string() }),
        };
        if row.get("error").is_some()
            || row["flaws"].as_array().is_some_and(|flaws| !flaws.is_empty())
        {
            failed += 1;
        }
        println!("{}", json!({ "file": path, "result": row }));
    }
    println!("{}", json!({ "failed": failed }));
}

#[expect(clippy::disallowed_methods, reason = "a trial measures")]
fn tried(bytes: &[u8]) -> Value {
    let begun = Instant::now();
    let document = match Document::read(bytes) {
        Ok(document) => document,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let base = Address::parse("https://api.example/base").ok();
    let api = match Api::of(&document, &Options { base_url: base, ..Options::default() }) {
        Ok(api) => api,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let millis = begun.elapsed().as_millis() as u64;
    let list: Value = serde_json::from_str(api.tools()).unwrap_or_default();
    let mut flaws = Vec::new();
    let mut listing = Listing::at_most(2_000);
    if let Err(defect) = listing.page(api.tools().as_bytes()) {
        flaws.push(format!("the list is not taken: {defect}"));
    }
    let listed = listing.finish(None, None);
    flaws.extend(listed.skipped.iter().map(|skipped| format!("skipped: {skipped}")));
    let mut largest = 0;
    for tool in list["tools"].as_array().into_iter().flatten() {
        let (name, schema) = (&tool["name"], &tool["inputSchema"]);
        largest = largest.max(schema.to_string().len());
        if let Err(error) = jsonschema::validator_for(schema) {
            flaws.push(format!("{name}: {error}").chars().take(300).collect());
        }
        let checker = Checker::new(schema);
        let arguments = made_up(schema, schema, 0);
        if let Err(violations) = checker.check(&arguments) {
            flaws.push(format!("{name}: made-up arguments: {}", violations[0]));
        }
        let Some(operation) = api.operation(name.as_str().unwrap_or_default()) else { continue };
        if let Err(error) = operation.request(arguments.as_object().unwrap_or(&Map::new())) {
            flaws.push(format!("{name}: {error}"));
        }
    }
    let count = flaws.len();
    flaws.truncate(5);
    json!({
        "bytes": bytes.len(), "title": api.title, "operations": api.total, "tools": api.operations().len(),
        "list": api.tools().len(), "largest": largest, "millis": millis, "notes": api.notes,
        "flaws": flaws, "flawed": count,
    })
}

/// Arguments with everything that is required.
fn made_up(schema: &Value, root: &Value, depth: usize) -> Value {
    if let Some(pointer) = schema["$ref"].as_str() {
        let found = root.pointer(pointer.trim_start_matches('#')).cloned().unwrap_or_default();
        return if depth > 20 { Value::Null } else { made_up(&found, root, depth + 1) };
    }
    if let Some(value) = schema.get("const").or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    if depth > 20 {
        return Value::Null;
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    match kind {
        Some("object") => {
            let members = required.iter().filter_map(Value::as_str).map(|name| {
                (name.to_owned(), made_up(&schema["properties"][name], root, depth + 1))
            });
            let mut members: Map<String, Value> = members.collect();
            let least = schema["minProperties"].as_u64().unwrap_or(0) as usize;
            for at in members.len()..least.min(5) {
                members.insert(
                    format!("k{at}"),
                    made_up(&schema["additionalProperties"], root, depth + 1),
                );
            }
            // An alternative may do no more than name what it requires.
            for name in schema["anyOf"][0]["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                members
                    .insert(name.to_owned(), made_up(&schema["properties"][name], root, depth + 1));
            }
            for part in [&schema["anyOf"][0]]
                .into_iter()
                .chain(schema["allOf"].as_array().into_iter().flatten())
            {
                if let Value::Object(more) = made_up(part, root, depth + 1) {
                    members.extend(more);
                }
            }
            Value::Object(members)
        }
        Some("array") => {
            let least = schema["minItems"].as_u64().unwrap_or(1).clamp(1, 5);
            (0..least).map(|_| made_up(&schema["items"], root, depth + 1)).collect()
        }
        Some("integer") => number(schema).round().into_integer(),
        Some("number") => json!(number(schema)),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("string") => {
            let least = schema["minLength"].as_u64().unwrap_or(4).clamp(4, 400) as usize;
            let most = schema["maxLength"].as_u64().unwrap_or(400) as usize;
            json!("AAAA".repeat(100)[..least.min(most)])
        }
        _ => {
            let any = schema.get("anyOf").or_else(|| schema.get("allOf"));
            any.map_or(json!("AAAA"), |any| made_up(&any[0], root, depth + 1))
        }
    }
}

fn number(schema: &Value) -> f64 {
    let low =
        schema["minimum"].as_f64().or_else(|| Some(schema["exclusiveMinimum"].as_f64()? + 1.0));
    let high =
        schema["maximum"].as_f64().or_else(|| Some(schema["exclusiveMaximum"].as_f64()? - 1.0));
    let near = low.unwrap_or(1.0).max(high.unwrap_or(1.0).min(1.0));
    let step = schema["multipleOf"].as_f64().unwrap_or(1.0);
    if near.rem_euclid(step).abs() < f64::EPSILON { near } else { (near / step).ceil() * step }
}

trait IntoInteger {
    fn into_integer(self) -> Value;
}

impl IntoInteger for f64 {
    fn into_integer(self) -> Value {
        json!(self as i64)
    }
}
