//! A home full of corrupt files, and several gateways in one home: the cache is intact or it is quarantined.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use metamcp_engine::catalog::schema_cache::{Lookup, SchemaCache};
use metamcp_testkit::census::descendants;
use metamcp_testkit::{CallOutcome, Client, Workspace, chaos_server};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::kill::quarantined;
use crate::world::{PATIENCE, SeededRng, call, discover, home, size, start, stop, tell};

/// Ways to corrupt an entry of the home.
const SPOILS: [&str; 8] =
    ["random", "empty", "zeros", "truncated", "directory", "fifo", "link", "loop"];

#[test]
fn a_home_full_of_rubbish_is_survived_and_put_aside() {
    let mut rng = SeededRng::of("rubbish");
    for round in 0..size(6, 60, 300) {
        let mut workspace = Workspace::new().unwrap();
        let servers: Vec<String> = (0..10).map(|n| format!("server-{n}")).collect();
        for server in &servers {
            workspace.server(server, chaos_server(&[]));
        }
        for n in 10..50 {
            workspace.server(&format!("server-{n}"), chaos_server(&["never-initialize"]));
        }
        let canary = workspace.file("canary");
        fs::write(&canary, "not yours").unwrap();
        let (plan, spoilt) = spoil_home(&mut rng, &workspace, &servers, &canary);
        let client = start(&workspace);
        assert_eq!(descendants(client.pid()), [], "round {round}: nothing starts at boot");
        let overview = discover(&client, &json!({}));
        assert!(overview.contains("server-49"), "{overview}");
        // Whatever was in place of its cache, a server works.
        let server = rng.pick(&servers).clone();
        let outcome = call(&client, &server, "effect", &json!({"key": "works"}));
        assert_eq!(outcome, CallOutcome::Success, "round {round}, {plan}");
        assert_eq!(fs::read_to_string(&canary).unwrap(), "not yours", "{plan}");
        stop(client, &workspace);
        // The next gateway finds a usable cache or none; nothing is left to quarantine.
        let before = quarantined(&workspace);
        tell(format_args!("round {round}: {plan}; {} put aside", before.len()));
        assert!(before.len() >= spoilt, "round {round}, {plan}: only {before:?}");
        let client = start(&workspace);
        discover(&client, &json!({"query": "nothing of that kind", "server": server}));
        stop(client, &workspace);
        assert_eq!(quarantined(&workspace), before, "round {round}, {plan}");
    }
}

#[test]
fn a_damaged_cache_is_put_aside_and_written_anew() {
    let mut rng = SeededRng::of("damage");
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", chaos_server(&[]));
    let client = start(&workspace);
    assert_eq!(call(&client, "one", "echo", &json!({"text": "hi"})), CallOutcome::Success);
    stop(client, &workspace);
    let file = home(&workspace).join("cache").join("one").join("schema.json");
    let whole = fs::read(&file).unwrap();
    for round in 0..size(8, 60, 300) {
        let mut bytes = whole.clone();
        match round % 3 {
            0 => bytes[rng.below(whole.len())] ^= 1 << rng.below(8),
            1 => bytes.truncate(rng.below(whole.len())),
            _ => {
                let from = rng.below(whole.len());
                bytes[from..].fill(0);
            }
        }
        fs::write(&file, &bytes).unwrap();
        let client = start(&workspace);
        let text = discover(&client, &json!({"server": "one"}));
        assert!(text.contains("one:effect_idempotent"), "round {round}:\n{text}");
        stop(client, &workspace);
        assert_eq!(
            fs::read(&file).map(|bytes| bytes.len()).ok(),
            Some(whole.len()),
            "round {round}"
        );
        let aside = quarantined(&workspace);
        assert!(!aside.is_empty() && aside.len() <= 3, "round {round}: {aside:?}");
    }
}

