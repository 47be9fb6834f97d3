//! The files of a release's archive, whose checksum was verified before: a compressed tar, or a zip on Windows. Only regular
//! files below its one folder; a name that leads elsewhere makes the archive unusable.

use std::io::Read;

use flate2::read::GzDecoder;
use metamcp_engine::model::zip_entry;

/// The largest archive when unpacked: a program, a model of 23 MB and pages of text.
const MAX_UNPACKED: u64 = 512 * 1024 * 1024;

/// A block of a tar.
const BLOCK: usize = 512;

/// A file of the archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Below the archive's folder, with slashes.
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadArchive {
    #[error("it cannot be unpacked")]
    Damaged,
    #[error("it contains a file that would be written elsewhere")]
    Outside,
    #[error("it contains no program")]
    NoProgram,
}

/// The files of an archive of that name.
pub(super) fn members(file: &str, archive: &[u8]) -> Result<Vec<Member>, BadArchive> {
    let members = match file.strip_suffix(".zip") {
        Some(folder) => zipped(folder, archive)?,
        None => tarred(archive)?,
    };
    let is_program = |member: &Member| matches!(&*member.name, "bin/metamcp" | "bin/metamcp.exe");
    if members.iter().any(is_program) { Ok(members) } else { Err(BadArchive::NoProgram) }
}

/// What an upgrade needs of a zip; the pages in it change little.
fn zipped(folder: &str, archive: &[u8]) -> Result<Vec<Member>, BadArchive> {
    let model = format!("share/metamcp/{}", metamcp_engine::model::FILE);
    let mut members = Vec::new();
    for name in ["bin/metamcp.exe".to_owned(), model] {
        match zip_entry(archive, &format!("{folder}/{name}"), MAX_UNPACKED) {
            Ok(bytes) => members.push(Member { name, bytes }),
            Err(metamcp_engine::model::BadWheel::Missing) => {}
            Err(_) => return Err(BadArchive::Damaged),
        }
    }
    Ok(members)
}

fn tarred(archive: &[u8]) -> Result<Vec<Member>, BadArchive> {
    let mut tar = Vec::new();
    let unpacked = GzDecoder::new(archive).take(MAX_UNPACKED).read_to_end(&mut tar);
    unpacked.map_err(|_| BadArchive::Damaged)?;
    let mut rest = &tar[..];
    let mut members = Vec::new();
    while let Some((head, content)) = rest.split_at_checked(BLOCK) {
        if head.iter().all(|byte| *byte == 0) {
            return Ok(members);
        }
        let size = octal(&head[124..136]).ok_or(BadArchive::Damaged)?;
        let padded = size.next_multiple_of(BLOCK);
        let bytes = content.get(..size).ok_or(BadArchive::Damaged)?;
        rest = content.get(padded..).ok_or(BadArchive::Damaged)?;
        match head[156] {
            b'0' => {
                let name = inside(&text(&head[..100]).ok_or(BadArchive::Damaged)?)?;
                members.push(Member { name, bytes: bytes.to_vec() });
            }
            b'5' => {}
            // Links and long names: we make none.
            _ => return Err(BadArchive::Damaged),
        }
    }
    // It ends with empty blocks.
    Err(BadArchive::Damaged)
}

/// A name without the archive's own folder, if it leads nowhere else.
fn inside(name: &str) -> Result<String, BadArchive> {
    let is_plain =
        |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', ':']);
    match name.split_once('/') {
        Some((_, rest)) if name.split('/').all(is_plain) => Ok(rest.to_owned()),
        _ => Err(BadArchive::Outside),
    }
}

fn text(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok().map(str::to_owned)
}

fn octal(field: &[u8]) -> Option<usize> {
    usize::from_str_radix(text(field)?.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn tar(files: &[(&str, u8, &[u8])]) -> Vec<u8> {
        let mut tar = Vec::new();
        for (name, kind, bytes) in files {
            let mut head = [0; BLOCK];
            head[..name.len()].copy_from_slice(name.as_bytes());
            head[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
            head[156] = *kind;
            tar.extend(head);
            tar.extend(*bytes);
            tar.resize(tar.len().next_multiple_of(BLOCK), 0);
        }
        tar.resize(tar.len() + 2 * BLOCK, 0);
        tar
    }

    fn packed(tar: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(tar).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn files_are_read_below_the_folder_of_the_archive() {
        let files: [(&str, u8, &[u8]); 3] =
            [("m/", b'5', b""), ("m/bin/metamcp", b'0', b"program"), ("m/share/a", b'0', b"")];
        let found = members("m.tar.gz", &packed(&tar(&files))).unwrap();
        let names: Vec<&str> = found.iter().map(|member| &*member.name).collect();
        assert_eq!(names, ["bin/metamcp", "share/a"]);
        assert_eq!(found[0].bytes, b"program");
    }

    #[test]
    fn an_archive_that_leads_elsewhere_or_is_cut_is_refused() {
        for name in ["../x", "m/../../x", "m//x", "x", "m/a\\b", "m/C:x", "/etc/x", "m/./x"] {
            let archive = packed(&tar(&[("m/bin/metamcp", b'0', b""), (name, b'0', b"x")]));
            let found = members("m.tar.gz", &archive);
            assert_eq!(found, Err(BadArchive::Outside), "{name}");
        }
        let whole = tar(&[("m/bin/metamcp", b'0', &[7; 2000])]);
        for cut in [0, 100, BLOCK, BLOCK + 100, whole.len() - 2 * BLOCK] {
            let found = members("m.tar.gz", &packed(&whole[..cut]));
            assert_eq!(found, Err(BadArchive::Damaged), "{cut}");
        }
        let link = packed(&tar(&[("m/bin/metamcp", b'2', b"")]));
        assert_eq!(members("m.tar.gz", &link), Err(BadArchive::Damaged));
        let empty = packed(&tar(&[("m/a", b'0', b"")]));
        assert_eq!(members("m.tar.gz", &empty), Err(BadArchive::NoProgram));
        assert_eq!(members("m.zip", b"PK"), Err(BadArchive::Damaged));
        assert_eq!(members("m.tar.gz", b"no gzip"), Err(BadArchive::Damaged));
    }
}
