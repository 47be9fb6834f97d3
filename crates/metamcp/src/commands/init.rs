//! `metamcp init`: in front of the servers people already have, and back again.
//! Owns: the order of the steps, the question, what is shown.      Never: changes a file that was not shown, or without a copy of it.
//! In: the clients' files.  Out: our own file with their servers, their files with us, a record for `--undo`.
//! Tests: `tests/config/init.rs`, as a shell sees it.

mod plan;
mod record;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use metamcp_core::clients::{self, CLIENTS, Client};
use metamcp_core::edit;
use metamcp_engine::config::Loaded;
use metamcp_engine::user_file;
use serde_json::{Value, json};

use self::plan::{Plan, Step, Work};
use self::record::{Record, Written};
use super::import::{self, Fate};
use super::servers;
use crate::args::{InitArgs, Scope, ScopeArgs};
use crate::exit::{Exit, OrMisuse};
use crate::person;
use crate::render::{BOLD, DIM, RED, YELLOW, styled, visible};

/// Runs it.
pub(crate) fn run(
    loaded: &Loaded,
    args: &InitArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let home = &loaded.config.settings.home;
    if args.undo {
        return record::undo(home, args, out, diagnostics);
    }
    let scope = ScopeArgs { scope: Some(Scope::User) };
    let own = match &loaded.source {
        metamcp_engine::config::Source::Named(path) => path.clone(),
        _ => servers::target(loaded, scope)?,
    };
    let plan = Plan::make(&chosen(&args.client)?, &own, args.keep)?;
    if !args.write.json {
        show(&plan, out)?;
    }
    // What was asked for by its name and could not be done is a failure; what was found beside it and left alone is not.
    let broken = !args.client.is_empty()
        && plan.steps.iter().any(|step| matches!(step.work, Work::Refused(_)));
    let mut done = false;
    if plan.changes() && !args.write.dry_run && (args.yes || agreed(out, diagnostics)?) {
        carry_out(&plan, home)?;
        done = true;
    }
    if args.write.json {
        writeln!(out, "{:#}", plan_json(&plan, done))?;
    } else if done {
        writeln!(out, "\nDone. Restart your clients; `metamcp init --undo` takes it back.")?;
    } else if !plan.changes() {
        writeln!(out, "\nNothing to change.")?;
    } else if args.write.dry_run {
        writeln!(out, "\nNothing was changed; --yes does it.")?;
    }
    out.flush()?;
    Ok(if broken || (plan.changes() && !done && !args.write.dry_run) {
        Exit::Failure
    } else {
        Exit::Success
    })
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Client>> {
    if names.is_empty() {
        return Ok(CLIENTS.iter().collect());
    }
    let one = |name: &String| {
        clients::named(name)
            .with_context(|| {
                let all: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
                format!("no client `{}` is known; there are {}", visible(name), all.join(", "))
            })
            .or_misuse()
    };
    names.iter().map(one).collect()
}

/// A yes from a person. Without one to ask, nothing is done.
fn agreed(out: &mut dyn Write, diagnostics: &mut dyn Write) -> anyhow::Result<bool> {
    if !person::is_there() {
        writeln!(diagnostics, "Nothing was changed: there is nobody to ask. --yes does it.")?;
        return Ok(false);
    }
    person::agrees(out, "\nDo this?", false, "nothing was changed")
}

/// Our own file first: a client must never name a gateway that lacks its servers.
fn carry_out(plan: &Plan, home: &Path) -> anyhow::Result<()> {
    let mut record = Record::begin(home)?;
    record.change(home, &plan.own, None, |before| {
        let after = servers::checked(&plan.own, plan.merged(before)?)?;
        Ok((after, Value::Null))
    })?;
    for step in &plan.steps {
        let Work::Edit { moved, .. } = &step.work else { continue };
        let changed = record.change(home, &step.path, Some(step.client.id), |before| {
            let (after, taken) = step.edited(before, moved)?;
            Ok((after, taken.into()))
        });
        if let Err(error) = changed {
            bail!(
                "{}: {error:#}; `metamcp init --undo` takes back what was done",
                step.client.name
            );
        }
    }
    Ok(())
}

fn show(plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    if plan.steps.is_empty() {
        writeln!(out, "No MCP client was found on this machine.")?;
        return Ok(());
    }
    let own = visible(&plan.own.display().to_string());
    let added: Vec<_> = plan.added().collect();
    if !added.is_empty() {
        writeln!(out, "{}  {}", styled(BOLD, "metamcp"), styled(DIM, &own))?;
        for (name, from) in added {
            writeln!(out, "  + {}  (from {from})", visible(name))?;
        }
    }
    for step in &plan.steps {
        let path = visible(&step.path.display().to_string());
        writeln!(out, "{}  {}", styled(BOLD, step.client.name), styled(DIM, &path))?;
        match &step.work {
            Work::Refused(why) => {
                let why = visible(why);
                writeln!(out, "  {} left alone: {why}", styled(RED, "!"))?;
            }
            Work::Nothing => writeln!(out, "    metamcp is there already")?,
            Work::Edit { moved, registers } => {
                if *registers {
                    let fresh = if step.exists { "" } else { "  (a new file)" };
                    writeln!(out, "  + metamcp{fresh}")?;
                }
                for name in moved {
                    writeln!(out, "  - {}  (behind metamcp from now on)", visible(name))?;
                }
            }
        }
        for (name, fate) in &step.fates {
            if let Fate::Left(why) = fate {
                let (sign, name, why) = (styled(YELLOW, "="), visible(name), visible(why));
                writeln!(out, "  {sign} {name} stays where it is: {why}")?;
            }
        }
    }
    Ok(())
}

fn plan_json(plan: &Plan, done: bool) -> Value {
    let steps: Vec<Value> = plan.steps.iter().map(step_json).collect();
    let added: Vec<Value> =
        plan.added().map(|(name, from)| json!({ "server": name, "from": from })).collect();
    json!({ "file": plan.own, "added": added, "clients": steps, "done": done })
}

fn step_json(step: &Step) -> Value {
    let servers: Vec<Value> =
        step.fates.iter().map(|(name, fate)| import::fate_json(name, fate)).collect();
    let mut told = json!({
        "client": step.client.id,
        "file": step.path,
        "exists": step.exists,
        "servers": servers,
    });
    match &step.work {
        Work::Refused(why) => told["refused"] = why.as_str().into(),
        Work::Nothing => {}
        Work::Edit { moved, registers } => {
            told["registers"] = (*registers).into();
            told["moved"] = moved.as_slice().into();
        }
    }
    told
}

/// One file of a record put back to what it was, as far as that is possible; words on what was done.
fn restored(written: &Written, home: &Path, dry_run: bool) -> anyhow::Result<String> {
    let backup = written.backup(home)?;
    let mut words = "put back as it was";
    let mut gone = false;
    let mut back = |text: Option<&str>| -> anyhow::Result<Option<String>> {
        let Some(text) = text else {
            words = "is gone already";
            return Ok(None);
        };
        if written.is_untouched(text) {
            gone = backup.is_none();
            return Ok(backup.clone());
        }
        if backup.as_deref() == Some(text) {
            words = "is as it was";
            return Ok(None);
        }
        let client = written.client.as_deref().and_then(clients::named);
        let (Some(client), Some(moved)) = (client, written.moved.as_object()) else {
            words = "changed since, so it stays as it is; its copy is in the folder `backups`";
            return Ok(None);
        };
        words = "changed since: metamcp taken out and its servers put back, the rest kept";
        let at = |name| [client.key, &[name]].concat();
        let mut text = text.to_owned();
        if let Some(without) = edit::remove(client.format, &text, &at(plan::OWN_NAME))? {
            text = without;
        }
        for (name, entry) in moved {
            if edit::read(client.format, &text, &at(name))?.is_none() {
                text = edit::set(client.format, &text, &at(name), entry)?;
            }
        }
        Ok(Some(text))
    };
    if dry_run {
        back(user_file::read::<anyhow::Error>(&written.path).map_err(servers::plain)?.as_deref())?;
    } else {
        user_file::change(&written.path, &mut back).map_err(servers::plain)?;
    }
    if gone {
        words = "removed: it was not there before";
        if !dry_run {
            std::fs::remove_file(&written.path)?;
        }
    }
    Ok(words.to_owned())
}
