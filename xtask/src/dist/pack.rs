//! Archives that are the same for the same files: a tar in gzip, a zip, and the `ar` around a Debian package. Owners, times
//! and order are fixed, which the usual programs take from the machine.

use std::io::Write;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

const BLOCK: usize = 512;
/// The longest name in the plain form of a tar.
const MAX_NAME: usize = 100;

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// With slashes, without one in front.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    pub(super) is_program: bool,
}

impl Entry {
    pub(super) fn file(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { path: path.into(), bytes: bytes.into(), is_program: false }
    }

    pub(super) fn program(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { is_program: true, ..Entry::file(path, bytes) }
    }

    /// The same below a folder.
    pub(super) fn below(&self, folder: &str) -> Entry {
        Entry { path: format!("{folder}/{}", self.path), ..self.clone() }
    }

    fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }
}

/// Sorted, each name once.
fn sorted(entries: &[Entry]) -> Result<Vec<&Entry>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    for pair in sorted.windows(2) {
        if pair[0].path == pair[1].path {
            bail!("{} is in an archive twice", pair[0].path);
        }
    }
    Ok(sorted)
}

/// A tar in gzip. With `folders`, each folder has an entry too, and names begin with `./`, as Debian wants them.
pub(super) fn tar_gz(entries: &[Entry], epoch: u64, folders: bool) -> Result<Vec<u8>> {
    let mut tar = Vec::new();
    let start = if folders { "./" } else { "" };
    let mut made: Vec<String> = Vec::new();
    if folders {
        header(&mut tar, "./", 0, 0o755, b'5', epoch)?;
    }
    for entry in sorted(entries)? {
        let parts: Vec<&str> = entry.path.split('/').collect();
        for end in 1..parts.len() {
            let folder = format!("{start}{}/", parts[..end].join("/"));
            if folders && !made.contains(&folder) {
                header(&mut tar, &folder, 0, 0o755, b'5', epoch)?;
                made.push(folder);
            }
        }
        let name = format!("{start}{}", entry.path);
        header(&mut tar, &name, entry.bytes.len(), entry.mode(), b'0', epoch)?;
        tar.extend(&entry.bytes);
        tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    }
    tar.resize(tar.len() + 2 * BLOCK, 0);
    // The best compression takes three times as long and saves a hundredth.
    gzip_by(&tar, Compression::default())
}

/// A page as Debian wants it: compressed as well as can be, without a name and a time.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    gzip_by(bytes, Compression::best())
}

fn gzip_by(bytes: &[u8], compression: Compression) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), compression);
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}

fn header(
    tar: &mut Vec<u8>,
    name: &str,
    size: usize,
    mode: u32,
    kind: u8,
    epoch: u64,
) -> Result<()> {
    if name.len() > MAX_NAME {
        bail!("{name} is longer than {MAX_NAME} bytes, which a plain tar cannot hold");
    }
    let mut head = [0_u8; BLOCK];
    let mut put =
        |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{epoch:011o}"));
    put(148, "        ");
    put(257, "ustar");
    put(263, "00");
    put(265, "root");
    put(297, "root");
    head[156] = kind;
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend(head);
    Ok(())
}

/// A zip, each file deflated, with Unix modes.
pub(super) fn zip(entries: &[Entry], epoch: u64) -> Result<Vec<u8>> {
    let (date, time) = dos(epoch);
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    let sorted = sorted(entries)?;
    for entry in &sorted {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&entry.bytes)?;
        let packed = packed.finish()?;
        let mut crc = flate2::Crc::new();
        crc.update(&entry.bytes);
        let start = u32::try_from(all.len()).context("a zip of more than 4 GB")?;
        // Version 2.0, UTF-8 names, deflated.
        let mut common = Vec::new();
        common.extend([20, 0, 0, 8, 8, 0]);
        common.extend(time.to_le_bytes());
        common.extend(date.to_le_bytes());
        common.extend(crc.sum().to_le_bytes());
        common.extend(u32::try_from(packed.len())?.to_le_bytes());
        common.extend(u32::try_from(entry.bytes.len())?.to_le_bytes());
        common.extend(u16::try_from(entry.path.len())?.to_le_bytes());
        common.extend([0, 0]);
        all.extend(b"PK\x03\x04");
        all.extend(&common);
        all.extend(entry.path.as_bytes());
        all.extend(&packed);
        // Made on Unix, so that the modes count.
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend(((0o100_000 | entry.mode()) << 16).to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(entry.path.as_bytes());
    }
    let (start, count) = (u32::try_from(all.len())?, u16::try_from(sorted.len())?);
    all.extend(&directory);
    all.extend(b"PK\x05\x06\0\0\0\0");
    all.extend(count.to_le_bytes());
    all.extend(count.to_le_bytes());
    all.extend(u32::try_from(directory.len())?.to_le_bytes());
    all.extend(start.to_le_bytes());
    all.extend([0, 0]);
    Ok(all)
}

