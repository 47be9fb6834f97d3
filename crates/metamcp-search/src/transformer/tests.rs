use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;

/// Small enough to be made up.
const SMALL: Shape =
    Shape { layers: 2, heads: 2, width: 8, inner: 12, vocabulary: 12, positions: 16 };

const LIST: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nread\n##ing\nfile\n##s\n,\ncafe\n東\nan\n";

/// Weights that look like chance and are always the same, as they are published.
fn published(shape: Shape, spoilt: Option<&str>) -> Vec<u8> {
    let Shape { width, inner, vocabulary, .. } = shape;
    let mut tensors = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![vocabulary, width]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![512, width]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, width]),
        ("embeddings.LayerNorm.weight".to_owned(), vec![width]),
        ("embeddings.LayerNorm.bias".to_owned(), vec![width]),
    ];
    for layer in 0..shape.layers {
        let parts = [
            ("attention.self.query", width, width),
            ("attention.self.key", width, width),
            ("attention.self.value", width, width),
            ("attention.output.dense", width, width),
            ("intermediate.dense", inner, width),
            ("output.dense", width, inner),
        ];
        for (name, into, from) in parts {
            let at = format!("encoder.layer.{layer}.{name}");
            tensors.push((format!("{at}.weight"), vec![into, from]));
            tensors.push((format!("{at}.bias"), vec![into]));
        }
        for name in ["attention.output.LayerNorm", "output.LayerNorm"] {
            for part in ["weight", "bias"] {
                tensors.push((format!("encoder.layer.{layer}.{name}.{part}"), vec![width]));
            }
        }
    }
    let (mut table, mut numbers) = (serde_json::Map::new(), Vec::new());
    table.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut state = 7u32;
    for (name, shape) in tensors {
        let start = numbers.len();
        for _ in 0..shape.iter().product::<usize>() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 8) as f32 / (1 << 23) as f32 - 1.0;
            let number = if spoilt == Some(name.as_str()) { f32::NAN } else { number };
            numbers.extend_from_slice(&number.to_le_bytes());
        }
        let entry =
            json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, numbers.len()] });
        table.insert(name, entry);
    }
    let table = serde_json::to_vec(&table).unwrap();
    let mut all = (table.len() as u64).to_le_bytes().to_vec();
    all.extend_from_slice(&table);
    all.extend_from_slice(&numbers);
    all
}

fn made() -> Vec<u8> {
    let published = published(SMALL, None);
    Model::make(SMALL, &Tensors::read(&published).unwrap(), LIST, None).unwrap()
}

#[test]
fn text_becomes_the_pieces_the_model_knows() {
    let pieces = Pieces::new(LIST).unwrap();
    let (unknown, begin, end) = (1, 2, 3);
    let table: &[(&str, &[u32])] = &[
        ("", &[]),
        ("Reading FILES", &[4, 5, 6, 7]),
        ("  read\tfile\n", &[4, 6]),
        ("read,file", &[4, 8, 6]),
        ("CAFÉ caf\u{65}\u{301}", &[9, 9]),
        ("read\u{200b}ing\u{0}", &[4, 5]),
        ("東file東", &[10, 6, 10]),
        ("readx", &[unknown]),
        ("read_file", &[4, unknown, 6]),
        ("“read”", &[unknown, 4, unknown]),
        ("[SEP]", &[unknown, unknown, unknown]),
    ];
    for (text, expected) in table {
        let expected: Vec<u32> = [&[begin], *expected, &[end]].concat();
        assert_eq!(pieces.of(text, 64), expected, "{text:?}");
    }
    assert_eq!(pieces.of("read file read file", 4), [begin, 4, 6, end]);
    assert_eq!(pieces.of(&"a".repeat(101), 64), [begin, unknown, end]);
    assert_eq!(pieces.of(&"read ".repeat(10_000), 64).len(), 64);
    assert!(Pieces::new("read\nfile").is_none());
}

#[test]
fn a_query_of_several_sentences_is_read_sentence_by_sentence() {
    let table: &[(&str, &[&str])] = &[
        ("read the file", &[]),
        ("Read the file. Then send it to Ann!", &["Read the file", "Then send it to Ann"]),
        ("Read the file v1.2 now. Thanks.", &[]),
        ("one two three; four five six", &["one two three", "four five six"]),
        ("one two three\nfour five six", &["one two three", "four five six"]),
        ("", &[]),
        ("...", &[]),
    ];
    for (query, expected) in table {
        assert_eq!(clauses(query), *expected, "{query:?}");
    }
    assert_eq!(clauses(&"Read all three files. ".repeat(50)).len(), MAX_CLAUSES);
}

