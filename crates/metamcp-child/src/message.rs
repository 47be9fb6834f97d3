//! The protocol between the gateway and its shims over the control socket, and between a shim and its last stage.
//! Owns: the encoding.      Never: does I/O; a closed socket is the one message without an encoding.
//! In: frames.  Out: messages.      A frame is a length, a tag and a body, all little-endian.
//! Tests: below.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use metamcp_types::sandbox_policy::SandboxPolicy;

/// Bytes before the body: the body's length (4) and the tag (1).
pub(crate) const HEADER: usize = 5;

/// Longest body accepted. The kernel refuses to execute anything near this size.
const LONGEST_BODY: usize = 16 * 1024 * 1024;

/// From the gateway to a shim. Not printable: the first one carries secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Order {
    /// Run this. Comes once, with the server's stdin attached to the header.
    Start(Start),
    /// Send a signal to the leader only.
    SignalLeader(i32),
    /// Send signals, in this order, to everything in the container.
    SignalAll(Vec<i32>),
    /// Kill everything, then end.
    KillAll,
}

/// What to run, with the environment complete.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) sandbox_policy: Option<SandboxPolicy>,
}

impl Start {
    /// Reads an order to start, after its header.
    pub(crate) fn read_behind(first: [u8; HEADER], mut from: impl Read) -> io::Result<Start> {
        let (length, tag) = header(first)?;
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        match Order::decode(tag, &body)? {
            Order::Start(start) => Ok(start),
            _ => Err(malformed("an order to start was expected")),
        }
    }
}

/// From a shim to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The first stage made a namespace; this is its init, as the gateway sees it.
    Born {
        pid: i32,
    },
    /// The server runs; its pid as the shim sees it.
    Started {
        pid: i32,
    },
    /// The start failed, and nothing of it is left.
    Failed {
        stage: Stage,
        errno: i32,
    },
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
    },
}

/// The step at which a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Separating from our namespaces.
    Unshare = 1,
    /// Mapping the user into a user namespace.
    Map = 2,
    /// A private view of the mounts.
    Mounts = 3,
    /// A `/proc` of the new namespace.
    Proc = 4,
    /// Starting a stage of the shim itself.
    Shim = 5,
    /// Entering the working directory.
    Directory = 6,
    /// Executing the program.
    Exec = 7,
    /// Restricting file access.
    Sandbox = 8,
}

impl Stage {
    const ALL: [Stage; 8] = [
        Stage::Unshare,
        Stage::Map,
        Stage::Mounts,
        Stage::Proc,
        Stage::Shim,
        Stage::Directory,
        Stage::Exec,
        Stage::Sandbox,
    ];

    pub(crate) fn from_byte(byte: u8) -> Option<Stage> {
        Stage::ALL.into_iter().find(|&stage| stage as u8 == byte)
    }

    /// For the log.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Stage::Unshare => "new namespaces",
            Stage::Map => "user mapping",
            Stage::Mounts => "private mounts",
            Stage::Proc => "mounting /proc",
            Stage::Shim => "starting the shim",
            Stage::Directory => "working directory",
            Stage::Exec => "exec",
            Stage::Sandbox => "walls",
        }
    }

    /// Whether this is about the namespace, so that a start without one may still succeed.
    pub(crate) fn is_isolation(self) -> bool {
        matches!(self, Stage::Unshare | Stage::Map | Stage::Mounts | Stage::Proc)
    }
}

pub(crate) fn header(bytes: [u8; HEADER]) -> io::Result<(usize, u8)> {
    let [a, b, c, d, tag] = bytes;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > LONGEST_BODY {
        return Err(malformed("frame too long"));
    }
    Ok((length, tag))
}

impl Order {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Body::default();
        let tag = match self {
            Order::Start(start) => {
                body.bytes(start.program.as_bytes());
                body.list(start.args.iter().map(|arg| arg.as_bytes()));
                body.list(start.env.iter().flat_map(|(k, v)| [k.as_bytes(), v.as_bytes()]));
                body.list(start.cwd.iter().map(|cwd| path(cwd)));
                body.list(
                    start.sandbox_policy.iter().map(|sandbox_policy| path(&sandbox_policy.home)),
                );
                body.list(
                    start
                        .sandbox_policy
                        .iter()
                        .flat_map(|sandbox_policy| sandbox_policy.reads.iter().map(|at| path(at))),
                );
                body.list(
                    start
                        .sandbox_policy
                        .iter()
                        .flat_map(|sandbox_policy| sandbox_policy.writes.iter().map(|at| path(at))),
                );
                1
            }
            Order::SignalLeader(signal) => {
                body.number(*signal);
                2
            }
            Order::SignalAll(signals) => {
                for &signal in signals {
                    body.number(signal);
                }
                3
            }
            Order::KillAll => 4,
        };
        body.frame(tag)
    }

    pub(crate) fn decode(tag: u8, body: &[u8]) -> io::Result<Order> {
        let mut rest = Rest(body);
        let order = match tag {
            1 => {
                let program = rest.bytes()?.into();
                let args = rest.list()?;
                let mut flat = rest.list()?.into_iter();
                let mut env = Vec::new();
                while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
                    env.push((name, value));
                }
                let cwd = rest.list()?.into_iter().next().map(PathBuf::from);
                let home = rest.list()?.into_iter().next().map(PathBuf::from);
                let reads = rest.list()?.into_iter().map(PathBuf::from).collect();
                let writes = rest.list()?.into_iter().map(PathBuf::from).collect();
                let sandbox_policy = home.map(|home| SandboxPolicy { home, reads, writes });
                let program = OsString::from_vec(program);
                Order::Start(Start { program, args, env, cwd, sandbox_policy })
            }
            2 => Order::SignalLeader(rest.number()?),
            3 => {
                let mut signals = Vec::new();
                while !rest.0.is_empty() {
                    signals.push(rest.number()?);
                }
                Order::SignalAll(signals)
            }
            4 => Order::KillAll,
            _ => return Err(malformed("unknown order")),
        };
        Ok(order)
    }
}

