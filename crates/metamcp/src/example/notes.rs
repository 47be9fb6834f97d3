//! The example server `notes`: short notes with tags in one JSON-lines file.
//! Owns: that file.      Never: rewrites a file it could not parse completely, leaves it half written.
//! In: texts, tags, ids.  Out: notes.
//! Tests: below and `example/tests.rs`.

use std::io;
use std::path::{Path, PathBuf};

use metamcp_engine::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::clock::civil::Stamp;
use super::declare::{
    Answer, Arguments, COUNT, Effect, Field, Kind, Refusal, Tool, may, must, refuse,
};
use super::files;
use super::serve::Service;

/// Longest note; longer texts belong in files.
const MAX_TEXT: usize = 16 << 10;
/// Most tags of one note; more would group nothing.
const MAX_TAGS: usize = 20;
/// Most characters of a tag, which is one word.
const MAX_TAG: usize = 40;

/// Where the notes are stored. They are reloaded for every call, so that manual edits show at once.
pub(super) struct Notebook {
    file: PathBuf,
}

#[derive(Clone, Serialize, Deserialize)]
struct Note {
    id: i64,
    title: String,
    text: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    created: String,
}

const NOTE: &[Field] = &[
    must("id", COUNT, "Number of the note."),
    must("title", Kind::Text, ""),
    must("text", Kind::Text, ""),
    must("tags", Kind::List(&Kind::Text), ""),
    must("created", Kind::Text, "RFC 3339, UTC."),
];

const BRIEF: &[Field] = &[
    must("id", COUNT, "Number of the note."),
    must("title", Kind::Text, ""),
    must("tags", Kind::List(&Kind::Text), ""),
];

const FOUND: &[Field] = &[
    must("notes", Kind::List(&Kind::Record(BRIEF)), "Newest first."),
    must("total", COUNT, "How many there are, shown or not."),
];

const ID: Field =
    must("id", Kind::Whole(1, i64::MAX), "Number of the note, as list_notes shows it.");
const LIMIT: Field = may("limit", Kind::Whole(1, 200), "Most notes to answer with. Default: 20.");

pub(super) static SERVICE: Service<Notebook> = Service {
    name: "notes",
    title: "Example notes",
    instructions: "Search before adding, so that a subject keeps one note.",
    tools: &[
        Tool {
            name: "add_note",
            title: "Add a note",
            description: "Remember something: keep a new note with a title, a text and optional tags. Answers with the stored note and its number.",
            effect: Effect::Adds,
            takes: &[
                must("title", Kind::Text, "A short line that says what the note is about."),
                must("text", Kind::Text, "The note itself, up to 16 KiB."),
                may("tags", Kind::List(&Kind::Text), "Words to group notes by."),
            ],
            gives: NOTE,
            run: add_note,
        },
        Tool {
            name: "search_notes",
            title: "Search notes",
            description: "Find notes whose title, text or tags contain all the given words, in any case and order.",
            effect: Effect::Reads,
            takes: &[must("words", Kind::Text, "Words to look for, separated by spaces."), LIMIT],
            gives: FOUND,
            run: search_notes,
        },
        Tool {
            name: "list_notes",
            title: "List notes",
            description: "List notes, newest first, optionally only those with one tag. Shows numbers, titles and tags; read_note shows the text.",
            effect: Effect::Reads,
            takes: &[may("tag", Kind::Text, "Only notes with this tag."), LIMIT],
            gives: FOUND,
            run: list_notes,
        },
        Tool {
            name: "read_note",
            title: "Read a note",
            description: "Show one note in full.",
            effect: Effect::Reads,
            takes: &[ID],
            gives: NOTE,
            run: read_note,
        },
        Tool {
            name: "delete_note",
            title: "Delete a note",
            description: "Remove one note for good. Its number may be given to a later note.",
            effect: Effect::Removes,
            takes: &[ID],
            gives: &[],
            run: delete_note,
        },
        Tool {
            name: "tag_note",
            title: "Tag a note",
            description: "Add tags to a note and remove others from it. Tags it already has, or does not have, are left as they are.",
            effect: Effect::Overwrites,
            takes: &[
                ID,
                may("add", Kind::List(&Kind::Text), "Tags to add."),
                may("remove", Kind::List(&Kind::Text), "Tags to take off."),
            ],
            gives: NOTE,
            run: tag_note,
        },
    ],
};

