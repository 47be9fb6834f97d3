//! `metamcp init --http`: clients connect to a listening gateway, each sending the generated token in its own way.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use metamcp_config::clients::Client;
use metamcp_config::edit;
use metamcp_engine::config::Loaded;
use metamcp_engine::serve::http::access::{Generated, Purpose};
use metamcp_engine::user_file;
use serde_json::{Value, json};

use super::plan::OWN_NAME;
use super::record::{Note, Record};
use super::{chosen, import, servers};
use crate::args::InitArgs;
use crate::exit::{Exit, OrMisuse};
use crate::prompt;
use crate::render::{BOLD, DIM, RED, styled, visible};

/// One client on this machine.
struct Step {
    client: &'static Client,
    path: PathBuf,
    /// Whether other users of the machine can read the file.
    is_exposed: bool,
    /// What to do with it, or why nothing can be done.
    action: Result<FileAction, String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileAction {
    /// The entry is already there, with this address and token.
    Nothing,
    Write,
}

/// Configures the clients for the gateway at this URL.
pub(super) fn run(
    loaded: &Loaded,
    args: &InitArgs,
    url: &str,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let (settings, home) = (&loaded.config.settings, &loaded.config.settings.home);
    if !url.starts_with("http://") && !url.starts_with("https://") {
        let words = format!(
            "`{}` is not the URL of a gateway, such as http://127.0.0.1:8080/mcp",
            visible(url)
        );
        return Err(anyhow::anyhow!(words)).or_misuse();
    }
    let serve = &settings.serve;
    if serve.token_file.is_some() || !serve.token_env.is_empty() || !serve.jwks.is_empty() {
        bail!(
            "your gateway accepts tokens that you configured (tokenFile, tokenEnv or jwks), not the generated one; \
             write the client's token into its file yourself"
        );
    }
    let known = Generated::found(home, Purpose::Clients)?;
    let steps = steps(args, url, known.as_ref())?;
    if !args.write.json {
        show(&steps, url, out)?;
    }
    let has_action = steps.iter().any(|step| step.action == Ok(FileAction::Write));
    let may = has_action && !args.write.dry_run;
    let done = may && (args.yes || agreed(out, diagnostics)?);
    if done {
        let token = Generated::of(home, Purpose::Clients)?;
        let mut record = Record::begin(home)?;
        for step in steps.iter().filter(|step| step.action == Ok(FileAction::Write)) {
            let client = step.client;
            // Before the token is in it, not after.
            if step.is_exposed {
                make_private(&step.path)?;
            }
            let written = record.change(home, &step.path, Some(client.id), |before| {
                let entry = client.http_entry(url, token.expose()).map_err(anyhow::Error::msg)?;
                with_entry(client, before, &entry)
            });
            written.with_context(|| {
                format!("{}: `metamcp init --undo` reverts what was done", client.name)
            })?;
        }
    }
    if args.write.json {
        writeln!(out, "{:#}", told(&steps, url, done))?;
    } else if done {
        writeln!(
            out,
            "\nDone. Start the gateway with `metamcp --transport http`, then restart your clients; after `metamcp token --rotate` \
             do this again. `metamcp init --undo` reverts it."
        )?;
    } else if !has_action {
        writeln!(out, "\nNothing to change.")?;
    } else if args.write.dry_run {
        writeln!(out, "\nNothing was changed; --yes applies it.")?;
    }
    out.flush()?;
    let named_in_vain = !args.client.is_empty() && steps.iter().any(|step| step.action.is_err());
    Ok(if named_in_vain || (may && !done) { Exit::Failure } else { Exit::Success })
}

/// Asks for confirmation. Without a terminal nothing is done.
fn agreed(out: &mut dyn Write, diagnostics: &mut dyn Write) -> anyhow::Result<bool> {
    if !prompt::is_there() {
        writeln!(
            diagnostics,
            "Nothing was changed: there is no terminal to ask at. --yes applies it."
        )?;
        return Ok(false);
    }
    prompt::agrees(out, "\nDo this?", false, "nothing was changed")
}

fn steps(args: &InitArgs, url: &str, known: Option<&Generated>) -> anyhow::Result<Vec<Step>> {
    let places = import::places()?;
    let mut steps = Vec::new();
    for client in chosen(&args.client)? {
        let files = client.files(&places);
        let Some(last) = files.last() else { continue };
        let makes = client.made && last.parent().is_some_and(Path::exists);
        let there = files.iter().find(|path| path.exists());
        let Some(path) = there.or(makes.then_some(last)).cloned() else { continue };
        let token = known.map_or("", Generated::expose);
        let action = match client.http_entry(url, token) {
            Err(why) => Err(why.to_owned()),
            Ok(entry) => looked_at(client, &path, &entry).map_err(|error| format!("{error:#}")),
        };
        let is_exposed = is_exposed(&path);
        steps.push(Step { client, path, is_exposed, action });
    }
    Ok(steps)
}

fn looked_at(client: &Client, path: &Path, entry: &Value) -> anyhow::Result<FileAction> {
    let text = user_file::read::<anyhow::Error>(path).map_err(servers::plain)?.unwrap_or_default();
    if edit::read(client.format, &text, &place(client))?.as_ref() == Some(entry) {
        return Ok(FileAction::Nothing);
    }
    // Finds out before anything is changed whether the file can be edited.
    with_entry(client, &text, entry).map(|_| FileAction::Write)
}

/// The client's text with this entry for the gateway, and the entry it had before.
fn with_entry(client: &Client, text: &str, entry: &Value) -> anyhow::Result<(String, Note)> {
    let at = place(client);
    let mut text = text.to_owned();
    let mut taken = serde_json::Map::new();
    if let Some(before) = edit::read(client.format, &text, &at)? {
        // Replaced as a whole: keys of the other kind, such as a command, must not stay.
        if let Some(without) = edit::remove(client.format, &text, &at)? {
            text = without;
        }
        taken.insert(OWN_NAME.to_owned(), before);
    }
    let text = edit::set(client.format, &text, &at, entry)?;
    Ok((text, Note { moved: taken.into(), added: serde_json::Map::new() }))
}

/// Whether others than its owner can read or write a file. Without file modes, the permissions of its folders have to
/// do.
fn is_exposed(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(path).map(|found| found.permissions().mode());
        mode.is_ok_and(|mode| mode & 0o077 != 0)
    }
    #[cfg(windows)]
    {
        let _nothing_to_ask = path;
        false
    }
}

