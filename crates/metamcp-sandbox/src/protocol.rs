//! The wire protocol between gateway and worker: length-prefixed frames over one socket.
//! Owns: encoding and decoding of both directions, and their bounds.      Never: does I/O, trusts a length or a value.
//! In: messages, or bytes from the peer.  Out: bytes, or messages.
//! Tests: `protocol/tests.rs`, and `fuzz/fuzz_targets/sandbox.rs`.
//!
//! A frame is four bytes of length (little endian, of what follows), one byte of kind, and the fields one
//! after the other: numbers in little endian, texts as four bytes of length and UTF-8, optional fields as
//! a byte 0 or 1 before them. Nothing may be left over. The engine may be under an attacker's control, so
//! the gateway kills a worker that sends an invalid frame.

mod fields;
#[cfg(test)]
mod tests;

use self::fields::{Reader, Writer};

/// The longest frame. The largest result (10 MiB) fits, with its overhead.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;

/// The most servers a job can name; configurations have tens.
pub const MAX_SERVERS: usize = 4_096;

/// The most entries of any other list; they are layers and identifiers, of which there are a handful.
const MAX_ENTRIES: usize = 64;

/// Bytes of the length prefix.
const HEADER: usize = 4;

/// Why a frame is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// A length above [`MAX_FRAME`].
    #[error("a frame of {length} bytes, {MAX_FRAME} at most")]
    TooLong {
        /// What it claims.
        length: usize,
    },
    /// A field ends after its frame.
    #[error("a frame cut short in {field}")]
    Short {
        /// Which one.
        field: &'static str,
    },
    /// Something after the last field.
    #[error("a frame with {bytes} bytes left over")]
    Left {
        /// How many.
        bytes: usize,
    },
    /// A text that is not UTF-8.
    #[error("a frame with a text that is not UTF-8 in {field}")]
    Text {
        /// Which one.
        field: &'static str,
    },
    /// An unknown discriminant.
    #[error("a frame with the unknown {field} {value}")]
    Unknown {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: u8,
    },
    /// A text that is not the expected JSON.
    #[error("a frame with something else than the JSON that belongs in {field}")]
    Json {
        /// Which one.
        field: &'static str,
    },
    /// A value that a correct worker never sends.
    #[error("a frame with {field} out of bounds")]
    Bounds {
        /// Which field.
        field: &'static str,
    },
    /// A list that is too long.
    #[error("a frame with {count} entries in {field}")]
    TooMany {
        /// Which field.
        field: &'static str,
        /// How many it claims.
        count: usize,
    },
}

/// The operations of a script: payload → response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `{"server","tool","arguments"}` → the tool's whole result (`content`, `structuredContent`, `isError`).
    Call,
    /// `{"query","options"}` → the return value of `tools.search`.
    Search,
    /// `{"server","tool"}`, or `{"server": "server.tool", "tool": null}` → the return value of `tools.describe`.
    Describe,
    /// `{"server","options"}`, null for all → the return value of `tools.list`.
    List,
    /// `{"server","tool"}`, null for all → a JSON string with declarations.
    Types,
    /// `{"handle","options"}` → the value stored under it.
    ResultsGet,
    /// `{"value"}` → a JSON string: the handle.
    ResultsPut,
    /// `{"group","total","index","item"}`: what an item of a `parallel` came to; `{"group"}`: that one ended. Has no
    /// response, and no [`crate::host::Host`] sees it.
    Partial,
    /// `{"group"}` → the handle under which the items of that group are kept. A host sees it as `ResultsPut`.
    Keep,
}

/// Console level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// `console.debug`
    Debug,
    /// `console.log`, `console.info`
    Info,
    /// `console.warn`
    Warn,
    /// `console.error`
    Error,
}

/// A server as the script sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name, in `servers["name"]` and in requests.
    pub name: String,
    /// Globals that refer to it as well. An existing global (`console`) is not replaced.
    pub identifiers: Vec<String>,
}

/// An error of the script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScriptError {
    /// `TypeError`, `ToolError`, ...
    pub name: String,
    /// The message, bounded.
    pub message: String,
    /// Line in the source, from 1.
    pub line: Option<u32>,
    /// Column in that line, from 1.
    pub column: Option<u32>,
    /// Stack frames of the script, one a line, with positions in the source.
    pub stack: String,
    /// Facts as a JSON object: of a `ToolError`; of a `LimitError` its `limit` and `value`; of a `TypeError` in `seen`
    /// what each tool gave last.
    pub tool_error: Option<String>,
}

/// A layer of the lockdown that is not in force, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingLayer {
    /// Which one.
    pub layer: String,
    /// What the kernel said.
    pub reason: String,
}

/// How the script ended, as the worker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With a value, as JSON.
    Ok {
        /// The JSON.
        value: String,
    },
    /// With an uncaught error.
    Error(ScriptError),
    /// It waits for a promise that nothing can settle.
    Deadlock,
    /// The heap limit was hit.
    MemoryLimit(ScriptError),
    /// The CPU limit was hit.
    CpuLimit,
    /// The value as JSON is longer than allowed.
    ResultLimit {
        /// How long it is.
        bytes: u64,
    },
}

