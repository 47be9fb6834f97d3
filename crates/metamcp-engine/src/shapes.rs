//! Shapes of tool results and arguments, inferred from calls; those of results are stored on this machine.
//! Owns: the shapes and their file.      Never: stores a value, shows one principal the shapes of another's calls (keys of
//! a result can be data too), waits for the disk on the path of a call.
//! In: records of calls, from `observe`.  Out: JSON Schemas for declarations.
//! Tests: below; `metamcp_tools::declarations::observed` for the shapes themselves.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use metamcp_tools::declarations::observed;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::files::Directory;
use crate::observe::{CallRecord, Event, Interest, Origin, Subscriber, Verdict};
use crate::{compute, task};

const FILE: &str = "shapes.json";
/// The form of the file. Another one is not read, and replaced.
const VERSION: u64 = 1;
/// Longest shape stored; a longer one is of no use to a model.
const MAX_SHAPE: usize = 4 * 1024;
/// Most tools with a shape.
const MAX_TOOLS: usize = 2_000;
/// Longest file read, well above what this writes.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Longest result parsed: more would take too long.
const MAX_RESULT: usize = 256 * 1024;
/// Results up to this size are parsed inline, in less than 100 us; longer ones on a compute thread.
pub(crate) const SHORT_RESULT: usize = 4 * 1024;
/// Longest arguments parsed.
const MAX_ARGUMENTS: usize = 16 * 1024;
/// Results of one tool that are parsed where no script asked for them: the first ones show what a tool returns, and later
/// ones would cost every call.
const MAX_CALLS: u32 = 3;
/// Calls of one tool whose arguments are parsed: later ones rarely add anything.
const MAX_USES: u32 = 8;
/// Most principals with shapes; a new one evicts the least recently used.
const MAX_PRINCIPALS: usize = 64;
/// The user who started the gateway, over stdio or without tokens. Only this one's shapes are written to disk: the file
/// is the owner's, and only a listener knows its principals.
pub(crate) const OWNER: u64 = 0;

/// See the module.
#[derive(Debug)]
pub struct Shapes {
    home: Arc<Path>,
    state: Arc<Mutex<State>>,
    parsing: Arc<Parsing>,
}

/// Results that are being parsed on a compute thread.
#[derive(Debug, Default)]
struct Parsing {
    count: AtomicUsize,
    done: Notify,
}

#[derive(Debug, Default)]
struct State {
    of: HashMap<u64, LearnedShapes>,
    /// How many results were parsed without a script that asked for them; by principal, server and tool, because every
    /// call looks them up.
    called: HashMap<u64, HashMap<String, HashMap<String, u32>>>,
    /// Counts up with every use, to find the least recently used principal.
    now: u64,
    /// Whether the file has to be written.
    changed: bool,
}

/// The shapes of one principal's calls.
#[derive(Debug, Default)]
struct LearnedShapes {
    /// Results, by `server:tool`; shared with whoever reads them on another thread.
    known: Arc<BTreeMap<String, Value>>,
    /// Shapes of arguments, and how many were parsed; by server and tool, because every call looks them up.
    used: HashMap<String, HashMap<String, (u32, Value)>>,
    last: u64,
}

impl State {
    fn learnt(&mut self, principal: u64, home: &Path) -> &mut LearnedShapes {
        self.now += 1;
        let now = self.now;
        if !self.of.contains_key(&principal) {
            let others = self.of.iter().filter(|(whose, _)| **whose != OWNER);
            let oldest = others.min_by_key(|(_, learnt)| learnt.last).map(|(whose, _)| *whose);
            if let Some(oldest) = oldest.filter(|_| self.of.len() >= MAX_PRINCIPALS) {
                self.of.remove(&oldest);
            }
            let known = if principal == OWNER { Arc::new(read(home)) } else { Arc::default() };
            self.of.insert(principal, LearnedShapes { known, ..LearnedShapes::default() });
        }
        let learnt = self.of.entry(principal).or_default();
        learnt.last = now;
        learnt
    }
}

impl Subscriber for Shapes {
    fn interest(&self) -> Interest {
        Interest::CALLS
    }

    fn on_event(&self, event: &Event<'_>) {
        let Event::Call(record, payload) = event else { return };
        let (principal, server, tool) = (record.identity.principal, &*record.server, &*record.tool);
        let is_script = matches!(record.origin, Origin::Script(_));
        if let Some(result) = payload.result.filter(|result| result.len() <= MAX_RESULT) {
            if is_script && result.len() <= SHORT_RESULT {
                self.saw(principal, server, tool, result);
            } else if is_script || self.is_new(principal, server, tool) {
                self.parse_later(record, result.clone());
            }
        }
        let shows_use = is_script || matches!(record.origin, Origin::RunTool | Origin::Chain);
        if shows_use && record.verdict == Verdict::Ok {
            let arguments = payload.arguments.map_or(&b"{}"[..], |arguments| arguments);
            self.used(principal, server, tool, arguments);
        }
    }
}

impl Shapes {
    /// Shapes stored under `home`. Touches nothing yet.
    pub fn new(home: &Path) -> Shapes {
        Shapes { home: home.into(), state: Arc::default(), parsing: Arc::default() }
    }

