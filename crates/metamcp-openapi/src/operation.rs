//! One operation: how its arguments become a request, and the tool that a client sees.
//! Owns: which parameters and which kind of body are taken, what the tool is called and says.      Never: fills in a value (`request` does).
//! In: a path item and an operation as values.  Out: an `Operation`, the schema of its arguments.
//! Tests: `tests/operations.rs`.

use metamcp_types::text;
use metamcp_types::web::Address;
use serde_json::{Map, Value, json};

use crate::document::Document;
use crate::naming::Names;
use crate::schema::{Schemas, Use, example_of};
use crate::security::{Form, Placement, Wanted};

/// Parameters of one operation that are taken.
const MAX_PARAMETERS: usize = 100;
/// Longest description of a tool, beside its last line.
const MAX_DESCRIPTION: usize = 700;
const MAX_TITLE: usize = 100;
const MAX_TAGS: usize = 8;
const MAX_TAG: usize = 60;
/// Content types that are asked for.
const MAX_ACCEPTED: usize = 6;
/// Headers that are not the caller's to set.
const NOT_OURS: [&str; 13] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
    Cookie,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Pipe,
    Deep,
}

/// A value of a request beside its body.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    /// The argument it is taken from.
    pub(crate) key: String,
    /// Its name in the request.
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) style: Style,
    pub(crate) explode: bool,
    /// Written as JSON, whatever the style.
    pub(crate) is_json: bool,
    pub(crate) allows_reserved: bool,
    pub(crate) is_required: bool,
}

/// How a member of a form is written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Encoding {
    pub(crate) style: Option<Style>,
    pub(crate) explode: Option<bool>,
    pub(crate) media: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum BodyForm {
    Json,
    Form(Vec<(String, Encoding)>),
    /// Encodings, and the members that are files.
    Multipart(Vec<(String, Encoding)>, Vec<String>),
    Text,
    /// Given as base64.
    Bytes,
}

#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) key: String,
    pub(crate) media: String,
    pub(crate) form: BodyForm,
    pub(crate) is_required: bool,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The tool's name.
    pub name: String,
    /// In capitals.
    pub method: &'static str,
    /// With variables in braces.
    pub path: String,
    /// Where the path begins.
    pub base: Address,
    /// Whether that is the API's own origin; credentials go nowhere else.
    pub is_home: bool,
    /// Credentials that the configuration has and this operation takes.
    pub placements: Vec<Placement>,
    /// Credentials that it wants.
    pub wanted: Wanted,
    /// What is asked for, as a header.
    pub accept: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
}

impl Operation {
    /// The names of all its arguments.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let body = self.body.iter().map(|body| body.key.as_str());
        self.parameters.iter().map(|one| one.key.as_str()).chain(body)
    }

    /// The argument for a parameter of the query.
    pub(crate) fn key_of_query(&self, name: &str) -> Option<&str> {
        let own = |one: &&Parameter| one.place == Place::Query && one.name == name;
        self.parameters.iter().find(own).map(|one| one.key.as_str())
    }

    /// Whether a call changes nothing.
    pub fn is_harmless(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS")
    }
}

/// What an operation is read from.
pub(crate) struct Written<'a> {
    pub(crate) document: &'a Document,
    pub(crate) path: &'a str,
    pub(crate) item: &'a Value,
    pub(crate) said: &'a Value,
    /// Headers that the configuration sets.
    pub(crate) given_headers: &'a [String],
    /// Credentials that every call gets: nobody is asked for them as an argument.
    pub(crate) placed: &'a [Placement],
}

/// What was read: parameters, body, and the schema of all arguments.
pub(crate) struct Arguments {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<Body>,
    pub(crate) schema: Value,
}

