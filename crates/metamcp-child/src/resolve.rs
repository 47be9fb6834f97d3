//! From `npx` or `uvx` to the program they would run, if it is installed already.
//! Owns: reading npm's and uv's directories.      Never: runs anything, downloads, asks a registry.
//! In: a `Spec`.  Out: another `Spec` that skips the installer, or `None`: run what was written.
//! Tests: `resolve/tests.rs`.
//!
//! The installer would stay in memory next to its server (90 MB for npm) and take a second per start.
//! Anything unusual runs as written: an unknown flag, a version range, a package
//! that is not there, an unfinished install.

mod npx;
mod uvx;

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::clock;
use crate::spec::Spec;

/// The same server without the installer in front of it, if it can be found on disk.
///
/// Callers keep the original: if the resolved one cannot be executed, run that.
pub fn resolve(spec: &Spec) -> Option<Spec> {
    resolve_in(spec, &Surroundings::of(spec)?)
}

/// Longest file read; a `package.json` beyond this is not one.
const LONGEST_FILE: u64 = 4 * 1024 * 1024;

/// How long "the newest version" is reused. npx records each of its runs in the install's
/// `package.json`; after this long it runs again itself, and asks the registry.
const FRESH: Duration = Duration::from_hours(7 * 24);

/// How npm and uv lay out their folders on a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Unix,
    Windows,
}

impl Layout {
    const HERE: Layout = if cfg!(windows) { Layout::Windows } else { Layout::Unix };

    fn node(self) -> &'static str {
        match self {
            Layout::Unix => "node",
            Layout::Windows => "node.exe",
        }
    }

    /// The global packages below npm's prefix.
    fn global_modules(self) -> &'static str {
        match self {
            Layout::Unix => "lib/node_modules",
            Layout::Windows => "node_modules",
        }
    }

    /// The commands of a Python environment.
    fn bin(self) -> &'static str {
        match self {
            Layout::Unix => "bin",
            Layout::Windows => "Scripts",
        }
    }

    fn python(self) -> &'static str {
        match self {
            Layout::Unix => "bin/python",
            Layout::Windows => "Scripts/python.exe",
        }
    }

    /// The file of a command: pip and uv write a small program for each on Windows.
    fn command(self, name: &str) -> String {
        match self {
            Layout::Unix => name.to_owned(),
            Layout::Windows => format!("{name}.exe"),
        }
    }

    /// The name of an installer, whatever ending it was given.
    fn installer(self, program: &Path) -> Option<String> {
        let name = program.file_name()?.to_str()?;
        match self {
            Layout::Unix => Some(name.to_owned()),
            Layout::Windows => {
                let name = name.to_ascii_lowercase();
                let plain = [".exe", ".cmd", ".bat"].iter().find_map(|end| name.strip_suffix(end));
                Some(plain.unwrap_or(&name).to_owned())
            }
        }
    }
}

/// What a lookup depends on besides the command.
#[derive(Debug, Clone)]
struct Surroundings {
    layout: Layout,
    cwd: PathBuf,
    path: Vec<PathBuf>,
    npm_cache: PathBuf,
    npm_prefix: Option<PathBuf>,
    uv_cache: PathBuf,
    uv_tools: PathBuf,
    now: SystemTime,
}

