//! Output for people: findings, tables, colours.
//! Owns: how problems, remarks and tables look.      Never: decides what to print, or to which stream.
//! In: findings, and a `Write`.  Out: text; colours are escape codes that the stream strips where there is no terminal.
//! Tests: below, and `tests/config.rs` as users see it.

mod columns;
mod numbers;

use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use metamcp_config::config::{ConfigError, Severity};
use metamcp_engine::config::{LoadError, Remark};

pub(crate) use self::columns::{Cell, columns, facts, wrapped};
pub(crate) use self::numbers::{age, bytes, grouped, megabytes, micros, per_second};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();

pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// An error with everything a user needs to fix it.
pub(crate) fn load_error(out: &mut dyn Write, error: &LoadError) -> io::Result<()> {
    match error {
        LoadError::Broken { path, error } => problems(out, path, error),
        LoadError::Unreadable { source, .. } => {
            writeln!(out, "{}: {error}: {source}", styled(RED, "error"))
        }
        _ => writeln!(out, "{}: {error}", styled(RED, "error")),
    }
}

/// Every problem of a file, each with its line.
pub(crate) fn problems(out: &mut dyn Write, path: &Path, error: &ConfigError) -> io::Result<()> {
    for problem in &error.problems {
        let path = visible(&path.display().to_string());
        writeln!(out, "{}: {path}:{}", styled(RED, "error"), visible(&problem.to_string()))?;
        for line in problem.excerpt.lines() {
            writeln!(out, "  {}", styled(DIM, line))?;
        }
        hint(out, problem.hint.as_deref())?;
    }
    let remarks: Vec<Remark> =
        error.warnings.iter().map(|warning| Remark::of_file(path, warning)).collect();
    self::remarks(out, &remarks)
}

/// Remarks for the user, one after the other.
pub(crate) fn remarks(out: &mut dyn Write, remarks: &[Remark]) -> io::Result<()> {
    for remark in remarks {
        let label = match remark.severity {
            Severity::Error => styled(RED, "error"),
            Severity::Warning => styled(YELLOW, "warning"),
            Severity::Note => styled(BOLD, "note"),
        };
        writeln!(out, "{label}: {}", visible(&remark.to_string()))?;
        for line in remark.excerpt.iter().flat_map(|excerpt| excerpt.lines()) {
            writeln!(out, "  {}", styled(DIM, line))?;
        }
        hint(out, remark.hint.as_deref())?;
    }
    Ok(())
}

pub(crate) fn hint(out: &mut dyn Write, hint: Option<&str>) -> io::Result<()> {
    hint.map_or(Ok(()), |hint| writeln!(out, "  {} {}", styled(GREEN, "hint:"), visible(hint)))
}

/// Rows in columns as wide as their widest cell; the last column is not padded.
pub(crate) fn table(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str("  ");
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

pub(crate) fn plural(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// Text from files and servers with control characters escaped: an escape code in a name must not reach the terminal.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{table, visible};

    #[test]
    fn columns_line_up() {
        let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let mut out = Vec::new();
        table(&mut out, &[row(&["a", "bé", "c"]), row(&["long", "d", ""]), row(&["x"])]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  a     bé  c\n  long  d\n  x\n");
    }

    #[test]
    fn escape_codes_are_shown_not_obeyed() {
        assert_eq!(visible("a\u{1b}[31mb\nc"), "a\\u{1b}[31mb\nc");
    }
}
