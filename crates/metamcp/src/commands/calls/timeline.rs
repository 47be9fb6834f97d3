//! The timeline of one call: its phases as bars, and a sentence about where the time went. Pure, but for what it writes to.

use std::io::{self, Write};

use metamcp_engine::history::{CallDetail, Outcome, Step};

use super::{outcome, said, titled};
use crate::local_time;
use crate::render::{DIM, GREEN, RED, YELLOW, bytes, micros, styled, wrapped};

/// Columns of the bars where there is no terminal, and at most.
const BARS: usize = 40;
/// Columns in front of the bars.
const LABELS: usize = 34;

/// What a call does between two points of its timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    /// Waits for a slot of the pool, or behind other calls.
    Queue,
    Start,
    Handshake,
    /// Is at the server.
    Run,
    /// Its result arrives.
    Transfer,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Queue, Kind::Start, Kind::Handshake, Kind::Run, Kind::Transfer];

    fn word(self) -> &'static str {
        match self {
            Kind::Queue => "queue",
            Kind::Start => "start",
            Kind::Handshake => "handshake",
            Kind::Run => "run",
            Kind::Transfer => "transfer",
        }
    }

    /// Where the time went.
    fn went(self) -> &'static str {
        match self {
            Kind::Queue => "waiting for a place in the pool or behind other calls",
            Kind::Start => "starting the server",
            Kind::Handshake => "the handshake with the server",
            Kind::Run => "the server working on it",
            Kind::Transfer => "receiving the result",
        }
    }
}

/// One phase of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Phase {
    kind: Kind,
    from_us: u64,
    to_us: u64,
    /// Why it was over, where that is not what was hoped for.
    lost: Option<String>,
}

impl Phase {
    fn took(&self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }
}

/// The phases between the points of a timeline, in their order.
fn phases(steps: &[Step]) -> Vec<Phase> {
    let mut all: Vec<Phase> = Vec::new();
    for (before, after) in steps.iter().zip(steps.iter().skip(1)) {
        let kind = match (&*before.what, &*after.what) {
            // A start that began before the call came is one it waited for, from then on.
            ("starting", _) | (_, "opened") => Kind::Start,
            ("opened", _) | (_, "ready") => Kind::Handshake,
            ("sent", _) => Kind::Run,
            ("first byte", _) => Kind::Transfer,
            _ => Kind::Queue,
        };
        let lost = (after.what == "lost").then(|| after.why.clone().unwrap_or_default());
        all.push(Phase { kind, from_us: before.at_us, to_us: after.at_us, lost });
    }
    // A step of no length says nothing, unless the call was lost in it.
    all.retain(|phase| phase.took() > 0 || phase.lost.is_some());
    all
}

