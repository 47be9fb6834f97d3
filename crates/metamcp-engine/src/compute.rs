//! A thread pool for CPU-bound work: searches, indexing, parsing and writing of long JSON; off the thread that relays calls.
//! Owns: one thread per core, and their queue.      Never: waits for I/O, runs cancelled work.
//! In: closures.  Out: what they return.
//! Tests: below; `cargo xtask bench --only search` for what a call costs beside searches.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Queue capacity. Beyond it callers wait outside, so that a cancelled one takes no place.
const QUEUE: usize = 64;

/// The `nice` value of these threads, in favour of the one that relays calls: where both compete for a core they get a
/// tenth of it. At the lowest priority nothing would get done beside a build.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// The work panicked, or there is no thread for it.
#[derive(Debug, thiserror::Error)]
#[error("the gateway failed while working on it")]
pub struct ComputeError;

/// Runs work on the pool and waits for it. Dropping the future skips the work if it has not begun.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ComputeError> {
    pool().run(work).await
}

/// Lowers the priority of this thread, and of those it starts, where possible.
pub fn step_aside() {
    // On Linux a nice value belongs to a thread, elsewhere to the whole process.
    #[cfg(target_os = "linux")]
    rustix::process::nice(NICENESS).ok();
}

type Job = Box<dyn FnOnce() + Send>;

/// One pool for the process.
fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        Pool::new(std::thread::available_parallelism().map_or(1, NonZero::get), QUEUE)
    })
}

struct Pool {
    /// Sending takes no lock that these threads hold: a thread that lost its core while holding one would block the relay.
    jobs: Sender<Job>,
    places: Arc<Semaphore>,
}

impl Pool {
    #[expect(
        clippy::disallowed_methods,
        reason = "a place is taken before a job is sent, so the places bound it"
    )]
    fn new(threads: usize, places: usize) -> Pool {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name("compute".to_owned());
            // With fewer threads it takes longer; with none, all work is refused.
            drop(thread.spawn(move || work(&queue)));
        }
        Pool { jobs, places: Arc::new(Semaphore::new(places)) }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        // Never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| ComputeError)?;
        let (answer, answered) = oneshot::channel();
        self.push(place, move || {
            if !answer.is_closed() {
                // The receiver may be gone by now.
                drop(answer.send(work()));
            }
        });
        answered.await.map_err(|_| ComputeError)
    }

    fn push(&self, place: OwnedSemaphorePermit, work: impl FnOnce() + Send + 'static) {
        let job = move || {
            drop(place);
            work();
        };
        // Fails only if no thread is left; the receiver then reports the failure.
        drop(self.jobs.send(Box::new(job)));
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    step_aside();
    loop {
        // One waits for the next job, the others for the lock.
        let next = queue.lock().recv();
        let Ok(job) = next else { return };
        // The panic was reported, and ends only this job.
        drop(catch_unwind(AssertUnwindSafe(job)));
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// Occupies the only thread of a pool until the result is dropped.
    fn occupy(pool: &Pool) -> Sender<()> {
        let (held, released) = channel::<()>();
        let (begun, begins) = channel();
        let place = Arc::clone(&pool.places).try_acquire_owned().unwrap();
        pool.push(place, move || {
            begun.send(()).unwrap();
            assert!(released.recv().is_err());
        });
        begins.recv().unwrap();
        held
    }

    /// Polls a future once.
    async fn begin(future: &mut (impl Future + Unpin)) {
        let begun = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx)));
        assert!(begun.await.is_pending());
    }

    #[test]
    fn work_runs_on_another_thread_and_a_panic_ends_only_itself() {
        runtime().block_on(async {
            let pool = Pool::new(1, 4);
            let here = std::thread::current().id();
            assert_ne!(pool.run(move || std::thread::current().id()).await.unwrap(), here);
            assert!(pool.run(|| panic!("on purpose")).await.is_err());
            assert_eq!(pool.run(|| 7).await.unwrap(), 7);
        });
    }

    #[test]
    fn cancelled_work_is_skipped() {
        runtime().block_on(async {
            let pool = Pool::new(1, 4);
            let held = occupy(&pool);
            let ran = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&ran);
            let mut cancelled = Box::pin(pool.run(move || counted.fetch_add(1, Ordering::Relaxed)));
            begin(&mut cancelled).await;
            drop((cancelled, held));
            pool.run(|| ()).await.unwrap();
            assert_eq!(ran.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn the_queue_is_bounded_and_excess_work_waits_outside() {
        runtime().block_on(async {
            let pool = Pool::new(1, 1);
            let held = occupy(&pool);
            let (mut inside, mut outside) = (Box::pin(pool.run(|| 1)), Box::pin(pool.run(|| 2)));
            begin(&mut inside).await;
            assert_eq!(pool.places.available_permits(), 0);
            begin(&mut outside).await;
            drop(held);
            assert_eq!((inside.await.unwrap(), outside.await.unwrap()), (1, 2));
            assert_eq!(pool.places.available_permits(), 1);
        });
    }

    /// The thread that relays calls must win where both compete for a core.
    #[cfg(target_os = "linux")]
    #[test]
    fn pool_threads_have_a_lower_priority() {
        runtime().block_on(async {
            let niceness = || rustix::process::getpriority_process(None).unwrap();
            let here = niceness();
            let there = Pool::new(1, 1).run(niceness).await.unwrap();
            assert_eq!((niceness(), there), (here, (here + NICENESS).min(19)));
        });
    }
}
