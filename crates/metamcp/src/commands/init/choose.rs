//! Choosing clients and servers from a numbered list.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;

use super::plan::{MoveChoice, Plan, Step};
use crate::commands::import::{ImportStatus, Server};
use crate::prompt;
use crate::render::{BOLD, DIM, styled, visible};

/// A person's choices; anything not named here keeps its default.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    /// Clients to skip.
    pub(super) without: HashSet<String>,
    /// Servers, and whether to move them.
    servers: HashMap<ServerLocation, bool>,
}

/// Where a server is configured: a client may have several files, and a file one table per project.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ServerLocation {
    file: PathBuf,
    at: Vec<String>,
    name: String,
}

impl ServerLocation {
    fn of(step: &Step, server: &Server) -> ServerLocation {
        ServerLocation { file: step.path.clone(), at: server.at.clone(), name: server.name.clone() }
    }
}

impl Chosen {
    pub(super) fn move_choice(&self, step: &Step, server: &Server) -> Option<MoveChoice> {
        let chosen = self.servers.get(&ServerLocation::of(step, server))?;
        Some(if *chosen { MoveChoice::Yes } else { MoveChoice::No })
    }
}

/// One line of the list.
struct Line {
    client: String,
    /// None for the client itself.
    server: Option<ServerLocation>,
    shown: String,
    is_on: bool,
}

/// Shows the list and reads numbers until an empty line.
pub(super) fn choose(plan: &Plan, out: &mut dyn Write) -> anyhow::Result<Chosen> {
    let mut lines = lines(plan);
    loop {
        writeln!(out)?;
        for (at, line) in lines.iter().enumerate() {
            let mark = if line.is_on { "x" } else { " " };
            let indent = if line.server.is_some() { "    " } else { "" };
            writeln!(out, "{:>4} [{mark}] {indent}{}", at + 1, line.shown)?;
        }
        let prompt = "\nNumbers to toggle, as in 2 5-7; Enter when done: ";
        let typed = prompt::line(out, prompt)?;
        if typed.is_empty() {
            break;
        }
        match numbers(&typed, lines.len()) {
            Ok(chosen) => switch(&mut lines, &chosen),
            Err(why) => writeln!(out, "{why}")?,
        }
    }
    let mut chosen = Chosen::default();
    for line in lines {
        match line.server {
            None if !line.is_on => drop(chosen.without.insert(line.client)),
            None => {}
            Some(server) => drop(chosen.servers.insert(server, line.is_on)),
        }
    }
    Ok(chosen)
}

fn lines(plan: &Plan) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for step in &plan.steps {
        let client = step.client.id.to_owned();
        if lines.iter().all(|line| line.client != client) {
            let shown = styled(BOLD, step.client.name);
            lines.push(Line { client: client.clone(), server: None, shown, is_on: true });
        }
        for (server, status) in step.servers() {
            let (is_on, note) = match status {
                ImportStatus::Added(_) => (true, String::new()),
                ImportStatus::Same(name) => (true, format!("the same as {name}")),
                ImportStatus::Unready(why) => (false, format!("will not start: {why}")),
                ImportStatus::NotChosen => (false, String::new()),
                ImportStatus::Itself | ImportStatus::Skipped(_) => continue,
            };
            let project = server.project.as_ref().map(|project| format!("project {project}"));
            let of_client = plan.steps.iter().filter(|other| other.client.id == client).count();
            let file = (of_client > 1).then(|| step.path.display().to_string());
            let notes = [project, file, Some(note).filter(|note| !note.is_empty())];
            let notes: Vec<String> = notes.into_iter().flatten().collect();
            let gap = if notes.is_empty() { "" } else { "  " };
            let notes = styled(DIM, &visible(&notes.join("; ")));
            lines.push(Line {
                client: client.clone(),
                server: Some(ServerLocation::of(step, server)),
                shown: format!("{}{gap}{notes}", visible(&server.name)),
                is_on,
            });
        }
    }
    lines
}

/// Toggles lines; toggling a client toggles its servers.
fn switch(lines: &mut [Line], chosen: &[usize]) {
    for &at in chosen {
        let is_on = !lines[at].is_on;
        lines[at].is_on = is_on;
        if lines[at].server.is_none() {
            let client = lines[at].client.clone();
            for line in lines.iter_mut().filter(|line| line.client == client) {
                line.is_on = is_on;
            }
        }
    }
}

/// The indexes, from zero, that numbers such as `2 5-7,9` name.
fn numbers(typed: &str, count: usize) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for word in typed.split([' ', ',']).filter(|word| !word.is_empty()) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let read =
            |number: &str| number.parse::<usize>().ok().filter(|at| (1..=count).contains(at));
        let (Some(first), Some(last)) = (read(first), read(last)) else {
            return Err(format!("`{}` is not a number from 1 to {count}", visible(word)));
        };
        all.extend((first..=last).map(|number| number - 1));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{Line, ServerLocation, numbers, switch};

    #[test]
    fn numbers_and_ranges() {
        assert_eq!(numbers("2 5-7,9", 9), Ok(vec![1, 4, 5, 6, 8]));
        assert_eq!(numbers("1", 1), Ok(vec![0]));
        for wrong in ["0", "10", "x", "3-", "-", "1-10", "99999999999999999999"] {
            assert!(numbers(wrong, 9).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_takes_its_servers_with_it() {
        let spot =
            |name: &str| ServerLocation { file: "f".into(), at: Vec::new(), name: name.to_owned() };
        let line = |client: &str, server: Option<&str>| Line {
            client: client.to_owned(),
            server: server.map(spot),
            shown: String::new(),
            is_on: true,
        };
        let mut lines =
            [line("a", None), line("a", Some("x")), line("b", None), line("b", Some("x"))];
        switch(&mut lines, &[0]);
        assert_eq!(lines.each_ref().map(|line| line.is_on), [false, false, true, true]);
        switch(&mut lines, &[3]);
        assert_eq!(lines.each_ref().map(|line| line.is_on), [false, false, true, false]);
    }
}
