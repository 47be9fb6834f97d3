//! `metamcp init`: puts the gateway in front of the servers people already have, and undoes that.
//! Owns: the order of the steps, the prompt, the summary.      Never: changes a file without showing and backing it up.
//! In: the clients' files.  Out: our own file with their servers, their files with us, a record for `--undo`.
//! Tests: `tests/config/init.rs`, as a shell sees it.

mod choose;
mod http;
mod plan;
mod program;
mod record;
mod undo;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use metamcp_config::clients::{self, CLIENTS, Client};
use metamcp_config::config::PassEnv;
use metamcp_config::settings::Settings;
use metamcp_engine::config::Loaded;
use metamcp_engine::user_file;
use serde_json::{Value, json};

use self::choose::Chosen;
pub(crate) use self::plan::lacking;
use self::plan::{FileAction, MoveChoice, MoveChoices, Plan, Step};
pub(crate) use self::program::{doubt, own_program};
pub(crate) use self::record::undo;
use self::record::{Note, Record};
use super::import::{self, ImportStatus};
use super::{audited, servers};
use crate::args::{InitArgs, Scope, ScopeArgs};
use crate::env;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::progress;
use crate::prompt;
use crate::render::{BOLD, DIM, RED, YELLOW, plural, styled, visible};

pub(crate) fn run(
    loaded: &Loaded,
    args: &InitArgs,
    out: &mut dyn Write,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if let Some(url) = &args.http {
        return http::run(loaded, args, url, out, diagnostics);
    }
    let scope = ScopeArgs::of(Scope::User);
    let own = match &loaded.source {
        metamcp_engine::config::Source::Named(path) => path.clone(),
        _ => servers::target(loaded, scope)?,
    };
    let clients = chosen(&args.client)?;
    let pass = PassEnv::from_text(&loaded.config.settings.pass_env);
    let mut plan = made(&clients, &own, args, &Chosen::default())?;
    if !args.write.json {
        show(&plan, &pass, out)?;
    }
    let mut done = false;
    if plan.changes() && !args.write.dry_run {
        let mut answer = if args.yes { Answer::Yes } else { asked(out, diagnostics)? };
        while answer == Answer::Choose {
            let picked = choose::choose(&plan, out)?;
            plan = made(&clients, &own, args, &picked)?;
            writeln!(out)?;
            show(&plan, &pass, out)?;
            answer = if plan.changes() { asked(out, diagnostics)? } else { Answer::No };
        }
        if answer == Answer::Yes {
            carry_out(&plan, &loaded.config.settings)?;
            done = true;
        }
    }
    // A client that was named and failed is a failure; one that was found and skipped is not.
    let broken = !args.client.is_empty()
        && plan.steps.iter().any(|step| matches!(step.action, FileAction::Refused(_)));
    let left = unready(&plan);
    if args.write.json {
        writeln!(out, "{:#}", plan_json(&plan, &pass, done))?;
    } else if done {
        writeln!(out, "\nDone. Restart your clients; `metamcp init --undo` reverts it.")?;
        if left > 0 {
            let (servers, them) = (plural(left, "server"), if left == 1 { "it" } else { "them" });
            writeln!(
                out,
                "{servers} would not start and stayed with the client; fix {them} and run init again, or import {them} with --server NAME."
            )?;
        }
    } else if !plan.changes() {
        writeln!(out, "\nNothing to change.")?;
    } else if args.write.dry_run {
        writeln!(out, "\nNothing was changed; --yes applies it.")?;
    }
    out.flush()?;
    Ok(if broken || (plan.changes() && !done && !args.write.dry_run) {
        Exit::Failure
    } else {
        Exit::Success
    })
}