impl Written<'_> {
    pub(crate) fn arguments(&self, schemas: &mut Schemas<'_>) -> Arguments {
        let mut names = Names::default();
        let mut parameters = Vec::new();
        let mut properties = Map::new();
        let mut required = Vec::new();
        for written in self.parameters() {
            let Some((parameter, schema)) = self.parameter(&written, &mut names, schemas) else {
                continue;
            };
            if parameter.is_required {
                required.push(parameter.key.clone());
            }
            properties.insert(parameter.key.clone(), schema);
            parameters.push(parameter);
        }
        let body = self.body(&mut names, schemas).map(|(body, schema)| {
            if body.is_required {
                required.push(body.key.clone());
            }
            properties.insert(body.key.clone(), schema);
            body
        });
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        schema.insert("additionalProperties".to_owned(), false.into());
        Arguments { parameters, body, schema: schema.into() }
    }

    /// The parameters of path and operation, of which the latter go first, in the order of their places.
    fn parameters(&self) -> Vec<Value> {
        let mut all: Vec<(Place, String, Value)> = Vec::new();
        for list in
            [self.said, self.item].into_iter().filter_map(|from| from.get("parameters")?.as_array())
        {
            for written in list.iter().take(MAX_PARAMETERS) {
                let Some(found) = self.document.resolved(written.clone()) else { continue };
                let text = |name: &str| found.get(name).and_then(Value::as_str);
                let (Some(name), Some(place)) = (text("name"), text("in").and_then(place)) else {
                    continue;
                };
                let name = name.to_owned();
                if all.iter().any(|(own, known, _)| *own == place && *known == name) {
                    continue;
                }
                all.push((place, name, found));
            }
        }
        // What the path wants is there although nobody declared it, and nothing else is in it.
        let wanted = variables(self.path);
        all.retain(|(place, name, _)| *place != Place::Path || wanted.contains(&name.as_str()));
        for name in wanted {
            if !all.iter().any(|(place, known, _)| *place == Place::Path && known == name) {
                let made = json!({ "name": name, "in": "path", "schema": { "type": "string" } });
                all.push((Place::Path, name.to_owned(), made));
            }
        }
        all.sort_by_key(|(place, ..)| *place);
        all.truncate(MAX_PARAMETERS);
        all.into_iter().map(|(_, _, found)| found).collect()
    }

    fn parameter(
        &self,
        found: &Value,
        names: &mut Names,
        schemas: &mut Schemas<'_>,
    ) -> Option<(Parameter, Value)> {
        let text = |name: &str| found.get(name).and_then(Value::as_str);
        let (name, place) = (text("name")?.to_owned(), place(text("in")?)?);
        let is_placed = |placement: &Placement| match (&placement.form, place) {
            (Form::Header(own), Place::Header) => own.eq_ignore_ascii_case(&name),
            (Form::Query(own), Place::Query) | (Form::Cookie(own), Place::Cookie) => *own == name,
            _ => false,
        };
        if self.placed.iter().any(is_placed) {
            return None;
        }
        if place == Place::Header {
            let is_given = self.given_headers.iter().any(|own| own.eq_ignore_ascii_case(&name));
            let is_token = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
            if is_given || !is_token || NOT_OURS.contains(&name.to_ascii_lowercase().as_str()) {
                return None;
            }
        }
        if place == Place::Cookie
            && name.bytes().any(|byte| !byte.is_ascii_graphic() || b"=;,\"".contains(&byte))
        {
            return None;
        }
        let content =
            found.get("content").and_then(Value::as_object).and_then(|all| all.iter().next());
        let is_json = content.is_some_and(|(media, _)| is_json(media));
        let schema = found.get("schema").or_else(|| content?.1.get("schema"));
        let usual =
            if matches!(place, Place::Query | Place::Cookie) { Style::Form } else { Style::Simple };
        let style =
            text("style").and_then(style).filter(|style| fits(*style, place)).unwrap_or(usual);
        let explode = found.get("explode").and_then(Value::as_bool);
        let is_required = place == Place::Path || found.get("required") == Some(&Value::Bool(true));
        let mut converted =
            schema.map_or_else(|| json!({}), |schema| schemas.converted(schema, Use::Json));
        describe(&mut converted, found, schema, name_of(place));
        let parameter = Parameter {
            key: names.key(&name, name_of(place)),
            name,
            place,
            style,
            explode: explode.unwrap_or(matches!(style, Style::Form | Style::Deep)),
            is_json,
            allows_reserved: found.get("allowReserved") == Some(&Value::Bool(true)),
            is_required,
        };
        Some((parameter, converted))
    }

    fn body(&self, names: &mut Names, schemas: &mut Schemas<'_>) -> Option<(Body, Value)> {
        let found = self.document.resolved(self.said.get("requestBody")?.clone())?;
        let content = found.get("content")?.as_object()?;
        let (media, media_said) = content
            .iter()
            .filter(|(media, _)| !media.is_empty())
            .min_by_key(|(media, _)| rank(media))?;
        let name = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_multipart = name.starts_with("multipart/");
        let mut schema = media_said.get("schema").cloned();
        if is_multipart {
            // Its members are read as parts of a form, which the same component is not elsewhere.
            schema = schema.and_then(|schema| self.document.resolved(schema));
        }
        let file_use = if is_multipart { Use::Files } else { Use::Json };
        let mut converted =
            schema.map_or_else(|| json!({}), |schema| schemas.converted(&schema, file_use));
        let encodings = || encodings(media_said);
        let form = match rank(media) {
            0..=2 => BodyForm::Json,
            3 => BodyForm::Form(encodings()),
            4 => {
                let whole = schemas.resolve(&converted);
                BodyForm::Multipart(encodings(), files(&whole))
            }
            5 => BodyForm::Text,
            _ => BodyForm::Bytes,
        };
        match form {
            BodyForm::Text => {
                converted =
                    json!({ "type": "string", "description": format!("The body, as {name}.") });
            }
            BodyForm::Bytes => {
                let words = format!("The body ({name}): its bytes as base64.");
                converted =
                    json!({ "type": "string", "contentEncoding": "base64", "description": words });
            }
            _ => {}
        }
        if let Some(words) = found.get("description").and_then(Value::as_str)
            && let Some(members) = converted.as_object_mut()
            && !members.contains_key("description")
        {
            let words = text::cut(words.trim(), 200).into_owned();
            members.insert("description".to_owned(), words.into());
        }
        // A wildcard is no type that a request can have.
        let media = match (&form, name.as_str()) {
            (BodyForm::Json, name) if !name.contains("json") => "application/json".to_owned(),
            (BodyForm::Bytes, name) if name.contains('*') => "application/octet-stream".to_owned(),
            (BodyForm::Text, name) if name.contains('*') => "text/plain".to_owned(),
            (_, name) => name.to_owned(),
        };
        let media =
            if media.bytes().all(|byte| byte.is_ascii_graphic()) { media } else { return None };
        let is_required = found.get("required") == Some(&Value::Bool(true));
        let key = names.key("body", "request");
        Some((Body { key, media, form, is_required }, converted))
    }

    /// The `Accept` header: what the operation says it answers with, JSON first.
    pub(crate) fn accept(&self) -> String {
        let mut media: Vec<String> = Vec::new();
        let answers = self.said.get("responses").and_then(Value::as_object);
        for (status, written) in answers.into_iter().flatten().take(MAX_PARAMETERS) {
            if !(status.starts_with('2') || status == "default") {
                continue;
            }
            let Some(found) = self.document.resolved(written.clone()) else { continue };
            for name in found
                .get("content")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(name, _)| name)
            {
                let name = name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
                let is_plain = name.contains('/')
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"/.+-_*".contains(&byte));
                if is_plain && name != "*/*" && !media.contains(&name) {
                    media.push(name);
                }
            }
        }
        media.sort_by_key(|name| i32::from(!is_json(name)));
        media.truncate(MAX_ACCEPTED);
        if media.is_empty() {
            media.push("application/json".to_owned());
        }
        format!("{}, */*;q=0.1", media.join(", "))
    }

    pub(crate) fn tags(&self) -> Vec<String> {
        let all = self.said.get("tags").and_then(Value::as_array).into_iter().flatten();
        let all = all.filter_map(Value::as_str).take(MAX_TAGS);
        all.map(|tag| text::clean_line(tag.trim(), MAX_TAG).into_owned()).collect()
    }
}

