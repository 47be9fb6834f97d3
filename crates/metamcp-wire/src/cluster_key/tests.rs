use proptest::prelude::*;

use super::*;

const ONE: &str = "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=";
const OTHER: &str = "3a7f0c91d4e852b6af13c0de9972461b58ee0f7da4c3b21966850a4fd1e7c39b";

fn keys(text: &str) -> ClusterKeys {
    ClusterKeys::parse(text).expect(text)
}

fn refused(text: &str) -> ClusterKeyError {
    ClusterKeys::parse(text).expect_err(text)
}

#[test]
fn a_key_is_read_in_the_forms_that_programs_print() {
    let bare = ONE.trim_end_matches('=');
    let url = bare.replace('+', "-").replace('/', "_");
    let hexadecimal = hex(&of_base64(ONE).unwrap());
    for same in [
        ONE,
        bare,
        &url,
        &hexadecimal,
        &hexadecimal.to_uppercase(),
        &format!("# old\n\n {ONE}\r\n"),
    ] {
        assert_eq!(keys(same).name(), keys(ONE).name(), "{same}");
    }
    assert_ne!(keys(ONE).name(), keys(OTHER).name());
    let two = keys(&format!("{ONE}\n{OTHER}"));
    assert_eq!((two.name(), two.other_name()), (keys(ONE).name(), Some(keys(OTHER).name())));
    assert_eq!(keys(ONE).other_name(), None);
}

#[test]
fn what_is_no_key_is_refused_and_not_repeated() {
    let short = &ONE[..40];
    for (text, why) in [
        ("", ClusterKeyError::Empty),
        ("# nothing\n", ClusterKeyError::Empty),
        ("correct horse battery staple", ClusterKeyError::Form { line: 1 }),
        ("hunter2", ClusterKeyError::Form { line: 1 }),
        (short, ClusterKeyError::Length { line: 1, bytes: 30 }),
        (&format!("{ONE}\n{short}"), ClusterKeyError::Length { line: 2, bytes: 30 }),
        (&"ab".repeat(300), ClusterKeyError::Length { line: 1, bytes: 300 }),
        (&"00".repeat(32), ClusterKeyError::NotRandom { line: 1 }),
        (&"deadbeef".repeat(8), ClusterKeyError::NotRandom { line: 1 }),
        (&format!("{ONE}\n{ONE}"), ClusterKeyError::Same),
        (&format!("{ONE}\n{OTHER}\n{ONE}"), ClusterKeyError::TooMany),
    ] {
        let error = refused(text);
        assert_eq!(error, why, "{text}");
        assert!(text.is_empty() || !error.to_string().contains(text), "{error}");
    }
    let printed = format!(
        "{:?} {:?} {:?}",
        keys(ONE),
        keys(ONE).sealer(Purpose::AtRest),
        keys(ONE).derived(Purpose::AtRest)
    );
    assert!(!printed.contains(&ONE[..8]), "{printed}");
}

#[test]
fn each_purpose_and_each_context_is_its_own() {
    let keys = keys(ONE);
    let purposes = [
        Purpose::SessionIds,
        Purpose::ResumeTokens,
        Purpose::Cursors,
        Purpose::NodeMessages,
        Purpose::AtRest,
    ];
    for purpose in purposes {
        let sealed = keys.sealer(purpose).seal([3; RANDOM], b"ada", b"state");
        assert_eq!(sealed.len(), b"state".len() + OVERHEAD);
        for other in purposes {
            let opened = keys.sealer(other).open(b"ada", &sealed);
            let expected =
                if other == purpose { Ok(b"state".to_vec()) } else { Err(SealError::Broken) };
            assert_eq!(opened, expected, "{purpose:?} {other:?}");
        }
        assert_eq!(keys.sealer(purpose).open(b"bob", &sealed), Err(SealError::Broken));
    }
    let derived = |purpose| keys.derived(purpose).0.expose();
    assert_ne!(derived(Purpose::AtRest), derived(Purpose::Cursors));
}

#[test]
fn keys_are_rotated_in_three_steps() {
    // Each step reaches one gateway after the other, so each has to understand the one before and the one after.
    let steps =
        [ONE.to_owned(), format!("{ONE}\n{OTHER}"), format!("{OTHER}\n{ONE}"), OTHER.to_owned()];
    let sealers: Vec<Sealer> =
        steps.iter().map(|text| keys(text).sealer(Purpose::AtRest)).collect();
    for pair in sealers.windows(2) {
        for (from, to) in [(0, 1), (1, 0)] {
            let sealed = pair[from].seal([5; RANDOM], b"", b"x");
            assert_eq!(pair[to].open(b"", &sealed), Ok(b"x".to_vec()));
        }
    }
    let old = sealers[0].seal([5; RANDOM], b"", b"x");
    assert_eq!(sealers[3].open(b"", &old), Err(SealError::OtherKey));
    assert!(sealers[1].is_current(&old) && !sealers[2].is_current(&old));
}

#[test]
fn no_changed_bit_goes_unnoticed() {
    let sealer = keys(ONE).sealer(Purpose::NodeMessages);
    let sealed = sealer.seal([9; RANDOM], b"from a", b"hello");
    for at in 0..sealed.len() * 8 {
        let mut changed = sealed.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(sealer.open(b"from a", &changed).is_err(), "bit {at}");
    }
    for length in 0..sealed.len() {
        assert!(sealer.open(b"from a", &sealed[..length]).is_err(), "{length} bytes");
    }
}

proptest! {
    #[test]
    fn what_is_sealed_comes_back(
        random in any::<[u8; RANDOM]>(),
        context in proptest::collection::vec(any::<u8>(), 0..40),
        plain in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let sealer = keys(ONE).sealer(Purpose::AtRest);
        let sealed = sealer.seal(random, &context, &plain);
        prop_assert_eq!(sealer.open(&context, &sealed), Ok(plain));
    }

    #[test]
    fn noise_is_refused(noise in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,120}") {
        prop_assert!(keys(ONE).sealer(Purpose::AtRest).open(b"", &noise).is_err());
        // Whatever stands in a file.
        drop(ClusterKeys::parse(&text));
    }
}
