//! What results and arguments of tools look like: learnt from calls, results kept on this machine.
//! Owns: the shapes and their file.      Never: keeps a value, waits for the disk on the path of a call.
//! In: results.  Out: JSON Schemas for declarations.
//! Tests: below; `core::declarations::observed` for the shapes themselves.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metamcp_core::declarations::observed;
use serde_json::{Map, Value, json};

use crate::files::Directory;

const FILE: &str = "shapes.json";
/// The form of the file. Another one is not read, and replaced.
const VERSION: u64 = 1;
/// Longest shape kept; a longer one tells a model more than it can use.
const MAX_SHAPE: usize = 4 * 1024;
/// Most tools remembered.
const MAX_TOOLS: usize = 2_000;
/// Longest file read, some way above what this writes.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Longest result looked at: parsing more would cost the gateway's own thread.
const MAX_RESULT: usize = 256 * 1024;
/// Longest arguments looked at.
const MAX_ARGUMENTS: usize = 16 * 1024;
/// Calls of one tool whose arguments are looked at: what is not seen by then is an exception.
const MAX_USES: u32 = 8;

/// See the module.
#[derive(Debug)]
pub struct Shapes {
    home: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// By `server:tool`. `None` until the file was looked at.
    known: Option<BTreeMap<String, Value>>,
    /// What arguments looked like, and how many were looked at; by server and tool, because every call asks.
    used: HashMap<String, HashMap<String, (u32, Value)>>,
    changed: bool,
}

impl Shapes {
    /// Shapes kept under `home`. Touches nothing yet.
    pub fn new(home: &Path) -> Shapes {
        Shapes { home: home.to_owned(), state: Arc::default() }
    }

    /// A tool's useful result, as it came.
    pub fn saw(&self, server: &str, tool: &str, result: &str) {
        if result.len() > MAX_RESULT {
            return;
        }
        let Some(value) = useful(result) else { return };
        let seen = observed::shape(&value);
        let id = format!("{server}:{tool}");
        let mut state = self.lock();
        let home = &self.home;
        let known = state.known.get_or_insert_with(|| read(home));
        let merged = known.get(&id).map_or_else(|| seen.clone(), |old| observed::merge(old, &seen));
        if known.get(&id) == Some(&merged)
            || merged.to_string().len() > MAX_SHAPE
            || (known.len() >= MAX_TOOLS && !known.contains_key(&id))
        {
            return;
        }
        known.insert(id, merged);
        state.changed = true;
    }

    /// Arguments that worked, an object as it was written. Their shape is remembered while this process runs.
    pub fn used(&self, server: &str, tool: &str, arguments: &[u8]) {
        if arguments.len() > MAX_ARGUMENTS {
            return;
        }
        let mut state = self.lock();
        let (times, known) = match state.used.get(server).and_then(|tools| tools.get(tool)) {
            Some((times, _)) if *times >= MAX_USES => return,
            Some((times, known)) => (*times, Some(known)),
            None if state.used.values().map(HashMap::len).sum::<usize>() >= MAX_TOOLS => return,
            None => (0, None),
        };
        let Ok(value) = serde_json::from_slice::<Value>(arguments) else { return };
        let seen = observed::shape(&value);
        let merged = known.map_or_else(|| seen.clone(), |old| observed::merge(old, &seen));
        if merged.to_string().len() <= MAX_SHAPE {
            let tools = state.used.entry(server.to_owned()).or_default();
            tools.insert(tool.to_owned(), (times + 1, merged));
        }
    }

    /// The shape of arguments that worked, if any were seen.
    pub fn uses_of(&self, server: &str, tool: &str) -> Option<Value> {
        self.lock().used.get(server)?.get(tool).map(|(_, shape)| shape.clone())
    }

    /// The shape of a tool's results, if any was seen.
    pub fn of(&self, server: &str, tool: &str) -> Option<Value> {
        let mut state = self.lock();
        let home = &self.home;
        let known = state.known.get_or_insert_with(|| read(home));
        known.get(&format!("{server}:{tool}")).cloned()
    }

    /// Writes what is new, beside everything else. What cannot be written is learnt again.
    pub fn keep(&self) {
        let mut state = self.lock();
        if !std::mem::take(&mut state.changed) {
            return;
        }
        let known = state.known.clone().unwrap_or_default();
        drop(state);
        let home = self.home.clone();
        drop(tokio::task::spawn_blocking(move || write(&home, &known)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a script gets of a result: structured content, else text that is JSON. Plain text has no shape worth a type.
fn useful(result: &str) -> Option<Value> {
    let result: Value = serde_json::from_str(result).ok()?;
    if result["isError"] == true {
        return None;
    }
    if !result["structuredContent"].is_null() {
        return Some(result["structuredContent"].clone());
    }
    match result["content"].as_array()?.as_slice() {
        [one] if one["type"] == "text" => {
            let text = one["text"].as_str()?;
            Some(serde_json::from_str(text).unwrap_or_else(|_| Value::from("text")))
        }
        _ => None,
    }
}

fn read(home: &Path) -> BTreeMap<String, Value> {
    let read = || -> Option<BTreeMap<String, Value>> {
        let directory = Directory::home(home).ok()??;
        let bytes = directory.open(FILE).ok()??.read(MAX_FILE).ok()?;
        let mut whole: Value = serde_json::from_slice(&bytes).ok()?;
        if whole["version"] != VERSION {
            return None;
        }
        let shapes = whole["shapes"].as_object_mut().map(std::mem::take)?;
        let usable = |shape: &Value| shape.is_object() && shape.to_string().len() <= MAX_SHAPE;
        Some(shapes.into_iter().filter(|(_, shape)| usable(shape)).take(MAX_TOOLS).collect())
    };
    read().unwrap_or_default()
}

fn write(home: &Path, known: &BTreeMap<String, Value>) {
    let shapes: Map<String, Value> =
        known.iter().map(|(id, shape)| (id.clone(), shape.clone())).collect();
    let whole = json!({ "version": VERSION, "shapes": shapes }).to_string();
    // A shape that is lost is seen again.
    if let Ok(directory) = Directory::home_or_create(home) {
        drop(directory.replace(FILE, whole.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_learnt_kept_and_read_again() {
        let home = tempfile::tempdir().unwrap();
        let shapes = Shapes::new(home.path());
        shapes.saw("s", "t", r#"{"content":[{"type":"text","text":"{\"a\": 1}"}]}"#);
        shapes.saw("s", "t", r#"{"structuredContent":{"a": 2, "b": "x"}}"#);
        shapes.saw("s", "failed", r#"{"isError":true,"content":[{"type":"text","text":"[1]"}]}"#);
        let expected = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]});
        assert_eq!(shapes.of("s", "t"), Some(expected.clone()));
        assert_eq!(shapes.of("s", "failed"), None);
        write(home.path(), shapes.lock().known.as_ref().unwrap());
        assert_eq!(Shapes::new(home.path()).of("s", "t"), Some(expected));
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let home = tempfile::tempdir().unwrap();
        for damage in
            ["", "{", "[]", r#"{"version":9,"shapes":{}}"#, r#"{"version":1,"shapes":[7]}"#]
        {
            std::fs::write(home.path().join(FILE), damage).unwrap();
            assert_eq!(Shapes::new(home.path()).of("s", "t"), None, "{damage}");
        }
    }
}
