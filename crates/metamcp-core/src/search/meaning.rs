//! Meaning without a model at run time: a table of word pieces, each with a vector, and texts as sums of them.
//! Owns: the table, the pieces of a text, vectors and their similarity.      Never: knows of tools, words counts.
//! In: text.  Out: `Vector`s and pieces.
//! Tests: below, against vectors the training wrote; `training/` is where the table comes from.

mod pieces;
mod table;

pub(super) use pieces::pieces;
pub(super) use table::{Piece, TABLE};

/// Pieces of one text that are looked at; more than any description that is ranked has.
pub(super) const MAX_PIECES: usize = 256;

/// A direction, in eight bits a component: enough, since tools are compared with each other and not measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Vector {
    pub(super) components: Vec<i8>,
    /// What one step of a component is worth.
    pub(super) step: f32,
}

impl Vector {
    /// The direction of a sum of pieces; all zero when there are none.
    pub(super) fn of(pieces: &[Piece]) -> Vector {
        let mut sum = vec![0.0f32; TABLE.dims()];
        for &piece in pieces.iter().take(MAX_PIECES) {
            TABLE.add(piece, &mut sum);
        }
        Vector::quantised(&sum)
    }

    /// The direction of any numbers.
    fn quantised(sum: &[f32]) -> Vector {
        let length = sum.iter().map(|part| part * part).sum::<f32>().sqrt();
        let largest = sum.iter().fold(0.0f32, |most, part| most.max(part.abs()));
        if length <= f32::EPSILON {
            return Vector { components: vec![0; sum.len()], step: 0.0 };
        }
        let scale = 127.0 / largest;
        // Rounding changes the length a little, and a similarity above one would be one too many.
        let components: Vec<i8> = sum.iter().map(|part| (part * scale).round() as i8).collect();
        let squares: i32 = components.iter().map(|&part| i32::from(part) * i32::from(part)).sum();
        Vector { components, step: 1.0 / (squares.max(1) as f32).sqrt() }
    }

    /// Whether it points anywhere.
    pub(super) fn is_zero(&self) -> bool {
        self.step == 0.0
    }
}

/// Sum of products. Written so that the compiler multiplies many at once.
pub(super) fn dot(left: &[i8], right: &[i8]) -> i32 {
    let mut sum = 0i32;
    let (left, left_rest) = left.as_chunks::<32>();
    let (right, right_rest) = right.as_chunks::<32>();
    for (a, b) in left.iter().zip(right) {
        let mut part = 0i32;
        for lane in 0..32 {
            part += i32::from(a[lane]) * i32::from(b[lane]);
        }
        sum += part;
    }
    sum + left_rest.iter().zip(right_rest).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum::<i32>()
}

#[cfg(test)]
mod tests;
