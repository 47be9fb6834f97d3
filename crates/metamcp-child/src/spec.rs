//! The types of this crate: what to run, how to contain it, how it ended, why it did not start.
//! Owns: plain data.      Never: touches a process.
//! In: the caller's request.  Out: facts the caller can match on.
//! Tests: `tests/it/`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use metamcp_types::{pass_env::PassEnv, sandbox_policy::SandboxPolicy};

use crate::environment;

/// What to run.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Spec {
    /// The program, searched in `PATH` if it has no slash.
    pub program: OsString,
    /// Its arguments, without the program itself.
    pub args: Vec<OsString>,
    /// What this server gets beyond the allowlist of [`crate::environment`]; these win.
    pub env: Vec<(OsString, OsString)>,
    /// Which of our own variables it gets; `env` overrides them.
    pub pass_env: PassEnv,
    /// The variables that count as our own: those of the client it is started for, where one gateway serves many.
    /// `None` takes those of this process.
    pub inherited: Option<Arc<[(OsString, OsString)]>>,
    /// Where it runs; `None` is the gateway's own directory.
    pub cwd: Option<PathBuf>,
    /// Its sandbox; `None` is none. If it cannot be enforced, the server is not started.
    pub sandbox_policy: Option<SandboxPolicy>,
}

impl Spec {
    /// Refuses what cannot be passed to the system, before anything is started.
    pub(crate) fn check(&self) -> Result<(), SpawnError> {
        let has_nul = |text: &OsStr| text.as_encoded_bytes().contains(&0);
        let wrong = if self.env.iter().any(|(name, _)| !is_name(name)) {
            "the name of an environment variable is empty or contains `=`"
        } else if has_nul(&self.program)
            || self.args.iter().any(|arg| has_nul(arg))
            || self.env.iter().any(|(name, value)| has_nul(name) || has_nul(value))
            || self.cwd.as_ref().is_some_and(|cwd| has_nul(cwd.as_os_str()))
        {
            "it contains a NUL byte"
        } else {
            return Ok(());
        };
        Err(SpawnError::BadCommand { source: io::Error::new(io::ErrorKind::InvalidInput, wrong) })
    }

    /// The variables that count as our own.
    pub(crate) fn own_variables(&self) -> Vec<(OsString, OsString)> {
        match &self.inherited {
            Some(inherited) => inherited.to_vec(),
            None => std::env::vars_os().collect(),
        }
    }

    /// One of them.
    pub(crate) fn own_variable(&self, name: &str) -> Option<OsString> {
        match &self.inherited {
            Some(all) => {
                let is_it = |key: &OsString| match cfg!(windows) {
                    true => key.eq_ignore_ascii_case(name),
                    false => key == name,
                };
                all.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value.clone())
            }
            None => environment::variable(name),
        }
    }
}

/// Whether a variable may have this name.
fn is_name(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    // On Windows the folder of each drive is in a variable whose name begins with a `=`.
    let first = usize::from(cfg!(windows));
    !bytes.is_empty() && !bytes[first..].contains(&b'=')
}

/// Without the values of variables, which are often secrets.
impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&OsString> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Spec")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &names)
            .field("cwd", &self.cwd)
            .field("sandbox_policy", &self.sandbox_policy)
            .finish_non_exhaustive()
    }
}

/// How the gateway starts itself as a shim: a program, and the arguments that lead to
/// [`crate::shim_main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimCommand {
    /// The program: the gateway's own binary.
    pub program: PathBuf,
    /// What comes before the stage on the command line.
    pub args: Vec<OsString>,
}

impl ShimCommand {
    /// This very binary with one leading word, also after the file was replaced by an update.
    pub fn this_binary(word: &str) -> io::Result<ShimCommand> {
        let program = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe()?
        };
        Ok(ShimCommand { program, args: vec![word.into()] })
    }
}

/// How children are to be contained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Containment {
    /// Namespaces where they cost the server nothing, which is as root; the shim alone elsewhere.
    ///
    /// An ordinary user gets a process namespace only inside a user namespace, and there every file of
    /// root seems to be nobody's and setuid programs are powerless: ssh rejects its configuration, sudo
    /// and everything installed as a snap fail. That is not for a default to impose.
    #[default]
    Auto,
    /// Namespaces or nothing, a user namespace included: a child that cannot have one is not started.
    Namespace,
    /// The shim alone: the child sees the processes and ids of the whole machine.
    Shim,
}

