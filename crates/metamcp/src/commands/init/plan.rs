//! The plan of an init: computed once from the files as they are, shown, and then carried out exactly.

use std::path::{Path, PathBuf};

use metamcp_config::clients::{self, Client, ClientVariables, Imported, Passes, Places};
use metamcp_config::edit::{self, Format};
use metamcp_engine::user_file;
use serde_json::{Map, Value, json};

use super::program;
use crate::commands::import::{self, Found, ImportStatus, Merger};
use crate::commands::servers;
use crate::env;

/// The gateway's name in a client's file.
pub(super) const OWN_NAME: &str = "metamcp";
/// The header of a new file for Continue, which has nothing but servers.
const CONTINUE_HEAD: &str = "name: metamcp\nversion: 0.0.1\nschema: v1\n";

pub(super) struct Plan {
    /// Our own file.
    pub(super) own: PathBuf,
    pub(super) steps: Vec<Step>,
    /// A warning about the program that the clients will start.
    pub(super) doubt: Option<String>,
}

/// One file of a client.
pub(super) struct Step {
    pub(super) client: &'static Client,
    pub(super) path: PathBuf,
    pub(super) exists: bool,
    format: Format,
    found: Option<Found>,
    /// The status of each of its servers.
    pub(super) statuses: Vec<(String, ImportStatus)>,
    pub(super) action: FileAction,
    /// Variables that this client has to fill in for us.
    asked: ClientVariables,
    /// Variables that the servers of this client use.
    used: Vec<String>,
    own: OwnEntry,
}

/// The gateway's entry in a client's file.
#[derive(Debug, Clone, Default)]
enum OwnEntry {
    /// Not in this file.
    #[default]
    Elsewhere,
    /// To be added.
    Fresh(Value),
    /// Present under this name, with the keys that change.
    There(String, Vec<(&'static str, Value)>),
}

/// What to do with a client's file.
pub(super) enum FileAction {
    /// It cannot be edited; why.
    Refused(String),
    /// It is up to date.
    Nothing,
    Edit {
        /// The servers to remove, because they are behind the gateway now, as indexes into those found.
        moved: Vec<usize>,
        /// Whether the gateway is added.
        registers: bool,
        /// The variables that the client's entry passes on.
        passes: Vec<String>,
    },
}

/// The choice for one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveChoice {
    /// The default: one that would not start stays in place.
    Usual,
    /// Move it in any case.
    Yes,
    /// Leave it in place.
    No,
}

/// The choices for all servers.
pub(super) struct MoveChoices<'w> {
    pub(super) keep: bool,
    /// By the client's file as well, since several servers may share a name.
    pub(super) of: &'w dyn Fn(&Step, &import::Server) -> MoveChoice,
}

