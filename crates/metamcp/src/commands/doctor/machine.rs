//! The gateway's surroundings: programs, clients, the cache, processes left behind.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use metamcp_child::environment;
use metamcp_child::process_sandbox::in_path;
use metamcp_config::clients::{self, CLIENTS, Client, Imported};
use metamcp_config::config::{Config, PassEnv};
use metamcp_config::settings::Settings;
use metamcp_engine::clock;
use metamcp_engine::model::{ModelFile, NAME};
use metamcp_engine::user_file;
use metamcp_search::search::Strategy;

use super::{Finding, Level};
use crate::commands::import::{ImportStatus, Merger};
use crate::commands::{import, init, servers};
use crate::render::plural;

/// Programs that servers are usually started with, and how to install them.
const RUNTIMES: [(&str, &str); 7] = [
    ("node", "install Node.js: https://nodejs.org"),
    ("npx", "install Node.js: https://nodejs.org"),
    ("uvx", "install uv: https://docs.astral.sh/uv"),
    ("uv", "install uv: https://docs.astral.sh/uv"),
    ("python3", "install Python: https://python.org"),
    ("docker", "install Docker: https://docs.docker.com/get-docker"),
    ("bunx", "install Bun: https://bun.sh"),
];
/// How long a program may take to print its version.
const VERSION_WAIT: Duration = Duration::from_secs(3);
/// Polling interval while waiting for it.
const VERSION_STEP: Duration = Duration::from_millis(20);
/// Most entries of the cache that are checked.
const MOST_ENTRIES: usize = 10_000;

