//! The table as trained: read in place from the binary, never copied.

use std::collections::HashMap;
use std::sync::LazyLock;

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
    dims: usize,
    rows: HashMap<&'static [u8], Piece>,
    /// Worth of one step of each row.
    steps: Vec<f32>,
    /// Length of each row: how much a piece says.
    lengths: Vec<f32>,
    values: &'static [u8],
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
        if values.len() != count * dims || count > usize::from(Piece::MAX) || dims % 32 != 0 {
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
        let lengths = steps
            .iter()
            .zip(values.chunks(dims.max(1)))
            .map(|(step, row)| {
                let squares: i32 = row.iter().map(|&v| i32::from(v as i8).pow(2)).sum();
                (squares as f32).sqrt() * step
            })
            .collect();
        Some(Table { dims, rows, steps, lengths, values })
    }

    /// How many pieces there are.
    pub(in crate::search) fn rows(&self) -> usize {
        self.steps.len()
    }

    /// Components of a vector.
    pub(in crate::search) fn dims(&self) -> usize {
        self.dims
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
    pub(in crate::search) fn add(&self, piece: Piece, sum: &mut [f32]) {
        let step = self.steps[usize::from(piece)];
        for (part, &value) in sum.iter_mut().zip(self.row(piece)) {
            *part += f32::from(value as i8) * step;
        }
    }

    /// Cosine of the angle between two rows.
    pub(in crate::search) fn cosine(&self, left: Piece, right: Piece) -> f32 {
        let lengths = self.length(left) * self.length(right);
        if lengths <= f32::EPSILON {
            return 0.0;
        }
        let mut sum = 0i32;
        for (a, b) in
            self.row(left).as_chunks::<32>().0.iter().zip(self.row(right).as_chunks::<32>().0)
        {
            for lane in 0..32 {
                sum += i32::from(a[lane] as i8) * i32::from(b[lane] as i8);
            }
        }
        sum as f32 * self.steps[usize::from(left)] * self.steps[usize::from(right)] / lengths
    }

    fn row(&self, piece: Piece) -> &[u8] {
        let start = usize::from(piece) * self.dims;
        &self.values[start..start + self.dims]
    }
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*first) as usize, rest))
}
