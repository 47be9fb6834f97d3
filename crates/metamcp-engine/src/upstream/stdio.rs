//! The stdio transport: a server as a contained child process, connected by pipes.
//! Owns: the pipes, how the process ends.      Never: restarts it; parses a line.
//! In: a command from the configuration; lines from the connection's outbox.  Out: lines to the connection; why it ended.
//! Tests: `metamcp/tests/hazards/`, `metamcp/tests/promises/`.

mod processes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::Fact;
use metamcp_child::{Escalation, ExitWatch, Handle, Parts, StderrTail, Stdin, Stdout};
use metamcp_config::config::{LocalCommand, ServerConfig};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use self::processes::{Processes, installs};
use super::transport::{Boxed, Surroundings, Transport};
use super::{Connection, Listener};
use crate::clock::Clock;
use crate::outbox::WriteEnd;
use crate::{stream, task};

/// How long a child may leave its input unread before it counts as stalled.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between the end of a child's output and its exit: enough to learn the exit code, too short to notice.
const EXIT_GRACE: Duration = Duration::from_millis(250);
/// Between a child's exit and the end of its output, which a grandchild may keep open.
const OUTPUT_GRACE: Duration = Duration::from_millis(150);
/// Probe timeout. Every server measured so far answers as soon as it runs; one that starts slowly finds probe and
/// `initialize`, and answers both in order.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

pub struct Stdio {
    handle: Handle,
    /// Until `serve` takes them.
    pipes: Mutex<Option<(Stdin, Stdout)>>,
    clock: Clock,
    line_bytes: usize,
}

impl fmt::Debug for Stdio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stdio({})", self.handle.pid())
    }
}

impl Stdio {
    pub async fn start(
        config: &ServerConfig,
        local: &LocalCommand,
        surroundings: &Surroundings<'_>,
    ) -> Result<Stdio, Fact> {
        let Surroundings { launcher, clock, line_bytes, client, .. } = surroundings;
        let Parts { stdin, stdout, handle } =
            launcher.processes.start(config, local, *client).await?;
        stream::widen(&stdout);
        let pipes = Mutex::new(Some((stdin, stdout)));
        Ok(Stdio { handle, pipes, clock: *clock, line_bytes: *line_bytes })
    }
}

impl Transport for Stdio {
    fn serve<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        listener: &'a Arc<dyn Listener>,
    ) -> Boxed<'a, Option<Fact>> {
        Box::pin(async move {
            let pipes = self.pipes.lock().take();
            let (stdin, mut stdout) = pipes?;
            let mut watch = self.handle.watch();
            let (writing, patience) = (Arc::clone(connection), Some((self.clock, WRITE_TIMEOUT)));
            let mut writer =
                task::spawn(
                    "writer",
                    async move { writing.outbox.write_to(stdin, patience).await },
                );
            let reading = connection.read_from(&mut stdout, self.line_bytes, &**listener);
            let fact = talk(reading, &mut writer, &mut watch).await;
            task::spawn("drain", drain(stdout, writer, watch));
            Some(fact)
        })
    }

    fn ended(&self) -> Boxed<'_, ()> {
        Box::pin(async { self.handle.watch().empty().await })
    }

    fn close(&self, escalation: Escalation) -> Boxed<'_, ()> {
        Box::pin(self.handle.stop(escalation))
    }

    fn kill(&self) {
        self.handle.kill_now();
    }

    fn probe_patience(&self) -> Duration {
        PROBE_TIMEOUT
    }

    fn is_restartable(&self) -> bool {
        true
    }

    fn activity(&self) -> u64 {
        self.handle.activity()
    }

    fn pid(&self) -> Option<u32> {
        Some(self.handle.pid()).filter(|pid| *pid != 0)
    }

    fn stderr(&self) -> StderrTail {
        self.handle.stderr()
    }
}

/// Reads and writes until the process exits or is unusable, and returns which.
async fn talk(
    reading: impl Future<Output = Fact>,
    writer: &mut JoinHandle<WriteEnd>,
    watch: &mut ExitWatch,
) -> Fact {
    let leaving = watch.clone();
    tokio::pin!(reading);
    let mut writing = true;
    let fact = loop {
        tokio::select! {
            fact = &mut reading => break fact,
            exit = leaving.exited() => {
                // Its remaining output is read first.
                drop(timeout(OUTPUT_GRACE, &mut reading).await);
                return Fact::Exited { code: exit.code, signal: exit.signal };
            }
            end = &mut *writer, if writing => match end {
                Ok(WriteEnd::Stalled(after)) => return Fact::Stalled { after },
                Ok(WriteEnd::Broken(_)) | Err(_) => {
                    // It may be about to exit, which makes the better error; its output until then counts.
                    let read_on = timeout(EXIT_GRACE, &mut reading).await;
                    break read_on.unwrap_or(Fact::InputClosed);
                }
                Ok(WriteEnd::Closed) => writing = false,
            },
        }
    };
    match fact {
        Fact::OutputClosed | Fact::InputClosed => match timeout(EXIT_GRACE, watch.exited()).await {
            Ok(exit) => Fact::Exited { code: exit.code, signal: exit.signal },
            Err(_) => fact,
        },
        other => other,
    }
}

/// Discards what a process still writes while it is shut down: blocked on a full pipe it could not exit.
async fn drain(mut stdout: Stdout, writer: JoinHandle<WriteEnd>, watch: ExitWatch) {
    let mut rest = vec![0; 64 * 1024];
    loop {
        tokio::select! {
            () = watch.empty() => break,
            read = stdout.read(&mut rest) => if !matches!(read, Ok(1..)) { break },
        }
    }
    watch.empty().await;
    writer.abort();
}
