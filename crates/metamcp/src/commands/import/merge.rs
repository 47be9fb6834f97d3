//! Merging servers into our own file: each once, identified by what it runs, under a free name.

use std::cell::RefCell;
use std::collections::HashMap;

use metamcp_child::process_sandbox::in_path;
use metamcp_config::clients::{identity, is_off, joined};
use metamcp_config::edit::{self, Format};
use serde_json::Value;

use super::ImportStatus;
use crate::commands::servers::SERVER_KEYS;

/// How many names are tried before a server is skipped.
const MOST_NAMES: usize = 99;

/// Our own file during an import. It is read once and written once, however many servers there are.
pub(crate) struct Merger {
    text: String,
    key: &'static str,
    all: Vec<MergedServer>,
    names: HashMap<String, usize>,
    identities: HashMap<String, usize>,
    programs: RefCell<HashMap<String, String>>,
}

struct MergedServer {
    name: String,
    entry: Value,
    /// Whether this import added it; entries that were there before are never changed.
    is_new: bool,
}

impl Merger {
    /// Starts from the servers of our own file.
    pub(crate) fn new(text: &str) -> anyhow::Result<Merger> {
        let mut merger = Merger {
            text: text.to_owned(),
            key: SERVER_KEYS[0],
            all: Vec::new(),
            names: HashMap::new(),
            identities: HashMap::new(),
            programs: RefCell::default(),
        };
        let mut is_first = false;
        for key in SERVER_KEYS {
            let read = edit::read(Format::Json, text, &[key])?;
            if key == SERVER_KEYS[0] {
                is_first = read.is_some();
            } else if read.is_some() && !is_first {
                merger.key = key;
            }
            let Some(Value::Object(servers)) = read else { continue };
            for (name, entry) in servers {
                let id = merger.identity(&entry);
                merger.hold(name, entry, id, false);
            }
        }
        Ok(merger)
    }

    /// Adds a server, unless it is already there.
    pub(crate) fn place(&mut self, name: &str, suffix: &str, entry: &Value) -> ImportStatus {
        let id = self.identity(entry);
        if let Some(held) = self.identities.get(&id).map(|&at| &mut self.all[at]) {
            if !held.is_new && is_off(&held.entry) && !is_off(entry) {
                let name = &held.name;
                return ImportStatus::Skipped(format!(
                    "metamcp has it disabled, as `{name}`; run `metamcp enable {name}` first"
                ));
            }
            if held.is_new {
                held.entry = joined(&held.entry, entry);
            }
            return ImportStatus::Same(held.name.clone());
        }
        let numbered = (2..=MOST_NAMES).map(|number| format!("{name}-{suffix}-{number}"));
        let mut wanted = [name.to_owned(), format!("{name}-{suffix}")].into_iter().chain(numbered);
        let Some(free) = wanted.find(|wanted| !self.names.contains_key(wanted)) else {
            return ImportStatus::Skipped("its name is taken".to_owned());
        };
        self.hold(free.clone(), entry.clone(), id, true);
        ImportStatus::Added(free)
    }

    /// The text of the file with all added servers.
    pub(crate) fn text(&self) -> anyhow::Result<String> {
        let fresh: Vec<(String, Value)> = self
            .all
            .iter()
            .filter(|held| held.is_new)
            .map(|held| (held.name.clone(), held.entry.clone()))
            .collect();
        Ok(edit::set_all(Format::Json, &self.text, &[self.key], &fresh)?)
    }