pub(super) fn version() -> Finding {
    let (os, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let words = format!("metamcp {} on {os} {machine}", env!("CARGO_PKG_VERSION"));
    Finding::new(Level::Good, "version", words)
}

/// The programs that servers need, and whether they are installed. `missing` names the servers that failed to start for
/// lack of their program, which is what decides: a server may have its own PATH.
pub(super) fn programs(config: &Config, missing: &[String]) -> Vec<Finding> {
    let mut needed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for server in config.servers.iter().filter(|server| server.is_enabled()) {
        if let Some(command) = server.transport.command() {
            needed.entry(command).or_default().push(&server.name);
        }
    }
    let hint = |name: &str| {
        let known = RUNTIMES.iter().find(|(known, _)| *known == name).map(|(_, hint)| *hint);
        known.unwrap_or("install it, or write its full path into `command`")
    };
    let mut findings = Vec::new();
    for (command, users) in &needed {
        let without: Vec<&str> =
            users.iter().copied().filter(|user| missing.iter().any(|name| name == user)).collect();
        if !without.is_empty() {
            let without = without.join(", ");
            let words = format!("{command} is not found; without it {without} cannot start");
            findings.push(Finding::new(Level::Problem, "programs", words).hint(hint(command)));
            continue;
        }
        let users = users.join(", ");
        findings.push(match in_path(command.as_ref()) {
            Some(_) if !RUNTIMES.iter().any(|(name, _)| name == command) => Finding::new(
                Level::Good,
                "programs",
                format!("{command} is installed, for {users}"),
            ),
            Some(path) => {
                let version = version_of(&path).unwrap_or_else(|| "of unknown version".to_owned());
                let words = format!("{command} {version}, for {users}");
                Finding::new(Level::Good, "programs", words)
            }
            None => {
                let words = format!("{command} is not found here; {users} has its own way to it");
                Finding::new(Level::Note, "programs", words)
            }
        });
    }
    for (name, _) in RUNTIMES.iter().filter(|(name, _)| !needed.contains_key(name)) {
        let words = match in_path(name.as_ref()) {
            Some(_) => format!("{name} is installed; no server needs it"),
            None => format!("{name} is not installed; no server needs it"),
        };
        findings.push(Finding::new(Level::Note, "programs", words));
    }
    findings
}

/// The first line that `--version` prints, if it comes soon.
#[expect(clippy::disallowed_methods, reason = "a program of the machine is asked for its version")]
fn version_of(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let began = clock::std_instant();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if began.elapsed() < VERSION_WAIT => std::thread::sleep(VERSION_STEP),
            _ => {
                // It hangs, and its version is not worth a longer wait.
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

/// Which of our variables servers get, and which they might lack.
pub(super) fn environment(config: &Config) -> Vec<Finding> {
    const AREA: &str = "variables";
    let pass = PassEnv::from_text(&config.settings.pass_env);
    let (mut passed, mut kept) = (Vec::new(), Vec::new());
    for (name, value) in crate::env::all() {
        let shown = name.to_string_lossy().into_owned();
        if environment::passes(&name, &value, &pass) {
            passed.push(shown);
        } else if environment::is_kept_back(&name, &value) {
            kept.push(shown);
        }
    }
    passed.sort();
    kept.sort();
    let words = format!("every server of your file gets {}", passed.join(", "));
    let more = "docs/environment.md has the list; `passEnv` adds to it, for one server or for all";
    let mut findings = vec![Finding::new(Level::Note, AREA, words).hint(more)];
    for name in kept {
        let words = format!("{name} contains a password and is withheld from servers");
        let hint = format!("if they need it: \"passEnv\": [\"{name}\"] in the config file");
        findings.push(Finding::new(Level::Note, AREA, words).hint(hint));
    }
    let withheld = crate::env::withheld(&pass);
    if let Some(first) = withheld.first() {
        let names = withheld.join(", ");
        let words = format!("withheld from servers, since they look like secrets: {names}");
        let hint = format!("if a server needs one: \"passEnv\": [\"{first}\"] in its entry");
        findings.push(Finding::new(Level::Note, AREA, words).hint(hint));
    }
    findings
}

/// Variables that a client passes to the gateway it starts, each with the client: one that is unset in this shell may
/// be set there.
pub(super) fn supplied() -> BTreeMap<String, &'static str> {
    let mut all = BTreeMap::new();
    let Ok(places) = import::places() else { return all };
    for client in CLIENTS {
        for path in import::files(client, &places) {
            let text = user_file::read::<anyhow::Error>(&path).ok().flatten().unwrap_or_default();
            let Ok(found) = import::of_client(client, &path, &text) else { continue };
            let own = found.servers.iter().filter(|one| found.imported(one) == Imported::Itself);
            for table in
                own.flat_map(|own| ["env", "envs", "environment"].map(|key| &own.entry[key]))
            {
                let names = table.as_object().into_iter().flatten().map(|(name, _)| name.clone());
                all.extend(names.map(|name| (name, client.name)));
            }
        }
    }
    all
}

/// Clients on this machine, and whether their servers are behind the gateway.
pub(super) fn clients(own_file: Option<&Path>) -> Vec<Finding> {
    let Ok(places) = import::places() else { return Vec::new() };
    let text = own_file.and_then(|file| user_file::read::<anyhow::Error>(file).ok().flatten());
    let Ok(mut own) = Merger::new(&text.unwrap_or_default()).or_else(|_| Merger::new("")) else {
        return Vec::new();
    };
    let used = used_by(&own);
    let mut findings = Vec::new();
    for client in CLIENTS {
        for path in import::files(client, &places) {
            findings.extend(one_client(client, &path, &used, &mut own));
        }
    }
    findings
}

/// The variables that the servers of our file use and that are set here.
fn used_by(merger: &Merger) -> Vec<String> {
    let mut used: Vec<String> = merger.entries().flat_map(clients::variables_of).collect();
    used.sort();
    used.dedup();
    used.retain(|name| crate::env::lookup(name).is_some());
    used
}

/// `ours` is our own file, which decides whether init would import a server.
fn one_client(client: &Client, path: &Path, used: &[String], ours: &mut Merger) -> Option<Finding> {
    let text = user_file::read::<anyhow::Error>(path).map_err(servers::plain);
    let read =
        text.and_then(|text| Ok(import::of_client(client, path, &text.unwrap_or_default())?));
    let found = match read {
        Ok(found) => found,
        Err(error) => {
            let words = format!("{}: {}: {error:#}", client.name, path.display());
            let hint = "correct the file; until then its client cannot read it either";
            return Some(Finding::new(Level::Warning, "clients", words).hint(hint));
        }
    };
    let fates: Vec<_> =
        found.servers.iter().map(|server| (server, found.imported(server))).collect();
    let own = fates.iter().find(|(_, fate)| *fate == Imported::Itself).map(|(own, _)| &own.entry);
    // Servers that init would move, and servers that it would leave in place.
    let (mut others, mut staying) = (0, Vec::new());
    for (server, fate) in &fates {
        let Imported::Server(entry, asked) = fate else { continue };
        let is_ready = import::against(entry, asked).is_none();
        let place = |ours: &mut Merger| ours.place(&server.name, &found.suffix(server), entry);
        if is_ready && !matches!(place(ours), ImportStatus::Skipped(_)) {
            others += 1;
        } else {
            staying.push(server.name.as_str());
        }
    }
    let command = own.and_then(|entry| {
        entry["command"].as_str().or_else(|| entry["command"][0].as_str()).or(entry["cmd"].as_str())
    });
    let hint = format!("metamcp init --client {}", client.id);
    let note = |words| Finding::new(Level::Note, "clients", words);
    let name = client.name;
    let lacking = own.map(|own| init::lacking(client, own, used)).unwrap_or_default();
    Some(match (own, others) {
        (None, 0) if staying.is_empty() => return None,
        (None, 0) => {
            let names = staying.join(", ");
            note(format!("{name} has servers that are not behind metamcp and that init cannot import: {names}"))
                .hint(format!("{hint} --dry-run says why"))
        }
        (None, count) => {
            let count = plural(count, "server");
            note(format!("{name} has {count} that could be behind metamcp")).hint(hint)
        }
        (Some(_), _) if command.is_some_and(|command| in_path(command.as_ref()).is_none()) => {
            let words = format!("{name} starts metamcp with a command that does not exist");
            Finding::new(Level::Problem, "clients", words)
                .hint(format!("remove the entry from {}, then {hint}", path.display()))
        }
        (Some(_), _) if !lacking.is_empty() => {
            let words = format!(
                "{name} does not pass {} on to metamcp, which your servers need",
                lacking.join(", ")
            );
            Finding::new(Level::Warning, "clients", words).hint(hint)
        }
        (Some(_), 0) if staying.is_empty() => {
            Finding::new(Level::Good, "clients", format!("{name} starts metamcp"))
        }
        (Some(_), 0) => {
            let names = staying.join(", ");
            note(format!("{name} starts metamcp, and also {names}, which init cannot import"))
                .hint(format!("{hint} --dry-run says why"))
        }
        (Some(_), count) => {
            let count = plural(count, "server");
            note(format!("{name} starts metamcp, and {count} besides")).hint(hint)
        }
    })
}

/// Leftovers of crashes in the cache: files set aside as corrupt, and partially written files.
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
        let words =
            format!("tool lists of {} are cached, none damaged", plural(servers.len(), "server"));
        return vec![Finding::new(Level::Good, "cache", words)];
    }
    let words = format!("{} damaged or half written", plural(left.len(), "file"));
    let finding = Finding::new(Level::Warning, "cache", words)
        .hint("metamcp doctor --fix removes them; the servers list their tools again");
    if fix && left.iter().all(|path| std::fs::remove_file(path).is_ok()) {
        return vec![finding.mark_fixed()];
    }
    vec![finding]
}

