//! The example server `files`: one folder, listed, read, searched and written.
//! Owns: confinement to the folder.      Never: follows a link out of it, opens anything but regular files.
//! In: paths relative to the folder.  Out: entries, contents, matches.
//! Tests: below.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::clock::civil::Stamp;
use super::declare::{
    Answer, Arguments, COUNT, Effect, Field, Kind, Refusal, Tool, may, must, refuse,
};
use super::serve::Service;

/// Largest file that is read, searched or written, in bytes; an example needs no more in memory.
pub(super) const MAX_FILE: u64 = 1 << 20;
/// Most text in one response of `read_file`, about as much as a model can use at once.
const MAX_ANSWER: usize = 64 << 10;
/// Most entries one listing shows.
const MAX_ENTRIES: usize = 1_000;
/// Most files and folders that one search visits, so that a search over a home folder ends.
const MAX_VISITED: usize = 20_000;
/// Longest excerpt of a matching line, in characters.
const MAX_EXCERPT: usize = 200;

/// The folder that all paths must be inside.
pub(super) struct Folder {
    root: PathBuf,
}

const ENTRY: &[Field] = &[
    must("path", Kind::Text, "Path relative to the shared folder."),
    must("kind", Kind::Choice(&["file", "folder", "link", "other"]), ""),
    may("size", COUNT, "Bytes, for files."),
];

const MATCH: &[Field] = &[
    must("path", Kind::Text, "Path relative to the shared folder."),
    may("line", COUNT, "Line number, from 1; left out where the name matched."),
    may("excerpt", Kind::Text, "The matching line, shortened."),
];

const PATH: &str = "Path relative to the shared folder, for example `docs/plan.md`.";

pub(super) static SERVICE: Service<Folder> = Service {
    name: "files",
    title: "Example files",
    instructions: "All paths are relative to the one shared folder. Search before reading whole files.",
    tools: &[
        Tool {
            name: "list_directory",
            title: "List a folder",
            description: "List the files and folders directly inside a folder, sorted by name, with sizes. Use search_files to look through a whole tree.",
            effect: Effect::Reads,
            takes: &[may(
                "path",
                Kind::Text,
                "Folder relative to the shared folder. Default: the shared folder itself.",
            )],
            gives: &[
                must("entries", Kind::List(&Kind::Record(ENTRY)), ""),
                must("truncated", Kind::Flag, "True where the folder holds more than is shown."),
            ],
            run: list_directory,
        },
        Tool {
            name: "read_file",
            title: "Read a text file",
            description: "Read a UTF-8 text file, whole or in part: the first lines with head, the last lines with tail, or a window with offset and limit. Long answers are cut at 64 KiB and say so.",
            effect: Effect::Reads,
            takes: &[
                must("path", Kind::Text, PATH),
                may("head", Kind::Whole(1, 100_000), "Only this many lines from the start."),
                may("tail", Kind::Whole(1, 100_000), "Only this many lines from the end."),
                may("offset", COUNT, "Number of lines to skip before reading."),
                may("limit", Kind::Whole(1, 100_000), "Number of lines to read after offset."),
            ],
            gives: &[],
            run: read_file,
        },
        Tool {
            name: "search_files",
            title: "Search files",
            description: "Find files whose name or content contains a piece of text, in the whole shared folder or below one path. Answers with path, line number and the matching line.",
            effect: Effect::Reads,
            takes: &[
                must("text", Kind::Text, "What to look for, taken literally."),
                may("path", Kind::Text, "Folder to search below. Default: the shared folder."),
                may(
                    "within",
                    Kind::Choice(&["names", "contents", "both"]),
                    "Where to look. Default: both.",
                ),
                may("match_case", Kind::Flag, "Tell upper and lower case apart. Default: false."),
                may("limit", Kind::Whole(1, 500), "Most matches to answer with. Default: 50."),
            ],
            gives: &[
                must("matches", Kind::List(&Kind::Record(MATCH)), ""),
                must("truncated", Kind::Flag, "True where the search stopped at a limit."),
            ],
            run: search_files,
        },
        Tool {
            name: "file_info",
            title: "Describe a file",
            description: "Tell the kind, size, time of last change and permissions of one file or folder without reading it.",
            effect: Effect::Reads,
            takes: &[must("path", Kind::Text, PATH)],
            gives: &[
                must("path", Kind::Text, ""),
                must("kind", Kind::Choice(&["file", "folder", "link", "other"]), ""),
                must("size", COUNT, "Bytes."),
                must("readonly", Kind::Flag, ""),
                may("modified", Kind::Text, "Time of the last change, RFC 3339, UTC."),
            ],
            run: file_info,
        },
        Tool {
            name: "write_file",
            title: "Write a text file",
            description: "Create a text file or replace its whole content, in one step. Missing parent folders are not created.",
            effect: Effect::Overwrites,
            takes: &[
                must("path", Kind::Text, PATH),
                must("content", Kind::Text, "The text to write, up to 1 MiB."),
                may(
                    "mode",
                    Kind::Choice(&["replace", "create"]),
                    "`create` refuses where the file exists. Default: replace.",
                ),
            ],
            gives: &[
                must("path", Kind::Text, ""),
                must("size", COUNT, "Bytes of the file after writing."),
                must("created", Kind::Flag, "True where the file is new."),
            ],
            run: write_file,
        },
    ],
};

