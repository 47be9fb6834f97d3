//! From a failed stage and an error number to an error the caller can act on.
//! Owns: the meaning of error numbers.      Never: guesses beyond them.
//! In: a stage, a number, what was to be started.  Out: a `SpawnError`.
//! Tests: `tests/it/children.rs`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::message::{Stage, Start};
use crate::spec::SpawnError;

/// The error for a shim's report of a failed start.
pub(super) fn start_error(stage: Stage, errno: i32, start: Start) -> SpawnError {
    use nix::libc::{E2BIG, EACCES, EINVAL, EISDIR, ENOENT, ENOEXEC, ENOTDIR, EPERM};
    let source = io::Error::from_raw_os_error(errno);
    let Start { program, cwd, env, .. } = start;
    match stage {
        Stage::Unshare | Stage::Map | Stage::Mounts | Stage::Proc => {
            SpawnError::Namespace { step: stage.words(), source }
        }
        Stage::Sandbox => SpawnError::Sandbox { source },
        Stage::Directory => SpawnError::BadDirectory { cwd: cwd.unwrap_or_default(), source },
        Stage::Shim => SpawnError::Shim { source },
        Stage::Exec => match errno {
            ENOENT | ENOTDIR => SpawnError::NotFound { program },
            // A directory of `PATH` without search permission hides that the program is in none of them.
            EACCES if !is_anywhere(&program, &env) => SpawnError::NotFound { program },
            EACCES | EPERM | ENOEXEC | EISDIR => SpawnError::NotExecutable { program, source },
            EINVAL | E2BIG => SpawnError::BadCommand { source },
            _ => SpawnError::Exec { program, source },
        },
    }
}

/// Whether a program exists: at its path, or under its name in a directory of `PATH`.
fn is_anywhere(program: &OsStr, env: &[(OsString, OsString)]) -> bool {
    if program.as_bytes().contains(&b'/') {
        return true;
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    path.is_some_and(|path| {
        std::env::split_paths(path).any(|directory| directory.join(program).is_file())
    })
}
