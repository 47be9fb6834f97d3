//! The format of a cache file: a header with a checksum on one line, then the tools.

use std::time::Duration;

use metamcp_tools::about;
use metamcp_tools::tool::{Fingerprint, Listing, Next, ServerTools, Skipped};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Server, TIME_TO_LIVE};

/// The version of the format; another version is a miss, not damage. 2 added the configuration it was made from.
const VERSION: u32 = 2;

/// Longest header line; a longer one counts as damage.
pub(super) const MAX_HEADER_BYTES: u64 = 16 * 1024;

/// How many skipped tools a header lists, and the length of each: together they fit in any alphabet.
const MAX_SKIPPED: usize = 8;
const MAX_SKIPPED_CHARS: usize = 160;

/// Precedes the checksum, which is the last field of the header and covers every byte before it.
const SEAL_FIELD: &str = ",\"seal\":\"";

/// What is known without parsing the tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    v: u32,
    sha256: String,
    len: u64,
    fingerprint: String,
    pub server: String,
    /// A digest of its command or address.
    made_by: String,
    /// The server's own title.
    pub title: Option<String>,
    /// What it says it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// What it is for, as far as its texts and tools tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub version: Option<String>,
    /// The protocol era of the connection.
    pub era: Option<String>,
    pub tools: usize,
    /// The skipped tools, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// When it was written, in milliseconds since 1970.
    pub saved_at: u64,
}

impl Header {
    /// The age of the list; zero if the clock was set back since.
    pub fn age(&self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.saved_at))
    }

    /// Whether the list is recent enough not to be read again.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        self.saved_at <= now_ms && self.age(now_ms) < TIME_TO_LIVE
    }

    pub fn fingerprint(&self) -> Option<Fingerprint> {
        Fingerprint::from_hex(&self.fingerprint)
    }

    /// The header, if it matches a file of `size` bytes whose first line has `line` bytes.
    pub(super) fn for_size(self, line: usize, size: u64) -> Result<Self, Damage> {
        match (line as u64).checked_add(self.len) {
            Some(whole) if whole == size => Ok(self),
            _ => Err(Damage::new(format!(
                "{size} bytes where the header says {} after it",
                self.len
            ))),
        }
    }
}

#[derive(Debug)]
pub struct Cached {
    pub header: Header,
    /// The tools, validated like a live list.
    pub tools: ServerTools,
}

/// Why a file is not used.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) reason: String,
    /// It is not damaged, but of another version or another configuration.
    pub(super) is_mismatch: bool,
}

impl Damage {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_mismatch: false }
    }

    fn mismatch(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_mismatch: true }
    }
}

/// Encodes the whole file.
pub(super) fn encode(
    server: Server<'_>,
    tools: &ServerTools,
    era: Option<&str>,
    now_ms: u64,
) -> Vec<u8> {
    let body = tools.to_json();
    let header = Header {
        v: VERSION,
        sha256: hex(&Sha256::digest(body.as_bytes())),
        len: body.len() as u64,
        fingerprint: tools.fingerprint.to_string(),
        server: server.name.to_owned(),
        made_by: server.made_by.unwrap_or_default().to_owned(),
        title: tools.server_title.clone(),
        about: tools.server_about.clone(),
        summary: about::of(server.name, tools),
        version: tools.server_version.clone(),
        era: era.map(ToOwned::to_owned),
        tools: tools.all().count(),
        skipped: skipped(tools),
        saved_at: now_ms,
    };
    let header = serde_json::to_string(&header).expect("a header is plain data");
    let open = header.strip_suffix('}').unwrap_or(&header);
    let line = format!("{open}{SEAL_FIELD}{}\"}}\n", seal(open));
    [line.as_bytes(), body.as_bytes()].concat()
}

/// As many of the skipped tools as fit. The last one names the limit that was reached.
pub(super) fn skipped(tools: &ServerTools) -> Vec<Skipped> {
    let cut = |text: &str| text.chars().take(MAX_SKIPPED_CHARS).collect::<String>();
    let first = tools.skipped.len().saturating_sub(MAX_SKIPPED);
    tools.skipped[first..]
        .iter()
        .map(|skip| Skipped { name: skip.name.as_deref().map(cut), reason: cut(&skip.reason) })
        .collect()
}

