//! The file format of a model: little endian, no padding. `METAXFM2`, SHA-256 of all that follows, the shape as six u32, the
//! list of pieces with its length, then the weights in the order of the reading below. A matrix has a scale (f32) per
//! row and a row of i8 each; everything else is f32.

use ndarray::{Array1, Array2};
use sha2::{Digest, Sha256};

use super::encoder::{Dense, Encoder, Layer, Norm, Rows};
use super::lora_delta::LoraDelta;
use super::pieces::Pieces;
use super::tensors::{BadTensors, Tensors};
use super::{Model, Shape};

/// Changes with the layout, with the tensors that are read, and with what was learnt since.
const MAGIC: &[u8; 8] = b"METAXFM2";

/// The largest file that is read; that of the model has 23 MB.
pub const MAX_FILE: u64 = 64 * 1024 * 1024;

/// The longest list of pieces; that of the model has 232 KB.
const MAX_LIST: usize = 1024 * 1024;

/// Why a file is no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadModel {
    /// It begins otherwise.
    #[error("it is not a model, or one of another version of metamcp")]
    NotOne,
    /// Its sum is another.
    #[error("it is damaged")]
    Damaged,
    /// It is whole and makes no sense.
    #[error("it does not hold what a model holds")]
    Unlike,
}

pub(super) fn make(
    shape: Shape,
    tensors: &Tensors<'_>,
    vocabulary: &str,
    lora: Option<&LoraDelta>,
) -> Result<Vec<u8>, BadTensors> {
    let lora = lora.filter(|lora| lora.fits(shape));
    let list = vocabulary.trim_end_matches('\n');
    if list.lines().count() != shape.vocabulary || Pieces::new(list).is_none() {
        return Err(BadTensors::Vocabulary);
    }
    let mut body = Vec::new();
    let Shape { layers, heads, width, inner, vocabulary, positions } = shape;
    for number in [layers, heads, width, inner, vocabulary, positions, list.len()] {
        body.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    }
    body.extend_from_slice(list.as_bytes());
    let words = tensors.numbers("embeddings.word_embeddings.weight", &[vocabulary, width])?;
    push_rows(&mut body, &words, width);
    // Longer ones are in the file; it has to have at least as many as are wanted.
    let mut places = tensors.numbers("embeddings.position_embeddings.weight", &[512, width])?;
    places.truncate(positions * width);
    let kinds = tensors.numbers("embeddings.token_type_embeddings.weight", &[2, width])?;
    for (place, first) in places.iter_mut().zip(kinds[..width].iter().cycle()) {
        *place += first;
    }
    push(&mut body, &places);
    let norm = |body: &mut Vec<u8>, name: &str| {
        for part in ["weight", "bias"] {
            push(body, &tensors.numbers(&format!("{name}.{part}"), &[width])?);
        }
        Ok(())
    };
    norm(&mut body, "embeddings.LayerNorm")?;
    for layer in 0..layers {
        let at = |name: &str| format!("encoder.layer.{layer}.{name}");
        let dense = |body: &mut Vec<u8>, names: &[&str], into: usize, from: usize| {
            let (mut weights, mut biases) = (Vec::new(), Vec::new());
            for name in names {
                let mut own = tensors.numbers(&at(&format!("{name}.weight")), &[into, from])?;
                if let Some(lora) = lora {
                    lora.add(layer, name, &mut own);
                }
                weights.append(&mut own);
                biases.extend(tensors.numbers(&at(&format!("{name}.bias")), &[into])?);
            }
            push_rows(body, &weights, from);
            push(body, &biases);
            Ok(())
        };
        let asked = ["attention.self.query", "attention.self.key", "attention.self.value"];
        dense(&mut body, &asked, width, width)?;
        dense(&mut body, &["attention.output.dense"], width, width)?;
        norm(&mut body, &at("attention.output.LayerNorm"))?;
        dense(&mut body, &["intermediate.dense"], inner, width)?;
        dense(&mut body, &["output.dense"], width, inner)?;
        norm(&mut body, &at("output.LayerNorm"))?;
    }
    let mut all = MAGIC.to_vec();
    all.extend_from_slice(&Sha256::digest(&body));
    all.append(&mut body);
    Ok(all)
}

