//! Workers kept ready, each checked before it is handed out.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{fs, io, io::Read as _};

use nix::errno::Errno;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use tokio::net::UnixStream;
use tokio::net::unix::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::spawn::{Process, Spawner, Started};
use super::{Launch, Profile, WorkerError};
use crate::layer;
use crate::protocol::{Frames, FromWorker, MissingLayer};

/// How long a worker may take to be ready. It takes milliseconds; a machine that is short of memory
/// takes its time.
const START: Duration = Duration::from_secs(10);

/// How long the next worker is not started after one was taken while others wait. Starting it takes as
/// much of a processor as many a script, and a short one is over by then.
const REFILL_DELAY: Duration = Duration::from_millis(3);

/// More than the kernel says of a process.
const STATUS: usize = 8 * 1024;

/// Bytes taken from a socket at once.
pub(super) const PIECE: usize = 64 * 1024;

/// Workers kept ready. The first one is started by the first [`Workers::take`], so that a gateway that
/// never runs a script starts none.
#[derive(Debug, Clone)]
pub struct Workers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    launch: Launch,
    profile: Profile,
    ready: usize,
    spawner: OnceLock<Spawner>,
    pool: Mutex<Pool>,
    /// Somebody waits: those that take a breath before they start do so now.
    hurry: Notify,
}

#[derive(Debug, Default)]
struct Pool {
    waiting: VecDeque<Worker>,
    /// Workers on their way into the pool.
    starting: usize,
    /// Those who wait for one of them, the first one first. Never more than are coming.
    waiters: VecDeque<oneshot::Sender<Worker>>,
}

impl Workers {
    /// Workers started by `launch` and checked against `profile`, with `ready` of them waiting.
    pub fn new(launch: Launch, profile: Profile, ready: usize) -> Workers {
        let spawner = OnceLock::new();
        let pool = Mutex::default();
        let hurry = Notify::new();
        let shared = Shared { launch, profile, ready, spawner, pool, hurry };
        Workers { shared: Arc::new(shared) }
    }

    /// A worker that has proven every layer of the profile; for one run.
    ///
    /// # Errors
    /// A layer that is not to be had, or a worker that does not start. Neither heals by asking again.
    pub async fn take(&self) -> Result<Worker, WorkerError> {
        let worker = loop {
            match self.shared.next() {
                // One that died while it waited is passed over.
                NextWorker::Waiting(worker) if worker.is_waiting() => break worker,
                NextWorker::Waiting(_) => {}
                // If it does not come after all, another is started, and what fails then is told.
                NextWorker::Starting(starting) => {
                    if let Ok(worker) = starting.await {
                        break worker;
                    }
                }
                NextWorker::None => break self.shared.prepare().await?,
            }
        };
        self.refill();
        Ok(worker)
    }

    /// How many are waiting, for those who look.
    pub fn waiting(&self) -> usize {
        self.shared.pool().waiting.len()
    }

    /// Starts as many as are missing, in the background.
    fn refill(&self) {
        let (missing, pause) = {
            let mut pool = self.shared.pool();
            let missing = self.shared.ready.saturating_sub(pool.waiting.len() + pool.starting);
            pool.starting += missing;
            (missing, if pool.waiting.is_empty() { Duration::ZERO } else { REFILL_DELAY })
        };
        for _ in 0..missing {
            let starting = StartingWorker(Arc::clone(&self.shared));
            tokio::spawn(async move {
                if !pause.is_zero() {
                    timeout(pause, starting.0.hurry.notified()).await.ok();
                }
                // One that cannot be had now is refused to whoever asks next, with the reason.
                if let Ok(worker) = starting.0.prepare().await {
                    starting.0.arrived(worker);
                }
            });
        }
    }
}

/// One worker on its way. Counted until it is there, or will not come.
struct StartingWorker(Arc<Shared>);

impl Drop for StartingWorker {
    fn drop(&mut self) {
        let mut pool = self.0.pool();
        pool.starting -= 1;
        // Who waits for one that will not come looks again.
        let starting = pool.starting;
        pool.waiters.truncate(starting);
    }
}