impl Notebook {
    /// Notes in `file`, which may not exist yet.
    pub(super) fn at(file: &Path) -> Self {
        Self { file: file.to_owned() }
    }

    /// All notes, oldest first. A line that is not a note is an error: rewriting the file would lose it.
    fn load(&self) -> Result<Vec<Note>, Refusal> {
        let text = match files::text_of(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => refuse!("the notes file {} cannot be read: {error}", self.file.display()),
        };
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(index, line)| {
                serde_json::from_str(line).map_err(|error| {
                    let (file, line) = (self.file.display(), index + 1);
                    Refusal(format!("line {line} of the notes file {file} is no note: {error}; repair it by hand"))
                })
            })
            .collect()
    }

    fn store(&self, notes: &[Note]) -> Result<(), Refusal> {
        let lines: String = notes.iter().map(|note| format!("{}\n", json!(note))).collect();
        // Never write what could not be read back.
        if lines.len() as u64 > files::MAX_FILE {
            refuse!("the notes would take more than {} bytes; delete some first", files::MAX_FILE);
        }
        files::replace(&self.file, lines.as_bytes()).map_err(|error| {
            Refusal(format!("the notes file {} cannot be written: {error}", self.file.display()))
        })
    }
}

fn add_note(book: &mut Notebook, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let (title, text) = (arguments.text("title").trim(), arguments.text("text"));
    if title.is_empty() || title.contains('\n') {
        refuse!("title must be one line of text");
    }
    if text.len() > MAX_TEXT {
        refuse!("text has {} bytes, a note holds {MAX_TEXT}; write a file instead", text.len());
    }
    let mut notes = book.load()?;
    let mut note = Note {
        id: notes.iter().map(|note| note.id).max().unwrap_or(0) + 1,
        title: title.to_owned(),
        text: text.to_owned(),
        tags: Vec::new(),
        created: now(),
    };
    tag(&mut note, arguments.texts("tags"))?;
    notes.push(note.clone());
    book.store(&notes)?;
    Ok(Answer::Data(json!(note)))
}

fn search_notes(book: &mut Notebook, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let words: Vec<String> =
        arguments.text("words").split_whitespace().map(str::to_lowercase).collect();
    if words.is_empty() {
        refuse!("words must hold at least one word");
    }
    found(book, arguments, |note| {
        let all = format!("{}\n{}\n{}", note.title, note.text, note.tags.join("\n")).to_lowercase();
        words.iter().all(|word| all.contains(word))
    })
}

fn list_notes(book: &mut Notebook, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let tag = arguments.text_if("tag").map(str::to_lowercase);
    found(book, arguments, |note| tag.as_ref().is_none_or(|tag| note.tags.contains(tag)))
}

fn found(
    book: &Notebook,
    arguments: &Arguments<'_>,
    wanted: impl Fn(&Note) -> bool,
) -> Result<Answer, Refusal> {
    let mut notes = book.load()?;
    notes.retain(wanted);
    let total = notes.len();
    let limit = arguments.count_or("limit", 20);
    let brief = |note: &Note| json!({ "id": note.id, "title": note.title, "tags": note.tags });
    let shown: Vec<Value> = notes.iter().rev().take(limit).map(brief).collect();
    Ok(Answer::Data(json!({ "notes": shown, "total": total })))
}

fn read_note(book: &mut Notebook, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let notes = book.load()?;
    let index = index_of(&notes, arguments)?;
    Ok(Answer::Data(json!(notes[index])))
}

fn delete_note(book: &mut Notebook, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let mut notes = book.load()?;
    let index = index_of(&notes, arguments)?;
    let gone = notes.remove(index);
    book.store(&notes)?;
    Ok(Answer::Text(format!("note {} is deleted: {}", gone.id, gone.title)))
}

fn tag_note(book: &mut Notebook, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let mut notes = book.load()?;
    let index = index_of(&notes, arguments)?;
    let off: Vec<String> = arguments.texts("remove").iter().map(|tag| tag.to_lowercase()).collect();
    notes[index].tags.retain(|tag| !off.contains(tag));
    tag(&mut notes[index], arguments.texts("add"))?;
    book.store(&notes)?;
    Ok(Answer::Data(json!(notes[index])))
}

