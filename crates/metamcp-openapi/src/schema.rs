//! Schemas of a description as JSON Schema of today, resolved and bounded, one bundle for each tool.
//! Owns: which keywords stay, what `nullable` and `allOf` become, what is left out of a schema that is too large.      Never: looks outside of the document.
//! In: schemas as values, a document to resolve references in.  Out: schemas whose only references lead into their own `$defs`.
//! Tests: `tests/schemas.rs`, and with the oracle over published descriptions by `cargo xtask openapi`.

mod keywords;
mod merge;
mod shrink;

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};

use crate::document::Document;
use shrink::{shrink, stub};

pub(crate) use keywords::example_of;

/// Levels of one schema without a reference; what is deeper may be anything.
const MAX_LEVELS: usize = 24;
/// Schemas that are converted because others include them, one inside the other.
const MAX_INCLUDED: usize = 12;
/// A schema that small stands where it is used rather than in `$defs`.
const SMALL: usize = 160;
/// How often a schema is written anew because it came out too large.
const MAX_TRIES: usize = 4;
/// Longest name in `$defs`.
const MAX_NAME: usize = 60;

/// Who reads the value that a schema is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is sent as JSON.
    Json,
    /// Its binary members are files.
    Files,
}

/// A component, converted.
#[derive(Debug)]
struct Definition {
    name: String,
    pointer: String,
    /// None until it is needed.
    schema: Option<Value>,
    size: usize,
}

/// Converts the schemas of one document; every component once.
pub(crate) struct Schemas<'d> {
    document: &'d Document,
    definitions: Vec<Definition>,
    by_pointer: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
    /// References that lead nowhere we go, as written; the first few.
    pub(crate) unresolved: Vec<String>,
    /// How many schemas are being converted for others.
    including: usize,
    file_use: Use,
}