/// The tool of an operation, with a schema of its arguments.
pub(crate) fn tool(operation: &Operation, said: &Value, tags: &[String], schema: &Value) -> Value {
    let text =
        |name: &str| said.get(name).and_then(Value::as_str).map(str::trim).unwrap_or_default();
    let (summary, description) = (text("summary"), text("description"));
    let mut words = summary.to_owned();
    if !description.is_empty() && !description.eq_ignore_ascii_case(summary) {
        if !words.is_empty() {
            words.push_str(if words.ends_with(['.', '!', '?']) { " " } else { ". " });
        }
        words.push_str(description);
    }
    let words = text::clean(&words, MAX_DESCRIPTION * 2);
    let mut words = text::cut(&words, MAX_DESCRIPTION).into_owned();
    if !words.is_empty() {
        words.push('\n');
    }
    words.push_str(&format!("{} {}", operation.method, text::clean_line(&operation.path, 200)));
    if !tags.is_empty() {
        words.push_str(&format!(" ({})", tags.join(", ")));
    }
    if said.get("deprecated") == Some(&Value::Bool(true)) {
        words.push_str(", deprecated");
    }
    if !operation.is_home {
        words.push_str(&format!(", at {} without credentials", operation.base.origin()));
    }
    let mut tool = json!({ "name": operation.name });
    if !summary.is_empty() {
        tool["title"] = text::clean_line(summary, MAX_TITLE).into();
    }
    tool["description"] = words.into();
    tool["inputSchema"] = schema.clone();
    tool["annotations"] = annotations(operation.method);
    tool
}

