//! `metamcp approve` and `metamcp provisioned`: the user's side of installing servers.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use metamcp_child::ShimCommand;
use metamcp_engine::config::Loaded;
use metamcp_engine::observe::Subject;
use metamcp_engine::provision::{Blocked, Provisioner, Record, Store};
use metamcp_provisioning::provision::{Contained, Input, Plan, Source, Word, day, told};
use serde_json::{Value, json};

use super::audited::Audited;
use super::gateway;
use crate::args::{ApproveArgs, ProvisionedCommand};
use crate::env;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::{progress, prompt, render};

fn no_such_plan(id: &str) -> anyhow::Error {
    misuse(format!(
        "no plan or call {} is pending: it was used, has expired after an hour, or never existed",
        render::visible(id)
    ))
}

/// The pending plans as JSON, or the one with this id.
pub(super) fn waiting_json(loaded: &Loaded, id: Option<&str>) -> Vec<Value> {
    let waiting = Store::new(&loaded.config.settings.home).pending().into_iter();
    let wanted = waiting.filter(|(known, _)| id.is_none_or(|id| id == known));
    wanted.map(|(id, pending)| json!({ "id": id, "plan": plan_json(&pending.plan) })).collect()
}

/// Prints the pending plans; whether there are any.
pub(super) fn list_waiting(loaded: &Loaded, out: &mut dyn Write) -> anyhow::Result<bool> {
    let waiting = Store::new(&loaded.config.settings.home).pending();
    for (id, pending) in &waiting {
        writeln!(out, "{}", render::styled(render::BOLD, id))?;
        writeln!(out, "{}", render::visible(&told(&pending.plan)))?;
    }
    Ok(!waiting.is_empty())
}

/// Shows a pending plan and asks for approval, which only a person at a terminal can give.
pub(super) fn approve(
    loaded: &Loaded,
    args: &ApproveArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let id = args.id.as_deref().unwrap_or_default();
    if args.json {
        let all = waiting_json(loaded, Some(id));
        if all.is_empty() {
            return Err(no_such_plan(id));
        }
        writeln!(out, "{:#}", Value::from(all))?;
        return Ok(Exit::Success);
    }
    if args.span.is_some() || args.always || args.any_arguments || args.decline {
        return Err(misuse("this is no call that waits; a plan is approved as it is"));
    }
    let store = Store::new(&loaded.config.settings.home);
    let waiting = store.pending();
    let mut values = Vec::new();
    for value in &args.values {
        let (name, value) = value.split_once('=').context("--set wants NAME=VALUE").or_misuse()?;
        values.push((name.to_owned(), value.to_owned()));
    }
    let Some((_, pending)) = waiting.into_iter().find(|(known, _)| known == id) else {
        return Err(no_such_plan(id));
    };
    writeln!(out, "{}", render::visible(&told(&pending.plan)))?;
    // What a program can type, a model can make a program type; so there is no flag for this approval.
    anyhow::ensure!(
        prompt::is_there(),
        "approval needs a person at a terminal; nothing was approved"
    );
    let has = |name: &str| env::lookup_os(name).is_some_and(|value| !value.is_empty());
    let missing: Vec<Input> = pending.plan.missing(&values, &has).into_iter().cloned().collect();
    for input in missing {
        let value = asked(out, &input)?;
        values.push((input.name, value));
    }
    if prompt::line(out, "Install and run exactly this? Type yes: ")? != "yes" {
        writeln!(out, "Nothing was approved.")?;
        return Ok(Exit::Failure);
    }
    let audited = Audited::new(&loaded.config.settings);
    let plan = pending.plan;
    // Validate before anything is stored.
    plan.complete(&values)?;
    let provisioner = provisioner(loaded)?.observed_by(Arc::clone(&audited.observer));
    provisioner.decided(&plan, None, "approved");
    audited.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The approval is in a file until it is used.
    let values = runtime.block_on(provisioner.put_away(&plan, values))?;
    store.agree(&plan, values)?;
    // The model may have repeated its request just now, and its gateway used the approval.
    let Some(consent) = store.use_yes(&plan)? else {
        writeln!(out, "Approved; the gateway that requested it installs it.")?;
        return Ok(Exit::Success);
    };
    writeln!(out, "Approved. Installing {} ...", render::visible(&plan.identifier))?;
    out.flush()?;
    let working = progress::step(format!("installing {}", render::visible(&plan.identifier)));
    runtime
        .block_on(
            provisioner.install(&plan, &consent, &|name| loaded.config.server(name).is_some()),
        )
        .with_context(|| format!("{} was not installed", plan.server))?;
    drop(working);
    audited.check()?;
    writeln!(out, "{} is installed; running gateways can use it now.", plan.server)?;
    let record = store.record(&plan.server)?;
    for path in record.too_much() {
        writeln!(out, "{}", shut(&record, &path))?;
    }
    drop(runtime);
    first_list(loaded, &plan.server, out)?;
    Ok(Exit::Success)
}

