//! How `metamcp top` looks. Pure: a state and an area in, cells out.

use metamcp_engine::clock::unix_millis;
use metamcp_engine::history::{CallRow, EventRow, Outcome, Severity};
use metamcp_engine::serve::daemon_status::{Overview, SessionStatus};
use metamcp_types::text;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table, TableState};

use super::state::{LogView, Mode, Pane, State, View};
use crate::commands::server_rows::{RowState, ServerRow};
use crate::local_time;
use crate::render::{age, grouped, megabytes, micros, per_second};

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const RED: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const GREEN: Style = Style::new().fg(Color::Green);
const YELLOW: Style = Style::new().fg(Color::Yellow);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Lines from which on there is room for the charts, and for the last events below.
const CHART_LINES: u16 = 17;
const EVENT_LINES: u16 = 24;
/// Seconds that the numbers in the head speak of.
const LATELY: usize = 10;

/// The first row that each list shows. It moves as little as it can: only when the selected row would not be seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scroll {
    servers: usize,
    sessions: usize,
    events: usize,
    calls: usize,
}

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, scroll: &mut Scroll) {
    draw_at(frame, state, scroll, unix_millis());
}

fn draw_at(frame: &mut Frame<'_>, state: &State, scroll: &mut Scroll, now_ms: u64) {
    let mut rest = frame.area();
    let foot = cut_end(&mut rest, 1);
    head(frame, &mut rest, state);
    match &state.view {
        View::Main => main(frame, rest, state, scroll, now_ms),
        View::Logs(log) => logs(frame, rest, log),
        View::Calls { server, calls, selected } => {
            let title = format!("Calls of {}, newest first", said(server));
            frame.render_widget(Line::styled(title, BOLD), cut(&mut rest, 1));
            self::calls(frame, rest, calls, (*selected, &mut scroll.calls), now_ms);
        }
    }
    footer(frame, foot, state);
    if state.mode == Mode::Help {
        help(frame);
    }
}

/// The first lines of an area, which is as much shorter.
fn cut(area: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    let part = Rect { height: lines, ..*area };
    (area.y, area.height) = (area.y + lines, area.height - lines);
    part
}

/// The last lines.
fn cut_end(area: &mut Rect, lines: u16) -> Rect {
    let lines = lines.min(area.height);
    area.height -= lines;
    Rect { y: area.y + area.height, height: lines, ..*area }
}

fn head(frame: &mut Frame<'_>, rest: &mut Rect, state: &State) {
    let line = cut(rest, 1);
    let Some(overview) = &state.overview else {
        let words =
            if state.is_gone { "no daemon runs; waiting for one" } else { "asking the daemon" };
        frame.render_widget(
            Line::from(vec![Span::styled("metamcp top", BOLD), "  ".into(), words.into()]),
            line,
        );
        return;
    };
    let status = &overview.status;
    let mut facts = vec![format!("up {}", age(status.uptime_ms))];
    facts.extend(status.memory_bytes.map(megabytes));
    facts.push(format!("process {}", status.pid));
    facts.push(format!("version {}", said(&status.version)));
    let state_of = if state.is_gone {
        Span::styled("the daemon has ended; waiting for the next one", RED)
    } else if status.draining {
        Span::styled("draining", YELLOW)
    } else {
        facts.join(", ").into()
    };
    frame.render_widget(
        Line::from(vec![Span::styled("metamcp top", BOLD), "  ".into(), state_of]),
        line,
    );
    frame.render_widget(traffic(overview), cut(rest, 1));
    if frame.area().height >= CHART_LINES {
        charts(frame, cut(rest, 3), overview);
    }
}