fn make_private(path: &Path) -> anyhow::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).with_context(
            || format!("{} can be read by others, so the token is not written", path.display()),
        )?;
    }
    #[cfg(windows)]
    let _nothing_to_do = path;
    Ok(())
}

fn place(client: &Client) -> Vec<&'static str> {
    [client.key, &[OWN_NAME]].concat()
}

fn show(steps: &[Step], url: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    if steps.is_empty() {
        writeln!(out, "No MCP client was found on this machine.")?;
    }
    for step in steps {
        let path = visible(&step.path.display().to_string());
        writeln!(out, "{}  {}", styled(BOLD, step.client.name), styled(DIM, &path))?;
        match &step.action {
            Ok(FileAction::Nothing) => writeln!(out, "    metamcp is already there")?,
            Ok(FileAction::Write) => {
                let private = match step.is_exposed {
                    true => "; only you can read the file from then on",
                    false => "",
                };
                let url = visible(url);
                writeln!(out, "  + metamcp  {url} with the generated token in a header{private}")?;
            }
            Err(why) => writeln!(out, "  {} skipped: {}", styled(RED, "!"), visible(why))?,
        }
    }
    Ok(())
}

fn told(steps: &[Step], url: &str, done: bool) -> Value {
    let step = |step: &Step| {
        let mut told = json!({ "client": step.client.id, "file": step.path });
        match &step.action {
            Ok(action) => told["writes"] = (*action == FileAction::Write).into(),
            Err(why) => told["skipped"] = why.as_str().into(),
        }
        told
    };
    json!({ "url": url, "clients": steps.iter().map(step).collect::<Vec<_>>(), "done": done })
}