/// The plan for the choices on the command line and at the prompt.
fn made(
    clients: &[&'static Client],
    own: &Path,
    args: &InitArgs,
    picked: &Chosen,
) -> anyhow::Result<Plan> {
    let has = |list: &[String], name: &str| list.iter().any(|one| one == name);
    let of = |step: &Step, server: &import::Server| {
        if let Some(move_choice) = picked.move_choice(step, server) {
            return move_choice;
        }
        if has(&args.except, &server.name) {
            MoveChoice::No
        } else if args.server.is_empty() {
            MoveChoice::Usual
        } else if has(&args.server, &server.name) {
            MoveChoice::Yes
        } else {
            MoveChoice::No
        }
    };
    let left: Vec<&'static Client> =
        clients.iter().filter(|client| !picked.without.contains(client.id)).copied().collect();
    let working =
        progress::step("reading your clients' files, and checking which servers would start");
    let plan = Plan::make(&left, own, &MoveChoices { keep: args.keep, of: &of })?;
    drop(working);
    for name in args.server.iter().chain(&args.except) {
        let is_known = plan.steps.iter().flat_map(Step::servers).any(|(one, _)| one.name == *name);
        if !is_known && picked.without.is_empty() {
            return Err(misuse(format!("no client has a server `{}`", visible(name))));
        }
    }
    Ok(plan)
}

/// How many servers stay in place because they would not start.
fn unready(plan: &Plan) -> usize {
    let statuses = plan.steps.iter().flat_map(|step| &step.statuses);
    statuses.filter(|(_, status)| matches!(status, ImportStatus::Unready(_))).count()
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Client>> {
    if names.is_empty() {
        return Ok(CLIENTS.iter().collect());
    }
    let one = |name: &String| {
        clients::named(name)
            .with_context(|| {
                let all: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
                format!("unknown client `{}`; known are {}", visible(name), all.join(", "))
            })
            .or_misuse()
    };
    names.iter().map(one).collect()
}

/// A person's answer to a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Choose,
}

/// Asks for confirmation. Without a terminal nothing is done.
fn asked(out: &mut dyn Write, diagnostics: &mut dyn Write) -> anyhow::Result<Answer> {
    if !prompt::is_there() {
        writeln!(
            diagnostics,
            "Nothing was changed: there is no terminal to ask at. --yes applies it."
        )?;
        return Ok(Answer::No);
    }
    let typed = prompt::line(out, "\nApply this (c to choose clients and servers)? [y/N] ")?;
    Ok(match typed.to_ascii_lowercase().as_str() {
        "y" | "yes" => Answer::Yes,
        "c" | "choose" => Answer::Choose,
        _ => {
            writeln!(out, "Nothing was changed.")?;
            Answer::No
        }
    })
}

/// Our own file first: a client must never name a gateway that lacks its servers.
fn carry_out(plan: &Plan, settings: &Settings) -> anyhow::Result<()> {
    let home = &settings.home;
    let working = progress::step("writing the servers into metamcp's file");
    let mut record = Record::begin(home)?;
    let read = || user_file::read::<anyhow::Error>(&plan.own).map_err(servers::plain);
    let before = read()?;
    record.change(home, &plan.own, None, |before| {
        let (after, added) = plan.merged(before)?;
        Ok((servers::checked(&plan.own, after)?, Note { moved: Value::Null, added }))
    })?;
    let after = read()?;
    if after != before {
        let after = after.unwrap_or_default();
        audited::config_changed(settings, &plan.own, before.as_deref(), &after)?;
    }
    for step in &plan.steps {
        let FileAction::Edit { .. } = &step.action else { continue };
        working.say(format!("writing the file of {}", step.client.name));
        let changed = record.change(home, &step.path, Some(step.client.id), |before| {
            let (after, taken) = step.edited(before)?;
            Ok((after, Note { moved: taken.into(), added: serde_json::Map::new() }))
        });
        if let Err(error) = changed {
            bail!("{}: {error:#}; `metamcp init --undo` reverts what was done", step.client.name);
        }
    }
    Ok(())
}

fn show(plan: &Plan, pass: &PassEnv, out: &mut dyn Write) -> anyhow::Result<()> {
    if plan.steps.is_empty() {
        writeln!(out, "No MCP client was found on this machine.")?;
        return Ok(());
    }
    let own = visible(&plan.own.display().to_string());
    let added: Vec<_> = plan.added().collect();
    if !added.is_empty() {
        writeln!(out, "{}  {}", styled(BOLD, "metamcp"), styled(DIM, &own))?;
        for (name, from) in added {
            writeln!(out, "  + {}  (from {})", visible(name), visible(&from))?;
        }
    }
    for step in &plan.steps {
        let path = visible(&step.path.display().to_string());
        writeln!(out, "{}  {}", styled(BOLD, step.client.name), styled(DIM, &path))?;
        match &step.action {
            FileAction::Refused(why) => {
                let why = visible(why);
                writeln!(out, "  {} skipped: {why}", styled(RED, "!"))?;
            }
            FileAction::Nothing => writeln!(out, "    metamcp is already there")?,
            FileAction::Edit { moved, registers, passes } => {
                if *registers {
                    let fresh = if step.exists { "" } else { "  (a new file)" };
                    writeln!(out, "  + metamcp{fresh}")?;
                }
                if !passes.is_empty() {
                    let names = visible(&passes.join(", "));
                    writeln!(out, "    {} passes on to metamcp: {names}", step.client.name)?;
                }
                for &at in moved {
                    let name = visible(&step.statuses[at].0);
                    writeln!(out, "  - {name}  (imported)")?;
                }
            }
        }
        for (name, status) in &step.statuses {
            let (sign, name) = (styled(YELLOW, "="), visible(name));
            match status {
                ImportStatus::Skipped(why) => {
                    writeln!(out, "  {sign} {name} stays in the client: {}", visible(why))?;
                }
                ImportStatus::Unready(why) => {
                    let why = visible(why);
                    writeln!(
                        out,
                        "  {sign} {name} will not start, so it stays in the client: {why}"
                    )?;
                }
                ImportStatus::NotChosen => writeln!(out, "  {sign} {name} stays in the client")?,
                ImportStatus::Added(_) | ImportStatus::Same(_) | ImportStatus::Itself => {}
            }
        }
    }
    let withheld = withheld(plan, pass);
    if !withheld.is_empty() {
        let names = visible(&withheld.join(", "));
        writeln!(
            out,
            "{} metamcp does not pass {names} on to servers, which the client did; if a server needs it, add to its entry: \"passEnv\": [\"{}\"]",
            styled(YELLOW, "!"),
            visible(&withheld[0])
        )?;
    }
    if let Some(doubt) = plan.doubt.as_ref().filter(|_| plan.changes()) {
        writeln!(out, "{} {}", styled(YELLOW, "!"), visible(doubt))?;
    }
    Ok(())
}

/// Variables that look like secrets and that the moved servers used to get from a client that passes on everything.
fn withheld(plan: &Plan, pass: &PassEnv) -> Vec<String> {
    let mut named = plan
        .steps
        .iter()
        .filter(|step| matches!(step.action, FileAction::Edit { .. }) && step.gave_everything())
        .peekable();
    if named.peek().is_none() {
        return Vec::new();
    }
    let used: Vec<&String> = named.flat_map(Step::used).collect();
    let mut all = env::withheld(pass);
    all.retain(|name| !used.contains(&name));
    all
}

fn plan_json(plan: &Plan, pass: &PassEnv, done: bool) -> Value {
    let steps: Vec<Value> = plan.steps.iter().map(step_json).collect();
    let added: Vec<Value> =
        plan.added().map(|(name, from)| json!({ "server": name, "from": from })).collect();
    let doubt = &plan.doubt;
    json!({ "file": plan.own, "added": added, "clients": steps, "withheld": withheld(plan, pass), "warning": doubt, "done": done })
}

fn step_json(step: &Step) -> Value {
    let servers: Vec<Value> =
        step.statuses.iter().map(|(name, status)| import::status_json(name, status)).collect();
    let mut told = json!({
        "client": step.client.id,
        "file": step.path,
        "exists": step.exists,
        "servers": servers,
    });
    match &step.action {
        FileAction::Refused(why) => told["refused"] = why.as_str().into(),
        FileAction::Nothing => {}
        FileAction::Edit { moved, registers, passes } => {
            told["registers"] = (*registers).into();
            let moved: Vec<&str> = moved.iter().map(|&at| step.statuses[at].0.as_str()).collect();
            told["moved"] = moved.into();
            told["passes"] = passes.as_slice().into();
        }
    }
    told
}