/// Where the next worker is from.
enum NextWorker {
    /// It waits.
    Waiting(Worker),
    /// It is being started. That one is there sooner than a new one, and starting both takes longer.
    Starting(oneshot::Receiver<Worker>),
    /// None is waiting, and all that are coming are promised.
    None,
}

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> NextWorker {
        let mut pool = self.pool();
        if let Some(worker) = pool.waiting.pop_front() {
            return NextWorker::Waiting(worker);
        }
        pool.waiters.retain(|who| !who.is_closed());
        if pool.waiters.len() >= pool.starting {
            return NextWorker::None;
        }
        let (who, starting) = oneshot::channel();
        pool.waiters.push_back(who);
        drop(pool);
        self.hurry.notify_waiters();
        NextWorker::Starting(starting)
    }

    /// To whoever waits for it, or into the pool.
    fn arrived(&self, mut worker: Worker) {
        let mut pool = self.pool();
        while let Some(who) = pool.waiters.pop_front() {
            match who.send(worker) {
                Ok(()) => return,
                // Who wanted it gave up.
                Err(back) => worker = back,
            }
        }
        pool.waiting.push_back(worker);
    }

    async fn prepare(&self) -> Result<Worker, WorkerError> {
        let refused = |error: io::Error| {
            let reason = error.to_string();
            match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EMFILE | Errno::ENFILE) => WorkerError::Files { reason },
                _ => WorkerError::Start { reason },
            }
        };
        let spawner = match self.spawner.get() {
            Some(spawner) => spawner.clone(),
            None => {
                let made = Spawner::new(self.launch.clone()).map_err(refused)?;
                self.spawner.get_or_init(|| made).clone()
            }
        };
        let Started { process, socket } = spawner.start().await.map_err(refused)?;
        let mut worker =
            Worker { process: Some(process), spawner, socket: None, frames: Frames::default() };
        worker.socket = Some(UnixStream::from_std(socket).map_err(refused)?);
        let ready = match timeout(START, worker.hear()).await {
            Ok(ready) => ready,
            Err(_) => Err(format!("it said nothing for {} s", START.as_secs())),
        };
        match ready {
            Ok(FromWorker::Ready { layers, missing }) => {
                self.check(worker.id(), &layers, &missing)?;
                Ok(worker)
            }
            Ok(other) => Err(WorkerError::Start { reason: format!("it began with {other:?}") }),
            Err(reason) => Err(WorkerError::Start { reason }),
        }
    }

    /// Whether everything the profile demands is in force, by the worker's word and by the kernel's.
    fn check(
        &self,
        pid: u32,
        layers: &[String],
        missing: &[MissingLayer],
    ) -> Result<(), WorkerError> {
        // What the worker itself says is missing tells more than what is merely not in its list.
        let told = missing.iter().find(|told| self.profile.demands().any(|one| one == told.layer));
        if let Some(told) = told {
            return Err(WorkerError::Layer {
                layer: told.layer.clone(),
                reason: told.reason.clone(),
            });
        }
        for demanded in self.profile.demands() {
            if !layers.iter().any(|layer| layer == demanded) {
                let word = self.profile.word();
                let reason = format!("this build has none, and the profile {word} demands it");
                return Err(WorkerError::Layer { layer: demanded.to_owned(), reason });
            }
        }
        // The process we know is the one that speaks with the engine; the worker is out of sight, which is the point.
        if self.profile == Profile::Docker {
            return Ok(());
        }
        // Where /proc is closed to us there is nothing to compare with; no code of a guest ran yet.
        let Some(status) = status(pid) else { return Ok(()) };
        for (layer, line) in
            [(layer::NO_NEW_PRIVILEGES, "NoNewPrivs:\t1"), (layer::SECCOMP, "Seccomp:\t2")]
        {
            if !status.lines().any(|found| found == line) {
                let reason =
                    format!("the kernel does not confirm it: no {line:?} in /proc/{pid}/status");
                return Err(WorkerError::Layer { layer: layer.to_owned(), reason });
            }
        }
        Ok(())
    }
}

/// What the kernel says of a process, in one piece: read as a file it comes in eight, since its length is not known.
fn status(pid: u32) -> Option<String> {
    let mut text = String::with_capacity(STATUS);
    fs::File::open(format!("/proc/{pid}/status")).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A locked-down process waiting for its one script. Dropping it kills it.
#[derive(Debug)]
pub struct Worker {
    process: Option<Process>,
    spawner: Spawner,
    socket: Option<UnixStream>,
    pub(super) frames: Frames,
}

impl Worker {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Process::id)
    }

    /// The socket. It is there as long as the worker is.
    pub(super) fn socket(&self) -> &UnixStream {
        self.socket.as_ref().expect("set when the worker was made")
    }

    /// Both directions of it, each by itself.
    pub(super) fn halves(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        self.socket.as_mut().expect("set when the worker was made").split()
    }

    /// Processor time used by the process so far. Nothing once it cannot be told.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        let pid = Pid::from_raw(i32::try_from(self.id()).ok()?);
        let clock: ClockId = clock_getcpuclockid(pid).ok()?;
        clock_gettime(clock).ok().map(Duration::from)
    }

    /// Kills it, and says how it had ended if it had before.
    pub(super) fn end(mut self) -> Option<oneshot::Receiver<ExitStatus>> {
        self.process.take().map(|process| self.spawner.reap(process))
    }

    /// The next message.
    async fn hear(&mut self) -> Result<FromWorker, String> {
        let mut piece = [0; 4096];
        loop {
            match self.frames.next_frame() {
                Ok(Some(frame)) => {
                    return FromWorker::decode(frame).map_err(|violation| violation.to_string());
                }
                Ok(None) => {}
                Err(violation) => return Err(violation.to_string()),
            }
            let socket = self.socket.as_ref().expect("set when the worker was made");
            socket.readable().await.map_err(|error| error.to_string())?;
            match socket.try_read(&mut piece) {
                Ok(0) => return Err("it ended before it was ready".to_owned()),
                Ok(count) => self.frames.push(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Whether it still waits: it has closed nothing and said nothing.
    fn is_waiting(&self) -> bool {
        matches!(
            self.socket().try_read(&mut [0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock
        )
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            drop(self.spawner.reap(process));
        }
    }
}