/// How much goes on, and how full the pool is.
fn traffic(overview: &Overview) -> Line<'static> {
    let lately = &overview.rates[overview.rates.len().saturating_sub(LATELY)..];
    let seconds = lately.len().max(1) as f64;
    let sum = |ask: fn(&(u32, u32, u64)) -> u32| {
        lately.iter().map(|one| f64::from(ask(one))).sum::<f64>()
    };
    let failed = sum(|one| one.1);
    // What is cut off first on a narrow screen comes last.
    let mut spans =
        vec![Span::styled(format!("{}/s", per_second(sum(|one| one.0) / seconds)), BOLD)];
    if failed > 0.0 {
        spans.push(Span::styled(format!("  {}/s failed", per_second(failed / seconds)), RED));
    }
    let pool = overview.pool;
    if pool.size > 0 {
        const WIDTH: u64 = 8;
        let full = (pool.used * WIDTH).div_ceil(pool.size).min(WIDTH);
        let style = if pool.waiting > 0 { RED } else { GREEN };
        spans.push("  pool ".into());
        spans.push(Span::styled("█".repeat(full as usize), style));
        spans.push(Span::styled("░".repeat((WIDTH - full) as usize), DIM));
        spans.push(format!(" {}/{}", pool.used, pool.size).into());
    }
    if pool.waiting > 0 {
        spans.push(Span::styled(format!(", {} waiting", pool.waiting), RED));
    }
    if let (Some(p50), Some(p99)) = (overview.p50_us, overview.p99_us) {
        spans.push(format!("  p50 {} p99 {}", micros(p50), micros(p99)).into());
    }
    spans.push(format!("  {} calls", grouped(overview.calls)).into());
    Line::from(spans)
}

/// Calls per second, and below them failures.
fn charts(frame: &mut Frame<'_>, mut area: Rect, overview: &Overview) {
    const LABEL: u16 = 9;
    let room = usize::from(area.width.saturating_sub(LABEL));
    let shown = &overview.rates[overview.rates.len().saturating_sub(room)..];
    let calls: Vec<u64> = shown.iter().map(|one| u64::from(one.0)).collect();
    let failed: Vec<u64> = shown.iter().map(|one| u64::from(one.1)).collect();
    let most = calls.iter().copied().max().unwrap_or(0).max(1);
    for (lines, word, data, style) in [(2, "calls", calls, GREEN), (1, "failed", failed, RED)] {
        let mut part = cut(&mut area, lines);
        let label = Rect { width: LABEL.min(part.width), ..part };
        frame.render_widget(Line::styled(word, DIM), label);
        part.x += label.width;
        part.width -= label.width;
        // The newest second at the right edge.
        let missing = u16::try_from(room.saturating_sub(data.len())).unwrap_or(0).min(part.width);
        part.x += missing;
        part.width -= missing;
        frame.render_widget(Sparkline::default().data(&data).max(most).style(style), part);
    }
}

fn main(frame: &mut Frame<'_>, mut rest: Rect, state: &State, scroll: &mut Scroll, now_ms: u64) {
    let whole = frame.area().height;
    let mut tabs = Vec::new();
    for pane in Pane::ALL {
        let style = if pane == state.pane { BOLD.add_modifier(Modifier::UNDERLINED) } else { DIM };
        tabs.push(Span::styled(format!("{} {}", pane.word(), state.count(pane)), style));
        tabs.push("  ".into());
    }
    if !state.filter.is_empty() || state.mode == Mode::Filter {
        let mark = if state.mode == Mode::Filter { "_" } else { "" };
        tabs.push(Span::styled(format!("/{}{mark}", state.filter), YELLOW));
    }
    frame.render_widget(Line::from(tabs), cut(&mut rest, 1));
    if state.pane != Pane::Events && whole >= EVENT_LINES && !state.events.is_empty() {
        let lines = (whole / 6).min(8);
        let mut below = cut_end(&mut rest, lines);
        frame.render_widget(Line::styled("Last events", DIM), cut(&mut below, 1));
        let newest: Vec<&EventRow> = state.events.iter().take(usize::from(lines)).collect();
        events(frame, below, &newest, None, now_ms);
    }
    match state.pane {
        Pane::Servers => servers(frame, rest, state, &mut scroll.servers),
        Pane::Sessions => {
            sessions(frame, rest, &state.sessions, (state.selected(), &mut scroll.sessions));
        }
        Pane::Events => {
            let all: Vec<&EventRow> = state.events.iter().collect();
            events(frame, rest, &all, Some((state.selected(), &mut scroll.events)), now_ms);
        }
    }
}

