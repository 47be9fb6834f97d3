//! Reading `tools/list`: one bad tool costs that tool, a broken envelope costs the page, a flood costs the rest.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{
    Fingerprint, Hints, MAX_DESCRIPTION_CHARS, MAX_LIST_BYTES, MAX_NAME_CHARS, MAX_PARAMETER_CHARS,
    MAX_PARAMETERS, MAX_SCHEMA_BYTES, MAX_TITLE_CHARS, MAX_TOOLS, Parameter, ServerTools, Tool,
};
use crate::{signature, text};

/// Pages read of one list. A server that needs more is looping.
const MAX_PAGES: usize = 200;

/// Longest cursor that is sent back to a server.
const MAX_CURSOR_BYTES: usize = 16 * 1024;

/// Skipped tools that are remembered by name.
const MAX_SKIPPED: usize = 20;

/// Annotations kept of a definition that is too large to keep whole.
const MAX_ANNOTATION_BYTES: usize = 2 * 1024;

/// Strings of one schema that are searched for attacks.
const MAX_SCHEMA_STRINGS: usize = 256;

/// Why a whole page cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolListDefect {
    /// Not JSON, or not an object with an array `tools`.
    #[error("the tools/list result is not usable: {reason}")]
    Unreadable {
        /// What the parser said.
        reason: String,
    },
}

/// A tool, or several, left out of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its name as far as it could be read, cleaned.
    pub name: Option<String>,
    /// What is wrong with it, as a fragment.
    pub reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// One page of a tool list.
#[derive(Debug)]
pub struct Page {
    /// The usable tools in the server's order.
    pub tools: Vec<Tool>,
    /// Where the next page starts, if there is one.
    pub next_cursor: Option<String>,
    /// The unusable ones; the first few.
    pub skipped: Vec<Skipped>,
}

/// What to do after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Ask for the page at this cursor.
    More(String),
    /// The list is complete, or as complete as it may get.
    Done,
}

/// Collects the pages of one list under the caps for a whole server.
#[derive(Debug, Default)]
pub struct Listing {
    tools: Vec<Tool>,
    names: HashSet<Box<str>>,
    bytes: usize,
    cursors: HashSet<String>,
    pages: usize,
    skipped: Vec<Skipped>,
}

impl Listing {
    /// Before the first page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the raw `result` of one page and says how to go on.
    pub fn page(&mut self, result: &[u8]) -> Result<Next, ToolListDefect> {
        let page = parse_page(result)?;
        self.pages += 1;
        page.skipped.into_iter().for_each(|skip| note(&mut self.skipped, skip));
        for tool in page.tools {
            if self.tools.len() == MAX_TOOLS {
                self.stop(format!("only the first {MAX_TOOLS} tools are kept"));
                return Ok(Next::Done);
            }
            if self.bytes + tool.raw.len() > MAX_LIST_BYTES {
                self.stop(format!(
                    "only the first {MAX_LIST_BYTES} bytes of tool definitions are kept"
                ));
                return Ok(Next::Done);
            }
            if !self.names.insert(tool.name.clone()) {
                let reason = "a tool of this name is already in the list".to_owned();
                note(&mut self.skipped, Skipped { name: Some(tool.name.into()), reason });
                continue;
            }
            self.bytes += tool.raw.len();
            self.tools.push(tool);
        }
        let Some(cursor) = page.next_cursor else { return Ok(Next::Done) };
        if self.pages == MAX_PAGES {
            self.stop(format!("the list was left after {MAX_PAGES} pages"));
            return Ok(Next::Done);
        }
        if !self.cursors.insert(cursor.clone()) {
            self.stop("the list was left because its pages go in a circle".to_owned());
            return Ok(Next::Done);
        }
        Ok(Next::More(cursor))
    }

    /// The list so far as the server's list.
    pub fn finish(self, server_title: Option<&str>, server_version: Option<&str>) -> ServerTools {
        let shown = |text: &str| {
            let line = text::clean_line(text, MAX_TITLE_CHARS).into_owned();
            (!line.is_empty()).then_some(line)
        };
        ServerTools {
            fingerprint: Fingerprint::of_tools(self.tools.iter().map(|tool| tool.fingerprint)),
            tools: self.tools,
            server_title: server_title.and_then(shown),
            server_version: server_version.and_then(shown),
            skipped: self.skipped,
        }
    }

