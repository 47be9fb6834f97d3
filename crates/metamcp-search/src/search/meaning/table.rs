//! The table as trained: read in place from the binary, never copied.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{DIMS, Row, Wide, dot, wide, wide_dot};

/// Made by `training/make_table.py`; see `training/README.md` for the format and where it comes from.
static BYTES: &[u8] = include_bytes!("table.bin");

const MAGIC: &[u8] = b"METATAB1";

/// The one table.
pub(in crate::search) static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::read(BYTES).expect("the table in the binary was checked by a test"));

/// A row of the table.
pub(in crate::search) type Piece = u16;

/// Components that are summed together.
const SUMMED: usize = 32;

/// A slot that no row has.
const FREE: Piece = Piece::MAX;

/// Word pieces and their vectors. Little is made when it is read: a start waits for it.
pub(in crate::search) struct Table {
    /// Where each piece's text starts; one more marks the end.
    offsets: &'static [[u8; 4]],
    text: &'static [u8],
    /// Worth of one step of each row.
    steps: &'static [[u8; 4]],
    values: &'static [Row],
    /// Rows by the hash of their text; a row whose slot is taken stands in the next free one. Less than half is taken.
    slots: Box<[Piece]>,
    /// The bits of the length of each row: how much a piece says. Zero until first used; most never are.
    lengths: Box<[AtomicU32]>,
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
        let mut table = Table {
            offsets: offsets.as_chunks::<4>().0,
            text,
            steps: steps.as_chunks::<4>().0,
            values,
            slots: vec![FREE; (count * 2).next_power_of_two()].into(),
            lengths: (0..count).map(|_| AtomicU32::new(0)).collect(),
        };
        for row in 0..count {
            let row = Piece::try_from(row).ok().filter(|&row| row != FREE)?;
            let mut slot = table.slot_of(table.text_of(row)?);
            while table.slots[slot] != FREE {
                slot = table.after(slot);
            }
            table.slots[slot] = row;
        }
        Some(table)
    }

    /// How many pieces there are.
    pub(in crate::search) fn rows(&self) -> usize {
        self.values.len()
    }

    /// The row of a piece, written as the table writes it: `##` before what continues a word.
    pub(in crate::search) fn find(&self, piece: &[u8]) -> Option<Piece> {
        let mut slot = self.slot_of(piece);
        loop {
            let row = self.slots[slot];
            if row == FREE {
                return None;
            }
            if self.text_of(row) == Some(piece) {
                return Some(row);
            }
            slot = self.after(slot);
        }
    }

    pub(super) fn text_of(&self, row: Piece) -> Option<&'static [u8]> {
        let offset = |at: usize| Some(u32::from_le_bytes(*self.offsets.get(at)?) as usize);
        self.text.get(offset(usize::from(row))?..offset(usize::from(row) + 1)?)
    }

    /// Where to look first: the FNV hash of the text, folded. The rows are the same for everybody, so nobody can choose
    /// words that meet in one place, only words that are looked for in the longest row of neighbours there is.
    fn slot_of(&self, text: &[u8]) -> usize {
        let hash = text.iter().fold(0x811c_9dc5_u32, |hash, &byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        (hash ^ hash >> 16) as usize & (self.slots.len() - 1)
    }

    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }

    /// How much a piece says.
    pub(in crate::search) fn length(&self, piece: Piece) -> f32 {
        let place = &self.lengths[usize::from(piece)];
        let known = place.load(Ordering::Relaxed);
        if known != 0 {
            return f32::from_bits(known);
        }
        let row = self.row(piece);
        let length = (dot(row, &wide(row)) as f32).sqrt() * self.step(piece);
        place.store(length.to_bits(), Ordering::Relaxed);
        length
    }

    /// The sum of rows, component by component in their order. A few components at a time stay where they can be added
    /// to without being fetched.
    pub(in crate::search) fn sum(&self, pieces: &[Piece]) -> [f32; DIMS] {
        let mut sum = [0.0f32; DIMS];
        for (at, part) in sum.as_chunks_mut::<SUMMED>().0.iter_mut().enumerate() {
            let mut own = [0.0f32; SUMMED];
            for &piece in pieces {
                let step = self.step(piece);
                let row = &self.row(piece).as_chunks::<SUMMED>().0[at];
                for lane in 0..SUMMED {
                    own[lane] += f32::from(row[lane] as i8) * step;
                }
            }
            *part = own;
        }
        sum
    }

    /// A row to be compared with others, and what one step of its products is worth.
    pub(in crate::search) fn direction(&self, piece: Piece) -> (Wide, f32) {
        let length = self.length(piece);
        let step = self.step(piece);
        let step = if length <= f32::EPSILON { 0.0 } else { step / length };
        (wide(self.row(piece)), step)
    }

    fn step(&self, piece: Piece) -> f32 {
        f32::from_le_bytes(self.steps[usize::from(piece)])
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
