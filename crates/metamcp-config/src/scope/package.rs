//! Which package, image or program a command line starts. Read only as far as people write such lines: what is not
//! understood is a program of its own name.

use crate::config::LocalCommand;

/// Programs in front of others that are looked through.
const MOST_WRAPPERS: usize = 6;

/// Options of package runners whose next word is a package, or something that has to be skipped.
const PACKAGE_OPTIONS: [&str; 5] = ["-p", "--package", "--from", "--with", "--spec"];
const SKIPPED_OPTIONS: [&str; 18] = [
    "--context",
    "--host",
    "--python",
    "-c",
    "--call",
    "--directory",
    "--project",
    "--index-url",
    "--index",
    "--cache-dir",
    "--registry",
    "--prefix",
    "--workspace",
    "-w",
    "--env-file",
    "--extra",
    "--group",
    "--with-requirements",
];
/// Options of `docker run` without a value.
const SWITCHES_OF_RUN: [&str; 12] = [
    "--rm",
    "--interactive",
    "--tty",
    "--detach",
    "--init",
    "--privileged",
    "--read-only",
    "--publish-all",
    "--quiet",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--sig-proxy",
];
/// Folders and files whose names say nothing about what is in them.
const NAMELESS: [&str; 22] = [
    "bin", "build", "cli", "cmd", "dist", "esm", "cjs", "index", "lib", "main", "out", "scripts",
    "server", "src", "app", "mcp", "start", "run", "release", "debug", "target", "__main__",
];

/// The names of what a command line starts, in lower case and without versions, the likeliest first.
pub(super) fn packages(local: &LocalCommand) -> Vec<String> {
    let mut words: Vec<String> =
        std::iter::once(&local.command).chain(&local.args).cloned().collect();
    for _ in 0..MOST_WRAPPERS {
        let Some(program) = words.first().map(|word| program_name(word)) else { return Vec::new() };
        let rest = &words[1..];
        let inner = match program.as_str() {
            "env" => behind(rest, |word| !word.starts_with('-') && !word.contains('=')),
            "cmd" => behind(rest, |word| !word.starts_with('/')),
            "sudo" | "nice" | "nohup" | "setsid" | "stdbuf" | "xvfb-run" | "time" => {
                behind(rest, |word| !word.starts_with('-') && word.parse::<f64>().is_err())
            }
            "op" | "dotenv" | "dotenvx" | "doppler" | "infisical" | "mise" | "direnv" | "asdf" => {
                rest.iter().position(|word| word == "--").map(|at| rest[at + 1..].to_vec())
            }
            "sh" | "bash" | "zsh" | "dash" | "fish" => shell_line(rest),
            _ => return started(&program, words[0].as_str(), rest),
        };
        let Some(inner) = inner else { return vec![program] };
        words = inner;
    }
    Vec::new()
}

/// The words from the first that is the wrapped program.
fn behind(words: &[String], is_program: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let at = words.iter().position(|word| is_program(word))?;
    Some(words[at..].to_vec())
}

/// The last command of `sh -c`, word by word.
fn shell_line(words: &[String]) -> Option<Vec<String>> {
    let is_command = |word: &String| word.starts_with('-') && word.ends_with('c');
    let line = words.get(words.iter().position(is_command)? + 1)?;
    let last = line.rsplit(['&', ';', '|']).find(|part| !part.trim().is_empty())?;
    let bare = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    let mut all: Vec<String> = last.split_whitespace().map(bare).collect();
    all.drain(..all.iter().take_while(|word| *word == "exec" || word.contains('=')).count());
    (!all.is_empty()).then_some(all)
}

fn started(program: &str, written: &str, rest: &[String]) -> Vec<String> {
    // `uv --directory x run`, `docker --context y run`.
    let rest = match program {
        "uv" | "npm" | "pnpm" | "yarn" | "docker" | "podman" => behind_options(rest),
        _ => rest,
    };
    let first = rest.first().map(String::as_str).unwrap_or_default();
    let second = rest.get(1).map(String::as_str).unwrap_or_default();
    match (program, first, second) {
        ("npx" | "bunx" | "pnpx" | "uvx", ..) => run_package(rest),
        ("npm", "exec" | "x", _)
        | ("pnpm" | "yarn", "dlx" | "exec", _)
        | ("bun", "x", _)
        | ("pipx" | "uv", "run", _) => run_package(&rest[1..]),
        ("uv", "tool", "run") => run_package(&rest[2..]),
        ("docker" | "podman" | "nerdctl", "run", _) => image(&rest[1..]).into_iter().collect(),
        ("docker" | "podman", "container", "run") => image(&rest[2..]).into_iter().collect(),
        (
            "node" | "nodejs" | "bun" | "deno" | "tsx" | "ts-node" | "java" | "dotnet" | "ruby",
            ..,
        ) => script(rest).into_iter().collect(),
        (python, ..) if is_python(python) => script(rest).into_iter().collect(),
        _ => path_name(written).into_iter().collect(),
    }
}

/// The words from the first that is neither an option nor its value.
fn behind_options(words: &[String]) -> &[String] {
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
        at += if SKIPPED_OPTIONS.contains(&word.as_str()) { 2 } else { 1 };
    }
    words.get(at..).unwrap_or_default()
}

