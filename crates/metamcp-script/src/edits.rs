//! Edits to a source that preserve its lines: blanks, single characters in them, and inserted text.
//! Owns: collecting and applying edits.      Never: knows why.
//! In: byte ranges.  Out: the edited text and its shifts.
//! Tests: the corpus in `tests/`.

use std::collections::HashMap;

use crate::position::{Position, Shifts};

/// One edit of the bytes from `start` to `end`.
#[derive(Debug)]
struct Edit {
    start: usize,
    end: usize,
    change: Change,
}

#[derive(Debug)]
enum Change {
    /// Spaces, except for line breaks, and for a character at either end.
    Blank { first: Option<char>, last: Option<char> },
    /// Replacement text without line breaks; those of the range follow it.
    Text(String),
}

/// All edits of one source, collected in any order.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    edits: Vec<Edit>,
    /// The last blank that ends at an offset.
    blank_ends: HashMap<usize, usize>,
}

impl Edits {
    pub(crate) fn blank(&mut self, start: usize, end: usize) {
        self.blank_with(start, end, None, None);
    }

    /// A removed statement or class member leaves a semicolon, so that its neighbours cannot join.
    pub(crate) fn remove(&mut self, start: usize, end: usize) {
        self.blank_with(start, end, Some(';'), None);
    }

    pub(crate) fn blank_with(
        &mut self,
        start: usize,
        end: usize,
        first: Option<char>,
        last: Option<char>,
    ) {
        if start < end {
            self.blank_ends.insert(end, self.edits.len());
            self.edits.push(Edit { start, end, change: Change::Blank { first, last } });
        }
    }

    pub(crate) fn replace(&mut self, start: usize, end: usize, text: impl Into<String>) {
        self.edits.push(Edit { start, end, change: Change::Text(text.into()) });
    }

    pub(crate) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at, at, text);
    }

    /// Replaces the text of an earlier replacement.
    pub(crate) fn replace_again(&mut self, start: usize, text: impl Into<String>) {
        let replaced =
            self.edits.iter_mut().find(|edit| edit.start == start && edit.start < edit.end);
        if let Some(edit) = replaced {
            edit.change = Change::Text(text.into());
        }
    }

    /// If a statement ends in a blank without a semicolon, the blank begins with one: only the removed type kept the
    /// next line from joining it.
    pub(crate) fn end_statement(&mut self, end: usize) {
        if let Some(first) = self.first_of_blank(end) {
            first.get_or_insert(';');
        }
    }

    /// Removes that semicolon, because something else ends the statement.
    pub(crate) fn continue_statement(&mut self, end: usize) {
        if let Some(first) = self.first_of_blank(end) {
            first.take_if(|first| *first == ';');
        }
    }

    fn first_of_blank(&mut self, end: usize) -> Option<&mut Option<char>> {
        match &mut self.edits[*self.blank_ends.get(&end)?].change {
            Change::Blank { first, .. } => Some(first),
            Change::Text(_) => None,
        }
    }

    /// The source with all edits applied. An edit inside another one is covered by it.
    pub(crate) fn apply(mut self, source: &str) -> (String, Shifts) {
        // Insertions come before other edits at the same offset, in the order they were made.
        self.edits.sort_by_key(|edit| (edit.start, edit.start != edit.end));
        let mut written = EditedSource {
            code: String::with_capacity(source.len() + 64),
            ..EditedSource::default()
        };
        let mut at = 0;
        for edit in &self.edits {
            if edit.start < at {
                continue;
            }
            written.text(&source[at..edit.start]);
            let old = &source[edit.start..edit.end];
            match &edit.change {
                Change::Blank { first, last } => written.blank(old, *first, *last),
                Change::Text(new) => written.replacement(old, new),
            }
            at = edit.end;
        }
        written.text(&source[at..]);
        (written.code, written.shifts)
    }
}

#[derive(Default)]
struct EditedSource {
    code: String,
    shifts: Shifts,
}

impl EditedSource {
    fn text(&mut self, text: &str) {
        self.code.push_str(text);
    }

    fn blank(&mut self, old: &str, first: Option<char>, last: Option<char>) {
        let end = old.char_indices().next_back().map_or(0, |(at, _)| at);
        for (at, c) in old.char_indices() {
            let blank = match (first, last) {
                _ if is_break(c) => c,
                (Some(first), _) if at == 0 => first,
                (_, Some(last)) if at == end => last,
                _ => ' ',
            };
            self.code.push(blank);
        }
    }

    fn replacement(&mut self, old: &str, new: &str) {
        let line_end = old.find(is_break).unwrap_or(old.len());
        let (width, room) = (new.chars().count(), old[..line_end].chars().count());
        let place = Position::of(&self.code, self.code.len());
        self.code.push_str(new);
        self.code.extend(std::iter::repeat_n(' ', room.saturating_sub(width)));
        // After a line break in the range, what follows is on another line and is not shifted.
        if line_end == old.len() {
            self.shifts.push(place, width, room);
        }
        self.blank(&old[line_end..], None, None);
    }
}

/// Whether a character ends a line in JavaScript.
pub(crate) fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}')
}
