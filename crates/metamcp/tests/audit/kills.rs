//! kill -9 at random moments, of a gateway that writes its log under load: what is there is whole, with at most the last
//! line of each writer cut, and nothing ran that is not in it. `METAMCP_KILLS` says how often, `METAMCP_SEED` repeats a run.

use std::io::Write;
use std::time::{Duration, Instant};

use metamcp_testkit::EventKind;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::logged::{PATIENCE, gateway, of_kind, whole, workspace};

/// Kills of the usual run; a thousand are promised.
const KILLS: usize = 20;
/// Most calls that are in flight at once.
const IN_FLIGHT: u64 = 64;

#[test]
fn kills_at_random_moments_leave_a_whole_log() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let kills = number("METAMCP_KILLS").map_or(KILLS, |kills| usize::try_from(kills).unwrap());
    let seed = number("METAMCP_SEED").unwrap_or_else(|| getrandom::u64().unwrap());
    writeln!(std::io::stderr(), "METAMCP_SEED={seed}").unwrap();
    let mut seed = seed;
    let mut random = move || {
        // SplitMix64.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let audit = json!({ "required": true, "maxFileBytes": 262_144, "maxFiles": 10_000 });
    let workspace = workspace(&audit);
    let mut answered = 0;
    for _ in 0..kills {
        let mut client = gateway(&workspace, &[]);
        let due = Instant::now() + Duration::from_micros(random() % 60_000);
        let mut sent: Vec<u64> = Vec::new();
        // The first calls start the server; some kills come before that.
        while Instant::now() < due {
            let key = format!("{}", random());
            sent.push(client.mcp_call("one", "effect", &json!({"key": key})).unwrap());
            if sent.len() as u64 >= IN_FLIGHT {
                let oldest = sent.remove(0);
                if client.wait(oldest, PATIENCE).is_ok() {
                    answered += 1;
                }
            }
        }
        client.signal(Signal::SIGKILL).unwrap();
        client.wait_exit(PATIENCE).unwrap();
        if kills <= KILLS {
            whole(&workspace);
        }
    }
    let report = whole(&workspace);
    let cuts = report["cuts"].as_array().unwrap().len();
    let ran = workspace.journal("one").count(EventKind::Execute).unwrap();
    let begun = of_kind(&workspace, "begun");
    let is_of_call = |line: &&Value| line["what"]["tool"] == "effect";
    let begun = begun.iter().filter(is_of_call).count();
    let told = format!(
        "{kills} kills: {answered} answers seen, {ran} calls ran, {begun} recorded before they were sent, {} lines in {} files, {cuts} cut",
        report["lines"], report["files"]
    );
    // To stderr directly: for whoever runs the promised thousand.
    writeln!(std::io::stderr(), "{told}").unwrap();
    assert!(cuts <= kills, "{report:#}");
    assert!(begun >= ran, "{ran} calls ran, and {begun} are recorded");
    assert_eq!(report["lost"], 0);
}