/// A provisioner that can install.
pub(super) fn provisioner(loaded: &Loaded) -> anyhow::Result<Provisioner> {
    let settings = &loaded.config.settings;
    let shim = ShimCommand::this_binary(crate::SHIM_ARGUMENT)
        .context("the path of this program is not known")?;
    let provisioner = Provisioner::new(&settings.home, &settings.provision, Box::new(|_| {}));
    Ok(provisioner.installing(shim, settings.token_store))
}

/// Removes an installed server and everything that belongs to it.
pub(super) fn remove(loaded: &Loaded, name: &str) -> anyhow::Result<Record> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _working = progress::step(format!("removing {}", render::visible(name)));
    let audited = Audited::new(&loaded.config.settings);
    let provisioner = provisioner(loaded)?.observed_by(Arc::clone(&audited.observer));
    let record = runtime.block_on(provisioner.remove(name))?;
    audited.check()?;
    Ok(record)
}

/// Prompts for a value; a secret is not echoed.
pub(super) fn asked(out: &mut dyn Write, input: &Input) -> anyhow::Result<String> {
    let (name, about) = (render::visible(&input.name), render::visible(&input.description));
    let prompt = if about.is_empty() { name } else { format!("{name} ({about})") };
    if input.is_secret() {
        prompt::secret(out, &prompt)
    } else {
        prompt::line(out, &format!("{prompt}: "))
    }
}

/// Starts a newly installed server to list its tools, which pins them, and returns its record.
pub(super) fn pinned(loaded: &Loaded, name: &str) -> anyhow::Result<Result<Record, String>> {
    let failure = gateway::with(loaded, async |gateway| {
        let servers = gateway.servers();
        let against = servers.named(name).and_then(|entry| entry.config.state.against());
        if let Some(why) = against {
            return Some(why.to_owned());
        }
        let tried = gateway.view.try_out(name).await;
        tried.err().map(|error| error.message().to_owned())
    })?;
    let record = Store::new(&loaded.config.settings.home).record(name)?;
    Ok(match failure {
        Some(why) if record.tools.is_empty() => Err(why),
        _ => Ok(record),
    })
}

/// The same, printed for people.
pub(super) fn first_list(loaded: &Loaded, name: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    match pinned(loaded, name)? {
        Ok(record) => {
            writeln!(out, "Its tools are pinned as they are now; changes are blocked:")?;
            tools(&record, out)
        }
        Err(why) => {
            let why = render::visible(&why);
            writeln!(out, "Its tools are not known yet: {why}")?;
            writeln!(out, "Once they are, `metamcp provisioned show {name}` shows them.")?;
            Ok(())
        }
    }
}

fn tools(record: &Record, out: &mut dyn Write) -> anyhow::Result<()> {
    for tool in record.tools.values() {
        let (signature, about) = (render::visible(&tool.signature), render::visible(&tool.about));
        writeln!(out, "{}", format!("  {signature}  {about}").trim_end())?;
    }
    Ok(())
}

