//! `metamcp audit export`: a part of the log for somebody else, with a manifest that says what it is.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use metamcp_audit::{HEADER, row};
use metamcp_engine::audit::{Position, Reading};
use metamcp_engine::clock::unix_millis;
use metamcp_types::date;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{each, filter, reading, told};
use crate::args::AuditExportArgs;
use crate::console;
use crate::exit::{Exit, OrMisuse};
use crate::render::{plural, visible};

pub(super) fn run(
    home: &Path,
    args: &AuditExportArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let Some(output) = &args.output else {
        if let Some(reading) = Reading::of(home).map_err(told)? {
            lines(&reading, args, out)?;
        }
        return Ok(Exit::Success);
    };
    let Some(reading) = reading(home, out, false)? else { return Ok(Exit::Failure) };
    let output = console::absolute(output);
    let manifest = {
        let mut name = output.clone().into_os_string();
        name.push(".manifest.json");
        name
    };
    let mut counted = Counted { inner: BufWriter::new(created(&output)?), digest: Sha256::new() };
    let exported = lines(&reading, args, &mut counted)?;
    counted.flush()?;
    let sha256: String =
        counted.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let told = json!({
        "exported": date::day(unix_millis()),
        "file": output.file_name().map(|name| name.to_string_lossy()),
        "format": if args.csv { "csv" } else { "jsonl" },
        "lines": exported.count,
        "first": exported.first,
        "last": exported.last,
        "sha256": sha256,
        "head": reading.note.map(|note| note.head.to_string()),
    });
    let mut written = created(Path::new(&manifest))?;
    written.write_all(format!("{told:#}\n").as_bytes())?;
    let name = visible(&output.display().to_string());
    writeln!(
        out,
        "Exported {} to {name}, and {name}.manifest.json.",
        plural(exported.count, "line")
    )?;
    Ok(Exit::Success)
}

/// What was exported.
#[derive(Default)]
struct Exported {
    count: usize,
    /// Numbers of the first line and of the last.
    first: Option<u64>,
    last: Option<u64>,
}

fn lines(
    reading: &Reading,
    args: &AuditExportArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exported> {
    let mut exported = Exported::default();
    if args.csv {
        writeln!(out, "{HEADER}")?;
    }
    each(reading, Position::default(), &filter(&args.filter)?, |raw, line| {
        match args.csv {
            true => writeln!(out, "{}", row(line))?,
            false => {
                out.write_all(raw)?;
                out.write_all(b"\n")?;
            }
        }
        exported.count += 1;
        exported.first.get_or_insert(line.seq());
        exported.last = Some(line.seq());
        Ok(())
    })?;
    Ok(exported)
}

/// A new private file: never over another.
fn created(path: &Path) -> anyhow::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let created = options.open(path);
    created.with_context(|| format!("cannot create {}", path.display())).or_misuse()
}

/// Writes, and digests what is written.
struct Counted {
    inner: BufWriter<File>,
    digest: Sha256,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