fn is_python(program: &str) -> bool {
    let version = program.strip_prefix("python").or_else(|| program.strip_prefix("pypy"));
    version.is_some_and(|rest| rest.chars().all(|each| each.is_ascii_digit() || each == '.'))
        || program == "py"
}

/// What a runner of packages runs: the packages its options name and the first word that is no option.
fn run_package(words: &[String]) -> Vec<String> {
    let mut named = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            continue;
        }
        if !word.starts_with('-') {
            // Of `uv run python -m x` and `uv run server.py` the module and the script are what runs.
            let program = program_name(word);
            if is_python(&program) || program == "node" {
                let rest: Vec<String> = words.cloned().collect();
                named.extend(script(&rest));
            } else if is_script(word) {
                named.extend(path_name(word));
            } else {
                named.extend(package_name(word));
            }
            break;
        }
        match word.split_once('=') {
            Some((option, value)) if PACKAGE_OPTIONS.contains(&option) => {
                named.extend(package_name(value));
            }
            Some(_) => {}
            None if PACKAGE_OPTIONS.contains(&word.as_str()) => {
                named.extend(words.next().and_then(|value| package_name(value)));
            }
            None if SKIPPED_OPTIONS.contains(&word.as_str()) => {
                words.next();
            }
            None => {}
        }
    }
    named
}

/// `-m module`, a package by address, or the file that an interpreter runs.
fn script(words: &[String]) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" => return words.next().and_then(|module| package_name(module)),
            "run" | "serve" | "-jar" | "--" => {}
            "-r" | "--require" | "--import" | "--loader" | "-W" | "-X" | "-cp" | "--env-file" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            address if address.starts_with("npm:") || address.starts_with("jsr:") => {
                return package_name(&address[4..]);
            }
            file => return path_name(file),
        }
    }
    None
}

/// The image of `docker run`, without host, tag and digest.
fn image(words: &[String]) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            let whole = word.split('@').next().unwrap_or_default();
            let (folder, name) =
                whole.rsplit_once('/').map_or(("", whole), |(folder, name)| (folder, name));
            let name = name.split(':').next().unwrap_or_default();
            let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost";
            let folders = folder.split('/').filter(|part| !part.is_empty() && !is_host(part));
            let all: Vec<&str> = folders.chain(std::iter::once(name)).collect();
            return Some(all.join("/").to_lowercase()).filter(|name| !name.is_empty());
        }
        let is_switch = SWITCHES_OF_RUN.contains(&word.as_str())
            || word.contains('=')
            // `-i`, `-it`, and short options with their value in the same word, such as `-eNAME`.
            || (!word.starts_with("--") && (word.len() > 2 || matches!(word.as_str(), "-i" | "-t" | "-d" | "-P" | "-q")));
        if !is_switch {
            words.next();
        }
    }
    None
}

/// A package without its version: `@scope/name@1`, `name==1`, `name[extra]`, `git+https://host/owner/name.git@tag`.
fn package_name(written: &str) -> Option<String> {
    let written = written.trim();
    if written.contains("://") || written.starts_with("github:") {
        let path = written.split(['#', '?']).next().unwrap_or_default();
        let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let name = last.split('@').next().unwrap_or_default();
        return named(name.strip_suffix(".git").unwrap_or(name));
    }
    if is_script(written) || written.starts_with(['.', '/', '~']) {
        return path_name(written);
    }
    let (scope, name) = match written.strip_prefix('@').and_then(|rest| rest.split_once('/')) {
        Some((scope, name)) => (Some(scope), name),
        None => (None, written),
    };
    let end = name.find(['@', '=', '<', '>', '~', '!', '[', ';', ' ']).unwrap_or(name.len());
    let name = &name[..end];
    // `python -m package.module` and `package:function` are of the package.
    named(&scope.map_or_else(|| name.to_owned(), |scope| format!("@{scope}/{name}")))
}

fn named(name: &str) -> Option<String> {
    (!name.is_empty()).then(|| name.to_lowercase().replace('_', "-"))
}

fn is_script(word: &str) -> bool {
    let ends = [".js", ".mjs", ".cjs", ".ts", ".py", ".jar", ".dll", ".rb"];
    ends.iter().any(|end| word.ends_with(end))
}

/// What a file is called, or the folder it is in where the file is called like any other: in `node_modules` the package.
fn path_name(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    if let Some(at) =
        parts.iter().rposition(|part| matches!(*part, "node_modules" | "site-packages"))
    {
        match &parts[at + 1..] {
            [".bin", name, ..] => return package_name(without_ending(name)),
            [scope, name, ..] if scope.starts_with('@') => {
                return named(&format!("{scope}/{name}"));
            }
            [name, ..] => return package_name(without_ending(name)),
            [] => {}
        }
    }
    let means = |part: &&&str| !NAMELESS.contains(&without_ending(part).to_lowercase().as_str());
    let said = parts.iter().rev().find(means).or(parts.last())?;
    named(without_ending(said))
}

fn without_ending(file: &str) -> &str {
    let ends = [
        ".exe", ".cmd", ".bat", ".ps1", ".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".jar", ".dll",
        ".rb",
    ];
    ends.iter().find_map(|end| file.strip_suffix(end)).unwrap_or(file)
}

fn program_name(word: &str) -> String {
    let file = word.rsplit(['/', '\\']).next().unwrap_or_default();
    without_ending(file).to_lowercase()
}