pub(crate) fn run(
    loaded: &Loaded,
    command: &ProvisionedCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let store = Store::new(&loaded.config.settings.home);
    match command {
        ProvisionedCommand::List(args) => {
            let records = store.records();
            if args.json {
                let all: Vec<Value> = records.iter().map(as_json).collect();
                writeln!(out, "{:#}", Value::from(all))?;
                return Ok(Exit::Success);
            }
            if records.is_empty() {
                writeln!(out, "No server was installed by metamcp.")?;
            }
            for record in &records {
                describe(record, out)?;
            }
        }
        ProvisionedCommand::Show(args) => {
            let record = store.record(&args.name).or_misuse()?;
            if args.json {
                let mut told = as_json(&record);
                told["tools"] = json!(record.tools);
                writeln!(out, "{told:#}")?;
                return Ok(Exit::Success);
            }
            describe(&record, out)?;
            if record.tools.is_empty() {
                writeln!(out, "  It has not listed its tools yet.")?;
            } else {
                writeln!(out, "  Tools, as they were pinned:")?;
            }
            tools(&record, out)?;
        }
        ProvisionedCommand::Remove(args) => {
            store.record(&args.name).or_misuse()?;
            let record = remove(loaded, &args.name)?;
            if args.json {
                writeln!(out, "{:#}", json!({ "removed": as_json(&record) }))?;
            } else {
                writeln!(out, "Removed {} and {}.", args.name, record.plan.prefix)?;
                writeln!(out, "Running gateways no longer use it.")?;
            }
        }
        ProvisionedCommand::Allow(args) => {
            store.record(&args.name).or_misuse()?;
            let audited = Audited::new(&loaded.config.settings);
            let path = args.path.to_string_lossy();
            let subject = Subject::Approval { server: &args.name, package: "", plan: &path };
            audited.record(subject, "allowed")?;
            let record = store.allow(&args.name, &args.path).or_misuse()?;
            if args.json {
                writeln!(out, "{:#}", json!({ "allowed": as_json(&record) }))?;
            } else if record.plan.contained == Contained::Sandbox {
                let reach: Vec<String> =
                    record.reach.iter().map(|path| path.display().to_string()).collect();
                writeln!(out, "{} may read and write {}.", args.name, reach.join(", "))?;
            } else {
                writeln!(out, "{} is not sandboxed, so it could before.", args.name)?;
            }
        }
        ProvisionedCommand::Accept(args) => {
            let seen = store.record(&args.name).or_misuse()?;
            if args.json {
                // A prompt would be lost among JSON.
                anyhow::ensure!(
                    args.yes,
                    "nothing was accepted: --json cannot ask; --yes accepts what is shown"
                );
            } else {
                if let Some(why) = &seen.quarantine {
                    writeln!(out, "{} is withheld: {}", args.name, render::visible(why))?;
                }
                for (name, tool) in &seen.blocked {
                    writeln!(out, "{}", changed(name, tool))?;
                }
            }
            let is_held = seen.quarantine.is_some() || !seen.blocked.is_empty();
            let undone = "nothing was accepted";
            if is_held && !prompt::agrees(out, "Accept this?", args.yes, undone)? {
                writeln!(out, "Nothing was accepted.")?;
                return Ok(Exit::Failure);
            }
            let (package, plan) = (seen.plan.package(), seen.plan.digest());
            let subject = Subject::Approval { server: &args.name, package: &package, plan: &plan };
            Audited::new(&loaded.config.settings).record(subject, "accepted")?;
            let record = store.accept(&seen)?;
            if args.json {
                let told = json!({ "accepted": as_json(&record), "tools": seen.blocked, "withheld": seen.quarantine });
                writeln!(out, "{told:#}")?;
            } else {
                if seen.quarantine.is_some() {
                    writeln!(out, "{} is enabled again.", args.name)?;
                }
                if !seen.blocked.is_empty() {
                    writeln!(
                        out,
                        "These tools of {} are accepted as shown; further changes are blocked.",
                        args.name
                    )?;
                }
            }
        }
    }
    Ok(Exit::Success)
}

/// The message that a folder was requested but not granted, with the command that grants it.
pub(super) fn shut(record: &Record, path: &str) -> String {
    let (name, path) = (render::visible(&record.plan.server), render::visible(path));
    format!(
        "{path} is not granted, since it holds all your files; to grant it anyway: metamcp provisioned allow {name} {path}"
    )
}

fn describe(record: &Record, out: &mut dyn Write) -> anyhow::Result<()> {
    let plan = &record.plan;
    let name = render::styled(render::BOLD, &render::visible(&plan.server));
    writeln!(out, "{name}  {} {}", plan.kind.word(), plan.package())?;
    if let Some(why) = &record.quarantine {
        let (name, why) = (&plan.server, render::visible(why));
        writeln!(out, "  withheld {why}; metamcp provisioned accept {name}, or remove it")?;
    }
    writeln!(out, "  installed {}", day(record.installed))?;
    if let Some(integrity) = &plan.integrity {
        writeln!(out, "  hash {}", render::visible(integrity))?;
    }
    writeln!(out, "  runs {}", render::visible(&shown(record).join(" ")))?;
    writeln!(out, "  walls {}", walls(record))?;
    for path in record.too_much() {
        writeln!(out, "  {}", shut(record, &path))?;
    }
    for (name, tool) in &record.blocked {
        writeln!(out, "  blocked {}", changed(name, tool))?;
    }
    Ok(())
}

/// The command line with its secrets redacted.
fn shown(record: &Record) -> Vec<String> {
    record.plan.shown(&record.argv)
}

/// A blocked tool, as a person has to see it before accepting it.
fn changed(name: &str, tool: &Blocked) -> String {
    let what = if tool.is_new { "new" } else { "changed" };
    let (signature, about) = (render::visible(&tool.signature), render::visible(&tool.description));
    format!("{} ({what}): {signature}  {about}", render::visible(name))
}