/// Parses the header at the start of a file; also returns the length of its line.
pub(super) fn parse_header(start: &[u8], server: Server<'_>) -> Result<(Header, usize), Damage> {
    let cap = usize::try_from(MAX_HEADER_BYTES).unwrap_or(usize::MAX);
    let line_end = start.iter().take(cap).position(|byte| *byte == b'\n');
    let line_end = line_end.ok_or_else(|| Damage::new("no header line"))?;
    let line = std::str::from_utf8(&start[..line_end])
        .map_err(|_| Damage::new("the header is not UTF-8"))?;
    let (open, sealed) =
        line.rsplit_once(SEAL_FIELD).ok_or_else(|| Damage::new("the header has no checksum"))?;
    if sealed.strip_suffix("\"}") != Some(seal(open).as_str()) {
        return Err(Damage::new("the header does not match its checksum"));
    }
    let read =
        |error: serde_json::Error| Damage::new(format!("the header cannot be read: {error}"));
    let version: Version = serde_json::from_str(line).map_err(read)?;
    if version.v != VERSION {
        return Err(Damage::mismatch(format!("version {}", version.v)));
    }
    let header: Header = serde_json::from_str(line).map_err(read)?;
    if header.server != server.name {
        return Err(Damage::new("it belongs to another server"));
    }
    if server.made_by.is_some_and(|own| own != header.made_by) {
        return Err(Damage::mismatch("it belongs to another configuration of the server"));
    }
    Ok((header, line_end + 1))
}

/// Parses the whole file.
pub(super) fn parse(bytes: &[u8], server: Server<'_>) -> Result<Cached, Damage> {
    let (header, line) = parse_header(bytes, server)?;
    let header = header.for_size(line, bytes.len() as u64)?;
    let body = &bytes[line..];
    if hex(&Sha256::digest(body)) != header.sha256 {
        return Err(Damage::new("the tools do not match their checksum"));
    }
    let mut listing = Listing::new();
    match listing.page(body) {
        Ok(Next::Done) => {}
        Ok(Next::More(_)) => return Err(Damage::new("the tools end in the middle")),
        Err(defect) => return Err(Damage::new(defect.to_string())),
    }
    let mut tools = listing.finish(header.title.as_deref(), header.version.as_deref());
    tools.skipped.clone_from(&header.skipped);
    tools.server_about.clone_from(&header.about);
    if Some(tools.fingerprint) != header.fingerprint() {
        return Err(Damage::new("the tools do not match their fingerprint"));
    }
    Ok(Cached { header, tools })
}

/// Parses arbitrary bytes as a cache file; for fuzzing.
#[doc(hidden)]
pub fn fuzz_cache(data: &[u8]) {
    super::part::survive(data);
    if let Ok(cached) = parse(data, "fuzz".into()) {
        let bytes = encode(
            "fuzz".into(),
            &cached.tools,
            cached.header.era.as_deref(),
            cached.header.saved_at,
        );
        let again =
            parse(&bytes, "fuzz".into()).expect("what was read can be written and read again");
        assert_eq!(
            again.tools.fingerprint, cached.tools.fingerprint,
            "a list changed on its way through the cache"
        );
    }
    // With a valid checksum the bytes reach the parser of the tools.
    let mut listing = Listing::new();
    if listing.page(data).is_ok() {
        let tools = listing.finish(None, None);
        let again = parse(&encode("fuzz".into(), &tools, None, 0), "fuzz".into())
            .expect("a list that was parsed can be encoded");
        assert_eq!(
            again.tools.fingerprint, tools.fingerprint,
            "a list changed on its way through the cache"
        );
    }
}

/// Parsed first: other fields may differ in another version.
#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Eight bytes of SHA-256: against damage, not against an adversary who can write the file.
fn seal(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same file with the checksum recomputed.
#[cfg(test)]
pub(super) fn resealed(file: &str) -> String {
    let (line, body) = file.split_once('\n').expect("a header line");
    let (open, _) = line.rsplit_once(SEAL_FIELD).expect("a seal");
    format!("{open}{SEAL_FIELD}{}\"}}\n{body}", seal(open))
}