/// Messages of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum FromWorker {
    /// The realm is built and the lockdown applied.
    Ready {
        /// The layers that are in force.
        layers: Vec<String>,
        /// Those that are not.
        missing: Vec<MissingLayer>,
    },
    /// A request of the script.
    Request {
        /// Consecutive per worker.
        id: u32,
        /// The operation.
        op: Op,
        /// One JSON object.
        payload: String,
    },
    /// A console line.
    Log {
        /// How it was logged.
        level: Level,
        /// The line.
        text: String,
    },
    /// Console output above the limit, which was not sent.
    LogsDropped {
        /// How many bytes.
        bytes: u64,
    },
    /// Progress of the script.
    Progress {
        /// Progress so far.
        value: f64,
        /// The value at the end.
        total: Option<f64>,
        /// For people.
        message: Option<String>,
    },
    /// The end; nothing follows.
    Done {
        /// How.
        end: End,
        /// CPU time used, in microseconds.
        cpu: u64,
    },
}

/// The limits a worker enforces on itself. The gateway enforces these and all others from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// CPU time, in microseconds.
    pub cpu: u64,
    /// Heap, in bytes.
    pub heap: u64,
    /// Stack, in bytes.
    pub stack: u64,
    /// The longest sleep, in milliseconds.
    pub sleep: u64,
    /// Console output, in bytes.
    pub logs: u64,
    /// The value as JSON, in bytes.
    pub result: u64,
    /// Tool calls.
    pub calls: u64,
}

/// Messages of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToWorker {
    /// The one script of this worker.
    Job {
        /// JavaScript.
        code: String,
        /// Its limits.
        limits: WorkerLimits,
        /// The servers in its scope.
        servers: Vec<Server>,
    },
    /// The response to a request.
    Reply {
        /// Consecutive per worker.
        id: u32,
        /// The result or the error, both as JSON.
        answer: Result<String, String>,
    },
}

impl FromWorker {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer::begin(out);
        match self {
            FromWorker::Ready { layers, missing } => {
                w.byte(1);
                w.count(layers.len());
                for layer in layers {
                    w.text(layer);
                }
                w.count(missing.len());
                for MissingLayer { layer, reason } in missing {
                    w.text(layer);
                    w.text(reason);
                }
            }
            FromWorker::Request { id, op, payload } => {
                w.byte(2);
                w.four(*id);
                w.byte(op.number());
                w.text(payload);
            }
            FromWorker::Log { level, text } => {
                w.byte(3);
                w.byte(level.number());
                w.text(text);
            }
            FromWorker::LogsDropped { bytes } => {
                w.byte(4);
                w.eight(*bytes);
            }
            FromWorker::Progress { value, total, message } => {
                w.byte(5);
                w.eight(value.to_bits());
                w.option(total.as_ref(), |w, total| w.eight(total.to_bits()));
                w.option(message.as_ref(), |w, message| w.text(message));
            }
            FromWorker::Done { end, cpu } => {
                w.byte(6);
                match end {
                    End::Ok { value } => {
                        w.byte(1);
                        w.text(value);
                    }
                    End::Error(error) => {
                        w.byte(2);
                        w.error(error);
                    }
                    End::Deadlock => w.byte(3),
                    End::MemoryLimit(error) => {
                        w.byte(4);
                        w.error(error);
                    }
                    End::CpuLimit => w.byte(5),
                    End::ResultLimit { bytes } => {
                        w.byte(6);
                        w.eight(*bytes);
                    }
                }
                w.eight(*cpu);
            }
        }
        w.end();
    }

    /// Decodes the content of a frame.
    pub fn decode(frame: &[u8]) -> Result<FromWorker, ProtocolViolation> {
        let mut r = Reader::new(frame);
        let message = match r.byte("kind")? {
            1 => FromWorker::Ready {
                layers: r.list("layers", MAX_ENTRIES, |r| r.text("layer"))?,
                missing: r.list("missing", MAX_ENTRIES, |r| {
                    Ok(MissingLayer { layer: r.text("layer")?, reason: r.text("reason")? })
                })?,
            },
            2 => FromWorker::Request {
                id: r.four("id")?,
                op: Op::of(r.byte("op")?)?,
                payload: r.text("payload")?,
            },
            3 => FromWorker::Log { level: Level::of(r.byte("level")?)?, text: r.text("text")? },
            4 => FromWorker::LogsDropped { bytes: r.eight("bytes")? },
            5 => FromWorker::Progress {
                value: f64::from_bits(r.eight("value")?),
                total: r.option("total", |r| Ok(f64::from_bits(r.eight("total")?)))?,
                message: r.option("message", |r| r.text("message"))?,
            },
            6 => FromWorker::Done {
                end: match r.byte("end")? {
                    1 => End::Ok { value: r.text("value")? },
                    2 => End::Error(r.error()?),
                    3 => End::Deadlock,
                    4 => End::MemoryLimit(r.error()?),
                    5 => End::CpuLimit,
                    6 => End::ResultLimit { bytes: r.eight("bytes")? },
                    value => return Err(ProtocolViolation::Unknown { field: "end", value }),
                },
                cpu: r.eight("cpu")?,
            },
            value => return Err(ProtocolViolation::Unknown { field: "kind", value }),
        };
        r.finished()?;
        Ok(message)
    }
}