pub(super) fn show(
    out: &mut dyn Write,
    detail: &CallDetail,
    now_ms: u64,
    width: Option<usize>,
) -> io::Result<()> {
    let call = &detail.call;
    let (word, style) = outcome(call);
    let name = format!("{}:{}", said(&call.server), said(&call.tool));
    let verdict = format!("{} after {}", styled(style, &word), micros(call.took_us));
    titled(out, &format!("call {}", call.id), &format!("{name}  {verdict}"))?;
    for line in lines(&facts(detail, now_ms), width) {
        writeln!(out, "{}", styled(DIM, &line))?;
    }
    let phases = phases(&detail.steps);
    if !phases.is_empty() {
        writeln!(out)?;
        chart(out, &phases, call.took_us, width)?;
    }
    writeln!(out)?;
    for sentence in sentences(detail, &phases) {
        for line in lines(&sentence, width) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

fn lines(text: &str, width: Option<usize>) -> Vec<String> {
    width.map_or_else(|| vec![text.to_owned()], |width| wrapped(text, width))
}

/// Who made it, when, and how much went to and fro.
fn facts(detail: &CallDetail, now_ms: u64) -> String {
    let call = &detail.call;
    let client = match &*said(&call.client) {
        "" => "a client without a name".to_owned(),
        client => client.to_owned(),
    };
    let mut facts = vec![format!("by {client} (session {})", call.session)];
    facts.push(match call.script {
        Some(script) => format!("from script {script}"),
        None => format!("by {}", said(&call.origin)),
    });
    if let Some(node) = &call.node {
        facts.push(format!("ran on the node {}", said(node)));
    }
    facts.push(format!("ended {}", local_time::moment(call.at_ms, now_ms)));
    facts.push(format!(
        "{} of arguments, {} of result",
        bytes(call.bytes_in),
        bytes(call.bytes_out)
    ));
    facts.join(", ")
}

fn chart(
    out: &mut dyn Write,
    phases: &[Phase],
    took_us: u64,
    width: Option<usize>,
) -> io::Result<()> {
    let room = width.map_or(BARS, |width| width.saturating_sub(LABELS).clamp(4, BARS));
    let title = format!("  {:<10} {:>9}  {:>9}", "phase", "from", "took");
    writeln!(out, "{}", styled(DIM, &title))?;
    for phase in phases {
        let (from, to) = (place(phase.from_us, took_us, room), place(phase.to_us, took_us, room));
        // What is too short for a bar has a mark where it was.
        let bar = match (to / 8).saturating_sub(from / 8) {
            0 => "▏".to_owned(),
            whole => "█".repeat(whole),
        };
        let style = match phase.kind {
            _ if phase.lost.is_some() => RED,
            Kind::Run | Kind::Transfer => GREEN,
            Kind::Queue | Kind::Start | Kind::Handshake => YELLOW,
        };
        let lost = phase.lost.as_ref().map_or("", |_| "  lost");
        writeln!(
            out,
            "  {:<10} {:>9}  {:>9}  {}{}{lost}",
            phase.kind.word(),
            micros(phase.from_us),
            micros(phase.took()),
            " ".repeat((from / 8).min(room.saturating_sub(1))),
            styled(style, &bar),
        )?;
    }
    Ok(())
}

/// Where a moment is on a line of so many columns, in eighths of one.
fn place(at_us: u64, whole_us: u64, room: usize) -> usize {
    let part = at_us.min(whole_us) as f64 / whole_us.max(1) as f64;
    (part * (room * 8) as f64).round() as usize
}

/// What a person would conclude from the bars.
fn sentences(detail: &CallDetail, phases: &[Phase]) -> Vec<String> {
    let call = &detail.call;
    let mut said_so = Vec::new();
    if call.attempts == 0 {
        said_so.push(match call.outcome {
            Outcome::Failed => format!("It was not sent to the server: {}.", said(&call.verdict)),
            _ => "It was not sent to the server.".to_owned(),
        });
    }
    let of =
        |kind: Kind| -> u64 { phases.iter().filter(|one| one.kind == kind).map(Phase::took).sum() };
    let longest = Kind::ALL.into_iter().max_by_key(|kind| of(*kind)).filter(|kind| of(*kind) > 0);
    if let Some(kind) = longest {
        let part = of(kind) as f64 * 100.0 / call.took_us.max(1) as f64;
        let took = micros(of(kind));
        said_so.push(match part {
            99.5.. => format!("All of the time went into {}.", kind.went()),
            50.0.. => format!("Most of the time ({took}, {part:.0} %) went into {}.", kind.went()),
            _ => format!("The largest part ({took}, {part:.0} %) went into {}.", kind.went()),
        });
    }
    let lost = detail.steps.iter().filter(|step| step.what == "lost");
    let again = detail.steps.iter().filter(|step| step.what == "sent").skip(1);
    for (number, (lost, again)) in lost.zip(again).enumerate() {
        let why = lost.why.as_deref().map(said).filter(|why| !why.is_empty());
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let again = again.why.as_deref().map(said).unwrap_or_default();
        let reason = again.strip_prefix("sent again: ").unwrap_or(&again);
        let which = if number == 0 { "The first attempt" } else { "The next one" };
        said_so.push(format!(
            "{which} was lost after {}{why}; it was sent again because {reason}.",
            micros(lost.at_us)
        ));
    }
    if let Some(cause) = &detail.cause {
        said_so
            .push(format!("What happened to the server: {}.", said(cause).trim_end_matches('.')));
    }
    said_so
}

#[cfg(test)]
mod tests {
    use metamcp_engine::history::CallRow;

    use super::*;

    fn detail(took_us: u64, outcome: Outcome, steps: &[(u64, &str, &str)]) -> CallDetail {
        let step = |(at, what, why): &(u64, &str, &str)| Step {
            at_us: *at,
            what: (*what).to_owned(),
            why: (!why.is_empty()).then(|| (*why).to_owned()),
        };
        let attempts = steps.iter().filter(|(_, what, _)| *what == "sent").count();
        CallDetail {
            call: CallRow {
                id: 17,
                server: "github".to_owned(),
                tool: "search_issues".to_owned(),
                client: "claude-code 2.0.1".to_owned(),
                origin: "mcp_call".to_owned(),
                session: 3,
                outcome,
                verdict: if outcome == Outcome::Ok { "ok" } else { "circuit_open" }.to_owned(),
                took_us,
                attempts: u32::try_from(attempts).unwrap(),
                bytes_in: 120,
                bytes_out: 45_100,
                ..CallRow::default()
            },
            cause: None,
            steps: steps.iter().map(step).collect(),
        }
    }

    fn told(detail: &CallDetail, width: Option<usize>) -> String {
        let mut out = Vec::new();
        show(&mut out, detail, 5, width).unwrap();
        let told = String::from_utf8(anstream::adapter::strip_bytes(&out).into_vec()).unwrap();
        // The zone of the machine is its own.
        told.replace(&local_time::moment(detail.call.at_ms, 5), "12:00:00")
    }

    fn replayed() -> CallDetail {
        let again = "sent again: it cannot have run, or it is harmless to repeat";
        detail(
            812_000,
            Outcome::Ok,
            &[
                (0, "arrived", ""),
                (2_000, "starting", ""),
                (312_000, "opened", ""),
                (400_000, "ready", ""),
                (400_100, "sent", ""),
                (410_000, "lost", "its process ended with code 1"),
                (411_000, "starting", ""),
                (600_000, "opened", ""),
                (650_000, "ready", ""),
                (650_000, "sent", again),
                (800_000, "first byte", ""),
                (812_000, "answered", "ok"),
            ],
        )
    }

    #[test]
    fn a_timeline_is_bars_and_sentences() {
        insta::assert_snapshot!("replayed_80", told(&replayed(), Some(80)));
        insta::assert_snapshot!("replayed_40", told(&replayed(), Some(40)));
        let refused =
            detail(90, Outcome::Failed, &[(0, "arrived", ""), (90, "ended", "circuit_open")]);
        insta::assert_snapshot!("refused", told(&refused, None));
    }

    #[test]
    fn every_microsecond_belongs_to_one_phase() {
        let detail = replayed();
        let phases = phases(&detail.steps);
        let mut at = 0;
        for phase in &phases {
            assert_eq!(phase.from_us, at, "{phases:?}");
            at = phase.to_us;
        }
        assert_eq!(at, detail.call.took_us);
        let kinds: Vec<Kind> = phases.iter().map(|one| one.kind).collect();
        use Kind::{Handshake, Queue, Run, Start, Transfer};
        let expected =
            [Queue, Start, Handshake, Queue, Run, Queue, Start, Handshake, Run, Transfer];
        assert_eq!(kinds, expected);
        assert!(phases[4].lost.is_some());
    }

    #[test]
    fn a_call_to_a_warm_server_and_one_that_came_while_it_started() {
        let kinds = |steps: &[(u64, &str, &str)]| -> Vec<Kind> {
            phases(&detail(9, Outcome::Ok, steps).steps).iter().map(|one| one.kind).collect()
        };
        let warm =
            [(0, "arrived", ""), (1, "sent", ""), (5, "first byte", ""), (9, "answered", "ok")];
        assert_eq!(kinds(&warm), [Kind::Queue, Kind::Run, Kind::Transfer]);
        let joined = [(0, "arrived", ""), (3, "opened", ""), (4, "ready", ""), (5, "sent", "")];
        assert_eq!(kinds(&joined), [Kind::Start, Kind::Handshake, Kind::Queue]);
        let late = [(0, "arrived", ""), (4, "ready", ""), (5, "sent", "")];
        assert_eq!(kinds(&late), [Kind::Handshake, Kind::Queue]);
    }

    #[test]
    fn what_a_server_says_cannot_write_on_the_screen() {
        let mut detail = replayed();
        detail.call.server = "evil\u{1b}[2J\nname".to_owned();
        detail.cause = Some("it said \u{1b}]0;title\u{7}".to_owned());
        detail.steps[5].why = Some("\u{1b}[31mred".to_owned());
        let told = told(&detail, None);
        assert!(!told.contains('\u{1b}') && !told.contains('\u{7}'), "{told}");
    }
}
