use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

fn container<'a>() -> Container<'a> {
    Container {
        name: "metamcp-4711-1",
        image: IMAGE,
        program: Path::new("/usr/local/bin/metamcp"),
        args: &["worker", "--pipes"],
        bounds: Bounds::default(),
    }
}

#[test]
fn what_docker_is_told() {
    let list = run_arguments(&container()).unwrap();
    insta::assert_snapshot!(list.join("\n"), @r"
    run
    --rm
    --interactive
    --pull=never
    --network=none
    --ipc=none
    --cgroupns=private
    --read-only
    --cap-drop=ALL
    --security-opt=no-new-privileges
    --log-driver=none
    --workdir=/
    --cpus=1
    --ulimit=core=0:0
    --ulimit=fsize=0:0
    --ulimit=nofile=16:16
    --label=metamcp=worker
    --user=65534:65534
    --hostname=metamcp-4711-1
    --name=metamcp-4711-1
    --pids-limit=4
    --memory=335544320b
    --memory-swap=335544320b
    --ulimit=cpu=65:65
    --mount=type=bind,source=/usr/local/bin/metamcp,target=/metamcp,readonly
    --entrypoint=/usr/bin/env
    debian:stable-slim
    -i
    /metamcp
    worker
    --pipes
    ");
    insta::assert_snapshot!(kill_arguments("metamcp-4711-1").join(" "), @"rm --force --volumes metamcp-4711-1");
    insta::assert_snapshot!(image_arguments(IMAGE).join(" "), @"image inspect --format {{.Id}} debian:stable-slim");
}

#[test]
fn a_path_with_a_comma_stays_one_field() {
    let program = PathBuf::from("/opt/a,readonly=false,\"b/metamcp");
    let list = run_arguments(&Container { program: &program, ..container() }).unwrap();
    let mount = list.iter().find(|word| word.starts_with("--mount")).unwrap();
    insta::assert_snapshot!(mount, @r#"--mount=type=bind,"source=/opt/a,readonly=false,""b/metamcp",target=/metamcp,readonly"#);
}

#[test]
fn words_that_would_be_read_as_something_else_are_refused() {
    for name in ["", "-rm", "a b", "a/b", "ü", &"x".repeat(64)] {
        let told = run_arguments(&Container { name, ..container() });
        assert!(matches!(told, Err(DockerError::Word { what: "the name", .. })), "{name}");
    }
    for image in ["", "--privileged", "a b", "a\nb", "$(id)"] {
        let told = run_arguments(&Container { image, ..container() });
        assert!(matches!(told, Err(DockerError::Word { what: "the image", .. })), "{image}");
    }
    let told = run_arguments(&Container { program: Path::new("metamcp"), ..container() });
    assert!(matches!(told, Err(DockerError::Word { what: "the program", .. })));
    for image in ["debian", "ghcr.io/x/y:1.2", "debian@sha256:00ff", "localhost:5000/a_b-c.d"] {
        run_arguments(&Container { image, ..container() }).unwrap();
    }
}

/// A shell script in place of `docker`.
fn program(folder: &tempfile::TempDir, body: &str) -> PathBuf {
    let path = folder.path().join("docker");
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The message of [`find`], without the folder of the test.
fn told(body: &str, patience: Duration) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = program(&folder, body);
    let said = match find(&path, patience) {
        Ok(engine) => format!("found {}", engine.version),
        Err(refused) => refused.to_string(),
    };
    said.replace(folder.path().to_str().unwrap(), "/bin")
}

#[test]
fn an_engine_is_found_or_refused_in_words() {
    let long = Duration::from_secs(60);
    insta::assert_snapshot!(told("echo linux 28.2.2", long), @"found 28.2.2");
    insta::assert_snapshot!(
        told("echo; echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2; exit 1", long),
        @r#"no container engine: `/bin/docker version --format {{.Server.Os}} {{.Server.Version}}` says "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"; start the engine, or choose another profile"#
    );
    insta::assert_snapshot!(
        told("exec sleep 600", Duration::from_millis(50)),
        @"no container engine: `/bin/docker version --format {{.Server.Os}} {{.Server.Version}}` did not answer within 50ms; look whether the engine is stuck, or choose another profile"
    );
    insta::assert_snapshot!(
        told("echo windows 28.2.2", long),
        @"the container engine 28.2.2 runs windows containers, the worker needs linux; choose another profile"
    );
    insta::assert_snapshot!(
        told("exit 3", long),
        @r#"no container engine: `/bin/docker version --format {{.Server.Os}} {{.Server.Version}}` says "exit status: 3"; start the engine, or choose another profile"#
    );
    let missing = find(Path::new("/nonexistent/docker"), long).unwrap_err();
    insta::assert_snapshot!(missing, @"no container engine: /nonexistent/docker cannot be started (No such file or directory (os error 2)); install Docker, or choose another profile");
}

#[cfg(target_os = "linux")]
#[test]
fn a_container_that_comes_late_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let asked = folder.path().join("asked");
    // It exists from the third call on; before that, newer versions report that without a failure.
    let body = format!(
        "echo x >> {0}; [ $(wc -l < {0}) -ge 3 ] && echo $4 || echo 'Error: No such container' >&2",
        asked.display()
    );
    let program = program(&folder, &body);
    let count = || fs::read_to_string(&asked).unwrap().lines().count();
    assert!(
        !relay::swept(&program, "metamcp-1", Duration::ZERO),
        "one that was seen is asked for once"
    );
    assert_eq!(count(), 1);
    assert!(relay::swept(&program, "metamcp-1", PATIENCE));
    assert_eq!(count(), 3);
}
