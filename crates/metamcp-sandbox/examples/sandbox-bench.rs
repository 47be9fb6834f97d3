//! Benchmark of code mode: warm and cold runs, a tool call, 100 at once, runs per second; how soon attacks end.
//!
//! `cargo run --release -p metamcp-sandbox --example sandbox-bench` prints table rows, which `cargo xtask bench`
//! puts into its page; an argument (`warm`, `cold`, `calls`, `rate`, `attacks`) selects one group. The example is its own
//! worker. Starting a process and waking one are measured beside it, since they are most of these numbers.

#![expect(clippy::disallowed_methods, reason = "benchmarks start and measure for themselves")]

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
        let only = first.map(|first| first.to_string_lossy().into_owned());
        // In a task, as in the gateway: `block_on` itself is woken through another path.
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            tokio::spawn(async move { measure(only.as_deref(), &mut io::stdout()).await }).await?
        })
    }

    fn workers(ready: usize) -> Workers {
        let launch = Launch {
            program: "/proc/self/exe".into(),
            args: vec![WORD.into()],
            env: Vec::new(),
            forks: true,
        };
        Workers::new(launch, Profile::Standard, ready)
    }

    async fn once(worker: Worker, code: &str) -> ScriptOutcome {
        let servers = vec![Server { name: "s".into(), identifiers: vec!["s".into()] }];
        let limits = Limits { calls: 100_000, ..Limits::default() };
        let job = ScriptJob { code: code.into(), servers, limits };
        let outcome = run(worker, job, Arc::new(Nothing), std::future::pending()).await;
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

    /// Memory a process has written to; untouched pages are shared with its zygote.
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
        // The zygote exists from the first script on.
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
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let pool = pool.clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..RUSH / 4 {
                    once(taken(&pool).await?, "return 1").await;
                }
                Ok::<_, io::Error>(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        let rate = RUSH as f64 / began.elapsed().as_secs_f64();
        writeln!(
            out,
            "| scripts in a second, four at once, each in a process of its own | {rate:.0} |"
        )?;
        let began = Instant::now();
        let tasks: Vec<_> =
            (0..4).map(|_| tokio::task::spawn_blocking(|| nothing(RUSH / 4))).collect();
        for task in tasks {
            task.await??;
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

    /// Every attack of the corpus in turn: how long after its limit the last one ended.
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
}
