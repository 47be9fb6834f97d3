//! Parses the file: syntax, top level, names of servers.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::keys::FOREIGN_FILE_KEYS;
use super::names::{Names, name_fault};
use super::read::{Key, Node, is_comment, kind, properties, unknown};
use super::report::{ConfigError, MOST_FINDINGS, Place, Problem, Report, Warning};
use super::server::{Lookup, read_server};
use super::syntax::syntax_words;
use super::toolset::read_toolsets;
use super::{Config, ServerConfig, Toolset};
use crate::settings::{self, Given, Origin, SETTINGS, Setting, shown};

/// A file that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Its servers, and its settings over the defaults.
    pub config: Config,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// The settings the file itself gives, for weighing against other sources. Their origin names no path yet.
    pub given: Vec<Given>,
    /// What of the file cannot be used while the rest is: a server's entry, which is then disabled; a toolset, which
    /// then has nothing in it; a setting, which then has its default.
    pub faults: Vec<Problem>,
}

impl Loaded {
    /// The same for those who want all of it or nothing.
    ///
    /// # Errors
    /// Some of it cannot be used.
    pub fn sound(self) -> Result<Loaded, ConfigError> {
        if self.faults.is_empty() {
            return Ok(self);
        }
        Err(ConfigError { problems: self.faults, warnings: self.warnings })
    }
}

/// Parses a config file from its bytes; what is not UTF-8 is rejected with a hint.
pub fn decode(bytes: &[u8]) -> Result<&str, ConfigError> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(ConfigError::whole_file("the file is UTF-16", "save it as UTF-8"));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        ConfigError::whole_file(format!("line {line} is not UTF-8"), "save the file as UTF-8")
    })
}

