//! The demonstration's temporary folder, with sample files, notes and a config.
//! Owns: that folder, and its removal.      Never: touches the user's files.
//! In: the path of this program.  Out: commands that start the gateway and the example servers on it.
//! Tests: below.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use metamcp_engine::clock;
use serde_json::{Map, Value, json};

use crate::example;

/// Names tried for the folder before giving up; one is enough unless someone is guessing ours.
const ATTEMPTS: u32 = 16;

const FILES: [(&str, &str); 4] = [
    (
        "plan.md",
        "# Plan\n\n- Kick-off on 2026-01-12.\n- The launch is on 2026-03-01.\n- Ask Ada about the venue.\n",
    ),
    ("budget.csv", "item,amount\nvenue,1200\nprinting,340\nfood,860\n"),
    ("minutes/2026-01-12.md", "# Kick-off\n\nEveryone agreed that the launch needs a rehearsal.\n"),
    ("todo.txt", "book the venue\nprint the posters\nwrite the speech\n"),
];

const NOTES: [(&str, &str, &str); 3] = [
    ("Venue", "The old library holds 80 people and has a projector.", "event"),
    ("Printer", "The print shop needs three working days.", "event"),
    ("Coffee", "Beans from the corner shop, ground coarse.", "kitchen"),
];

/// A temporary folder, removed when dropped.
pub(super) struct DemoFolder {
    folder: PathBuf,
}

impl DemoFolder {
    /// Creates the folder and its contents.
    pub(super) fn set(program: &Path) -> Result<Self> {
        let demo_folder =
            Self { folder: fresh_folder().context("no temporary folder can be made")? };
        demo_folder.furnish(program).with_context(|| {
            format!("the demo cannot write to {}", demo_folder.folder.display())
        })?;
        Ok(demo_folder)
    }

    /// The command that serves the example servers through the gateway on stdio.
    pub(super) fn gateway(&self, program: &Path) -> Command {
        let mut command = self.command(program);
        command.arg("--config").arg(self.config());
        command
    }

    /// The command that starts one example server by itself.
    pub(super) fn example(&self, program: &Path, name: &str) -> Command {
        let mut command = self.command(program);
        command.args(self.example_arguments(name));
        command
    }

    /// Removes the folder, and reports a failure to do so.
    pub(super) fn clear(self) -> Result<()> {
        let removed = fs::remove_dir_all(&self.folder);
        removed.with_context(|| {
            format!("the temporary folder {} could not be removed", self.folder.display())
        })
    }

    /// Runs in the temporary folder, with a home there, ignoring settings meant for the user's own gateway.
    #[expect(
        clippy::disallowed_methods,
        reason = "a demonstration starts the gateway as a client does"
    )]
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let ours = |name: &OsString| name.to_string_lossy().starts_with("METAMCP_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        command.current_dir(&self.folder).env("METAMCP_HOME", self.folder.join("home"));
        // What it shows has to be gone when it ends, so it has nothing to do with a daemon.
        command.env("METAMCP_DAEMON", "off");
        command
    }

    fn example_arguments(&self, name: &str) -> Vec<OsString> {
        let mut arguments = vec!["__example".into(), name.into()];
        match name {
            "files" => arguments.push(self.folder.join("files").into()),
            "notes" => arguments.push(self.folder.join("notes.jsonl").into()),
            _ => {}
        }
        arguments
    }

    fn config(&self) -> PathBuf {
        self.folder.join(".mcp.json")
    }

    fn furnish(&self, program: &Path) -> Result<()> {
        for (name, content) in FILES {
            let file = self.folder.join("files").join(name);
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(file, content)?;
        }
        let notes = NOTES.iter().zip(1..).map(|((title, text, tag), id)| {
            let created = "2026-01-12T09:00:00Z";
            format!(
                "{}\n",
                json!({ "id": id, "title": title, "text": text, "tags": [tag], "created": created })
            )
        });
        fs::write(self.folder.join("notes.jsonl"), notes.collect::<String>())?;
        fs::create_dir(self.folder.join("home"))?;
        let mut servers = Map::new();
        for (name, _, description) in example::SERVERS {
            let arguments = self.example_arguments(name);
            let arguments: Option<Vec<&str>> =
                arguments.iter().map(|argument| argument.to_str()).collect();
            let command = program.to_str().context("the path of this program is not UTF-8")?;
            let arguments = arguments.context("the path of the temporary folder is not UTF-8")?;
            let server =
                json!({ "command": command, "args": arguments, "description": description });
            servers.insert(name.to_owned(), server);
        }
        let config: Value = json!({ "mcpServers": servers });
        fs::write(self.config(), format!("{config:#}\n"))?;
        Ok(())
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // Best effort: `clear` reports failures.
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// A new folder that only this user can enter. Creation fails if the name is taken, so a folder or link that somebody
/// else prepared is never used.
fn fresh_folder() -> io::Result<PathBuf> {
    #[cfg_attr(windows, expect(unused_mut, reason = "a mode is set where there is one"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let since = clock::unix_millis();
    for attempt in 0..ATTEMPTS {
        let name = format!("metamcp-demo-{}-{since:x}-{attempt}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        match builder.create(&folder) {
            Ok(()) => return dunce::canonicalize(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_whole_and_leaves_nothing_behind() {
        let demo_folder = DemoFolder::set(Path::new("/bin/metamcp")).unwrap();
        let folder = demo_folder.folder.clone();
        let config: Value =
            serde_json::from_str(&fs::read_to_string(demo_folder.config()).unwrap()).unwrap();
        assert_eq!(config["mcpServers"]["clock"]["args"], json!(["__example", "clock"]));
        assert_eq!(config["mcpServers"].as_object().unwrap().len(), example::SERVERS.len());
        assert!(folder.join("files/minutes").is_dir());
        drop(demo_folder);
        assert!(!folder.exists());
    }
}
