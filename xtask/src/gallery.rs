//! Checks the servers of the gallery: each is installed at its version by metamcp itself, sandboxed, started, and asked for
//! its tools. What was found is written into the `checked` tables of `gallery/servers.toml`; the rest of the file is not
//! touched.
//! Owns: which servers are checked, what changed.      Never: installs by other means than `metamcp add`.
//! In: the file, the registries of this machine.  Out: the file, and a line for each change.
//! Tests: below; of the file itself, `metamcp-provisioning/tests/gallery.rs`.

mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use toml_edit::{DocumentMut, Item, Table, value};

use self::trial::{Found, Trial};
use crate::run;
use crate::workspace::Workspace;

const FILE: &str = "crates/metamcp-provisioning/gallery/servers.toml";
/// Servers that are tried at once: installing one takes a core.
const AT_ONCE: usize = 2;
/// Younger versions are for the next time: most of what is taken back is taken back by then.
const LEAST_DAYS: u64 = 30;

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    only: Vec<String>,
    check: bool,
    missing: bool,
    binary: Option<PathBuf>,
}

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let options = options(arguments)?;
    let path = workspace.root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    let mut document: DocumentMut = text.parse().with_context(|| format!("{FILE} is no TOML"))?;
    let wanted = wanted(&document, &options)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => {
            run::loud(workspace.cargo().args(["build", "--locked", "--package", "metamcp"]))?;
            workspace.target.join("debug").join(program_name())
        }
    };
    let caches = workspace.target.join("gallery");
    let found = try_all(&binary, &caches, &wanted)?;
    let mut problems = Vec::new();
    let mut changes = 0;
    for (package, found) in found {
        let entry = entry_mut(&mut document, &package).context("it was read from the same file")?;
        match found {
            Ok(found) => {
                problems
                    .extend(objections(&found).into_iter().map(|why| format!("{package}: {why}")));
                for change in note(entry, &found) {
                    changes += 1;
                    say(&format!("{package}: {change}"));
                }
            }
            Err(error) => problems.push(format!("{package}: {error:#}")),
        }
    }
    if !options.check && changes > 0 {
        fs::write(&path, document.to_string())?;
    }
    say(&format!("{} servers checked, {changes} changes", wanted.len()));
    match (problems.is_empty(), options.check && changes > 0) {
        (false, _) => bail!("{} problems:\n{}", problems.len(), problems.join("\n")),
        (true, true) => bail!("{FILE} is not what the check finds; run it without --check"),
        (true, false) => Ok(()),
    }
}

fn program_name() -> String {
    format!("metamcp{}", std::env::consts::EXE_SUFFIX)
}

fn say(line: &str) {
    use std::io::Write as _;
    // With stderr closed there is nobody left to tell.
    drop(writeln!(std::io::stderr(), "{line}"));
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--only" => options.only.push(rest.next().context("--only wants a NAME")?.clone()),
            "--check" => options.check = true,
            "--missing" => options.missing = true,
            "--binary" => {
                let binary = rest.next().context("--binary wants a BINARY")?;
                options.binary = Some(std::path::absolute(binary)?);
            }
            other => bail!(
                "gallery does not know {other}: [--only NAME]... [--missing] [--check] [--binary BINARY]"
            ),
        }
    }
    Ok(options)
}

/// The entries to try: those named, by package or the end of it; with `missing` those never checked; else all.
fn wanted(document: &DocumentMut, options: &Options) -> Result<Vec<Trial>> {
    let servers = document.get("server").and_then(Item::as_array_of_tables);
    let servers = servers.with_context(|| format!("{FILE} holds no servers"))?;
    let mut trials = Vec::new();
    for server in servers {
        let trial = Trial::read(server)?;
        let named = options.only.iter().any(|name| trial.is_called(name));
        let unchecked = options.missing && !server.contains_key("checked");
        if named || unchecked || (options.only.is_empty() && !options.missing) {
            trials.push(trial);
        }
    }
    if let Some(name) =
        options.only.iter().find(|name| !trials.iter().any(|one| one.is_called(name)))
    {
        bail!("the gallery has no server {name}");
    }
    Ok(trials)
}

/// By package, in the order of the file.
fn try_all(
    binary: &std::path::Path,
    caches: &std::path::Path,
    trials: &[Trial],
) -> Result<Vec<(String, Result<Found>)>> {
    let next = Mutex::new(0..trials.len());
    let found = Mutex::new(BTreeMap::new());
    let homes: Vec<PathBuf> =
        (0..AT_ONCE).map(|number| caches.join(format!("home-{number}"))).collect();
    for home in &homes {
        fs::create_dir_all(home)?;
    }
    thread::scope(|scope| {
        for home in &homes {
            scope.spawn(|| {
                while let Some(at) = next.lock().next() {
                    say(&format!("{} …", trials[at].package));
                    let outcome = trials[at].carry_out(binary, home, caches);
                    found.lock().insert(at, outcome);
                }
            });
        }
    });
    let found = found.into_inner();
    Ok(found.into_iter().map(|(at, outcome)| (trials[at].package.clone(), outcome)).collect())
}

