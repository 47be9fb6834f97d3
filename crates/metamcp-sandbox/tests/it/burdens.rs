//! The load a script can put on the gateway, and how little of it affects other work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metamcp_sandbox::host::{Answer, Host, Limits, Op, Status, run};

use crate::common::*;

/// A single-threaded gateway that records the order of its work.
#[derive(Default)]
struct Diary {
    written: Arc<Mutex<Vec<&'static str>>>,
    /// How long it blocks the thread for each answer.
    slow: Duration,
}

impl Host for Diary {
    fn answer(&self, _op: Op, _payload: String) -> Answer {
        let (written, slow) = (Arc::clone(&self.written), self.slow);
        Box::pin(async move {
            // Blocking on purpose: a search in a large catalog would occupy the thread as well.
            std::thread::sleep(slow);
            written.lock().expect("no test panics with it held").push("answer");
            Ok("1".to_owned())
        })
    }

    fn server_meant(&self, written: &str) -> Option<String> {
        Some(written.strip_prefix("mcp.").unwrap_or(written).to_owned())
    }
}

/// Runs a script on one thread, beside a task that yields again and again.
fn beside_others(code: &str, limits: Limits, slow: Duration) -> (Status, Vec<&'static str>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let host = Arc::new(Diary { slow, ..Diary::default() });
        let (written, ended) = (Arc::clone(&host.written), Arc::new(AtomicBool::new(false)));
        let (theirs, is_over) = (Arc::clone(&written), Arc::clone(&ended));
        let other = tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                theirs.lock().expect("no test panics with it held").push("other");
                tokio::task::yield_now().await;
            }
        });
        let worker = workers().take().await.expect("a worker");
        let outcome = run(worker, job(code, limits), host, std::future::pending()).await;
        ended.store(true, Ordering::Relaxed);
        other.await.expect("it only counts");
        let written = written.lock().expect("no test panics with it held").clone();
        (outcome.status, written)
    })
}

const MANY: &str = "const all = []; for (let i = 0; i < 500; i++) all.push(tools.types('x' + i)); return (await Promise.all(all)).length";

#[test]
fn others_have_their_turn_between_any_two_answers() {
    let (status, written) = beside_others(MANY, Limits::default(), Duration::ZERO);
    assert_eq!(status, Status::Ok);
    assert_eq!(written.iter().filter(|word| **word == "answer").count(), 500);
    let longest = written.split(|word| *word == "other").map(<[_]>::len).max();
    assert!(longest <= Some(2), "{longest:?} answers without a turn for others");
}

#[test]
fn the_wall_clock_ends_a_script_whose_questions_never_end() {
    let limits = Limits { wall: Duration::from_millis(300), ..Limits::default() };
    let (status, written) = beside_others(MANY, limits, Duration::from_millis(20));
    assert_eq!(status, Status::Timeout);
    let answers = written.iter().filter(|word| **word == "answer").count();
    assert!(answers < 100, "{answers} answers of 20 ms each in 300 ms");
}

#[test]
fn names_a_script_invents_are_kept_short() {
    let outcome = runs(
        "for (let i = 0; i < 20; i++) try { await github.call('y'.repeat(20000) + i) } catch {}\ntry { await servers['z'.repeat(1e6)].call('t') } catch {}\nreturn 1",
    );
    assert_eq!((outcome.status, outcome.calls.len()), (Status::Ok, 21));
    for call in &outcome.calls {
        assert!(call.server.len() < 300 && call.tool.len() < 300, "{}", call.tool.len());
    }
    let outcome = runs(
        "throw new ToolError({ message: 'm', server: 's'.repeat(1e6), tool: 't'.repeat(1e6), code: 'c'.repeat(1e6), details: 'd'.repeat(1e6) })",
    );
    let error = outcome.error.unwrap();
    assert!(error.tool_error.unwrap().len() < 16 * 1024);
}

#[test]
fn a_second_name_of_a_server_is_counted_with_the_first() {
    let host = Arc::new(Diary::default());
    let code = "await github.echo({}); await servers['mcp.github'].echo({}); return 1";
    let outcome = runtime().block_on(async {
        let worker = workers().take().await.expect("a worker");
        run(worker, job(code, Limits::default()), host, std::future::pending()).await
    });
    let servers: Vec<_> = outcome.calls.iter().map(|call| call.server.as_str()).collect();
    assert_eq!(servers, ["github", "github"]);
}

#[test]
fn what_points_at_itself_is_collected_before_the_heap_is_full() {
    // Several times the heap limit, one after the other.
    let code = "for (let i = 0; i < 100000; i++) { const a = { text: new Uint8Array(1000) }; a.a = a; } return 1";
    let outcome = runtime().block_on(async {
        let worker = workers().take().await.expect("a worker");
        let limits = Limits { cpu: Duration::from_secs(20), ..small() };
        run(worker, job(code, limits), Arc::new(Table::default()), std::future::pending()).await
    });
    assert_eq!(outcome.status, Status::Ok, "{outcome:?}");
}

#[test]
fn what_is_nested_too_deeply_is_refused_with_the_depth() {
    let nested = "let a = []; for (let i = 0; i < 140; i++) a = [a];";
    let outcome =
        runs(&format!("{nested} console.log('kept'); await github.echo({{ a: 1 }}); return a"));
    assert_eq!(outcome.status, Status::Error);
    let error = outcome.error.unwrap();
    assert!(error.message.contains("nested 141 deep, 100 at most"), "{error:?}");
    assert_eq!((outcome.logs.len(), outcome.calls.len()), (1, 1), "what it left is kept");
    assert_eq!(outcome.limit.unwrap().name, "depth");
    for call in ["github.echo({ a })", "results.put(a)"] {
        let code = format!("{nested} try {{ await {call} }} catch (e) {{ return e.message }}");
        let told = value(&code);
        assert!(told.as_str().unwrap().starts_with("nested too deeply: 14"), "{call}: {told}");
    }
}
