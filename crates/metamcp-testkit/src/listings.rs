//! What real servers list, recorded at pinned versions, and questions in people's words about their tools.
//! Owns: the format of `tests/real/listings`.  Never: starts a server, needs a network.
//! In: the recorded files.  Out: `Listing`, `Question`, and a config entry that replays a listing.
//! Tests: below; the recording is `cargo xtask tokens --record`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::programs;
use crate::workspace::Server;

/// What one server answered to `initialize` and `tools/list`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Listing {
    /// The name it has in the benchmark's configuration.
    pub name: String,
    pub package: String,
    pub version: String,
    /// Only lists of packages under open licences are recorded.
    pub licence: String,
    /// The result of `initialize`.
    pub initialize: Value,
    /// All pages of `tools/list`, as listed.
    pub tools: Vec<Value>,
}

/// What a person would ask for, and the tools that do it.
#[derive(Clone, Debug, Deserialize)]
pub struct Question {
    pub words: String,
    /// `server:tool`; any of them is right.
    pub tools: Vec<String>,
}

impl Listing {
    /// A server that lists exactly this.
    pub fn replayed(&self) -> Server {
        Server::new(programs::replay_child(), &[]).argument(&path(&self.name).to_string_lossy())
    }

    /// Reads one recorded file.
    pub fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no listing", file.display()))
    }

    /// Writes it where `recorded` finds it: one tool per line, so that a new version is a readable diff.
    pub fn write(&self) -> Result<()> {
        let mut text = serde_json::to_string(&Self { tools: Vec::new(), ..self.clone() })?;
        ensure!(text.ends_with("[]}"), "the tools are the last field");
        text.truncate(text.len() - 2);
        let lines: Vec<String> = self.tools.iter().map(Value::to_string).collect();
        text.push_str(&format!("\n{}\n]}}\n", lines.join(",\n")));
        fs::create_dir_all(folder().join("recorded"))?;
        let path = path(&self.name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Where recordings, questions and the lock files of the recorded servers are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/real/listings")
}

/// All recorded listings, by name.
pub fn recorded() -> Result<Vec<Listing>> {
    let folder = folder().join("recorded");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "json"));
    files.sort();
    files.iter().map(|file| Listing::read(file)).collect()
}

/// The questions about the recorded tools.
pub fn questions() -> Result<Vec<Question>> {
    let file = folder().join("questions.json");
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} has no questions", file.display()))
}

fn path(name: &str) -> PathBuf {
    folder().join("recorded").join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn there_are_twenty_servers_and_each_is_what_the_list_of_them_names() {
        let listings = recorded().unwrap();
        assert!(listings.len() >= 20, "{}", listings.len());
        let read = |path: PathBuf| -> Value {
            serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
        };
        let listed = read(folder().join("servers.json"));
        let tested = read(folder().join("../manifest.json"));
        let named: Vec<&Value> = [&listed, &tested]
            .iter()
            .flat_map(|file| file["servers"].as_array().unwrap())
            .collect();
        assert_eq!(named.len(), listings.len());
        for listing in &listings {
            let server = named.iter().find(|server| server["name"] == listing.name.as_str());
            let server = server.unwrap_or_else(|| panic!("{} is not named", listing.name));
            assert_eq!(server["version"], listing.version, "{}", listing.name);
            assert!(!listing.tools.is_empty(), "{}", listing.name);
        }
    }

    #[test]
    fn every_question_is_about_recorded_tools() {
        let known: HashSet<String> = recorded()
            .unwrap()
            .iter()
            .flat_map(|listing| {
                let name =
                    |tool: &Value| format!("{}:{}", listing.name, tool["name"].as_str().unwrap());
                listing.tools.iter().map(name).collect::<Vec<_>>()
            })
            .collect();
        let questions = questions().unwrap();
        assert!(questions.len() >= 100, "{}", questions.len());
        let distinct: HashSet<&str> =
            questions.iter().map(|question| question.words.as_str()).collect();
        assert_eq!(distinct.len(), questions.len());
        for question in questions {
            assert!(!question.tools.is_empty(), "{}", question.words);
            for tool in &question.tools {
                assert!(known.contains(tool), "{tool} of {:?} is not recorded", question.words);
            }
        }
    }
}