#[test]
fn gateways_that_share_a_home_never_spoil_each_others_files() {
    let gateways = 8;
    let rounds = size(3, 10, 40);
    let servers: Vec<String> = (0..4).map(|n| format!("server-{n}")).collect();
    let mut workspace = Workspace::new().unwrap();
    for server in &servers {
        // Its list differs each time, so each listing is a write.
        workspace.server(server, chaos_server(&["rug-pull"]));
    }
    let mut rng = SeededRng::of("shared home");
    let (over, looks) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let cache = SchemaCache::new(&home(&workspace));
            while !over.load(Ordering::Relaxed) {
                for server in &servers {
                    match cache.read(server.as_str(), now()) {
                        Ok(Lookup::Found(_)) => drop(looks.fetch_add(1, Ordering::Relaxed)),
                        Ok(Lookup::Missing) => {}
                        other => return Some(format!("{server}: {other:?}")),
                    }
                }
            }
            None
        });
        for _ in 0..rounds {
            let clients: Vec<Client> = (0..gateways).map(|_| start(&workspace)).collect();
            let ids: Vec<Vec<u64>> = clients
                .iter()
                .map(|client| {
                    let echo = json!({"text": "hi"});
                    servers
                        .iter()
                        .map(|name| client.mcp_call(name, "echo", &echo).unwrap())
                        .collect()
                })
                .collect();
            // One of them is killed in the middle.
            let victim = rng.below(gateways);
            for (n, (client, ids)) in clients.iter().zip(&ids).enumerate() {
                if n == victim {
                    client.signal(Signal::SIGKILL).unwrap();
                    continue;
                }
                for id in ids {
                    let answer = client.wait(*id, PATIENCE).unwrap();
                    assert_eq!(answer.text(), Some("hi"), "{}", answer.value);
                }
            }
            for (n, mut client) in clients.into_iter().enumerate() {
                client.close_input();
                let status = client.wait_exit(PATIENCE).unwrap();
                assert_eq!(status.success(), n != victim, "{status}");
            }
        }
        over.store(true, Ordering::Relaxed);
        let damage = looking.join().expect("looking does not panic");
        assert_eq!(damage, None, "a reader found a spoilt file");
    });
    assert_eq!(workspace.survivors(Duration::from_secs(2)), []);
    assert_eq!(quarantined(&workspace), Vec::<String>::new());
    let found = looks.into_inner();
    tell(format_args!("{gateways} gateways in one home, {rounds} rounds: {found} whole reads"));
    assert!(found > 0, "nothing was ever written, so this shows nothing");
    let cache = SchemaCache::new(&home(&workspace));
    for server in &servers {
        assert!(matches!(cache.read(server.as_str(), now()), Ok(Lookup::Found(_))), "{server}");
    }
}

/// Corrupts the home as a bad disk or another program might. Returns what it did, and how many corrupt files are in a
/// place where they are read.
fn spoil_home(
    rng: &mut SeededRng,
    workspace: &Workspace,
    servers: &[String],
    canary: &Path,
) -> (String, usize) {
    let home = home(workspace);
    match rng.below(6) {
        // Something else where the home or its cache should be.
        0 => {
            let way = *rng.pick(&SPOILS);
            spoil(rng, way, &home, canary);
            return (format!("the home is {way}"), 0);
        }
        1 => {
            fs::create_dir_all(&home).unwrap();
            let way = *rng.pick(&SPOILS);
            spoil(rng, way, &home.join("cache"), canary);
            return (format!("the cache is {way}"), 0);
        }
        _ => {}
    }
    let (mut ways, mut spoilt) = (Vec::new(), 0);
    for server in servers {
        let folder = home.join("cache").join(server);
        let way = *rng.pick(&SPOILS);
        if rng.below(4) == 0 {
            fs::create_dir_all(folder.parent().unwrap()).unwrap();
            spoil(rng, way, &folder, canary);
            ways.push(format!("folder {way}"));
        } else {
            fs::create_dir_all(&folder).unwrap();
            spoil(rng, way, &folder.join("schema.json"), canary);
            ways.push(way.to_owned());
            spoilt += 1;
        }
    }
    for n in 0..20 {
        let way = *rng.pick(&SPOILS);
        let place = if n % 2 == 0 { home.clone() } else { home.join("cache") };
        spoil(rng, way, &place.join(format!("rubbish-{n}")), canary);
    }
    (ways.join(", "), spoilt)
}

fn spoil(rng: &mut SeededRng, way: &str, path: &Path, canary: &Path) {
    match way {
        "random" => {
            let length = rng.below(100_000);
            fs::write(path, rng.bytes(length)).unwrap();
        }
        "empty" => fs::write(path, "").unwrap(),
        "zeros" => fs::write(path, vec![0; rng.below(100_000)]).unwrap(),
        "truncated" => fs::write(path, "{\"v\":1,\"sha256\":\"00").unwrap(),
        "directory" => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("something"), "in the way").unwrap();
        }
        // Opening it for reading blocks until there is a writer, unless opened non-blocking.
        "fifo" => mkfifo(path, Mode::S_IRWXU).unwrap(),
        "link" => symlink(canary, path).unwrap(),
        "loop" => symlink(path, path).unwrap(),
        other => panic!("no way {other}"),
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}
