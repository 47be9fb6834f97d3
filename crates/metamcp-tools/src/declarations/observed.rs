//! Observed shapes of a tool's results: types and names, never values.

use serde_json::{Map, Value, json};

/// An object with more keys than this is a dictionary; its keys are data, which must not be remembered.
const MAX_KEYS: usize = 24;
/// Levels looked into.
const MAX_DEPTH: usize = 5;
/// Items of an array looked at.
const MAX_ITEMS: usize = 8;
/// Longest key that is taken for a name.
const MAX_KEY_CHARS: usize = 48;

/// The shape of one result, as a JSON Schema.
pub fn shape(value: &Value) -> Value {
    look(value, MAX_DEPTH)
}

/// One shape for what two shapes describe.
pub fn merge(one: &Value, other: &Value) -> Value {
    if one == other || is_any(one) {
        return one.clone();
    }
    if is_any(other) {
        return other.clone();
    }
    match (one["type"].as_str(), other["type"].as_str()) {
        (Some("object"), Some("object")) => merge_objects(one, other),
        (Some("array"), Some("array")) => {
            let items = match (&one["items"], &other["items"]) {
                (Value::Null, items) | (items, Value::Null) => items.clone(),
                (one, other) => merge(one, other),
            };
            if items.is_null() {
                json!({ "type": "array" })
            } else {
                json!({ "type": "array", "items": items })
            }
        }
        (Some("integer" | "number"), Some("integer" | "number")) => json!({ "type": "number" }),
        // Now and then nothing is there.
        (Some("null"), Some(_)) => json!({ "anyOf": [other, one] }),
        (Some(_), Some("null")) => json!({ "anyOf": [one, other] }),
        _ => merge_choices(one, other),
    }
}

fn look(value: &Value, depth: usize) -> Value {
    match value {
        Value::Null => json!({ "type": "null" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(number) if number.is_f64() => json!({ "type": "number" }),
        Value::Number(_) => json!({ "type": "integer" }),
        Value::String(_) => json!({ "type": "string" }),
        _ if depth == 0 => json!({}),
        Value::Array(items) => {
            let shapes = items.iter().take(MAX_ITEMS).map(|item| look(item, depth - 1));
            match shapes.reduce(|one, other| merge(&one, &other)) {
                Some(items) => json!({ "type": "array", "items": items }),
                None => json!({ "type": "array" }),
            }
        }
        Value::Object(map) => {
            let is_name = |key: &String| {
                key.chars().count() <= MAX_KEY_CHARS
                    && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-$.".contains(c))
                    && !key.starts_with(|c: char| c.is_ascii_digit())
            };
            if map.len() > MAX_KEYS || !map.keys().all(is_name) {
                return dictionary(
                    map.values().take(MAX_ITEMS).map(|value| look(value, depth - 1)),
                );
            }
            let properties: Map<String, Value> =
                map.iter().map(|(key, value)| (key.clone(), look(value, depth - 1))).collect();
            let required: Vec<&String> = map.keys().collect();
            json!({ "type": "object", "properties": properties, "required": required })
        }
    }
}

fn dictionary(values: impl Iterator<Item = Value>) -> Value {
    match values.reduce(|one, other| merge(&one, &other)) {
        Some(values) => json!({ "type": "object", "additionalProperties": values }),
        None => json!({ "type": "object" }),
    }
}

fn merge_objects(one: &Value, other: &Value) -> Value {
    let (Some(first), Some(second)) =
        (one["properties"].as_object(), other["properties"].as_object())
    else {
        let values = |shape: &Value| -> Vec<Value> {
            match (&shape["additionalProperties"], shape["properties"].as_object()) {
                (Value::Object(_), _) => vec![shape["additionalProperties"].clone()],
                (_, Some(properties)) => properties.values().cloned().collect(),
                _ => Vec::new(),
            }
        };
        return dictionary(values(one).into_iter().chain(values(other)));
    };
    let mut properties = first.clone();
    for (key, shape) in second {
        let merged = properties.get(key).map_or_else(|| shape.clone(), |known| merge(known, shape));
        properties.insert(key.clone(), merged);
    }
    if properties.len() > MAX_KEYS {
        return dictionary(properties.into_iter().map(|(_, shape)| shape));
    }
    let is_required = |shape: &Value, key: &str| {
        shape["required"].as_array().is_some_and(|list| list.iter().any(|name| name == key))
    };
    let required: Vec<&String> =
        properties.keys().filter(|key| is_required(one, key) && is_required(other, key)).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Shapes that have nothing in common stand side by side, up to a few.
fn merge_choices(one: &Value, other: &Value) -> Value {
    const MOST: usize = 4;
    let choices = |shape: &Value| -> Vec<Value> {
        shape["anyOf"].as_array().cloned().unwrap_or_else(|| vec![shape.clone()])
    };
    let mut all = choices(one);
    for choice in choices(other) {
        let same_kind = all.iter_mut().find(|known| {
            let kind = |shape: &Value| match shape["type"].as_str() {
                Some("integer") => Some("number".to_owned()),
                kind => kind.map(str::to_owned),
            };
            kind(known) == kind(&choice)
        });
        match same_kind {
            Some(known) => *known = merge(known, &choice),
            None => all.push(choice),
        }
    }
    if all.len() > MOST { json!({}) } else { json!({ "anyOf": all }) }
}

fn is_any(shape: &Value) -> bool {
    shape.as_object().is_some_and(Map::is_empty)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn types_and_names_are_kept_and_values_are_not() {
        let seen =
            shape(&json!({"id": 7, "tags": ["secret"], "owner": {"name": "Ada"}, "score": 0.5}));
        assert_eq!(
            seen,
            json!({"type": "object", "properties": {
                "id": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "owner": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                "score": {"type": "number"},
            }, "required": ["id", "tags", "owner", "score"]})
        );
    }

    #[test]
    fn keys_that_are_data_are_not_names() {
        let users = json!({"ada@example.org": {"age": 1}, "bob@example.org": {"age": 2}});
        let text = shape(&users).to_string();
        assert!(!text.contains("example"), "{text}");
        let many: Map<String, Value> = (0..100).map(|n| (format!("k{n}"), json!(n))).collect();
        assert_eq!(
            shape(&Value::Object(many)),
            json!({"type": "object", "additionalProperties": {"type": "integer"}})
        );
    }

    #[test]
    fn what_is_not_always_there_is_optional() {
        let merged = merge(
            &shape(&json!({"a": 1, "b": null})),
            &shape(&json!({"a": 1.5, "b": "x", "c": true})),
        );
        assert_eq!(
            merged,
            json!({"type": "object", "properties": {
                "a": {"type": "number"},
                "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "c": {"type": "boolean"},
            }, "required": ["a", "b"]})
        );
        assert_eq!(
            merge(&json!({"type": "string"}), &json!({"type": "integer"})),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})
        );
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z ]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map("[a-e]{1,2}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn seeing_the_same_again_changes_nothing(value in anything()) {
            let seen = shape(&value);
            prop_assert_eq!(merge(&seen, &seen), seen);
        }

        #[test]
        fn shapes_stay_small_however_many_results_are_seen(values in prop::collection::vec(anything(), 1..12)) {
            let seen = values.iter().map(shape).reduce(|one, other| merge(&one, &other)).unwrap();
            prop_assert!(seen.to_string().len() < 400_000);
        }
    }
}
