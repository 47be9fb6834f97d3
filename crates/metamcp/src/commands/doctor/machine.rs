//! What is around the gateway: programs, clients, the cache, processes left behind.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use metamcp_child::walls::in_path;
use metamcp_core::clients::{self, CLIENTS, Imported};
use metamcp_core::config::{Config, Transport};
use metamcp_core::settings::{SearchStrategy, Settings};
use metamcp_engine::model::{ModelFile, NAME};
use metamcp_engine::user_file;

use super::{Finding, Level};
use crate::commands::{import, servers};
use crate::render::plural;

/// Programs that servers are usually started with, and how to get them.
const RUNTIMES: [(&str, &str); 7] = [
    ("node", "install Node.js: https://nodejs.org"),
    ("npx", "install Node.js: https://nodejs.org"),
    ("uvx", "install uv: https://docs.astral.sh/uv"),
    ("uv", "install uv: https://docs.astral.sh/uv"),
    ("python3", "install Python: https://python.org"),
    ("docker", "install Docker: https://docs.docker.com/get-docker"),
    ("bunx", "install Bun: https://bun.sh"),
];
/// How long a program may take to say its version.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// Between two looks at whether it has.
const VERSION_STEP: Duration = Duration::from_millis(20);
/// Folders and files of the cache that are looked at.
const MOST_ENTRIES: usize = 10_000;

pub(super) fn version() -> Finding {
    let (os, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let words = format!("metamcp {} on {os} {machine}", env!("CARGO_PKG_VERSION"));
    Finding::new(Level::Good, "version", words)
}

/// Programs that servers need, and whether they are there. `missing` names the servers that could not be started for
/// want of theirs, which is the only thing that counts: a server may bring a PATH of its own.
pub(super) fn programs(config: &Config, missing: &[String]) -> Vec<Finding> {
    let mut needed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for server in config.servers.iter().filter(|server| server.is_enabled()) {
        if let Transport::Stdio { command, .. } = &server.transport {
            needed.entry(command).or_default().push(&server.name);
        }
    }
    let cure = |name: &str| {
        let known = RUNTIMES.iter().find(|(known, _)| *known == name).map(|(_, cure)| *cure);
        known.unwrap_or("install it, or write its full path into `command`")
    };
    let mut findings = Vec::new();
    for (command, users) in &needed {
        let without: Vec<&str> =
            users.iter().copied().filter(|user| missing.iter().any(|name| name == user)).collect();
        if !without.is_empty() {
            let without = without.join(", ");
            let words = format!("{command} is not found, and {without} cannot start without it");
            findings.push(Finding::new(Level::Problem, "programs", words).cure(cure(command)));
            continue;
        }
        let users = users.join(", ");
        findings.push(match in_path(command.as_ref()) {
            Some(_) if !RUNTIMES.iter().any(|(name, _)| name == command) => {
                Finding::new(Level::Good, "programs", format!("{command} is there, for {users}"))
            }
            Some(path) => {
                let version = version_of(&path).unwrap_or_else(|| "of unknown version".to_owned());
                let words = format!("{command} {version}, for {users}");
                Finding::new(Level::Good, "programs", words)
            }
            None => {
                let words =
                    format!("{command} is not found from here; {users} has its own way to it");
                Finding::new(Level::Note, "programs", words)
            }
        });
    }
    for (name, _) in RUNTIMES.iter().filter(|(name, _)| !needed.contains_key(name)) {
        let words = match in_path(name.as_ref()) {
            Some(_) => format!("{name} is there; no server needs it"),
            None => format!("{name} is not there; no server needs it"),
        };
        findings.push(Finding::new(Level::Note, "programs", words));
    }
    findings
}

/// The first line of what `--version` prints, if it comes soon.
fn version_of(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if began.elapsed() < VERSION_WAIT => std::thread::sleep(VERSION_STEP),
            _ => {
                // It hangs, and its version is not worth more than this.
                child.kill().ok();
                child.wait().ok();
                return None;
            }
        }
    }
    let mut text = String::new();
    child.stdout.take()?.take(4096).read_to_string(&mut text).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Clients on this machine, and whether the gateway is in front of their servers.