/// Tags are stored in lower case, without duplicates, in the order given.
fn tag(note: &mut Note, tags: Vec<String>) -> Result<(), Refusal> {
    for tag in tags {
        let tag = tag.trim().to_lowercase();
        if tag.is_empty() || tag.contains(char::is_whitespace) || tag.chars().count() > MAX_TAG {
            refuse!("a tag is one word of at most {MAX_TAG} characters");
        }
        if !note.tags.contains(&tag) {
            note.tags.push(tag);
        }
    }
    if note.tags.len() > MAX_TAGS {
        refuse!("a note has at most {MAX_TAGS} tags");
    }
    Ok(())
}

fn index_of(notes: &[Note], arguments: &Arguments<'_>) -> Result<usize, Refusal> {
    let id = arguments.whole_if("id").unwrap_or(0);
    match notes.iter().position(|note| note.id == id) {
        Some(index) => Ok(index),
        None => refuse!("there is no note {id}; list_notes shows the numbers"),
    }
}

fn now() -> String {
    Stamp::from_unix(i64::try_from(clock::unix_millis() / 1000).unwrap_or(0)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(book: &mut Notebook, tool: &str, arguments: Value) -> Result<Value, String> {
        let tool = SERVICE.tools.iter().find(|known| known.name == tool).unwrap();
        let Value::Object(given) = arguments else { panic!("arguments are an object") };
        let answer = Arguments::checked(tool.takes, &given)
            .and_then(|arguments| (tool.run)(book, &arguments));
        match answer {
            Ok(Answer::Data(data)) => Ok(data),
            Ok(Answer::Text(text)) => Ok(json!(text)),
            Err(Refusal(why)) => Err(why),
        }
    }

    #[test]
    fn notes_are_kept_found_tagged_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.jsonl");
        let mut book = Notebook::at(&file);
        assert_eq!(call(&mut book, "list_notes", json!({})).unwrap()["total"], 0);
        let first =
            json!({ "title": "Roof", "text": "Ask about the leak", "tags": ["House", "house"] });
        assert_eq!(call(&mut book, "add_note", first).unwrap()["tags"], json!(["house"]));
        call(&mut book, "add_note", json!({ "title": "Garden", "text": "Prune the roses" }))
            .unwrap();
        let found = call(&mut book, "search_notes", json!({ "words": "LEAK house" })).unwrap();
        assert_eq!((&found["total"], &found["notes"][0]["id"]), (&json!(1), &json!(1)));
        let tagged =
            call(&mut book, "tag_note", json!({ "id": 2, "add": ["spring"], "remove": ["x"] }))
                .unwrap();
        assert_eq!(tagged["tags"], json!(["spring"]));
        call(&mut book, "delete_note", json!({ "id": 1 })).unwrap();
        let missing = call(&mut book, "read_note", json!({ "id": 1 })).unwrap_err();
        assert_eq!(missing, "there is no note 1; list_notes shows the numbers");
        // A second process sees the same notes: the file is the state.
        assert_eq!(
            call(&mut Notebook::at(&file), "read_note", json!({ "id": 2 })).unwrap()["title"],
            "Garden"
        );
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary file stays behind");
    }

    #[test]
    fn a_full_notebook_stays_readable() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = Notebook::at(&folder.path().join("notes.jsonl"));
        let line =
            format!("{}\n", json!({ "id": 1, "title": "long", "text": "x".repeat(MAX_TEXT) }));
        let kept = usize::try_from(files::MAX_FILE).unwrap() / line.len();
        std::fs::write(&book.file, line.repeat(kept)).unwrap();
        let one_more = json!({ "title": "long", "text": "x".repeat(MAX_TEXT) });
        let refused = call(&mut book, "add_note", one_more).unwrap_err();
        assert!(refused.contains("delete some first"), "{refused}");
        assert_eq!(call(&mut book, "list_notes", json!({})).unwrap()["total"], kept);
    }

    #[test]
    fn a_damaged_file_is_reported_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.jsonl");
        let damaged = "{\"id\":1,\"title\":\"a\",\"text\":\"b\"}\n{\"id\":2,\n";
        std::fs::write(&file, damaged).unwrap();
        let mut book = Notebook::at(&file);
        let refused =
            call(&mut book, "add_note", json!({ "title": "c", "text": "d" })).unwrap_err();
        assert!(refused.contains("line 2 of the notes file"), "{refused}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), damaged);
    }
}
