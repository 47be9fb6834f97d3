//! `metamcp forget`: deletes the usage history.

use std::io::Write;

use metamcp_engine::config::Loaded;
use metamcp_engine::usage_history::UsageFile;
use serde_json::json;

use crate::args::ForgetArgs;
use crate::exit::Exit;

/// Deletes the file and reports what was in it.
pub(crate) fn run(loaded: &Loaded, args: &ForgetArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let file = UsageFile::new(&loaded.config.settings.home);
    let forgotten = file.forget()?;
    if args.json {
        let removed: Vec<_> =
            forgotten.removed.iter().map(|path| path.display().to_string()).collect();
        let told = json!({ "habits": forgotten.history, "removed": removed });
        writeln!(out, "{told:#}")?;
        return Ok(Exit::Success);
    }
    if forgotten.removed.is_empty() {
        writeln!(out, "There is nothing to delete: {} does not exist.", file.path().display())?;
        return Ok(Exit::Success);
    }
    let plural = if forgotten.history == 1 { "entry" } else { "entries" };
    writeln!(out, "Deleted {} {plural} of the usage history. Removed:", forgotten.history)?;
    for path in &forgotten.removed {
        writeln!(out, "  {}", path.display())?;
    }
    Ok(Exit::Success)
}
