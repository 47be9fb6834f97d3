//! Preview of a project's config file before it is approved: what it would run and change.
//! Owns: what is shown of a file, and its summary.      Never: resolves a variable, shows an invisible character.
//! In: the text, and what is in force without it.  Out: `ConfigPreview`: text for a terminal, an elicitation for a client, JSON.
//! Tests: `preview/tests.rs`.

mod render;

use std::borrow::Cow;

use serde_json::Value;

use super::expand::expand;
use super::keys::SERVER_KEYS;
use super::parse::{DIALECT, parse_as_written};
use super::{Config, ConfigError, Problem, ServerConfig, ServerOrigin, ServerState};
use crate::settings::{Given, Origin};
use metamcp_types::next::quoted;
use metamcp_types::secret::{Reference, Secret};
use metamcp_types::text;

#[cfg(test)]
mod tests;

/// Longest command line, value or address that is shown whole. What is longer is cut, and the picture says that it is
/// not complete.
const LONGEST: usize = 4_000;
/// The same for names and single values.
const LONGEST_VALUE: usize = 500;

/// What a file would do. Every text in it can be shown as it is: whatever cannot be seen is spelt out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfigPreview {
    pub servers: Vec<ServerPreview>,
    /// Settings it would change.
    pub settings: Vec<SettingPreview>,
    pub toolsets: Vec<ToolsetPreview>,
    /// What of it cannot be used.
    pub faults: Vec<String>,
    /// Whether something was too long to be shown whole.
    pub is_cut: bool,
}

/// A server of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerPreview {
    pub name: String,
    /// Who has a server of this name already, which it would replace.
    pub replaces: Option<&'static str>,
    /// The command line, or the address.
    pub runs: String,
    /// Whether that is the address of a remote server.
    pub is_remote: bool,
    /// Where the description of an API is, as written, if one makes the server.
    pub openapi: Option<String>,
    pub cwd: Option<String>,
    /// Variables or headers it would be given, each with what the file says.
    pub gives: Vec<(String, String)>,
    /// Variables of the user's it would be given.
    pub reads: Vec<String>,
    /// Programs that would be run to look up its secrets.
    pub lookups: Vec<String>,
    /// Whatever else its entry says, as it is written.
    pub others: Vec<(String, String)>,
    /// Why it would not be used.
    pub unused: Option<String>,
    /// What is suspicious about it.
    pub doubts: Vec<&'static str>,
}

/// A setting of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingPreview {
    pub key: String,
    /// What it would be.
    pub to: String,
    pub from: String,
    pub origin: String,
    /// Whether a flag or a variable has the last word today, so that it would count only without that.
    pub is_overridden: bool,
}

/// A toolset of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolsetPreview {
    pub name: String,
    /// Whether it would replace one of the user's.
    pub replaces: bool,
    /// What belongs to it, as it is written.
    pub rules: String,
}

/// What is in force without the file.
#[derive(Debug, Clone, Copy)]
pub struct EffectiveConfig<'a> {
    /// Servers, installed ones too, and toolsets.
    pub config: &'a Config,
    /// Settings with their origins.
    pub values: &'a [Given],
}

impl ConfigPreview {
    /// The picture of a file.
    ///
    /// # Errors
    /// The file as a whole cannot be used.
    pub fn of(text: &str, effective: EffectiveConfig<'_>) -> Result<ConfigPreview, ConfigError> {
        let read = parse_as_written(text)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let written: Value =
            jsonc_parser::parse_to_serde_value(text, &DIALECT).ok().unwrap_or_default();
        let mut preview = ConfigPreview::default();
        for server in &read.config.servers {
            let entry = ["mcpServers", "servers"]
                .iter()
                .find_map(|key| written.get(key)?.get(&server.name))
                .unwrap_or(&Value::Null);
            let known = effective.config.server(&server.name);
            let mut shown = Shown { is_cut: false };
            let mut server = shown.server(server, entry);
            server.replaces = known.map(|known| known.origin.as_str());
            preview.is_cut |= shown.is_cut;
            preview.servers.push(server);
        }
        let (given, _) = super::tightened(read.given.clone(), effective.values);
        for given in &given {
            preview.settings.extend(setting(given, effective.values));
        }
        for toolset in &read.config.toolsets {
            let entry = written.get("toolsets").and_then(|toolsets| toolsets.get(&toolset.name));
            let mut shown = Shown { is_cut: false };
            preview.toolsets.push(ToolsetPreview {
                name: shown.spelt(&toolset.name, LONGEST_VALUE),
                replaces: effective.config.toolset(&toolset.name).is_some(),
                rules: shown.spelt(&entry.unwrap_or(&Value::Null).to_string(), LONGEST),
            });
            preview.is_cut |= shown.is_cut;
        }
        let fault = |fault: &Problem| text::spelt(&fault.to_string(), LONGEST_VALUE);
        preview.faults = read.faults.iter().map(fault).collect();
        Ok(preview)
    }

    /// Adds which servers it would replace that are in no file: `known` says who named one of that name.
    pub fn replaces(&mut self, known: impl Fn(&str) -> Option<ServerOrigin>) {
        for server in self.servers.iter_mut().filter(|server| server.replaces.is_none()) {
            let other = known(&server.name).filter(|origin| *origin != ServerOrigin::Project);
            server.replaces = other.map(ServerOrigin::as_str);
        }
    }