/// A day and a time as a zip has them, in UTC; nothing is before 1980.
fn dos(epoch: u64) -> (u16, u16) {
    let (year, month, day) = date(epoch);
    if year < 1980 {
        return (0x21, 0);
    }
    let seconds = epoch % 86_400;
    let date = ((year - 1980) << 9) | (month << 5) | day;
    let time = ((seconds / 3600) << 11) | ((seconds / 60 % 60) << 5) | ((seconds % 60) / 2);
    (date as u16, time as u16)
}

/// Year, month and day of a moment in UTC.
pub(super) fn date(epoch: u64) -> (u64, u64, u64) {
    // Days since the first of March of year 0, in eras of 400 years.
    let days = epoch / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// The archive around the parts of a Debian package, in their order.
pub(super) fn ar(parts: &[(&str, &[u8])], epoch: u64) -> Vec<u8> {
    let mut all = b"!<arch>\n".to_vec();
    for (name, bytes) in parts {
        let head =
            format!("{name:<16}{epoch:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len());
        all.extend(head.as_bytes());
        all.extend(*bytes);
        if bytes.len() % 2 == 1 {
            all.push(b'\n');
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::run;

    /// The first of September 2024, 12:34:56.
    const EPOCH: u64 = 1_725_194_096;

    fn entries() -> Vec<Entry> {
        vec![Entry::program("a/bin/run", "program"), Entry::file("a/b.txt", "text ".repeat(200))]
    }

    fn listed(name: &str, bytes: &[u8], script: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", script, name]).current_dir(folder.path());
        run::quiet(&mut command).unwrap()
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(951_782_400), (2000, 2, 29));
        assert_eq!(date(EPOCH), (2024, 9, 1));
        assert_eq!(dos(0), (0x21, 0));
    }

    #[test]
    fn a_tar_is_read_by_others_and_does_not_depend_on_the_order() {
        let one = tar_gz(&entries(), EPOCH, true).unwrap();
        let mut other = entries();
        other.reverse();
        assert_eq!(one, tar_gz(&other, EPOCH, true).unwrap());
        let script = "import tarfile, sys\nfor m in tarfile.open(sys.argv[1]): print(m.name, oct(m.mode), m.size, m.mtime, m.uname)";
        assert_eq!(
            listed("a.tar.gz", &one, script),
            format!(
                ". 0o755 0 {EPOCH} root\n./a 0o755 0 {EPOCH} root\n./a/b.txt 0o644 1000 {EPOCH} root\n\
                 ./a/bin 0o755 0 {EPOCH} root\n./a/bin/run 0o755 7 {EPOCH} root\n"
            )
        );
        let twice = [entries(), entries()].concat();
        assert!(tar_gz(&twice, EPOCH, false).is_err());
        assert!(tar_gz(&[Entry::file("x".repeat(101), "")], EPOCH, false).is_err());
    }

    #[test]
    fn a_zip_is_read_by_others() {
        let zip = zip(&entries(), EPOCH).unwrap();
        let script = "import zipfile, sys\nz = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None\nfor m in z.infolist(): print(m.filename, oct(m.external_attr >> 16), m.file_size, m.date_time)";
        assert_eq!(
            listed("a.zip", &zip, script),
            "a/b.txt 0o100644 1000 (2024, 9, 1, 12, 34, 56)\na/bin/run 0o100755 7 (2024, 9, 1, 12, 34, 56)\n"
        );
    }

    #[test]
    fn an_ar_pads_to_even_places() {
        let ar = ar(&[("debian-binary", b"2.0\n"), ("a", b"odd"), ("b", b"")], 7);
        assert_eq!(ar.len(), 8 + 64 + 64 + 60);
        assert!(ar.starts_with(
            b"!<arch>\ndebian-binary   7           0     0     100644  4         `\n2.0\n"
        ));
    }
}