impl Plan {
    pub(super) fn make(
        clients: &[&'static Client],
        own: &Path,
        move_choices: &MoveChoices<'_>,
    ) -> anyhow::Result<Plan> {
        let places = import::places()?;
        let text = user_file::read::<anyhow::Error>(own).map_err(servers::plain)?;
        let text = text.unwrap_or_default();
        if !text.is_empty() {
            servers::checked(own, text.clone())?;
        }
        let mut merger = Merger::new(&text)?;
        let mut steps: Vec<Step> = Vec::new();
        for &client in clients {
            let mut of_client = Step::all(client, &places);
            for step in &mut of_client {
                if let Err(error) = step.read(&mut merger, move_choices) {
                    step.refuse(&error);
                }
            }
            steps.extend(of_client);
        }
        let (command, args) = program::command(own)?;
        let every: Vec<String> = merger.entries().flat_map(clients::variables_of).collect();
        for at in 0..steps.len() {
            let is_first = at == 0 || !std::ptr::eq(steps[at - 1].client, steps[at].client);
            if is_first {
                let same = |step: &Step| std::ptr::eq(step.client, steps[at].client);
                let count = steps[at..].iter().take_while(|step| same(step)).count();
                register(&mut steps[at..at + count], &command, &args, &every);
            }
        }
        for step in &mut steps {
            if let Err(error) = step.settle(move_choices.keep) {
                step.refuse(&error);
            }
        }
        let doubt = program::doubt(Path::new(&command));
        let plan = Plan { own: own.to_owned(), steps, doubt };
        // Find out before prompting whether our own file can be written.
        servers::checked(own, plan.merged(&text)?.0)?;
        Ok(plan)
    }

    /// Our own file with every imported server, and the servers added to it.
    pub(super) fn merged(&self, text: &str) -> anyhow::Result<(String, Map<String, Value>)> {
        let mut merger = Merger::new(text)?;
        let edited =
            self.steps.iter().filter(|step| !matches!(step.action, FileAction::Refused(_)));
        for step in edited {
            let Some(found) = &step.found else { continue };
            for (server, (_, status)) in found.servers.iter().zip(&step.statuses) {
                if is_ours(status)
                    && let Imported::Server(entry, _) = found.imported(server)
                {
                    merger.place(&server.name, &found.suffix(server), &entry);
                }
            }
        }
        let text = merger.text()?;
        let text = if text.is_empty() { "{\n  \"mcpServers\": {}\n}\n".to_owned() } else { text };
        Ok((text, merger.added()))
    }

    /// The names added to our own file, and where they come from.
    pub(super) fn added(&self) -> impl Iterator<Item = (&str, String)> {
        self.steps.iter().flat_map(|step| {
            step.servers().filter_map(|(server, status)| match status {
                ImportStatus::Added(name) => {
                    let of = server.project.as_ref().map(|project| format!(", project {project}"));
                    let from = format!("{}{}", step.client.name, of.unwrap_or_default());
                    Some((name.as_str(), from))
                }
                _ => None,
            })
        })
    }

    pub(super) fn changes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, FileAction::Edit { .. }))
    }
}

/// Decides which file of a client gets the gateway's entry, and which variables that entry passes on.
fn register(steps: &mut [Step], command: &str, args: &[String], every: &[String]) {
    let is_set = |name: &&String| env::lookup(name).is_some();
    let mut names: Vec<String> = every.iter().filter(is_set).cloned().collect();
    names.extend(steps.iter().flat_map(|step| step.used.iter().cloned()));
    names.extend(program::needed());
    let asked: ClientVariables = steps.iter().flat_map(|step| step.asked.iter().cloned()).collect();
    names.retain(|name| !asked.iter().any(|(asked, _)| asked == name));
    // Every client passes these on anyway.
    names.retain(|name| !["HOME", "PATH"].contains(&name.as_str()));
    names.sort();
    names.dedup();
    let passes =
        |own: &Value, client: &Client| client.passes.added(client.dialect, own, &names, &asked);
    let there = steps.iter().position(|step| step.own_name().is_some());
    if let Some(step) = there.map(|at| &mut steps[at]) {
        let Some((name, entry)) = step.own_name() else { return };
        let changed = passes(entry, step.client);
        step.own = OwnEntry::There(name.to_owned(), changed);
        return;
    }
    let is_open = |step: &&mut Step| !matches!(step.action, FileAction::Refused(_));
    let Some(step) = steps.iter_mut().find(is_open) else { return };
    let mut entry = step.client.dialect.own_entry(command, args);
    for (key, value) in passes(&entry, step.client) {
        entry[key] = value;
    }
    step.own = OwnEntry::Fresh(entry);
}

impl Step {
    /// Every file of a client; if it has none, the one to create, if any.
    fn all(client: &'static Client, places: &Places) -> Vec<Step> {
        let step = |path: PathBuf, exists| Step {
            format: import::format(client, &path),
            client,
            path,
            exists,
            found: None,
            statuses: Vec::new(),
            action: FileAction::Nothing,
            asked: Vec::new(),
            used: Vec::new(),
            own: OwnEntry::Elsewhere,
        };
        let there = import::files(client, places);
        if !there.is_empty() {
            return there.into_iter().map(|path| step(path, true)).collect();
        }
        let made = client.files(places).pop().filter(|path| {
            path.is_symlink() || (client.made && path.parent().is_some_and(Path::exists))
        });
        let in_folder = || {
            let folder = client.folder(places).filter(|at| at.is_dir())?;
            Some(folder.join("metamcp.yaml"))
        };
        made.or_else(in_folder).map(|path| step(path, false)).into_iter().collect()
    }