    /// Learns the shape of a tool's result.
    pub fn saw(&self, principal: u64, server: &str, tool: &str, result: &[u8]) {
        learn(&self.state, &self.home, principal, &format!("{server}:{tool}"), result);
    }

    fn parse_later(&self, record: &CallRecord, result: Bytes) {
        let (state, home) = (Arc::clone(&self.state), Arc::clone(&self.home));
        let id = format!("{}:{}", record.server, record.tool);
        let (principal, parsing) = (record.identity.principal, Arc::clone(&self.parsing));
        parsing.count.fetch_add(1, Ordering::AcqRel);
        task::spawn("shapes", async move {
            // Without JSON there is no shape.
            let (learning, path) = (Arc::clone(&state), Arc::clone(&home));
            drop(compute::run(move || learn(&learning, &path, principal, &id, &result)).await);
            parsing.count.fetch_sub(1, Ordering::AcqRel);
            parsing.done.notify_waiters();
            keep(&state, &home);
        });
    }

    /// Whether few results of a tool were parsed; this one counts.
    fn is_new(&self, principal: u64, server: &str, tool: &str) -> bool {
        let called = &mut self.lock().called;
        if !called.contains_key(&principal) && called.len() >= MAX_PRINCIPALS {
            // They are counted anew, which parses a few results once more.
            called.clear();
        }
        let called = called.entry(principal).or_default();
        if let Some(times) = called.get_mut(server).and_then(|tools| tools.get_mut(tool)) {
            *times += 1;
            return *times <= MAX_CALLS;
        }
        if called.values().map(HashMap::len).sum::<usize>() >= MAX_TOOLS {
            return false;
        }
        called.entry(server.to_owned()).or_default().insert(tool.to_owned(), 1);
        true
    }

