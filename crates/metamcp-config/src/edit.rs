//! Edits of config files as text: one entry inserted or removed, every other byte preserved.
//! Owns: where an entry goes, and how it is indented, in JSON with comments, TOML and YAML.      Never: opens a file, knows what an entry means.
//! In: the text, the path of keys, a value.  Out: the new text, or an `EditError`.
//! Tests: `edit/tests.rs`.

mod json;
mod toml;
mod yaml;
mod yaml_list;

use serde_json::Value;

/// What some editors put at the beginning of a text.
const BOM: &str = "\u{feff}";

/// What a file is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, with comments and trailing commas where they are there already.
    Json,
    Toml,
    /// The part of YAML that programs write: block mappings, block and flow lists of scalars.
    Yaml,
    /// The same with the entries in a list, each with its `name`; callers see a mapping by these names.
    YamlList,
}

/// Why a text is not edited or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is broken before anything was done.
    #[error("line {line}: {message}")]
    Syntax {
        /// Where, counted from one.
        line: usize,
        /// What the reader says.
        message: String,
    },
    /// Something else than an object stands where entries go.
    #[error("`{path}` is not {expected}")]
    NotAnObject {
        /// The keys that lead there.
        path: String,
        expected: &'static str,
    },
    /// A key that is given twice: which one counts is a matter of opinion.
    #[error("`{path}` is given twice; keep one of the two")]
    Twice {
        /// The keys that lead there.
        path: String,
    },
    /// The text is sound, but written in a way that is not edited here.
    #[error("line {line}: {what} is not something this program edits")]
    Unsupported {
        /// Where, counted from one.
        line: usize,
        what: &'static str,
    },
}

/// `text` with the value at `path` set: replaced where it is, put behind its last sibling where it is not.
/// Objects on the way are made. An empty text becomes a whole file.
pub fn set(format: Format, text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    match format {
        Format::Json => json::set(text, path, value),
        Format::Toml => toml::set(text, path, value),
        Format::Yaml => yaml::set(text, path, value),
        Format::YamlList => yaml_list::set(text, path, value),
    }
}

/// `text` without the entry at `path`; `None` if there is no such entry.
pub fn remove(format: Format, text: &str, path: &[&str]) -> Result<Option<String>, EditError> {
    match format {
        Format::Json => json::remove(text, path),
        Format::Toml => toml::remove(text, path),
        Format::Yaml => yaml::remove(text, path),
        Format::YamlList => yaml_list::remove(text, path),
    }
}

/// `text` with all these entries below `path` set, as [`set`] does it one by one, in one go: files with thousands of
/// entries are not read anew for each.
pub fn set_all(
    format: Format,
    text: &str,
    path: &[&str],
    entries: &[(String, Value)],
) -> Result<String, EditError> {
    // Of two with one name the last one counts, in the place of the first, as it would if they came one by one.
    let entries: serde_json::Map<String, Value> = entries.iter().cloned().collect();
    let entries: &[(String, Value)] = &entries.into_iter().collect::<Vec<_>>();
    match format {
        Format::Json => json::set_all(text, path, entries),
        Format::Toml => toml::set_all(text, path, entries),
        Format::Yaml => yaml::set_all(text, path, entries),
        Format::YamlList => yaml_list::set_all(text, path, entries),
    }
}

/// `text` without these entries below `path`, those that are not there aside; as [`remove`] does it one by one.
pub fn remove_all(
    format: Format,
    text: &str,
    path: &[&str],
    names: &[&str],
) -> Result<String, EditError> {
    match format {
        Format::Json => json::remove_all(text, path, names),
        Format::Toml => toml::remove_all(text, path, names),
        Format::Yaml => yaml::remove_all(text, path, names),
        Format::YamlList => yaml_list::remove_all(text, path, names),
    }
}

/// The value at `path`, if there is one. An empty path is the whole file; in YAML only a block mapping is read.
pub fn read(format: Format, text: &str, path: &[&str]) -> Result<Option<Value>, EditError> {
    match format {
        Format::Json => json::read(text, path),
        Format::Toml => toml::read(text, path),
        Format::Yaml => yaml::read(text, path),
        Format::YamlList => yaml_list::read(text, path),
    }
}

/// The line of the entry at `path`, counted from one, if there is one that has a line.
pub fn line(format: Format, text: &str, path: &[&str]) -> Option<usize> {
    match format {
        Format::Json => json::line(text, path),
        Format::Toml => toml::line(text, path),
        Format::Yaml => yaml::line(text, path),
        Format::YamlList => yaml_list::line(text, path),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].split(|byte| *byte == b'\n').count()
}

fn dotted(path: &[&str]) -> String {
    path.join(".")
}

#[cfg(test)]
mod tests;
