//! What a sandboxed server can reach, tried by a real process.

use std::os::unix::net::UnixListener;
use std::path::Path;

use metamcp_child::{Containment, SandboxPolicy, process_sandbox};

use crate::support::{BOTH, HOST, behaviour, line, rest, shell, spawn, spawner};

fn behind(home: &Path) -> SandboxPolicy {
    SandboxPolicy { home: home.to_owned(), reads: vec![HOST.into()], writes: Vec::new() }
}

#[tokio::test]
async fn a_sandboxed_server_has_its_own_folder_and_nothing_of_the_users() {
    process_sandbox::available().expect("a kernel with Landlock");
    let users = tempfile::tempdir().unwrap();
    let secret = users.path().join("id_ed25519");
    std::fs::write(&secret, "a key").unwrap();
    let socket = users.path().join("agent");
    let _agent = UnixListener::bind(&socket).unwrap();
    let own = tempfile::tempdir().unwrap();
    let shared = tempfile::tempdir().unwrap();
    let gateway = std::process::id().to_string();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    for containment in BOTH {
        let tries = [
            ("read", path(&secret), "denied"),
            ("list", path(users.path()), "denied"),
            ("write", path(&users.path().join("new")), "denied"),
            ("write", path(&secret), "denied"),
            ("read", "/etc/passwd".to_owned(), "done"),
            ("connect", path(&socket), "denied"),
            ("signal", gateway.clone(), "denied"),
            ("write", path(&own.path().join("notes")), "done"),
            ("read", path(&own.path().join("notes")), "done"),
            ("write", path(&shared.path().join("notes")), "done"),
            ("read", "/proc/self/status".to_owned(), "done"),
            ("write", "/dev/null".to_owned(), "done"),
            ("list", "/dev/pts".to_owned(), "denied"),
            ("write", "/dev/ptmx".to_owned(), "denied"),
            ("write", "/dev/tty".to_owned(), "denied"),
            ("truncate", path(&secret), "denied"),
            ("truncate", path(&own.path().join("notes")), "done"),
            ("pair", "stream".to_owned(), "done"),
            ("pair", "packet".to_owned(), "done"),
            ("pair", "datagram".to_owned(), "denied"),
            ("pair", "raw".to_owned(), "denied"),
        ];
        // Root may inspect every process it sees; in a PID namespace it sees only its own.
        let mut tries = tries.to_vec();
        if containment == Containment::Namespace || !nix::unistd::geteuid().is_root() {
            tries.push(("read", format!("/proc/{gateway}/environ"), "denied"));
        }
        let words = tries.iter().flat_map(|(verb, on, _)| [*verb, on.as_str()]);
        let words: Vec<&str> = ["try"].into_iter().chain(words).collect();
        let mut spec = behaviour(&words);
        spec.cwd = Some(own.path().to_owned());
        let mut sandbox_policy = behind(own.path());
        sandbox_policy.writes.push(shared.path().to_owned());
        spec.sandbox_policy = Some(sandbox_policy);
        let child = spawn(&spawner(containment), spec).await;
        for (verb, on, expected) in &tries {
            let said = line(&child.stdout).await;
            // A process of another namespace does not exist at all.
            let said = said.replace("gone", "denied");
            assert_eq!(said, format!("{verb} {expected}"), "{on} with {containment:?}");
        }
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "a key");
    }
}

#[tokio::test]
async fn what_it_starts_is_in_the_same_sandbox_and_finds_a_home_of_its_own() {
    let users = tempfile::tempdir().unwrap();
    std::fs::write(users.path().join("secret"), "a key").unwrap();
    let own = tempfile::tempdir().unwrap();
    let script = format!(
        "echo \"$HOME $TMPDIR\"; sh -c 'cat {}/secret' 2>/dev/null || echo no",
        users.path().display()
    );
    let mut spec = shell(&script);
    spec.sandbox_policy = Some(behind(own.path()));
    let child = spawn(&spawner(Containment::Shim), spec).await;
    let home = own.path().display();
    assert_eq!(line(&child.stdout).await, format!("{home} {home}/tmp"));
    assert_eq!(line(&child.stdout).await, "no");
}

/// The loader acts on these variables before a program runs: here it would write a file of its choice.
#[tokio::test]
async fn its_variables_do_nothing_before_the_sandbox_is_enforced() {
    for containment in BOTH {
        let (users, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut spec = shell("echo \"$LD_DEBUG\"");
        let trace = users.path().join("trace").into();
        spec.env = vec![("LD_DEBUG".into(), "all".into()), ("LD_DEBUG_OUTPUT".into(), trace)];
        spec.sandbox_policy = Some(behind(own.path()));
        let child = spawn(&spawner(containment), spec).await;
        // Its own loader sees them, and writes where it may.
        assert!(rest(&child.stdout).await.ends_with(b"all\n"));
        let left: Vec<_> = std::fs::read_dir(users.path()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?} with {containment:?}");
    }
}

#[tokio::test]
async fn without_a_sandbox_it_does_not_start() {
    let own = tempfile::tempdir().unwrap();
    let mark = own.path().join("ran");
    let words = [own.path().to_str().unwrap(), mark.to_str().unwrap()];
    let child =
        spawn(&spawner(Containment::Shim), behaviour(&["no-room-for-walls", words[0], words[1]]))
            .await;
    let said = String::from_utf8(rest(&child.stdout).await).unwrap();
    assert_eq!(said, "without: started\nwith: cannot sandbox the child\n");
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "without\n");
}
