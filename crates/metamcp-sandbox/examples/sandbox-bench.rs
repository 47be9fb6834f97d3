//! How fast code mode is: warm and cold runs, a tool call, a hundred at once, runs in a second; how soon attacks end.
//!
//! `cargo run --release -p metamcp-sandbox --example sandbox-bench` prints rows of a table, as `cargo xtask bench`
//! puts them into its page; a word behind it (`warm`, `cold`, `calls`, `rate`, `attacks`) prints only those, and `spin` what
//! busy-polling gains. The example is its own worker. What a machine needs to start a process and to wake one is
//! measured beside it, since both are most of these numbers.

fn main() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    return linux::main();
    #[cfg(not(target_os = "linux"))]
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::{self, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use metamcp_sandbox::host::{
        Answer, Host, Launch, Limits, Op, Profile, ScriptJob, ScriptOutcome, Server, Worker,
        Workers, run,
    };
    use metamcp_sandbox::worker::worker_main;

    const WORD: &str = "__worker";
    const WARM: usize = 300;
    const COLD: usize = 60;
    const RUSH: usize = 800;

    struct Nothing;

    impl Host for Nothing {
        fn answer(&self, _op: Op, _payload: String) -> Answer {
            Box::pin(std::future::ready(Ok(
                r#"{"content":[],"structuredContent":{"n":1}}"#.to_owned()
            )))
        }
    }

    pub(super) fn main() -> io::Result<()> {
        let mut arguments = std::env::args_os().skip(1);
        let first = arguments.next();
        if first.as_ref().is_some_and(|first| first == WORD) {
            std::process::exit(worker_main(arguments));
        }
        match first.as_ref().and_then(|first| first.to_str()) {
            Some(spin::SLEEPING_WORKER) => {
                metamcp_sandbox::adaptive_spin::set_enabled(false);
                std::process::exit(worker_main(arguments));
            }
            Some(spin::BUSY) => {
                spin::be_busy();
                return Ok(());
            }
            _ => {}
        }
        let only = first.map(|first| first.to_string_lossy().into_owned());
        // As a task, as in the gateway: what waits on the outside of a runtime is woken through a thread.
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            tokio::spawn(async move { measure(only.as_deref(), &mut io::stdout()).await }).await?
        })
    }

    fn workers(ready: usize) -> Workers {
        workers_of(WORD, ready)
    }

    fn workers_of(word: &str, ready: usize) -> Workers {
        let launch = Launch {
            program: "/proc/self/exe".into(),
            args: vec![word.into()],
            env: Vec::new(),
            forks: true,
        };
        Workers::new(launch, Profile::Standard, ready)
    }

    async fn once(worker: Worker, code: &str) -> ScriptOutcome {
        once_with(worker, code, Arc::new(Nothing)).await
    }

    async fn once_with(worker: Worker, code: &str, host: Arc<dyn Host>) -> ScriptOutcome {
        let servers = vec![Server { name: "s".into(), identifiers: vec!["s".into()] }];
        let limits = Limits { calls: 100_000, ..Limits::default() };
        let job = ScriptJob { code: code.into(), servers, limits };
        let outcome = run(worker, job, host, std::future::pending()).await;
        assert!(outcome.value.is_some(), "{outcome:?}");
        outcome
    }

    async fn taken(workers: &Workers) -> io::Result<Worker> {
        workers.take().await.map_err(io::Error::other)
    }

    async fn measure(only: Option<&str>, out: &mut (impl Write + Send)) -> io::Result<()> {
        let is_wanted = |name: &str| only.is_none_or(|only| only == name);
        if is_wanted("warm") {
            warm(out).await?;
        }
        if is_wanted("cold") {
            cold(out).await?;
        }
        if is_wanted("calls") {
            calls(out).await?;
        }
        if is_wanted("rate") {
            rate(out).await?;
        }
        if is_wanted("attacks") {
            attacks(out).await?;
        }
        // Only when asked for: it takes minutes.
        if only == Some("spin") {
            spin::compare(out).await?;
        }
        Ok(())
    }

    async fn warm(out: &mut (impl Write + Send)) -> io::Result<()> {
        let pool = workers(2);
        drop(taken(&pool).await?);
        let mut times = Vec::new();
        for _ in 0..WARM {
            while pool.waiting() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let began = Instant::now();
            once(taken(&pool).await?, "return 1 + 1").await;
            times.push(began.elapsed());
        }
        say(out, "a script without calls, a worker waits", &mut times)?;
        let held = private_kib(taken(&pool).await?.id())?;
        writeln!(out, "| memory of a waiting worker that is its own | {:.2} MB |", held / 1024.0)
    }

    /// What a process has written and shares with nobody; what is still as its nursery made it belongs to all of them.
    fn private_kib(pid: u32) -> io::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let lines = text.lines().filter(|line| line.starts_with("Private_Dirty:"));
        let numbers = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(numbers.sum())
    }

    async fn cold(out: &mut (impl Write + Send)) -> io::Result<()> {
        let mut times = Vec::new();
        for _ in 0..COLD {
            let began = Instant::now();
            once(taken(&workers(0)).await?, "return 1 + 1").await;
            times.push(began.elapsed());
        }
        say(out, "the same, the first script of a gateway", &mut times)?;
        let pool = workers(0);
        // The nursery is there from the first script on.
        drop(taken(&pool).await?);
        let mut times = Vec::new();
        for _ in 0..COLD {
            let began = Instant::now();
            once(taken(&pool).await?, "return 1 + 1").await;
            times.push(began.elapsed());
        }
        say(out, "the same, no worker waits", &mut times)?;
        let mut times = Vec::new();
        for _ in 0..COLD {
            let began = Instant::now();
            nothing(1)?;
            times.push(began.elapsed());
        }
        say(out, "a process that does nothing (`true`)", &mut times)
    }

    async fn calls(out: &mut (impl Write + Send)) -> io::Result<()> {
        say(out, "one byte to another thread and back, over a socket", &mut wake_ups()?)?;
        let pool = workers(0);
        let (mut times, mut used) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            let code = "for (let i = 0; i < 1000; i++) await s.echo({ i }); return 1";
            let outcome = once(taken(&pool).await?, code).await;
            times.push(outcome.wall / 1000);
            used.push(outcome.cpu / 1000);
        }
        say(out, "one call of a script, in a row of 1000", &mut times)?;
        say(out, "the same, processor time of the script", &mut used)?;
        let mut times = Vec::new();
        for _ in 0..30 {
            let code =
                "await Promise.all(Array.from({ length: 100 }, (_, i) => s.echo({ i }))); return 1";
            times.push(once(taken(&pool).await?, code).await.wall);
        }
        say(out, "100 calls of a script at once", &mut times)
    }

    async fn rate(out: &mut (impl Write + Send)) -> io::Result<()> {
        let pool = workers(4);
        let began = Instant::now();
        let mut lanes = Vec::new();
        for _ in 0..4 {
            let pool = pool.clone();
            lanes.push(tokio::spawn(async move {
                for _ in 0..RUSH / 4 {
                    once(taken(&pool).await?, "return 1").await;
                }
                Ok::<_, io::Error>(())
            }));
        }
        for lane in lanes {
            lane.await??;
        }
        let rate = RUSH as f64 / began.elapsed().as_secs_f64();
        writeln!(
            out,
            "| scripts in a second, four at once, each in a process of its own | {rate:.0} |"
        )?;
        let began = Instant::now();
        let lanes: Vec<_> =
            (0..4).map(|_| tokio::task::spawn_blocking(|| nothing(RUSH / 4))).collect();
        for lane in lanes {
            lane.await??;
        }
        let rate = RUSH as f64 / began.elapsed().as_secs_f64();
        writeln!(
            out,
            "| processes in a second that do nothing (`true`), four at once | {rate:.0} |"
        )
    }

    fn wake_ups() -> io::Result<Vec<Duration>> {
        let (mut ours, mut theirs) = UnixStream::pair()?;
        let echo = std::thread::spawn(move || {
            let mut byte = [0];
            while theirs.read_exact(&mut byte).is_ok() && theirs.write_all(&byte).is_ok() {}
        });
        let mut times = Vec::new();
        for _ in 0..1000 {
            let began = Instant::now();
            ours.write_all(&[1])?;
            ours.read_exact(&mut [0])?;
            times.push(began.elapsed());
        }
        drop(ours);
        echo.join().ok();
        Ok(times)
    }

    fn nothing(times: usize) -> io::Result<()> {
        for _ in 0..times {
            Command::new("true").env_clear().stdin(Stdio::null()).status()?;
        }
        Ok(())
    }

    /// Every attack of the corpus, one after the other: how long after its limits the last one was over.
    async fn attacks(out: &mut (impl Write + Send)) -> io::Result<()> {
        const WALL: Duration = Duration::from_millis(500);
        let pool = workers(1);
        let (mut count, mut overruns) = (0, Vec::new());
        for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/attacks"))? {
            for code in fs::read_to_string(file?.path())?.split("//---\n") {
                let worker = taken(&pool).await?;
                let limits = Limits { wall: WALL, cpu: WALL, ..Limits::default() };
                let job = ScriptJob { code: code.into(), servers: Vec::new(), limits };
                let began = Instant::now();
                run(worker, job, Arc::new(Nothing), std::future::pending()).await;
                count += 1;
                overruns.extend(began.elapsed().checked_sub(WALL));
            }
        }
        overruns.sort_unstable();
        let worst = overruns.last().copied().unwrap_or_default();
        writeln!(
            out,
            "| of {count} attacks with 500 ms each, ended by a limit | {}, the last {:.0} ms after it |",
            overruns.len(),
            worst.as_secs_f64() * 1000.0
        )
    }

    fn say(out: &mut impl Write, what: &str, times: &mut [Duration]) -> io::Result<()> {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        writeln!(out, "| {what}, p50 / p99 | {:.0} us / {:.0} us |", micros(at(50)), micros(at(99)))
    }

    /// What busy-polling gains: {neither, worker, gateway, both} in turns, on idle cores and on cores that others keep
    /// busy, as ratios to neither. The variants take turns within a round and the median is taken over rounds, so that
    /// load from elsewhere meets all of them alike.
    mod spin {
        use std::hint;
        use std::os::fd::OwnedFd;
        use std::process::Child;
        use std::thread::available_parallelism;

        use metamcp_sandbox::adaptive_spin;
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio::sync::Mutex;

        use super::*;

        /// A worker that never busy-polls.
        pub(super) const SLEEPING_WORKER: &str = "__sleeping_worker";
        /// A process that keeps a core busy.
        pub(super) const BUSY: &str = "__busy";
        /// The end of such a process, should the benchmark not live to end it.
        const MAX_BUSY: Duration = Duration::from_secs(60);

        const ROUNDS: usize = 15;
        const IN_A_ROW: u32 = 1000;
        const AT_ONCE: usize = 10;
        const SCRIPTS: usize = 30;

        const WORKLOADS: [&str; 4] = [
            "one call, in a row of 1000",
            "the same, answered by another process",
            "100 calls at once",
            "a script without calls",
        ];
        /// Name, whether workers busy-poll, whether the gateway does.
        const VARIANTS: [(&str, bool, bool); 4] = [
            ("neither", false, false),
            ("worker", true, false),
            ("gateway", false, true),
            ("both", true, true),
        ];

        pub(super) fn be_busy() {
            let began = Instant::now();
            while began.elapsed() < MAX_BUSY {
                hint::spin_loop();
            }
        }

        /// One process per core that wants all of it. Ended when dropped.
        struct BusyCores(Vec<Child>);

        impl BusyCores {
            fn start() -> io::Result<BusyCores> {
                let mut busy = BusyCores(Vec::new());
                for _ in 0..available_parallelism()?.get() {
                    busy.0.push(Command::new("/proc/self/exe").arg(BUSY).spawn()?);
                }
                Ok(busy)
            }
        }

        impl Drop for BusyCores {
            fn drop(&mut self) {
                for child in &mut self.0 {
                    child.kill().ok();
                    child.wait().ok();
                }
            }
        }

        /// Answers once a process behind it has: what calls of real servers wait for, at the least.
        struct BehindAProcess {
            link: Arc<Mutex<tokio::net::UnixStream>>,
            _cat: Cat,
        }

        struct Cat(Child);

        impl Drop for Cat {
            fn drop(&mut self) {
                self.0.kill().ok();
                self.0.wait().ok();
            }
        }

        impl BehindAProcess {
            fn start() -> io::Result<BehindAProcess> {
                let (ours, theirs) = UnixStream::pair()?;
                ours.set_nonblocking(true)?;
                let theirs = OwnedFd::from(theirs);
                let cat = Command::new("cat").stdin(theirs.try_clone()?).stdout(theirs).spawn()?;
                let link = Arc::new(Mutex::new(tokio::net::UnixStream::from_std(ours)?));
                Ok(BehindAProcess { link, _cat: Cat(cat) })
            }
        }

        impl Host for BehindAProcess {
            fn answer(&self, op: Op, payload: String) -> Answer {
                let link = Arc::clone(&self.link);
                Box::pin(async move {
                    let mut link = link.lock().await;
                    link.write_all(&[1]).await.expect("cat reads");
                    link.read_exact(&mut [0]).await.expect("cat answers");
                    Nothing.answer(op, payload).await
                })
            }
        }

        /// The median time of each workload, in microseconds.
        async fn turn(pool: &Workers) -> io::Result<[f64; WORKLOADS.len()]> {
            let row =
                format!("for (let i = 0; i < {IN_A_ROW}; i++) await s.echo({{ i }}); return 1");
            let many =
                "await Promise.all(Array.from({ length: 100 }, (_, i) => s.echo({ i }))); return 1";
            let direct = once(taken(pool).await?, &row).await.wall / IN_A_ROW;
            let behind = Arc::new(BehindAProcess::start()?);
            let behind = once_with(taken(pool).await?, &row, behind).await.wall / IN_A_ROW;
            let mut at_once = Vec::new();
            for _ in 0..AT_ONCE {
                at_once.push(once(taken(pool).await?, many).await.wall);
            }
            let mut without = Vec::new();
            for _ in 0..SCRIPTS {
                while pool.waiting() < 2 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let began = Instant::now();
                once(taken(pool).await?, "return 1 + 1").await;
                without.push(began.elapsed());
            }
            let median = |times: Vec<Duration>| {
                median(times.into_iter().map(|time| time.as_secs_f64() * 1e6).collect())
            };
            Ok([median(vec![direct]), median(vec![behind]), median(at_once), median(without)])
        }

        fn median(mut numbers: Vec<f64>) -> f64 {
            numbers.sort_unstable_by(f64::total_cmp);
            numbers[numbers.len() / 2]
        }

        pub(super) async fn compare(out: &mut (impl Write + Send)) -> io::Result<()> {
            let pools = VARIANTS.map(|(_, worker, gateway)| {
                adaptive_spin::set_enabled(gateway);
                workers_of(if worker { WORD } else { SLEEPING_WORKER }, 2)
            });
            // By situation, variant and workload: one number a round.
            let mut times = vec![vec![vec![Vec::new(); WORKLOADS.len()]; VARIANTS.len()]; 2];
            for round in 0..ROUNDS {
                for (situation, times) in times.iter_mut().enumerate() {
                    let busy = (situation == 1).then(BusyCores::start).transpose()?;
                    for turns in 0..VARIANTS.len() {
                        let variant = (round + turns) % VARIANTS.len();
                        adaptive_spin::set_enabled(VARIANTS[variant].2);
                        for (times, time) in
                            times[variant].iter_mut().zip(turn(&pools[variant]).await?)
                        {
                            times.push(time);
                        }
                    }
                    drop(busy);
                }
            }
            writeln!(out, "| | cores | neither | worker | gateway | both |")?;
            writeln!(out, "|---|---|---|---|---|---|")?;
            for (workload, name) in WORKLOADS.iter().enumerate() {
                for (situation, cores) in ["idle", "taken"].iter().enumerate() {
                    let of = |variant: usize| &times[situation][variant][workload];
                    write!(out, "| {name} | {cores} | {:.0} us", median(of(0).clone()))?;
                    for variant in 1..VARIANTS.len() {
                        let ratios: Vec<f64> =
                            of(variant).iter().zip(of(0)).map(|(time, base)| time / base).collect();
                        let better = ratios.iter().filter(|&&ratio| ratio < 1.0).count();
                        write!(out, " | {:.2} ({better}/{ROUNDS})", median(ratios))?;
                    }
                    writeln!(out, " |")?;
                }
            }
            Ok(())
        }
    }
}
