//! How an example server declares its tools: one table, from which schemas, argument checks and responses follow.
//! Owns: tool declarations, their JSON Schemas, argument validation.      Never: runs a tool.
//! In: `Tool` tables and arguments.  Out: `tools/list` entries, validated `Arguments`.
//! Tests: below and `example/tests.rs`.

use serde_json::{Map, Value, json};

/// One tool: its listing for the client, and the function behind it.
pub(super) struct Tool<S: 'static> {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) effect: Effect,
    pub(super) takes: &'static [Field],
    /// Fields of the structured result; empty where the result is plain text.
    pub(super) gives: &'static [Field],
    pub(super) run: fn(&mut S, &Arguments<'_>) -> Result<Answer, Refusal>,
}

/// A tool's side effects, declared to clients as annotations.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    Reads,
    /// Adds something each time it runs.
    Adds,
    /// Replaces something; running it again changes nothing more.
    Overwrites,
    /// Deletes something; running it again later may hit something else.
    Removes,
}

/// One parameter of a tool, or one field of its result.
pub(super) struct Field {
    name: &'static str,
    kind: Kind,
    note: &'static str,
    required: bool,
}

/// A required field.
pub(super) const fn must(name: &'static str, kind: Kind, note: &'static str) -> Field {
    Field { name, kind, note, required: true }
}

/// An optional field.
pub(super) const fn may(name: &'static str, kind: Kind, note: &'static str) -> Field {
    Field { name, kind, note, required: false }
}

/// The JSON type of a field.
pub(super) enum Kind {
    Text,
    Flag,
    Number,
    /// A whole number within inclusive bounds.
    Whole(i64, i64),
    Choice(&'static [&'static str]),
    List(&'static Kind),
    Record(&'static [Field]),
}

/// A whole number without bounds worth stating.
pub(super) const WHOLE: Kind = Kind::Whole(i64::MIN, i64::MAX);
/// A whole number that counts something.
pub(super) const COUNT: Kind = Kind::Whole(0, i64::MAX);

/// A tool's result.
pub(super) enum Answer {
    Text(String),
    /// Structured content; the text form is the same JSON, for clients without support for it.
    Data(Value),
}

/// Why a tool did not do what was requested; the model reads it and tries again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);

/// Returns early with a formatted `Refusal`.
macro_rules! refuse {
    ($($part:tt)*) => { return Err($crate::example::declare::Refusal(format!($($part)*))) };
}
pub(super) use refuse;

impl<S> Tool<S> {
    /// The tool's entry in `tools/list`.
    pub(super) fn listed(&self) -> Value {
        let mut tool = json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": record_schema(self.takes),
        });
        if !self.gives.is_empty() {
            tool["outputSchema"] = record_schema(self.gives);
        }
        tool["annotations"] = self.effect.annotations();
        tool
    }
}

impl Effect {
    fn annotations(self) -> Value {
        match self {
            Effect::Reads => json!({ "readOnlyHint": true, "openWorldHint": false }),
            Effect::Adds => changes(false, false),
            Effect::Overwrites => changes(true, true),
            Effect::Removes => changes(true, false),
        }
    }
}

fn changes(destructive: bool, idempotent: bool) -> Value {
    json!({
        "readOnlyHint": false,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": false,
    })
}

fn record_schema(fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    let required: Vec<&str> =
        fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema["additionalProperties"] = json!(false);
    schema
}

impl Field {
    fn schema(&self) -> Value {
        let mut schema = self.kind.schema();
        if !self.note.is_empty() {
            schema["description"] = json!(self.note);
        }
        schema
    }
}