fn walls(record: &Record) -> String {
    let reach: Vec<String> =
        record.granted().iter().map(|path| path.display().to_string()).collect();
    match &record.plan.contained {
        Contained::Sandbox if reach.is_empty() => "its own folder".to_owned(),
        Contained::Sandbox => format!("its own folder, and {}", render::visible(&reach.join(", "))),
        Contained::Container => "a container".to_owned(),
        Contained::Elsewhere => "another machine".to_owned(),
        Contained::Nothing { why } => format!("none: {}", render::visible(why)),
    }
}

/// A plan as JSON. The strings are a stable interface, independent of how plans are stored.
fn plan_json(plan: &Plan) -> Value {
    let found_in = match &plan.source {
        Source::Registry(base) => base.as_str(),
        Source::Builtin => "metamcp",
        Source::Npm => "npm search",
    };
    let argv = plan.argv.iter().map(|word| match word {
        Word::Fixed(word) => json!({ "word": word }),
        Word::Asked(name) => json!({ "asked": name }),
    });
    let input = |input: &Input| {
        json!({
            "name": input.name,
            "description": input.description,
            "required": input.required,
            "secret": input.secret,
            "default": input.default,
        })
    };
    let refusals = plan.verdict.refusals.iter().map(ToString::to_string);
    let why_not = match &plan.contained {
        Contained::Nothing { why } => Some(why),
        _ => None,
    };
    json!({
        "server": plan.server,
        "description": plan.description,
        "found_in": found_in,
        "name": plan.candidate,
        "source": plan.kind.word(),
        "package": plan.identifier,
        "version": plan.version,
        "published": plan.published.map(day),
        "integrity": plan.integrity,
        "packages": plan.lock.as_ref().map(|lock| lock.packages),
        "folder": plan.prefix,
        "argv": argv.collect::<Vec<_>>(),
        "asked": plan.asked.iter().map(input).collect::<Vec<_>>(),
        "environment": plan.environment.iter().map(input).collect::<Vec<_>>(),
        "contained": contained_word(&plan.contained),
        "not_contained_because": why_not,
        "notes": plan.verdict.reasons,
        "refused_because": refusals.collect::<Vec<_>>(),
    })
}

/// How a server is isolated from the rest of the machine, in one word.
pub(super) fn contained_word(contained: &Contained) -> &'static str {
    match contained {
        Contained::Sandbox => "walls",
        Contained::Container => "container",
        Contained::Elsewhere => "elsewhere",
        Contained::Nothing { .. } => "nothing",
    }
}

fn as_json(record: &Record) -> Value {
    let plan = &record.plan;
    json!({
        "server": plan.server,
        "source": plan.kind.word(),
        "package": plan.identifier,
        "version": plan.version,
        "integrity": plan.integrity,
        "installed": day(record.installed),
        "argv": shown(record),
        "folder": plan.prefix,
        "contained": contained_word(&plan.contained),
        "reach": record.reach,
        "granted": if plan.contained == Contained::Sandbox { record.granted() } else { Vec::new() },
        "blocked": record.blocked,
        "withheld": record.quarantine,
    })
}

#[cfg(test)]
mod tests {
    use metamcp_provisioning::provision::{Contained, Input, Kind, Plan, Source, Verdict, Word};

    use super::plan_json;

    #[test]
    fn a_plan_for_a_program_holds_no_names_of_ours() {
        let plan = Plan {
            server: "files".to_owned(),
            description: "reads files".to_owned(),
            candidate: "io.example/files".to_owned(),
            source: Source::Builtin,
            kind: Kind::Npm,
            identifier: "files".to_owned(),
            version: "1.0.0".to_owned(),
            integrity: None,
            lock: None,
            prefix: "/x".to_owned(),
            argv: vec![Word::Fixed("node".to_owned()), Word::Asked("root".to_owned())],
            asked: vec![Input { name: "root".to_owned(), ..Input::default() }],
            environment: Vec::new(),
            published: None,
            verdict: Verdict::default(),
            contained: Contained::Nothing { why: "no sandbox here".to_owned() },
        };
        let told = plan_json(&plan);
        for ours in ["Fixed", "Asked", "Builtin", "Registry", "Nothing", "verdict"] {
            assert!(!told.to_string().contains(ours), "{ours}: {told:#}");
        }
        assert_eq!(told["argv"][1]["asked"], "root");
        assert_eq!((&told["found_in"], &told["contained"]), (&"metamcp".into(), &"nothing".into()));
    }
}
