//! `metamcp config edit`: edits the config file in the user's own editor, and writes it only if it is valid.
//! Owns: the draft, the prompt after a mistake.      Never: leaves an invalid file, overwrites a concurrent change.
//! In: the file, `$VISUAL` or `$EDITOR`.  Out: the changed file, or nothing changed.
//! Tests: `tests/config/edit.rs`, with scripts as editors.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use metamcp_config::config;
use metamcp_config::settings::Given;
use metamcp_engine::config::{LoadError, Loaded, Remark};
use metamcp_engine::files::Directory;
use metamcp_engine::user_file;
use serde_json::json;

use super::{audited, servers};
use crate::args::EditArgs;
use crate::exit::Exit;
use crate::render::visible;
use crate::{console, env, prompt, render};

/// The initial draft where there is no file yet.
const EMPTY: &str = "{\n  \"mcpServers\": {\n  }\n}\n";

/// The folder of drafts, in the home of metamcp: a config file may contain secrets.
const DRAFTS: &str = "drafts";

/// The default editor.
const EDITOR: &str = if cfg!(windows) { "notepad" } else { "vi" };

/// Opens the editor until the file is valid, or the user gives up.
pub(crate) fn run(
    loaded: Result<Loaded, LoadError>,
    given: &[Given],
    args: &EditArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    // A file that cannot be read says nothing about an audit log either.
    let mut settings = None;
    let (path, home) = match loaded {
        Ok(loaded) => {
            let home = loaded.config.settings.home.clone();
            settings = Some(loaded.config.settings.clone());
            (servers::target(&loaded, args.scope)?, home)
        }
        // This is where an invalid file gets fixed.
        Err(LoadError::Broken { path, .. }) => (path, home_of(given)?),
        Err(error) => return crate::cannot_load(&error, args.json),
    };
    let read = || user_file::read::<anyhow::Error>(&path).map_err(servers::plain);
    let before = read()?;
    let draft = Draft::new(&home, &path, before.as_deref().unwrap_or(EMPTY))?;
    loop {
        edited(&draft.path)?;
        let after = draft.text()?;
        if before.as_deref() == Some(after.as_str()) {
            draft.remove();
            return told(args, &path, false, out);
        }
        match config::parse(&after, &env::lookup).and_then(config::Loaded::sound) {
            Ok(understood) => {
                write(&path, before.as_deref(), &after)
                    .with_context(|| format!("your text is in {}", draft.path.display()))?;
                draft.remove();
                if let Some(settings) = &settings {
                    audited::config_changed(settings, &path, before.as_deref(), &after)?;
                }
                let remarks: Vec<Remark> = understood
                    .warnings
                    .iter()
                    .map(|warning| Remark::of_file(&path, warning))
                    .collect();
                render::remarks(&mut console::stderr(), &remarks)?;
                return told(args, &path, true, out);
            }
            Err(error) => {
                render::problems(&mut console::stderr(), &path, &error)?;
                let again = prompt::is_there()
                    && !args.json
                    && prompt::agrees_unless_no(out, "Edit it again?")?;
                if !again {
                    let (path, draft) = (path.display(), draft.path.display());
                    let words = format!("Nothing was changed in {path}. Your text is in {draft}.");
                    writeln!(console::stderr(), "{}", visible(&words))?;
                    return Ok(Exit::Config);
                }
            }
        }
    }
}

/// The home of metamcp, for when the file that could name it is invalid.
fn home_of(given: &[Given]) -> anyhow::Result<PathBuf> {
    let flag = given.iter().find(|given| given.setting.flag == "home");
    let named = flag.map(|given| given.value.text().into_owned());
    match named.or_else(|| env::lookup("METAMCP_HOME")) {
        Some(home) => Ok(home.into()),
        None => Ok(super::import::places()?.home.join(".metamcp")),
    }
}

fn told(args: &EditArgs, path: &Path, changed: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.json {
        writeln!(out, "{:#}", json!({ "file": path, "changed": changed }))?;
    } else if changed {
        writeln!(
            out,
            "{} was changed; running gateways reload it.",
            visible(&path.display().to_string())
        )?;
    } else {
        writeln!(out, "Nothing was changed.")?;
    }
    Ok(Exit::Success)
}

/// Writes the text to the file, unless somebody else changed it meanwhile.
fn write(path: &Path, before: Option<&str>, after: &str) -> anyhow::Result<()> {
    let put = |now: Option<&str>| -> anyhow::Result<Option<String>> {
        if now != before {
            bail!("{} was changed by somebody else meanwhile", path.display());
        }
        Ok(Some(after.to_owned()))
    };
    user_file::change(path, put).map_err(servers::plain).map(drop)
}

/// A copy to edit, which no gateway reads.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(home: &Path, of: &Path, text: &str) -> anyhow::Result<Draft> {
        let folder = Directory::home_or_create(home)?.inside_or_create(DRAFTS)?;
        let name = of.file_name().unwrap_or_default().to_string_lossy();
        // Editors detect the file type by the extension.
        let name = format!("{}-{}", std::process::id(), name.trim_start_matches('.'));
        folder.replace_for_good(&name, text.as_bytes())?;
        Ok(Draft { path: home.join(DRAFTS).join(name) })
    }

    fn text(&self) -> anyhow::Result<String> {
        std::fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))
    }

    fn remove(self) {
        // At worst a copy of the user's own file stays, in a private folder.
        drop(std::fs::remove_file(&self.path));
        drop(self.path.parent().map(std::fs::remove_dir));
    }
}

/// Runs the editor on a file and waits for it.
fn edited(path: &Path) -> anyhow::Result<()> {
    let named = |name: &str| env::lookup(name).filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| EDITOR.to_owned());
    let status = shell(&editor, path)
        .status()
        .with_context(|| format!("cannot start the editor `{}`; set EDITOR", visible(&editor)))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(127) if cfg!(unix) => {
            bail!("there is no editor `{}`; set EDITOR. Nothing was changed", visible(&editor))
        }
        _ => bail!("the editor `{}` ended with {status}; nothing was changed", visible(&editor)),
    }
}

/// The variable may contain arguments and quotes, which only a shell parses as its user meant them.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "the user's editor, which is no server")]
fn shell(editor: &str, path: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("{editor} \"$@\"")).arg(editor).arg(path);
    command
}

/// The variable may contain arguments, and quotes around what has spaces. No shell reads it: `cmd` would obey more than
/// its user meant.
#[cfg(windows)]
#[expect(clippy::disallowed_methods, reason = "the user's editor, which is no server")]
fn shell(editor: &str, path: &Path) -> Command {
    let mut words = words(editor).into_iter();
    let mut command = Command::new(words.next().unwrap_or_else(|| EDITOR.to_owned()));
    command.args(words).arg(path);
    command
}

/// Words between spaces, and what is between two quotes as one.
#[cfg(any(windows, test))]
fn words(line: &str) -> Vec<String> {
    let (mut words, mut is_quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            c if c.is_whitespace() && !is_quoted => words.push(String::new()),
            c => words.last_mut().expect("there is always one").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn an_editor_is_named_with_arguments_and_quotes() {
        let line = r#""C:\Program Files\Code\code.exe"  --wait"#;
        assert_eq!(words(line), [r"C:\Program Files\Code\code.exe", "--wait"]);
        assert_eq!(words("notepad"), ["notepad"]);
        assert!(words("  ").is_empty());
    }
}