    /// Waits until every result so far was parsed.
    pub async fn learnt(&self) {
        loop {
            let done = self.parsing.done.notified();
            if self.parsing.count.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }

    /// Learns the shape of arguments that worked, an object. It is stored in memory only.
    pub fn used(&self, principal: u64, server: &str, tool: &str, arguments: &[u8]) {
        if arguments.len() > MAX_ARGUMENTS {
            return;
        }
        let mut state = self.lock();
        let used = &mut state.learnt(principal, &self.home).used;
        let (times, known) = match used.get(server).and_then(|tools| tools.get(tool)) {
            Some((times, _)) if *times >= MAX_USES => return,
            Some((times, known)) => (*times, Some(known)),
            None if used.values().map(HashMap::len).sum::<usize>() >= MAX_TOOLS => return,
            None => (0, None),
        };
        let Ok(value) = serde_json::from_slice::<Value>(arguments) else { return };
        let seen = observed::shape(&value);
        let merged = known.map_or_else(|| seen.clone(), |old| observed::merge(old, &seen));
        if merged.to_string().len() <= MAX_SHAPE {
            let tools = used.entry(server.to_owned()).or_default();
            tools.insert(tool.to_owned(), (times + 1, merged));
        }
    }

    /// The shape of arguments that worked, if any of this principal's were seen.
    pub fn uses_of(&self, principal: u64, server: &str, tool: &str) -> Option<Value> {
        let state = self.lock();
        state.of.get(&principal)?.used.get(server)?.get(tool).map(|(_, shape)| shape.clone())
    }

    /// The shape of a tool's results, if any of this principal's was seen.
    pub fn of(&self, principal: u64, server: &str, tool: &str) -> Option<Value> {
        let mut state = self.lock();
        state.learnt(principal, &self.home).known.get(&format!("{server}:{tool}")).cloned()
    }

    /// All shapes of this principal's results, for a thread that must not hold the lock.
    pub async fn all_of(&self, principal: u64) -> LearnedResults {
        if principal == OWNER && !self.lock().of.contains_key(&OWNER) {
            // Read off this thread, which relays calls.
            let (state, home) = (Arc::clone(&self.state), Arc::clone(&self.home));
            drop(tokio::task::spawn_blocking(move || load(&state, &home)).await);
        }
        LearnedResults(Arc::clone(&self.lock().learnt(principal, &self.home).known))
    }

    /// Writes new shapes in the background. After a failed write they are learnt again.
    pub fn keep(&self) {
        keep(&self.state, &self.home);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The shapes of results as they were at one moment.
#[derive(Debug, Default)]
pub struct LearnedResults(Arc<BTreeMap<String, Value>>);

impl LearnedResults {
    /// The shape of what a tool returns, by `server:tool`.
    pub fn of(&self, id: &str) -> Option<&Value> {
        self.0.get(id)
    }
}

/// Reads the owner's shapes from disk, without the lock that calls need.
fn load(state: &Mutex<State>, home: &Path) {
    if state.lock().of.contains_key(&OWNER) {
        return;
    }
    let known = Arc::new(read(home));
    let mut state = state.lock();
    state.of.entry(OWNER).or_insert(LearnedShapes { known, ..LearnedShapes::default() });
}

fn keep(state: &Mutex<State>, home: &Arc<Path>) {
    let mut state = state.lock();
    if !std::mem::take(&mut state.changed) {
        return;
    }
    let known = Arc::clone(&state.learnt(OWNER, home).known);
    drop(state);
    let home = Arc::clone(home);
    drop(tokio::task::spawn_blocking(move || write(&home, &known)));
}

fn learn(state: &Mutex<State>, home: &Path, principal: u64, id: &str, result: &[u8]) {
    let Some(value) = useful(result).filter(|_| result.len() <= MAX_RESULT) else { return };
    let seen = observed::shape(&value);
    if principal == OWNER {
        load(state, home);
    }
    let mut state = state.lock();
    let known = &mut state.learnt(principal, home).known;
    let merged = known.get(id).map_or_else(|| seen.clone(), |old| observed::merge(old, &seen));
    if known.get(id) == Some(&merged)
        || merged.to_string().len() > MAX_SHAPE
        || (known.len() >= MAX_TOOLS && !known.contains_key(id))
    {
        return;
    }
    Arc::make_mut(known).insert(id.to_owned(), merged);
    state.changed |= principal == OWNER;
}

/// The value a script receives: structured content, else text that is JSON. Plain text has no shape worth a type.
fn useful(result: &[u8]) -> Option<Value> {
    let result: Value = serde_json::from_slice(result).ok()?;
    if result["isError"] == true {
        return None;
    }
    if !result["structuredContent"].is_null() {
        return Some(result["structuredContent"].clone());
    }
    // What the gateway adds for readers is no part of the value.
    let is_said = |part: &&Value| part["_meta"][metamcp_openapi::answer::NOTE] != true;
    let parts: Vec<&Value> = result["content"].as_array()?.iter().filter(is_said).collect();
    match parts.as_slice() {
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
    // A lost shape is learnt again.
    if let Ok(directory) = Directory::home_or_create(home) {
        drop(directory.replace(FILE, whole.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: u64 = 7;

    #[test]
    fn a_shape_is_learnt_stored_and_read_again() {
        let home = tempfile::tempdir().unwrap();
        let shapes = Shapes::new(home.path());
        shapes.saw(OWNER, "s", "t", br#"{"content":[{"type":"text","text":"{\"a\": 1}"}]}"#);
        shapes.saw(OWNER, "s", "t", br#"{"structuredContent":{"a": 2, "b": "x"}}"#);
        shapes.saw(
            OWNER,
            "s",
            "failed",
            br#"{"isError":true,"content":[{"type":"text","text":"[1]"}]}"#,
        );
        let expected = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]});
        assert_eq!(shapes.of(OWNER, "s", "t"), Some(expected.clone()));
        assert_eq!(shapes.of(OWNER, "s", "failed"), None);
        write(home.path(), &shapes.lock().of[&OWNER].known);
        assert_eq!(Shapes::new(home.path()).of(OWNER, "s", "t"), Some(expected));
    }

    #[test]
    fn no_principal_learns_from_the_calls_of_another() {
        let home = tempfile::tempdir().unwrap();
        let shapes = Shapes::new(home.path());
        let result = r#"{"structuredContent":{"patient_4711": 1}}"#;
        for (whose, other) in [(OWNER, OTHER), (OTHER, OWNER), (OTHER, 8)] {
            let tool = format!("of_{whose}");
            shapes.saw(whose, "s", &tool, result.as_bytes());
            shapes.used(whose, "s", &tool, br#"{"acct": 1}"#);
            assert!(shapes.of(whose, "s", &tool).is_some());
            assert!(shapes.uses_of(whose, "s", &tool).is_some());
            assert_eq!(shapes.of(other, "s", &tool), None);
            assert_eq!(shapes.uses_of(other, "s", &tool), None);
        }
        // The file is the owner's: it contains nothing of other principals, and they see nothing of it.
        write(home.path(), &shapes.lock().of[&OWNER].known);
        let later = Shapes::new(home.path());
        assert!(later.of(OWNER, "s", "of_0").is_some());
        assert_eq!(later.of(OWNER, "s", "of_7"), None);
        assert_eq!(later.of(OTHER, "s", "of_0"), None);
    }

    #[test]
    fn many_principals_are_bounded_and_the_owner_stays() {
        let home = tempfile::tempdir().unwrap();
        let shapes = Shapes::new(home.path());
        for principal in 0..10 * MAX_PRINCIPALS as u64 {
            shapes.saw(principal, "s", "t", br#"{"structuredContent":{"a": 1}}"#);
        }
        assert_eq!(shapes.lock().of.len(), MAX_PRINCIPALS);
        assert!(shapes.of(OWNER, "s", "t").is_some());
    }

    #[test]
    fn a_damaged_file_counts_as_missing() {
        let home = tempfile::tempdir().unwrap();
        for damage in
            ["", "{", "[]", r#"{"version":9,"shapes":{}}"#, r#"{"version":1,"shapes":[7]}"#]
        {
            std::fs::write(home.path().join(FILE), damage).unwrap();
            assert_eq!(Shapes::new(home.path()).of(OWNER, "s", "t"), None, "{damage}");
        }
    }
}