impl Folder {
    /// Opens `folder`, which must exist; all other paths are checked against its real path.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let root = dunce::canonicalize(folder)?;
        if root.is_dir() { Ok(Self { root }) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// The real path of something that exists inside the folder.
    fn existing(&self, path: &str) -> Result<PathBuf, Refusal> {
        let real = dunce::canonicalize(self.joined(path)?).map_err(|error| named(path, &error))?;
        self.contained(path, real)
    }

    /// The real path of a file that may not exist yet; its folder must exist.
    fn writable(&self, path: &str) -> Result<PathBuf, Refusal> {
        let joined = self.joined(path)?;
        // A link, even a dangling one, is resolved as a whole: its own folder says nothing about its target.
        if fs::symlink_metadata(&joined).is_ok() {
            return self.existing(path);
        }
        let (Some(parent), Some(name)) = (joined.parent(), joined.file_name()) else {
            refuse!("{path} does not name a file");
        };
        let parent = dunce::canonicalize(parent).map_err(|error| named(path, &error))?;
        self.contained(path, parent.join(name))
    }

    fn joined(&self, path: &str) -> Result<PathBuf, Refusal> {
        let relative = Path::new(path);
        let plain =
            |part| matches!(part, Component::Normal(_) | Component::CurDir | Component::ParentDir);
        if !relative.components().all(plain) {
            refuse!("{path} is not relative to the shared folder");
        }
        Ok(self.root.join(relative))
    }

    /// `Path::starts_with` compares whole components, so `/data-old` is not inside `/data`.
    fn contained(&self, path: &str, real: PathBuf) -> Result<PathBuf, Refusal> {
        if !real.starts_with(&self.root) {
            refuse!("{path} leads out of the shared folder");
        }
        Ok(real)
    }

    fn shown(&self, real: &Path) -> String {
        let relative = real.strip_prefix(&self.root).unwrap_or(real);
        if relative.as_os_str().is_empty() {
            ".".to_owned()
        } else {
            relative.display().to_string()
        }
    }
}

fn list_directory(folder: &mut Folder, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let path = arguments.text_if("path").unwrap_or(".");
    let real = folder.existing(path)?;
    let mut names: Vec<PathBuf> = fs::read_dir(&real)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(|error| named(path, &error))?;
    names.sort();
    let truncated = names.len() > MAX_ENTRIES;
    names.truncate(MAX_ENTRIES);
    let entries: Vec<Value> = names
        .iter()
        .map(|real| {
            let found = fs::symlink_metadata(real).ok();
            let kind = found.as_ref().map_or("other", kind_of);
            let mut entry = json!({ "path": folder.shown(real), "kind": kind });
            if let Some(found) = found.filter(fs::Metadata::is_file) {
                entry["size"] = json!(found.len());
            }
            entry
        })
        .collect();
    Ok(Answer::Data(json!({ "entries": entries, "truncated": truncated })))
}

fn read_file(folder: &mut Folder, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let path = arguments.text("path");
    let text = text_of(&folder.existing(path)?).map_err(|error| named(path, &error))?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (head, tail) = (arguments.whole_if("head").is_some(), arguments.whole_if("tail").is_some());
    let window = arguments.whole_if("offset").is_some() || arguments.whole_if("limit").is_some();
    if [head, tail, window].iter().filter(|given| **given).count() > 1 {
        refuse!("give head, or tail, or offset with limit, not several of them");
    }
    let from = if tail {
        lines.len().saturating_sub(arguments.count_or("tail", 0))
    } else {
        arguments.count_or("offset", 0).min(lines.len())
    };
    let most = arguments.count_or("head", arguments.count_or("limit", usize::MAX));
    let part: String = lines[from..].iter().take(most).copied().collect();
    if part.len() <= MAX_ANSWER {
        return Ok(Answer::Text(part));
    }
    let mut cut = MAX_ANSWER;
    while !part.is_char_boundary(cut) {
        cut -= 1;
    }
    let next = from + part[..cut].matches('\n').count();
    let rest = part.len() - cut;
    Ok(Answer::Text(format!(
        "{}\n[cut: {rest} more bytes; read on with offset {next}]",
        &part[..cut]
    )))
}

fn search_files(folder: &mut Folder, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let match_case = arguments.flag("match_case");
    let fold = |text: &str| if match_case { text.to_owned() } else { text.to_lowercase() };
    let wanted = fold(arguments.text("text"));
    if wanted.is_empty() {
        refuse!("text must not be empty");
    }
    let within = arguments.text_if("within").unwrap_or("both");
    let limit = arguments.count_or("limit", 50);
    let mut open = vec![folder.existing(arguments.text_if("path").unwrap_or("."))?];
    let mut matches = Vec::new();
    let mut visited = 0;
    while let Some(real) = open.pop() {
        visited += 1;
        if matches.len() > limit || visited > MAX_VISITED {
            break;
        }
        let name = real.file_name().map(|name| fold(&name.to_string_lossy())).unwrap_or_default();
        if within != "contents" && real != folder.root && name.contains(&wanted) {
            matches.push(json!({ "path": folder.shown(&real) }));
        }
        // Links are not followed: their target is visited at its real path, or is outside the folder.
        let Ok(found) = fs::symlink_metadata(&real) else { continue };
        if found.is_dir() {
            let mut inside: Vec<PathBuf> = fs::read_dir(&real)
                .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                .unwrap_or_default();
            inside.sort();
            open.extend(inside.into_iter().rev());
        } else if within != "names"
            && let Ok(text) = text_of(&real)
        {
            let lines = text.lines().enumerate().filter(|(_, line)| fold(line).contains(&wanted));
            matches.extend(lines.take(limit + 1 - matches.len().min(limit)).map(
                |(index, line)| {
                    let excerpt: String = line.trim().chars().take(MAX_EXCERPT).collect();
                    json!({ "path": folder.shown(&real), "line": index + 1, "excerpt": excerpt })
                },
            ));
        }
    }
    let truncated = matches.len() > limit || visited > MAX_VISITED;
    matches.truncate(limit);
    Ok(Answer::Data(json!({ "matches": matches, "truncated": truncated })))
}

fn file_info(folder: &mut Folder, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let path = arguments.text("path");
    let real = folder.existing(path)?;
    let found = fs::symlink_metadata(&real).map_err(|error| named(path, &error))?;
    let mut info = json!({
        "path": folder.shown(&real),
        "kind": kind_of(&found),
        "size": found.len(),
        "readonly": found.permissions().readonly(),
    });
    let modified = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    if let Some(since) = modified.and_then(|since| i64::try_from(since.as_secs()).ok()) {
        info["modified"] = json!(Stamp::from_unix(since).to_string());
    }
    Ok(Answer::Data(info))
}

fn write_file(folder: &mut Folder, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let (path, content) = (arguments.text("path"), arguments.text("content"));
    let real = folder.writable(path)?;
    let before = fs::symlink_metadata(&real).ok();
    if before.as_ref().is_some_and(|found| !found.is_file()) {
        refuse!("{path} is not a regular file");
    }
    if arguments.text_if("mode") == Some("create") && before.is_some() {
        refuse!("{path} exists already; use mode replace");
    }
    let size = content.len();
    if size as u64 > MAX_FILE {
        refuse!("content has {size} bytes, at most {MAX_FILE} are written");
    }
    replace(&real, content.as_bytes()).map_err(|error| named(path, &error))?;
    Ok(Answer::Data(
        json!({ "path": folder.shown(&real), "size": size, "created": before.is_none() }),
    ))
}

/// Replaces a file atomically: a reader sees the old or the new content, never half of it.
pub(super) fn replace(target: &Path, content: &[u8]) -> io::Result<()> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beside = target.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(content)?;
            if let Ok(before) = fs::metadata(target) {
                file.set_permissions(before.permissions())?;
            }
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, target));
    if let Err(error) = &written
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        // Best effort: the caller needs the original error.
        drop(fs::remove_file(&beside));
    }
    written
}

/// The text of a regular file of bounded size; a pipe or device could block or never end.
pub(super) fn text_of(real: &Path) -> io::Result<String> {
    let found = fs::symlink_metadata(real)?;
    if !found.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(real)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("larger than {MAX_FILE} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8 text"))
}

fn kind_of(found: &fs::Metadata) -> &'static str {
    match found.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "folder",
        kind if kind.is_symlink() => "link",
        _ => "other",
    }
}

fn named(path: &str, error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => {
            Refusal(format!("{path} does not exist; list_directory shows what does"))
        }
        _ => Refusal(format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests;