impl<'d> Schemas<'d> {
    pub(crate) fn new(document: &'d Document) -> Schemas<'d> {
        Schemas {
            document,
            definitions: Vec::new(),
            by_pointer: HashMap::new(),
            by_name: HashMap::new(),
            unresolved: Vec::new(),
            including: 0,
            file_use: Use::Json,
        }
    }

    /// Converts a schema; its references lead to `#/$defs/…` and are resolved by [`Schemas::bundle`].
    pub(crate) fn converted(&mut self, schema: &Value, file_use: Use) -> Value {
        self.file_use = file_use;
        let converted = self.convert(schema, 0);
        self.file_use = Use::Json;
        converted
    }

    /// The converted schema behind a reference of ours, or the schema itself.
    pub(crate) fn resolve(&mut self, schema: &Value) -> Value {
        let mut found = schema.clone();
        for _ in 0..MAX_INCLUDED {
            let Some(name) = definition_name(&found) else { return found };
            let Some(&at) = self.by_name.get(name) else { return found };
            self.prepare(at);
            match &self.definitions[at].schema {
                Some(schema) => found = schema.clone(),
                None => return found,
            }
        }
        found
    }

    /// A schema with the definitions it needs, in so many bytes: what is farthest from its root is left out first.
    pub(crate) fn bundle(&mut self, mut root: Value, most: usize) -> Value {
        shrink(&mut root, most);
        // What stands for all that is left out takes room too, and how much is known afterwards.
        let mut room = most;
        for _ in 0..MAX_TRIES {
            let bundled = self.bundled(&root, room);
            let length = bundled.to_string().len();
            if length <= most {
                return bundled;
            }
            room = room.saturating_mul(most) / length * 9 / 10;
        }
        self.bundled(&root, 0)
    }

    fn bundled(&mut self, root: &Value, most: usize) -> Value {
        let mut size = root.to_string().len();
        let mut taken: Vec<usize> = Vec::new();
        let mut seen = HashSet::new();
        let mut next: VecDeque<usize> = self.references(root).into();
        let mut uses: HashMap<usize, usize> = HashMap::new();
        while let Some(at) = next.pop_front() {
            *uses.entry(at).or_default() += 1;
            if !seen.insert(at) {
                continue;
            }
            self.prepare(at);
            let definition = &self.definitions[at];
            if size + definition.size > most {
                continue;
            }
            size += definition.size;
            taken.push(at);
            if let Some(schema) = definition.schema.clone() {
                next.extend(self.references(&schema));
            }
        }
        let kept: HashSet<usize> = taken.iter().copied().collect();
        let in_place = |at: &usize| {
            let small = self.definitions[*at].size <= SMALL
                && self.definitions[*at].schema.as_ref().is_some_and(|one| !holds_reference(one));
            uses.get(at) == Some(&1) || small
        };
        let inlined: HashSet<usize> = kept.iter().copied().filter(|at| in_place(at)).collect();
        let mut bundled = self.placed(root, &kept, &inlined, 0);
        let mut own = Map::new();
        for at in taken.iter().filter(|at| !inlined.contains(at)) {
            let definition = &self.definitions[*at];
            if let Some(schema) = &definition.schema {
                own.insert(definition.name.clone(), self.placed(schema, &kept, &inlined, 0));
            }
        }
        if !own.is_empty()
            && let Some(bundled) = bundled.as_object_mut()
        {
            bundled.insert("$defs".to_owned(), Value::Object(own));
        }
        bundled
    }

    /// A schema with those definitions put in place that are, and words in place of those that are left out.
    fn placed(
        &self,
        schema: &Value,
        kept: &HashSet<usize>,
        inlined: &HashSet<usize>,
        depth: usize,
    ) -> Value {
        match schema {
            Value::Object(members) => {
                let at = definition_name(schema).and_then(|name| self.by_name.get(name));
                let Some(at) = at else {
                    let all = members.iter().map(|(name, value)| {
                        (name.clone(), self.placed(value, kept, inlined, depth))
                    });
                    return Value::Object(all.collect());
                };
                let definition = &self.definitions[*at];
                let mut found = match (&definition.schema, kept.contains(at)) {
                    (Some(whole), true) if inlined.contains(at) && depth < MAX_LEVELS * 2 => {
                        self.placed(whole, kept, inlined, depth + 1)
                    }
                    (Some(whole), true) if inlined.contains(at) => stub(whole),
                    (Some(_), true) => return schema.clone(),
                    (Some(whole), false) => stub(whole),
                    (None, _) => json!({}),
                };
                // What is said of this use goes before what is said of the thing.
                if let (Some(found), Some(own)) =
                    (found.as_object_mut(), members.get("description"))
                {
                    found.insert("description".to_owned(), own.clone());
                }
                found
            }
            Value::Array(all) => {
                all.iter().map(|one| self.placed(one, kept, inlined, depth)).collect()
            }
            other => other.clone(),
        }
    }

    fn references(&self, schema: &Value) -> Vec<usize> {
        let mut found = Vec::new();
        collect(schema, &mut |name| found.extend(self.by_name.get(name).copied()));
        found
    }

    /// Converts a definition if it is not yet.
    fn prepare(&mut self, at: usize) {
        if self.definitions[at].schema.is_some() {
            return;
        }
        // Whatever it refers to in a circle finds something here.
        self.definitions[at].schema = Some(json!({}));
        let pointer = self.definitions[at].pointer.clone();
        let found = self.document.at(&pointer);
        if found.is_none() {
            self.missing(&pointer);
        }
        let schema = found.map_or_else(|| json!({}), |found| self.convert(&found, 0));
        // One that is nothing but a reference to itself.
        let schema = if definition_name(&schema) == Some(&self.definitions[at].name) {
            json!({})
        } else {
            schema
        };
        let definition = &mut self.definitions[at];
        definition.size = schema.to_string().len();
        definition.schema = Some(schema);
    }

    fn missing(&mut self, pointer: &str) {
        const MOST: usize = 20;
        if self.unresolved.len() < MOST && !self.unresolved.iter().any(|one| one == pointer) {
            self.unresolved.push(pointer.to_owned());
        }
    }

    /// Our own reference for one of the document.
    fn reference(&mut self, pointer: &str) -> Value {
        let at = match self.by_pointer.get(pointer) {
            Some(at) => *at,
            None => {
                if !pointer.starts_with("#/") {
                    self.missing(pointer);
                    return json!({});
                }
                let at = self.definitions.len();
                let name = self.free_name(pointer);
                self.by_name.insert(name.clone(), at);
                self.by_pointer.insert(pointer.to_owned(), at);
                let pointer = pointer.to_owned();
                self.definitions.push(Definition { name, pointer, schema: None, size: 0 });
                at
            }
        };
        json!({ "$ref": format!("#/$defs/{}", self.definitions[at].name) })
    }

    fn free_name(&self, pointer: &str) -> String {
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
        let name: String = last.chars().map(plain).take(MAX_NAME).collect();
        let name = if name.is_empty() { "schema".to_owned() } else { name };
        let mut free = name.clone();
        let mut count = 2;
        while self.by_name.contains_key(&free) {
            free = format!("{name}_{count}");
            count += 1;
        }
        free
    }
}

/// The name in a reference of ours.
fn definition_name(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

fn holds_reference(schema: &Value) -> bool {
    let mut any = false;
    collect(schema, &mut |_| any = true);
    any
}

fn collect(schema: &Value, found: &mut impl FnMut(&str)) {
    match schema {
        Value::Object(members) => {
            if let Some(name) = definition_name(schema) {
                return found(name);
            }
            members.values().for_each(|value| collect(value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}
