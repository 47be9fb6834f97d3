//! `metamcp audit verify`: whether the log is whole, in words and as an exit code.

use std::io::Write;
use std::path::Path;

use metamcp_audit::{Expected, FileName, Finding, Head, Report, Verifier};
use metamcp_engine::audit::{Position, Reading};
use serde_json::{Value, json};

use super::{NOTHING, told};
use crate::args::AuditVerifyArgs;
use crate::exit::{Exit, OrMisuse};
use crate::render::{GREEN, RED, plural, styled, visible};

pub(super) fn run(
    home: &Path,
    args: &AuditVerifyArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let expected: Option<Head> =
        args.expect.as_deref().map(|text| text.parse().or_misuse()).transpose()?;
    let reading = Reading::of(home).map_err(told)?;
    let mut verifier = Verifier::new(expected);
    let mut note = None;
    if let Some(reading) = &reading {
        note = reading.note;
        let mut files = reading.files();
        let mut current = FileName(0);
        let mut begin = |verifier: &mut Verifier, until: FileName| {
            // An empty file has no line that would name it.
            while current != until {
                let Some(next) = files.next() else { return };
                verifier.file(next);
                current = next;
            }
        };
        reading
            .lines(Position::default(), |raw| {
                begin(&mut verifier, raw.file);
                verifier.line(raw.bytes, raw.ended);
                true
            })
            .map_err(told)?;
        if let Some(last) = reading.files().next_back() {
            begin(&mut verifier, last);
        }
    }
    let report = verifier.finish(note);
    match args.json {
        true => writeln!(out, "{:#}", as_json(&report))?,
        false if reading.is_none() && expected.is_none() => writeln!(out, "{NOTHING}")?,
        false => show(&report, out)?,
    }
    Ok(if report.is_good() { Exit::Success } else { Exit::AuditBroken })
}

fn show(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let size = format!("{} in {}", plural_of(report.lines, "line"), plural(report.files, "file"));
    match report.is_good() {
        true => writeln!(out, "{}: {size}", styled(GREEN, "The audit log is whole"))?,
        false => {
            let count = report.findings.len() as u64 + report.more;
            let words = format!("The audit log is damaged: {}", plural_of(count, "finding"));
            writeln!(out, "{}; {size} are intact", styled(RED, &words))?;
        }
    }
    if let (Some((first, from)), Some((last, to))) = (&report.first, &report.last) {
        writeln!(out, "  number {first} ({}) to {} ({})", visible(from), last.seq, visible(to))?;
        writeln!(out, "  head {last}")?;
    }
    if report.rotated {
        writeln!(out, "  older files were removed, because audit.maxFiles are kept")?;
    }
    for cut in &report.cuts {
        let (file, line, bytes) = (cut.file, cut.line, cut.bytes);
        writeln!(
            out,
            "  {file}:{line}: cut after {bytes} bytes: metamcp ended while it wrote this line"
        )?;
    }
    if report.lost > 0 {
        writeln!(
            out,
            "  {} could not be recorded, as the log says itself",
            plural_of(report.lost, "event")
        )?;
    }
    match report.expected {
        Some(Expected::Found) => writeln!(out, "  the expected line is there")?,
        Some(Expected::RotatedAway) => {
            writeln!(out, "  the expected line is older than the oldest file that is left")?;
        }
        Some(Expected::NotFound) | None => {}
    }
    for finding in &report.findings {
        writeln!(out, "  {}", styled(RED, &finding.to_string()))?;
    }
    if report.more > 0 {
        writeln!(out, "  and {} more", report.more)?;
    }
    Ok(())
}

fn plural_of(count: u64, word: &str) -> String {
    plural(usize::try_from(count).unwrap_or(usize::MAX), word)
}

/// Its words are a stable interface.
fn as_json(report: &Report) -> Value {
    let cuts = report
        .cuts
        .iter()
        .map(|cut| json!({ "file": cut.file.to_string(), "line": cut.line, "bytes": cut.bytes }));
    let finding = |one: &Finding| {
        let word = match one {
            Finding::Changed { .. } => "changed",
            Finding::Replaced { .. } | Finding::EndReplaced { .. } => "replaced",
            Finding::Missing { .. } | Finding::EndGone { .. } => "missing",
            Finding::Repeated { .. } => "repeated",
            Finding::OldestGone { .. } | Finding::FileGone(_) => "file_missing",
            Finding::NoteGone | Finding::NoteWasGone { .. } => "head_missing",
            Finding::NotExpected(_) => "not_expected",
        };
        json!({ "kind": word, "message": one.to_string() })
    };
    json!({
        "whole": report.is_good(),
        "files": report.files,
        "lines": report.lines,
        "first": report.first.as_ref().map(|(seq, time)| json!({ "seq": seq, "time": time })),
        "last": report.last.as_ref().map(|(head, time)| json!({ "seq": head.seq, "time": time })),
        "head": report.last.as_ref().map(|(head, _)| head.to_string()),
        "rotated": report.rotated,
        "lost": report.lost,
        "cuts": cuts.collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "more_findings": report.more,
        "expected": report.expected.map(|expected| match expected {
            Expected::Found => "found",
            Expected::RotatedAway => "rotated_away",
            Expected::NotFound => "not_found",
        }),
    })
}