impl Kind {
    fn schema(&self) -> Value {
        match self {
            Kind::Text => json!({ "type": "string" }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Number => json!({ "type": "number" }),
            Kind::Whole(least, most) => {
                let mut schema = json!({ "type": "integer" });
                if *least > i64::MIN {
                    schema["minimum"] = json!(least);
                }
                if *most < i64::MAX {
                    schema["maximum"] = json!(most);
                }
                schema
            }
            Kind::Choice(words) => json!({ "type": "string", "enum": words }),
            Kind::List(item) => json!({ "type": "array", "items": item.schema() }),
            Kind::Record(fields) => record_schema(fields),
        }
    }

    /// What is wrong with `value`, if anything.
    fn fault(&self, at: &str, value: &Value) -> Option<String> {
        let expected = match self {
            Kind::Text if value.is_string() => return None,
            Kind::Flag if value.is_boolean() => return None,
            Kind::Number if value.is_number() => return None,
            Kind::Whole(least, most) => match value.as_i64() {
                Some(whole) if (*least..=*most).contains(&whole) => return None,
                Some(whole) if whole < *least => {
                    return Some(format!("{at} must be at least {least}"));
                }
                Some(_) => return Some(format!("{at} must be at most {most}")),
                None => "a whole number".to_owned(),
            },
            Kind::Choice(words) if value.as_str().is_some_and(|word| words.contains(&word)) => {
                return None;
            }
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::List(item) => match value.as_array() {
                Some(items) => {
                    let mut faults = items
                        .iter()
                        .enumerate()
                        .map(|(i, value)| item.fault(&format!("{at}[{i}]"), value));
                    return faults.find_map(|fault| fault);
                }
                None => "an array".to_owned(),
            },
            Kind::Record(fields) => match value.as_object() {
                Some(given) => {
                    return record_fault(fields, given).map(|fault| format!("{at}: {fault}"));
                }
                None => "an object".to_owned(),
            },
            Kind::Text => "a string".to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Number => "a number".to_owned(),
        };
        Some(format!("{at} must be {expected}"))
    }
}

fn record_fault(fields: &[Field], given: &Map<String, Value>) -> Option<String> {
    if let Some(missing) =
        fields.iter().find(|field| field.required && !given.contains_key(field.name))
    {
        return Some(format!("{} is missing", missing.name));
    }
    given.iter().find_map(|(name, value)| match fields.iter().find(|field| field.name == name) {
        Some(field) => field.kind.fault(name, value),
        None => {
            let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
            Some(match known.as_slice() {
                [] => format!("{name} is unknown, no arguments are taken"),
                known => format!("{name} is unknown, known are {}", known.join(", ")),
            })
        }
    })
}

/// Arguments validated against a declaration.
pub(super) struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Checks `given` against a tool's declaration.
    pub(super) fn checked(
        fields: &[Field],
        given: &'a Map<String, Value>,
    ) -> Result<Self, Refusal> {
        match record_fault(fields, given) {
            Some(fault) => Err(Refusal(format!("the arguments do not fit: {fault}"))),
            None => Ok(Self(given)),
        }
    }

    /// A required text.
    pub(super) fn text(&self, name: &str) -> &'a str {
        self.text_if(name).expect("required and a string by the tool's declaration")
    }

    pub(super) fn text_if(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)?.as_str()
    }

    /// A required number.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.0
            .get(name)
            .and_then(Value::as_f64)
            .expect("required and a number by the tool's declaration")
    }

    pub(super) fn whole_if(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    /// A count, or `default` if it is absent.
    pub(super) fn count_or(&self, name: &str, default: usize) -> usize {
        self.whole_if(name).and_then(|whole| usize::try_from(whole).ok()).unwrap_or(default)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        self.list(name).filter_map(Value::as_str).map(str::to_owned).collect()
    }

    pub(super) fn numbers(&self, name: &str) -> Vec<f64> {
        self.list(name).filter_map(Value::as_f64).collect()
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.0.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        must("path", Kind::Text, "Where."),
        may("head", Kind::Whole(1, 10), ""),
        may("tags", Kind::List(&Kind::Text), ""),
        may("mode", Kind::Choice(&["a", "b"]), ""),
    ];

    fn fault(arguments: &Value) -> String {
        let given = arguments.as_object().unwrap();
        Arguments::checked(FIELDS, given).err().map(|refusal| refusal.0).unwrap_or_default()
    }

    #[test]
    fn a_schema_follows_from_the_table() {
        insta::assert_snapshot!(record_schema(FIELDS), @r#"{"type":"object","properties":{"path":{"type":"string","description":"Where."},"head":{"type":"integer","minimum":1,"maximum":10},"tags":{"type":"array","items":{"type":"string"}},"mode":{"type":"string","enum":["a","b"]}},"required":["path"],"additionalProperties":false}"#);
    }

    #[test]
    fn wrong_arguments_are_named() {
        assert_eq!(fault(&json!({ "path": "x", "head": 3, "tags": ["t"], "mode": "a" })), "");
        let cases = [
            (json!({}), "path is missing"),
            (json!({ "path": 1 }), "path must be a string"),
            (json!({ "path": "x", "head": 0 }), "head must be at least 1"),
            (json!({ "path": "x", "head": 11 }), "head must be at most 10"),
            (json!({ "path": "x", "head": 1.5 }), "head must be a whole number"),
            (json!({ "path": "x", "tags": ["t", 2] }), "tags[1] must be a string"),
            (json!({ "path": "x", "mode": "c" }), "mode must be one of a, b"),
            (json!({ "path": "x", "pth": 1 }), "pth is unknown, known are path, head, tags, mode"),
        ];
        for (arguments, expected) in cases {
            assert_eq!(fault(&arguments), format!("the arguments do not fit: {expected}"));
        }
    }
}
