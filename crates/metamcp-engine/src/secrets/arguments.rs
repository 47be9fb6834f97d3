//! Hands arguments that are secrets to a server without putting them into its command line.
//! Owns: the variable they go by, our programs in front of a server's, the command line with one.      Never: looks a secret up, starts anything.
//! In: arguments that were looked up.  Out: a variable, and a file that is as it should be.
//! Tests: `arguments/tests.rs`, and `metamcp/tests/real/arguments.rs` with real programs.
//!
//! A command line is open to every user of the machine; an environment to its owner alone. So they go by a variable, to
//! a program of ours that runs in the server's process before it, takes the variable away and puts them into their
//! places.

use std::path::Path;

use metamcp_config::config::{Runtime, SecretArguments};
use metamcp_types::secret::Secret;

use crate::files::{Directory, FileError};

/// The variable. Our programs know it by this name.
const VARIABLE: &str = "METAMCP_ARGUMENTS";
const NODE: &str = include_str!("arguments/start.cjs");
const PYTHON: &str = include_str!("arguments/start.py");

/// What the file of our program is called, by the runtime that is to run it.
pub(crate) fn starter(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Node => "metamcp-start.cjs",
        Runtime::Python => "metamcp-start.py",
    }
}

/// The command line of a server with our program in front of it. The server's own begins with its program's file.
pub(crate) fn command_line(
    runtime: Runtime,
    starter: &Path,
    interpreter: String,
    own: Vec<String>,
) -> (String, Vec<String>) {
    let starter = starter.to_string_lossy().into_owned();
    let ours = match runtime {
        // Loaded first, it leaves it to node to find out what the program is and how it is run.
        Runtime::Node => vec!["--require".to_owned(), starter],
        Runtime::Python => vec![starter],
    };
    (interpreter, ours.into_iter().chain(own).collect())
}

/// The variable for arguments that were looked up. Our program is there, and as it should be, afterwards.
pub(super) fn handed(
    arguments: &SecretArguments,
    values: &[(usize, Secret)],
) -> Result<(String, Secret), String> {
    write(arguments).map_err(|error| format!("what hands it over cannot be written: {error}"))?;
    let values: Vec<_> = values.iter().map(|(place, value)| (place, value.expose())).collect();
    // Numbers and texts, which can always be written.
    let value = serde_json::to_string(&values).unwrap_or_default();
    Ok((VARIABLE.to_owned(), Secret::new(VARIABLE, value)))
}

/// Not even what was there before is run unseen: it may be of another version, or somebody else's.
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