impl Report {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Body::default();
        let tag = match *self {
            Report::Born { pid } => {
                body.number(pid);
                16
            }
            Report::Started { pid } => {
                body.number(pid);
                17
            }
            Report::Failed { stage, errno } => {
                body.number(i32::from(stage as u8));
                body.number(errno);
                18
            }
            Report::Exited { code, signal } => {
                body.number(code.unwrap_or(-1));
                body.number(signal.unwrap_or(-1));
                19
            }
        };
        body.frame(tag)
    }

    /// Takes the first complete report from the received bytes.
    pub(crate) fn take(inbox: &mut Vec<u8>) -> io::Result<Option<Report>> {
        let Some(first) = inbox.first_chunk::<HEADER>() else { return Ok(None) };
        let (length, tag) = header(*first)?;
        // Reports are two numbers at most; anything longer is not from our shim.
        if length > 8 {
            return Err(malformed("report too long"));
        }
        let Some(body) = inbox.get(HEADER..HEADER + length) else { return Ok(None) };
        let mut rest = Rest(body);
        let report = match tag {
            16 => Report::Born { pid: rest.number()? },
            17 => Report::Started { pid: rest.number()? },
            18 => {
                let stage = u8::try_from(rest.number()?).ok().and_then(Stage::from_byte);
                let stage = stage.ok_or_else(|| malformed("unknown stage"))?;
                Report::Failed { stage, errno: rest.number()? }
            }
            19 => {
                let mut optional = || rest.number().map(|number| (number >= 0).then_some(number));
                Report::Exited { code: optional()?, signal: optional()? }
            }
            _ => return Err(malformed("unknown report")),
        };
        inbox.drain(..HEADER + length);
        Ok(Some(report))
    }
}

fn path(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn number(&mut self, number: i32) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.extend(length.to_le_bytes());
        self.0.extend(bytes);
    }

    fn list<'a>(&mut self, items: impl Iterator<Item = &'a [u8]> + Clone) {
        self.number(i32::try_from(items.clone().count()).unwrap_or(i32::MAX));
        items.for_each(|item| self.bytes(item));
    }

    fn frame(self, tag: u8) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let mut frame = length.to_le_bytes().to_vec();
        frame.push(tag);
        frame.extend(self.0);
        frame
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn number(&mut self) -> io::Result<i32> {
        let (number, rest) =
            self.0.split_first_chunk::<4>().ok_or_else(|| malformed("frame too short"))?;
        self.0 = rest;
        Ok(i32::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| malformed("negative length"))?;
        let (bytes, rest) =
            self.0.split_at_checked(length).ok_or_else(|| malformed("frame too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn list(&mut self) -> io::Result<Vec<OsString>> {
        let count = self.number()?;
        (0..count).map(|_| Ok(OsString::from_vec(self.bytes()?.to_vec()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Order, Report, SandboxPolicy, Stage, Start, header};

    #[test]
    fn orders_survive_the_trip() {
        let start = Start {
            program: "node".into(),
            args: vec!["a b".into(), "".into(), "\n".into()],
            env: vec![("A".into(), "1=2".into()), ("B".into(), "".into())],
            cwd: Some("/tmp".into()),
            sandbox_policy: Some(SandboxPolicy {
                home: "/own".into(),
                reads: vec!["/r".into(), "/s p".into()],
                writes: Vec::new(),
            }),
        };
        for order in [
            Order::Start(start),
            Order::Start(Start::default()),
            Order::SignalLeader(15),
            Order::SignalAll(vec![15, 18]),
            Order::KillAll,
        ] {
            let frame = order.encode();
            let (length, tag) = header(*frame.first_chunk().unwrap()).unwrap();
            assert_eq!(length, frame.len() - HEADER);
            assert!(Order::decode(tag, &frame[HEADER..]).unwrap() == order);
        }
    }

    #[test]
    fn reports_survive_the_trip_in_any_pieces() {
        let reports = [
            Report::Born { pid: 7 },
            Report::Started { pid: 9 },
            Report::Failed { stage: Stage::Exec, errno: 2 },
            Report::Exited { code: Some(0), signal: None },
            Report::Exited { code: None, signal: Some(9) },
        ];
        let bytes: Vec<u8> = reports.iter().flat_map(Report::encode).collect();
        let (mut inbox, mut seen) = (Vec::new(), Vec::new());
        for byte in bytes {
            inbox.push(byte);
            seen.extend(Report::take(&mut inbox).unwrap());
        }
        assert_eq!(seen, reports);
        assert!(inbox.is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Report::take(&mut vec![255, 255, 255, 255, 1]).is_err());
        assert!(Report::take(&mut vec![0, 0, 0, 0, 99]).is_err());
        assert!(Order::decode(1, &[9, 0, 0, 0, 1]).is_err());
        assert!(Order::decode(77, &[]).is_err());
    }
}
