//! Reader of `safetensors` files: a length, a table in JSON, numbers. The file is untrusted, so every offset is checked
//! before it is used.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

/// The largest table that is read; that of the model is 11 KB.
const MAX_TABLE: usize = 256 * 1024;

/// Most tensors; the model has 103.
const MAX_TENSORS: usize = 1024;

/// Why tensors cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTensors {
    /// Not the format.
    #[error("it is not a file of tensors")]
    NotOne,
    /// One is missing, or of another kind or size.
    #[error("its tensor {name:?} is missing or not as expected")]
    Unlike { name: String },
    /// The list of pieces is of another model.
    #[error("its tokenizer vocabulary is not as expected")]
    Vocabulary,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The tensors of one file, by name.
pub struct Tensors<'a> {
    entries: HashMap<String, Entry>,
    numbers: &'a [u8],
}

impl<'a> Tensors<'a> {
    /// Reads the table.
    pub fn read(bytes: &'a [u8]) -> Result<Tensors<'a>, BadTensors> {
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or(BadTensors::NotOne)?;
        let length =
            usize::try_from(u64::from_le_bytes(*length)).map_err(|_| BadTensors::NotOne)?;
        if length > MAX_TABLE {
            return Err(BadTensors::NotOne);
        }
        let (table, numbers) = rest.split_at_checked(length).ok_or(BadTensors::NotOne)?;
        let mut table: HashMap<Cow<'_, str>, serde_json::Value> =
            serde_json::from_slice(table).map_err(|_| BadTensors::NotOne)?;
        // Words about the file, for people.
        table.remove("__metadata__");
        if table.len() > MAX_TENSORS {
            return Err(BadTensors::NotOne);
        }
        let mut entries = HashMap::with_capacity(table.len());
        for (name, value) in table {
            let entry = serde_json::from_value(value).map_err(|_| BadTensors::NotOne)?;
            entries.insert(name.into_owned(), entry);
        }
        Ok(Tensors { entries, numbers })
    }

    /// The numbers of one tensor of exactly this shape, all of them finite.
    pub(super) fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, BadTensors> {
        self.found(name, shape).ok_or_else(|| BadTensors::Unlike { name: name.to_owned() })
    }

    fn found(&self, name: &str, shape: &[usize]) -> Option<Vec<f32>> {
        let entry = self.entries.get(name)?;
        let is_same = entry.shape.len() == shape.len()
            && entry.shape.iter().zip(shape).all(|(&there, &wanted)| there == wanted as u64);
        let (start, end) = entry.data_offsets;
        let own = self.numbers.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?;
        let (numbers, rest) = own.as_chunks::<4>();
        let count: usize = shape.iter().product();
        if entry.dtype != "F32" || !is_same || !rest.is_empty() || numbers.len() != count {
            return None;
        }
        let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        numbers.iter().all(|number| number.is_finite()).then_some(numbers)
    }
}
