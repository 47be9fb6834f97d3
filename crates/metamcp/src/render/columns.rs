//! Text in columns, fitted to the width of the terminal.

use std::io::{self, Write};

use anstyle::Style;
use console::{measure_text_width, truncate_str};

use super::{DIM, styled};

const GAP: usize = 2;

/// Minimum width of text next to other columns.
const NARROWEST: usize = 24;

/// A piece of text in one style.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, style: Style) -> Cell {
        Cell { text: text.into(), style }
    }

    fn width(&self) -> usize {
        measure_text_width(&self.text)
    }

    fn shown(&self) -> String {
        if self.text.is_empty() { String::new() } else { styled(self.style, &self.text) }
    }
}

/// Rows in columns that together are at most `width` wide. The last column gets the remaining width and is truncated to
/// it; the others are truncated at a third of the width.
pub(crate) fn columns(out: &mut dyn Write, rows: &[Vec<Cell>], width: usize) -> io::Result<()> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let most = (width / 3).max(NARROWEST / 2);
    let wide = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(Cell::width).max().unwrap_or(0).min(most)
    };
    let widths: Vec<usize> = (0..count.saturating_sub(1)).map(wide).collect();
    let taken: usize = widths.iter().map(|width| width + GAP).sum();
    let last = width.saturating_sub(taken).max(1);
    for row in rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let room = widths.get(at).copied().unwrap_or(last);
            let text = truncate_str(&cell.text, room, "…").into_owned();
            let cut = Cell { text, style: cell.style };
            line.push_str(&cut.shown());
            if at + 1 < row.len() {
                line.push_str(&" ".repeat((room + GAP).saturating_sub(cut.width())));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// One fact a line: its label, then its text, wrapped at the width of the terminal if there is one.
pub(crate) fn facts(
    out: &mut dyn Write,
    rows: &[(&str, String)],
    width: Option<usize>,
) -> io::Result<()> {
    let names = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let indent = GAP + names + GAP;
    for (name, words) in rows {
        let space = " ".repeat(names - name.len() + GAP);
        let room = width.map(|width| width.saturating_sub(indent).max(NARROWEST));
        let lines = words.lines().flat_map(|line| match room {
            Some(room) => wrapped(line, room),
            None => vec![line.to_owned()],
        });
        let lines: Vec<String> = lines.collect();
        let below = format!("\n{}", " ".repeat(indent));
        writeln!(out, "  {}{space}{}", styled(DIM, name), lines.join(&below))?;
    }
    Ok(())
}

/// Wraps a line at `room` columns between words; a longer word gets a line of its own.
pub(crate) fn wrapped(line: &str, room: usize) -> Vec<String> {
    let (mut lines, mut now) = (Vec::new(), String::new());
    for word in line.split(' ') {
        let wide = measure_text_width(&now) + 1 + measure_text_width(word);
        if !now.is_empty() && wide > room {
            lines.push(std::mem::take(&mut now));
        } else if !now.is_empty() {
            now.push(' ');
        }
        now.push_str(word);
    }
    lines.push(now);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rows: &[&[&str]], width: usize) -> String {
        let cell = |text: &&str| Cell::new(*text, Style::new());
        let rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        let mut out = Vec::new();
        columns(&mut out, &rows, width).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_line_up_and_no_line_is_wider_than_the_terminal() {
        let rows: &[&[&str]] = &[
            &["a", "one", "short"],
            &["日本語", "two", "a long description that does not fit on the line at all, ever"],
            &["a name that is much too long for a column", "", "x"],
        ];
        for width in [40, 60, 80, 140] {
            let told = told(rows, width);
            let at = |line: &str, needle: &str| {
                measure_text_width(line.split(needle).next().unwrap_or_default())
            };
            let lines: Vec<&str> = told.lines().collect();
            assert!(lines.iter().all(|line| measure_text_width(line) <= width), "{told}");
            assert_eq!(at(lines[0], "one"), at(lines[1], "two"), "{told}");
        }
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a-very-long-word x", 5), ["a-very-long-word", "x"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
