//! `allOf` as one schema, where that says the same; `nullable` on what is not a plain type.

use serde_json::{Map, Value, json};

/// More members than that are left as they are.
const MAX_MEMBERS: usize = 300;

/// Keywords of which the outer schema's, or else the first, is taken.
const WORDS: [&str; 3] = ["description", "default", "deprecated"];

/// `own` and all of `parts` as one schema; with `allOf` where they say more than members of an object.
pub(super) fn merged(own: Value, parts: Vec<Value>) -> Value {
    let mut parts: Vec<Value> = parts
        .into_iter()
        .filter(|part| part.as_object().is_some_and(|one| !one.is_empty()))
        .collect();
    let own_is_words =
        own.as_object().is_some_and(|own| own.keys().all(|key| WORDS.contains(&key.as_str())));
    if parts.is_empty() {
        return own;
    }
    if own_is_words && parts.len() == 1 {
        return with_words(parts.remove(0), &own);
    }
    if is_mergeable(&own) && parts.iter().all(is_mergeable) {
        let mut all = parts.iter().chain(std::iter::once(&own));
        let count: usize = all
            .clone()
            .map(|part| part.get("properties").and_then(Value::as_object).map_or(0, Map::len))
            .sum();
        if count <= MAX_MEMBERS {
            return with_words(united(&mut all), &own);
        }
    }
    let Value::Object(mut own) = own else { return own };
    own.insert("allOf".to_owned(), parts.into());
    Value::Object(own)
}

/// An object that says nothing but which members it has.
fn is_mergeable(schema: &Value) -> bool {
    let Some(said) = schema.as_object() else { return false };
    said.iter().all(|(key, value)| match key.as_str() {
        "properties" | "required" => true,
        "type" => value == "object",
        "additionalProperties" => value.is_object(),
        key => WORDS.contains(&key),
    })
}

fn united(parts: &mut dyn Iterator<Item = &Value>) -> Value {
    let mut out = Map::new();
    out.insert("type".to_owned(), "object".into());
    let mut properties = Map::new();
    let mut required: Vec<Value> = Vec::new();
    for part in parts {
        for (name, schema) in
            part.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            // The later one is the more special one.
            match properties.get_mut(name) {
                Some(before) if *schema != json!({}) => *before = schema.clone(),
                Some(_) => {}
                None => drop(properties.insert(name.clone(), schema.clone())),
            }
        }
        for name in part.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !required.contains(name) {
                required.push(name.clone());
            }
        }
        for word in WORDS.iter().chain(&["additionalProperties"]) {
            if let Some(value) = part.get(*word)
                && !out.contains_key(*word)
            {
                out.insert((*word).to_owned(), value.clone());
            }
        }
    }
    out.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        out.insert("required".to_owned(), required.into());
    }
    Value::Object(out)
}

fn with_words(mut schema: Value, own: &Value) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        for word in WORDS {
            if let Some(value) = own.get(word) {
                schema.insert(word.to_owned(), value.clone());
            }
        }
    }
    schema
}

/// A schema that takes `null` too.
pub(super) fn with_null(schema: Value) -> Value {
    let Value::Object(mut said) = schema else { return schema };
    let description = said.remove("description");
    let mut out = Map::new();
    out.extend(description.map(|words| ("description".to_owned(), words)));
    if said.is_empty() {
        return Value::Object(out);
    }
    if let Some(Value::String(one)) = said.get("type")
        && !said.contains_key("enum")
        && !said.contains_key("const")
    {
        let both = json!([one, "null"]);
        said.insert("type".to_owned(), both);
        said.extend(out);
        return Value::Object(said);
    }
    out.insert("anyOf".to_owned(), json!([Value::Object(said), { "type": "null" }]));
    Value::Object(out)
}
