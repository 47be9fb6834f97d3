//! Data for completions: the configuration, and the tools that servers listed last.

use std::ffi::OsString;
use std::sync::OnceLock;

use metamcp_config::config::ServerConfig;
use metamcp_config::settings::{Given, Origin, SETTINGS};
use metamcp_engine::catalog::schema_cache::{Lookup, SchemaCache};
use metamcp_engine::clock::unix_millis;
use metamcp_engine::config::{self, LoadOptions, Loaded};
use metamcp_engine::provision;
use metamcp_surface::discover::split_id;
use metamcp_tools::tool::ServerTools;
use metamcp_types::text;
use serde_json::Value;

use crate::{console, env};

/// Settings that select the configuration.
const WHICH: [&str; 2] = ["config", "home"];

/// A candidate and its description.
type Candidates = Vec<(String, String)>;

/// The configuration, loaded on first use.
pub(super) struct CompletionSource {
    words: Vec<String>,
    loaded: OnceLock<Option<Loaded>>,
}

impl CompletionSource {
    pub(super) fn new(words: &[OsString]) -> CompletionSource {
        let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        CompletionSource { words, loaded: OnceLock::new() }
    }

    fn loaded(&self) -> Option<&Loaded> {
        self.loaded
            .get_or_init(|| {
                let working_dir = console::folder().ok()?;
                let request = LoadOptions {
                    flags: self.flags(),
                    lookup: &env::lookup,
                    // No warnings are printed here, and no script is run.
                    variables: Vec::new(),
                    lacks: &|_| None,
                    working_dir: &working_dir,
                };
                config::load(request).ok()
            })
            .as_ref()
    }

    /// The flags on the line that select the configuration.
    fn flags(&self) -> Vec<Given> {
        let value = |flag: &str| {
            let (name, joined) = (format!("--{flag}"), format!("--{flag}="));
            self.words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(&joined) {
                Some(value) => Some(value),
                None if *word == name => self.words.get(at + 1).map(String::as_str),
                None => None,
            })
        };
        let given = |name: &&'static str| {
            let setting = SETTINGS.iter().find(|setting| setting.flag == *name)?;
            let value = setting.kind.from_text(value(name)?).ok()?;
            Some(Given { setting, value, origin: Origin::Flag { name } })
        };
        WHICH.iter().filter_map(given).collect()
    }

    /// All servers, those of the file first.
    fn all(&self) -> Vec<ServerConfig> {
        let Some(loaded) = self.loaded() else { return Vec::new() };
        let mut all = loaded.config.servers.clone();
        let installed = provision::installed(&loaded.config.settings.home);
        all.extend(installed.into_iter().map(|(server, _)| server));
        all
    }

    pub(super) fn servers(&self, _: &str) -> Candidates {
        self.all().iter().map(candidate).collect()
    }

    pub(super) fn remote_servers(&self, _: &str) -> Candidates {
        let is_remote = |server: &&ServerConfig| server.transport.is_remote();
        self.all().iter().filter(is_remote).map(candidate).collect()
    }

    pub(super) fn installed(&self, _: &str) -> Candidates {
        let Some(loaded) = self.loaded() else { return Vec::new() };
        let installed = provision::installed(&loaded.config.settings.home);
        installed.iter().map(|(server, _)| candidate(server)).collect()
    }

    /// Servers first, then the tools of one; or tools by bare name.
    pub(super) fn tools(&self, current: &str) -> Candidates {
        let all: Vec<ServerConfig> =
            self.all().into_iter().filter(ServerConfig::is_enabled).collect();
        if let Some((name, _)) = current.split_once(':') {
            let servers = all.iter().filter(|server| server.name == name);
            return servers
                .flat_map(|server| self.tools_of(server))
                .map(|(id, _, help)| (id, help))
                .collect();
        }
        let mut found: Candidates =
            all.iter().map(|server| (format!("{}:", server.name), candidate(server).1)).collect();
        if !current.is_empty() {
            found.extend(
                all.iter()
                    .flat_map(|server| self.tools_of(server))
                    .map(|(_, name, help)| (name, help)),
            );
        }
        found
    }

    /// The arguments of the tool on the line: its keys, then the values a key allows.
    pub(super) fn arguments(&self, current: &str) -> Candidates {
        let Some(schema) = self.schema() else { return Vec::new() };
        let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
        if let Some((key, _)) = current.split_once('=') {
            let of = properties.get(key).unwrap_or(&Value::Null);
            let named = of["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let switch = if of["type"] == "boolean" { &["true", "false"][..] } else { &[] };
            let all = named.chain(switch.iter().copied());
            return all.map(|value| (format!("{key}={value}"), String::new())).collect();
        }
        let help =
            |of: &Value| text::first_sentence(of["description"].as_str().unwrap_or_default(), 80);
        let is_given = |key: &str| {
            self.words.iter().any(|word| {
                word.strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with('=') || rest.starts_with(":="))
            })
        };
        properties
            .iter()
            .filter(|(key, of)| !is_given(key) || of["type"] == "array")
            .map(|(key, of)| (format!("{key}="), help(of)))
            .collect()
    }

    /// The schema of the tool named after `call`.
    fn schema(&self) -> Option<Value> {
        let call = self.words.iter().position(|word| word == "call")?;
        let named = self.words.get(call + 1..)?.iter().find(|word| !word.starts_with('-'))?;
        let servers = self.all();
        let tools = |server: &ServerConfig| Some((server.name.clone(), self.listed(server)?));
        let owner = match split_id(named) {
            Some((server, _)) => servers
                .iter()
                .find(|completion_source| completion_source.name == server)
                .and_then(tools)?,
            None => {
                servers.iter().filter_map(tools).find(|(_, tools)| tools.tool(named).is_some())?
            }
        };
        let name = split_id(named).map_or(named.as_str(), |(_, tool)| tool);
        serde_json::from_str(owner.1.tool(name)?.input_schema()?).ok()
    }

    /// Id, name and first sentence of each tool of a server.
    fn tools_of(&self, server: &ServerConfig) -> Vec<(String, String, String)> {
        let Some(tools) = self.listed(server) else { return Vec::new() };
        let permitted = tools.tools.iter().filter(|tool| server.tools.permits(&tool.name));
        permitted
            .map(|tool| {
                let help = text::first_sentence(&tool.description, 80);
                let name = server.overrides.shown(&tool.name);
                (format!("{}:{name}", server.name), name.to_owned(), help)
            })
            .collect()
    }

    fn listed(&self, server: &ServerConfig) -> Option<ServerTools> {
        let cache = SchemaCache::new(&self.loaded()?.config.settings.home);
        cache
            .read(&server.name, unix_millis())
            .ok()
            .and_then(Lookup::found)
            .map(|found| found.tools)
    }
}

fn candidate(server: &ServerConfig) -> (String, String) {
    let about = match server.state.against() {
        Some(reason) => format!("disabled: {reason}"),
        None => server.description.clone().unwrap_or_default(),
    };
    (server.name.clone(), about)
}
