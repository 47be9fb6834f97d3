//! Runtime variables of metatools, mapped to a profile of code mode: never to weaker isolation than requested.

use super::value::{Kind, Value, ValueError};
use super::words::{CodeProfile, Word};
use super::{Given, Origin, by_flag};

/// Which profile: `dev` or `standard`.
const PROFILE: &str = "METATOOLS_RUNTIME_PROFILE";
/// What `standard` is run by: `docker` or `wasm`.
const RUNS_IN: &str = "METATOOLS_RUNTIME_BACKEND";
/// Whether WASM may take the place of a Docker that is not there.
const WASM: &str = "METATOOLS_WASM_ENABLED";

/// The variables read here.
pub(super) const VARIABLES: [&str; 3] = [PROFILE, RUNS_IN, WASM];

const PROFILES: &[Word] = &[
    Word { word: "dev", also: &[], meaning: "Trying things out by hand." },
    Word { word: "standard", also: &[], meaning: "Docker, or WASM." },
];
const KINDS: &[Word] = &[
    Word { word: "docker", also: &[], meaning: "A container." },
    Word { word: "wasm", also: &[], meaning: "WebAssembly." },
];

/// What the variables ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedRuntime {
    /// The profile of ours, as a word of the environment.
    pub given: Given,
    pub profile: CodeProfile,
    /// The variable that says so.
    pub variable: &'static str,
    /// What was decided that the variables do not spell out.
    pub note: Option<String>,
}

/// The profile that the variables request, if any. `lacks_docker` is called only where it matters.
pub fn requested(
    lookup: &dyn Fn(&str) -> Option<String>,
    lacks_docker: &dyn Fn() -> bool,
) -> Result<Option<RequestedRuntime>, ValueError> {
    let said = |name: &str| lookup(name).filter(|text| !text.trim().is_empty());
    let word = |name: &'static str, words| match said(name)
        .map(|text| Kind::Word(words).from_text(&text))
    {
        Some(Ok(Value::Word(word))) => Ok(word),
        Some(Err(error)) => Err(error.at(Origin::Environment { name })),
        Some(Ok(_)) | None => Ok(""),
    };
    let (asked, backend) = (word(PROFILE, PROFILES)?, word(RUNS_IN, KINDS)?);
    // What it is set to is nobody's business, so the usual message, which repeats it, is not used.
    let wasm = match said(WASM).map(|text| Kind::Switch.from_text(&text)) {
        Some(Ok(value)) => Some(value.is_on()),
        Some(Err(_)) => return Err(wrong(WASM, "expected `true` or `false`")),
        None => None,
    };
    let Some((profile, note)) = decide(asked, backend, wasm, lacks_docker)? else {
        return Ok(None);
    };
    let variable = if backend.is_empty() { PROFILE } else { RUNS_IN };
    let setting = by_flag("code-profile").expect("code mode has a profile");
    let value = Value::Word(profile.as_str());
    let given = Given { setting, value, origin: Origin::Environment { name: variable } };
    Ok(Some(RequestedRuntime { given, profile, variable, note }))
}

/// Both are empty where nothing is requested.
fn decide(
    asked: &str,
    backend: &str,
    wasm: Option<bool>,
    lacks_docker: &dyn Fn() -> bool,
) -> Result<Option<(CodeProfile, Option<String>)>, ValueError> {
    Ok(Some(match (asked, backend, wasm) {
        ("", "", _) => return Ok(None),
        (_, "wasm", Some(false)) => {
            let message = format!(
                "`wasm` is requested, but {WASM} disables it; set {WASM}=true or choose `docker`"
            );
            return Err(wrong(RUNS_IN, &message));
        }
        (_, "wasm", _) => (CodeProfile::Hardened, None),
        ("dev", "", _) => (CodeProfile::Dev, None),
        // From here on it is Docker, unless WASM may stand in for one that is not there.
        (_, _, Some(true)) if lacks_docker() => {
            let note = format!(
                "Docker is not available, so scripts run in the profile `hardened`, as {WASM} allows"
            );
            (CodeProfile::Hardened, Some(note))
        }
        ("dev", _, _) => {
            let note = format!(
                "{RUNS_IN} goes before {PROFILE}: scripts run in the profile `docker`, which is stricter than `dev`"
            );
            (CodeProfile::Docker, Some(note))
        }
        _ => (CodeProfile::Docker, None),
    }))
}

fn wrong(name: &'static str, message: &str) -> ValueError {
    ValueError { message: message.to_owned(), origin: Some(Origin::Environment { name }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested_with(
        variables: &[(&str, &str)],
        docker: bool,
    ) -> Result<Option<RequestedRuntime>, ValueError> {
        let lookup = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        requested(&lookup, &|| !docker)
    }

    /// Every combination of the three, with and without Docker: what is requested, and what results.
    #[test]
    fn every_combination_gets_what_it_asks_for_or_is_refused() {
        let mut table = Vec::new();
        for profile in ["", "dev", "standard"] {
            for backend in ["", "docker", "wasm"] {
                for wasm in ["", "true", "false"] {
                    let row = |docker| {
                        let set = [(PROFILE, profile), (RUNS_IN, backend), (WASM, wasm)];
                        match requested_with(&set, docker) {
                            Ok(None) => "nothing",
                            Ok(Some(requested)) => requested.profile.as_str(),
                            Err(_) => "refused",
                        }
                    };
                    table.push(format!(
                        "{:9}{:7}{:6}-> {:9} without Docker: {}",
                        profile,
                        backend,
                        wasm,
                        row(true),
                        row(false)
                    ));
                }
            }
        }
        insta::assert_snapshot!(table.join("\n"));
    }

    #[test]
    fn what_is_decided_by_the_machine_is_told() {
        let set = [(PROFILE, "standard"), (WASM, "1")];
        let requested = requested_with(&set, false).unwrap().unwrap();
        assert_eq!((requested.profile, requested.variable), (CodeProfile::Hardened, PROFILE));
        assert!(requested.note.unwrap().contains("Docker is not available"));
        assert_eq!(requested_with(&set, true).unwrap().unwrap().note, None);
        let set = [(PROFILE, "dev"), (RUNS_IN, "docker")];
        let requested = requested_with(&set, false).unwrap().unwrap();
        assert_eq!((requested.profile, requested.variable), (CodeProfile::Docker, RUNS_IN));
        assert!(requested.note.is_some());
    }

    #[test]
    fn what_is_not_understood_is_refused_and_no_value_is_repeated() {
        for (name, value) in [(PROFILE, "gvisor"), (RUNS_IN, "hunter2"), (WASM, "perhaps")] {
            let set = [(PROFILE, "standard"), (name, value)];
            let set = if name == PROFILE { &set[1..] } else { &set[..] };
            let error = requested_with(set, true).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("expected"), "{error}");
            assert!(!error.contains(value), "{error}");
        }
        assert!(requested_with(&[(RUNS_IN, "wasm"), (WASM, "no")], true).is_err());
        assert_eq!(requested_with(&[(WASM, "true")], true), Ok(None));
        assert_eq!(requested_with(&[(PROFILE, "  ")], true), Ok(None));
    }

    #[test]
    fn docker_is_looked_for_only_where_it_matters() {
        let never = || -> bool { panic!("nobody asked") };
        for set in [&[(PROFILE, "dev")][..], &[(RUNS_IN, "wasm")], &[(PROFILE, "standard")]] {
            let lookup = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            assert!(requested(&lookup, &never).unwrap().is_some());
        }
    }
}
