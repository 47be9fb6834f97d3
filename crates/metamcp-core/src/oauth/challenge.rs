//! What a server says with a refusal: `WWW-Authenticate`, read with bounds.

/// Longest header that is looked at.
const MAX_HEADER: usize = 8192;

/// The part of a challenge that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where the server describes how to log in.
    pub resource_metadata: Option<String>,
    /// The rights it wants to see.
    pub scope: Option<String>,
    /// What is wrong with the token.
    pub error: Option<String>,
}

impl Challenge {
    /// The first challenge for a bearer token among the headers of a response.
    pub fn read<'a>(headers: impl IntoIterator<Item = &'a str>) -> Challenge {
        let mut challenge = Challenge::default();
        for header in headers {
            let header = &header[..header.floor_char_boundary(MAX_HEADER)];
            for (name, value) in parameters(header) {
                let place = match name.as_str() {
                    "resource_metadata" => &mut challenge.resource_metadata,
                    "scope" => &mut challenge.scope,
                    "error" => &mut challenge.error,
                    _ => continue,
                };
                place.get_or_insert(value);
            }
        }
        challenge
    }

    /// Whether the token is good but grants too little.
    pub fn wants_more(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// Parameters of the challenges with the scheme `Bearer`: tokens, and strings in quotes.
fn parameters(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut bearer = false;
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        if end == 0 {
            // Whatever this is, the next comma ends it.
            match rest.find(',') {
                Some(comma) => rest = &rest[comma..],
                None => return found,
            }
            continue;
        }
        let (word, after) = rest.split_at(end);
        let Some(value) = after.trim_start().strip_prefix('=') else {
            bearer = word.eq_ignore_ascii_case("bearer");
            rest = after;
            continue;
        };
        let value = value.trim_start();
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted_text(quoted),
            None => {
                let end = value.find([',', ' ']).unwrap_or(value.len());
                (value[..end].to_owned(), &value[end..])
            }
        };
        if bearer {
            found.push((word.to_ascii_lowercase(), value));
        }
        rest = after;
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// A string in quotes up to its end, and what follows.
fn quoted_text(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_write_is_read() {
        for (header, place, scope, error) in [
            (r#"Bearer resource_metadata="https://a/b""#, Some("https://a/b"), None, None),
            (
                r#"Basic realm="x, y=z", Bearer realm="r", error="insufficient_scope", scope="a b""#,
                None,
                Some("a b"),
                Some("insufficient_scope"),
            ),
            (r#"bearer scope=one,error=invalid_token"#, None, Some("one"), Some("invalid_token")),
            (r#"Bearer error="a\"b""#, None, None, Some("a\"b")),
            (r#"Digest scope="x""#, None, None, None),
            ("", None, None, None),
            ("Bearer", None, None, None),
            ("=,=\"\"Bearer scope=\"", None, None, None),
        ] {
            let read = Challenge::read([header]);
            let seen =
                (read.resource_metadata.as_deref(), read.scope.as_deref(), read.error.as_deref());
            assert_eq!(seen, (place, scope, error), "{header}");
        }
    }

    #[test]
    fn nothing_hangs_or_panics() {
        for header in ["\"", "Bearer \"", "Bearer a=\"\\", "é=é,é", "Bearer ü=\"ü", ",,,,", "====="]
        {
            Challenge::read([header, header]);
        }
        Challenge::read(["Bearer scope=\"ü", &"ü,=".repeat(10_000)]);
    }
}
