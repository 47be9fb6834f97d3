//! What a name means on Windows, where a program is found by its ending and few files can be run as they are.
//! Owns: the search, which endings can be started, what runs a script.      Never: looks in the current folder, asks a shell.
//! In: a program and its arguments, the server's variables.  Out: a file that the system can start, with its arguments.
//! Tests: below, on every system.
//!
//! `npx` is `npx.cmd` here: a batch file, which only the command interpreter can read, and whose arguments it reads again
//! as its own. npm writes all of its commands that way, to start `node` with one file, so that is started instead. What
//! else is a batch file goes to the interpreter with every argument quoted, or is refused if it cannot be.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Endings of what can be started, in the order in which they are tried where `PATHEXT` does not say.
const DEFAULT_ENDINGS: [&str; 4] = [".com", ".exe", ".bat", ".cmd"];

/// Where names are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Search {
    /// The server's folder, for a program given by a relative path.
    base: PathBuf,
    /// The folders of `PATH`, absolute ones only: the others depend on where we are.
    folders: Vec<PathBuf>,
    /// With the dot, in lower case, in the order of `PATHEXT`.
    endings: Vec<String>,
    /// Where npm installs for all projects of the user.
    npm_prefix: Option<PathBuf>,
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
}

impl Search {
    /// As the variables of a server say.
    pub(crate) fn of(env: &[(OsString, OsString)], base: PathBuf) -> Search {
        let var = |name: &str| {
            let is_it =
                |key: &OsStr| key.to_str().is_some_and(|key| key.eq_ignore_ascii_case(name));
            let found = env.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value);
            found.filter(|value| !value.is_empty())
        };
        let folders = var("PATH").map(std::env::split_paths).into_iter().flatten();
        let said = var("PATHEXT").map(|endings| endings.to_string_lossy().to_ascii_lowercase());
        let said = said.unwrap_or_default();
        let mut endings: Vec<String> =
            said.split(';').filter(|ending| kind(ending).is_some()).map(str::to_owned).collect();
        if endings.is_empty() {
            endings = DEFAULT_ENDINGS.map(str::to_owned).to_vec();
        }
        let npm_prefix = var("NPM_CONFIG_PREFIX").map(PathBuf::from);
        Search {
            base,
            folders: folders.filter(|folder| folder.is_absolute()).collect(),
            endings,
            npm_prefix: npm_prefix
                .or_else(|| var("APPDATA").map(|roaming| PathBuf::from(roaming).join("npm"))),
        }
    }
}

/// How a file with some ending is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Program,
    Batch,
    /// By another program, with some arguments before the file.
    Script(&'static [&'static str]),
}

/// The kind of an ending with its dot, in lower case; `None` for what cannot be a server.
fn kind(ending: &str) -> Option<Kind> {
    Some(match ending {
        ".exe" | ".com" => Kind::Program,
        ".bat" | ".cmd" => Kind::Batch,
        ".js" | ".mjs" | ".cjs" => Kind::Script(&["node"]),
        ".py" => Kind::Script(&["py", "python"]),
        ".ps1" => Kind::Script(&["pwsh", "powershell"]),
        _ => return None,
    })
}

fn ending(file: &Path) -> Option<String> {
    let ending = file.extension()?.to_str()?;
    Some(format!(".{}", ending.to_ascii_lowercase()))
}

/// The file that a program's name means. One without a known ending gets those of `PATHEXT`: the file without any is a
/// script for another system.
pub(crate) fn find(
    program: &OsStr,
    search: &Search,
    is_file: &dyn Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let name = program.to_str();
    let has_folder = name.is_none_or(|name| name.contains(['/', '\\', ':']));
    let has_ending = ending(Path::new(program)).is_some_and(|ending| kind(&ending).is_some());
    let endings = search.endings.iter().map(String::as_str);
    let endings: Vec<&str> = std::iter::once("").filter(|_| has_ending).chain(endings).collect();
    let with = |file: &Path, ending: &str| {
        let mut file = file.as_os_str().to_owned();
        file.push(ending);
        PathBuf::from(file)
    };
    let folders = if has_folder { std::slice::from_ref(&search.base) } else { &search.folders };
    folders
        .iter()
        .map(|folder| folder.join(program))
        .flat_map(|file| endings.iter().map(move |ending| with(&file, ending)))
        .find(|file| is_file(file))
}

