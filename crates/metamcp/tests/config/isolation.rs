//! The isolation profile in the environment variables of metatools, and unknown variables: used, refused or reported.

use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::Shell;

const PROFILE: &str = "METATOOLS_RUNTIME_PROFILE";
const RUNS_IN: &str = "METATOOLS_RUNTIME_BACKEND";
const WASM: &str = "METATOOLS_WASM_ENABLED";

/// A machine with a script, and a `docker` that exits with this code, if any.
fn shell(docker: Option<i32>) -> Shell {
    let shell = Shell::with_config(r#"{ "mcpServers": { "a": { "command": "x" } } }"#);
    shell.write("project/one.js", "return 1 + 1");
    shell.write("bin/nothing", "");
    if let Some(code) = docker {
        shell.write("bin/docker", &format!("#!/bin/sh\nexit {code}\n"));
        let path = shell.path("bin/docker");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    }
    shell
}

fn with(shell: &Shell, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let path = shell.path("bin").display().to_string();
    let mut all = vec![("PATH", path.as_str())];
    all.extend(variables);
    let Output { status, stdout, stderr } = shell.run_with(arguments, &all);
    let text = |bytes| String::from_utf8(bytes).expect("we write UTF-8");
    (status.code().expect("it was not killed"), text(stdout), text(stderr))
}

/// An unavailable profile is refused, with what is missing and how to get it; the script never runs in a weaker one.
#[test]
#[cfg(not(feature = "hardened"))]
fn scripts_are_refused_where_the_wish_cannot_be_met() {
    for (docker, variables, profile, cure) in [
        (None, &[(PROFILE, "standard")][..], "profile docker", "Docker"),
        (Some(1), &[(RUNS_IN, "docker")], "profile docker", "Docker"),
        (None, &[(RUNS_IN, "wasm"), (WASM, "true")], "profile hardened", "feature `hardened`"),
        (None, &[(PROFILE, "standard"), (WASM, "true")], "profile hardened", "feature `hardened`"),
    ] {
        let shell = shell(docker);
        let (code, out, said) = with(&shell, &["run", "one.js"], variables);
        assert_eq!((code, out.as_str()), (4, ""), "{variables:?}: {said}");
        assert!(said.contains(profile) && said.contains(cure), "{variables:?}: {said}");
        // The log says so before any script runs.
        let (code, _, said) = with(&shell, &["serve"], variables);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("scripts are refused"), "{variables:?}: {said}");
    }
    // Where there is no lockdown this is the default, so the words say what to install.
    let chosen = [("METAMCP_CODE_PROFILE", "wasm")];
    let (code, out, said) = with(&shell(None), &["run", "one.js"], &chosen);
    assert_eq!((code, out.as_str()), (4, ""), "{said}");
    for words in ["profile wasm", "no WebAssembly engine", "npm, PyPI", "install script"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (code, out, said) = with(&shell(None), &["run", "one.js"], &[(PROFILE, "dev")]);
    assert_eq!((code, out.as_str()), (0, "2\n"), "{said}");
}

#[test]
fn a_docker_that_answers_is_what_standard_means() {
    let (_, said, _) = with(
        &shell(Some(0)),
        &["config", "check", "--json"],
        &[(PROFILE, "standard"), (WASM, "true")],
    );
    assert!(said.contains("\"docker\"") && said.contains(PROFILE), "{said}");
}

#[test]
fn a_wish_that_is_not_understood_ends_the_start() {
    for variables in [[(PROFILE, "gvisor")], [(RUNS_IN, "hunter2")], [(WASM, "perhaps")]] {
        let (code, _, said) = with(&shell(None), &["serve"], &variables);
        let [(name, value)] = variables;
        assert_eq!(code, 3, "{said}");
        assert!(said.contains(name) && !said.contains(value), "{said}");
    }
}

#[test]
fn unknown_variables_are_reported_without_values() {
    let variables = [("METAMCP_SERACH", "hunter2"), ("METATOOLS_RUNTIME_PROFLE", "hunter2")];
    let (code, _, said) = with(&shell(None), &["serve"], &variables);
    assert_eq!(code, 0, "{said}");
    for expect in ["METAMCP_SERACH", "METAMCP_SEARCH?", "METATOOLS_RUNTIME_PROFILE?"] {
        assert!(said.contains(expect), "{expect}: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    let (_, _, said) = with(&shell(None), &["serve", "--log-level", "off"], &variables);
    assert!(!said.contains("SERACH"), "{said}");
}
