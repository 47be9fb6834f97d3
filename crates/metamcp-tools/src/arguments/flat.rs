//! The common case without building anything: an object of plain strings, numbers and booleans.

use metamcp_wire::object;
use serde_json::Value;

/// Parameters of a flat schema; one bit each tells which were seen.
const MAX_PARAMETERS: usize = 32;
/// What a schema may say beside what is checked here, without changing what passes.
const REMARKS: [&str; 7] =
    ["title", "description", "default", "examples", "$comment", "$schema", "deprecated"];

/// A schema that asks for nothing but plain parameters.
#[derive(Debug, Clone)]
pub(super) struct Flat {
    parameters: Box<[(Box<str>, Kind)]>,
    required: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Integer,
    Boolean,
}

impl Flat {
    /// The flat form of a schema, if it has one.
    pub(super) fn of(schema: &Value) -> Option<Flat> {
        let schema = schema.as_object()?;
        // Members that are not parameters are left to the full check, so `additionalProperties` does not matter here.
        let known = ["type", "properties", "required", "additionalProperties"];
        let plain = schema
            .keys()
            .all(|key| known.contains(&key.as_str()) || REMARKS.contains(&key.as_str()));
        if !plain || schema.get("type")?.as_str()? != "object" {
            return None;
        }
        let properties = schema.get("properties")?.as_object()?;
        if properties.len() > MAX_PARAMETERS {
            return None;
        }
        let parameters: Box<[(Box<str>, Kind)]> = properties
            .iter()
            .map(|(name, schema)| Some((name.as_str().into(), kind(schema)?)))
            .collect::<Option<_>>()?;
        let mut required = 0;
        for name in schema.get("required").map_or(Some(&Vec::new()), Value::as_array)? {
            let at =
                parameters.iter().position(|(parameter, _)| Some(&**parameter) == name.as_str())?;
            required |= 1 << at;
        }
        Some(Flat { parameters, required })
    }

    /// Whether these arguments certainly pass. No is no verdict: the full check has to look.
    pub(super) fn fits(&self, raw: &[u8]) -> bool {
        if raw.first() != Some(&b'{') {
            return false;
        }
        let mut seen: u32 = 0;
        for (name, value) in object::members(raw) {
            let Some(at) = self.parameters.iter().position(|(parameter, _)| **parameter == *name)
            else {
                return false;
            };
            let bit = 1 << at;
            if seen & bit != 0 || !self.parameters[at].1.fits(value) {
                return false;
            }
            seen |= bit;
        }
        seen & self.required == self.required
    }
}

impl Kind {
    fn fits(self, value: &[u8]) -> bool {
        let first = value.first().copied().unwrap_or_default();
        match self {
            Kind::Text => first == b'"',
            Kind::Number => first == b'-' || first.is_ascii_digit(),
            Kind::Integer => {
                let digits = value.strip_prefix(b"-").unwrap_or(value);
                // Longer ones are left to the full check, which knows what a number can hold.
                digits.len() <= 15 && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
            }
            Kind::Boolean => matches!(value, b"true" | b"false"),
        }
    }
}

fn kind(schema: &Value) -> Option<Kind> {
    let schema = schema.as_object()?;
    if !schema.keys().all(|key| key == "type" || REMARKS.contains(&key.as_str())) {
        return None;
    }
    match schema.get("type")?.as_str()? {
        "string" => Some(Kind::Text),
        "number" => Some(Kind::Number),
        "integer" => Some(Kind::Integer),
        "boolean" => Some(Kind::Boolean),
        _ => None,
    }
}