impl Surroundings {
    /// As the server's installer would see them: its own variables first, then ours.
    fn of(spec: &Spec) -> Option<Surroundings> {
        let layout = Layout::HERE;
        let is_same = |key: &OsStr, name: &str| match layout {
            Layout::Unix => key == name,
            Layout::Windows => key.eq_ignore_ascii_case(name),
        };
        let var = |name: &str| {
            let own = spec.env.iter().rev().find(|(key, _)| is_same(key, name));
            own.map(|(_, value)| value.clone())
                .or_else(|| spec.own_variable(name))
                .filter(|value| !value.is_empty())
        };
        let npm = |name: &str| {
            var(&format!("npm_config_{name}"))
                .or_else(|| var(&format!("NPM_CONFIG_{}", name.to_uppercase())))
        };
        let home = PathBuf::from(match layout {
            Layout::Unix => var("HOME")?,
            Layout::Windows => var("USERPROFILE")?,
        });
        let settings = home.join(".npmrc");
        let configured =
            |name: &str| npm(name).or_else(|| npm_setting(&settings, name)).map(PathBuf::from);
        let below = |variable: &str, default: &str| {
            var(variable).map_or_else(|| home.join(default), PathBuf::from)
        };
        let (npm_cache, npm_prefix, uv_cache, uv_tools) = match layout {
            Layout::Unix => (
                home.join(".npm"),
                None,
                below("XDG_CACHE_HOME", ".cache").join("uv"),
                below("XDG_DATA_HOME", ".local/share").join("uv/tools"),
            ),
            Layout::Windows => {
                let (local, roaming) =
                    (below("LOCALAPPDATA", "AppData/Local"), below("APPDATA", "AppData/Roaming"));
                let tools = roaming.join("uv/tools");
                (local.join("npm-cache"), Some(roaming.join("npm")), local.join("uv/cache"), tools)
            }
        };
        let own_cwd = std::env::current_dir().ok()?;
        Some(Surroundings {
            layout,
            cwd: spec.cwd.as_ref().map_or_else(|| own_cwd.clone(), |cwd| own_cwd.join(cwd)),
            path: var("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            npm_cache: configured("cache").unwrap_or(npm_cache),
            npm_prefix: configured("prefix").or(npm_prefix),
            uv_cache: var("UV_CACHE_DIR").map_or(uv_cache, PathBuf::from),
            uv_tools: var("UV_TOOL_DIR").map_or(uv_tools, PathBuf::from),
            now: clock::wall(),
        })
    }

    /// Whether a file was written recently. A time in the future counts as now.
    fn is_fresh(&self, file: &Path) -> bool {
        let written = fs::metadata(file).and_then(|metadata| metadata.modified());
        written.is_ok_and(|at| self.now.duration_since(at).unwrap_or_default() < FRESH)
    }
}

fn resolve_in(spec: &Spec, around: &Surroundings) -> Option<Spec> {
    let args: Vec<&str> = spec.args.iter().map(|arg| arg.to_str()).collect::<Option<_>>()?;
    let program = Path::new(&spec.program);
    let (command, rest) = match (around.layout.installer(program)?.as_str(), args.as_slice()) {
        ("npx", args) => npx::resolve(program, args, around)?,
        ("npm", ["exec" | "x", args @ ..]) => npx::resolve_exec(program, args, around)?,
        ("uvx", args) | ("uv", ["tool", "run", args @ ..]) => uvx::resolve(args, around)?,
        _ => return None,
    };
    let mut all: Vec<OsString> = command.args;
    all.extend(rest.iter().map(OsString::from));
    Some(Spec { program: command.program, args: all, ..spec.clone() })
}

/// What to execute instead of the installer; the server's own arguments follow.
#[derive(Debug, PartialEq, Eq)]
struct Command {
    program: OsString,
    args: Vec<OsString>,
}

/// How to run a script: by its interpreter if known, so that no
/// shell or `env` comes between.
fn command_for(
    entry: &Path,
    interpreter: &Path,
    is_script: impl Fn(&str) -> bool,
) -> Option<Command> {
    let mut start = Vec::new();
    File::open(entry).ok()?.take(256).read_to_end(&mut start).ok()?;
    if is_script(&String::from_utf8_lossy(&start)) {
        return Some(Command { program: interpreter.into(), args: vec![entry.into()] });
    }
    is_executable(entry).then(|| Command { program: entry.into(), args: Vec::new() })
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "exe")
}

/// The real path of a file. Node and Python do not read the form for long paths that Windows answers with, so one that is
/// short enough loses it.
fn real(file: &Path) -> Option<PathBuf> {
    /// Longest path without that form.
    const SHORT: usize = 248;
    let real = file.canonicalize().ok()?;
    let plain = real.to_str().and_then(|text| text.strip_prefix(r"\\?\"));
    let plain = plain.filter(|text| text.len() < SHORT && text[1..].starts_with(':'));
    Some(plain.map_or_else(|| real.clone(), PathBuf::from))
}

/// A path below `base`, refused if it would lead out.
fn below(base: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let stays =
        path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    stays.then(|| base.join(path))
}

fn read(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file).ok()?.take(LONGEST_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

fn json(file: &Path) -> Option<serde_json::Value> {
    serde_json::from_str(&read(file)?).ok()
}

/// A line `name=value` of an `.npmrc`.
fn npm_setting(file: &Path, name: &str) -> Option<OsString> {
    read(file)?.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        // A value with a variable in it is npm's to expand.
        (key.trim() == name && !value.contains("${")).then(|| OsString::from(value.trim()))
    })
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

fn text(name: Option<&OsStr>) -> Option<&str> {
    name?.to_str()
}