    fn refuse(&mut self, error: &anyhow::Error) {
        self.action = FileAction::Refused(format!("{error:#}"));
        self.statuses.clear();
        self.found = None;
    }

    /// Its servers, each with its status.
    pub(super) fn servers(&self) -> impl Iterator<Item = (&import::Server, &ImportStatus)> {
        let servers = self.found.iter().flat_map(|found| &found.servers);
        servers.zip(self.statuses.iter().map(|(_, status)| status))
    }

    /// Whether local servers are moved away from a client that passes on its whole environment.
    pub(super) fn gave_everything(&self) -> bool {
        let is_local = |server: &import::Server| {
            ["url", "uri", "httpUrl", "serverUrl"].iter().all(|key| server.entry[*key].is_null())
        };
        self.client.passes == Passes::Everything
            && self.servers().any(|(server, status)| is_ours(status) && is_local(server))
    }

    /// The variables that its servers refer to.
    pub(super) fn used(&self) -> &[String] {
        &self.used
    }

    /// The gateway's entry in this file, under any name.
    fn own_name(&self) -> Option<(&str, &Value)> {
        let own = self
            .servers()
            .find(|(server, status)| **status == ImportStatus::Itself && server.project.is_none());
        own.map(|(server, _)| (server.name.as_str(), &server.entry))
    }

    /// Reads the client's file; `own` collects the servers, so that the next client sees them.
    fn read(&mut self, own: &mut Merger, move_choices: &MoveChoices<'_>) -> anyhow::Result<()> {
        // A dangling link stays a link: it is written through if its target's folder exists, and otherwise left alone.
        user_file::target(&self.path)?;
        let text = user_file::read::<anyhow::Error>(&self.path).map_err(servers::plain)?;
        let text = text.unwrap_or_default();
        let found = import::of_client(self.client, &self.path, &text)?;
        for server in &found.servers {
            let status = match found.imported(server) {
                Imported::Itself => ImportStatus::Itself,
                Imported::Left(why) => ImportStatus::Skipped(why),
                Imported::Wrong { key, why } => {
                    let mut at: Vec<&str> = server.at.iter().map(String::as_str).collect();
                    at.push(&server.name);
                    let whole = edit::line(self.format, &text, &at);
                    at.extend(key.as_deref());
                    let line = edit::line(self.format, &text, &at).or(whole);
                    let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
                    ImportStatus::Skipped(format!("{line}{}", import::wrong(key.as_deref(), &why)))
                }
                Imported::Server(entry, asked) => {
                    let move_choice = (move_choices.of)(self, server);
                    let against = (move_choice == MoveChoice::Usual)
                        .then(|| import::against(&entry, &asked))
                        .flatten();
                    match against {
                        _ if move_choice == MoveChoice::No => ImportStatus::NotChosen,
                        Some(why) => ImportStatus::Unready(why),
                        None => {
                            let status = own.place(&server.name, &found.suffix(server), &entry);
                            if is_ours(&status) {
                                self.used.extend(clients::variables_of(&entry));
                                self.asked.extend(asked);
                            }
                            status
                        }
                    }
                }
            };
            self.statuses.push((server.name.clone(), status));
        }
        self.found = Some(found);
        Ok(())
    }

    /// Decides what to do with the file, and checks that it can be edited before anything is changed.
    fn settle(&mut self, keep: bool) -> anyhow::Result<()> {
        if matches!(self.action, FileAction::Refused(_)) {
            return Ok(());
        }
        let is_moved = |at: &usize| !keep && is_ours(&self.statuses[*at].1);
        let moved: Vec<usize> = (0..self.statuses.len()).filter(is_moved).collect();
        let registers = matches!(self.own, OwnEntry::Fresh(_));
        let passes = self.passes();
        if registers || !moved.is_empty() || !passes.is_empty() {
            self.action = FileAction::Edit { moved, registers, passes };
            let text = user_file::read::<anyhow::Error>(&self.path).map_err(servers::plain)?;
            self.edited(&text.unwrap_or_default())?;
        }
        Ok(())
    }

