//! The nesting depth of JSON, without parsing it.

/// The most brackets open at once; defined for invalid JSON too.
pub(super) fn json_depth(json: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    let mut bytes = json.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            b'"' => {
                // Skip the string, with its escapes.
                while let Some(inside) = bytes.next() {
                    match inside {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_texts_do_not_count() {
        assert_eq!(json_depth("1"), 0);
        assert_eq!(json_depth(r#"{"a":[[1],2,{"b":[]}]}"#), 4);
        assert_eq!(json_depth(r#"["[[[[", "\"[[[", "\\"]"#), 1);
    }
}
