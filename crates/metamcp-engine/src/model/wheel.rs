//! Reads one file from a wheel, which is a zip: stored or deflated only, every offset checked before use. Only the central
//! directory at the end of the file is trusted.

use std::io::Read;

use flate2::read::DeflateDecoder;

/// The end-of-directory record without a comment.
const END: usize = 22;
/// The longest comment of a zip.
const MAX_COMMENT: usize = u16::MAX as usize;
/// Most files; the wheel has twenty.
const MAX_FILES: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadWheel {
    /// Not a zip, or with features that no wheel uses.
    #[error("it is not a readable zip file")]
    NotOne,
    #[error("it lacks a required file")]
    Missing,
    #[error("it contains a file that is too large")]
    TooLarge,
    #[error("it contains a damaged file")]
    Damaged,
}

/// One entry of the central directory.
struct Entry {
    method: u16,
    packed: u32,
    unpacked: u32,
    start: u32,
}

/// The content of the file of that name, of at most `most` bytes.
pub fn entry(archive: &[u8], name: &str, most: u64) -> Result<Vec<u8>, BadWheel> {
    let entry = find(archive, name)?;
    if u64::from(entry.unpacked) > most {
        return Err(BadWheel::TooLarge);
    }
    let packed = packed(archive, name, &entry).ok_or(BadWheel::NotOne)?;
    let expected = entry.unpacked as usize;
    let bytes = match entry.method {
        0 => packed.to_vec(),
        8 => {
            let mut bytes = Vec::new();
            // Reading one byte more than declared reveals a wrong size.
            let unpacked = DeflateDecoder::new(packed).take(u64::from(entry.unpacked) + 1);
            { unpacked }.read_to_end(&mut bytes).map_err(|_| BadWheel::Damaged)?;
            bytes
        }
        _ => return Err(BadWheel::NotOne),
    };
    if bytes.len() == expected { Ok(bytes) } else { Err(BadWheel::Damaged) }
}

fn find(archive: &[u8], name: &str) -> Result<Entry, BadWheel> {
    let (count, mut directory) = directory(archive).ok_or(BadWheel::NotOne)?;
    for _ in 0..count {
        let entry = next(&mut directory, name).ok_or(BadWheel::NotOne)?;
        if let Some(entry) = entry {
            return Ok(entry);
        }
    }
    Err(BadWheel::Missing)
}

/// The number of entries in the central directory, and its bytes.
fn directory(archive: &[u8]) -> Option<(usize, &[u8])> {
    let from = archive.len().saturating_sub(END + MAX_COMMENT);
    let last = archive.len().checked_sub(END)?;
    // The comment must end exactly at the end of the file: a fake directory inside a comment does not count.
    let end = (from..=last)
        .rev()
        .map(|at| &archive[at..])
        .find(|end| end.starts_with(b"PK\x05\x06") && short(end, 20) == Some(end.len() - END))?;
    let (disk, here, count) = (long(end, 4)?, short(end, 8)?, short(end, 10)?);
    if disk != 0 || here != count || count > MAX_FILES {
        return None;
    }
    let (size, start) = (long(end, 12)? as usize, long(end, 16)? as usize);
    Some((count, archive.get(start..start.checked_add(size)?)?))
}

/// Skips one entry; returns it if it has the name.
#[expect(clippy::option_option, reason = "the outer is a broken archive, the inner another file")]
fn next(directory: &mut &[u8], name: &str) -> Option<Option<Entry>> {
    let own = *directory;
    if !own.starts_with(b"PK\x01\x02") {
        return None;
    }
    let (named, extra, comment) = (short(own, 28)?, short(own, 30)?, short(own, 32)?);
    let (head, rest) = own.split_at_checked(46)?;
    let (its_name, _) = rest.split_at_checked(named)?;
    *directory = rest.get(named + extra + comment..)?;
    if its_name != name.as_bytes() {
        return Some(None);
    }
    // The lowest bit means encrypted.
    let entry = (short(head, 8)? & 1 == 0).then_some(Entry {
        method: u16::try_from(short(head, 10)?).ok()?,
        packed: long(head, 20)?,
        unpacked: long(head, 24)?,
        start: long(head, 42)?,
    });
    entry.map(Some)
}

