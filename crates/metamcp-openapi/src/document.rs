//! A description as JSON text with an index of its components: what an operation refers to is read when it is needed, so that
//! a description of ten megabytes costs little more than its text.
//! Owns: which files are descriptions, where a reference leads.      Never: opens a file; follows a reference out of the text.
//! In: the bytes of a file, JSON or YAML.  Out: a `Document`, or why it is none, with the place.
//! Tests: `tests/documents.rs`.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use metamcp_types::text;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::yaml;

/// Largest description. GitHub's, the largest in wide use, has twelve megabytes.
pub const MAX_DOCUMENT: usize = 32 * 1024 * 1024;
/// How often the text may be read over for references that the index does not know.
const MAX_READINGS: u64 = 8;
/// References that lead to references.
const MAX_HOPS: usize = 16;
/// Longest piece of a description that is quoted in an error.
const MAX_QUOTED: usize = 120;

/// Why a file is no description that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct DescriptionError {
    /// Where, as `line 3, column 7` or a pointer such as `#/paths`; empty for the whole.
    pub place: String,
    /// What is wrong, as a fragment.
    pub message: String,
    /// What to do about it, as a fragment.
    pub hint: Option<String>,
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl DescriptionError {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> DescriptionError {
        DescriptionError { place: place.into(), message: message.into(), hint: None }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> DescriptionError {
        self.hint = Some(hint.into());
        self
    }
}

/// The revisions, as far as they differ for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Schemas of a dialect of its own: `nullable`, boolean `exclusiveMinimum`.
    V30,
    /// Schemas are JSON Schema; 3.2 adds nothing that matters here.
    V31,
}

/// See the module.
#[derive(Debug)]
pub struct Document {
    text: String,
    version: Version,
    /// Members of the whole.
    root: HashMap<String, Range<usize>>,
    /// Members of its objects, and theirs below `components`, by pointer.
    index: HashMap<String, Range<usize>>,
    /// Paths in the order of the text.
    paths: Vec<(String, Range<usize>)>,
    /// Bytes read over for references beside the index.
    read_over: Cell<u64>,
}

impl Document {
    /// Reads a description.
    ///
    /// # Errors
    /// It is none, too long, of a revision that is not read, or broken.
    pub fn read(bytes: &[u8]) -> Result<Document, DescriptionError> {
        if bytes.len() > MAX_DOCUMENT {
            let most = MAX_DOCUMENT / (1024 * 1024);
            return Err(DescriptionError::new("", format!("it is larger than {most} MB")));
        }
        let written = decoded(bytes)?;
        let text = match written.trim_start().bytes().next() {
            None => return Err(DescriptionError::new("", "it is empty")),
            Some(b'<') => {
                return Err(DescriptionError::new("line 1", "it is a web page, not a description")
                    .hint("name the JSON or YAML file itself, which the page usually links to"));
            }
            Some(b'{') => {
                serde_json::from_str::<&RawValue>(written).map_err(|error| {
                    let place = format!("line {}, column {}", error.line(), error.column());
                    DescriptionError::new(place, format!("it is not JSON: {}", reason(&error)))
                })?;
                written.to_owned()
            }
            Some(_) => yaml::to_json(written)?,
        };
        Document::indexed(text)
    }

    fn indexed(text: String) -> Result<Document, DescriptionError> {
        let whole = members(&text).ok_or_else(|| {
            DescriptionError::new("", "it is not an object")
                .hint("an OpenAPI description begins with `openapi: 3.…`")
        })?;
        let span = |raw: &str| {
            let begin = raw.as_ptr() as usize - text.as_ptr() as usize;
            begin..begin + raw.len()
        };
        let mut root = HashMap::new();
        let mut index = HashMap::new();
        let mut paths = Vec::new();
        for (name, raw) in &whole {
            root.insert(name.to_string(), span(raw));
            if !raw.starts_with('{') || name == "info" {
                continue;
            }
            for (inner, raw) in members(raw).unwrap_or_default() {
                let pointer = format!("#/{}/{}", escaped(name), escaped(&inner));
                if name == "components" {
                    for (own, raw) in members(raw).unwrap_or_default() {
                        index.insert(format!("{pointer}/{}", escaped(&own)), span(raw));
                    }
                }
                index.insert(pointer, span(raw));
                if name == "paths" {
                    paths.push((inner.into_owned(), span(raw)));
                }
            }
        }
        let version = version(&text, &root)?;
        if let Some(range) = root.get("paths")
            && !text[range.clone()].starts_with('{')
        {
            return Err(DescriptionError::new("#/paths", "it is not an object"));
        }
        drop(whole);
        Ok(Document { text, version, root, index, paths, read_over: Cell::new(0) })
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// A member of the whole.
    pub fn member(&self, name: &str) -> Option<Value> {
        value(&self.text[self.root.get(name)?.clone()])
    }

    /// Its paths, each with its item as text, in order.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.paths.iter().map(|(path, range)| (path.as_str(), &self.text[range.clone()]))
    }

    /// The members of one section of `components`, by name.
    pub fn components(&self, section: &str) -> Vec<(String, Value)> {
        let Some(range) = self.index.get(&format!("#/components/{section}")) else {
            return Vec::new();
        };
        let all = members(&self.text[range.clone()]).unwrap_or_default();
        all.into_iter().filter_map(|(name, raw)| Some((name.into_owned(), value(raw)?))).collect()
    }

    /// What a reference leads to; nothing where that is elsewhere, missing or not readable.
    pub fn at(&self, pointer: &str) -> Option<Value> {
        value(self.raw_at(pointer)?)
    }

