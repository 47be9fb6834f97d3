//! The pool of idle workers, each checked before it is handed out.

use std::collections::VecDeque;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io, io::Read as _};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::link::{Inward, Link, Outward};
use super::process::{Process, is_out_of_files, processor_time};
use super::spawn::Spawner;
use super::{Launch, Profile, WorkerError};
use crate::layer;
use crate::protocol::{Frames, FromWorker, MissingLayer};

/// Time for a worker to be ready. It takes milliseconds, unless the machine is short of memory.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Delay of a refill while the pool is not empty. Starting a worker takes as much CPU as many a script, and a
/// short one is over by then.
const REFILL_DELAY: Duration = Duration::from_millis(3);

/// Larger than `/proc/PID/status`.
const STATUS: usize = 8 * 1024;

/// Bytes taken from a socket at once.
pub(super) const PIECE: usize = 64 * 1024;

/// The pool. Empty until the first [`Workers::take`], so that a gateway that never runs a script starts no worker.
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
    /// Somebody waits: delayed refills start now.
    hurry: Notify,
}

#[derive(Debug, Default)]
struct Pool {
    waiting: VecDeque<Worker>,
    /// Workers being started.
    starting: usize,
    /// Takers waiting for one of them, in order. Never more than are being started.
    waiters: VecDeque<oneshot::Sender<Worker>>,
}

impl Workers {
    /// A pool of `ready` idle workers, started by `launch` and checked against `profile`.
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
    /// A layer is missing, or a worker does not start. Retrying does not help.
    pub async fn take(&self) -> Result<Worker, WorkerError> {
        let worker = loop {
            match self.shared.next() {
                // One that died while it was idle is skipped.
                NextWorker::Waiting(worker) if worker.is_waiting() => break worker,
                NextWorker::Waiting(_) => {}
                // If it fails, another is started, and that failure is returned.
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

    /// The number of idle workers.
    pub fn waiting(&self) -> usize {
        self.shared.pool().waiting.len()
    }

    /// Starts the missing workers in the background.
    #[expect(clippy::disallowed_methods, reason = "tasks have names in the engine, which is above")]
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
                // A failure is reported to the next taker, whose own attempt fails alike.
                if let Ok(worker) = starting.0.prepare().await {
                    starting.0.arrived(worker);
                }
            });
        }
    }
}

/// Counts a worker as starting until it is ready or has failed.
struct StartingWorker(Arc<Shared>);

impl Drop for StartingWorker {
    fn drop(&mut self) {
        let mut pool = self.0.pool();
        pool.starting -= 1;
        // A taker that waits for a failed one tries again.
        let starting = pool.starting;
        pool.waiters.truncate(starting);
    }
}

/// The source of the next worker.
enum NextWorker {
    /// An idle one.
    Waiting(Worker),
    /// One being started, which is ready sooner than a new one.
    Starting(oneshot::Receiver<Worker>),
    /// None is idle, and those being started have takers.
    None,
}

impl Shared {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
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

    /// Hands a worker to the first taker, or puts it into the pool.
    fn arrived(&self, mut worker: Worker) {
        let mut pool = self.pool();
        while let Some(who) = pool.waiters.pop_front() {
            match who.send(worker) {
                Ok(()) => return,
                // That taker has gone.
                Err(back) => worker = back,
            }
        }
        pool.waiting.push_back(worker);
    }

    async fn prepare(&self) -> Result<Worker, WorkerError> {
        let refused = |error: io::Error| {
            let reason = error.to_string();
            match is_out_of_files(&error) {
                true => WorkerError::Files { reason },
                false => WorkerError::Start { reason },
            }
        };
        if self.profile.needs_lockdown() && !cfg!(target_os = "linux") {
            return Err(WorkerError::Platform { system: std::env::consts::OS });
        }
        if self.launch.program.as_os_str().is_empty() {
            return Err(WorkerError::Engine);
        }
        let spawner = match self.spawner.get() {
            Some(spawner) => spawner.clone(),
            None => {
                let made = Spawner::new(self.launch.clone(), self.profile).map_err(refused)?;
                self.spawner.get_or_init(|| made).clone()
            }
        };
        let mut started = spawner.start().await.map_err(refused)?;
        let missing_around = std::mem::take(&mut started.missing);
        let (process, connection) = started.into_parts();
        let mut worker = Worker {
            process: Some(process),
            spawner,
            link: None,
            frames: Frames::default(),
            layers: Vec::new(),
            missing: missing_around,
        };
        worker.link = Some(connection.into_link().map_err(refused)?);
        let ready = match timeout(START_TIMEOUT, worker.receive()).await {
            Ok(ready) => ready,
            Err(_) => Err(format!("it said nothing for {} s", START_TIMEOUT.as_secs())),
        };
        match ready {
            Ok(FromWorker::Ready { layers, missing }) => {
                self.check(worker.id(), &layers, &missing)?;
                // The gateway's reason is the cause of the worker's.
                let told = |layer: &str| worker.missing.iter().any(|known| known.layer == layer);
                let further: Vec<_> = missing.into_iter().filter(|one| !told(&one.layer)).collect();
                worker.missing.extend(further);
                worker.layers = layers;
                Ok(worker)
            }
            Ok(other) => Err(WorkerError::Start { reason: format!("it began with {other:?}") }),
            Err(reason) => Err(WorkerError::Start { reason }),
        }
    }