/// What speaks against a server, whether or not it works.
fn objections(found: &Found) -> Vec<String> {
    let mut all = Vec::new();
    if found.age_days < LEAST_DAYS {
        all.push(format!("this version is {} days old, less than {LEAST_DAYS}", found.age_days));
    }
    all.extend(found.deprecated.iter().map(|why| format!("its publisher deprecated it: {why}")));
    all
}

fn entry_mut<'a>(document: &'a mut DocumentMut, package: &str) -> Option<&'a mut Table> {
    let servers = document.get_mut("server")?.as_array_of_tables_mut()?;
    servers.iter_mut().find(|one| one.get("package").and_then(Item::as_str) == Some(package))
}

/// Writes what was found into an entry; says what is another than before.
fn note(entry: &mut Table, found: &Found) -> Vec<String> {
    let wanted: [(&str, Option<toml_edit::Value>); 6] = [
        ("hash", Some(found.hash.clone().into())),
        ("published", Some(found.published.clone().into())),
        ("entry", Some(found.entry.clone().into())),
        ("packages", Some(found.packages.into())),
        ("tools", Some(found.tools.into())),
        ("needs", found.needs.clone().map(Into::into)),
    ];
    let checked = entry.entry("checked").or_insert_with(|| Item::Table(Table::new()));
    let Some(checked) = checked.as_table_mut() else {
        return vec!["its `checked` is no table".to_owned()];
    };
    let mut changes = Vec::new();
    for (name, wish) in wanted {
        let plain = |value: &toml_edit::Value| value.clone().decorated("", "").to_string();
        let was = checked.get(name).and_then(Item::as_value).map(plain);
        let is = wish.as_ref().map(plain);
        if was == is {
            continue;
        }
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        changes.push(format!("{name}: {} → {}", shown(&was), shown(&is)));
        match wish {
            Some(wish) => checked.insert(name, value(wish)),
            None => checked.remove(name),
        };
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        Found {
            hash: "sha512-x".to_owned(),
            published: "2026-01-02".to_owned(),
            entry: "index.js".to_owned(),
            packages: 3,
            tools: 2,
            needs: None,
            age_days: 40,
            deprecated: None,
        }
    }

    const TEXT: &str = "# by hand\n[[server]]\npackage = \"npm:@x/one\" # kept\nversion = \"1.0.0\"\n\n[[server]]\npackage = \"pypi:two\"\nversion = \"2\"\nargs = [\"--x\"]\nvars = [{ name = \"KEY\", about = \"\", dummy = \"d\" }, { name = \"OTHER\", about = \"\" }]\n";

    #[test]
    fn what_was_found_is_written_beside_what_is_written_by_hand() {
        let mut document: DocumentMut = TEXT.parse().unwrap();
        let entry = entry_mut(&mut document, "npm:@x/one").unwrap();
        assert_eq!(note(entry, &found()).len(), 5);
        assert_eq!(note(entry, &found()), Vec::<String>::new());
        let next = Found { tools: 4, needs: Some("a key".to_owned()), ..found() };
        assert_eq!(note(entry, &next), ["tools: 2 → 4", "needs: nothing → \"a key\""]);
        let text = document.to_string();
        assert!(
            text.starts_with("# by hand\n[[server]]\npackage = \"npm:@x/one\" # kept\n"),
            "{text}"
        );
        assert!(text.contains("[server.checked]\nhash = \"sha512-x\"\n"), "{text}");
        assert!(entry_mut(&mut document, "npm:one").is_none());
    }

    #[test]
    fn servers_are_chosen_by_name_or_because_they_are_new() {
        let document: DocumentMut = TEXT.parse().unwrap();
        let names = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
            let trials = wanted(&document, &options(&arguments).unwrap())?;
            anyhow::Ok(trials.into_iter().map(|one| one.package).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["npm:@x/one", "pypi:two"]);
        assert_eq!(names(&["--only", "one"]).unwrap(), ["npm:@x/one"]);
        assert_eq!(names(&["--only", "@x/one", "--only", "two"]).unwrap().len(), 2);
        assert_eq!(names(&["--missing"]).unwrap().len(), 2);
        assert!(names(&["--only", "three"]).is_err());
        assert!(options(&["--fast".to_owned()]).is_err());
    }

    #[test]
    fn what_is_young_or_deprecated_is_objected_to() {
        assert!(objections(&found()).is_empty());
        let bad = Found { age_days: 8, deprecated: Some("moved".to_owned()), ..found() };
        assert_eq!(objections(&bad).len(), 2);
    }
}
