//! What a release offers, from its list of checksums: the newest version is in the names of the files.

use std::cmp::Ordering;

/// A version: three numbers and, before a release, what comes after a hyphen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    numbers: [u64; 3],
    before: Option<String>,
}

impl Version {
    pub(super) fn parse(text: &str) -> Option<Version> {
        let (numbers, before) = match text.split_once('-') {
            Some((numbers, before)) => (numbers, Some(before)),
            None => (text, None),
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '.';
        if before.is_some_and(|before| before.is_empty() || !before.chars().all(is_word)) {
            return None;
        }
        let mut parts = numbers.split('.').map(|part| {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| is_number)
        });
        let numbers = [parts.next()??, parts.next()??, parts.next()??];
        parts.next().is_none().then(|| Version { numbers, before: before.map(str::to_owned) })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        self.before.as_ref().map_or(Ok(()), |before| write!(f, "-{before}"))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What leads to a release is older than it.
impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (&self.before, &other.before) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(own), Some(theirs)) => own.cmp(theirs),
        })
    }
}

/// A file of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) version: Version,
    pub(super) file: String,
    /// In lower case.
    pub(super) sha256: String,
}

/// Why a list of checksums is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadList {
    #[error("is not a list of checksums")]
    NotOne,
    #[error("has no file for {system} on {processor}")]
    NotForHere { system: String, processor: String },
    #[error("names two versions for this system")]
    TwoVersions,
}

/// The release's archive for a system and a processor, as Rust calls them.
pub(super) fn archive(sums: &str, system: &str, processor: &str) -> Result<Release, BadList> {
    let ending = if system == "windows" { "zip" } else { "tar.gz" };
    let ending = format!("-{system}-{processor}.{ending}");
    let mut found = None;
    for line in sums.lines().filter(|line| !line.trim().is_empty()) {
        let (sum, file) = line.split_once(char::is_whitespace).ok_or(BadList::NotOne)?;
        let file = file.trim_start().trim_start_matches('*');
        if sum.len() != 64 || !sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadList::NotOne);
        }
        let named = file.strip_prefix("metamcp-").and_then(|rest| rest.strip_suffix(&ending));
        let Some(version) = named.and_then(Version::parse) else { continue };
        if found.is_some() {
            return Err(BadList::TwoVersions);
        }
        found = Some(Release { version, file: file.to_owned(), sha256: sum.to_ascii_lowercase() });
    }
    found.ok_or_else(|| BadList::NotForHere {
        system: system.to_owned(),
        processor: processor.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_ordered_and_nothing_else_is_one() {
        let order = ["0.2.0-rc.1", "0.2.0", "0.2.1", "0.10.0", "1.0.0"];
        for pair in order.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
            assert_eq!(version(pair[0]).to_string(), pair[0]);
        }
        for bad in ["", "1", "1.2", "1.2.3.4", "1.2.x", "+1.2.3", "1.2.3-", "1.2.3-a/b", "v1.2.3"] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_archive_of_this_system_is_found_in_the_list() {
        let sum = "A".repeat(64);
        let sums = format!(
            "{sum}  metamcp-0.3.0-linux-x86_64.tar.gz\n{sum} *metamcp-0.3.0-windows-x86_64.zip\n\
             {sum}  metamcp_0.3.0_amd64.deb\n{sum}  install.sh\n"
        );
        let found = archive(&sums, "linux", "x86_64").unwrap();
        assert_eq!((found.version, found.sha256), (version("0.3.0"), "a".repeat(64)));
        assert_eq!(
            archive(&sums, "windows", "x86_64").unwrap().file,
            "metamcp-0.3.0-windows-x86_64.zip"
        );
        let error = archive(&sums, "linux", "riscv64").unwrap_err();
        assert_eq!(error.to_string(), "has no file for linux on riscv64");
        assert_eq!(archive("<html>", "linux", "x86_64"), Err(BadList::NotOne));
        assert_eq!(archive("<html> <body>", "linux", "x86_64"), Err(BadList::NotOne));
        let two = format!("{sums}{sum}  metamcp-0.4.0-linux-x86_64.tar.gz\n");
        assert_eq!(archive(&two, "linux", "x86_64"), Err(BadList::TwoVersions));
    }
}