    /// Whether the file would do nothing at all: a client's own file, say, that names only this gateway.
    pub fn is_empty(&self) -> bool {
        let is_idle = |server: &ServerPreview| server.unused.as_deref() == Some(super::ITSELF);
        self.servers.iter().all(is_idle) && self.settings.is_empty() && self.toolsets.is_empty()
    }
}

/// What is shown of a server, and whether that was all.
struct Shown {
    is_cut: bool,
}

impl Shown {
    fn spelt(&mut self, text: &str, longest: usize) -> String {
        let shown = text::spelt(text, longest);
        self.is_cut |= text::is_longer(text, longest);
        shown
    }

    fn server(&mut self, server: &ServerConfig, entry: &Value) -> ServerPreview {
        let mut preview =
            ServerPreview { name: self.spelt(&server.name, LONGEST_VALUE), ..Default::default() };
        preview.unused = match &server.state {
            ServerState::Enabled => None,
            state => state.against().map(|why| self.spelt(why, LONGEST_VALUE)),
        };
        if matches!(server.state, ServerState::Invalid { .. }) {
            return preview;
        }
        preview.is_remote = server.transport.is_remote();
        preview.openapi = server.transport.api().map(|api| api.description.clone());
        let word = |word| if preview.is_remote { Cow::Borrowed(word) } else { quoted(word) };
        let line: Vec<_> = server.transport.words().into_iter().map(word).collect();
        preview.runs = self.spelt(&line.join(" "), LONGEST);
        let cwd = server.transport.local().and_then(|local| local.cwd.as_ref());
        preview.cwd = cwd.map(|cwd| self.spelt(&cwd.to_string_lossy(), LONGEST_VALUE));
        for (name, value) in server.transport.given() {
            let given = (self.spelt(name, LONGEST_VALUE), self.value(value, &mut preview));
            preview.gives.push(given);
        }
        for (key, value) in entry.as_object().into_iter().flatten() {
            if !is_shown_elsewhere(key) && !super::read::is_comment(key) {
                let value = self.spelt(&value.to_string(), LONGEST_VALUE);
                preview.others.push((self.spelt(key, LONGEST_VALUE), value));
            }
        }
        for text in server.overrides.texts() {
            // For what it looks up and reads; the text itself is among the other keys.
            let _shown = self.value(text, &mut preview);
        }
        variables(entry, &mut preview.reads);
        preview.reads.sort();
        preview.reads.dedup();
        let whole = entry.to_string();
        if text::hides_something(&preview.name) || whole.chars().any(text::is_unseen) {
            preview.doubts.push("it holds characters that cannot be seen");
        }
        if text::mixes_scripts(&server.name) || text::mixes_scripts(&preview.runs) {
            preview.doubts.push("it mixes letters of several alphabets that look alike");
        }
        preview
    }

    /// What a variable or header is set to, secret or not: a name that sounds like a secret's may choose a program, as
    /// `GIT_CONFIG_KEY_0` does, and whoever gets to see the picture has the file.
    fn value(&mut self, value: &Secret, of: &mut ServerPreview) -> String {
        let written = value.expose();
        if Reference::is_one(written) {
            if let Ok(Reference::Command(words)) = Reference::parse(written) {
                let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
                of.lookups.push(self.spelt(&line, LONGEST));
            }
            if let Ok(Reference::Variable(variable)) = Reference::parse(written) {
                of.reads.push(self.spelt(&variable, LONGEST_VALUE));
            }
            return self.spelt(written, LONGEST_VALUE);
        }
        self.spelt(written, LONGEST_VALUE)
    }
}

/// Whether a key is shown in a form of its own, under whichever of its names.
fn is_shown_elsewhere(key: &str) -> bool {
    const ELSEWHERE: [&str; 10] = [
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "headers",
        "type",
        "description",
        "openapi",
        "credentials",
    ];
    let known = SERVER_KEYS
        .iter()
        .map(|known| &known.key)
        .find(|known| known.name == key || known.aliases.contains(&key));
    known.is_some_and(|known| ELSEWHERE.contains(&known.name))
}

/// The variables of the user's that the texts of an entry name.
fn variables(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let asked = std::cell::RefCell::new(Vec::new());
            // Called for each variable without resolving it, so that defaults are expanded as well.
            let note = |name: &str| {
                asked.borrow_mut().push(text::spelt(name, LONGEST_VALUE));
                None
            };
            // Text that is not well-formed is no use of a variable: its server is not used.
            drop(expand(text, &note));
            into.extend(asked.into_inner());
        }
        Value::Array(values) => values.iter().for_each(|value| variables(value, into)),
        Value::Object(object) => object.values().for_each(|value| variables(value, into)),
        _ => {}
    }
}

/// A setting that the file would change; none where nothing would differ.
fn setting(given: &Given, values: &[Given]) -> Option<SettingPreview> {
    let now = values.iter().find(|value| value.setting == given.setting);
    let is_overridden = now
        .is_some_and(|now| matches!(now.origin, Origin::Environment { .. } | Origin::Flag { .. }));
    if !is_overridden && now.is_some_and(|now| now.value == given.value) {
        return None;
    }
    let shown = |text: &str| text::spelt(text, LONGEST_VALUE);
    Some(SettingPreview {
        key: given.setting.key.unwrap_or(given.setting.flag).to_owned(),
        to: shown(&given.value.text()),
        from: now.map(|now| shown(&now.value.text())).unwrap_or_default(),
        origin: now
            .map_or_else(|| Origin::Default.to_string(), |now| shown(&now.origin.to_string())),
        is_overridden,
    })
}
