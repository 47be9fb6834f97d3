//! What `uvx` would run: an installed tool, else an environment it made before and kept in its cache.
//! Owns: uvx's flags and the layout of uv's directories.      Never: resolves versions.
//! In: arguments.  Out: the environment's python with a script, and the arguments left for it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Command, Layout, Surroundings, below, command_for, entries, read, real, text};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    /// The package, in the one spelling that compares.
    pub(super) package: String,
    pub(super) version: Option<&'a str>,
    pub(super) bin: &'a str,
    pub(super) rest: &'a [&'a str],
}

/// Reads the arguments of `uvx`. Flags that change what is installed are left to uv.
pub(super) fn request<'a>(args: &'a [&'a str]) -> Option<Request<'a>> {
    let mut from = None;
    let mut at = 0;
    loop {
        let arg = *args.get(at)?;
        at += 1;
        match arg {
            "-q" | "--quiet" | "--offline" | "--no-progress" => {}
            "--from" => {
                from = Some(*args.get(at)?);
                at += 1;
            }
            _ if arg.starts_with("--from=") => from = Some(&arg["--from=".len()..]),
            _ if arg.starts_with('-') => return None,
            word => {
                let (package, version) = requirement(from.unwrap_or(word))?;
                let bin = if from.is_some() { word } else { word.split('@').next()? };
                return Some(Request { package: normal(package), version, bin, rest: &args[at..] });
            }
        }
    }
}

/// `name`, `name@1.2`, `name==1.2`, with extras ignored: they add to an environment, and which ones an
/// environment has cannot be seen, so a request with extras is left to uv.
fn requirement(text: &str) -> Option<(&str, Option<&str>)> {
    let (name, version) = match (text.split_once("=="), text.split_once('@')) {
        (Some((name, version)), _) | (None, Some((name, version))) => {
            (name.trim(), Some(version.trim()))
        }
        (None, None) => (text, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_version = |version: &str| {
        version.starts_with(|c: char| c.is_ascii_digit())
            && version.chars().all(|c| plain(c) || matches!(c, '+' | '!'))
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain);
    (is_name && version.is_none_or(is_version)).then_some((name, version))
}

/// One spelling for `My.Tool`, `my_tool` and `my-tool`.
fn normal(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

pub(super) fn resolve<'a>(
    args: &'a [&'a str],
    around: &Surroundings,
) -> Option<(Command, &'a [&'a str])> {
    let request = request(args)?;
    let command = installed(&request, around).or_else(|| cached(&request, around))?;
    Some((command, request.rest))
}

/// A tool installed for good; uvx prefers it, whatever its version, unless one is asked for.
fn installed(request: &Request<'_>, around: &Surroundings) -> Option<Command> {
    let environment = around.uv_tools.join(&request.package);
    // Written when the install is complete.
    if !environment.join("uv-receipt.toml").is_file() {
        return None;
    }
    let distributions = Distributions::of(&environment, around.layout);
    let version = distributions.version(&request.package)?;
    if request.version.is_some_and(|wanted| wanted != version) {
        return None;
    }
    run(&environment, request.bin, around.layout)
}

/// The newest environment in the cache that was made for this package and nothing else.
fn cached(request: &Request<'_>, around: &Surroundings) -> Option<Command> {
    let layouts = entries(&around.uv_cache).into_iter().filter(|directory| {
        text(directory.file_name()).is_some_and(|name| name.starts_with("environments-v"))
    });
    let environments =
        layouts.flat_map(|layout| entries(&layout)).flat_map(|by_python| entries(&by_python));
    let mut fitting: Vec<(SystemTime, PathBuf)> = environments
        .filter_map(|environment| real(&environment))
        .filter(|environment| {
            command(environment, request.bin, around.layout).is_some_and(|bin| bin.is_file())
        })
        .filter(|environment| {
            let distributions = Distributions::of(environment, around.layout);
            let version = distributions.version(&request.package);
            version.is_some_and(|version| request.version.is_none_or(|wanted| wanted == version))
                && distributions.is_only_root(&request.package)
        })
        .filter_map(|environment| {
            Some((environment.metadata().ok()?.modified().ok()?, environment))
        })
        .collect();
    fitting.sort();
    run(&fitting.pop()?.1, request.bin, around.layout)
}

/// Where an environment has a command.
fn command(environment: &Path, bin: &str, layout: Layout) -> Option<PathBuf> {
    below(&environment.join(layout.bin()), &layout.command(bin))
}

fn run(environment: &Path, bin: &str, layout: Layout) -> Option<Command> {
    let script = command(environment, bin, layout).filter(|script| script.is_file())?;
    let python = environment.join(layout.python());
    if !python.is_file() {
        return None;
    }
    // The second form is what uv writes into environments that may be moved: a shell script that is
    // also Python.
    command_for(&script, &python, |start| {
        let mut lines = start.lines();
        let first = lines.next().unwrap_or_default();
        let is_python = first.starts_with("#!") && first.contains("python");
        is_python
            || (first == "#!/bin/sh"
                && lines.next().is_some_and(|line| line.starts_with("'''exec'")))
    })
}

/// What is installed in an environment, with each one's requirements.
struct Distributions(Vec<Distribution>);

struct Distribution {
    name: String,
    version: String,
    metadata: PathBuf,
}

impl Distributions {
    fn of(environment: &Path, layout: Layout) -> Distributions {
        let folders = match layout {
            Layout::Unix => {
                let is_python = |directory: &PathBuf| {
                    text(directory.file_name()).is_some_and(|name| name.starts_with("python"))
                };
                let pythons = entries(&environment.join("lib")).into_iter().filter(is_python);
                pythons.map(|python| python.join("site-packages")).collect()
            }
            Layout::Windows => vec![environment.join("Lib/site-packages")],
        };
        let installed = folders.into_iter().flat_map(|folder| entries(&folder));
        let distributions = installed.filter_map(|directory| {
            let (name, version) =
                text(directory.file_name())?.strip_suffix(".dist-info")?.split_once('-')?;
            let (name, version) = (normal(name), version.to_owned());
            Some(Distribution { name, version, metadata: directory.join("METADATA") })
        });
        Distributions(distributions.collect())
    }

    fn version(&self, package: &str) -> Option<&str> {
        self.0.iter().find(|one| one.name == package).map(|one| one.version.as_str())
    }

    /// Whether everything here is here because `package` is: an environment made for another tool may
    /// hold this one too, at whatever version suited the other.
    fn is_only_root(&self, package: &str) -> bool {
        let required: Vec<String> = self.0.iter().flat_map(Distribution::requires).collect();
        let is_root = |name: &String| !required.contains(name);
        self.0.iter().map(|one| &one.name).filter(|name| is_root(name)).eq([package])
    }
}

impl Distribution {
    /// The names this one depends on, itself excepted.
    fn requires(&self) -> Vec<String> {
        let text = read(&self.metadata).unwrap_or_default();
        // The headers end at the first empty line; the description may say anything.
        let headers = text.lines().take_while(|line| !line.is_empty());
        let names = headers.filter_map(|line| line.strip_prefix("Requires-Dist: ")).map(|rest| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            normal(rest.split(|c| !plain(c)).next().unwrap_or_default())
        });
        names.filter(|name| *name != self.name).collect()
    }
}
