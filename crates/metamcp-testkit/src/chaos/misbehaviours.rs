//! The table: sixty ways for a child server to be broken or hostile.

use std::sync::Arc;

use super::acts::{Next, answers, calls, floods, handshake, lines, listing, processes};
use super::message::{Call, Request};
use super::output::Piece;
use super::stage::Stage;

/// One way to misbehave.
#[derive(Debug)]
pub struct Misbehaviour {
    /// Its number, as verdicts and tests name it.
    pub number: u8,
    /// Its name, as an alternative to the number.
    pub name: &'static str,
    /// What the child does, in a sentence.
    pub what: &'static str,
    /// The number that may follow `=`, if it takes one.
    pub parameter: Option<Parameter>,
    pub(super) acts: &'static [Act],
}

/// What the number after `=` means.
#[derive(Debug)]
pub struct Parameter {
    /// Its unit.
    pub what: &'static str,
    /// Its value when none is given.
    pub default: u64,
}

/// Where in the child's life a misbehaviour strikes. The number handed over is the amount.
#[derive(Debug)]
pub(super) enum Act {
    /// Before anything is read.
    Start(fn(&Arc<Stage>, u64)),
    /// When `initialize` arrives.
    Initialize(fn(&Arc<Stage>, u64, &Request) -> Next),
    /// When a notification arrives.
    Notification(fn(&Arc<Stage>, u64, &str)),
    /// When `tools/list` arrives.
    List(fn(&Arc<Stage>, u64, &Request) -> Next),
    /// When a call arrives, after it was journalled as executed.
    Call(fn(&Arc<Stage>, u64, &Call) -> Next),
    /// When the honest answer to a call is ready to be sent.
    Answer(fn(&Stage, u64, &Call, &str) -> Next),
    /// When any line is about to be written.
    Line(fn(u64, Vec<Piece>) -> Vec<Piece>),
    /// When the input has ended.
    End(fn(&Arc<Stage>, u64)),
}

const MILLISECONDS: &str = "milliseconds";
const BYTES: &str = "bytes";
const COUNT: &str = "count";

