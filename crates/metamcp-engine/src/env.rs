//! Environment variables that a configuration names, and where home is.
//! Owns: the engine's only look-up of a variable; whose variables are meant.      Never: knows settings (the binary reads those).
//! In: a name.  Out: its value.
//! Tests: below; through what asks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

/// The value of a variable; one that is not UTF-8 counts as not set.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether a variable is set, whatever its value is.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// The name of this host, where the system says it without being asked much.
#[cfg(feature = "fleet")]
pub(crate) fn host_name() -> Option<String> {
    let given = var(if cfg!(windows) { "COMPUTERNAME" } else { "HOSTNAME" });
    let given = given.filter(|name| !name.is_empty());
    given.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
}

/// The user's home, which need not be UTF-8.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn home() -> Option<PathBuf> {
    std::env::var_os(if cfg!(windows) { "USERPROFILE" } else { "HOME" }).map(PathBuf::from)
}

/// Our own program, links followed. On Linux also after it was replaced on disk, as an upgrade does while a daemon runs.
pub fn own_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.canonicalize().unwrap_or_else(|_| replaced(&program)))
}

/// The name of a program that the kernel calls deleted.
fn replaced(program: &Path) -> PathBuf {
    let name = program.to_str().and_then(|name| name.strip_suffix(" (deleted)"));
    name.map_or_else(|| program.to_owned(), PathBuf::from)
}

/// The variables of one client: those of this process, or those that a client of the daemon brought along.
#[derive(Clone, Default)]
pub struct Variables {
    /// `None`: those of this process.
    all: Option<Arc<BTreeMap<String, String>>>,
    /// Where it is noted what was asked for, and what the answer was.
    asked: Option<Arc<Asked>>,
}

/// Variables that were asked for.
pub(crate) type Asked = Mutex<BTreeMap<String, Option<String>>>;

/// Without the values, which are often secrets.
impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.all {
            None => f.write_str("Variables(own)"),
            Some(all) => write!(f, "Variables({})", all.len()),
        }
    }
}

impl Variables {
    /// Those of a client.
    pub fn of(all: BTreeMap<String, String>) -> Variables {
        Variables { all: Some(Arc::new(all)), asked: None }
    }

    /// The same, which from now on notes what is asked for.
    #[must_use]
    pub(crate) fn recording(&self, asked: &Arc<Asked>) -> Variables {
        Variables { all: self.all.clone(), asked: Some(Arc::clone(asked)) }
    }

    /// The value of a variable; one that is not UTF-8 counts as not set.
    pub fn get(&self, name: &str) -> Option<String> {
        let value = match &self.all {
            None => var(name),
            Some(all) => found(all, name).cloned(),
        };
        if let Some(asked) = &self.asked {
            asked.lock().insert(name.to_owned(), value.clone());
        }
        value
    }

    /// The names of all that are set.
    pub fn names(&self) -> Vec<String> {
        match &self.all {
            None => std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect(),
            Some(all) => all.keys().cloned().collect(),
        }
    }

    /// All of them, where they are not this process's own.
    pub fn of_client(&self) -> Option<Arc<[(OsString, OsString)]>> {
        let all = self.all.as_ref()?;
        Some(all.iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// Where a program is that is started by this name: what `PATH` finds, or the name itself.
    pub fn program(&self, command: &str, folder: Option<&Path>) -> PathBuf {
        let written = Path::new(command);
        if written.components().count() > 1 {
            return folder.map_or_else(|| written.to_owned(), |folder| folder.join(written));
        }
        let path = self.get("PATH").unwrap_or_default();
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(written));
        found.find(|file| file.is_file()).unwrap_or_else(|| written.to_owned())
    }
}

/// A variable among others. Windows takes names that differ in case for one: what is asked for as `PATH` is `Path` there.
pub fn found<'a>(all: &'a BTreeMap<String, String>, name: &str) -> Option<&'a String> {
    let same = |(one, _): &(&String, &String)| one.eq_ignore_ascii_case(name);
    all.get(name).or_else(|| {
        if cfg!(windows) { all.iter().find(same).map(|(_, value)| value) } else { None }
    })
}

/// Where and for whom servers are started: the client's folder and variables.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Where servers run that have no folder of their own; `None` is the gateway's.
    pub folder: Option<PathBuf>,
    pub variables: Variables,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_replaced_keeps_its_place() {
        assert_eq!(replaced(Path::new("/a/metamcp (deleted)")), Path::new("/a/metamcp"));
        assert_eq!(replaced(Path::new("/a/metamcp")), Path::new("/a/metamcp"));
        assert!(own_program().is_some_and(|program| program.is_file()));
    }

    #[test]
    fn a_clients_variables_are_its_own_and_no_others() {
        let all = [("PATH", "/nowhere:/bin"), ("TOKEN", "one")].map(|(a, b)| (a.into(), b.into()));
        let variables = Variables::of(all.into_iter().collect());
        assert_eq!(variables.get("TOKEN").as_deref(), Some("one"));
        assert_eq!(variables.get("HOME"), None);
        assert_eq!(variables.program("sh", None), Path::new("/bin/sh"));
        assert_eq!(variables.program("./sh", Some(Path::new("/a"))), Path::new("/a/./sh"));
        assert_eq!(variables.program("no-such-program", None), Path::new("no-such-program"));
        assert!(!format!("{variables:?}").contains("one"), "values are not printed");
    }
}