/// A column of the table of servers: what it says of a row, how wide it is, and who else has to go before it does.
struct Column {
    title: &'static str,
    width: u16,
    /// Small ones stay longest.
    rank: u8,
    cell: fn(&ServerRow) -> (String, Style),
}

const NAME_WIDTH: u16 = 14;

const COLUMNS: [Column; 12] = [
    Column { title: "state", width: 8, rank: 0, cell: state_cell },
    Column { title: "breaker", width: 7, rank: 4, cell: breaker_cell },
    Column {
        title: "n",
        width: 2,
        rank: 9,
        cell: |row| (count(row.instances as u64), Style::new()),
    },
    Column {
        title: "open",
        width: 4,
        rank: 6,
        cell: |row| (count(row.in_flight.into()), Style::new()),
    },
    Column { title: "wait", width: 4, rank: 7, cell: |row| (count(row.queued.into()), YELLOW) },
    Column { title: "calls", width: 9, rank: 2, cell: |row| (count(row.calls), Style::new()) },
    Column { title: "/s", width: 6, rank: 1, cell: |row| (rate(row.per_second), BOLD) },
    Column { title: "failed", width: 7, rank: 3, cell: |row| (count(row.failed), RED) },
    Column { title: "p50", width: 8, rank: 8, cell: |row| (latency(row.p50_us), Style::new()) },
    Column { title: "p99", width: 8, rank: 5, cell: |row| (latency(row.p99_us), Style::new()) },
    Column {
        title: "memory",
        width: 7,
        rank: 10,
        cell: |row| (row.memory.map(megabytes).unwrap_or_default(), Style::new()),
    },
    Column {
        title: "up",
        width: 7,
        rank: 11,
        cell: |row| (row.age_ms.map(age).unwrap_or_default(), DIM),
    },
];

fn count(number: u64) -> String {
    if number == 0 { String::new() } else { grouped(number) }
}

fn rate(number: f64) -> String {
    if number <= 0.0 { String::new() } else { per_second(number) }
}

fn latency(time: Option<u64>) -> String {
    time.map(micros).unwrap_or_default()
}

fn state_cell(row: &ServerRow) -> (String, Style) {
    let style = match row.state {
        RowState::Failed => RED,
        RowState::Starting => YELLOW,
        RowState::Active | RowState::Idle => GREEN,
        RowState::Stopped | RowState::Disabled => DIM,
    };
    (row.state.word().to_owned(), style)
}

fn breaker_cell(row: &ServerRow) -> (String, Style) {
    match (row.is_open, row.is_probing) {
        (true, _) => ("open".to_owned(), RED),
        (_, true) => ("probing".to_owned(), YELLOW),
        _ => (String::new(), DIM),
    }
}

/// Those that fit, in their order.
fn fitting(width: u16) -> Vec<&'static Column> {
    let mut by_rank: Vec<&Column> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut room = width.saturating_sub(NAME_WIDTH);
    let mut last = None;
    for column in by_rank {
        let Some(left) = room.checked_sub(column.width + 1) else { break };
        (room, last) = (left, Some(column.rank));
    }
    COLUMNS.iter().filter(|column| last.is_some_and(|last| column.rank <= last)).collect()
}

