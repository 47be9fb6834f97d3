//! The table in the binary, and that texts become the same vectors as in training.

use super::*;

#[test]
fn products_are_summed_whatever_the_length() {
    for length in [0, 1, 31, 32, 33, 192, 200] {
        let left: Vec<i8> = (0..length).map(|n| (n * 37 % 255) as u8 as i8).collect();
        let right: Vec<i8> = (0..length).map(|n| (n * 101 % 251) as u8 as i8).collect();
        let expected: i32 =
            left.iter().zip(&right).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
        assert_eq!(dot(&left, &right), expected, "{length}");
    }
}

#[test]
fn nothing_points_nowhere() {
    let nothing = Vector::of(&[]);
    assert!(nothing.is_zero());
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
            let component = f32::from(vector.components[at]) * vector.step;
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
