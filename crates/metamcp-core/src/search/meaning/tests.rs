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
