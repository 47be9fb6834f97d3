use proptest::prelude::*;

use super::*;

fn token(resume: Resume) -> ResumeToken {
    ResumeToken { principal: b"ada".to_vec(), expires: 1000, request: [7; 32], resume }
}

fn relay() -> ResumeToken {
    token(Resume::Relay { server: "git".into(), state: Some("s".into()) })
}

#[test]
fn who_when_and_what_must_be_right() {
    let key = Key::new([1; 32]);
    let sealed = key.seal(&relay());
    assert_eq!(key.open(&sealed, b"ada", 999, &[7; 32]), Ok(relay().resume));
    assert_eq!(key.open(&sealed, b"bob", 999, &[7; 32]), Err(TokenError::Foreign));
    assert_eq!(key.open(&sealed, b"ada", 1000, &[7; 32]), Err(TokenError::Expired));
    assert_eq!(key.open(&sealed, b"ada", 999, &[8; 32]), Err(TokenError::Other));
    assert_eq!(Key::new([2; 32]).open(&sealed, b"ada", 999, &[7; 32]), Err(TokenError::Forged));
    assert_eq!(key.open("", b"ada", 999, &[7; 32]), Err(TokenError::Forged));
    assert_eq!(
        key.open(&"A".repeat(MAX_SEALED + 1), b"ada", 999, &[7; 32]),
        Err(TokenError::Forged)
    );
    assert_eq!(format!("{key:?}"), "Key(..)");
}

#[test]
fn a_key_that_is_being_replaced_still_opens() {
    let (old, new) = ([1; 32], [2; 32]);
    let sealed = Key::new(old).seal(&relay());
    let both = Key::with_other(new, Some(old));
    assert_eq!(both.open(&sealed, b"ada", 0, &[7; 32]), Ok(relay().resume));
    let again = both.seal(&relay());
    assert_eq!(Key::new(new).open(&again, b"ada", 0, &[7; 32]), Ok(relay().resume));
    assert_eq!(Key::new(old).open(&again, b"ada", 0, &[7; 32]), Err(TokenError::Forged));
}

#[test]
fn no_changed_letter_goes_unnoticed() {
    let key = Key::new([1; 32]);
    let sealed = key.seal(&token(Resume::Suspended { gateway: 9, call: 3, round: 1 }));
    for at in 0..sealed.len() {
        for letter in ["A", "_", "=", " "] {
            let mut forged = sealed.clone();
            forged.replace_range(at..=at, letter);
            if forged != sealed {
                assert_eq!(key.open(&forged, b"ada", 0, &[7; 32]), Err(TokenError::Forged));
            }
        }
    }
}

#[test]
fn a_request_is_the_same_however_it_is_spelt() {
    let one = digest("tools/call", Some(br#"{"name":"x","arguments":{"a":1,"b":["\u0041",{}]}}"#));
    let same = [
        r#"{"arguments":{"b":["A",{}] , "a":1},"name":"x"}"#,
        r#"{"name":"x","arguments":{"a":1,"b":["A",{}]},"_meta":{"k":1},"requestState":"s","inputResponses":{}}"#,
    ];
    for other in same {
        assert_eq!(one, digest("tools/call", Some(other.as_bytes())), "{other}");
    }
    let different = [
        r#"{"name":"x","arguments":{"a":2,"b":["A",{}]}}"#,
        r#"{"name":"x","arguments":{"a":"1","b":["A",{}]}}"#,
        r#"{"name":"x","arguments":{"a":1,"b":["A",[]]}}"#,
        r#"{"name":"x","arguments":{"a":1,"b":[{},"A"]}}"#,
        r#"{"name":"y","arguments":{"a":1,"b":["A",{}]}}"#,
        r#"{"name":"x"}"#,
    ];
    for other in different {
        assert_ne!(one, digest("tools/call", Some(other.as_bytes())), "{other}");
    }
    assert_ne!(one, digest("prompts/get", Some(same[0].as_bytes())));
}

fn resumes() -> impl Strategy<Value = Resume> {
    prop_oneof![
        (any::<u64>(), any::<u64>(), any::<u32>())
            .prop_map(|(gateway, call, round)| Resume::Suspended { gateway, call, round }),
        (".{0,40}", proptest::option::of(".{0,80}"))
            .prop_map(|(server, state)| Resume::Relay { server, state }),
    ]
}

proptest! {
    #[test]
    fn what_is_sealed_comes_back(
        principal in proptest::collection::vec(any::<u8>(), 0..40),
        expires in 1_u64..,
        request in any::<[u8; 32]>(),
        resume in resumes(),
        key in any::<[u8; 32]>(),
    ) {
        let key = Key::new(key);
        let token = ResumeToken { principal: principal.clone(), expires, request, resume };
        let sealed = key.seal(&token);
        prop_assert_eq!(key.open(&sealed, &principal, expires - 1, &request), Ok(token.resume));
        prop_assert_eq!(key.open(&sealed, &principal, expires, &request), Err(TokenError::Expired));
    }

    #[test]
    fn noise_is_refused(noise in ".{0,300}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let key = Key::new([9; 32]);
        prop_assert_eq!(key.open(&noise, b"", 0, &[0; 32]), Err(TokenError::Forged));
        prop_assert_eq!(key.open(&URL_SAFE_NO_PAD.encode(&bytes), b"", 0, &[0; 32]), Err(TokenError::Forged));
        // Whatever passes the seal must still not bring the reader down.
        drop(decode(&bytes));
    }
}
