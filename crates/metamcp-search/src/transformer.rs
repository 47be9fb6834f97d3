//! A small local sentence transformer: all-MiniLM-L6-v2, quantized to eight bits.
//! Owns: the tokenizer, inference, the file format of the weights.      Never: reads a file, ranks, starts a thread.
//! In: bytes of a model, texts.  Out: vectors of length one.
//! Tests: `transformer/tests.rs`; `metamcp/tests/real/model.rs` holds the real one against the reference.
//!
//! Written by hand, but for the products, which are `ndarray`'s: ONNX Runtime is a library of 15 MB, `candle` and `tract` are
//! ten times this code, for six layers that never change (docs/design/0009-a-transformer-on-this-machine.md).

mod clauses;
mod encoder;
mod file;
mod lora_delta;
mod pieces;
mod tensors;

use encoder::Encoder;
use pieces::Pieces;

pub use clauses::{MAX_CLAUSES, clauses};
pub use file::{BadModel, MAX_FILE};
pub use lora_delta::LoraDelta;
pub use tensors::{BadTensors, Tensors};

#[cfg(test)]
mod tests;

/// Pieces of a query that are read, begin and end included: a sentence or two, in a bounded time.
pub const QUERY_PIECES: usize = 64;

/// Pieces of a query and its clauses together: the rest is cut, so that no query takes long.
pub const ASKED_PIECES: usize = 112;

/// Pieces of a tool that are read: its name and the first sentences of its description.
pub const TOOL_PIECES: usize = 96;

/// How large each part of a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Layers, one after the other.
    pub layers: usize,
    /// Heads of attention in each.
    pub heads: usize,
    /// Numbers of a piece between layers, and of a vector.
    pub width: usize,
    /// Numbers of a piece within a layer.
    pub inner: usize,
    /// Pieces the model knows.
    pub vocabulary: usize,
    /// The longest text, in pieces.
    pub positions: usize,
}

/// all-MiniLM-L6-v2. It could read texts of 512 pieces; nobody here gives it more than this.
pub const MINILM: Shape =
    Shape { layers: 6, heads: 12, width: 384, inner: 1536, vocabulary: 30_522, positions: 128 };

/// A model, ready to read.
pub struct Model {
    pieces: Pieces,
    encoder: Encoder,
}

impl Model {
    /// The file of a model made from tensors as they are published and the list of pieces, one a line, with what it
    /// learnt since.
    pub fn make(
        shape: Shape,
        tensors: &Tensors<'_>,
        vocabulary: &str,
        lora: Option<&LoraDelta>,
    ) -> Result<Vec<u8>, BadTensors> {
        file::make(shape, tensors, vocabulary, lora)
    }

    /// A model from its file, which is checked.
    pub fn read(bytes: &[u8]) -> Result<Model, BadModel> {
        file::read(bytes)
    }

    /// How large it is.
    pub fn shape(&self) -> Shape {
        self.encoder.shape
    }

    /// The numbers of the pieces that are read of a text.
    pub fn pieces(&self, text: &str, most: usize) -> Vec<u32> {
        self.pieces.of(text, most)
    }

    /// The vector of one text, of which no more than so many pieces are read.
    pub fn vector(&self, text: &str, most: usize) -> Vec<f32> {
        self.vectors(&[text], most, most).pop().unwrap_or_default()
    }

    /// A vector for each text, worked out together, which is faster than one by one. Of each no more than `most` pieces
    /// are read; those for which nothing of `total` is left have no vector.
    pub fn vectors(&self, texts: &[&str], most: usize, total: usize) -> Vec<Vec<f32>> {
        self.read_pieces(&self.lists(texts, most, total))
    }

    /// The pieces of each text, within the same bounds.
    pub(crate) fn lists(&self, texts: &[&str], most: usize, total: usize) -> Vec<Vec<u32>> {
        let most = most.min(self.encoder.shape.positions);
        let mut left = total;
        let mut lists = Vec::with_capacity(texts.len());
        for text in texts {
            let pieces = self.pieces.of(text, most);
            if pieces.len() > left {
                break;
            }
            left -= pieces.len();
            lists.push(pieces);
        }
        lists
    }

    /// A vector for each list of pieces.
    pub(crate) fn read_pieces(&self, lists: &[Vec<u32>]) -> Vec<Vec<f32>> {
        self.encoder.vectors(lists)
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Model({:?})", self.encoder.shape)
    }
}
