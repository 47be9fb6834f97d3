//! `metamcp registry`: the cached data of registries: refresh, export, import.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context;
use metamcp_engine::config::Loaded;
use metamcp_engine::provision::{MAX_SNAPSHOT, Provisioner};
use metamcp_provisioning::provision::day;
use serde_json::{Value, json};

use crate::args::RegistryCommand;
use crate::exit::{Exit, OrMisuse};
use crate::progress;
use crate::render::{plural, visible};

pub(crate) fn run(
    loaded: &Loaded,
    command: &RegistryCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let settings = &loaded.config.settings;
    let provisioner = Provisioner::new(&settings.home, &settings.provision, Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match command {
        RegistryCommand::Refresh(args) => {
            let mut failed = false;
            let mut all = Vec::new();
            for registry in &provisioner.registries {
                let working = progress::step(format!("asking {}", visible(registry.base())));
                let (count, note) = runtime.block_on(registry.refresh_now());
                drop(working);
                failed |= note.is_some();
                if args.json {
                    all.push(
                        json!({ "registry": registry.base(), "servers": count, "note": note }),
                    );
                } else {
                    let count = plural(count, "server");
                    writeln!(out, "{}: {count}", visible(registry.base()))?;
                    if let Some(note) = note {
                        writeln!(out, "  {}", visible(&note))?;
                    }
                }
            }
            if args.json {
                writeln!(out, "{:#}", Value::from(all))?;
            } else if provisioner.registries.is_empty() {
                writeln!(out, "No registry is configured.")?;
            }
            Ok(if failed { Exit::Unavailable } else { Exit::Success })
        }
        RegistryCommand::Export(args) => {
            let bytes = provisioner.snapshot();
            std::fs::write(&args.file, &bytes)
                .with_context(|| format!("cannot write {}", args.file.display()))?;
            writeln!(out, "{}: {} bytes", args.file.display(), bytes.len())?;
            Ok(Exit::Success)
        }
        RegistryCommand::Import(args) => {
            for (base, count, synced) in
                provisioner.take_snapshot(&read(&args.file)?).or_misuse()?
            {
                let count = plural(count, "server");
                writeln!(out, "{}: {count}, as of {}", visible(&base), day(synced))?;
            }
            Ok(Exit::Success)
        }
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|opened| opened.take(MAX_SNAPSHOT + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {}", file.display()))
        .or_misuse()?;
    anyhow::ensure!(
        bytes.len() as u64 <= MAX_SNAPSHOT,
        "{} is larger than {} MiB, the limit for a snapshot of registries",
        file.display(),
        MAX_SNAPSHOT / (1024 * 1024)
    );
    Ok(bytes)
}
