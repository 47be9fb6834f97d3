//! Parses one tool definition.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::page::{Skipped, object_from};
use super::{
    Fingerprint, Hints, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, MAX_PARAMETER_CHARS, MAX_PARAMETERS,
    MAX_SCHEMA_BYTES, MAX_TITLE_CHARS, Shown, Tool,
};
use metamcp_types::text;

use crate::signature;

/// Annotations kept of a definition that is too large to keep whole.
const MAX_ANNOTATION_BYTES: usize = 2 * 1024;

/// Strings of one schema that are searched for attacks.
const MAX_SCHEMA_STRINGS: usize = 256;

/// A tool that can be shown and called, or why not.
pub(super) fn parse_tool(raw: &str) -> Result<Tool, Skipped> {
    let fields = read_fields(raw)?;
    if let Some(reason) = name_defect(&fields.name) {
        return Err(skipped(Some(&*fields.name).filter(|name| !name.is_empty()), reason));
    }
    if raw.len() <= MAX_SCHEMA_BYTES {
        return make_tool(raw, &fields);
    }
    let kept = kept_form(&fields);
    make_tool(&kept, &read_fields(&kept)?)
}

#[derive(Deserialize)]
#[serde(expecting = "an object with a name")]
struct RawTool<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    title: Option<&'a RawValue>,
    #[serde(borrow, default)]
    description: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "inputSchema")]
    input_schema: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "outputSchema")]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl RawTool<'_> {
    /// Whether the tool is for the pages of its own server and not for a model: its `_meta.ui.visibility` names others.
    fn is_for_apps_only(&self) -> bool {
        let meta = self.meta.filter(|meta| meta.get().contains("visibility"));
        let meta = meta.and_then(|meta| serde_json::from_str::<Value>(meta.get()).ok());
        let visible = meta.as_ref().and_then(|meta| meta.pointer("/ui/visibility")?.as_array());
        visible.is_some_and(|to| !to.iter().any(|whom| whom == "model"))
    }
}

fn read_fields(raw: &str) -> Result<RawTool<'_>, Skipped> {
    object_from(raw.as_bytes())
        .map_err(|error| skipped(None, &format!("not a tool definition: {error}")))
}

/// Everything is read from the form that is kept, so that a tool read back from the cache is the same tool.
fn make_tool(raw: &str, fields: &RawTool<'_>) -> Result<Tool, Skipped> {
    let name = fields.name.as_ref();
    let read = |field: Option<&RawValue>, what: &str| match field {
        None => Ok(None),
        Some(field) => serde_json::from_str::<Value>(field.get())
            .map(|value| Some(value).filter(|value| !value.is_null()))
            .map_err(|error| skipped(Some(name), &format!("its {what} cannot be read: {error}"))),
    };
    let title = read(fields.title, "title")?;
    let description = read(fields.description, "description")?;
    let annotations = read(fields.annotations, "annotations")?;
    let input = read(fields.input_schema, "input schema")?;
    let output = read(fields.output_schema, "output schema")?;

    let shown_title =
        title.as_ref().or_else(|| annotations.as_ref()?.get("title")).and_then(Value::as_str);
    let raw_description = description.as_ref().and_then(Value::as_str).unwrap_or_default();
    let hint = |key: &str| annotations.as_ref()?.get(key)?.as_bool();
    Ok(Tool {
        name: name.into(),
        title: shown_title
            .map(|title| text::clean_line(title, MAX_TITLE_CHARS))
            .filter(|title| !title.is_empty())
            .map(Into::into),
        description: text::clean(raw_description, MAX_DESCRIPTION_CHARS).trim().into(),
        parameters: parameters(input.as_ref()),
        hints: Hints {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
        },
        is_for_apps: fields.is_for_apps_only(),
        fingerprint: Fingerprint::of_tool(&[
            Some(&Value::from(name)),
            title.as_ref(),
            description.as_ref(),
            input.as_ref(),
            output.as_ref(),
            annotations.as_ref(),
        ]),
        input_schema: range_in(raw, fields.input_schema.filter(|_| input.is_some())),
        output_schema: range_in(raw, fields.output_schema.filter(|_| output.is_some())),
        raw: raw.into(),
        checker: OnceLock::new(),
        output_checker: OnceLock::new(),
        shown: OnceLock::new(),
    })
}

/// What is shown of a tool that was read from `raw` before.
pub(super) fn shown(raw: &str) -> Shown {
    let Ok(fields) = read_fields(raw) else {
        return Shown { signature: Box::default(), flag: None };
    };
    let read = |field: Option<&RawValue>| {
        let value = serde_json::from_str::<Value>(field?.get()).ok()?;
        Some(value).filter(|value| !value.is_null())
    };
    let (title, description) = (read(fields.title), read(fields.description));
    let (annotations, input) = (read(fields.annotations), read(fields.input_schema));
    let title = title.as_ref().or_else(|| annotations.as_ref()?.get("title"));
    let description = description.as_ref().and_then(Value::as_str).unwrap_or_default();
    Shown {
        signature: signature::of_schema(&fields.name, input.as_ref()).into(),
        flag: flag(&fields.name, title.and_then(Value::as_str), description, input.as_ref()),
    }
}

