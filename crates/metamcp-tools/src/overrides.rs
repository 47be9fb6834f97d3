//! Overrides applied: a server's list as the user wants it shown, and the arguments of a call as the server expects them.
//! Owns: both directions, and what of an override fits nothing.      Never: looks up a secret, shows one.
//! In: the list as the server gave it, or arguments as a caller gave them; overrides.  Out: a list; arguments; misfits.
//! Tests: `overrides/tests.rs`.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use metamcp_types::secret::Secret;
use metamcp_types::text;
use metamcp_types::tool_override::{Hidden, ToolOverride, ToolOverrides};
use metamcp_wire::{object, write};
use serde_json::Value;

use crate::tool::{ServerTools, Tool};

#[cfg(test)]
mod tests;

/// Most misfits that are told of one server.
const MAX_MISFITS: usize = 20;
/// Longest name or value in a message.
const MAX_QUOTED: usize = 80;

/// Something in an override that the server's tools do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The tool, as the override names it.
    pub tool: String,
    /// What is wrong, as a fragment without a full stop.
    pub what: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the override of {:?}: {}", self.tool, self.what)
    }
}

/// The list as it is shown. It remembers the list it was made from.
pub fn applied(
    listed: &Arc<ServerTools>,
    overrides: &ToolOverrides,
) -> (Arc<ServerTools>, Vec<Misfit>) {
    let mut misfits = Vec::new();
    if overrides.is_empty() {
        return (Arc::clone(listed), misfits);
    }
    let names: HashSet<&str> = listed.all().map(|tool| &*tool.name).collect();
    for (tool, _) in &overrides.by_tool {
        let name = tool.as_str();
        if !name.contains('*') && !names.contains(name) {
            note(&mut misfits, name, "the server lists no such tool".to_owned());
        }
    }
    // Where a tool takes the name of another, a call of that name can only mean one.
    let given: HashSet<&str> = listed
        .all()
        .filter(|tool| overrides.shown(&tool.name) != &*tool.name)
        .map(|tool| overrides.shown(&tool.name))
        .collect();
    let shown = listed.mapped(|tool| {
        let name = overrides.shown(&tool.name);
        if name == &*tool.name && given.contains(name) {
            let what = "it is not shown, since another tool was given its name".to_owned();
            note(&mut misfits, name, what);
            return None;
        }
        let Some(one) = overrides.for_tool(&tool.name) else { return Some(tool.raw().to_owned()) };
        Some(definition(tool, one, &mut misfits))
    });
    (Arc::new(shown.made_from(listed)), misfits)
}

fn note(misfits: &mut Vec<Misfit>, tool: &str, what: String) {
    if misfits.len() < MAX_MISFITS {
        misfits.push(Misfit { tool: text::clean_line(tool, MAX_QUOTED).into_owned(), what });
    }
}

/// One definition as it is shown.
fn definition(tool: &Tool, one: &ToolOverride, misfits: &mut Vec<Misfit>) -> String {
    let mut raw = tool.raw().as_bytes().to_vec();
    for (key, value) in
        [("name", &one.name), ("title", &one.title), ("description", &one.description)]
    {
        if let Some(value) = value {
            raw = object::set_member(&raw, key, &quoted(value));
        }
    }
    if !one.tags.is_empty() {
        let description = one.description.as_deref().unwrap_or(&tool.description);
        let gap = if description.is_empty() { "" } else { "\n\n" };
        let tagged = format!("{description}{gap}Tags: {}.", one.tags.join(", "));
        raw = object::set_member(&raw, "description", &quoted(&tagged));
    }
    if !one.annotations.is_empty() {
        let mut annotations = member(&raw, "annotations");
        for (hint, value) in &one.annotations {
            annotations = object::set_member(&annotations, hint, value.to_string().as_bytes());
        }
        raw = object::set_member(&raw, "annotations", &annotations);
    }
    // Some clients read the title of the annotations first.
    if one.title.is_some() && object::pick(&raw, ["annotations"]).is_ok_and(|[any]| any.is_some()) {
        let annotations = object::without_member(&member(&raw, "annotations"), "title");
        raw = object::set_member(&raw, "annotations", &annotations);
    }
    if !(one.defaults.is_empty() && one.hidden.is_empty() && one.enums.is_empty()) {
        let schema = schema(&member(&raw, "inputSchema"), tool, one, misfits);
        raw = object::set_member(&raw, "inputSchema", &schema);
    }
    // It was text before, and only text was put in.
    String::from_utf8_lossy(&raw).into_owned()
}