/// Free space below which things begin to fail: results alone may take a gigabyte.
const LITTLE_ROOM: u64 = 64 * 1024 * 1024;

/// Whether the gateway can store its data: its home is writable and has free space, and no killed gateway left files
/// there.
pub(super) fn home(home: &Path, fix: bool) -> Vec<Finding> {
    const AREA: &str = "home";
    let mut findings = Vec::new();
    let folders = [home.to_owned(), home.join("cache"), home.join("results")];
    for folder in folders.iter().filter(|folder| **folder == home || folder.exists()) {
        if let Err(error) = can_write(folder) {
            let words = format!("{} cannot be written to: {error}", folder.display());
            let hint = match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    "free space on that disk"
                }
                _ => "make it writable, or set METAMCP_HOME",
            };
            findings.push(Finding::new(Level::Problem, AREA, words).hint(format!(
                "{hint}; until then tool lists, sign-ins and usage history are not saved"
            )));
        }
    }
    if let Some(free) = free_bytes(home).filter(|free| *free < LITTLE_ROOM) {
        let words = format!("only {} MB are free for {}", free / 1_000_000, home.display());
        let hint = "free space on that disk, before nothing can be saved";
        findings.push(Finding::new(Level::Warning, AREA, words).hint(hint));
    }
    let left = metamcp_engine::results::left_behind(home, fix);
    if left.files > 0 {
        let words = format!(
            "{} of results ({} MB) left by gateways that were killed",
            plural(left.files, "file"),
            left.bytes / 1_000_000
        );
        let finding = Finding::new(Level::Warning, AREA, words)
            .hint("metamcp doctor --fix removes them, and so does the next gateway that starts");
        findings.push(if fix { finding.mark_fixed() } else { finding });
    }
    findings
}