fn servers(frame: &mut Frame<'_>, mut area: Rect, state: &State, first: &mut usize) {
    if state.servers.is_empty() {
        let words = match (&state.overview, state.filter.is_empty()) {
            (None, _) => "",
            (_, false) => "No server has that in its name.",
            (_, true) => "No client uses a server yet.",
        };
        frame.render_widget(Line::styled(words, DIM), area);
        return;
    }
    // Why the selected one failed, where there is room for it.
    if let Some(failure) = state.server().and_then(|row| row.failure.as_ref())
        && area.height > 5
    {
        frame.render_widget(Line::styled(failure.clone(), RED), cut_end(&mut area, 1));
    }
    let columns = fitting(area.width);
    let right = |text: String| Line::from(text).alignment(Alignment::Right);
    let cell = |column: &Column, text: String, style: Style| {
        let is_word = column.rank == 0 || column.title == "breaker";
        let line = if is_word { Line::from(text) } else { right(text) };
        Cell::from(line.style(style))
    };
    let header = std::iter::once(Cell::from(Line::styled("server", DIM)));
    let header =
        header.chain(columns.iter().map(|column| cell(column, column.title.to_owned(), DIM)));
    let rows = state.servers.iter().map(|row| {
        let name = Cell::from(Line::styled(row.name.clone(), BOLD));
        let rest = columns.iter().map(|column| {
            let (text, style) = (column.cell)(row);
            cell(column, text, style)
        });
        Row::new(std::iter::once(name).chain(rest).collect::<Vec<_>>())
    });
    let widths = std::iter::once(Constraint::Fill(1));
    let widths = widths.chain(columns.iter().map(|column| Constraint::Length(column.width)));
    let table = Table::new(rows, widths.collect::<Vec<_>>())
        .header(Row::new(header.collect::<Vec<_>>()))
        .row_highlight_style(SELECTED);
    selected(frame, area, table, Some((state.selected(), first)));
}

/// The selected row of a list, and the first one that is shown.
type Place<'a> = (usize, &'a mut usize);

fn selected(frame: &mut Frame<'_>, area: Rect, table: Table<'_>, place: Option<Place<'_>>) {
    let Some((at, first)) = place else { return frame.render_widget(table, area) };
    let mut state = TableState::default().with_offset(*first).with_selected(at);
    frame.render_stateful_widget(table, area, &mut state);
    *first = state.offset();
}

fn sessions(frame: &mut Frame<'_>, area: Rect, all: &[SessionStatus], at: Place<'_>) {
    if all.is_empty() {
        frame.render_widget(Line::styled("No client is connected.", DIM), area);
        return;
    }
    let rows = all.iter().map(|one| {
        let client = match &*said(&one.client) {
            "" => said(&one.kind),
            client => client.to_owned(),
        };
        Row::new([
            Cell::from(one.id.to_string()),
            Cell::from(Line::styled(client, BOLD)),
            Cell::from(said(&one.kind)),
            Cell::from(age(one.age_ms)),
            Cell::from(Line::from(grouped(one.calls)).alignment(Alignment::Right)),
            Cell::from(Line::from(count(one.in_flight.into())).alignment(Alignment::Right)),
            Cell::from(Line::styled(said(&one.folder), DIM)),
        ])
    });
    let titles = ["#", "client", "by", "since", "   calls", "open", "folder"];
    let widths = [
        Constraint::Length(4),
        Constraint::Fill(2),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(4),
        Constraint::Fill(3),
    ];
    let table =
        Table::new(rows, widths).header(Row::new(titles).style(DIM)).row_highlight_style(SELECTED);
    selected(frame, area, table, Some(at));
}

fn events(
    frame: &mut Frame<'_>,
    area: Rect,
    all: &[&EventRow],
    at: Option<Place<'_>>,
    now_ms: u64,
) {
    if all.is_empty() {
        frame.render_widget(Line::styled("Nothing has happened yet.", DIM), area);
        return;
    }
    let rows = all.iter().map(|event| {
        let style = match event.severity {
            Severity::Warning => YELLOW,
            Severity::Info => Style::new(),
        };
        Row::new([
            Cell::from(Line::styled(
                format!("{:>6} ago", age(now_ms.saturating_sub(event.at_ms))),
                DIM,
            )),
            Cell::from(Line::styled(event.server.as_deref().map(said).unwrap_or_default(), BOLD)),
            Cell::from(Line::styled(said(&event.words), style)),
        ])
    });
    let widths = [Constraint::Length(10), Constraint::Max(20), Constraint::Fill(1)];
    selected(frame, area, Table::new(rows, widths).row_highlight_style(SELECTED), at);
}

