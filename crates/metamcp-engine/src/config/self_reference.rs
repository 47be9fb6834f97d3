//! Detects a config file that starts the gateway that reads it: each would start the next, without end. The entry alone
//! shows that only if it names no file (`core::config`); whether `--config` is this very file, and whether a program of
//! another name is this one, has to be looked up.

use std::fs;
use std::path::{Path, PathBuf};

use metamcp_config::config::{
    ITSELF, Loaded, LocalCommand, Place, ServerConfig, ServerState, Severity, Transport, Warning,
    is_called_as_we_are,
};

use crate::env::Variables;

/// The variable that passes the nesting depth to gateways started by a gateway.
pub const ABOVE: &str = "METAMCP_GATEWAYS_ABOVE";

/// Most nested gateways. One behind another is useful, and so may a third be; more are a loop through something we cannot
/// inspect, such as a script.
const MAX_ABOVE: usize = 3;

/// Too many nested gateways.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{above} gateways stand above this one, each started by the one before it: some config file names metamcp as a server of metamcp; take that entry out"
)]
pub struct RecursionError {
    above: usize,
}

/// How many gateways are above this one.
///
/// # Errors
/// Too many.
pub fn above(lookup: &dyn Fn(&str) -> Option<String>) -> Result<usize, RecursionError> {
    let above = lookup(ABOVE).and_then(|text| text.parse().ok()).unwrap_or(0);
    if above > MAX_ABOVE { Err(RecursionError { above }) } else { Ok(above) }
}

/// The depth for gateways that are started below a client with these variables.
pub fn below(variables: &Variables) -> String {
    let above = above(&|name: &str| variables.get(name)).unwrap_or(MAX_ABOVE);
    (above + 1).to_string()
}

/// Disables entries that would start this gateway on the file at `path` again; `text` is its content.
pub(super) fn skip_self(path: &Path, text: &str, loaded: &mut Loaded) {
    for server in &mut loaded.config.servers {
        if !server.is_enabled() || !starts_us_on(path, &server.transport) {
            continue;
        }
        server.state = ServerState::Disabled { reason: ITSELF.to_owned() };
        loaded.warnings.push(Warning {
            place: place(text, &server.name),
            severity: Severity::Note,
            message: "is this gateway itself on this very file; skipped".to_owned(),
            hint: None,
        });
    }
}

/// Where a server is in the file: the first place that names it, which is near enough.
fn place(text: &str, name: &str) -> Place {
    let before = &text[..text.find(&format!("\"{name}\"")).unwrap_or(0)];
    let line = before.rsplit('\n').next().unwrap_or_default();
    Place {
        line: before.matches('\n').count() + 1,
        column: line.chars().count() + 1,
        path: format!("mcpServers.{name}"),
    }
}

/// Whether an entry of the file at `path` is the gateway itself, and not disabled anyway.
pub(super) fn is_self(path: &Path, server: &ServerConfig) -> bool {
    matches!(&server.state, ServerState::Disabled { reason } if reason == ITSELF)
        || starts_us_on(path, &server.transport)
}

fn starts_us_on(path: &Path, transport: &Transport) -> bool {
    let Some(LocalCommand { command, args, cwd, .. }) = transport.local() else { return false };
    // With any other argument it is one of its commands, or an example server.
    let serves = args.first().is_none_or(|first| first.starts_with('-') || first == "serve");
    if !serves || !is_this_program(command) {
        return false;
    }
    let folder = cwd.clone().unwrap_or_else(|| PathBuf::from("."));
    let same = |named: &str| {
        let named = fs::canonicalize(folder.join(named));
        named.is_ok_and(|named| fs::canonicalize(path).is_ok_and(|path| path == named))
    };
    // Without `--config` it looks for the file as we did.
    transport.config_of_a_gateway().is_none_or(same)
}

/// By its name, or because it is the running executable.
fn is_this_program(command: &str) -> bool {
    if is_called_as_we_are(command) {
        return true;
    }
    let running = std::env::current_exe().and_then(fs::canonicalize);
    running.is_ok_and(|running| fs::canonicalize(command).is_ok_and(|command| command == running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_three_gateways_may_be_nested() {
        let above_of = |text: &str| above(&|name| (name == ABOVE).then(|| text.to_owned()));
        assert_eq!(above(&|_| None), Ok(0));
        assert_eq!((above_of("3"), above_of("nonsense")), (Ok(3), Ok(0)));
        assert_eq!(above_of("4"), Err(RecursionError { above: 4 }));
    }
}