/// By the method, as HTTP defines it. POST and PATCH say nothing of what they may destroy, so neither do we.
fn annotations(method: &str) -> Value {
    match method {
        "GET" | "HEAD" | "OPTIONS" => json!({ "readOnlyHint": true, "openWorldHint": true }),
        "PUT" => json!({ "readOnlyHint": false, "idempotentHint": true, "openWorldHint": true }),
        "DELETE" => {
            json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": true })
        }
        _ => json!({ "readOnlyHint": false, "openWorldHint": true }),
    }
}

/// The names in braces, in order.
pub(crate) fn variables(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = path;
    while let Some((_, behind)) = rest.split_once('{') {
        let Some((name, tail)) = behind.split_once('}') else { break };
        if !names.contains(&name) {
            names.push(name);
        }
        rest = tail;
    }
    names
}

fn describe(schema: &mut Value, found: &Value, written: Option<&Value>, place: &str) {
    let Some(members) = schema.as_object_mut() else { return };
    let own = found.get("description").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    let mut words = if own.is_empty() {
        members.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()
    } else {
        text::cut(&text::clean(own, 800), 400).into_owned()
    };
    if place == "header" || place == "cookie" {
        words = if words.is_empty() { format!("({place})") } else { format!("{words} ({place})") };
    }
    let is_shown = members.contains_key("enum") || members.contains_key("default");
    let example =
        found.as_object().and_then(example_of).or_else(|| example_of(written?.as_object()?));
    if let Some(example) = example.filter(|_| !is_shown) {
        words
            .push_str(&format!("{}For example {example}", if words.is_empty() { "" } else { " " }));
    }
    if found.get("deprecated") == Some(&Value::Bool(true)) {
        members.insert("deprecated".to_owned(), true.into());
    }
    if !words.is_empty() {
        members.insert("description".to_owned(), words.into());
    }
}

fn encodings(media: &Value) -> Vec<(String, Encoding)> {
    let all = media.get("encoding").and_then(Value::as_object).into_iter().flatten();
    all.map(|(name, said)| {
        let text = |key: &str| said.get(key).and_then(Value::as_str);
        let encoding = Encoding {
            style: text("style").and_then(style),
            explode: said.get("explode").and_then(Value::as_bool),
            media: text("contentType")
                .map(|media| media.split(',').next().unwrap_or_default().trim().to_owned())
                .filter(|media| media.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')),
        };
        (name.clone(), encoding)
    })
    .collect()
}

/// The members of a form that are files, as `schema` marks them.
fn files(schema: &Value) -> Vec<String> {
    let is_file = |schema: &Value| schema.pointer("/properties/base64").is_some();
    let all = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    all.filter(|(_, schema)| is_file(schema) || schema.get("items").is_some_and(is_file))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Which of several kinds of body is taken: the lowest.
fn rank(media: &str) -> u8 {
    let name = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match name.as_str() {
        "application/json" => 0,
        "application/x-ndjson" | "application/jsonl" | "application/json-seq" => 5,
        name if is_json(name) => 1,
        "*/*" | "application/*" => 2,
        "application/x-www-form-urlencoded" => 3,
        name if name.starts_with("multipart/") => 4,
        name if name.starts_with("text/") || name.ends_with("xml") || name.ends_with("yaml") => 5,
        _ => 6,
    }
}

pub(crate) fn is_json(media: &str) -> bool {
    let name = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    name == "application/json" || name == "text/json" || name.ends_with("+json")
}

fn place(word: &str) -> Option<Place> {
    match word {
        "path" => Some(Place::Path),
        "query" => Some(Place::Query),
        "header" => Some(Place::Header),
        "cookie" => Some(Place::Cookie),
        _ => None,
    }
}

fn name_of(place: Place) -> &'static str {
    match place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
        Place::Cookie => "cookie",
    }
}

fn style(word: &str) -> Option<Style> {
    Some(match word {
        "simple" => Style::Simple,
        "label" => Style::Label,
        "matrix" => Style::Matrix,
        "form" => Style::Form,
        "spaceDelimited" => Style::Space,
        "pipeDelimited" => Style::Pipe,
        "deepObject" => Style::Deep,
        _ => return None,
    })
}

fn fits(style: Style, place: Place) -> bool {
    match place {
        Place::Path => matches!(style, Style::Simple | Style::Label | Style::Matrix),
        Place::Query => matches!(style, Style::Form | Style::Space | Style::Pipe | Style::Deep),
        Place::Header => style == Style::Simple,
        Place::Cookie => style == Style::Form,
    }
}