    fn stop(&mut self, reason: String) {
        self.skipped.truncate(MAX_SKIPPED - 1);
        self.skipped.push(Skipped { name: None, reason });
    }
}

/// Reads one page. Tools beyond the cap of a whole server are not even looked at.
pub fn parse_page(result: &[u8]) -> Result<Page, ToolListDefect> {
    let raw: RawPage<'_> = object_from(result).map_err(|error| ToolListDefect::Unreadable {
        reason: text::clean_line(&error.to_string(), 200).into_owned(),
    })?;
    let mut page = Page { tools: Vec::new(), next_cursor: None, skipped: Vec::new() };
    for definition in raw.tools.kept {
        match parse_tool(definition.get()) {
            Ok(tool) => page.tools.push(tool),
            Err(skipped) => note(&mut page.skipped, skipped),
        }
    }
    if raw.tools.beyond > 0 {
        let reason = format!(
            "{} tools beyond the first {MAX_TOOLS} of a page are left out",
            raw.tools.beyond
        );
        page.skipped.truncate(MAX_SKIPPED - 1);
        page.skipped.push(Skipped { name: None, reason });
    }
    let cursor =
        raw.next_cursor.and_then(|cursor| serde_json::from_str::<String>(cursor.get()).ok());
    page.next_cursor = cursor.filter(|cursor| cursor.len() <= MAX_CURSOR_BYTES);
    Ok(page)
}

#[derive(Deserialize)]
#[serde(expecting = "an object with an array of tools")]
struct RawPage<'a> {
    #[serde(borrow)]
    tools: RawTools<'a>,
    #[serde(borrow, default, rename = "nextCursor")]
    next_cursor: Option<&'a RawValue>,
}

/// The elements of `tools`, unparsed, as many as may be kept.
struct RawTools<'a> {
    kept: Vec<&'a RawValue>,
    beyond: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawTools<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = RawTools<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of tools")
            }
            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut elements: A,
            ) -> Result<Self::Value, A::Error> {
                let mut tools = RawTools { kept: Vec::new(), beyond: 0 };
                while tools.kept.len() < MAX_TOOLS {
                    let Some(element) = elements.next_element()? else { return Ok(tools) };
                    tools.kept.push(element);
                }
                while elements.next_element::<IgnoredAny>()?.is_some() {
                    tools.beyond += 1;
                }
                Ok(tools)
            }
        }
        deserializer.deserialize_seq(Elements)
    }
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
}

fn parse_tool(raw: &str) -> Result<Tool, Skipped> {
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

fn read_fields(raw: &str) -> Result<RawTool<'_>, Skipped> {
    object_from(raw.as_bytes())
        .map_err(|error| skipped(None, &format!("not a tool definition: {error}")))
}

/// Only an object will do, although the deserializer would take an array of the fields as well.
fn object_from<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    let starts = json.iter().find(|byte| !byte.is_ascii_whitespace());
    if starts == Some(&b'[') {
        return Err(serde::de::Error::custom("expected an object, found an array"));
    }
    serde_json::from_slice(json)
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
        signature: signature::of_schema(name, input.as_ref()).into(),
        parameters: parameters(input.as_ref()),
        hints: Hints {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
        },
        flag: flag(name, shown_title, raw_description, input.as_ref()),
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
    })
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
    kept.push('}');
    kept
}

fn stand_in(schema: &str) -> String {
    let digest = Fingerprint::of_tool(&[Some(&Value::from(schema))]);
    format!(
        "{{\"type\":\"object\",\"$comment\":\"left out: {} bytes are over the cap of {MAX_SCHEMA_BYTES}; sha256 {digest}\"}}",
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

fn parameters(schema: Option<&Value>) -> Box<[Parameter]> {
    let Some(properties) = schema.and_then(|schema| schema.get("properties")?.as_object()) else {
        return Box::default();
    };
    let parameter = |(name, schema): (&String, &Value)| Parameter {
        name: text::clean_line(name, MAX_NAME_CHARS).into(),
        description: schema
            .get("description")
            .and_then(Value::as_str)
            .map(|description| text::clean_line(description, MAX_PARAMETER_CHARS).into())
            .unwrap_or_default(),
    };
    properties.iter().take(MAX_PARAMETERS).map(parameter).collect()
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

fn note(list: &mut Vec<Skipped>, skip: Skipped) {
    if list.len() < MAX_SKIPPED {
        list.push(skip);
    }
}