/// How children are actually contained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tier {
    /// Nothing was started yet, so it is not known.
    Untried,
    /// Own process and mount namespace; the kernel empties it when its init ends.
    Namespace {
        /// Whether a user namespace was needed, which is so for everyone but root.
        user: bool,
    },
    /// A shim that adopts and kills its descendants.
    Shim {
        /// Why there is no namespace, where one was tried.
        because: Option<String>,
    },
    /// A process group that holds what the child starts as far as the system lets it be known (macOS).
    Group,
    /// A job object that ends with the gateway (Windows).
    Job,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tier::Untried => f.write_str("not tried yet"),
            Tier::Namespace { user: false } => f.write_str("process and mount namespace"),
            Tier::Namespace { user: true } => f.write_str("user, process and mount namespace"),
            Tier::Shim { because: None } => f.write_str("shim"),
            Tier::Shim { because: Some(why) } => write!(f, "shim (no namespace: {why})"),
            Tier::Group => f.write_str("process group"),
            Tier::Job => f.write_str("job object"),
        }
    }
}

/// How the leader of a container ended. Both empty: unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code, if it exited.
    pub code: Option<i32>,
    /// The signal, if one killed it.
    pub signal: Option<i32>,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("unknown status"),
        }
    }
}

/// Why a child did not start. Nothing of it is left running in any of these cases.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such program, in `PATH` or at that path; or its interpreter is missing.
    #[error("no such program: {}", program.display())]
    NotFound {
        /// The program as configured.
        program: OsString,
    },
    /// The file is there but may not or cannot be executed.
    #[error("not executable: {}", program.display())]
    NotExecutable {
        /// The program as configured.
        program: OsString,
        /// What the kernel said.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory {}", cwd.display())]
    BadDirectory {
        /// The directory as configured.
        cwd: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The command cannot be expressed: a NUL byte, or too long for the kernel.
    #[error("the command, its arguments or its environment cannot be passed on")]
    BadCommand {
        /// What is wrong.
        source: io::Error,
    },
    /// The kernel refused for another reason.
    #[error("cannot execute {}", program.display())]
    Exec {
        /// The program as configured.
        program: OsString,
        /// What the kernel said.
        source: io::Error,
    },
    /// A namespace was required and is unavailable.
    #[error("cannot isolate the child ({step})")]
    Namespace {
        /// The step that failed.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A sandbox was required and is unavailable.
    #[error("cannot sandbox the child")]
    Sandbox {
        /// What the kernel said.
        source: io::Error,
    },
    /// The gateway could not start its own shim: out of processes, descriptors or memory.
    #[error("cannot start the process that would hold the child")]
    Shim {
        /// What the kernel said.
        source: io::Error,
    },
    /// The shim ended before it reported how the start went.
    #[error("the process holding the child ended during the start")]
    Lost,
    /// The thread that starts children is gone, which only a bug can cause.
    #[error("the thread that starts children has ended")]
    NoSpawner,
}

#[cfg(test)]
mod tests {
    use super::{Exit, SpawnError, Spec, Tier};

    #[test]
    fn what_no_system_can_be_told_is_refused_in_words() {
        let refused = |spec: Spec| match spec.check() {
            Err(SpawnError::BadCommand { source }) => source.to_string(),
            other => panic!("{other:?}"),
        };
        let env = |name: &str, value: &str| Spec {
            env: vec![(name.into(), value.into())],
            ..Spec::default()
        };
        assert!(Spec { program: "node".into(), ..env("TOKEN", "a=b") }.check().is_ok());
        assert!(refused(env("", "x")).contains("name of an environment variable"));
        assert!(refused(env("A=B", "x")).contains("name of an environment variable"));
        assert_eq!(env("=C:", r"C:\x").check().is_ok(), cfg!(windows));
        let nul = "a\0b";
        for spec in [
            env("A", nul),
            env(nul, "x"),
            Spec { program: nul.into(), ..Spec::default() },
            Spec { args: vec![nul.into()], ..Spec::default() },
            Spec { cwd: Some(nul.into()), ..Spec::default() },
        ] {
            assert!(refused(spec).contains("NUL"));
        }
    }

    #[test]
    fn secrets_do_not_show() {
        let env = vec![("TOKEN".into(), "s3cret".into())];
        let shown = format!("{:?}", Spec { program: "node".into(), env, ..Spec::default() });
        assert!(shown.contains("TOKEN") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn log_texts() {
        let because = Some("new namespaces: not permitted".to_owned());
        let words = [
            Tier::Namespace { user: true }.to_string(),
            Tier::Shim { because }.to_string(),
            Exit { code: Some(1), signal: None }.to_string(),
            Exit { code: None, signal: Some(9) }.to_string(),
            Exit::default().to_string(),
        ];
        assert_eq!(
            words,
            [
                "user, process and mount namespace",
                "shim (no namespace: new namespaces: not permitted)",
                "exit code 1",
                "signal 9",
                "unknown status"
            ]
        );
    }
}
