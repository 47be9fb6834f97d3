//! Parses an API's response: untrusted, so bounded in every direction and validated; vectors are normalized.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::endpoint::Form;
use super::unavailable::Failure;

/// Texts in one request.
pub(super) const MAX_TEXTS: usize = 64;
/// Dimensions of one vector. The largest models in use have half of this.
pub(super) const MAX_DIMENSIONS: usize = 8192;

/// The vectors of a response, in the order of the texts, all of one length.
pub(super) fn read(form: Form, body: &[u8], asked: usize) -> Result<Vec<Arc<[f32]>>, Failure> {
    let found = match form {
        Form::OpenAi | Form::Voyage => {
            let answer: OpenAi = serde_json::from_slice(body).map_err(|_| Failure::Malformed)?;
            in_order(answer.data.items, asked)?
        }
        Form::Ollama => {
            let answer: Ollama = serde_json::from_slice(body).map_err(|_| Failure::Malformed)?;
            answer.embeddings.items
        }
    };
    if found.len() != asked {
        return Err(Failure::WrongCount { asked, answered: found.len() });
    }
    let expected = found.first().map_or(0, |vector| vector.items.len());
    let mut vectors = Vec::with_capacity(asked);
    for Bounded { items: vector } in found {
        if vector.len() != expected {
            return Err(Failure::WrongDimensions { expected, found: vector.len() });
        }
        let vector = vector.into_iter().map(|Component(number)| number as f32).collect();
        vectors.push(unit(vector).ok_or(Failure::NotAVector)?);
    }
    Ok(vectors)
}

/// The normalized vector, or nothing if it has no direction.
pub(super) fn unit(mut vector: Vec<f32>) -> Option<Arc<[f32]>> {
    let length = length(&vector);
    if !length.is_finite() || length <= 0.0 {
        return None;
    }
    for x in &mut vector {
        *x = (f64::from(*x) / length) as f32;
    }
    Some(vector.into())
}

/// Whether a vector has length one up to rounding. Normalizing it again would change the last digits, and with them the
/// order of equally ranked tools.
pub(super) fn is_unit(vector: &[f32]) -> bool {
    (length(vector) - 1.0).abs() < 1e-3
}

fn length(vector: &[f32]) -> f64 {
    // In f64 the squares of all finite f32 can be summed without overflow.
    vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt()
}

#[derive(serde::Deserialize)]
struct OpenAi {
    data: Bounded<Item, MAX_TEXTS>,
}

#[derive(serde::Deserialize)]
struct Item {
    index: Option<usize>,
    embedding: Bounded<Component, MAX_DIMENSIONS>,
}

#[derive(serde::Deserialize)]
struct Ollama {
    embeddings: Bounded<Bounded<Component, MAX_DIMENSIONS>, MAX_TEXTS>,
}

/// One component, parsed as f64: what does not fit into f32 becomes infinite, and the vector is refused, however the JSON
/// parser treats such a number.
#[derive(serde::Deserialize)]
struct Component(f64);

/// A list that is refused as soon as it exceeds any valid length: a few megabytes of `[],[],…` would otherwise become a
/// hundred of empty lists.
struct Bounded<T, const MOST: usize> {
    items: Vec<T>,
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Bounded<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MOST: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {MOST} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == MOST {
                        return Err(A::Error::invalid_length(MOST + 1, &self));
                    }
                    items.push(item);
                }
                Ok(items)
            }
        }

        let items = deserializer.deserialize_seq(Items::<T, MOST>(PhantomData))?;
        Ok(Bounded { items })
    }
}