/// How JSON is written by people: with comments and trailing commas, and nothing looser. Editing reads the same.
pub(crate) const DIALECT: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reads a config file. `lookup` answers for environment variables. One entry that makes no sense does not cost the
/// others: see [`Loaded::faults`].
///
/// # Errors
/// The file as a whole cannot be used, or something of it that keeps things shut.
pub fn parse(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, ConfigError> {
    parse_with(text, Lookup::Resolved(lookup))
}

/// Parses an untrusted config file: every value stays as written, no variable is looked up.
///
/// # Errors
/// As [`parse`].
pub fn parse_as_written(text: &str) -> Result<Loaded, ConfigError> {
    parse_with(text, Lookup::AsWritten)
}

fn parse_with(text: &str, lookup: Lookup<'_>) -> Result<Loaded, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut report = Report::new(text);
    let value = match parse_to_ast(text, &CollectOptions::default(), &DIALECT) {
        Ok(parsed) => parsed.value,
        Err(error) => {
            let (message, hint) = syntax_words(text, &error);
            report.problem_with(error.range(), "", message, hint);
            return Err(ConfigError { problems: report.problems, warnings: report.warnings });
        }
    };
    let Some(value) = value else {
        let hint = "a file without servers is `{ \"mcpServers\": {} }`";
        return Err(ConfigError::whole_file("the file is empty", hint));
    };
    let mut file = File {
        report,
        lookup,
        servers: Vec::new(),
        toolsets: Vec::new(),
        given: Vec::new(),
        faults: Vec::new(),
    };
    file.read(&value);
    let File { report, servers, toolsets, given, mut faults, .. } = file;
    if !report.problems.is_empty() {
        let mut problems = report.problems;
        problems.append(&mut faults);
        problems.sort_by_key(|problem| (problem.place.line, problem.place.column));
        return Err(ConfigError { problems, warnings: report.warnings });
    }
    let settings = settings::resolve(given.iter().cloned()).settings;
    let config = Config { servers, settings, toolsets };
    Ok(Loaded { config, warnings: report.warnings, given, faults })
}

/// What fuzzing runs: any bytes give a config or an error that can be shown.
#[doc(hidden)]
pub fn fuzz_config(data: &[u8]) {
    let lookup = |name: &str| name.len().is_multiple_of(2).then(|| format!("value of {name}"));
    match decode(data).and_then(|text| parse(text, &lookup)) {
        Ok(loaded) => {
            let again = super::diff(&loaded.config, &loaded.config.clone());
            assert!(again.is_empty(), "a config differs from itself: {again:?}");
            for warning in &loaded.warnings {
                assert!(warning.place.line >= 1 && warning.place.column >= 1, "{warning}");
            }
            for fault in &loaded.faults {
                assert!(fault.place.line >= 1 && fault.place.column >= 1, "{fault}");
            }
        }
        Err(error) => {
            assert!(!error.problems.is_empty(), "an error without a problem");
            for problem in &error.problems {
                assert!(problem.place.line >= 1 && problem.place.column >= 1, "{problem}");
            }
        }
    }
}

struct File<'t, 'l> {
    report: Report<'t>,
    lookup: Lookup<'l>,
    servers: Vec<ServerConfig>,
    toolsets: Vec<Toolset>,
    given: Vec<Given>,
    faults: Vec<Problem>,
}

impl File<'_, '_> {
    fn read(&mut self, value: &Value<'_>) {
        let root = Node { value, path: String::new() };
        let Value::Object(object) = value else {
            let message = format!("expected an object, found {}", kind(value));
            let hint = "the file looks like { \"mcpServers\": { … } }".to_owned();
            self.report.problem_with(root.range(), "", message, hint);
            return;
        };
        let lists = object
            .properties
            .iter()
            .filter(|property| matches!(property.name.as_str(), "mcpServers" | "servers"));
        let mut named = Names::default();
        let mut has_servers = false;
        for list in lists {
            has_servers = true;
            if let Value::Object(entries) = &list.value {
                let names = entries.properties.iter().map(|entry| entry.name.as_str().to_owned());
                named.written.extend(names);
            }
        }
        for (name, property, node) in properties(&mut self.report, object, "") {
            match name {
                "toolsets" => self.read_toolsets(&node),
                "mcpServers" | "servers" => self.read_servers(&node, &mut named),
                "$schema" => {
                    let before = self.report.problems.len();
                    node.string(&mut self.report);
                    self.set_aside(before);
                }
                _ => self.read_other(name, property, &node, has_servers),
            }
        }
    }

    /// What was found wrong since there were `before` problems concerns one entry or setting, not the file.
    fn set_aside(&mut self, before: usize) -> bool {
        let found = self.report.problems.split_off(before);
        let is_wrong = !found.is_empty();
        self.keep(found);
        is_wrong
    }

    fn keep(&mut self, found: Vec<Problem>) {
        let room = MOST_FINDINGS.saturating_sub(self.faults.len());
        self.faults.extend(found.into_iter().take(room));
    }

    fn read_toolsets(&mut self, node: &Node<'_, '_>) {
        let before = self.report.problems.len();
        self.toolsets = read_toolsets(&mut self.report, node);
        self.set_aside(before);
    }

    fn read_servers(&mut self, node: &Node<'_, '_>, named: &mut Names) {
        if matches!(node.value, Value::Array(_)) {
            let hint =
                "write each server under its name: { \"name\": { \"command\": … } }".to_owned();
            self.report.problem_with(
                node.range(),
                &node.path,
                "expected an object, found a list",
                hint,
            );
            return;
        }
        let Some(object) = node.object(&mut self.report) else { return };
        let before = self.report.problems.len();
        let entries = properties(&mut self.report, object, &node.path);
        // Which of two entries with one name is meant is unknown, so neither is used.
        let doubled = self.report.problems.split_off(before);
        let mut seen = HashSet::new();
        let twice: HashSet<&str> = object
            .properties
            .iter()
            .map(|property| property.name.as_str())
            .filter(|name| !seen.insert(*name))
            .collect();
        for (name, property, node) in entries {
            let range = property.name.range();
            let mut problems: Vec<Problem> =
                doubled.iter().filter(|problem| problem.place.path == node.path).cloned().collect();
            if let Some((fault, hint)) = name_fault(name) {
                self.report.problem_with(range, &node.path, fault, hint);
            }
            named.add(&mut self.report, name, range, &node.path);
            let server = read_server(&mut self.report, name, range, &node, self.lookup);
            problems.append(&mut self.report.problems.split_off(before));
            match server {
                Some(server) if problems.is_empty() && !twice.contains(name) => {
                    self.servers.push(server);
                }
                _ => {
                    let reason = reason(&problems, &node.path);
                    self.disable(named.usable(name), reason);
                    self.keep(problems);
                }
            }
        }
    }

    /// An entry that cannot be used: named, so that nobody looks for it in vain. One of the same name that was read
    /// before is not used either.
    fn disable(&mut self, name: String, reason: String) {
        let invalid = ServerConfig::invalid(name, reason);
        match self.servers.iter_mut().find(|server| server.name == invalid.name) {
            Some(before) => *before = invalid,
            None => self.servers.push(invalid),
        }
    }

    /// A key of the top level that is not about servers.
    fn read_other(
        &mut self,
        name: &str,
        property: &ObjectProp<'_>,
        node: &Node<'_, '_>,
        has_servers: bool,
    ) {
        let range = property.name.range();
        let before = self.report.problems.len();
        if let Some(setting) = settings::by_file_key(name) {
            self.read_setting(setting, node);
        } else if objects().contains(&name) {
            self.read_settings(name, node);
        } else if let Some(foreign) = FOREIGN_FILE_KEYS.iter().find(|foreign| foreign.name == name)
        {
            self.report.note(range, &node.path, foreign.reason);
        } else if is_server(node.value) {
            let hint = format!("put it under the key: \"mcpServers\": {{ {:?}: … }}", shown(name));
            self.report.problem_with(range, &node.path, "is a server outside `mcpServers`", hint);
            self.set_aside_if(has_servers, before);
        } else if holds_servers(node.value) {
            let hint = "call the key `mcpServers`".to_owned();
            self.report.problem_with(
                range,
                &node.path,
                "holds servers, but is not a key that is read",
                hint,
            );
            self.set_aside_if(has_servers, before);
        } else if !is_comment(name) && !self.report.is_full() {
            self.unknown_setting(range, &node.path, name);
        }
    }

    /// A file whose servers are all in the wrong place is not one without servers.
    fn set_aside_if(&mut self, has_servers: bool, before: usize) {
        if has_servers {
            self.set_aside(before);
        }
    }

    /// An object of settings, such as `pool`.
    fn read_settings(&mut self, object_name: &str, node: &Node<'_, '_>) {
        let before = self.report.problems.len();
        let Some(object) = node.object(&mut self.report) else {
            let prefix = format!("{object_name}.");
            let of_it =
                |setting: &&Setting| setting.key.is_some_and(|key| key.starts_with(&prefix));
            if let Value::StringLit(text) = node.value
                && let Some(problem) = self.report.problems.last_mut()
            {
                // `"daemon": "off"` for the setting that has this word.
                problem.hint = SETTINGS.iter().filter(of_it).find_map(|setting| {
                    setting.kind.from_word(&text.value).ok()?;
                    let (_, key) = setting.key?.split_once('.')?;
                    Some(format!("write {{ {key:?}: {:?} }}", text.value))
                });
            }
            if !SETTINGS.iter().filter(of_it).any(Setting::is_guard) {
                self.set_aside(before);
            }
            return;
        };
        let entries = properties(&mut self.report, object, &node.path);
        let doubled = self.report.problems.split_off(before);
        let mut seen: HashMap<&'static str, String> = HashMap::new();
        for (name, property, node) in entries {
            let before = self.report.problems.len();
            let twice = doubled.iter().filter(|problem| problem.place.path == node.path);
            self.report.problems.extend(twice.cloned());
            let Some(setting) = settings::by_file_key(&format!("{object_name}.{name}")) else {
                if !is_comment(name) && !self.report.is_full() {
                    let keys = keys_of(object_name);
                    unknown(&mut self.report, property.name.range(), &node.path, name, &keys);
                }
                continue;
            };
            if let Some(first) = seen.insert(setting.flag, name.to_owned()) {
                let message = format!("means the same as `{first}`, which is given too");
                self.report.problem(property.name.range(), &node.path, message);
            }
            self.read_setting_from(before, setting, &node);
        }
    }

    fn read_setting(&mut self, setting: &'static Setting, node: &Node<'_, '_>) {
        self.read_setting_from(self.report.problems.len(), setting, node);
    }

    /// Reads one setting. If anything is wrong with it, also with how it was given since there were `before` problems,
    /// it has its default, unless that could open what it was meant to keep shut.
    fn read_setting_from(&mut self, before: usize, setting: &'static Setting, node: &Node<'_, '_>) {
        use crate::settings::Kind;
        let report = &mut self.report;
        let value = match setting.kind {
            Kind::Count { min, max } | Kind::Millis { min, max } | Kind::Bytes { min, max } => node
                .number(report, &setting.kind.describe(), min, max)
                .map(|number| setting.kind.from_number(number)),
            Kind::Word(_) => node.string(report).map(|text| setting.kind.from_word(text)),
            Kind::Switch => node.boolean(report).map(|on| Ok(settings::Value::Switch(on))),
            Kind::Names if matches!(node.value, Value::Array(_)) => {
                node.strings(report).map(|names| {
                    let names: Vec<&str> = names.into_iter().map(|(name, _)| name).collect();
                    setting.kind.from_text(&names.join(","))
                })
            }
            Kind::Path | Kind::Text | Kind::Names => {
                node.string(report).map(|text| setting.kind.from_text(text))
            }
        };
        match value {
            Some(Ok(value)) => {
                let origin = Origin::File { path: PathBuf::new(), line: report.line(node.range()) };
                self.given.push(Given { setting, value, origin });
            }
            Some(Err(error)) => report.problem(node.range(), &node.path, error.message),
            None => {}
        }
        if !setting.is_guard() && self.set_aside(before) {
            self.given.retain(|given| given.setting != setting);
        }
    }

    /// A top-level key that nothing reads; it may be a setting that belongs into an object.
    fn unknown_setting(&mut self, range: Range, path: &str, name: &str) {
        let inside = SETTINGS.iter().filter_map(|setting| setting.key).find(|key| {
            key.rsplit_once('.').is_some_and(|(_, last)| last.eq_ignore_ascii_case(name))
        });
        if let Some(key) = inside {
            let hint = format!("it belongs into an object: `{key}`");
            self.report.warn(range, path, "unknown key, ignored", hint);
            return;
        }
        let single =
            SETTINGS.iter().filter_map(|setting| setting.key).filter(|key| !key.contains('.'));
        let known: Vec<Key> = ["mcpServers", "servers", "toolsets", "$schema"]
            .into_iter()
            .chain(objects())
            .chain(single)
            .map(|name| Key { name, aliases: &[] })
            .collect();
        unknown(&mut self.report, range, path, name, &known);
    }
}

/// What is wrong with an entry, in one line: the first problem, by where it is.
fn reason(problems: &[Problem], entry: &str) -> String {
    let Some(first) = problems.first() else { return "its entry cannot be used".to_owned() };
    let Place { line, column, path } = &first.place;
    let key = path.strip_prefix(entry).unwrap_or_default().trim_start_matches('.');
    let key = if key.is_empty() { String::new() } else { format!("`{key}`: ") };
    let more = match problems.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    format!("line {line}, column {column}: {key}{}{more}", first.message)
}

fn is_server(value: &Value<'_>) -> bool {
    let Value::Object(object) = value else { return false };
    object.properties.iter().any(|property| {
        matches!(property.name.as_str(), "command" | "url" | "serverUrl" | "httpUrl")
    })
}

fn holds_servers(value: &Value<'_>) -> bool {
    match value {
        Value::Object(object) => object
            .properties
            .iter()
            .any(|property| is_server(&property.value) || holds_servers_directly(&property.value)),
        Value::Array(array) => array.elements.iter().any(is_server),
        _ => false,
    }
}

/// One level more, as in `"mcp": { "servers": { … } }`.
fn holds_servers_directly(value: &Value<'_>) -> bool {
    let Value::Object(object) = value else { return false };
    object.properties.iter().any(|property| is_server(&property.value))
}

/// The objects that hold settings.
fn objects() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        SETTINGS.iter().filter_map(|setting| Some(setting.key?.split_once('.')?.0)).collect();
    names.dedup();
    names
}

fn keys_of(object: &str) -> Vec<Key> {
    let key = |setting: &'static Setting| {
        let (parent, name) = setting.key?.split_once('.')?;
        (parent == object).then_some(Key { name, aliases: setting.aliases })
    };
    SETTINGS.iter().filter_map(key).collect()
}