/// Every misbehaviour, in the order of their numbers.
pub const MISBEHAVIOURS: &[Misbehaviour] = &[
    plain(
        1,
        "exit-at-start",
        "ends before reading anything",
        &[Act::Start(handshake::exit_at_start)],
    ),
    with(
        2,
        "exit-later",
        "ends some time after its start",
        MILLISECONDS,
        300,
        &[Act::Start(handshake::exit_later)],
    ),
    plain(
        3,
        "exit-on-initialize",
        "ends when asked to initialize",
        &[Act::Initialize(handshake::exit_on_initialize)],
    ),
    plain(
        4,
        "never-initialize",
        "never answers initialize",
        &[Act::Initialize(handshake::never_initialize)],
    ),
    with(
        5,
        "answer-initialize-late",
        "answers initialize after a while",
        MILLISECONDS,
        1_000,
        &[Act::Initialize(handshake::initialize_late)],
    ),
    plain(
        6,
        "wrong-protocol-version",
        "names a protocol revision that never was",
        &[Act::Initialize(handshake::wrong_protocol_version)],
    ),
    plain(
        7,
        "initialize-twice",
        "answers initialize twice, differently",
        &[Act::Initialize(handshake::initialize_twice)],
    ),
    plain(
        8,
        "capabilities-null",
        "declares its capabilities as null",
        &[Act::Initialize(handshake::capabilities_null)],
    ),
    plain(
        9,
        "banner",
        "greets on stdout before speaking the protocol",
        &[Act::Start(lines::banner)],
    ),
    plain(
        10,
        "log-lines",
        "logs on stdout between messages, as text and as JSON",
        &[Act::Line(lines::log_between)],
    ),
    with(
        11,
        "partial-line",
        "pauses in the middle of each line",
        MILLISECONDS,
        50,
        &[Act::Line(lines::pause_inside)],
    ),
    plain(
        12,
        "one-byte-writes",
        "writes each line one byte at a time",
        &[Act::Line(lines::byte_by_byte)],
    ),
    plain(
        13,
        "odd-line-ends",
        "uses CRLF, blank lines and a byte order mark",
        &[Act::Line(lines::odd_ends)],
    ),
    plain(
        14,
        "invalid-utf8",
        "answers with bytes that are not UTF-8",
        &[Act::Answer(answers::invalid_utf8)],
    ),
    plain(
        15,
        "nul-bytes",
        "answers with NUL bytes around and inside",
        &[Act::Answer(answers::nul_bytes)],
    ),
    with(
        16,
        "endless-line",
        "writes without ever ending the line",
        BYTES,
        10_000_000_000,
        &[Act::Call(floods::endless_line)],
    ),
    with(
        17,
        "long-line",
        "answers with one very long valid line",
        BYTES,
        200_000_000,
        &[Act::Answer(floods::long_line)],
    ),
    with(
        18,
        "deep-json",
        "answers with deeply nested JSON",
        "levels",
        100_000,
        &[Act::Answer(answers::deep_json)],
    ),
    plain(
        19,
        "duplicate-keys",
        "answers with duplicate keys and keys that differ by case",
        &[Act::Answer(answers::duplicate_keys)],
    ),
    plain(20, "unknown-id", "answers a request nobody made", &[Act::Answer(answers::unknown_id)]),
    plain(
        21,
        "answer-twice",
        "answers the same request twice, differently",
        &[Act::Answer(answers::answer_twice)],
    ),
    plain(
        22,
        "foreign-id",
        "answers another call first, then its own",
        &[Act::Answer(answers::foreign_id)],
    ),
    with(
        23,
        "bent-id",
        "answers with the id as a string, a fraction or null",
        "1 string, 2 fraction, 3 null, 0 each in turn",
        0,
        &[Act::Answer(answers::bent_id)],
    ),
    plain(
        24,
        "answer-notification",
        "answers notifications",
        &[Act::Notification(answers::answer_notification)],
    ),
    plain(
        25,
        "result-and-error",
        "answers with a result and an error at once",
        &[Act::Answer(answers::result_and_error)],
    ),
    with(
        26,
        "list-changed-flood",
        "says over and over that its tools changed",
        COUNT,
        100_000,
        &[Act::Call(floods::list_changed)],
    ),
    with(
        27,
        "progress-flood",
        "reports progress without measure",
        COUNT,
        1_000_000,
        &[Act::Call(floods::progress)],
    ),
    with(
        28,
        "request-flood",
        "asks the client over and over",
        COUNT,
        10_000,
        &[Act::Call(floods::requests)],
    ),
    with(29, "ping-flood", "pings over and over", COUNT, 100_000, &[Act::Call(floods::pings)]),
    plain(
        30,
        "reuse-our-id",
        "asks something under the id of the call it is answering",
        &[Act::Answer(answers::reuse_our_id)],
    ),
    plain(
        31,
        "cancel-unknown",
        "cancels requests nobody made",
        &[Act::Answer(answers::cancel_unknown)],
    ),
    with(
        32,
        "many-tools",
        "lists very many tools",
        COUNT,
        100_000,
        &[Act::List(listing::many_tools)],
    ),
    plain(
        33,
        "looping-cursor",
        "pages its tools in a circle",
        &[Act::List(listing::looping_cursor)],
    ),
    with(
        34,
        "monstrous-schema",
        "lists a tool whose schema is huge, recursive and refers to the network",
        BYTES,
        64_000_000,
        &[Act::List(listing::monstrous_schema)],
    ),
    plain(
        35,
        "rug-pull",
        "describes its tools differently each time",
        &[Act::List(listing::rug_pull)],
    ),
    plain(
        36,
        "confusing-names",
        "lists names that collide, look alike or hold control characters",
        &[Act::List(listing::confusing_names)],
    ),
    plain(
        37,
        "die-before-reply",
        "runs the tool, then dies without an answer",
        &[Act::Call(calls::die_before_reply)],
    ),
    plain(38, "hang-after-effect", "runs the tool, then never answers", &[Act::Call(calls::hang)]),
    plain(39, "reply-then-die", "answers, then dies", &[Act::Answer(calls::reply_then_die)]),
    with(
        40,
        "reply-late",
        "answers after the caller gave up",
        MILLISECONDS,
        3_000,
        &[Act::Call(calls::reply_late)],
    ),
    with(
        41,
        "die-on-nth-call",
        "dies on its second call",
        "call number",
        2,
        &[Act::Call(calls::die_on_nth)],
    ),
    plain(42, "close-stdout", "closes stdout and lives on", &[Act::Call(calls::close_stdout)]),
    plain(
        43,
        "close-stdin",
        "closes stdin, answers and lives on",
        &[Act::Call(calls::close_stdin)],
    ),
    plain(44, "stop-reading", "reads nothing more", &[Act::Call(calls::stop_reading)]),
    with(45, "stderr-flood", "fills stderr", BYTES, 1_000_000_000, &[Act::Call(floods::stderr)]),
    plain(
        46,
        "ignore-end-of-input",
        "lives on when its input ends",
        &[Act::End(processes::ignore_end)],
    ),
    plain(47, "ignore-signals", "ignores polite signals", &[Act::Start(processes::ignore_signals)]),
    plain(
        48,
        "stop-itself",
        "stops itself in the middle of a call",
        &[Act::Call(processes::stop_itself)],
    ),
    plain(
        49,
        "session-grandchild",
        "starts a process in a session of its own",
        &[Act::Start(processes::session_grandchild)],
    ),
    plain(
        50,
        "daemon-holds-pipe",
        "starts a daemon that holds its pipes, and dies in the middle of a call",
        &[Act::Start(processes::daemon), Act::Call(calls::die_before_reply)],
    ),
    with(51, "fork-bomb", "starts many processes", COUNT, 32, &[Act::Call(processes::fork_bomb)]),
    with(
        52,
        "eat-memory",
        "takes a lot of memory",
        BYTES,
        2_000_000_000,
        &[Act::Call(processes::eat_memory)],
    ),
    with(
        53,
        "fill-directory",
        "fills its working directory",
        BYTES,
        64_000_000,
        &[Act::Call(processes::fill_directory)],
    ),
    plain(
        54,
        "kill-parent",
        "kills the process that started it",
        &[Act::Call(processes::kill_parent)],
    ),
    with(
        55,
        "zombies",
        "starts processes and never waits for them",
        COUNT,
        20,
        &[Act::Call(processes::zombies)],
    ),
    with(
        56,
        "slow-installer",
        "installs itself first, showing dots on stderr",
        MILLISECONDS,
        90_000,
        &[Act::Start(handshake::slow_installer)],
    ),
    plain(
        57,
        "exit-politely",
        "ends with code 0 in the middle of a call",
        &[Act::Call(calls::exit_politely)],
    ),
    plain(58, "dump-core", "aborts in the middle of a call", &[Act::Call(processes::dump_core)]),
    plain(
        59,
        "move-away",
        "changes its directory and file mode mask",
        &[Act::Start(processes::move_away)],
    ),
    plain(
        60,
        "look-around",
        "journals its environment and open files",
        &[Act::Start(processes::look_around)],
    ),
];

const fn plain(
    number: u8,
    name: &'static str,
    what: &'static str,
    acts: &'static [Act],
) -> Misbehaviour {
    Misbehaviour { number, name, what, parameter: None, acts }
}

const fn with(
    number: u8,
    name: &'static str,
    what: &'static str,
    unit: &'static str,
    default: u64,
    acts: &'static [Act],
) -> Misbehaviour {
    Misbehaviour { number, name, what, parameter: Some(Parameter { what: unit, default }), acts }
}