    /// The same for what may be a reference itself, with the last pointer that was followed.
    pub fn resolved(&self, mut found: Value) -> Option<Value> {
        for _ in 0..MAX_HOPS {
            match found.get("$ref").and_then(Value::as_str) {
                Some(pointer) => found = self.at(pointer)?,
                None => return Some(found),
            }
        }
        None
    }

    /// Where a reference to a component leads, which most do.
    fn raw_directly_at(&self, pointer: &str) -> Option<&str> {
        Some(&self.text[self.index.get(&*unescaped_uri(pointer))?.clone()])
    }

    fn raw_at(&self, pointer: &str) -> Option<&str> {
        let decoded = unescaped_uri(pointer);
        if let Some(range) = self.index.get(&*decoded) {
            return Some(&self.text[range.clone()]);
        }
        let parts: Vec<&str> = decoded.strip_prefix("#/")?.split('/').collect();
        // From the longest part that the index knows.
        let known = [3, 2].into_iter().filter(|many| *many <= parts.len()).find_map(|many| {
            let range = self.index.get(&format!("#/{}", parts[..many].join("/")))?;
            Some((range.clone(), many))
        });
        let (range, skipped) =
            known.or_else(|| Some((self.root.get(&unescaped(parts[0]))?.clone(), 1)))?;
        let mut raw = &self.text[range];
        let mut hops = 0;
        for part in &parts[skipped..] {
            // Bundlers write references that lead through others.
            while let Some(pointer) = reference(raw) {
                hops += 1;
                if hops > MAX_HOPS {
                    return None;
                }
                raw = self.raw_directly_at(&pointer)?;
            }
            let read = self.read_over.get() + raw.len() as u64;
            if read > MAX_READINGS * self.text.len() as u64 {
                return None;
            }
            self.read_over.set(read);
            raw = step(raw, &unescaped(part))?;
        }
        Some(raw)
    }
}

/// The reference that an object is, if it is nothing else.
fn reference(raw: &str) -> Option<String> {
    const LONGEST: usize = 1_000;
    let is_short = raw.len() < LONGEST && raw.contains("$ref");
    if !is_short {
        return None;
    }
    value(raw)?.get("$ref")?.as_str().map(str::to_owned)
}

fn step<'t>(raw: &'t str, name: &str) -> Option<&'t str> {
    if raw.starts_with('[') {
        let all: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
        return Some(all.get(name.parse::<usize>().ok()?)?.get());
    }
    members(raw)?.into_iter().find(|(own, _)| own == name).map(|(_, raw)| raw)
}

/// What is too deeply nested counts as missing.
pub(crate) fn value(raw: &str) -> Option<Value> {
    serde_json::from_str(raw).ok()
}

/// The members of an object as text, in order; of two with one name both.
pub(crate) fn members(raw: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    struct Members<'t>(Vec<(Cow<'t, str>, &'t str)>);
    struct Reader;
    #[derive(serde::Deserialize)]
    struct Name<'t>(#[serde(borrow)] Cow<'t, str>);
    impl<'t> Visitor<'t> for Reader {
        type Value = Members<'t>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Members<'t>, A::Error> {
            let mut all = Vec::new();
            while let Some(Name(name)) = map.next_key::<Name<'t>>()? {
                all.push((name, map.next_value::<&'t RawValue>()?.get()));
            }
            Ok(Members(all))
        }
    }
    impl<'t> Deserialize<'t> for Members<'t> {
        fn deserialize<D: Deserializer<'t>>(from: D) -> Result<Members<'t>, D::Error> {
            from.deserialize_map(Reader)
        }
    }
    serde_json::from_str::<Members<'_>>(raw).ok().map(|all| all.0)
}

fn version(text: &str, root: &HashMap<String, Range<usize>>) -> Result<Version, DescriptionError> {
    let of = |name: &str| {
        let raw = &text[root.get(name)?.clone()];
        // YAML takes `openapi: 3.1` for a number.
        Some(raw.trim_matches('"').to_owned())
    };
    if let Some(old) = of("swagger") {
        let message =
            format!("it is of Swagger {}, and OpenAPI 3.0 and later are read", quoted(&old));
        return Err(DescriptionError::new("#/swagger", message)
            .hint("convert it first, for example with `npx swagger2openapi`"));
    }
    let Some(said) = of("openapi") else {
        return Err(DescriptionError::new("", "it has no `openapi` with a version")
            .hint("is this an OpenAPI description?"));
    };
    match said.split('.').take(2).collect::<Vec<_>>().as_slice() {
        ["3", "0"] => Ok(Version::V30),
        ["3", "1" | "2"] => Ok(Version::V31),
        _ => {
            let message = format!("the revision {} is not read", quoted(&said));
            Err(DescriptionError::new("#/openapi", message).hint("3.0 and 3.1 are"))
        }
    }
}

fn decoded(bytes: &[u8]) -> Result<&str, DescriptionError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(DescriptionError::new("", "it is UTF-16").hint("save it as UTF-8"));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        DescriptionError::new(format!("line {line}"), "it is not UTF-8")
    })
}

fn reason(error: &serde_json::Error) -> String {
    let whole = error.to_string();
    let reason = whole.split(" at line ").next().unwrap_or_default();
    text::clean_line(reason, MAX_QUOTED).into_owned()
}

pub(crate) fn quoted(said: &str) -> String {
    format!("{:?}", text::clean_line(said, MAX_QUOTED))
}

/// A name as it stands in a pointer.
pub(crate) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Without the escapes of an address, which some tools write into references.
fn unescaped_uri(pointer: &str) -> Cow<'_, str> {
    if !pointer.contains('%') {
        return Cow::Borrowed(pointer);
    }
    let mut bytes = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| byte == b'%') {
            Some(meant) => {
                bytes.push(meant);
                rest = &tail[2..];
            }
            None => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(pointer), Cow::Owned)
}
