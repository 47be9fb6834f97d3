//! A whole API: the tools of its operations, as many as are wanted and as a list of tools may hold.
//! Owns: the order of operations, how small schemas become where there are many.      Never: sends a request.
//! In: a `Document`, what the configuration says.  Out: an `Api`; the description itself is not kept.
//! Tests: `tests/descriptions.rs`.

use std::collections::HashMap;

use metamcp_types::text;
use metamcp_types::web::Address;
use serde_json::Value;

use crate::document::{DescriptionError, Document, quoted};
use crate::naming::Names;
use crate::operation::{Operation, Written, tool};
use crate::schema::Schemas;
use crate::security::{self, Schemes, Wanted};
use crate::select::{Candidate, METHODS, Rule, is_wanted};
use crate::server;

/// Longest title, version or description of an API.
const MAX_LABEL: usize = 200;
const MAX_ABOUT: usize = 2_000;
/// Sizes that the schema of one tool may have, tried from the largest until all of them fit into the list.
const SCHEMA_SIZES: [usize; 6] = [48 * 1024, 24 * 1024, 12 * 1024, 6 * 1024, 3 * 1024, 1536];

/// What the configuration says.
#[derive(Debug, Clone)]
pub struct Options {
    pub include: Vec<Rule>,
    pub exclude: Vec<Rule>,
    /// In place of what the description says.
    pub base_url: Option<Address>,
    /// Where the description is from, if that is an address.
    pub home: Option<Address>,
    /// Names of headers that every request gets.
    pub given_headers: Vec<String>,
    /// Names of security schemes there is a credential for.
    pub credentials: Vec<String>,
    pub max_tools: usize,
    /// Longest list of tools, in bytes.
    pub max_list: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            include: Vec::new(),
            exclude: Vec::new(),
            base_url: None,
            home: None,
            given_headers: Vec::new(),
            credentials: Vec::new(),
            max_tools: 2_000,
            max_list: 3_500_000,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Api {
    pub title: String,
    pub version: String,
    /// What it says it is for.
    pub about: String,
    /// Where it is.
    pub base: Address,
    pub schemes: Schemes,
    /// All operations there are, wanted or not.
    pub total: usize,
    /// What could not be read as it is meant, for people.
    pub notes: Vec<String>,
    operations: Vec<Operation>,
    by_name: HashMap<String, usize>,
    tools: String,
}

/// An operation that is wanted, before its schema is written.
struct Chosen {
    operation: Operation,
    said: Value,
    tags: Vec<String>,
    schema: Value,
}

impl Api {
    /// Makes tools of a description.
    ///
    /// # Errors
    /// It does not say where the API is, has no operation, or has none that is wanted; or a credential is for nothing in it.
    pub fn of(document: &Document, options: &Options) -> Result<Api, DescriptionError> {
        let servers = document.member("servers");
        let base = match &options.base_url {
            Some(base) => base.clone(),
            None => server::base(servers.as_ref(), options.home.as_ref())?,
        };
        let schemes = security::schemes(document);
        unknown_credentials(&schemes, &options.credentials)?;
        let mut reader = Reader {
            document,
            options,
            base: &base,
            schemes: &schemes,
            security: document.member("security"),
            schemas: Schemas::new(document),
            names: Names::default(),
            total: 0,
            left_out: 0,
            unread: Vec::new(),
            chosen: Vec::new(),
        };
        for (path, raw) in document.paths() {
            reader.path(path, raw);
        }
        let Reader { schemas, total, left_out, unread, chosen, .. } = reader;
        if total == 0 {
            return Err(DescriptionError::new("#/paths", "it has no operation"));
        }
        if chosen.is_empty() {
            let message = format!("`include` and `exclude` leave none of its {total} operations");
            return Err(DescriptionError::new("", message));
        }
        let notes = notes(document, &schemas.unresolved, &unread, left_out);
        let (operations, tools) = rendered(chosen, schemas, options.max_list);
        let mut notes = notes;
        if tools.1 > 0 {
            notes.push(format!(
                "{} more do not fit into one list of tools; choose with `include`",
                tools.1
            ));
        }
        let info = document.member("info").unwrap_or_default();
        let label = |name: &str, most: usize| {
            let said = info.get(name).and_then(Value::as_str).unwrap_or_default();
            text::clean_line(said, most).into_owned()
        };
        let by_name =
            operations.iter().enumerate().map(|(at, one)| (one.name.clone(), at)).collect();
        Ok(Api {
            title: label("title", MAX_LABEL),
            version: label("version", MAX_LABEL),
            about: label("description", MAX_ABOUT),
            base,
            schemes,
            total,
            notes,
            operations,
            by_name,
            tools: tools.0,
        })
    }

    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operation behind a tool.
    pub fn operation(&self, tool: &str) -> Option<&Operation> {
        self.by_name.get(tool).map(|at| &self.operations[*at])
    }

