//! Positions as people and engines name them, and the mapping from code back to source.
//! Owns: lines and columns.      Never: interprets the text.
//! In: byte offsets, insertions.  Out: `Position`.
//! Tests: the corpus in `tests/`.

/// A position in a text: both counted from one, the column in characters (code points).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Lines end with a line feed.
    pub line: u32,
    /// Characters from the start of the line.
    pub column: u32,
}

impl Position {
    /// The position of a byte offset; past the end is the end.
    pub fn of(text: &str, offset: usize) -> Position {
        let before = &text[..text.floor_char_boundary(offset.min(text.len()))];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        Position {
            line: number(before.bytes().filter(|byte| *byte == b'\n').count() + 1),
            column: number(before[start..].chars().count() + 1),
        }
    }
}

/// What was inserted where, to map a position in the code back to the source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shifts {
    shifts: Vec<Shift>,
    /// Characters before the source on the first line.
    pub(crate) lead: u32,
}

/// An insertion: after it, columns of the code are `width - replaced` further right than in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shift {
    line: u32,
    /// Where the inserted text starts, in the code.
    column: u32,
    /// Its width, and how much of it replaces source text.
    width: u32,
    replaced: u32,
}

impl Shifts {
    /// Records that `width` characters of the code replace `replaced` of the source. Call in order of position.
    pub(crate) fn push(&mut self, at: Position, width: usize, replaced: usize) {
        let (width, replaced) = (number(width), number(replaced));
        if width > replaced {
            self.shifts.push(Shift { line: at.line, column: at.column, width, replaced });
        }
    }

    /// The source position of a position in the code.
    pub(crate) fn back(&self, at: Position) -> Position {
        let mut less = 0;
        for shift in self.shifts.iter().filter(|shift| shift.line == at.line) {
            if at.column < shift.column {
                break;
            }
            let inside = at.column - shift.column;
            // Inside an insertion, every position maps to where it was made.
            less += if inside < shift.width {
                inside.saturating_sub(shift.replaced)
            } else {
                shift.width - shift.replaced
            };
        }
        if at.line == 1 {
            less += self.lead.min(at.column - less - 1);
        }
        Position { line: at.line, column: at.column - less }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
