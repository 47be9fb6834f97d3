//! The table in the binary, and that texts become the same vectors as in training.

use super::*;

#[test]
fn products_are_summed() {
    for seed in [0usize, 1, 37, 101, 254] {
        let left: Row = std::array::from_fn(|n| ((n + seed) * 37 % 255) as u8);
        let right: Row = std::array::from_fn(|n| ((n * seed) * 101 % 251) as u8);
        let product = |(&a, &b): (&u8, &u8)| i32::from(a as i8) * i32::from(b as i8);
        let expected: i32 = left.iter().zip(&right).map(product).sum();
        assert_eq!(dot(&left, &wide(&right)), expected, "{seed}");
        assert_eq!(wide_dot(&wide(&left), &wide(&right)), expected, "{seed}");
    }
}

#[test]
fn components_are_rounded_to_the_nearest() {
    let mut sum = [0.0; DIMS];
    sum[..6].copy_from_slice(&[127.0, -127.0, 0.6, 0.4, -0.6, -0.4]);
    let vector = Vector::quantised(&sum);
    assert_eq!(
        vector.components[..6].iter().map(|&part| part as i8).collect::<Vec<_>>(),
        [127, -127, 1, 0, -1, 0]
    );
}

#[test]
fn nothing_points_nowhere() {
    assert_eq!(Vector::of(&[]), Vector { components: [0; DIMS], step: 0.0 });
}

#[test]
fn every_row_is_found_by_its_text_and_nothing_else_is() {
    for row in 0..TABLE.rows() {
        let row = Piece::try_from(row).unwrap();
        let text = TABLE.text_of(row).unwrap();
        assert_eq!(TABLE.find(text), Some(row));
        assert_eq!(TABLE.find(&[text, b"\0"].concat()), None, "no piece ends so");
    }
    assert_eq!(TABLE.find(b""), None);
}

#[test]
fn rows_are_summed_one_after_the_other() {
    let pieces: Vec<Piece> = (0..300).map(|n| n * 91 % 28_000).collect();
    let mut expected = [0.0f32; DIMS];
    for &piece in &pieces {
        let (row, _) = TABLE.direction(piece);
        let worth = TABLE.length(piece) / (wide_dot(&row, &row) as f32).sqrt();
        for (part, value) in expected.iter_mut().zip(row) {
            *part += f32::from(value) * worth;
        }
    }
    for (sum, expected) in TABLE.sum(&pieces).iter().zip(expected) {
        assert!((sum - expected).abs() < 1e-2, "{sum} {expected}");
    }
}

/// Written by the training from the same table.
const FIXTURES: &str = include_str!("../../../../../training/fixtures/vectors.jsonl");

#[derive(serde::Deserialize)]
struct Fixture {
    text: String,
    pieces: Vec<String>,
    vector: Vec<f32>,
}

#[test]
fn texts_become_what_the_training_made_of_them() {
    let mut count = 0;
    for line in FIXTURES.lines() {
        let fixture: Fixture = serde_json::from_str(line).unwrap();
        let mut found = Vec::new();
        pieces(&fixture.text, &mut found);
        let expected: Vec<Piece> =
            fixture.pieces.iter().map(|piece| TABLE.find(piece.as_bytes()).unwrap()).collect();
        assert_eq!(found, expected, "{}", fixture.text);
        let vector = Vector::of(&found);
        for (at, expected) in fixture.vector.iter().enumerate() {
            let component = f32::from(vector.components[at] as i8) * vector.step;
            assert!(
                (component - expected).abs() < 0.01,
                "{}: {component} {expected}",
                fixture.text
            );
        }
        count += 1;
    }
    assert!(count >= 40);
}
