//! Servers that metamcp installed: their sandbox, and newer versions.

use metamcp_child::process_sandbox;
use metamcp_engine::config::Loaded;
use metamcp_engine::provision::{Provisioner, Record};
use metamcp_provisioning::provision::{Contained, Source};

use super::{Finding, Level};
use crate::render::plural;

const AREA: &str = "installed";

/// Checks whether registries withdrew an installed server.
pub(super) fn registries(loaded: &Loaded) -> anyhow::Result<Vec<Finding>> {
    let settings = &loaded.config.settings;
    let provisioner = Provisioner::new(&settings.home, &settings.provision, Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let notes = runtime.block_on(provisioner.catch_up());
    Ok(notes.into_iter().map(|note| Finding::new(Level::Note, AREA, note)).collect())
}

/// Whether a sandbox is available, which servers have none, and which are outdated.
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
            let words =
                format!("{} has version {}; {newest} is available", plan.server, plan.version);
            let hint = match plan.source {
                // The gallery names the versions that were checked, and nothing newer.
                Source::Builtin => {
                    "nothing to do: a later metamcp has newer versions in its list".to_owned()
                }
                Source::Registry(_) | Source::Npm => format!(
                    "to upgrade: metamcp registry refresh, metamcp remove {}, metamcp add {}",
                    plan.server, plan.identifier
                ),
            };
            findings.push(Finding::new(Level::Note, AREA, words).hint(hint));
        }
    }
    Ok(findings)
}

fn can_be_had(records: &[Record]) -> Finding {
    let count = plural(records.len(), "server");
    match process_sandbox::available() {
        Ok(()) => {
            let words = format!("a sandbox is available; {count} installed by metamcp");
            Finding::new(Level::Good, AREA, words)
        }
        Err(why) => {
            let words = format!(
                "no sandbox is available for servers that metamcp installs ({count}): {why}"
            );
            let level = if records.is_empty() { Level::Note } else { Level::Warning };
            Finding::new(level, AREA, words).hint(
                "install only what you would run by hand, or use Linux with Landlock, or macOS",
            )
        }
    }
}

fn without(record: &Record) -> Option<Finding> {
    let Contained::Nothing { why } = &record.plan.contained else { return None };
    let name = &record.plan.server;
    let finding = Finding::new(Level::Warning, AREA, format!("{name} is not sandboxed: {why}"));
    let again = format!("metamcp remove {name}, then metamcp add {}", record.plan.identifier);
    Some(match process_sandbox::available() {
        Ok(()) => finding.hint(again),
        Err(_) => finding,
    })
}
