//! Shared by all promises: the gateway as a process, the size of the run, and repeatable randomness.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use metamcp_testkit::{CallOutcome, Client, Workspace};
use serde_json::{Value, json};

/// A timeout for what must happen but may be late on a busy machine: exceeding it means a hang, not slowness.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The requested size of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    Usual,
    Full,
    Nightly,
}

pub(crate) fn extent() -> Extent {
    let asked = |name: &str| std::env::var_os(name).is_some_and(|value| value != "0");
    if asked("METAMCP_NIGHTLY") {
        Extent::Nightly
    } else if asked("METAMCP_FULL") {
        Extent::Full
    } else {
        Extent::Usual
    }
}

/// A size for the usual, the full and the nightly run.
pub(crate) fn size(usual: usize, full: usize, nightly: usize) -> usize {
    match extent() {
        Extent::Usual => usual,
        Extent::Full => full,
        Extent::Nightly => nightly,
    }
}

/// Prints a measured figure for people; the assertions are separate.
pub(crate) fn tell(what: impl Display) {
    // A closed stderr loses a figure and nothing else.
    writeln!(io::stderr(), "[promises] {what}").ok();
}

/// A pseudo-random generator, repeatable by its seed.
pub(crate) struct SeededRng(u64);

impl SeededRng {
    /// Seeded by `METAMCP_SEED`, else by the name of the test; printed, so that a failure can be repeated.
    pub(crate) fn of(test: &str) -> SeededRng {
        let given = std::env::var("METAMCP_SEED").ok().and_then(|seed| seed.parse().ok());
        let by_name = test.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let seed = given.unwrap_or(by_name);
        tell(format_args!("{test}: METAMCP_SEED={seed}"));
        SeededRng(seed)
    }

    /// Another generator, seeded by this one.
    pub(crate) fn derived(&mut self) -> SeededRng {
        SeededRng(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("it is below a usize")
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// The gateway's own directory in a workspace.
pub(crate) fn home(workspace: &Workspace) -> PathBuf {
    workspace.home().join(".metamcp")
}

/// The gateway's command in a workspace.
pub(crate) fn command(workspace: &Workspace) -> Command {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.env("METAMCP_HOME", home(workspace));
    command
}

/// A gateway after the handshake.
pub(crate) fn start(workspace: &Workspace) -> Client {
    start_holding(workspace, CONTAINMENTS[0])
}

/// A gateway after the handshake, with the given containment of its children.
pub(crate) fn start_holding(workspace: &Workspace, containment: &str) -> Client {
    let mut command = command(workspace);
    command.env("METAMCP_CONTAINMENT", containment);
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    client
}

/// Containment modes: the best this machine allows, and the one every machine allows.
pub(crate) const CONTAINMENTS: [&str; 2] = ["auto", "shim"];

/// Calls and waits for the outcome.
pub(crate) fn call(client: &Client, server: &str, tool: &str, args: &Value) -> CallOutcome {
    CallOutcome::of(&client.mcp_call_now(server, tool, args, PATIENCE).unwrap().value)
}

/// The text of an `mcp_discover` result.
pub(crate) fn discover(client: &Client, arguments: &Value) -> String {
    let params = json!({"name": "mcp_discover", "arguments": arguments});
    let answer = client.ask("tools/call", &params, PATIENCE).unwrap();
    answer.text().unwrap_or_else(|| panic!("no text in {}", answer.value)).to_owned()
}

/// Shuts a gateway down gracefully and checks that nothing is left of it.
pub(crate) fn stop(mut client: Client, workspace: &Workspace) {
    client.close_input();
    let status = client.wait_exit(PATIENCE).unwrap();
    assert!(status.success(), "{status}; stderr:\n{}", client.stderr());
    assert_eq!(workspace.survivors(Duration::from_secs(2)), []);
    assert_eq!(client.violations(), Vec::<String>::new());
}

/// Median, 99th percentile and maximum, for printing.
pub(crate) struct Spread {
    sorted: Vec<Duration>,
}

impl Spread {
    pub(crate) fn of(mut times: Vec<Duration>) -> Spread {
        times.sort_unstable();
        Spread { sorted: times }
    }

    pub(crate) fn median(&self) -> Duration {
        self.at(50)
    }

    fn at(&self, percent: usize) -> Duration {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get((last * percent).div_ceil(100)).copied().unwrap_or_default()
    }
}

impl Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (median, high, most) = (self.median(), self.at(99), self.at(100));
        write!(f, "median {median:.1?}, p99 {high:.1?}, most {most:.1?} of {}", self.sorted.len())
    }
}

/// How long something took.
pub(crate) fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = act();
    (result, began.elapsed())
}
