//! Static word embeddings: a table with a vector per word piece; the vector of a text is the sum of its pieces.
//! Owns: the table, the pieces of a text, vectors and their similarity.      Never: knows of tools, counts words.
//! In: text.  Out: `Vector`s and pieces.
//! Tests: below, against vectors the training wrote; `training/` is where the table comes from.

mod pieces;
mod table;

pub(super) use pieces::pieces;
pub(super) use table::{Piece, TABLE, cosine};

/// Pieces of one text that are looked at; more than any description that is ranked has.
pub(super) const MAX_PIECES: usize = 256;

/// Components of every vector; the table is read only if it has as many.
pub(super) const DIMS: usize = 192;

/// Components in eight bits each, as they stand in the table: the highest bit is the sign.
pub(super) type Row = [u8; DIMS];

/// The same spread to sixteen bits, ready to be multiplied.
pub(super) type Wide = [i16; DIMS];

/// A direction, in eight bits a component: enough, since tools are compared with each other and not measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Vector {
    pub(super) components: Row,
    /// What one step of a component is worth.
    pub(super) step: f32,
}

impl Vector {
    /// The direction of a sum of pieces; all zero when there are none.
    pub(super) fn of(pieces: &[Piece]) -> Vector {
        Vector::quantised(&TABLE.sum(&pieces[..pieces.len().min(MAX_PIECES)]))
    }

    /// The direction of any numbers.
    fn quantised(sum: &[f32; DIMS]) -> Vector {
        let largest = sum.iter().fold(0.0f32, |most, part| most.max(part.abs()));
        if largest <= f32::EPSILON {
            return Vector::from_components([0; DIMS]);
        }
        // To the nearest whole number: with halves added, what is cut off is a fraction of a positive one.
        let scale = 127.0 / largest;
        Vector::from_components(sum.map(|part| ((part * scale + 128.5) as i32 - 128) as u8))
    }

    /// The cosine of this direction with others.
    pub(super) fn nearness(&self) -> impl Fn(&Vector) -> f32 {
        let (direction, step) = (wide(&self.components), self.step);
        move |other| dot(&other.components, &direction) as f32 * other.step * step
    }

    /// The direction that has these components.
    pub(super) fn from_components(components: Row) -> Vector {
        // Rounding changes the length a little, and a similarity above one would be one too many.
        let squares = dot(&components, &wide(&components));
        let step = if squares == 0 { 0.0 } else { 1.0 / (squares as f32).sqrt() };
        Vector { components, step }
    }
}

/// Spreads components.
pub(super) fn wide(row: &Row) -> Wide {
    row.map(|part| i16::from(part as i8))
}

/// Sum of products. In pieces of thirty-two, which the compiler turns into multiplications of eight pairs at once, on
/// the oldest processor there is too.
pub(super) fn dot(left: &Row, right: &Wide) -> i32 {
    let mut sum = 0;
    for (a, b) in left.as_chunks::<32>().0.iter().zip(right.as_chunks::<32>().0) {
        let mut part = 0i32;
        for lane in 0..32 {
            part += i32::from(a[lane] as i8) * i32::from(b[lane]);
        }
        sum += part;
    }
    sum
}

/// The same where both sides are used more than once.
pub(super) fn wide_dot(left: &Wide, right: &Wide) -> i32 {
    let mut sum = 0;
    for (a, b) in left.as_chunks::<32>().0.iter().zip(right.as_chunks::<32>().0) {
        let mut part = 0i32;
        for lane in 0..32 {
            part += i32::from(a[lane]) * i32::from(b[lane]);
        }
        sum += part;
    }
    sum
}

#[cfg(test)]
mod tests;
