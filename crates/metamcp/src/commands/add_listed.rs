//! `metamcp add NAME` without a command: installs a server from the gallery or a registry, by its name or for a need.
//! Owns: its prompts.      Never: installs without approval, what is refused, or what lacks a value.
//! In: a name and values.  Out: an installed server, pinned and sandboxed; or what is missing, by name.
//! Tests: `tests/real/provision.rs`, and `tests/config/first.rs` for its messages.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, bail};
use metamcp_engine::config::Loaded;
use metamcp_engine::provision::Provisioner;
use metamcp_provisioning::provision::{Candidate, Input, Plan, builtin, server_name, told};
use metamcp_types::nearest::nearest;
use serde_json::json;

use super::add_need::{self, Answer};
use super::audited::Audited;
use super::provisioned;
use crate::args::AddArgs;
use crate::env;
use crate::exit::{Exit, misuse};
use crate::render::visible;
use crate::{progress, prompt};

/// Most servers listed when a name is ambiguous.
const SHOWN: usize = 10;

/// Installs a server by its name, after approval.
pub(crate) fn add(loaded: &Loaded, args: &AddArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if !args.header.is_empty() {
        return Err(misuse("headers are for remote servers: give the address with --url"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let audited = Audited::new(&loaded.config.settings);
    let provisioner = provisioned::provisioner(loaded)?.observed_by(Arc::clone(&audited.observer));
    let done = runtime.block_on(carry_out(loaded, (&provisioner, &audited), args, out))?;
    drop(runtime);
    audited.check()?;
    let Done { candidate, plan, argv } = match done {
        Outcome::Done(done) => *done,
        Outcome::Told => return Ok(Exit::Success),
        Outcome::Declined => {
            writeln!(out, "Nothing was installed.")?;
            return Ok(Exit::Failure);
        }
    };
    let done = if args.write.dry_run { "would be installed" } else { "installed" };
    if args.write.json {
        let mut told = json!({
            "server": plan.server,
            "done": done,
            "package": candidate.package(),
            "folder": plan.prefix,
            "argv": argv,
            "contained": provisioned::contained_word(&plan.contained),
            "dry_run": args.write.dry_run,
        });
        if !args.write.dry_run {
            match provisioned::pinned(loaded, &plan.server)? {
                Ok(record) => told["tools"] = json!(record.tools),
                Err(why) => told["note"] = json!(format!("its tools are not known yet: {why}")),
            }
        }
        writeln!(out, "{told:#}")?;
        return Ok(Exit::Success);
    }
    writeln!(out, "{}: {done}, in {}", plan.server, plan.prefix)?;
    if !args.write.dry_run {
        let record = provisioner.store.record(&plan.server)?;
        for path in record.too_much() {
            writeln!(out, "{}", provisioned::shut(&record, &path))?;
        }
        writeln!(out, "Running gateways can use it now.")?;
        provisioned::first_list(loaded, &plan.server, out)?;
    }
    Ok(Exit::Success)
}

enum Outcome {
    Done(Box<Done>),
    /// It was asked which servers there are, no more.
    Told,
    Declined,
}

/// What was installed, or would be.
struct Done {
    candidate: Candidate,
    plan: Plan,
    /// Redacted for display.
    argv: Vec<String>,
}

async fn carry_out(
    loaded: &Loaded,
    (provisioner, audited): (&Provisioner, &Audited),
    args: &AddArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Outcome> {
    let names = taken(loaded, provisioner);
    let candidate = match add_need::answer(provisioner, &names, args, out).await? {
        Answer::Name => {
            let _working = progress::step(format!("looking for {}", visible(&args.name)));
            found(provisioner, &args.name).await?
        }
        Answer::Chosen(candidate) => *candidate,
        Answer::Told => return Ok(Outcome::Told),
        Answer::Declined => return Ok(Outcome::Declined),
    };
    if let Some(record) = provisioner.installed(&candidate) {
        bail!(
            "{} is already installed, as `{}`; `metamcp remove {}` removes it",
            visible(&candidate.package()),
            record.plan.server,
            record.plan.server
        );
    }
    let working =
        progress::step(format!("planning the installation of {}", visible(&candidate.package())));
    let plan = provisioner
        .plan(&candidate, &|name| names.contains(name), true)
        .await
        .with_context(|| format!("no plan for {}", visible(&candidate.package())))?;
    drop(working);
    if !args.write.json {
        writeln!(out, "{}", visible(&told(&plan)))?;
    }
    if plan.is_refused() {
        let why: Vec<String> = plan.verdict.refusals.iter().map(ToString::to_string).collect();
        bail!("metamcp does not install this: {}", visible(&why.join("; ")));
    }
    let values = values(&plan, args, out)?;
    let consent = plan.complete(&values)?;
    if !args.write.dry_run {
        let question = format!("Install {} exactly as shown?", plan.server);
        if !prompt::agrees(out, &question, args.yes, "nothing was installed")? {
            provisioner.decided(&plan, None, "declined");
            return Ok(Outcome::Declined);
        }
        provisioner.decided(&plan, None, "approved");
        audited.check()?;
        let _working = progress::step(format!("installing {}", visible(&candidate.package())));
        provisioner
            .install(&plan, &consent, &|name| loaded.config.server(name).is_some())
            .await
            .with_context(|| format!("{} was not installed", visible(&candidate.package())))?;
    }
    let argv = plan.shown(&consent.argv);
    Ok(Outcome::Done(Box::new(Done { candidate, plan, argv })))
}

/// The one server with that name.
async fn found(provisioner: &Provisioner, name: &str) -> anyhow::Result<Candidate> {
    let (mut all, notes) = provisioner.named(name).await;
    if all.len() == 1 {
        return Ok(all.remove(0));
    }
    if all.is_empty() {
        let short: Vec<String> =
            builtin().iter().map(|one| server_name(&one.offer.identifier, |_| false)).collect();
        let near = nearest(name, short.iter().map(String::as_str), 1);
        let hint = near.first().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let notes: String = notes.iter().map(|note| format!("\n{}", visible(note))).collect();
        return Err(misuse(format!(
            "no server `{}` was found in the gallery or in the registries{hint}\n\
             Say what you need in quotes, as in `metamcp add \"read my calendar\"`, and metamcp looks for a server.\n\
             For a server of your own, give the command after `--`, or a URL with --url.{notes}",
            visible(name)
        )));
    }
    let names: Vec<String> = all
        .iter()
        .take(SHOWN)
        .map(|one| format!("  {}  {}", visible(&one.name), visible(&one.package())))
        .collect();
    Err(misuse(format!(
        "`{}` can mean {} servers; give one of these names:\n{}",
        visible(name),
        all.len(),
        names.join("\n")
    )))
}

/// Names already in use.
fn taken(loaded: &Loaded, provisioner: &Provisioner) -> BTreeSet<String> {
    let configured = loaded.config.servers.iter().map(|server| server.name.clone());
    let installed = provisioner.store.records().into_iter().map(|record| record.plan.server);
    configured.chain(installed).collect()
}

/// The values the server needs: from the command line, then from prompts where there is a terminal.
fn values(
    plan: &Plan,
    args: &AddArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut values = Vec::new();
    for pair in &args.env {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(misuse("expected -e KEY=VALUE"));
        };
        let known: Vec<&str> =
            plan.asked.iter().chain(&plan.environment).map(|input| &*input.name).collect();
        if !known.contains(&name) {
            let takes = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let name = visible(name);
            return Err(misuse(format!(
                "{} takes no value `{name}`; it takes {takes}",
                plan.server
            )));
        }
        values.push((name.to_owned(), value.to_owned()));
    }
    let has = |name: &str| env::lookup_os(name).is_some_and(|value| !value.is_empty());
    let missing: Vec<Input> = plan.missing(&values, &has).into_iter().cloned().collect();
    if missing.is_empty() {
        return Ok(values);
    }
    if !prompt::is_there() || args.yes || args.write.json {
        let words: Vec<String> = missing.iter().map(needed).collect();
        let first = &missing[0].name;
        let words = words.join(" and ");
        return Err(misuse(format!(
            "{} needs {words}; give it with -e {first}=VALUE",
            plan.server
        )));
    }
    if missing.iter().any(Input::is_secret) {
        writeln!(
            out,
            "A secret can be given itself, and is then stored in your keyring or in a file that only you can read; or as a reference: keychain://SERVICE/ACCOUNT, op://…, file:/path or cmd:…"
        )?;
    }
    for input in missing {
        let value = provisioned::asked(out, &input)?;
        if value.is_empty() {
            bail!("{} needs {}", plan.server, needed(&input));
        }
        values.push((input.name.clone(), value));
    }
    Ok(values)
}

fn needed(input: &Input) -> String {
    let about = visible(&input.description);
    if about.is_empty() {
        visible(&input.name)
    } else {
        format!("{} ({about})", visible(&input.name))
    }
}
