//! Approvals of calls: what waits for a person, and what persons answered.
//! Owns: the file of answers and the folder of open questions, both private to the user; how a question reads.      Never: decides (`metamcp-calls` does), asks, sends.
//! In: calls as they would be sent, answers of persons.  Out: `Decision`s; questions by id.
//! Tests: below, `metamcp/tests/surface/approvals.rs`.

mod question;

use std::path::{Path, PathBuf};

use metamcp_calls::approval::{self, Answer, Decision, Lasting, Subject};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::unix_millis;
use crate::files::{Directory, FileError};
use crate::trust;
use crate::user_file::{self, UserFileError};

pub use question::{Reply, read as read_reply};

/// The answers, in the home.
const FILE: &str = "approvals.json";
/// The open questions, in the home.
const FOLDER: &str = "approvals";
const MAX_FILE: u64 = 4 << 20;
/// Longest arguments that are kept to be shown: what nobody reads, nobody approves.
pub const MAX_ARGUMENTS: usize = 256 * 1024;
/// Most answers stored; the oldest go first.
const MAX_ANSWERS: usize = 1_000;
/// Most open questions: a model that keeps calling must not fill the disk.
const MAX_ASKED: usize = 64;
const HOUR_MS: u64 = 60 * 60 * 1000;
/// How long a question stays open, and an approval of one call unused.
const OPEN_MS: u64 = HOUR_MS;
/// How long a refusal counts, so that a model which tries again does not ask again.
const REFUSED_MS: u64 = 10 * 60 * 1000;

/// A call that needs an approval, as it would be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedCall {
    pub server: String,
    /// What the server is.
    pub made_by: String,
    /// The tool, as its server calls it.
    pub tool: String,
    /// The tool, as clients see it.
    pub shown_as: String,
    /// Its arguments on lines, without secrets and with everything visible; empty where they are too long.
    pub arguments: String,
    /// Of the arguments themselves.
    pub digest: String,
    /// Who makes the call, cleaned.
    pub client: String,
    /// When it was made, in milliseconds since 1970.
    pub since: u64,
}

impl AskedCall {
    /// The same for the same call.
    pub fn id(&self) -> String {
        id_of(&self.server, &self.made_by, &self.tool, Some(&self.digest))
    }

    fn subject(&self) -> Subject<'_> {
        let AskedCall { server, made_by, tool, digest, .. } = self;
        Subject { server, made_by, tool, digest }
    }
}

/// How long a person's approval counts, as that person says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Once,
    Millis(u64),
    Always,
}

/// A stored answer, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    pub server: String,
    pub made_by: String,
    pub tool: String,
    /// The arguments it is for; none where it is for all.
    #[serde(default)]
    pub digest: Option<String>,
    /// Until when it counts, in milliseconds since 1970; none where it always does.
    #[serde(default)]
    pub until: Option<u64>,
    /// Whether it is for one call only.
    #[serde(default)]
    pub once: bool,
    /// Whether the call may run.
    pub approved: bool,
    /// When it was given.
    pub at: u64,
    /// The beginning of the arguments it was given for, for people.
    #[serde(default)]
    pub about: String,
}

impl StoredAnswer {
    pub fn id(&self) -> String {
        id_of(&self.server, &self.made_by, &self.tool, self.digest.as_deref())
    }