/// The vectors sorted by index; in the order received if none has an index.
fn in_order(
    items: Vec<Item>,
    asked: usize,
) -> Result<Vec<Bounded<Component, MAX_DIMENSIONS>>, Failure> {
    if items.len() != asked {
        return Err(Failure::WrongCount { asked, answered: items.len() });
    }
    if items.iter().all(|item| item.index.is_none()) {
        return Ok(items.into_iter().map(|item| item.embedding).collect());
    }
    let mut places: Vec<Option<Bounded<Component, MAX_DIMENSIONS>>> = Vec::new();
    places.resize_with(asked, || None);
    for item in items {
        // An index twice, or out of range: then another is missing, and no vector can be trusted.
        let place = item.index.and_then(|index| places.get_mut(index)).ok_or(Failure::Malformed)?;
        if place.replace(item.embedding).is_some() {
            return Err(Failure::Malformed);
        }
    }
    places.into_iter().collect::<Option<Vec<_>>>().ok_or(Failure::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_sorted_by_index_and_normalized() {
        let body = br#"{"object":"list","data":[{"index":1,"embedding":[0,-2]},{"index":0,"embedding":[3,4]}],"usage":{}}"#;
        let found = read(Form::OpenAi, body, 2).unwrap();
        assert_eq!(found, [Arc::from([0.6_f32, 0.8]), Arc::from([0.0_f32, -1.0])]);
        let body = br#"{"data":[{"embedding":[1]},{"embedding":[-5]}]}"#;
        assert_eq!(
            read(Form::Voyage, body, 2).unwrap(),
            [Arc::from([1.0_f32]), Arc::from([-1.0_f32])]
        );
        let body = br#"{"model":"m","embeddings":[[1e38,0]],"total_duration":1}"#;
        assert_eq!(read(Form::Ollama, body, 1).unwrap(), [Arc::from([1.0_f32, 0.0])]);
    }

    #[test]
    fn hostile_responses_are_errors() {
        let wrong = |asked, answered| Failure::WrongCount { asked, answered };
        let lengths = |expected, found| Failure::WrongDimensions { expected, found };
        for (body, failure) in [
            ("", Failure::Malformed),
            ("[]", Failure::Malformed),
            ("{}", Failure::Malformed),
            ("<html>", Failure::Malformed),
            (r#"{"data":null}"#, Failure::Malformed),
            (r#"{"data":[]}"#, wrong(2, 0)),
            (r#"{"data":[{"embedding":[1]}]}"#, wrong(2, 1)),
            (r#"{"data":[{"embedding":[1]},{"embedding":[1]},{"embedding":[1]}]}"#, wrong(2, 3)),
            (r#"{"data":[{"embedding":[1,2]},{"embedding":[1]}]}"#, lengths(2, 1)),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
                Failure::Malformed,
            ),
            (
                r#"{"data":[{"index":0,"embedding":[1]},{"index":2,"embedding":[1]}]}"#,
                Failure::Malformed,
            ),
            (r#"{"data":[{"index":0,"embedding":[1]},{"embedding":[1]}]}"#, Failure::Malformed),
            (
                r#"{"data":[{"index":-1,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
                Failure::Malformed,
            ),
            (r#"{"data":[{"embedding":[NaN]},{"embedding":[1]}]}"#, Failure::Malformed),
            (r#"{"data":[{"embedding":["1"]},{"embedding":[1]}]}"#, Failure::Malformed),
            (r#"{"data":[{"embedding":[null]},{"embedding":[1]}]}"#, Failure::Malformed),
            (r#"{"data":[{"embedding":[1e999]},{"embedding":[1]}]}"#, Failure::Malformed),
            (r#"{"data":[{"embedding":[1e300]},{"embedding":[1]}]}"#, Failure::NotAVector),
            (r#"{"data":[{"embedding":[0,0]},{"embedding":[1,1]}]}"#, Failure::NotAVector),
            (r#"{"data":[{"embedding":[]},{"embedding":[]}]}"#, Failure::NotAVector),
        ] {
            assert_eq!(read(Form::OpenAi, body.as_bytes(), 2).unwrap_err(), failure, "{body}");
        }
        let numbers = vec!["1"; MAX_DIMENSIONS + 1].join(",");
        let long = format!(r#"{{"embeddings":[[{numbers}]]}}"#);
        assert_eq!(read(Form::Ollama, long.as_bytes(), 1).unwrap_err(), Failure::Malformed);
        let many = format!(r#"{{"embeddings":[{}]}}"#, vec!["[]"; 1_000_000].join(","));
        assert_eq!(read(Form::Ollama, many.as_bytes(), 1).unwrap_err(), Failure::Malformed);
        let deep = format!(r#"{{"x":{}"#, "[".repeat(100_000));
        assert_eq!(read(Form::Ollama, deep.as_bytes(), 1).unwrap_err(), Failure::Malformed);
    }
}
