//! The dependency policy (deny.toml), checked by cargo-deny.
//! Owns: how cargo-deny is run, and the source of its advisories.      Never: defines the policy.
//! In: `--advisories`.  Out: cargo-deny's verdict, and the advisory database it is based on.
//! Tests: below.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::run;
use crate::tools;
use crate::workspace::Workspace;

/// Where cargo-deny stores its databases: `db-path` in deny.toml, relative to the root.
const DATABASES: &str = "target/advisory-dbs";

/// The database that the advisories were checked against.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Advisories {
    /// The current database.
    Fetched,
    /// The fetch failed, but an earlier run left a database; of this day.
    AtHand { date: String },
    /// No database: advisories are unchecked.
    Unchecked,
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let must_be_current = match options {
        [] => false,
        [only] if only == "--advisories" => true,
        _ => bail!("deny takes --advisories or nothing"),
    };
    let advisories = check(workspace)?;
    if must_be_current && advisories != Advisories::Fetched {
        bail!("{advisories}");
    }
    Ok(())
}

/// Licences, bans and sources always; advisories if there is a database.
pub(crate) fn check(workspace: &Workspace) -> Result<Advisories> {
    let program = tools::DENY.program(workspace)?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(&workspace.root);
        command
    };
    run::loud(&mut deny(&["--locked", "check", "bans", "licenses", "sources"]))?;
    // A stalled connection is aborted, so that a network that drops packets costs seconds.
    let fetched = run::quiet(
        deny(&["fetch", "db"])
            .env("GIT_HTTP_LOW_SPEED_LIMIT", "1000")
            .env("GIT_HTTP_LOW_SPEED_TIME", "20")
            .env("GIT_TERMINAL_PROMPT", "0"),
    );
    if fetched.is_ok() {
        run::loud(&mut deny(&["--locked", "check", "advisories"]))?;
        return Ok(Advisories::Fetched);
    }
    let Some(database) = database(&workspace.root.join(DATABASES)) else {
        return Ok(Advisories::Unchecked);
    };
    run::loud(&mut deny(&["--locked", "--offline", "check", "advisories"]))?;
    let date =
        run::quiet(Command::new("git").args(["log", "-1", "--format=%cs"]).current_dir(database))?;
    Ok(Advisories::AtHand { date: date.trim().to_owned() })
}

/// The clone of an earlier fetch; an interrupted one has no commit and does not count.
fn database(folder: &Path) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).find(|path| {
        path.join(".git").is_dir()
            && run::quiet(
                Command::new("git").args(["rev-parse", "--verify", "HEAD"]).current_dir(path),
            )
            .is_ok()
    })
}

impl std::fmt::Display for Advisories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Advisories::Fetched => f.write_str("advisories checked against today's database"),
            Advisories::AtHand { date } => write!(
                f,
                "advisories checked against the database of {date}; a newer one could not be fetched"
            ),
            Advisories::Unchecked => f.write_str(
                "ADVISORIES NOT CHECKED: their database could not be fetched and none is at hand",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_clone_with_a_commit() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(database(&folder.path().join("missing")), None);
        fs::write(folder.path().join("db.lock"), "").unwrap();
        let clone = folder.path().join("advisory-db-0");
        fs::create_dir(&clone).unwrap();
        let git = |arguments: &[&str]| {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
            run::quiet(Command::new("git").args(identity).args(arguments).current_dir(&clone))
                .unwrap();
        };
        git(&["init", "--quiet"]);
        assert_eq!(database(folder.path()), None);
        git(&["commit", "--quiet", "--allow-empty", "--message", "a"]);
        assert_eq!(database(folder.path()), Some(clone.clone()));
    }

    #[test]
    fn what_was_not_checked_is_said_loudly() {
        assert!(Advisories::Unchecked.to_string().contains("NOT CHECKED"));
        let at_hand = Advisories::AtHand { date: "2026-11-01".to_owned() }.to_string();
        assert!(at_hand.contains("2026-11-01") && at_hand.contains("could not"), "{at_hand}");
    }
}
