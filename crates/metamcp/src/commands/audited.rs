//! What a command decides or changes, in the audit log.
//! Owns: what becomes of a command whose action cannot be recorded.      Never: records where the log is off.
//! In: an action.  Out: a line, or an error where everything must be recorded.
//! Tests: `tests/audit/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use metamcp_config::edit::{self, Format};
use metamcp_config::settings::Settings;
use metamcp_engine::audit::CommandAudit;
use metamcp_engine::observe::{Action, Event, Observer, Subject};
use serde_json::Value;

use super::servers::SERVER_KEYS;
use crate::console;

/// Where a command publishes what it does.
pub(crate) struct Audited {
    pub(crate) observer: Arc<Observer>,
    audit: Option<Arc<CommandAudit>>,
}

impl Audited {
    pub(crate) fn new(settings: &Settings) -> Audited {
        let (observer, audit) = CommandAudit::observer(settings);
        Audited { observer, audit }
    }

    /// Records an action. A decision is recorded before it is carried out: an error then prevents it.
    pub(crate) fn record(&self, subject: Subject<'_>, verdict: &'static str) -> anyhow::Result<()> {
        self.observer.publish(&Event::Action(Action::new(subject, verdict)));
        self.check()
    }

    /// Whether all that was published so far is recorded. Where nothing requires it, a warning is enough.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Some(error) = self.audit.as_ref().and_then(|audit| audit.error()) else {
            return Ok(());
        };
        let words = format!("this is not in the audit log: {}", error.told());
        if self.audit.as_ref().is_some_and(|audit| audit.is_required()) {
            anyhow::bail!(
                "{words}; audit.required is set, so nothing that cannot be recorded is done"
            );
        }
        let mut stderr = console::stderr();
        // Without stderr nobody can be told.
        std::io::Write::write_fmt(&mut stderr, format_args!("warning: {words}\n")).ok();
        Ok(())
    }
}

/// Records how the servers of a config file changed.
pub(crate) fn config_changed(
    settings: &Settings,
    path: &Path,
    before: Option<&str>,
    after: &str,
) -> anyhow::Result<()> {
    if !settings.audit.is_on {
        return Ok(());
    }
    let (old, new) = (servers(before.unwrap_or_default()), servers(after));
    let names =
        |which: &dyn Fn(&str, &Value) -> bool, all: &BTreeMap<String, Value>| -> Vec<String> {
            all.iter()
                .filter(|(name, entry)| which(name, entry))
                .map(|(name, _)| name.clone())
                .collect()
        };
    let added = names(&|name, _| !old.contains_key(name), &new);
    let removed = names(&|name, _| !new.contains_key(name), &old);
    let changed = names(&|name, entry| old.get(name).is_some_and(|before| before != entry), &new);
    let file = path.to_string_lossy();
    let settings_changed = added.is_empty() && removed.is_empty() && changed.is_empty();
    let subject = Subject::Config {
        file: Some(&file),
        added: &added,
        changed: &changed,
        removed: &removed,
        settings: settings_changed,
    };
    Audited::new(settings).record(subject, "changed")
}

fn servers(text: &str) -> BTreeMap<String, Value> {
    let of = |key: &&str| edit::read(Format::Json, text, &[key]).ok()??.as_object().cloned();
    SERVER_KEYS.iter().filter_map(of).flatten().collect()
}
