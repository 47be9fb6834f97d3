//! The table of hazards: sixty ways for a child server to be broken or hostile.

use std::sync::Arc;

use super::hooks::{Next, answers, calls, floods, handshake, lines, listing, processes};
use super::message::{Call, Request};
use super::output::Piece;
use super::server_state::ServerState;

/// One way to misbehave.
#[derive(Debug)]
pub struct Hazard {
    /// Its name on the command line, in the expectations and in tests.
    pub name: &'static str,
    /// What the child does, in one sentence.
    pub what: &'static str,
    /// The number that may follow `=`, if it takes one.
    pub parameter: Option<Parameter>,
    pub(super) hooks: &'static [Hook],
}

/// What the number after `=` means.
#[derive(Debug)]
pub struct Parameter {
    pub what: &'static str,
    /// Its value if none is given.
    pub default: u64,
}

/// Where in the child's lifecycle a hazard takes effect. The number passed is the amount.
#[derive(Debug)]
pub(super) enum Hook {
    /// Before anything is read.
    Start(fn(&Arc<ServerState>, u64)),
    /// When `initialize` arrives.
    Initialize(fn(&Arc<ServerState>, u64, &Request) -> Next),
    /// When a notification arrives.
    Notification(fn(&Arc<ServerState>, u64, &str)),
    /// When `tools/list` arrives.
    List(fn(&Arc<ServerState>, u64, &Request) -> Next),
    /// When a call arrives, after it was recorded as executed.
    Call(fn(&Arc<ServerState>, u64, &Call) -> Next),
    /// When the correct response to a call is ready to be sent.
    Answer(fn(&ServerState, u64, &Call, &str) -> Next),
    /// When any line is about to be written.
    Line(fn(u64, Vec<Piece>) -> Vec<Piece>),
    /// When stdin has ended.
    End(fn(&Arc<ServerState>, u64)),
}

const MILLISECONDS: &str = "milliseconds";
const BYTES: &str = "bytes";
const COUNT: &str = "count";

