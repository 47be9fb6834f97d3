//! The log: `tracing` events of the gateway as lines on stderr, without ever waiting for stderr.
//! Owns: the level, the form of a line, the thread that writes.      Never: prints a control character, blocks a caller, shows what other crates log (it may hold tokens).
//! In: `tracing` events and spans.  Out: lines on stderr.
//! Tests: below.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use metamcp_config::settings::LogLevel;
use metamcp_types::text;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{
    self, FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter,
};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::{LookupSpan, Scope};

/// Lines that may wait for a host that does not read our stderr; more are dropped, since the data path must not
/// wait for it.
const BACKLOG: usize = 256;
/// Longest line.
const MAX_CHARS: usize = 2000;
/// Our own crates. Others, the HTTP and OAuth libraries among them, log what passes through them.
const OURS: &str = "metamcp";

/// Receives each line too.
type Sink = Box<dyn Fn(Level, &str) + Send + Sync>;

static SINK: OnceLock<Sink> = OnceLock::new();

/// Gives each line that is logged to somebody else too, who must not wait, nor log. The first call wins.
pub fn also_to(sink: Sink) {
    drop(SINK.set(sink));
}

/// Starts logging at a level. The first call wins.
pub fn start(level: LogLevel) {
    start_in(level, io::stderr());
}

/// The same for another place than stderr.
pub fn start_in(level: LogLevel, mut log: impl Write + Send + 'static) {
    let (lines, waiting) = sync_channel::<Vec<u8>>(BACKLOG);
    let started =
        std::thread::Builder::new().name("log".into()).stack_size(64 * 1024).spawn(move || {
            for line in waiting {
                // Nobody reads our stderr: then nobody misses the line.
                drop(log.write_all(&line));
            }
        });
    if started.is_ok() {
        // A second one, in tests of one process, changes nothing.
        drop(tracing::subscriber::set_global_default(subscriber(level, Lines(lines))));
    }
}

fn subscriber<W>(level: LogLevel, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().event_format(OneLine).with_ansi(false).with_writer(writer);
    tracing_subscriber::registry()
        .with(layer)
        .with(Targets::new().with_target(OURS, level_filter(level)))
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// The form of a line: who, how severe, in which spans, what.
struct OneLine;

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = String::new();
        for span in ctx.event_scope().into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().map(|fields| &fields.fields);
            match fields.filter(|fields| !fields.is_empty()) {
                Some(fields) => write!(line, "{}{{{fields}}}: ", span.name())?,
                None => write!(line, "{}: ", span.name())?,
            }
        }
        ctx.format_fields(Writer::new(&mut line), event)?;
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let line = text::clean_line(&line, MAX_CHARS);
        if let Some(sink) = SINK.get() {
            sink(*event.metadata().level(), &line);
        }
        writeln!(writer, "metamcp {level}: {line}")
    }
}

/// Hands lines to the thread that writes.
#[derive(Clone)]
struct Lines(SyncSender<Vec<u8>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A full queue means that nobody reads; the line is dropped.
        drop(self.0.try_send(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(level: LogLevel, work: impl FnOnce()) -> Vec<String> {
        let (lines, waiting) = sync_channel(BACKLOG);
        tracing::subscriber::with_default(subscriber(level, Lines(lines)), work);
        waiting.try_iter().map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn a_line_is_one_line_without_control_characters() {
        let lines = logged(LogLevel::Warn, || tracing::warn!("{}", "a\x1b[31mb\nc"));
        assert_eq!(lines, ["metamcp warn: a\\x1b[31mb c\n"]);
    }

    #[test]
    fn spans_and_fields_say_where_and_what() {
        let lines = logged(LogLevel::Debug, || {
            let _task = tracing::debug_span!("connect", server = "github").entered();
            tracing::debug!(attempts = 2, "sent");
        });
        assert_eq!(lines, ["metamcp debug: connect{server=\"github\"}: sent attempts=2\n"]);
    }

    #[test]
    fn nothing_is_formatted_for_a_level_that_is_off_or_for_other_crates() {
        struct Costly;
        impl std::fmt::Display for Costly {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                panic!("formatted for nobody");
            }
        }
        let lines = logged(LogLevel::Info, || {
            tracing::debug!("{Costly}");
            tracing::error!(target: "rmcp::auth", "{Costly}");
            tracing::info!("told");
        });
        assert_eq!(lines, ["metamcp info: told\n"]);
    }
}