    /// Checks that every layer of the profile is in force: as the worker reports, and as the kernel confirms.
    fn check(
        &self,
        pid: u32,
        layers: &[String],
        missing: &[MissingLayer],
    ) -> Result<(), WorkerError> {
        // The worker's own reason says more than the absence from its list.
        let missing =
            missing.iter().find(|one| self.profile.demands().any(|name| name == one.layer));
        if let Some(missing) = missing {
            return Err(WorkerError::Layer {
                layer: missing.layer.clone(),
                reason: missing.reason.clone(),
            });
        }
        for demanded in self.profile.demands() {
            if !layers.iter().any(|layer| layer == demanded) {
                let word = self.profile.word();
                let reason = format!("this build has none, and the profile {word} demands it");
                return Err(WorkerError::Layer { layer: demanded.to_owned(), reason });
            }
        }
        // The process we know is the Docker client; the worker is in the container.
        if self.profile == Profile::Docker {
            return Ok(());
        }
        // Without /proc there is nothing to compare with; no guest code has run yet.
        let Some(status) = status(pid) else { return Ok(()) };
        for (layer, line) in
            [(layer::NO_NEW_PRIVILEGES, "NoNewPrivs:\t1"), (layer::SECCOMP, "Seccomp:\t2")]
        {
            // What is not demanded need not be there, and is confirmed where it is said to be.
            if !layers.iter().any(|claimed| claimed == layer) {
                continue;
            }
            if !status.lines().any(|found| found == line) {
                let reason =
                    format!("the kernel does not confirm it: no {line:?} in /proc/{pid}/status");
                return Err(WorkerError::Layer { layer: layer.to_owned(), reason });
            }
        }
        Ok(())
    }
}

/// `/proc/PID/status`, in one read: `fs::read_to_string` takes eight, since the length is unknown.
fn status(pid: u32) -> Option<String> {
    let mut text = String::with_capacity(STATUS);
    fs::File::open(format!("/proc/{pid}/status")).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A locked-down process that waits for its one script. Dropping it kills it.
#[derive(Debug)]
pub struct Worker {
    process: Option<Process>,
    spawner: Spawner,
    link: Option<Link>,
    pub(super) frames: Frames,
    layers: Vec<String>,
    missing: Vec<MissingLayer>,
}

impl Worker {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Process::id)
    }

    /// The layers in force around it.
    pub fn layers(&self) -> &[String] {
        &self.layers
    }

    /// The layers that are not, each with the reason. None of them is demanded by the profile.
    pub fn missing(&self) -> &[MissingLayer] {
        &self.missing
    }

    pub(super) fn link(&self) -> &Link {
        self.link.as_ref().expect("set when the worker was made")
    }

    pub(super) fn halves(&mut self) -> (Inward<'_>, Outward<'_>) {
        self.link.as_mut().expect("set when the worker was made").halves()
    }

    /// CPU time of the process so far; `None` if it cannot be read.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        processor_time(self.id())
    }

    /// Kills it; the exit status is its own if it had ended before.
    pub(super) fn end(mut self) -> Option<oneshot::Receiver<ExitStatus>> {
        self.process.take().map(|process| self.spawner.reap(process))
    }

    /// Reads the next message.
    async fn receive(&mut self) -> Result<FromWorker, String> {
        let mut piece = [0; 4096];
        loop {
            match self.frames.next_frame() {
                Ok(Some(frame)) => {
                    return FromWorker::decode(frame).map_err(|violation| violation.to_string());
                }
                Ok(None) => {}
                Err(violation) => return Err(violation.to_string()),
            }
            let read = self.halves().0.read(&mut piece).await;
            match read.map_err(|error| error.to_string())? {
                0 => return Err("it ended before it was ready".to_owned()),
                count => self.frames.push(&piece[..count]),
            }
        }
    }

    /// Whether it is still idle: it has closed nothing and sent nothing.
    fn is_waiting(&self) -> bool {
        self.link().is_quiet()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            drop(self.spawner.reap(process));
        }
    }
}