/// All hazards, in the order in which they run.
pub const HAZARDS: &[Hazard] = &[
    plain(
        "exit-at-start",
        "ends before reading anything",
        &[Hook::Start(handshake::exit_at_start)],
    ),
    with(
        "exit-later",
        "ends some time after its start",
        MILLISECONDS,
        300,
        &[Hook::Start(handshake::exit_later)],
    ),
    plain(
        "exit-on-initialize",
        "ends when asked to initialize",
        &[Hook::Initialize(handshake::exit_on_initialize)],
    ),
    plain(
        "never-initialize",
        "never answers initialize",
        &[Hook::Initialize(handshake::never_initialize)],
    ),
    with(
        "answer-initialize-late",
        "answers initialize after a while",
        MILLISECONDS,
        1_000,
        &[Hook::Initialize(handshake::initialize_late)],
    ),
    plain(
        "wrong-protocol-version",
        "names a protocol revision that never was",
        &[Hook::Initialize(handshake::wrong_protocol_version)],
    ),
    plain(
        "initialize-twice",
        "answers initialize twice, differently",
        &[Hook::Initialize(handshake::initialize_twice)],
    ),
    plain(
        "capabilities-null",
        "declares its capabilities as null",
        &[Hook::Initialize(handshake::capabilities_null)],
    ),
    plain("banner", "greets on stdout before speaking the protocol", &[Hook::Start(lines::banner)]),
    plain(
        "log-lines",
        "logs on stdout between messages, as text and as JSON",
        &[Hook::Line(lines::log_between)],
    ),
    with(
        "partial-line",
        "pauses in the middle of each line",
        MILLISECONDS,
        50,
        &[Hook::Line(lines::pause_inside)],
    ),
    plain(
        "one-byte-writes",
        "writes each line one byte at a time",
        &[Hook::Line(lines::byte_by_byte)],
    ),
    plain(
        "odd-line-ends",
        "uses CRLF, blank lines and a byte order mark",
        &[Hook::Line(lines::odd_ends)],
    ),
    plain(
        "invalid-utf8",
        "answers with bytes that are not UTF-8",
        &[Hook::Answer(answers::invalid_utf8)],
    ),
    plain(
        "nul-bytes",
        "answers with NUL bytes around and inside",
        &[Hook::Answer(answers::nul_bytes)],
    ),
    with(
        "endless-line",
        "writes without ever ending the line",
        BYTES,
        10_000_000_000,
        &[Hook::Call(floods::endless_line)],
    ),
    with(
        "long-line",
        "answers with one very long valid line",
        BYTES,
        200_000_000,
        &[Hook::Answer(floods::long_line)],
    ),
    with(
        "deep-json",
        "answers with deeply nested JSON",
        "levels",
        100_000,
        &[Hook::Answer(answers::deep_json)],
    ),
    plain(
        "duplicate-keys",
        "answers with duplicate keys and keys that differ by case",
        &[Hook::Answer(answers::duplicate_keys)],
    ),
    plain("unknown-id", "answers a request nobody made", &[Hook::Answer(answers::unknown_id)]),
    plain(
        "answer-twice",
        "answers the same request twice, differently",
        &[Hook::Answer(answers::answer_twice)],
    ),
    plain(
        "foreign-id",
        "answers another call first, then its own",
        &[Hook::Answer(answers::foreign_id)],
    ),
    with(
        "bent-id",
        "answers with the id as a string, a fraction or null",
        "1 string, 2 fraction, 3 null, 0 each in turn",
        0,
        &[Hook::Answer(answers::bent_id)],
    ),
    plain(
        "answer-notification",
        "answers notifications",
        &[Hook::Notification(answers::answer_notification)],
    ),
    plain(
        "result-and-error",
        "answers with a result and an error at once",
        &[Hook::Answer(answers::result_and_error)],
    ),
    with(
        "list-changed-flood",
        "says over and over that its tools changed",
        COUNT,
        100_000,
        &[Hook::Call(floods::list_changed)],
    ),
    with(
        "progress-flood",
        "reports progress without measure",
        COUNT,
        1_000_000,
        &[Hook::Call(floods::progress)],
    ),
    with(
        "request-flood",
        "asks the client over and over",
        COUNT,
        10_000,
        &[Hook::Call(floods::requests)],
    ),
    with("ping-flood", "pings over and over", COUNT, 100_000, &[Hook::Call(floods::pings)]),
    plain(
        "reuse-our-id",
        "asks something under the id of the call it is answering",
        &[Hook::Answer(answers::reuse_our_id)],
    ),
    plain(
        "cancel-unknown",
        "cancels requests nobody made",
        &[Hook::Answer(answers::cancel_unknown)],
    ),
    with("many-tools", "lists very many tools", COUNT, 100_000, &[Hook::List(listing::many_tools)]),
    plain("looping-cursor", "pages its tools in a circle", &[Hook::List(listing::looping_cursor)]),
    with(
        "monstrous-schema",
        "lists a tool whose schema is huge, recursive and refers to the network",
        BYTES,
        64_000_000,
        &[Hook::List(listing::monstrous_schema)],
    ),
    plain(
        "rug-pull",
        "describes its tools differently each time",
        &[Hook::List(listing::rug_pull)],
    ),
    plain(
        "confusing-names",
        "lists names that collide, look alike or hold control characters",
        &[Hook::List(listing::confusing_names)],
    ),
    plain(
        "die-before-reply",
        "runs the tool, then dies without an answer",
        &[Hook::Call(calls::die_before_reply)],
    ),
    plain("hang-after-effect", "runs the tool, then never answers", &[Hook::Call(calls::hang)]),
    plain("reply-then-die", "answers, then dies", &[Hook::Answer(calls::reply_then_die)]),
    with(
        "reply-late",
        "answers after the caller gave up",
        MILLISECONDS,
        3_000,
        &[Hook::Call(calls::reply_late)],
    ),
    with(
        "die-on-nth-call",
        "dies on its second call",
        "call number",
        2,
        &[Hook::Call(calls::die_on_nth)],
    ),
    plain("close-stdout", "closes stdout and lives on", &[Hook::Call(calls::close_stdout)]),
    plain("close-stdin", "closes stdin, answers and lives on", &[Hook::Call(calls::close_stdin)]),
    plain("stop-reading", "reads nothing more", &[Hook::Call(calls::stop_reading)]),
    with("stderr-flood", "fills stderr", BYTES, 1_000_000_000, &[Hook::Call(floods::stderr)]),
    plain(
        "ignore-end-of-input",
        "lives on when its input ends",
        &[Hook::End(processes::ignore_end)],
    ),
    plain("ignore-signals", "ignores polite signals", &[Hook::Start(processes::ignore_signals)]),
    plain(
        "stop-itself",
        "stops itself in the middle of a call",
        &[Hook::Call(processes::stop_itself)],
    ),
    plain(
        "session-grandchild",
        "starts a process in a session of its own",
        &[Hook::Start(processes::session_grandchild)],
    ),
    plain(
        "daemon-holds-pipe",
        "starts a daemon that holds its pipes, and dies in the middle of a call",
        &[Hook::Start(processes::daemon), Hook::Call(calls::die_before_reply)],
    ),
    with("fork-bomb", "starts many processes", COUNT, 32, &[Hook::Call(processes::fork_bomb)]),
    with(
        "eat-memory",
        "takes a lot of memory",
        BYTES,
        2_000_000_000,
        &[Hook::Call(processes::eat_memory)],
    ),
    with(
        "fill-directory",
        "fills its working directory",
        BYTES,
        64_000_000,
        &[Hook::Call(processes::fill_directory)],
    ),
    plain(
        "kill-parent",
        "kills the process that started it",
        &[Hook::Call(processes::kill_parent)],
    ),
    with(
        "zombies",
        "starts processes and never waits for them",
        COUNT,
        20,
        &[Hook::Call(processes::zombies)],
    ),
    with(
        "slow-installer",
        "installs itself first, showing dots on stderr",
        MILLISECONDS,
        90_000,
        &[Hook::Start(handshake::slow_installer)],
    ),
    plain(
        "exit-politely",
        "ends with code 0 in the middle of a call",
        &[Hook::Call(calls::exit_politely)],
    ),
    plain("dump-core", "aborts in the middle of a call", &[Hook::Call(processes::dump_core)]),
    plain(
        "move-away",
        "changes its directory and file mode mask",
        &[Hook::Start(processes::move_away)],
    ),
    plain(
        "look-around",
        "journals its environment and open files",
        &[Hook::Start(processes::look_around)],
    ),
];

const fn plain(name: &'static str, what: &'static str, hooks: &'static [Hook]) -> Hazard {
    Hazard { name, what, parameter: None, hooks }
}

const fn with(
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    default: u64,
    hooks: &'static [Hook],
) -> Hazard {
    Hazard { name, what, parameter: Some(Parameter { what: unit, default }), hooks }
}