/// What to start for a file that was found; an error in words if it cannot be.
pub(crate) fn line(
    file: &Path,
    args: Vec<OsString>,
    search: &Search,
    is_file: &dyn Fn(&Path) -> bool,
    read: &dyn Fn(&Path) -> Option<String>,
) -> Result<Line, String> {
    let ending = ending(file).unwrap_or_default();
    let (program, first): (PathBuf, Vec<OsString>) = match kind(&ending) {
        None => return Err(format!("files that end with {ending:?} cannot be run as a server")),
        Some(Kind::Program) => (file.to_owned(), Vec::new()),
        Some(Kind::Batch) => {
            match read(file).and_then(|text| npm_script(&text, file, search, is_file)) {
                Some(script) => (node(file, search, is_file)?, vec![script.into()]),
                None => (file.to_owned(), Vec::new()),
            }
        }
        Some(Kind::Script(interpreters)) => {
            let found =
                interpreters.iter().find_map(|name| find(OsStr::new(name), search, is_file));
            let names = interpreters.join(" or ");
            let found =
                found.ok_or_else(|| format!("it needs {names}, which PATH does not have"))?;
            let first = match ending.as_str() {
                ".ps1" => &[
                    "-NoLogo",
                    "-NoProfile",
                    "-NonInteractive",
                    "-ExecutionPolicy",
                    "Bypass",
                    "-File",
                ][..],
                _ => &[],
            };
            let first = first.iter().map(OsString::from).chain([file.into()]);
            (found, first.collect())
        }
    };
    Ok(Line { program, args: first.into_iter().chain(args).collect() })
}

/// The node that a command of npm would run: the one beside it, or that of `PATH`.
fn node(
    command: &Path,
    search: &Search,
    is_file: &dyn Fn(&Path) -> bool,
) -> Result<PathBuf, String> {
    let beside = command.with_file_name("node.exe");
    if is_file(&beside) {
        return Ok(beside);
    }
    let found = find(OsStr::new("node"), search, is_file)
        .filter(|found| ending(found).is_some_and(|ending| kind(&ending) == Some(Kind::Program)));
    found.ok_or_else(|| "it needs node.exe, which PATH does not have".to_owned())
}