    /// All entries, existing and added.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Value> {
        self.all.iter().map(|held| &held.entry)
    }

    /// The added servers, by name.
    pub(crate) fn added(&self) -> serde_json::Map<String, Value> {
        let fresh = self.all.iter().filter(|held| held.is_new);
        fresh.map(|held| (held.name.clone(), held.entry.clone())).collect()
    }

    fn hold(&mut self, name: String, entry: Value, id: String, is_new: bool) {
        let at = self.all.len();
        self.names.insert(name.clone(), at);
        self.identities.entry(id).or_insert(at);
        self.all.push(MergedServer { name, entry, is_new });
    }

    fn identity(&self, entry: &Value) -> String {
        identity(entry, &|program| {
            let mut known = self.programs.borrow_mut();
            let found = known.entry(program.to_owned()).or_insert_with(|| {
                let path = in_path(program.as_ref());
                path.map_or_else(|| program.to_owned(), |path| path.display().to_string())
            });
            found.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{ImportStatus, Merger};

    fn placed(text: &str, entries: &[(&str, Value)]) -> (Vec<ImportStatus>, Value) {
        let mut merger = Merger::new(text).unwrap();
        let statuses =
            entries.iter().map(|(name, entry)| merger.place(name, "client", entry)).collect();
        (statuses, serde_json::from_str(&merger.text().unwrap()).unwrap())
    }

    #[test]
    fn the_same_server_however_it_is_written_is_one() {
        let ways = [
            ("time", json!({ "command": "uvx", "args": ["mcp-server-time"] })),
            ("time", json!({ "command": "uvx", "args": ["mcp-server-time"], "timeout": 60_000 })),
            ("time", json!({ "command": ["uvx", "mcp-server-time"], "tools": ["*"] })),
            (
                "clock",
                json!({ "type": "stdio", "command": "uvx", "args": ["mcp-server-time"], "env": {} }),
            ),
            (
                "time",
                json!({ "type": "local", "command": "uvx", "args": ["mcp-server-time"], "tools": ["*"], "timeoutMs": 90_000 }),
            ),
            (
                "time",
                json!({ "command": "uvx", "args": ["mcp-server-time"], "disabled": true, "alwaysAllow": [] }),
            ),
            ("time", json!({ "command": "uvx", "args": ["mcp-server-time"], "passEnv": ["A"] })),
        ];
        let (statuses, text) = placed("{}", &ways);
        assert_eq!(statuses[0], ImportStatus::Added("time".into()));
        assert!(
            statuses[1..].iter().all(|status| *status == ImportStatus::Same("time".into())),
            "{statuses:?}"
        );
        let expected = json!({ "mcpServers": { "time": {
            "command": "uvx", "args": ["mcp-server-time"], "timeoutMs": 90_000, "passEnv": ["A"]
        } } });
        assert_eq!(text, expected, "the longest time, the variables of all, and on");
        let npx = [
            ("a", json!({ "command": "npx", "args": ["-y", "x", "-y"] })),
            ("b", json!({ "command": "npx", "args": ["x", "-y"] })),
            ("c", json!({ "command": "npx", "args": ["x"] })),
        ];
        let (statuses, _) = placed("{}", &npx);
        assert_eq!(statuses[1], ImportStatus::Same("a".into()));
        assert_eq!(
            statuses[2],
            ImportStatus::Added("c".into()),
            "what is behind the package is its own"
        );
    }

    #[test]
    fn what_differs_stays_apart() {
        let ways = [
            ("x", json!({ "command": "x" })),
            ("x", json!({ "command": "x", "args": ["a"] })),
            ("x", json!({ "command": "x", "env": { "A": "1" } })),
            ("x", json!({ "command": "x", "env": { "A": "${A}" } })),
            ("x", json!({ "command": "x", "cwd": "/srv" })),
            ("x", json!({ "command": "x", "tools": ["read"] })),
            ("x", json!({ "url": "https://x.example/mcp" })),
            ("x", json!({ "url": "https://x.example/mcp", "headers": { "A": "1" } })),
        ];
        let (statuses, text) = placed("{}", &ways);
        assert!(
            statuses.iter().all(|status| matches!(status, ImportStatus::Added(_))),
            "{statuses:?}"
        );
        assert_eq!(text["mcpServers"].as_object().unwrap().len(), ways.len());
    }

    #[test]
    fn what_its_owner_wrote_is_not_changed() {
        let text = r#"{ "servers": { "x": { "command": "x", "disabled": true }, "y": { "command": "y" } } }"#;
        let (statuses, after) = placed(
            text,
            &[
                ("x", json!({ "command": "x" })),
                ("z", json!({ "command": "y", "timeoutMs": 5000 })),
            ],
        );
        assert!(
            matches!(&statuses[0], ImportStatus::Skipped(why) if why.contains("metamcp enable x"))
        );
        assert_eq!(statuses[1], ImportStatus::Same("y".into()));
        assert_eq!(after, serde_json::from_str::<Value>(text).unwrap());
    }
}