/// The compressed bytes of an entry, after its local header.
fn packed<'a>(archive: &'a [u8], name: &str, entry: &Entry) -> Option<&'a [u8]> {
    let own = archive.get(entry.start as usize..)?;
    let (head, rest) = own.split_at_checked(30)?;
    let (named, extra) = (short(head, 26)?, short(head, 28)?);
    let is_same = head.starts_with(b"PK\x03\x04") && rest.get(..named)? == name.as_bytes();
    let start = named + extra;
    rest.get(start..start.checked_add(entry.packed as usize)?).filter(|_| is_same)
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk::<2>()?;
    Some(usize::from(u16::from_le_bytes(*bytes)))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use proptest::prelude::*;

    use super::*;

    /// A zip of two files, one stored and one deflated.
    fn zipped() -> Vec<u8> {
        let text = "read a file ".repeat(50);
        let mut deflated = DeflateEncoder::new(Vec::new(), Compression::default());
        deflated.write_all(text.as_bytes()).unwrap();
        let deflated = deflated.finish().unwrap();
        let files =
            [("a/stored", 0u16, b"as it is".to_vec(), 8usize), ("b", 8, deflated, text.len())];
        let (mut all, mut directory) = (Vec::new(), Vec::new());
        for (name, method, packed, unpacked) in files {
            let start = u32::try_from(all.len()).unwrap();
            let mut common = vec![20, 0, 0, 0];
            common.extend(method.to_le_bytes());
            common.extend([0; 8]);
            common.extend(u32::try_from(packed.len()).unwrap().to_le_bytes());
            common.extend(u32::try_from(unpacked).unwrap().to_le_bytes());
            common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            common.extend([0, 0]);
            all.extend(b"PK\x03\x04");
            all.extend(&common);
            all.extend(name.as_bytes());
            all.extend(&packed);
            directory.extend(b"PK\x01\x02\x14\x00");
            directory.extend(&common);
            directory.extend([0; 10]);
            directory.extend(start.to_le_bytes());
            directory.extend(name.as_bytes());
        }
        let start = u32::try_from(all.len()).unwrap();
        all.extend(&directory);
        all.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
        all.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
        all.extend(start.to_le_bytes());
        all.extend([0, 0]);
        all
    }

    #[test]
    fn stored_and_deflated_files_are_read() {
        let zip = zipped();
        assert_eq!(entry(&zip, "a/stored", 100).unwrap(), b"as it is");
        assert_eq!(entry(&zip, "b", 1000).unwrap(), "read a file ".repeat(50).as_bytes());
        assert_eq!(entry(&zip, "c", 1000).unwrap_err(), BadWheel::Missing);
        assert_eq!(entry(&zip, "b", 599).unwrap_err(), BadWheel::TooLarge);
        let mut with_comment = zip.clone();
        let length = with_comment.len();
        with_comment[length - 2] = 3;
        with_comment.extend(b"end");
        assert_eq!(entry(&with_comment, "a/stored", 100).unwrap(), b"as it is");
    }

    #[test]
    fn a_file_that_is_not_a_zip_is_refused() {
        let zip = zipped();
        for bad in [&b""[..], b"PK", &zip[..zip.len() - 1], &zip[1..]] {
            assert!(entry(bad, "b", 1000).is_err());
        }
        let more = [&zip[..], b"tail"].concat();
        assert_eq!(entry(&more, "b", 1000).unwrap_err(), BadWheel::NotOne);
    }

    proptest! {
        #[test]
        fn a_hostile_zip_never_exceeds_the_size_limit(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..10),
            cut in any::<Option<prop::sample::Index>>(),
        ) {
            let mut zip = zipped();
            for (at, byte) in &changes { let at = at.index(zip.len()); zip[at] = *byte; }
            if let Some(cut) = cut {
                zip.truncate(cut.index(zip.len()));
            }
            for name in ["a/stored", "b"] {
                if let Ok(bytes) = entry(&zip, name, 1000) {
                    prop_assert!(bytes.len() <= 1000);
                }
            }
        }
    }
}