    fn answer(&self) -> Answer {
        let lasting = match (self.until, self.once) {
            (Some(until_ms), true) => Lasting::Once { until_ms },
            // An answer for one call has a time; without it, it counts for nothing.
            (None, true) => Lasting::Once { until_ms: 0 },
            (Some(ms), false) => Lasting::Until { ms },
            (None, false) => Lasting::Always,
        };
        Answer {
            server: self.server.clone(),
            made_by: self.made_by.clone(),
            tool: self.tool.clone(),
            digest: self.digest.clone(),
            lasting,
            is_yes: self.approved,
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    answers: Vec<StoredAnswer>,
}

#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}")]
    Change(String),
    /// Others can write it, so it cannot be trusted.
    #[error("{} can be changed by other users; remove their write permission", .0.display())]
    Exposed(PathBuf),
    #[error("{} cannot be read: {why}; repair it, or delete it to revoke all approvals", path.display())]
    Damaged { path: PathBuf, why: String },
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalStore {
    home: PathBuf,
}

impl ApprovalStore {
    pub fn new(home: &Path) -> ApprovalStore {
        ApprovalStore { home: home.to_owned() }
    }

    /// What becomes of a call. An approval for one call is used up by it: of two calls only one gets it.
    ///
    /// # Errors
    /// The answers cannot be read or changed; then none of them counts.
    pub fn decide(
        &self,
        call: &AskedCall,
    ) -> Result<(Decision, Option<StoredAnswer>), ApprovalError> {
        let path = self.home.join(FILE);
        // Most calls find nothing, and need no lock for that.
        if !path.exists() {
            return Ok((Decision::Ask, None));
        }
        let mut decided = (Decision::Ask, None);
        self.change(|answers| {
            let now = unix_millis();
            let all: Vec<Answer> = answers.iter().map(StoredAnswer::answer).collect();
            let decision = approval::decide(&call.subject(), &all, now);
            decided = (decision, None);
            let Decision::Allow(at) = decision else { return false };
            decided.1 = answers.get(at).cloned();
            let is_used_up = answers.get(at).is_some_and(|answer| answer.once);
            if is_used_up {
                answers.remove(at);
            }
            is_used_up
        })?;
        Ok(decided)
    }

    /// Stores a person's answer about a call as it was shown: for its arguments, or for any.
    ///
    /// # Errors
    /// It could not be stored, so it does not count.
    pub fn answer(
        &self,
        call: &AskedCall,
        approved: bool,
        span: Span,
        any_arguments: bool,
    ) -> Result<StoredAnswer, ApprovalError> {
        let now = unix_millis();
        let until = match span {
            _ if !approved => Some(now + REFUSED_MS),
            Span::Once => Some(now + OPEN_MS),
            Span::Millis(millis) => Some(now.saturating_add(millis)),
            Span::Always => None,
        };
        let answer = StoredAnswer {
            server: call.server.clone(),
            made_by: call.made_by.clone(),
            tool: call.tool.clone(),
            digest: (!any_arguments).then(|| call.digest.clone()),
            until,
            once: approved && span == Span::Once,
            approved,
            at: now,
            about: question::beginning(call),
        };
        self.change(|answers| {
            // The last word counts: an earlier answer about the same is replaced, and so is what said otherwise of these
            // arguments.
            let is_same = |known: &StoredAnswer| known.id() == answer.id();
            let is_opposite = |known: &StoredAnswer| {
                known.approved != approved && known.answer().is_about(&call.subject())
            };
            answers.retain(|known| !(is_same(known) || approved && is_opposite(known)));
            answers.push(answer.clone());
            true
        })?;
        self.forget_asked(&call.id());
        Ok(answer)
    }

    /// Every answer that still counts, the oldest first.
    ///
    /// # Errors
    /// The file cannot be read or trusted.
    pub fn answers(&self) -> Result<Vec<StoredAnswer>, ApprovalError> {
        let Some(home) = Directory::home(&self.home)? else { return Ok(Vec::new()) };
        let Some(mut file) = home.open(FILE)? else { return Ok(Vec::new()) };
        let path = self.home.join(FILE);
        if trust::is_exposed(&path) {
            return Err(ApprovalError::Exposed(path));
        }
        let text = String::from_utf8_lossy(&file.read(MAX_FILE)?).into_owned();
        let mut answers = decoded(&path, &text)?;
        drop_spent(&mut answers);
        Ok(answers)
    }

    /// Revokes the answer with this id, or all; returns those revoked.
    ///
    /// # Errors
    /// It could not be stored, so they still count.
    pub fn revoke(&self, id: Option<&str>) -> Result<Vec<StoredAnswer>, ApprovalError> {
        let mut revoked = Vec::new();
        self.change(|answers| {
            let is_meant = |answer: &StoredAnswer| id.is_none_or(|id| answer.id() == id);
            revoked = answers.iter().filter(|answer| is_meant(answer)).cloned().collect();
            answers.retain(|answer| !is_meant(answer));
            !revoked.is_empty()
        })?;
        Ok(revoked)
    }

    /// Keeps a call for a person to look at. The same call has the same id.
    ///
    /// # Errors
    /// It could not be stored.
    pub fn ask(&self, call: &AskedCall) -> Result<String, ApprovalError> {
        let folder = Directory::home_or_create(&self.home)?.inside_or_create(FOLDER)?;
        sweep(&folder);
        let id = call.id();
        let bytes = serde_json::to_vec_pretty(call).unwrap_or_default();
        folder.replace(&format!("{id}.json"), &bytes)?;
        Ok(id)
    }

    /// The calls that wait for a person, the oldest first.
    pub fn asked(&self) -> Vec<AskedCall> {
        let Ok(Some(home)) = Directory::home(&self.home) else { return Vec::new() };
        let Ok(Some(folder)) = home.inside(FOLDER) else { return Vec::new() };
        let now = unix_millis();
        let names = folder.names(MAX_ASKED * 2).unwrap_or_default();
        let read = |name: &String| {
            let id = name.strip_suffix(".json")?;
            let raw = folder.open(name).ok()??.read(MAX_FILE).ok()?;
            let call: AskedCall = serde_json::from_slice(&raw).ok()?;
            // A file whose name does not match its content was not written by us.
            (call.id() == id && now.saturating_sub(call.since) <= OPEN_MS).then_some(call)
        };
        let mut asked: Vec<AskedCall> = names.iter().filter_map(read).collect();
        asked.sort_by_key(|call| call.since);
        asked
    }

    /// The call no longer waits.
    pub fn forget_asked(&self, id: &str) {
        if let Ok(Some(home)) = Directory::home(&self.home)
            && let Ok(Some(folder)) = home.inside(FOLDER)
        {
            // What stays is swept after an hour.
            folder.remove(&format!("{id}.json")).ok();
        }
    }

    /// Changes the answers under a lock that processes share. `change` says whether it did.
    fn change(
        &self,
        mut change: impl FnMut(&mut Vec<StoredAnswer>) -> bool,
    ) -> Result<(), ApprovalError> {
        let path = self.home.join(FILE);
        if trust::is_exposed(&path) {
            return Err(ApprovalError::Exposed(path));
        }
        let changed = user_file::change::<ApprovalError>(&path, |text| {
            let mut answers = decoded(&path, text.unwrap_or_default())?;
            drop_spent(&mut answers);
            if !change(&mut answers) {
                return Ok(None);
            }
            let over = answers.len().saturating_sub(MAX_ANSWERS);
            answers.drain(..over);
            let text = serde_json::to_string_pretty(&Stored { answers }).unwrap_or_default();
            Ok(Some(text + "\n"))
        });
        match changed {
            Ok(_) => Ok(()),
            Err(UserFileError::Refused(error)) => Err(error),
            Err(error) => Err(ApprovalError::Change(error.to_string())),
        }
    }
}

/// Of the arguments that would be sent, in their canonical form.
pub fn digest_of(canonical: &[u8]) -> String {
    hex(&Sha256::digest(canonical), 32)
}

fn id_of(server: &str, made_by: &str, tool: &str, digest: Option<&str>) -> String {
    let mut hash = Sha256::new();
    for part in [server, made_by, tool, digest.unwrap_or("*")] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize(), 6)
}

fn hex(bytes: &[u8], count: usize) -> String {
    bytes.iter().take(count).map(|byte| format!("{byte:02x}")).collect()
}

fn decoded(path: &Path, text: &str) -> Result<Vec<StoredAnswer>, ApprovalError> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str::<Stored>(text)
        .map(|stored| stored.answers)
        .map_err(|error| ApprovalError::Damaged { path: path.to_owned(), why: error.to_string() })
}

