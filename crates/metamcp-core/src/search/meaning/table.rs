//! The table as trained: read in place from the binary, never copied.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::{DIMS, Row, Wide, dot, wide, wide_dot};

/// Made by `training/make_table.py`; see `training/README.md` for the format and where it comes from.
static BYTES: &[u8] = include_bytes!("table.bin");

const MAGIC: &[u8] = b"METATAB1";

/// The one table.
pub(in crate::search) static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::read(BYTES).expect("the table in the binary was checked by a test"));

/// A row of the table.
pub(in crate::search) type Piece = u16;

/// Word pieces and their vectors.
pub(in crate::search) struct Table {
    rows: HashMap<&'static [u8], Piece>,
    /// Worth of one step of each row.
    steps: Vec<f32>,
    /// Length of each row: how much a piece says.
    lengths: Vec<f32>,
    values: &'static [Row],
}

impl Table {
    fn read(bytes: &'static [u8]) -> Option<Table> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (count, rest) = number(rest)?;
        let (dims, rest) = number(rest)?;
        let (length, rest) = number(rest)?;
        let (offsets, rest) = rest.split_at_checked((count + 1) * 4)?;
        let (text, rest) = rest.split_at_checked(length)?;
        let (steps, values) = rest.split_at_checked(count * 4)?;
        let (values, rest) = values.as_chunks::<DIMS>();
        if dims != DIMS || values.len() != count || !rest.is_empty() {
            return None;
        }
        let offset = |at: usize| number(offsets.get(at * 4..)?).map(|(value, _)| value);
        let mut rows = HashMap::with_capacity(count);
        for row in 0..count {
            let piece = text.get(offset(row)?..offset(row + 1)?)?;
            rows.insert(piece, Piece::try_from(row).ok()?);
        }
        let steps: Vec<f32> =
            steps.as_chunks::<4>().0.iter().map(|&step| f32::from_le_bytes(step)).collect();
        let length = |(step, row): (&f32, &Row)| (dot(row, &wide(row)) as f32).sqrt() * step;
        let lengths = steps.iter().zip(values).map(length).collect();
        Some(Table { rows, steps, lengths, values })
    }

    /// How many pieces there are.
    pub(in crate::search) fn rows(&self) -> usize {
        self.values.len()
    }

    /// The row of a piece, written as the table writes it: `##` before what continues a word.
    pub(in crate::search) fn find(&self, piece: &[u8]) -> Option<Piece> {
        self.rows.get(piece).copied()
    }

    /// How much a piece says.
    pub(in crate::search) fn length(&self, piece: Piece) -> f32 {
        self.lengths[usize::from(piece)]
    }

    /// Adds a row to a sum.
    pub(in crate::search) fn add(&self, piece: Piece, sum: &mut [f32; DIMS]) {
        let step = self.steps[usize::from(piece)];
        for (part, &value) in sum.iter_mut().zip(self.row(piece)) {
            *part += f32::from(value as i8) * step;
        }
    }

    /// A row to be compared with others, and what one step of its products is worth.
    pub(in crate::search) fn direction(&self, piece: Piece) -> (Wide, f32) {
        let length = self.length(piece);
        let step = self.steps[usize::from(piece)];
        let step = if length <= f32::EPSILON { 0.0 } else { step / length };
        (wide(self.row(piece)), step)
    }

    fn row(&self, piece: Piece) -> &Row {
        &self.values[usize::from(piece)]
    }
}

/// Cosine of the angle between two rows.
pub(in crate::search) fn cosine(left: &(Wide, f32), right: &(Wide, f32)) -> f32 {
    wide_dot(&left.0, &right.0) as f32 * (left.1 * right.1)
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*first) as usize, rest))
}