pub(super) fn clients() -> Vec<Finding> {
    let Ok(places) = import::places() else { return Vec::new() };
    let mut findings = Vec::new();
    for client in CLIENTS {
        let Some(path) = (client.files)(&places).into_iter().find(|path| path.exists()) else {
            continue;
        };
        let text = user_file::read::<anyhow::Error>(&path).map_err(servers::plain);
        let read = text.and_then(|text| Ok(import::of_client(client, &text.unwrap_or_default())?));
        let found = match read {
            Ok(found) => found,
            Err(error) => {
                let words = format!("{}: {}: {error:#}", client.name, path.display());
                let cure = "mend the file; until then its client cannot read it either";
                findings.push(Finding::new(Level::Warning, "clients", words).cure(cure));
                continue;
            }
        };
        let fates = found.servers.iter().map(|(name, entry)| {
            (name, clients::import(client.dialect, name, entry, &import::own_program()))
        });
        let (own, others): (Vec<_>, Vec<_>) =
            fates.partition(|(_, fate)| *fate == Imported::Itself);
        let others = others.iter().filter(|(_, fate)| matches!(fate, Imported::Server(_))).count();
        let command = own.first().map(|(name, _)| &found.servers[name.as_str()]);
        let command = command.and_then(|entry| {
            entry["command"]
                .as_str()
                .or_else(|| entry["command"][0].as_str())
                .or(entry["cmd"].as_str())
        });
        let cure = format!("metamcp init --client {}", client.id);
        let finding = match (own.is_empty(), others) {
            (true, 0) => continue,
            (true, count) => {
                let words =
                    format!("{} has {} not behind metamcp", client.name, plural(count, "server"));
                Finding::new(Level::Note, "clients", words).cure(cure)
            }
            (false, _) if command.is_some_and(|command| in_path(command.as_ref()).is_none()) => {
                let words =
                    format!("{} starts metamcp by a command that is not there", client.name);
                Finding::new(Level::Problem, "clients", words)
                    .cure(format!("take it out of {}, then {cure}", path.display()))
            }
            (false, 0) => {
                Finding::new(Level::Good, "clients", format!("{} starts metamcp", client.name))
            }
            (false, count) => {
                let words = format!(
                    "{} starts metamcp, and {} beside it",
                    client.name,
                    plural(count, "server")
                );
                Finding::new(Level::Note, "clients", words).cure(cure)
            }
        };
        findings.push(finding);
    }
    findings
}

/// What crashes left in the cache: files put aside as damaged, and files half written.
pub(super) fn cache(home: &Path, fix: bool) -> Vec<Finding> {
    let folder = home.join("cache");
    let entries = |path: &Path| -> Vec<PathBuf> {
        let listed = std::fs::read_dir(path).into_iter().flatten().flatten();
        listed.take(MOST_ENTRIES).map(|entry| entry.path()).collect()
    };
    let servers: Vec<PathBuf> = entries(&folder).into_iter().filter(|path| path.is_dir()).collect();
    let files = servers.iter().flat_map(|server| entries(server));
    let is_left = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".corrupt-") || (name.starts_with('.') && !name.ends_with(".json"))
    };
    let left: Vec<PathBuf> = files.filter(is_left).collect();
    if left.is_empty() {
        let words = format!(
            "the tools of {} are remembered, none damaged",
            plural(servers.len(), "server")
        );
        return vec![Finding::new(Level::Good, "cache", words)];
    }
    let words = format!("{} damaged or half written", plural(left.len(), "file"));
    let finding = Finding::new(Level::Warning, "cache", words)
        .cure("metamcp doctor --fix removes them; the lists are read again from the servers");
    if fix && left.iter().all(|path| std::fs::remove_file(path).is_ok()) {
        return vec![finding.mended()];
    }
    vec![finding]
}

/// The transformer, where searches want it: without it they are answered by `hybrid`.
pub(super) fn model(settings: &Settings) -> Option<Finding> {
    if settings.search != SearchStrategy::Transformer {
        return None;
    }
    Some(match ModelFile::new(&settings.home).load() {
        Ok(_) => Finding::new(Level::Good, "search", format!("the transformer {NAME} is here")),
        Err(error) => Finding::new(Level::Warning, "search", error.to_string())
            .cure("run `metamcp model add`; until then tools are ranked by hybrid"),
    })
}

/// Makes a file readable by its owner only; true if it is now.
#[cfg(unix)]
pub(super) fn make_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).is_ok()
}

#[cfg(not(unix))]
pub(super) fn make_private(_path: &Path) -> bool {
    false
}

/// Parents of servers whose gateway is gone. There should never be one: they end with it.
#[cfg(target_os = "linux")]
pub(super) fn left_behind() -> Vec<Finding> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let orphans: Vec<String> = listed
        .filter_map(|entry| {
            let pid = entry.file_name().into_string().ok()?;
            pid.parse::<u32>().ok()?;
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let is_shim =
                command.split(|byte| *byte == 0).nth(1)? == crate::SHIM_ARGUMENT.as_bytes();
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
            (is_shim && parent == "1").then_some(pid)
        })
        .collect();
    if orphans.is_empty() {
        let words = "no process was left behind by a gateway";
        return vec![Finding::new(Level::Good, "processes", words)];
    }
    let words = format!("outlived their gateway: {}", orphans.join(", "));
    let cure = format!("kill {}", orphans.join(" "));
    vec![Finding::new(Level::Warning, "processes", words).cure(cure)]
}

#[cfg(not(target_os = "linux"))]
pub(super) fn left_behind() -> Vec<Finding> {
    Vec::new()
}