    /// The names of the variables that the client's entry passes on.
    fn passes(&self) -> Vec<String> {
        let changed = match &self.own {
            OwnEntry::Elsewhere => return Vec::new(),
            OwnEntry::Fresh(entry) => {
                let keys = ["env", "envs", "environment", "env_vars"];
                keys.iter().map(|key| entry[*key].clone()).collect()
            }
            OwnEntry::There(_, changed) => {
                changed.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>()
            }
        };
        let mut names: Vec<String> = Vec::new();
        for value in changed {
            match value {
                Value::Object(table) => names.extend(table.keys().cloned()),
                Value::Array(list) => {
                    names.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                _ => {}
            }
        }
        names
    }

    /// The client's text with the gateway and without the moved servers, as far as their entries are still what was
    /// read; and the removed entries.
    pub(super) fn edited(&self, text: &str) -> anyhow::Result<(String, Vec<Value>)> {
        let Client { key, .. } = *self.client;
        let at = |name| [key, &[name]].concat();
        let mut text = text.to_owned();
        let FileAction::Edit { moved, .. } = &self.action else { return Ok((text, Vec::new())) };
        match &self.own {
            OwnEntry::Elsewhere => {}
            OwnEntry::Fresh(entry) => {
                if edit::read(self.format, &text, &at(OWN_NAME))?.is_none() {
                    if text.trim().is_empty() && self.format == Format::YamlList {
                        CONTINUE_HEAD.clone_into(&mut text);
                    }
                    text = edit::set(self.format, &text, &at(OWN_NAME), entry)?;
                }
            }
            OwnEntry::There(name, changed) => {
                for (inner, value) in changed {
                    let path = [key, &[name.as_str(), *inner]].concat();
                    text = edit::set(self.format, &text, &path, value)?;
                }
            }
        }
        let servers: &[import::Server] =
            self.found.as_ref().map_or(&[], |found| found.servers.as_slice());
        let mut groups: Vec<(&[String], Vec<&import::Server>)> = Vec::new();
        for server in moved.iter().map(|&at| &servers[at]) {
            match groups.last_mut() {
                Some((at, all)) if *at == server.at.as_slice() => all.push(server),
                _ => groups.push((&server.at, vec![server])),
            }
        }
        let mut taken = Vec::new();
        for (at, all) in groups {
            let path: Vec<&str> = at.iter().map(String::as_str).collect();
            let there = edit::read(self.format, &text, &path)?.unwrap_or_default();
            let is_same = |server: &&import::Server| there.get(&server.name) == Some(&server.entry);
            let all: Vec<&import::Server> = all.into_iter().filter(is_same).collect();
            let names: Vec<&str> = all.iter().map(|server| server.name.as_str()).collect();
            text = edit::remove_all(self.format, &text, &path, &names)?;
            taken.extend(all.into_iter().map(
                |server| json!({ "at": server.at, "name": server.name, "entry": server.entry }),
            ));
        }
        Ok((text, taken))
    }
}

fn is_ours(status: &ImportStatus) -> bool {
    matches!(status, ImportStatus::Added(_) | ImportStatus::Same(_))
}

/// The variables used by servers that the client's entry for the gateway does not pass on.
pub(crate) fn lacking(client: &Client, own: &Value, used: &[String]) -> Vec<String> {
    if client.passes == Passes::Everything {
        return Vec::new();
    }
    let key = match client.passes {
        Passes::Names(key) => key,
        _ => "env",
    };
    let has = |name: &&String| match &own[key] {
        Value::Array(list) => {
            list.iter().any(|one| one == name.as_str() || one["name"] == name.as_str())
        }
        Value::Object(table) => table.contains_key(name.as_str()),
        _ => false,
    };
    let is_usual = |name: &&String| ["HOME", "PATH"].contains(&name.as_str());
    used.iter().filter(|name| !has(name) && !is_usual(name)).cloned().collect()
}