    /// The result of `tools/list`.
    pub fn tools(&self) -> &str {
        &self.tools
    }
}

/// What is told of a description to a person who decides about it, without reading its schemas.
#[derive(Debug)]
pub struct Glance {
    pub title: String,
    pub operations: usize,
    pub base: Result<Address, DescriptionError>,
}

impl Glance {
    pub fn of(document: &Document) -> Glance {
        let info = document.member("info").unwrap_or_default();
        let title = info.get("title").and_then(Value::as_str).unwrap_or_default();
        let is_method = |name: &str| METHODS.contains(&name);
        let count = |raw: &str| {
            let members = crate::document::members(raw).unwrap_or_default();
            members.iter().filter(|(name, _)| is_method(name)).count()
        };
        Glance {
            title: text::clean_line(title, MAX_LABEL).into_owned(),
            operations: document.paths().map(|(_, raw)| count(raw)).sum(),
            base: server::base(document.member("servers").as_ref(), None),
        }
    }
}

fn unknown_credentials(schemes: &Schemes, given: &[String]) -> Result<(), DescriptionError> {
    let Some(name) = given.iter().find(|name| !schemes.contains_key(*name)) else { return Ok(()) };
    let known: Vec<String> = schemes.keys().take(20).map(|name| quoted(name)).collect();
    let message =
        format!("`credentials` names {}, which is none of its security schemes", quoted(name));
    let hint = if known.is_empty() {
        "it has none: use `headers` or `bearerToken`".to_owned()
    } else {
        format!("it has {}", known.join(", "))
    };
    Err(DescriptionError::new("#/components/securitySchemes", message).hint(hint))
}

fn notes(
    document: &Document,
    unresolved: &[String],
    unread: &[String],
    left_out: usize,
) -> Vec<String> {
    let mut notes = Vec::new();
    if !unread.is_empty() {
        notes.push(format!("cannot be read: {}", unread.join(", ")));
    }
    if left_out > 0 {
        notes.push(format!(
            "{left_out} more operations are not tools; choose with `include` and `exclude`"
        ));
    }
    let is_elsewhere = |pointer: &&String| !pointer.starts_with('#');
    if let Some(elsewhere) = unresolved.iter().find(is_elsewhere) {
        let elsewhere = quoted(elsewhere);
        notes.push(format!(
            "it refers to other files such as {elsewhere}, which are not read; bundle it first, for example with `npx @redocly/cli bundle`"
        ));
    }
    let missing: Vec<String> =
        unresolved.iter().filter(|one| !is_elsewhere(one)).take(3).map(|one| quoted(one)).collect();
    if !missing.is_empty() {
        notes.push(format!("references lead nowhere: {}", missing.join(", ")));
    }
    if document.member("webhooks").is_some() && notes.is_empty() {
        // Not a fault: what the API calls is nothing that can be called.
        return notes;
    }
    notes
}

struct Reader<'a> {
    document: &'a Document,
    options: &'a Options,
    base: &'a Address,
    schemes: &'a Schemes,
    security: Option<Value>,
    schemas: Schemas<'a>,
    names: Names,
    total: usize,
    left_out: usize,
    unread: Vec<String>,
    chosen: Vec<Chosen>,
}