#[test]
fn the_error_function_is_the_one_in_tables() {
    let table = [(0.0, 0.0), (0.1, 0.112_463), (0.5, 0.520_500), (1.0, 0.842_701)];
    let more = [(1.5, 0.966_105), (2.0, 0.995_322), (3.0, 0.999_978), (9.0, 1.0)];
    for (x, expected) in table.into_iter().chain(more) {
        assert!((encoder::erf(x) - expected).abs() < 2e-6, "erf({x}) = {}", encoder::erf(x));
        assert!((encoder::erf(-x) + expected).abs() < 2e-6);
    }
}

#[test]
fn a_vector_has_length_one_and_does_not_depend_on_company() {
    let model = Model::read(&made()).unwrap();
    assert_eq!(model.shape(), SMALL);
    let alone = model.vector("reading files", 16);
    assert_eq!(alone.len(), SMALL.width);
    let length: f32 = alone.iter().map(|part| part * part).sum();
    assert!((length - 1.0).abs() < 1e-5);
    let together = model.vectors(&["cafe, file", "reading files"], 16, 64);
    let far = alone.iter().zip(&together[1]).fold(0.0f32, |far, (a, b)| far.max((a - b).abs()));
    assert!(far < 1e-5, "{far}");
    assert_ne!(alone, together[0]);
    assert_eq!(model.vectors(&["read", "read", "read"], 16, 7).len(), 2, "no room for the third");
    assert_eq!(model.vector(&"read ".repeat(99), 99).len(), SMALL.width, "longer than it can read");
    assert!(model.vectors(&[], 16, 64).is_empty());
}

#[test]
fn a_damaged_file_is_refused() {
    let good = made();
    assert_eq!(Model::read(&[]).unwrap_err(), BadModel::NotOne);
    assert_eq!(Model::read(&good[..20]).unwrap_err(), BadModel::Damaged);
    for at in [8, 50, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(Model::read(&bad).unwrap_err(), BadModel::Damaged, "byte {at}");
    }
    assert_eq!(Model::read(&good[..good.len() - 1]).unwrap_err(), BadModel::Damaged);
}

#[test]
fn other_tensors_are_refused() {
    let good = published(SMALL, None);
    let tensors = Tensors::read(&good).unwrap();
    assert_eq!(Model::make(SMALL, &tensors, "read", None).unwrap_err(), BadTensors::Vocabulary);
    let other = Shape { width: 4, ..SMALL };
    assert!(matches!(Model::make(other, &tensors, LIST, None), Err(BadTensors::Unlike { .. })));
    let name = "encoder.layer.1.output.dense.weight";
    let spoilt = published(SMALL, Some(name));
    let error = Model::make(SMALL, &Tensors::read(&spoilt).unwrap(), LIST, None).unwrap_err();
    assert_eq!(error, BadTensors::Unlike { name: name.to_owned() });
    let short = Tensors::read(&good[..good.len() - 4]).unwrap();
    assert!(matches!(Model::make(SMALL, &short, LIST, None), Err(BadTensors::Unlike { .. })));
    for bad in [&b""[..], b"12345678", &u64::MAX.to_le_bytes()] {
        assert!(matches!(Tensors::read(bad), Err(BadTensors::NotOne)));
    }
}

/// With a sum that fits, so that what is behind it is read.
fn resealed(mut file: Vec<u8>) -> Vec<u8> {
    if file.len() >= 40 {
        let sum = Sha256::digest(&file[40..]);
        file[8..40].copy_from_slice(&sum);
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_hostile_file_is_a_model_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        head in prop::collection::vec((40usize..68, any::<u8>()), 0..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut file = made();
        for (at, byte) in &changes { let at = at.index(file.len()); file[at] = *byte; }
        for (at, byte) in &head { file[*at] = *byte; }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(model) = Model::read(&resealed(file)) {
            model.vector("reading files", 16);
        }
    }

    #[test]
    fn hostile_tensors_are_made_a_model_or_refused(
        changes in prop::collection::vec((0usize..4000, any::<u8>()), 0..12),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = published(SMALL, None);
        for (at, byte) in &changes { bytes[*at] = *byte; }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(tensors) = Tensors::read(&bytes) {
            drop(Model::make(SMALL, &tensors, LIST, None));
        }
    }

    #[test]
    fn any_text_has_pieces(text in any::<String>()) {
        let pieces = Pieces::new(LIST).unwrap().of(&text, 32);
        prop_assert!((2..=32).contains(&pieces.len()));
    }
}

#[test]
fn sentences_are_the_same_read_on_two_cores() {
    let model = Model::read(&made()).unwrap();
    let query = ["reading files, an file", "read an cafe file", "files reading an 東 file, read"]
        .join(" an file. ")
        .repeat(2);
    let sentences = clauses(&query);
    let lists = model.lists(&sentences, QUERY_PIECES, ASKED_PIECES);
    assert!(lists.len() > 2 && lists.iter().map(Vec::len).sum::<usize>() > 40, "{lists:?}");
    assert_eq!(model.asked(&query), model.vectors(&sentences, QUERY_PIECES, ASKED_PIECES));
}
