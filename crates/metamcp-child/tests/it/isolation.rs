//! What a server can see of its environment.

use std::collections::BTreeSet;

use metamcp_child::{Child, Containment, SpawnError};

use crate::support::{BOTH, HOST, behaviour, line, spawn, spawner, within};

async fn dumped(child: &Child) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        match line(&child.stdout).await {
            end if end == "end" => return lines,
            line => lines.push(line),
        }
    }
}

fn values<'a>(lines: &'a [String], prefix: &str) -> Vec<&'a str> {
    lines.iter().filter_map(|line| line.strip_prefix(prefix)).collect()
}

#[tokio::test]
async fn only_three_descriptors_and_they_are_pipes() {
    for containment in BOTH {
        // A descriptor of ours that a careless start would leak.
        let leak = std::fs::File::open("/dev/zero").unwrap();
        nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))
            .unwrap();
        let child = spawn(&spawner(containment), behaviour(&["dump"])).await;
        let lines = dumped(&child).await;
        let fds = values(&lines, "fds ")[0];
        let open: BTreeSet<&str> = fds
            .split(';')
            .filter(|fd| !fd.ends_with("/fd"))
            .map(|fd| fd.split('[').next().unwrap())
            .collect();
        assert_eq!(open, BTreeSet::from(["0 pipe:", "1 pipe:", "2 pipe:"]), "{fds}");
    }
}

#[tokio::test]
async fn only_the_allowlist_and_its_own_variables() {
    for containment in BOTH {
        let mut spec = behaviour(&["dump"]);
        spec.env = vec![("SERVER_TOKEN".into(), "for-this-one".into())];
        let expected = metamcp_child::environment::for_child(std::env::vars_os(), &spec.env);
        let expected: BTreeSet<String> = expected
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let child = spawn(&spawner(containment), spec).await;
        let lines = dumped(&child).await;
        let found: BTreeSet<String> =
            values(&lines, "env ").into_iter().map(ToOwned::to_owned).collect();
        assert_eq!(found, expected);
        assert!(found.contains("SERVER_TOKEN=for-this-one"));
    }
}

#[tokio::test]
async fn no_secret_on_a_command_line_and_none_in_the_shim() {
    for containment in BOTH {
        let mut spec = behaviour(&["deaf"]);
        spec.env = vec![("SERVER_TOKEN".into(), "4d7ac1f0-secret".into())];
        let child = spawn(&spawner(containment), spec).await;
        assert_eq!(line(&child.stdout).await, "ready");
        let keeper = child.handle().keeper_pid();
        let read = |file: &str| std::fs::read(format!("/proc/{keeper}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&read("cmdline")).contains("secret"));
        assert!(read("environ").is_empty());
    }
}

/// Loader variables of the server have no effect on the stage that becomes the server.
#[tokio::test]
async fn its_variables_are_the_servers_alone() {
    for containment in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let mut spec = crate::support::shell("echo up");
        let trace = folder.path().join("trace").into();
        spec.env = vec![("LD_DEBUG".into(), "all".into()), ("LD_DEBUG_OUTPUT".into(), trace)];
        let child = spawn(&spawner(containment), spec).await;
        assert_eq!(line(&child.stdout).await, "up");
        for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
            let trace = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
            assert!(!trace.contains("metamcp-shim"), "the stage was traced with {containment:?}");
        }
    }
}

#[tokio::test]
async fn more_variables_than_a_pipe_holds_arrive() {
    for containment in BOTH {
        let mut spec = crate::support::shell("echo ${#A} ${#B} ${#C} ${#D}");
        let long = "x".repeat(100_000);
        spec.env = ["A", "B", "C", "D"].map(|name| (name.into(), long.as_str().into())).to_vec();
        let child = spawn(&spawner(containment), spec).await;
        assert_eq!(line(&child.stdout).await, "100000 100000 100000 100000");
        // More than the kernel accepts is an error, and nothing hangs.
        let mut spec = crate::support::shell("echo up");
        spec.env = vec![("A".into(), "x".repeat(4_000_000).into())];
        let refused = within(spawner(containment).spawn(spec)).await;
        assert!(matches!(refused, Err(SpawnError::BadCommand { .. })));
    }
}

#[tokio::test]
async fn signals_limits_and_directory_are_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().canonicalize().unwrap();
    for containment in BOTH {
        let mut spec = behaviour(&["dump"]);
        spec.cwd = Some(real.clone());
        let child = spawn(&spawner(containment), spec).await;
        let lines = dumped(&child).await;
        let status = |name: &str| values(&lines, &format!("status {name}:\t"))[0].to_owned();
        assert_eq!(status("SigBlk"), "0000000000000000");
        // Rust ignores SIGPIPE, which a child would inherit. A C program shows what it got.
        let spec = crate::support::spec("grep", &["SigIgn", "/proc/self/status"]);
        let child = spawn(&spawner(containment), spec).await;
        let ignored = line(&child.stdout).await;
        let ignored = u64::from_str_radix(ignored.trim_start_matches("SigIgn:\t"), 16).unwrap();
        assert_eq!(ignored & 1 << 12, 0, "SIGPIPE is ignored");
        assert_eq!(values(&lines, "Max core file size")[0].split_whitespace().next(), Some("0"));
        let own: i32 =
            std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
        assert_eq!(values(&lines, "oom ")[0], (own + 500).min(1000).to_string());
        assert_eq!(values(&lines, "cwd ")[0], real.to_str().unwrap());
    }
}

#[tokio::test]
async fn it_leads_a_session_under_the_pid_seen_from_here() {
    for containment in BOTH {
        let child = spawn(&spawner(containment), behaviour(&["deaf"])).await;
        assert_eq!(line(&child.stdout).await, "ready");
        let exe = std::fs::read_link(format!("/proc/{}/exe", child.pid())).unwrap();
        assert_eq!(exe, std::path::Path::new(HOST).canonicalize().unwrap());
        // Leader of its own group and session: what it does to its group stays there.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let pid = child.pid().to_string();
        assert_eq!((fields[2], fields[3]), (pid.as_str(), pid.as_str()));
    }
}

#[tokio::test]
async fn a_namespace_shows_its_own_processes_only() {
    let child = spawn(&spawner(Containment::Namespace), behaviour(&["dump"])).await;
    let lines = dumped(&child).await;
    assert_eq!(values(&lines, "pids ")[0].split(' ').nth(1), Some("1"));
    let child =
        spawn(&spawner(Containment::Namespace), crate::support::shell("echo /proc/[0-9]*")).await;
    let seen = line(&child.stdout).await;
    assert!(seen.split(' ').count() <= 3, "{seen}");
    within(child.watch().empty()).await;
}