pub(super) fn read(bytes: &[u8]) -> Result<Model, BadModel> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(BadModel::NotOne)?;
    let (sum, body) = rest.split_first_chunk::<32>().ok_or(BadModel::Damaged)?;
    if Sha256::digest(body).as_slice() != sum {
        return Err(BadModel::Damaged);
    }
    // The sum keeps out what broke, not what was made on purpose, so nothing below trusts a number either.
    model(body).ok_or(BadModel::Unlike)
}

fn model(mut bytes: &[u8]) -> Option<Model> {
    let from = &mut bytes;
    let mut bounded = |most: usize| count(from).filter(|number| (1..=most).contains(number));
    let shape = Shape {
        layers: bounded(48)?,
        heads: bounded(64)?,
        width: bounded(4096)?,
        inner: bounded(16_384)?,
        vocabulary: bounded(65_536)?,
        positions: bounded(4096)?,
    };
    let list = bounded(MAX_LIST)?;
    if !shape.width.is_multiple_of(shape.heads) {
        return None;
    }
    let list = std::str::from_utf8(take(from, list)?).ok()?;
    if list.lines().count() != shape.vocabulary {
        return None;
    }
    let pieces = Pieces::new(list)?;
    let Shape { width, inner, .. } = shape;
    let words = rows(from, shape.vocabulary, width)?;
    let positions = Array2::from_shape_vec(
        (shape.positions, width),
        numbers(from, shape.positions.checked_mul(width)?)?,
    );
    let encoder = Encoder {
        shape,
        words,
        positions: positions.ok()?,
        norm: norm(from, width)?,
        layers: (0..shape.layers)
            .map(|_| {
                Some(Layer {
                    asked: dense(from, 3 * width, width)?,
                    mixed: dense(from, width, width)?,
                    after_attention: norm(from, width)?,
                    wide: dense(from, inner, width)?,
                    narrow: dense(from, width, inner)?,
                    at_end: norm(from, width)?,
                })
            })
            .collect::<Option<Vec<Layer>>>()?,
    };
    from.is_empty().then_some(Model { pieces, encoder })
}

fn dense(from: &mut &[u8], into: usize, width: usize) -> Option<Dense> {
    let rows = rows(from, into, width)?;
    let mut weights = Array2::zeros((width, into));
    for (at, mut column) in weights.columns_mut().into_iter().enumerate() {
        column.iter_mut().zip(rows.row(at)).for_each(|(place, own)| *place = own);
    }
    Some(Dense { weights, bias: Array1::from_vec(numbers(from, into)?) })
}

fn norm(from: &mut &[u8], width: usize) -> Option<Norm> {
    let mut part = || numbers(from, width).map(Array1::from_vec);
    Some(Norm { weights: part()?, bias: part()? })
}

fn rows(from: &mut &[u8], count: usize, width: usize) -> Option<Rows> {
    let steps = numbers(from, count)?;
    let values = take(from, count.checked_mul(width)?)?;
    Some(Rows { width, steps, values: values.iter().map(|&own| own as i8).collect() })
}

fn numbers(from: &mut &[u8], count: usize) -> Option<Vec<f32>> {
    let bytes = take(from, count.checked_mul(4)?)?;
    let numbers: Vec<f32> =
        bytes.as_chunks::<4>().0.iter().map(|own| f32::from_le_bytes(*own)).collect();
    numbers.iter().all(|number| number.is_finite()).then_some(numbers)
}

fn count(from: &mut &[u8]) -> Option<usize> {
    let bytes = take(from, 4)?;
    Some(u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize)
}

fn take<'a>(from: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (own, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(own)
}

fn push(body: &mut Vec<u8>, numbers: &[f32]) {
    for number in numbers {
        body.extend_from_slice(&number.to_le_bytes());
    }
}

/// Each row in eight bits, with a step of its own: rows differ in size by far more than the numbers within one.
fn push_rows(body: &mut Vec<u8>, numbers: &[f32], width: usize) {
    let step = |row: &[f32]| {
        let largest = row.iter().fold(0.0f32, |most, part| most.max(part.abs()));
        if largest > 0.0 { largest / 127.0 } else { 1.0 }
    };
    let rows = || numbers.chunks_exact(width);
    rows().for_each(|row| body.extend_from_slice(&step(row).to_le_bytes()));
    for row in rows() {
        let step = step(row);
        body.extend(row.iter().map(|part| (part / step).round() as i8 as u8));
    }
}
