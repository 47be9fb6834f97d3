//! The LoRA delta, fine-tuned on our own queries: for each matrix a low-rank difference, the product of two narrow ones.
//! `training/tune.py` writes the file. It is merged when a model's file is written, so that inference costs no more.
//!
//! Little endian, no padding: `METALRN1`; layers, width, inner width and rank as u32; then for each layer and matrix a
//! number (f32) for each of the rank, rows of i8 for what goes in, rows of i8 for what comes out.

use std::sync::LazyLock;

use super::Shape;

const MAGIC: &[u8; 8] = b"METALRN1";

/// The matrices of a layer, in the order of the file.
const MATRICES: [&str; 6] = [
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
];

/// The differences of all matrices of a model.
pub struct LoraDelta {
    width: usize,
    inner: usize,
    /// Layer by layer, in the order of [`MATRICES`].
    products: Vec<Product>,
}

/// For each of the rank, a row of what goes in and one of what comes out, with the scale in it.
struct Product(Vec<(Vec<f32>, Vec<f32>)>);

impl LoraDelta {
    /// What ships.
    pub fn ours() -> &'static LoraDelta {
        static OURS: LazyLock<LoraDelta> = LazyLock::new(|| {
            LoraDelta::read(include_bytes!("learnt.bin")).expect("a test reads it too")
        });
        &OURS
    }

    /// Nothing where the bytes are no such file.
    pub(super) fn read(bytes: &[u8]) -> Option<LoraDelta> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut next = |count: usize| {
            let (own, after) = rest.split_at_checked(count)?;
            rest = after;
            Some(own)
        };
        let mut count = || {
            let number = next(4)?.first_chunk::<4>()?;
            usize::try_from(u32::from_le_bytes(*number)).ok().filter(|number| *number <= 4096)
        };
        let (layers, width, inner, rank) = (count()?, count()?, count()?, count()?);
        let mut products = Vec::new();
        for _ in 0..layers {
            for matrix in MATRICES {
                let (from, into) = sizes(matrix, width, inner);
                let scales: Vec<f32> = next(4 * rank)?
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|own| f32::from_le_bytes(*own))
                    .collect();
                let (first, second) = (next(rank * from)?, next(rank * into)?);
                let number = |byte: &u8| f32::from(*byte as i8);
                let rows = scales.iter().enumerate().map(|(at, scale)| {
                    let given = first[at * from..][..from].iter().map(number).collect();
                    let made = second[at * into..][..into].iter().map(|b| number(b) * scale);
                    (given, made.collect())
                });
                products.push(Product(rows.collect()));
            }
        }
        rest.is_empty().then_some(LoraDelta { width, inner, products })
    }

    /// Whether it was learnt by a model of this shape.
    pub(super) fn fits(&self, shape: Shape) -> bool {
        self.width == shape.width
            && self.inner == shape.inner
            && self.products.len() == shape.layers * MATRICES.len()
    }

    /// Adds it to a matrix, which has a row for each number that comes out.
    pub(super) fn add(&self, layer: usize, matrix: &str, weights: &mut [f32]) {
        let Some(which) = MATRICES.iter().position(|own| *own == matrix) else { return };
        let (from, _) = sizes(matrix, self.width, self.inner);
        for (given, made) in &self.products[layer * MATRICES.len() + which].0 {
            for (row, made) in weights.chunks_exact_mut(from).zip(made) {
                row.iter_mut().zip(given).for_each(|(own, given)| *own += made * given);
            }
        }
    }
}

/// How many numbers go into a matrix, and come out of it.
fn sizes(matrix: &str, width: usize, inner: usize) -> (usize, usize) {
    match matrix {
        "intermediate.dense" => (width, inner),
        "output.dense" => (inner, width),
        _ => (width, width),
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::transformer::MINILM;

    /// A file that learnt something else is another model: `MAGIC` in `file.rs`, `IDENTITY` in the engine's `model.rs` and the
    /// weights of `search/transformer` change with it.
    #[test]
    fn what_ships_is_what_the_weights_were_fitted_to() {
        let sum = Sha256::digest(include_bytes!("learnt.bin"));
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sum, "7f5c54482d9f41311c0f357e407c3477cf4867baa74bde1973db7fab663a1df5");
    }

    #[test]
    fn what_ships_fits_the_model() {
        assert!(LoraDelta::ours().fits(MINILM));
        let rank = |product: &Product| product.0.len();
        assert!(LoraDelta::ours().products.iter().all(|product| rank(product) == 8));
    }

    #[test]
    fn a_difference_is_the_sum_of_its_products() {
        let mut bytes = MAGIC.to_vec();
        for number in [1u32, 1, 2, 2] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for matrix in MATRICES {
            let (from, into) = sizes(matrix, 1, 2);
            bytes.extend([0.5f32, 1.0].map(f32::to_le_bytes).concat());
            bytes.extend((0..2 * from).map(|at| at as u8 + 1));
            bytes.extend((0..2 * into).map(|at| (at as u8).wrapping_sub(1)));
        }
        let lora = LoraDelta::read(&bytes).unwrap();
        let mut weights = [10.0, 10.0];
        lora.add(0, "intermediate.dense", &mut weights);
        // Going in: 1 | 2. Coming out: -1 0 | 1 2, the first halved.
        assert_eq!(weights, [10.0 - 0.5 + 2.0, 10.0 + 4.0]);
        lora.add(0, "another", &mut weights);
        assert_eq!(weights, [11.5, 14.0]);
        for cut in 0..bytes.len() {
            assert!(LoraDelta::read(&bytes[..cut]).is_none(), "{cut}");
        }
        bytes.push(0);
        assert!(LoraDelta::read(&bytes).is_none());
    }
}
