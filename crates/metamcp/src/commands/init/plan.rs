//! What init would do: read from the files as they are, decided once, shown, and then done to the letter.

use std::path::{Path, PathBuf};

use metamcp_core::clients::Client;
use metamcp_core::edit;
use metamcp_engine::user_file;
use serde_json::{Map, Value};

use crate::commands::import::{self, Fate, Found};
use crate::commands::servers;

/// What the gateway is called in a client's file.
pub(super) const OWN_NAME: &str = "metamcp";

/// Everything that would be done.
pub(super) struct Plan {
    /// Our own file.
    pub(super) own: PathBuf,
    pub(super) steps: Vec<Step>,
}

/// One client.
pub(super) struct Step {
    pub(super) client: &'static Client,
    pub(super) path: PathBuf,
    pub(super) exists: bool,
    found: Option<Found>,
    /// What becomes of each of its servers.
    pub(super) fates: Vec<(String, Fate)>,
    pub(super) work: Work,
    entry: Value,
}

/// What is done to a client's file.
pub(super) enum Work {
    /// It cannot be edited; why.
    Refused(String),
    /// All is as it should be.
    Nothing,
    /// It is edited.
    Edit {
        /// The servers that are taken out, because they are behind the gateway now.
        moved: Vec<String>,
        /// Whether the gateway is written in.
        registers: bool,
    },
}

impl Plan {
    pub(super) fn make(
        clients: &[&'static Client],
        own: &Path,
        keep: bool,
    ) -> anyhow::Result<Plan> {
        let places = import::places()?;
        let text = user_file::read::<anyhow::Error>(own).map_err(servers::plain)?;
        let mut text = text.unwrap_or_default();
        if !text.is_empty() {
            servers::checked(own, text.clone())?;
        }
        let entry = own_command(own)?;
        let mut steps = Vec::new();
        for &client in clients {
            let files = (client.files)(&places);
            let there = files.iter().find(|path| path.exists());
            let Some(last) = files.last() else { continue };
            let made = client.made && last.parent().is_some_and(Path::exists);
            let Some(path) = there.or(made.then_some(last)) else { continue };
            let (exists, path) = (there.is_some(), path.clone());
            let entry = client.dialect.own_entry(&entry.0, &entry.1);
            let mut step = Step {
                client,
                path,
                exists,
                found: None,
                fates: Vec::new(),
                work: Work::Nothing,
                entry,
            };
            if let Err(error) = step.read(&mut text, keep) {
                step.work = Work::Refused(format!("{error:#}"));
            }
            steps.push(step);
        }
        Ok(Plan { own: own.to_owned(), steps })
    }

    /// Our own text with every server that is taken over.
    pub(super) fn merged(&self, text: &str) -> anyhow::Result<String> {
        let mut text = text.to_owned();
        let edited = self.steps.iter().filter(|step| !matches!(step.work, Work::Refused(_)));
        for found in edited.filter_map(|step| step.found.as_ref()) {
            text = import::merge(&text, found)?.0;
        }
        if text.is_empty() {
            text = "{\n  \"mcpServers\": {}\n}\n".to_owned();
        }
        Ok(text)
    }

    /// The names our own file gets, and from whom.
    pub(super) fn added(&self) -> impl Iterator<Item = (&str, &str)> {
        self.steps.iter().flat_map(|step| {
            step.fates.iter().filter_map(|(_, fate)| match fate {
                Fate::Added(name) => Some((name.as_str(), step.client.name)),
                _ => None,
            })
        })
    }

    pub(super) fn changes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.work, Work::Edit { .. }))
    }
}

impl Step {
    /// Reads the client's file; `own` gathers the servers, so that the next client sees them.
    fn read(&mut self, own: &mut String, keep: bool) -> anyhow::Result<()> {
        let text = user_file::read::<anyhow::Error>(&self.path).map_err(servers::plain)?;
        let text = text.unwrap_or_default();
        let found = import::of_client(self.client, &text)?;
        let (merged, fates) = import::merge(own, &found)?;
        let is_ours = |fate: &Fate| matches!(fate, Fate::Added(_) | Fate::Same(_));
        let moved: Vec<String> = fates
            .iter()
            .filter(|(_, fate)| !keep && is_ours(fate))
            .map(|(name, _)| name.clone())
            .collect();
        let registers = !fates.iter().any(|(_, fate)| *fate == Fate::Itself);
        if registers || !moved.is_empty() {
            self.work = Work::Edit { moved, registers };
            // What cannot be edited is found out before anything is done.
            let Work::Edit { moved, .. } = &self.work else { return Ok(()) };
            self.edited(&text, moved)?;
        }
        *own = merged;
        self.fates = fates;
        self.found = Some(found);
        Ok(())
    }

    /// The client's text without the servers that moved, as far as they are still what was read, and with the gateway.
    pub(super) fn edited(
        &self,
        text: &str,
        moved: &[String],
    ) -> anyhow::Result<(String, Map<String, Value>)> {
        let Client { format, key, .. } = *self.client;
        let at = |name| [key, &[name]].concat();
        let mut text = text.to_owned();
        let mut taken = Map::new();
        let registers = matches!(self.work, Work::Edit { registers: true, .. });
        let there = edit::read(format, &text, &at(OWN_NAME))?;
        if registers && there.is_none() {
            text = edit::set(format, &text, &at(OWN_NAME), &self.entry)?;
        }
        for name in moved.iter().filter(|name| *name != OWN_NAME) {
            let read = self.found.as_ref().and_then(|found| found.servers.get(name));
            let Some(entry) = edit::read(format, &text, &at(name))? else { continue };
            if read.is_some_and(|read| *read != entry) {
                continue;
            }
            if let Some(without) = edit::remove(format, &text, &at(name))? {
                text = without;
                taken.insert(name.clone(), entry);
            }
        }
        Ok((text, taken))
    }
}

/// How a client starts this gateway: by its name where that finds this very program, else by its path. The file is
/// always named: a client may start it in a project that has an `.mcp.json` of its own.
fn own_command(own: &Path) -> anyhow::Result<(String, Vec<String>)> {
    let program = std::env::current_exe()?;
    let canonical = program.canonicalize().unwrap_or_else(|_| program.clone());
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let name = if cfg!(windows) { "metamcp.exe" } else { "metamcp" };
    let first =
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|at| at.is_file());
    let is_this = first.and_then(|at| at.canonicalize().ok()).is_some_and(|at| at == canonical);
    let command =
        if is_this { "metamcp".to_owned() } else { program.to_string_lossy().into_owned() };
    Ok((command, vec!["--config".to_owned(), own.to_string_lossy().into_owned()]))
}