fn drop_spent(answers: &mut Vec<StoredAnswer>) {
    let now = unix_millis();
    answers.retain(|answer| !answer.answer().lasting.is_over(now));
}

/// Removes questions that are too old or too many.
fn sweep(folder: &Directory) {
    let mut names = folder.names(MAX_ASKED * 4).unwrap_or_default();
    let now = unix_millis();
    let age =
        |name: &String| folder.modified_ms(name).map_or(u64::MAX, |at| now.saturating_sub(at));
    names.sort_by_key(age);
    for (number, name) in names.iter().enumerate() {
        if number + 1 >= MAX_ASKED || age(name) > OPEN_MS {
            // A file that cannot be removed is skipped when reading.
            folder.remove(name).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> AskedCall {
        AskedCall {
            server: "files".into(),
            made_by: "p".into(),
            tool: "delete".into(),
            shown_as: "delete".into(),
            arguments: arguments.into(),
            digest: digest_of(arguments.as_bytes()),
            client: "test".into(),
            since: unix_millis(),
        }
    }

    fn decided(store: &ApprovalStore, call: &AskedCall) -> bool {
        match store.decide(call).unwrap().0 {
            Decision::Allow(_) => true,
            Decision::Ask | Decision::Refuse => false,
        }
    }

    #[test]
    fn an_approval_of_one_call_is_used_up_and_outlives_the_process() {
        let home = tempfile::tempdir().unwrap();
        let store = ApprovalStore::new(home.path());
        let (one, other) = (call("{\"path\":\"a\"}"), call("{\"path\":\"b\"}"));
        assert!(!decided(&store, &one));
        store.ask(&one).unwrap();
        assert_eq!(store.asked(), std::slice::from_ref(&one));
        store.answer(&one, true, Span::Once, false).unwrap();
        assert!(store.asked().is_empty());
        let again = ApprovalStore::new(home.path());
        assert!(!decided(&again, &other));
        assert!(decided(&again, &one));
        assert!(!decided(&again, &one), "it was for one call");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(home.path().join(FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
    }

    #[test]
    fn rules_hold_until_they_are_revoked_and_a_refusal_for_a_while() {
        let home = tempfile::tempdir().unwrap();
        let store = ApprovalStore::new(home.path());
        let (one, other) = (call("1"), call("2"));
        store.answer(&one, true, Span::Always, false).unwrap();
        assert!(decided(&store, &one) && decided(&store, &one) && !decided(&store, &other));
        store.answer(&one, true, Span::Millis(HOUR_MS), true).unwrap();
        assert!(decided(&store, &other));
        assert_eq!(store.answers().unwrap().len(), 2);
        store.answer(&other, false, Span::Once, false).unwrap();
        assert_eq!(store.decide(&other).unwrap().0, Decision::Refuse);
        assert!(decided(&store, &one));
        // Who changes their mind says so.
        store.answer(&other, true, Span::Once, false).unwrap();
        assert!(decided(&store, &other));
        let rule = store.answers().unwrap().into_iter().find(|one| one.digest.is_none()).unwrap();
        assert_eq!(store.revoke(Some(&rule.id())).unwrap().len(), 1);
        assert!(store.revoke(Some(&rule.id())).unwrap().is_empty());
        store.revoke(None).unwrap();
        assert!(!decided(&store, &one) && store.answers().unwrap().is_empty());
    }

    #[test]
    fn a_damaged_file_approves_nothing_and_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let store = ApprovalStore::new(home.path());
        let path = home.path().join(FILE);
        std::fs::write(&path, "{\"answers\": [").unwrap();
        assert!(matches!(store.decide(&call("1")), Err(ApprovalError::Damaged { .. })));
        assert!(store.answer(&call("1"), true, Span::Always, false).is_err());
        assert!(store.revoke(None).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"answers\": [");
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_others_can_write_approves_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let store = ApprovalStore::new(home.path());
        store.answer(&call("1"), true, Span::Always, false).unwrap();
        let path = home.path().join(FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(store.decide(&call("1")), Err(ApprovalError::Exposed(_))));
        assert!(store.answers().is_err());
    }

    #[test]
    fn questions_are_bounded_and_believed_only_under_their_own_name() {
        let home = tempfile::tempdir().unwrap();
        let store = ApprovalStore::new(home.path());
        for number in 0..MAX_ASKED * 2 {
            store.ask(&call(&number.to_string())).unwrap();
        }
        assert!(store.asked().len() <= MAX_ASKED);
        let folder = home.path().join(FOLDER);
        let forged = serde_json::to_vec(&call("forged")).unwrap();
        std::fs::write(folder.join("000000000000.json"), forged).unwrap();
        assert!(!store.asked().iter().any(|call| call.arguments == "forged"));
    }
}
