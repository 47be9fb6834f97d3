//! Inference: attention and feed-forward layers, then mean pooling and normalization.
//!
//! Products are in f32 on weights that are dequantized when the model is loaded: without instructions that
//! only some processors have, and without unsafe code to reach them, integer products are slower.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView2, Axis, Slice};

use super::Shape;

/// What keeps a division from one by zero, as the model was trained with.
const TINY: f32 = 1e-12;

/// The weights, ready to be used.
pub(super) struct Encoder {
    pub(super) shape: Shape,
    pub(super) words: Rows,
    /// Of each place in a text, with what is added to every piece of a first text.
    pub(super) positions: Array2<f32>,
    pub(super) norm: Norm,
    pub(super) layers: Vec<Layer>,
}

/// Rows in eight bits, spread when one is needed: most pieces are never met.
pub(super) struct Rows {
    pub(super) width: usize,
    pub(super) steps: Vec<f32>,
    pub(super) values: Vec<i8>,
}

impl Rows {
    pub(super) fn row(&self, at: usize) -> impl Iterator<Item = f32> {
        let step = self.steps[at];
        self.values[at * self.width..][..self.width].iter().map(move |&own| f32::from(own) * step)
    }
}

/// A matrix, with a row for each number that goes in, and what is added.
pub(super) struct Dense {
    pub(super) weights: Array2<f32>,
    pub(super) bias: Array1<f32>,
}

impl Dense {
    fn of(&self, given: &Array2<f32>) -> Array2<f32> {
        let mut out = Array2::zeros((given.nrows(), self.bias.len()));
        out += &self.bias;
        general_mat_mul(1.0, given, &self.weights, 1.0, &mut out);
        out
    }
}

/// Brings numbers to mean zero and deviation one, then to where the model wants them.
pub(super) struct Norm {
    pub(super) weights: Array1<f32>,
    pub(super) bias: Array1<f32>,
}

impl Norm {
    fn apply(&self, all: &mut Array2<f32>) {
        for mut row in all.axis_iter_mut(Axis(0)) {
            let count = row.len() as f32;
            let mean = row.sum() / count;
            row -= mean;
            let variance = row.iter().map(|part| part * part).sum::<f32>() / count;
            let scale = 1.0 / (variance + TINY).sqrt();
            let wanted = self.weights.iter().zip(&self.bias);
            row.iter_mut().zip(wanted).for_each(|(part, (weight, bias))| {
                *part = *part * scale * weight + bias;
            });
        }
    }
}

pub(super) struct Layer {
    /// What each piece asks, offers and says, side by side.
    pub(super) asked: Dense,
    pub(super) mixed: Dense,
    pub(super) after_attention: Norm,
    pub(super) wide: Dense,
    pub(super) narrow: Dense,
    pub(super) at_end: Norm,
}

impl Encoder {
    /// A vector for each list of pieces. The products of all lists are made in one, each attends to itself alone.
    pub(super) fn vectors(&self, lists: &[Vec<u32>]) -> Vec<Vec<f32>> {
        if lists.is_empty() {
            return Vec::new();
        }
        let mut x = self.embedded(lists);
        self.norm.apply(&mut x);
        for layer in &self.layers {
            let mut attended = layer.mixed.of(&self.attention(&layer.asked.of(&x), lists));
            attended += &x;
            layer.after_attention.apply(&mut attended);
            let mut wide = layer.wide.of(&attended);
            wide.iter_mut().for_each(|part| *part = gelu(*part));
            x = layer.narrow.of(&wide);
            x += &attended;
            layer.at_end.apply(&mut x);
        }
        let mut start = 0;
        let mut vectors = Vec::with_capacity(lists.len());
        for list in lists {
            let own = x.slice_axis(Axis(0), Slice::from(start..start + list.len()));
            let sum = own.sum_axis(Axis(0));
            start += list.len();
            let length = sum.iter().map(|part| part * part).sum::<f32>().sqrt().max(TINY);
            vectors.push(sum.iter().map(|part| part / length).collect());
        }
        vectors
    }

    fn embedded(&self, lists: &[Vec<u32>]) -> Array2<f32> {
        let total = lists.iter().map(Vec::len).sum();
        let mut x = Array2::zeros((total, self.shape.width));
        let pieces = lists.iter().flat_map(|list| list.iter().enumerate());
        for (mut row, (place, &piece)) in x.axis_iter_mut(Axis(0)).zip(pieces) {
            row.assign(&self.positions.row(place));
            row.iter_mut().zip(self.words.row(piece as usize)).for_each(|(part, own)| *part += own);
        }
        x
    }

    fn attention(&self, asked: &Array2<f32>, lists: &[Vec<u32>]) -> Array2<f32> {
        let (width, each) = (self.shape.width, self.shape.width / self.shape.heads);
        let scale = 1.0 / (each as f32).sqrt();
        let mut out = Array2::zeros((asked.nrows(), width));
        let mut start = 0;
        for list in lists {
            let rows = Slice::from(start..start + list.len());
            start += list.len();
            let own = asked.slice_axis(Axis(0), rows);
            let mut into = out.slice_axis_mut(Axis(0), rows);
            for head in 0..self.shape.heads {
                let part = |which: usize| -> ArrayView2<'_, f32> {
                    let from = which * width + head * each;
                    own.slice_axis(Axis(1), Slice::from(from..from + each))
                };
                let mut scores = part(0).dot(&part(1).t());
                for mut row in scores.axis_iter_mut(Axis(0)) {
                    let most = row.iter().fold(f32::MIN, |most, &one| most.max(one));
                    row.iter_mut().for_each(|one| *one = ((*one - most) * scale).exp());
                    let sum = row.sum();
                    row /= sum;
                }
                let columns = Slice::from(head * each..(head + 1) * each);
                let mut into = into.slice_axis_mut(Axis(1), columns);
                general_mat_mul(1.0, &scores, &part(2), 0.0, &mut into);
            }
        }
        out
    }
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function as a quotient of two polynomials, off by less than a millionth: products and sums only, so that the
/// compiler does several at once. The library's exponential took a fifth of a query's time.
pub(super) fn erf(x: f32) -> f32 {
    const ABOVE: [f32; 7] = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_4e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    const BELOW: [f32; 5] =
        [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    let above = ABOVE.iter().fold(0.0, |sum, part| sum * square + part);
    let below = BELOW.iter().fold(0.0, |sum, part| sum * square + part);
    x * above / below
}