/// The file that one of npm's batch files runs: of a package's command, or of `npm` and `npx` themselves, which prefer the
/// npm that was installed last. `None` for any other, and for one with arguments of its own.
fn npm_script(
    text: &str,
    file: &Path,
    search: &Search,
    is_file: &dyn Fn(&Path) -> bool,
) -> Option<PathBuf> {
    let folder = file.parent()?;
    let stem = file.file_stem()?.to_str()?.to_ascii_lowercase();
    if matches!(stem.as_str(), "npm" | "npx") && text.contains("NPM_PREFIX_") {
        let script = format!("node_modules/npm/bin/{stem}-cli.js");
        let global = search.npm_prefix.iter().map(PathBuf::as_path);
        let mut places = global.chain([folder]).map(|folder| folder.join(&script));
        return places.find(|script| is_file(script));
    }
    let run = text.lines().rev().find(|line| line.contains("%*"))?;
    let (_, after) = run.split_once("\"%_prog%\"")?;
    let path = after.trim().strip_suffix("%*")?.trim().strip_prefix("\"%dp0%\\")?;
    let path = path.strip_suffix('"')?;
    if path.contains(['"', '%']) {
        return None;
    }
    let script = folder.join(path.replace('\\', "/"));
    is_file(&script).then_some(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 16] = [
        "/node/node.exe",
        "/node/npx.cmd",
        "/node/npx",
        "/node/npm.cmd",
        "/node/node_modules/npm/bin/npx-cli.js",
        "/node/node_modules/npm/bin/npm-cli.js",
        "/roaming/npm/node_modules/npm/bin/npm-cli.js",
        "/roaming/npm/server.cmd",
        "/roaming/npm/server",
        "/roaming/npm/node_modules/@scope/server/dist/index.js",
        "/tools/uvx.exe",
        "/tools/both.exe",
        "/tools/both.cmd",
        "/tools/python.exe",
        "/work/run.py",
        "/work/own.exe",
    ];

    const NPX: &str = "@ECHO OFF\r\nSET \"NPX_CLI_JS=%~dp0\\node_modules\\npm\\bin\\npx-cli.js\"\r\nSET \"NPM_PREFIX_NPX_CLI_JS=%%F\\x\"\r\n\"%NODE_EXE%\" \"%NPX_CLI_JS%\" %*\r\n";

    const SHIM: &str = "@ECHO off\r\nGOTO start\r\n:start\r\nIF EXIST \"%dp0%\\node.exe\" (\r\n  SET \"_prog=%dp0%\\node.exe\"\r\n) ELSE (\r\n  SET \"_prog=node\"\r\n)\r\n\r\nendLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & \"%_prog%\"  \"%dp0%\\node_modules\\@scope\\server\\dist\\index.js\" %*\r\n";

    /// What makes a path absolute, besides its first slash.
    const DRIVE: &str = if cfg!(windows) { "C:" } else { "" };

    fn on_drive(path: &str) -> String {
        if path.starts_with('/') { format!("{DRIVE}{path}") } else { path.to_owned() }
    }

    /// The same path as these tests write it.
    fn plain(path: impl AsRef<OsStr>) -> String {
        let path = path.as_ref().to_str().unwrap().replace('\\', "/");
        path.strip_prefix(DRIVE).map(str::to_owned).unwrap_or(path)
    }

    fn is_file(path: &Path) -> bool {
        let path = plain(path);
        FILES.iter().any(|file| Path::new(file) == Path::new(&path))
    }

    fn search(pathext: &str) -> Search {
        let folders = ["/node", "relative", ".", "", "/roaming/npm", "/tools"];
        let path = std::env::join_paths(folders.map(on_drive)).unwrap();
        let roaming = on_drive("/roaming").into();
        let env = [("Path", path), ("PathExt", pathext.into()), ("AppData", roaming)];
        let env = env.map(|(name, value)| (name.into(), value));
        Search::of(&env, on_drive("/work").into())
    }

    fn found_by(program: &str, pathext: &str) -> Option<String> {
        find(program.as_ref(), &search(pathext), &is_file).map(plain)
    }

    fn found(program: &str) -> Option<String> {
        found_by(program, ".COM;.EXE;.BAT;.CMD;.VBS;.JS")
    }

    #[test]
    fn a_name_is_found_by_its_ending_in_absolute_folders_of_path_only() {
        for (program, expected) in [
            ("npx", Some("/node/npx.cmd")),
            ("npx.cmd", Some("/node/npx.cmd")),
            ("node", Some("/node/node.exe")),
            ("uvx", Some("/tools/uvx.exe")),
            ("both", Some("/tools/both.exe")),
            ("own", None),
            ("own.exe", None),
            ("./own", Some("/work/./own.exe")),
            ("./own.exe", Some("/work/./own.exe")),
            ("/work/own", Some("/work/own.exe")),
            ("./run.py", Some("/work/./run.py")),
            ("./run", None),
            ("missing", None),
        ] {
            assert_eq!(found(program).as_deref(), expected, "{program}");
        }
        assert_eq!(found_by("both", ".CMD;.EXE").as_deref(), Some("/tools/both.cmd"));
        assert_eq!(found_by("both", "").as_deref(), Some("/tools/both.exe"));
    }

    fn lined(file: &str, text: Option<&str>) -> Result<Vec<String>, String> {
        let read = |_: &Path| text.map(str::to_owned);
        let file = PathBuf::from(on_drive(file));
        let line = line(&file, vec!["a & b".into()], &search(""), &is_file, &read)?;
        let words = std::iter::once(line.program.into_os_string()).chain(line.args);
        Ok(words.map(plain).collect())
    }

    #[test]
    fn what_npm_wrote_runs_without_the_command_interpreter() {
        let node = "/node/node.exe";
        for (file, text, expected) in [
            ("/node/npx.cmd", Some(NPX), vec![node, "/node/node_modules/npm/bin/npx-cli.js"]),
            // The user's own npm is newer than the one that came with node.
            (
                "/node/npm.cmd",
                Some(NPX),
                vec![node, "/roaming/npm/node_modules/npm/bin/npm-cli.js"],
            ),
            (
                "/roaming/npm/server.cmd",
                Some(SHIM),
                vec![node, "/roaming/npm/node_modules/@scope/server/dist/index.js"],
            ),
            (
                "/tools/both.cmd",
                Some("@echo off\r\ncall other.exe %*\r\n"),
                vec!["/tools/both.cmd"],
            ),
            ("/tools/both.cmd", None, vec!["/tools/both.cmd"]),
            ("/tools/uvx.exe", None, vec!["/tools/uvx.exe"]),
            ("/work/run.py", None, vec!["/tools/python.exe", "/work/run.py"]),
        ] {
            let expected: Vec<_> = expected.into_iter().chain(["a & b"]).collect();
            assert_eq!(lined(file, text).unwrap(), expected, "{file}");
        }
        // A flag for node, or a file that is not there, is for the interpreter to sort out.
        for text in
            [SHIM.replace("\"%_prog%\"  ", "\"%_prog%\" --flag "), SHIM.replace("index", "x")]
        {
            assert_eq!(
                lined("/roaming/npm/server.cmd", Some(&text)).unwrap()[0],
                "/roaming/npm/server.cmd"
            );
        }
    }

    #[test]
    fn what_cannot_be_run_is_said() {
        assert_eq!(
            lined("/work/x.vbs", None).unwrap_err(),
            "files that end with \".vbs\" cannot be run as a server"
        );
        assert_eq!(
            lined("/work/x.ps1", None).unwrap_err(),
            "it needs pwsh or powershell, which PATH does not have"
        );
    }
}
