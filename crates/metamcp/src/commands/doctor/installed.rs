//! Servers that were installed after a yes: their walls, and whether there is something newer.

use metamcp_child::process_sandbox;
use metamcp_engine::config::Loaded;
use metamcp_engine::provision::{Provisioner, Record};
use metamcp_provisioning::provision::{Contained, Source};

use super::{Finding, Level};
use crate::render::plural;

const AREA: &str = "installed";

/// Asks the registries of what is installed whether they still stand for it; what is wrong with them.
pub(super) fn registries(loaded: &Loaded) -> anyhow::Result<Vec<Finding>> {
    let settings = &loaded.config.settings;
    let provisioner = Provisioner::new(&settings.home, &settings.provision, Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let notes = runtime.block_on(provisioner.catch_up());
    Ok(notes.into_iter().map(|note| Finding::new(Level::Note, AREA, note)).collect())
}

/// Whether walls can be had, who is without, and what is out of date.
pub(super) fn servers(loaded: &Loaded) -> anyhow::Result<Vec<Finding>> {
    let settings = &loaded.config.settings;
    let provisioner = Provisioner::new(&settings.home, &settings.provision, Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let records = provisioner.store.records();
    let mut findings = vec![can_be_had(&records)];
    findings.extend(records.iter().filter_map(without));
    for record in &records {
        if let Some(newest) = runtime.block_on(provisioner.newest(record)) {
            let plan = &record.plan;
            let words = format!("{} is at {}, and {newest} is out", plan.server, plan.version);
            let cure = match plan.source {
                // The list inside metamcp names what was checked, and nothing newer.
                Source::Builtin => {
                    "nothing to do: a later metamcp brings the versions it was checked with"
                        .to_owned()
                }
                Source::Registry(_) | Source::Npm => format!(
                    "if you want it: metamcp registry refresh, metamcp remove {}, metamcp add {}",
                    plan.server, plan.identifier
                ),
            };
            findings.push(Finding::new(Level::Note, AREA, words).cure(cure));
        }
    }
    Ok(findings)
}

fn can_be_had(records: &[Record]) -> Finding {
    let count = plural(records.len(), "server");
    match process_sandbox::available() {
        Ok(()) => {
            let words = format!("walls can be had here; {count} installed by metamcp");
            Finding::new(Level::Good, AREA, words)
        }
        Err(why) => {
            let words = format!("no walls around servers that metamcp installs ({count}): {why}");
            let level = if records.is_empty() { Level::Note } else { Level::Warning };
            Finding::new(level, AREA, words)
                .cure("install only what you would run by hand; or use a Linux with Landlock")
        }
    }
}

fn without(record: &Record) -> Option<Finding> {
    let Contained::Nothing { why } = &record.plan.contained else { return None };
    let name = &record.plan.server;
    let finding = Finding::new(Level::Warning, AREA, format!("{name} has no walls: {why}"));
    let again = format!("metamcp remove {name}, then metamcp add {}", record.plan.identifier);
    Some(match process_sandbox::available() {
        Ok(()) => finding.cure(again),
        Err(_) => finding,
    })
}