/// Writes a few bytes where the gateway would, and removes them again.
fn can_write(folder: &Path) -> std::io::Result<()> {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    let probe = existing.join(format!(".metamcp-doctor-{}", std::process::id()));
    // More than a block, so that a full disk fails.
    let written = std::fs::File::create_new(&probe).and_then(|mut file| {
        std::io::Write::write_all(&mut file, &[b'x'; 16 * 1024])?;
        file.sync_all()
    });
    if let Err(error) = std::fs::remove_file(&probe)
        && written.is_ok()
    {
        return Err(error);
    }
    written
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let about = nix::sys::statvfs::statvfs(existing).ok()?;
    if about.blocks() == 0 {
        // A file system without blocks stores nothing that would need space.
        return None;
    }
    // Both types have other widths on other systems.
    let bytes = u128::from(about.blocks_available()) * u128::from(about.fragment_size());
    Some(u64::try_from(bytes).unwrap_or(u64::MAX))
}

#[cfg(windows)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let mut free = 0;
    winsafe::GetDiskFreeSpaceEx(existing.to_str(), Some(&mut free), None, None).ok()?;
    Some(free)
}

/// The transformer, if searches are to use it: without it they fall back to `hybrid`. With `auto` nobody asked for it, so
/// that it is not there is no finding.
pub(super) fn model(settings: &Settings) -> Option<Finding> {
    let file = ModelFile::new(&settings.home);
    let is_expected = match settings.search {
        Strategy::Transformer => true,
        Strategy::Auto => file.since_ms().is_some(),
        _ => false,
    };
    if !is_expected {
        return None;
    }
    Some(match file.load() {
        Ok(_) => {
            Finding::new(Level::Good, "search", format!("the transformer {NAME} is installed"))
        }
        Err(error) => Finding::new(Level::Warning, "search", error.to_string())
            .hint("run `metamcp model add`; until then tools are ranked by hybrid"),
    })
}

/// Makes a file readable by its owner only; whether that worked.
#[cfg(unix)]
pub(super) fn make_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).is_ok()
}

/// There is no mode here, and nothing asks for this.
#[cfg(windows)]
pub(super) fn make_private(_path: &Path) -> bool {
    false
}

/// Shims whose gateway is gone. There should never be one: they end with it.
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
        let words = "no orphaned server process";
        return vec![Finding::new(Level::Good, "processes", words)];
    }
    let words = format!("outlived their gateway: {}", orphans.join(", "));
    let hint = format!("kill {}", orphans.join(" "));
    vec![Finding::new(Level::Warning, "processes", words).hint(hint)]
}

#[cfg(not(target_os = "linux"))]
pub(super) fn left_behind() -> Vec<Finding> {
    Vec::new()
}
