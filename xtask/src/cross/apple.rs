//! What a program for macOS needs of that system.
//! Owns: the libraries it may name.      Never: runs it.
//! In: the program.  Out: an error that names a framework.
//! Tests: below; every build for macOS is looked at.
//!
//! A framework would have to come from Apple's SDK, which only a Mac has, and every one is loaded at each start.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::macho::MachHeader64;
use object::read::macho::{LoadCommandVariant, MachHeader};

/// The C library of the system.
const LIBRARIES: [&str; 1] = ["/usr/lib/libSystem.B.dylib"];

pub(super) fn needs_no_framework(program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let needed = libraries(&bytes).with_context(|| program.display().to_string())?;
    if needed.is_empty() {
        bail!("{} names no library, not even the system's", program.display());
    }
    let mut others = needed.iter().filter(|library| !LIBRARIES.contains(&library.as_str()));
    if let Some(other) = others.next() {
        bail!("{} needs {other}, and only {} is allowed", program.display(), LIBRARIES.join(", "));
    }
    Ok(())
}

/// The libraries that a program of Mach-O says it needs.
fn libraries(bytes: &[u8]) -> Result<Vec<String>> {
    let header = MachHeader64::<Endianness>::parse(bytes, 0)?;
    let endian = header.endian()?;
    let mut commands = header.load_commands(endian, bytes, 0)?;
    let mut libraries = Vec::new();
    while let Some(command) = commands.next()? {
        if let LoadCommandVariant::Dylib(library) = command.variant()? {
            let name = command.string(endian, library.dylib.name)?;
            libraries.push(String::from_utf8_lossy(name).into_owned());
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one command for each library.
    fn program(names: &[&str]) -> Vec<u8> {
        let commands: Vec<Vec<u8>> = names
            .iter()
            .map(|name| {
                let size = (24 + name.len() + 8) / 8 * 8;
                let mut command: Vec<u8> = [0xc, size as u32, 24, 0, 0, 0]
                    .iter()
                    .flat_map(|n: &u32| n.to_le_bytes())
                    .collect();
                command.extend(name.bytes());
                command.resize(size, 0);
                command
            })
            .collect();
        let size = commands.iter().map(Vec::len).sum::<usize>() as u32;
        let header = [0xfeed_facf, 0x0100_000c, 0, 2, names.len() as u32, size, 0, 0];
        header.iter().flat_map(|n: &u32| n.to_le_bytes()).chain(commands.concat()).collect()
    }

    #[test]
    fn a_framework_is_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("program");
        let looked_at = |names: &[&str]| {
            fs::write(&file, program(names)).unwrap();
            needs_no_framework(&file).map_err(|error| error.to_string())
        };
        assert_eq!(looked_at(&LIBRARIES), Ok(()));
        let security = "/System/Library/Frameworks/Security.framework/Versions/A/Security";
        assert!(looked_at(&[LIBRARIES[0], security]).unwrap_err().contains(security));
        assert!(looked_at(&[]).is_err());
        fs::write(&file, "\x7fELF").unwrap();
        assert!(needs_no_framework(&file).is_err());
    }
}
