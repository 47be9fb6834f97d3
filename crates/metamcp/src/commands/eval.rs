//! `metamcp eval`: search quality on the user's own tools and queries.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use metamcp_engine::clock;
use metamcp_engine::config::Loaded;
use metamcp_engine::model::ModelFile;
use metamcp_search::eval::{Corpus, DEPTH, Measures, Question, Total};
use metamcp_search::search::{Nearness, Strategy, Table};
use metamcp_search::transformer::Model;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::args::EvalArgs;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::render;

/// How often the progress bar moves: often enough to be seen moving, rarely enough to cost nothing.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Cells of the progress bar.
const BAR: usize = 30;

/// The transformer, with its embeddings of every tool.
struct Embedder {
    model: Model,
    tables: Vec<Arc<Table>>,
}

impl Embedder {
    fn nearness(&self, query: &str) -> Option<Nearness> {
        Nearness::new(&self.tables, &self.model.asked(query))
    }
}

/// The result of one strategy.
struct StrategyReport {
    strategy: Strategy,
    measures: Measures,
    /// Sorted, in microseconds.
    times: Vec<u64>,
}

/// Measures one strategy, or all of them. `loaded` is given if the transformer is to be measured.
pub(crate) fn run(
    args: &EvalArgs,
    loaded: Option<&Loaded>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let strategies: Vec<Strategy> = match &args.strategy {
        Some(name) => vec![name.parse().or_misuse()?],
        // A strategy that needs more than an index must be named.
        None => Strategy::ALL.into_iter().filter(|strategy| !strategy.needs_vectors()).collect(),
    };
    let is_local = |strategy: &Strategy| {
        !strategy.needs_vectors() || (*strategy == Strategy::Transformer && loaded.is_some())
    };
    if strategies == [Strategy::Auto] {
        let why = "`auto` is `transformer` or `hybrid`, whichever is here; name the one to measure";
        return Err(misuse(why));
    }
    if let Some(remote) = strategies.iter().find(|strategy| !is_local(strategy)) {
        let why = format!(
            "`{remote}` asks an API for vectors; only what ranks on this machine is measured"
        );
        return Err(misuse(why));
    }
    let model = match loaded {
        Some(loaded) => Some(ModelFile::new(&loaded.config.settings.home).load()?),
        None => None,
    };
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))
            .or_misuse()
    };
    let text = read(&args.tools)?;
    let began = clock::std_instant();
    let corpus =
        Corpus::read(&text).with_context(|| args.tools.display().to_string()).or_misuse()?;
    let indexing = began.elapsed();
    drop(text);
    let questions = corpus
        .questions(&read(&args.queries)?)
        .with_context(|| args.queries.display().to_string())
        .or_misuse()?;
    if questions.is_empty() {
        return Err(misuse(format!("{} holds no queries", args.queries.display())));
    }
    let (mut embedder, mut reading) = (None, None);
    if let Some(model) = model {
        let began = clock::std_instant();
        let progress = Mutex::new(Progress::new("reading", corpus.index.tool_count()));
        let step = || progress.lock().step();
        let tables = model.tables(&corpus.index, &step);
        progress.into_inner().finish();
        reading = Some(began.elapsed());
        embedder = Some(Embedder { model, tables });
    }
    let measured = |strategy| measure(&corpus, &questions, strategy, embedder.as_ref());
    let reports: Vec<StrategyReport> = strategies.into_iter().map(measured).collect();
    if args.json {
        let rows: Vec<Value> = reports.iter().map(row).collect();
        let value = json!({
            "tools": corpus.index.tool_count(),
            "questions": questions.len(),
            "indexing_ms": indexing.as_millis() as u64,
            "reading_ms": reading.map(|time| time.as_millis() as u64),
            "resident_kib": memory_kib("VmRSS:"),
            "private_kib": memory_kib("RssAnon:"),
            "strategies": rows,
        });
        writeln!(out, "{value:#}")?;
        return Ok(Exit::Success);
    }
    writeln!(
        out,
        "{} tools indexed in {} ms, {} queries\n",
        corpus.index.tool_count(),
        indexing.as_millis(),
        questions.len()
    )?;
    if let Some(reading) = reading {
        writeln!(out, "embedded by the transformer in {:.1} s\n", reading.as_secs_f64())?;
    }
    let cells = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect();
    let mut rows: Vec<Vec<String>> = vec![cells(&[
        "strategy",
        "hit@1",
        "recall@5",
        "recall@10",
        "MRR",
        "nDCG@10",
        "p50",
        "p99",
    ])];
    for report in &reports {
        let mut row = vec![report.strategy.to_string()];
        row.extend(report.measures.numbers().map(|number| format!("{:.1}", number * 100.0)));
        row.extend([50, 99].map(|percent| format!("{} us", percentile(&report.times, percent))));
        rows.push(row);
    }
    render::table(out, &rows)?;
    Ok(Exit::Success)
}

fn measure(
    corpus: &Corpus,
    questions: &[Question],
    strategy: Strategy,
    embedder: Option<&Embedder>,
) -> StrategyReport {
    let index = &corpus.index;
    let mut total = Total::default();
    let mut times = Vec::with_capacity(questions.len());
    let mut progress = Progress::new(strategy.name(), questions.len());
    for question in questions {
        let began = clock::std_instant();
        let query = question.query.as_str();
        let hits = match embedder.and_then(|embedder| embedder.nearness(query)) {
            Some(nearness) => index.page_by(&nearness, query, (0, DEPTH), None, None).hits,
            None => index.search(query, strategy, DEPTH, None),
        };
        times.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        total.add(&question.measure(&hits));
        progress.step();
    }
    progress.finish();
    times.sort_unstable();
    StrategyReport { strategy, measures: total.mean(), times }
}

fn row(report: &StrategyReport) -> Value {
    let [hit_at_1, recall_at_5, recall_at_10, mrr, ndcg_at_10] = report.measures.numbers();
    json!({
        "strategy": report.strategy.name(),
        "hit_at_1": hit_at_1,
        "recall_at_5": recall_at_5,
        "recall_at_10": recall_at_10,
        "mrr": mrr,
        "ndcg_at_10": ndcg_at_10,
        "p50_us": percentile(&report.times, 50),
        "p99_us": percentile(&report.times, 99),
    })
}

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

/// The memory of the process, where the system reports it: all of it, or without file-backed pages.
fn memory_kib(of: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(of))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A bar on stderr if it is a terminal; nothing otherwise.
struct Progress {
    name: &'static str,
    total: usize,
    done: usize,
    shown: Option<Instant>,
}

impl Progress {
    fn new(name: &'static str, total: usize) -> Progress {
        let shown = io::stderr().is_terminal().then(clock::std_instant);
        Progress { name, total, done: 0, shown }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.shown.is_some_and(|shown| shown.elapsed() >= PROGRESS_EVERY) {
            self.shown = Some(clock::std_instant());
            let full = BAR * self.done / self.total.max(1);
            let mut line = format!("\r{:<11} [", self.name);
            (0..BAR).for_each(|cell| line.push(if cell < full { '#' } else { ' ' }));
            let _cannot_fail = write!(line, "] {}/{}", self.done, self.total);
            Progress::show(&line);
        }
    }

    fn finish(self) {
        if self.shown.is_some() {
            Progress::show(&format!("\r{:60}\r", ""));
        }
    }

    /// A closed terminal is no reason to stop measuring.
    fn show(line: &str) {
        let mut terminal = io::stderr();
        let _nobody_looks = terminal.write_all(line.as_bytes()).and_then(|()| terminal.flush());
    }
}