impl ToWorker {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer::begin(out);
        match self {
            ToWorker::Job { code, limits, servers } => {
                w.byte(1);
                w.text(code);
                let WorkerLimits { cpu, heap, stack, sleep, logs, result, calls } = *limits;
                for n in [cpu, heap, stack, sleep, logs, result, calls] {
                    w.eight(n);
                }
                w.count(servers.len());
                for Server { name, identifiers } in servers {
                    w.text(name);
                    w.count(identifiers.len());
                    for identifier in identifiers {
                        w.text(identifier);
                    }
                }
            }
            ToWorker::Reply { id, answer } => {
                w.byte(2);
                w.four(*id);
                w.byte(u8::from(answer.is_ok()));
                match answer {
                    Ok(json) | Err(json) => w.text(json),
                }
            }
        }
        w.end();
    }

    /// Decodes the content of a frame.
    pub fn decode(frame: &[u8]) -> Result<ToWorker, ProtocolViolation> {
        let mut r = Reader::new(frame);
        let message = match r.byte("kind")? {
            1 => ToWorker::Job {
                code: r.text("code")?,
                limits: WorkerLimits {
                    cpu: r.eight("cpu")?,
                    heap: r.eight("heap")?,
                    stack: r.eight("stack")?,
                    sleep: r.eight("sleep")?,
                    logs: r.eight("logs")?,
                    result: r.eight("result")?,
                    calls: r.eight("calls")?,
                },
                servers: r.list("servers", MAX_SERVERS, |r| {
                    Ok(Server {
                        name: r.text("server")?,
                        identifiers: r
                            .list("identifiers", MAX_ENTRIES, |r| r.text("identifier"))?,
                    })
                })?,
            },
            2 => {
                let id = r.four("id")?;
                let answer = match r.byte("answer")? {
                    0 => Err(r.text("error")?),
                    1 => Ok(r.text("value")?),
                    value => return Err(ProtocolViolation::Unknown { field: "answer", value }),
                };
                ToWorker::Reply { id, answer }
            }
            value => return Err(ProtocolViolation::Unknown { field: "kind", value }),
        };
        r.finished()?;
        Ok(message)
    }
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 9] = [
        Op::Call,
        Op::Search,
        Op::Describe,
        Op::List,
        Op::Types,
        Op::ResultsGet,
        Op::ResultsPut,
        Op::Partial,
        Op::Keep,
    ];

    /// As the prelude calls it.
    pub fn word(self) -> &'static str {
        match self {
            Op::Call => "call",
            Op::Search => "search",
            Op::Describe => "describe",
            Op::List => "list",
            Op::Types => "types",
            Op::ResultsGet => "results_get",
            Op::ResultsPut => "results_put",
            Op::Partial => "partial",
            Op::Keep => "keep",
        }
    }

    /// Whether it has a response.
    pub(crate) fn is_answered(self) -> bool {
        self != Op::Partial
    }

    fn number(self) -> u8 {
        self as u8
    }

    /// By number, as the prelude uses them.
    pub(crate) fn of(value: u8) -> Result<Op, ProtocolViolation> {
        Op::ALL
            .get(usize::from(value))
            .copied()
            .ok_or(ProtocolViolation::Unknown { field: "op", value })
    }
}

impl Level {
    const ALL: [Level; 4] = [Level::Debug, Level::Info, Level::Warn, Level::Error];

    fn number(self) -> u8 {
        self as u8
    }

    /// By number, as the prelude uses them.
    pub(crate) fn of(value: u8) -> Result<Level, ProtocolViolation> {
        Level::ALL
            .get(usize::from(value))
            .copied()
            .ok_or(ProtocolViolation::Unknown { field: "level", value })
    }
}

/// Splits a byte stream into frames. Holds only what arrived: a length prefix alone reserves nothing.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: Vec<u8>,
    start: usize,
}

impl Frames {
    /// Appends what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The content of the next frame, if it is complete.
    ///
    /// # Errors
    /// A length above the maximum. The stream is unusable after it.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, ProtocolViolation> {
        let rest = &self.buffer[self.start..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MAX_FRAME {
            return Err(ProtocolViolation::TooLong { length });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + HEADER;
        self.start = from + length;
        Ok(Some(&self.buffer[from..from + length]))
    }

    /// Buffered bytes.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.start
    }
}