fn calls(frame: &mut Frame<'_>, area: Rect, all: &[CallRow], at: Place<'_>, now_ms: u64) {
    if all.is_empty() {
        frame.render_widget(Line::styled("No calls yet.", DIM), area);
        return;
    }
    let rows = all.iter().map(|call| {
        let (word, style) = match call.outcome {
            Outcome::Ok => ("ok".to_owned(), GREEN),
            Outcome::ToolError => ("tool error".to_owned(), YELLOW),
            Outcome::Failed => (said(&call.verdict), RED),
            Outcome::Other => (said(&call.verdict), DIM),
        };
        let client = said(call.client.split(' ').next().unwrap_or_default());
        Row::new([
            Cell::from(Line::styled(local_time::moment(call.at_ms, now_ms), DIM)),
            Cell::from(call.id.to_string()),
            Cell::from(Line::styled(word, style)),
            Cell::from(Line::from(micros(call.took_us)).alignment(Alignment::Right)),
            Cell::from(Line::styled(said(&call.tool), BOLD)),
            Cell::from(Line::styled(client, DIM)),
        ])
    });
    let titles = ["ended", "#", "outcome", "    took", "tool", "client"];
    let widths = [
        Constraint::Max(19),
        Constraint::Length(6),
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Fill(2),
        Constraint::Fill(1),
    ];
    let table =
        Table::new(rows, widths).header(Row::new(titles).style(DIM)).row_highlight_style(SELECTED);
    selected(frame, area, table, Some(at));
}

fn logs(frame: &mut Frame<'_>, mut area: Rect, log: &LogView) {
    let place = match log.up {
        0 => "follows".to_owned(),
        up => format!("{} lines below", grouped(up as u64)),
    };
    let title = format!("Log of {} ({place})", said(&log.server));
    frame.render_widget(Line::styled(title, BOLD), cut(&mut area, 1));
    if log.lines.is_empty() {
        let words = if log.is_read { "It has written nothing to stderr." } else { "" };
        frame.render_widget(Line::styled(words, DIM), area);
        return;
    }
    let end = log.lines.len() - log.up.min(log.lines.len());
    let from = end.saturating_sub(usize::from(area.height));
    let lines: Vec<Line<'_>> =
        log.lines.range(from..end).map(|line| Line::from(said(line))).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn footer(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let line = if let Some(question) = state.question() {
        Line::styled(said(&question), YELLOW.add_modifier(Modifier::BOLD))
    } else if let Some(notice) = &state.notice {
        Line::styled(said(notice), BOLD)
    } else if state.mode == Mode::Filter {
        Line::styled("type to filter, Enter keeps it, Esc clears it", DIM)
    } else {
        Line::styled(
            match state.view {
                View::Main => {
                    "q quit  ? help  l log  c calls  r restart  d disable  s sort  / filter  Tab panes"
                }
                View::Logs(_) => "Esc back  ↑↓ scroll  f follow  ? help",
                View::Calls { .. } => "Esc back  ↑↓ move  ? help",
            },
            DIM,
        )
    };
    frame.render_widget(line, area);
}

const HELP: &str = "\
↑ ↓ j k         move; PgUp, PgDn, Home, End
Tab ← →  1 2 3  servers, sessions, events
Enter l         log of the server
c               its last calls
r               restart it (asks)
d               disable or enable it (asks)
s               sort by the next column
/               filter by name; Esc clears
Esc q           back; q ends in the main view
Ctrl-C          end";

fn help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX);
    let (width, height) = (area.width.min(52), area.height.min(lines.saturating_add(2)));
    let inside = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, inside);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("Keys")), inside);
}

/// Text of clients and servers on one line, without escape codes.
fn said(words: &str) -> String {
    text::clean_line(words, 500).into_owned()
}

#[cfg(test)]
mod tests;
