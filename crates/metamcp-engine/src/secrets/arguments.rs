//! Passes secret arguments to a server without putting them into its command line.
//! Owns: the variable, the launchers, the command line with one.      Never: looks a secret up, starts anything.
//! In: resolved arguments.  Out: a variable, and an intact launcher file.
//! Tests: `arguments/tests.rs`, and `metamcp/tests/real/arguments.rs` with real programs.
//!
//! Every user of the machine can read a command line; an environment only its owner. So they are passed in a variable, to
//! a launcher of ours that runs in the server's process first, removes the variable and puts the arguments in their
//! places.

use std::path::Path;

use metamcp_config::config::{Runtime, SecretArguments};
use metamcp_types::secret::Secret;

use crate::files::{Directory, FileError};

/// The variable. The launchers use this name.
const VARIABLE: &str = "METAMCP_ARGUMENTS";
const NODE: &str = include_str!("arguments/start.cjs");
const PYTHON: &str = include_str!("arguments/start.py");

/// The file name of the launcher for a runtime.
pub(crate) fn starter(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Node => "metamcp-start.cjs",
        Runtime::Python => "metamcp-start.py",
    }
}

/// The command line of a server with the launcher in front of it. The server's own begins with its program's file.
pub(crate) fn command_line(
    runtime: Runtime,
    starter: &Path,
    interpreter: String,
    own: Vec<String>,
) -> (String, Vec<String>) {
    let starter = starter.to_string_lossy().into_owned();
    let ours = match runtime {
        // As a preload, it leaves it to node to decide how to run the program.
        Runtime::Node => vec!["--require".to_owned(), starter],
        Runtime::Python => vec![starter],
    };
    (interpreter, ours.into_iter().chain(own).collect())
}

/// The variable for resolved arguments. Also writes the launcher.
pub(super) fn handed(
    arguments: &SecretArguments,
    values: &[(usize, Secret)],
) -> Result<(String, Secret), String> {
    write(arguments).map_err(|error| format!("its launcher cannot be written: {error}"))?;
    let values: Vec<_> = values.iter().map(|(place, value)| (place, value.expose())).collect();
    // Numbers and strings always serialize.
    let value = serde_json::to_string(&values).unwrap_or_default();
    Ok((VARIABLE.to_owned(), Secret::new(VARIABLE, value)))
}

/// Written before each start: an existing file may be of another version, or somebody else's.
fn write(arguments: &SecretArguments) -> Result<(), FileError> {
    let code = match arguments.runtime {
        Runtime::Node => NODE,
        Runtime::Python => PYTHON,
    };
    let gone = || FileError::Io {
        action: "find the folder of",
        path: arguments.starter.clone(),
        source: std::io::ErrorKind::NotFound.into(),
    };
    let parts = (arguments.starter.parent(), arguments.starter.file_name());
    let (Some(folder), Some(name)) = parts else { return Err(gone()) };
    let name = name.to_string_lossy();
    let folder = Directory::home(folder)?.ok_or_else(gone)?;
    let there = folder.open(&name)?.map(|mut file| file.read_start(code.len() as u64 + 1));
    if there.transpose()?.as_deref() != Some(code.as_bytes()) {
        folder.replace(&name, code.as_bytes())?;
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests;
