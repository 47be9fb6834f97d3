//! A schema made to fit: first its words go, then what is deep inside.

use metamcp_types::text;
use serde_json::{Map, Value, json};

/// Longest description of what stands for a schema that is left out.
const MAX_STUB: usize = 100;
const SHORT: usize = 80;

/// Makes a schema about as small as that.
pub(super) fn shrink(schema: &mut Value, most: usize) {
    let steps: [fn(&mut Value); 5] = [
        |schema| words(schema, 0, 1, SHORT),
        |schema| words(schema, 0, 2, 0),
        |schema| cut(schema, 4),
        |schema| cut(schema, 3),
        |schema| cut(schema, 2),
    ];
    for step in steps {
        if schema.to_string().len() <= most {
            return;
        }
        step(schema);
    }
}

/// What stands in the place of a schema: its type, and what it is.
pub(super) fn stub(schema: &Value) -> Value {
    let mut out = Map::new();
    out.extend(schema.get("type").map(|kind| ("type".to_owned(), kind.clone())));
    if let Some(words) = schema.get("description").and_then(Value::as_str) {
        let words = text::cut(words, MAX_STUB).into_owned();
        out.insert("description".to_owned(), words.into());
    }
    Value::Object(out)
}

/// Cuts descriptions from this level of members on to so many characters.
fn words(schema: &mut Value, level: usize, from: usize, most: usize) {
    each(schema, &mut |inner, is_member| {
        let level = level + usize::from(is_member);
        if level > from
            && let Some(said) = inner.as_object_mut()
        {
            match said.get("description").and_then(Value::as_str) {
                Some(_) if most == 0 => drop(said.remove("description")),
                Some(written) => {
                    let short = text::cut(written, most).into_owned();
                    said.insert("description".to_owned(), short.into());
                }
                None => {}
            }
        }
        words(inner, level, from, most);
    });
}

/// Leaves out what is deeper than so many levels of members.
fn cut(schema: &mut Value, levels: usize) {
    each(schema, &mut |inner, is_member| {
        let left = levels.saturating_sub(usize::from(is_member));
        if left == 0 {
            let is_reference = inner.get("$ref").is_some();
            *inner = if is_reference { json!({}) } else { stub(inner) };
        } else {
            cut(inner, left);
        }
    });
}

/// Every schema directly inside, and whether it is that of a member or an item.
fn each(schema: &mut Value, take: &mut dyn FnMut(&mut Value, bool)) {
    let Some(said) = schema.as_object_mut() else { return };
    for (key, value) in said.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(all)) => {
                all.values_mut().for_each(|one| take(one, true));
            }
            ("items" | "additionalProperties", value @ Value::Object(_)) => take(value, true),
            ("anyOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                for one in all {
                    take(one, false);
                }
            }
            _ => {}
        }
    }
}