/// A large definition without what makes it large. What replaces a schema carries a digest of it,
/// so that the fingerprint still sees every change.
fn kept_form(fields: &RawTool<'_>) -> String {
    let mut kept = format!("{{\"name\":{}", Value::from(fields.name.as_ref()));
    let mut add = |key: &str, json: &str| {
        for part in [",\"", key, "\":", json] {
            kept.push_str(part);
        }
    };
    for (key, field, cap) in [
        ("title", fields.title, MAX_TITLE_CHARS),
        ("description", fields.description, MAX_DESCRIPTION_CHARS),
    ] {
        if let Some(words) =
            field.and_then(|field| serde_json::from_str::<String>(field.get()).ok())
        {
            add(key, &Value::from(text::cut(&words, cap + 1).as_ref()).to_string());
        }
    }
    for (key, schema) in
        [("inputSchema", fields.input_schema), ("outputSchema", fields.output_schema)]
    {
        match schema {
            Some(schema) if schema.get().len() <= MAX_SCHEMA_BYTES => add(key, schema.get()),
            Some(schema) => add(key, &stand_in(schema.get())),
            None => {}
        }
    }
    if let Some(annotations) =
        fields.annotations.filter(|field| field.get().len() <= MAX_ANNOTATION_BYTES)
    {
        add("annotations", annotations.get());
    }
    if fields.is_for_apps_only() {
        add("_meta", r#"{"ui":{"visibility":["app"]}}"#);
    }
    kept.push('}');
    kept
}

fn stand_in(schema: &str) -> String {
    let digest = Fingerprint::of_tool(&[Some(&Value::from(schema))]);
    format!(
        "{{\"type\":\"object\",\"$comment\":\"omitted: {} bytes exceed the limit of {MAX_SCHEMA_BYTES}; sha256 {digest}\"}}",
        schema.len()
    )
}

fn name_defect(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("its name is empty");
    }
    if name.len() > MAX_NAME_CHARS && name.chars().count() > MAX_NAME_CHARS {
        return Some("its name is longer than 128 characters");
    }
    let unseen = |c: char| c.is_control() || text::is_hidden(c) || (c.is_whitespace() && c != ' ');
    if name.chars().any(unseen) || name.starts_with(' ') || name.ends_with(' ') {
        return Some("its name holds characters that cannot be seen");
    }
    None
}

fn parameters(schema: Option<&Value>) -> Box<str> {
    let Some(properties) = schema.and_then(|schema| schema.get("properties")?.as_object()) else {
        return Box::default();
    };
    let mut lines = String::new();
    for (name, schema) in properties.iter().take(MAX_PARAMETERS) {
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        lines.push_str(&text::clean_line(name, MAX_NAME_CHARS));
        lines.push('\n');
        lines.push_str(&text::clean_line(description, MAX_PARAMETER_CHARS));
        lines.push('\n');
    }
    lines.into()
}

/// The first thing about the tool's texts that deserves distrust.
fn flag(
    name: &str,
    title: Option<&str>,
    description: &str,
    schema: Option<&Value>,
) -> Option<&'static str> {
    if text::mixes_scripts(name) {
        return Some("look-alike letters in the name");
    }
    let mut strings: Vec<&str> = title.into_iter().chain([description, name]).collect();
    if let Some(schema) = schema {
        gather_strings(schema, &mut strings);
    }
    strings.into_iter().find_map(text::looks_poisoned)
}

fn gather_strings<'a>(value: &'a Value, strings: &mut Vec<&'a str>) {
    if strings.len() >= MAX_SCHEMA_STRINGS {
        return;
    }
    match value {
        Value::String(text) if text.len() > 8 => strings.push(text),
        Value::Array(items) => items.iter().for_each(|item| gather_strings(item, strings)),
        Value::Object(map) => map.iter().for_each(|(key, item)| {
            if key.len() > 8 {
                strings.push(key);
            }
            gather_strings(item, strings);
        }),
        _ => {}
    }
}

/// Where a borrowed part lies within the text it was borrowed from.
fn range_in(whole: &str, part: Option<&RawValue>) -> Option<Range<usize>> {
    let part = part?.get();
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (start + part.len() <= whole.len()).then_some(start..start + part.len())
}

fn skipped(name: Option<&str>, reason: &str) -> Skipped {
    Skipped {
        name: name.map(|name| text::clean_line(name, 64).into_owned()),
        reason: text::clean_line(reason, 200).into_owned(),
    }
}