/// The input schema as it is shown.
fn schema(raw: &[u8], tool: &Tool, one: &ToolOverride, misfits: &mut Vec<Misfit>) -> Vec<u8> {
    let mut properties = member(raw, "properties");
    let has =
        |properties: &[u8], name: &str| object::members(properties).any(|(known, _)| known == name);
    let mut unknown = |properties: &[u8], name: &str| {
        let is_unknown = !has(properties, name);
        if is_unknown {
            let what = format!("the tool lists no argument {:?}", cut(name));
            note(misfits, &tool.name, what);
        }
        is_unknown
    };
    for (name, default) in &one.defaults {
        if !unknown(&properties, name) {
            let property = member(&properties, name);
            let default = default.to_string();
            let property = object::set_member(&property, "default", default.as_bytes());
            properties = object::set_member(&properties, name, &property);
        }
    }
    let mut strangers = Vec::new();
    for (name, values) in &one.enums {
        if unknown(&properties, name) {
            continue;
        }
        let property = member(&properties, name);
        let is_list = object::pick(&property, ["type"]).ok() == Some([Some(&b"\"array\""[..])]);
        let narrowed = if is_list {
            let items = narrow(&member(&property, "items"), values, &mut strangers);
            object::set_member(&property, "items", &items)
        } else {
            narrow(&property, values, &mut strangers)
        };
        properties = object::set_member(&properties, name, &narrowed);
    }
    for (name, _) in &one.hidden {
        unknown(&properties, name);
        properties = object::without_member(&properties, name);
    }
    for stranger in strangers {
        let what = format!("{} is none of the server's own values", cut(&stranger));
        note(misfits, &tool.name, what);
    }
    let mut schema = object::set_member(raw, "properties", &properties);
    let is_given = |name: &str| {
        one.hidden.iter().any(|(known, _)| known == name)
            || one.defaults.iter().any(|(known, _)| known == name)
    };
    if let Ok([Some(required)]) = object::pick(raw, ["required"]) {
        let kept: Vec<&[u8]> = object::elements(required)
            .filter(|raw| !object::text(raw).is_some_and(|name| is_given(&name)))
            .collect();
        let required = [&b"["[..], &kept.join(&b','), b"]"].concat();
        schema = object::set_member(&schema, "required", &required);
    }
    schema
}

/// A schema that allows only these values, as far as the server has them.
fn narrow(property: &[u8], values: &[Value], strangers: &mut Vec<String>) -> Vec<u8> {
    let own = object::pick(property, ["enum"]).ok().and_then(|[own]| own);
    let own: Option<Vec<Value>> = own.and_then(|own| serde_json::from_slice(own).ok());
    let is_own = |value: &&Value| own.as_ref().is_none_or(|own| own.contains(value));
    strangers.extend(values.iter().filter(|value| !is_own(value)).map(Value::to_string));
    let kept: Vec<&Value> = values.iter().filter(is_own).collect();
    let kept = serde_json::to_vec(&kept).unwrap_or_else(|_| b"[]".to_vec());
    object::set_member(property, "enum", &kept)
}

/// A member that is an object; empty where there is none.
fn member(raw: &[u8], key: &str) -> Vec<u8> {
    let found = object::pick(raw, [key]).ok().and_then(|[found]| found);
    found.filter(|raw| raw.starts_with(b"{")).unwrap_or(b"{}").to_vec()
}

fn quoted(value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 2);
    write::json_string(&mut out, value);
    out
}

fn cut(value: &str) -> String {
    text::clean_line(value, MAX_QUOTED).into_owned()
}

/// Why arguments do not fit an override.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("the argument `{0}` is filled in by the configuration and cannot be given")]
    Filled(String),
    #[error("the argument `{name}` has to be one of {allowed}")]
    NotAllowed { name: String, allowed: String },
}

/// The arguments of a call as its server gets them. In the place of a secret stands its name, until `filled`.
///
/// # Errors
/// The caller gave what is not its to give.
pub fn sent(one: &ToolOverride, arguments: &[u8]) -> Result<Vec<u8>, Mismatch> {
    let given = |name: &str| object::members(arguments).find(|(known, _)| known == name);
    for (name, values) in &one.enums {
        let Some((_, raw)) = given(name) else { continue };
        let fits = serde_json::from_slice::<Value>(raw).is_ok_and(|value| match &value {
            Value::Array(items) if !values.contains(&value) => {
                items.iter().all(|item| values.contains(item))
            }
            value => values.contains(value),
        });
        if !fits {
            let allowed: Vec<String> = values.iter().map(Value::to_string).collect();
            return Err(Mismatch::NotAllowed {
                name: cut(name),
                allowed: text::cut(&allowed.join(", "), 4 * MAX_QUOTED).into_owned(),
            });
        }
    }
    let mut out = arguments.to_vec();
    for (name, value) in &one.defaults {
        if given(name).is_none() {
            out = object::set_member(&out, name, value.to_string().as_bytes());
        }
    }
    for (name, value) in &one.hidden {
        if given(name).is_some() {
            return Err(Mismatch::Filled(cut(name)));
        }
        let filled = match value {
            Hidden::Plain(value) => value.to_string().into_bytes(),
            Hidden::Text(text) if value.is_secret() => quoted(&Secret::to_string(text)),
            Hidden::Text(text) => quoted(text.expose()),
        };
        out = object::set_member(&out, name, &filled);
    }
    Ok(out)
}

/// The same with secrets in their places; `one` has those that were looked up.
pub fn filled(one: &ToolOverride, arguments: &[u8]) -> Vec<u8> {
    let mut out = arguments.to_vec();
    for (name, value) in &one.hidden {
        if let Hidden::Text(text) = value {
            out = object::set_member(&out, name, &quoted(text.expose()));
        }
    }
    out
}
