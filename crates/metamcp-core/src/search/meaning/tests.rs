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
    assert_eq!(nothing.cosine(&nothing), 0.0);
}