impl Reader<'_> {
    fn path(&mut self, path: &str, raw: &str) {
        const MOST_TOLD: usize = 5;
        let item = crate::document::value(raw).and_then(|item| self.document.resolved(item));
        let Some(item) = item.filter(|_| path.starts_with('/')) else {
            // Extensions stand beside the paths.
            if !path.starts_with("x-") && self.unread.len() < MOST_TOLD {
                self.unread.push(quoted(path));
            }
            return;
        };
        for method in METHODS {
            if let Some(said) = item.get(method).filter(|said| said.is_object()) {
                self.operation(path, method, &item, said);
            }
        }
    }

    fn operation(&mut self, path: &str, method: &'static str, item: &Value, said: &Value) {
        self.total += 1;
        let id = said.get("operationId").and_then(Value::as_str);
        // Named whether wanted or not, so that a name does not depend on what else is wanted.
        let name = self.names.tool(id, method, path);
        let Options { include, exclude, given_headers, .. } = self.options;
        let base = self.own_base(said, item);
        let is_home = base.is_same_origin(self.base);
        let wanted = Wanted::read(said.get("security").or(self.security.as_ref()));
        let placements = match is_home {
            true => wanted.placements(self.schemes, &self.options.credentials),
            false => Vec::new(),
        };
        let placed = &placements;
        let written = Written { document: self.document, path, item, said, given_headers, placed };
        let tags = written.tags();
        let candidate = Candidate { method, path, name: &name, id, tags: &tags };
        if method == "trace" || !is_wanted(&candidate, include, exclude) {
            return;
        }
        if self.chosen.len() >= self.options.max_tools {
            self.left_out += 1;
            return;
        }
        let arguments = written.arguments(&mut self.schemas);
        let accept = written.accept();
        let method = METHOD_NAMES.iter().find(|name| name.eq_ignore_ascii_case(method));
        // Only what the tool says of itself is kept.
        let said = ["summary", "description", "deprecated"].into_iter();
        let said = said.filter_map(|key| Some((key.to_owned(), written.said.get(key)?.clone())));
        let said = Value::Object(said.collect());
        let operation = Operation {
            name,
            method: method.copied().unwrap_or("GET"),
            path: path.to_owned(),
            base,
            is_home,
            placements,
            wanted,
            accept,
            parameters: arguments.parameters,
            body: arguments.body,
        };
        self.chosen.push(Chosen { operation, said, tags, schema: arguments.schema });
    }

    /// Where an operation is, if not where the others are. One that was configured holds for all but those elsewhere.
    fn own_base(&self, said: &Value, item: &Value) -> Address {
        let servers = said.get("servers").or_else(|| item.get("servers"));
        let Some(written) = server::listed(servers).into_iter().next() else {
            return self.base.clone();
        };
        let own = server::address(&written, Some(self.options.home.as_ref().unwrap_or(self.base)));
        own.unwrap_or_else(|_| self.base.clone())
    }
}

const METHOD_NAMES: [&str; 8] =
    ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"];

/// The tools as one list, with schemas as large as all of them together allow; and how many there was no room for.
fn rendered(
    chosen: Vec<Chosen>,
    mut schemas: Schemas<'_>,
    most: usize,
) -> (Vec<Operation>, (String, usize)) {
    let mut lines: Vec<String> = Vec::with_capacity(chosen.len());
    for size in SCHEMA_SIZES {
        let mut total = 0;
        for (at, one) in chosen.iter().enumerate() {
            let fits = lines.get(at).is_some_and(|line| line.len() <= size);
            if !fits {
                let schema = schemas.bundle(one.schema.clone(), size);
                let line = tool(&one.operation, &one.said, &one.tags, &schema).to_string();
                match lines.get_mut(at) {
                    Some(known) => *known = line,
                    None => lines.push(line),
                }
            }
            total += lines[at].len() + 1;
        }
        if total <= most {
            break;
        }
    }
    let mut list = "{\"tools\":[".to_owned();
    let mut operations = Vec::with_capacity(chosen.len());
    let count = chosen.len();
    for (one, line) in chosen.into_iter().zip(&lines) {
        if list.len() + line.len() + 3 > most {
            break;
        }
        if !operations.is_empty() {
            list.push(',');
        }
        list.push_str(line);
        operations.push(one.operation);
    }
    list.push_str("]}");
    let left_out = count - operations.len();
    (operations, (list, left_out))
}
