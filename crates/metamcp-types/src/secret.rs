//! Secrets: values that must not reach a log, an error or the model.
//! Owns: the unprintable wrapper, what counts as sensitive, redaction.      Never: decides where text goes.
//! In: a name and a value; text and the secrets it may hold.  Out: the value, on request only; clean text.
//! Tests: below and `secret/redactor/tests.rs`.

mod redactor;
mod reference;

use std::borrow::Cow;
use std::fmt;

pub use self::reference::Reference;
pub use redactor::{Redacted, Redactor};

/// Shorter values are not replaced: they occur by chance in innocent text (`true`, `8080`, `en`).
const SHORTEST_REDACTED: usize = 6;
/// The same for results, which are data.
const SHORTEST_IN_RESULTS: usize = 8;
/// From this length on a value of letters and digits is taken for a secret whatever it is called.
const SHORTEST_RANDOM: usize = 16;

/// A value from `env` or `headers`, or a variable's value, that prints as its name only.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    name: String,
    value: String,
    is_reference: bool,
}

impl Secret {
    /// Wraps `value`; `name` is what is printed in its place.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), is_reference: false }
    }

    /// A value that says where the secret is; it is looked up when its server starts.
    pub fn reference(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { is_reference: true, ..Self::new(name, value) }
    }

    /// Whether the value only says where the secret is.
    pub fn is_reference(&self) -> bool {
        self.is_reference
    }

    /// What the value is called: the environment variable or header it belongs to.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value itself. Call it only where it is handed to the child or to its server.
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// Whether the value is worth hiding, rather than a path, a switch or a number that happens to sit in `env`.
    /// In doubt it is: a secret shown is worse than a word hidden.
    pub fn is_sensitive(&self) -> bool {
        let named = names_a_secret(&self.name) && !is_path(&self.value);
        !self.is_reference && (named || !is_plain(&self.value))
    }

    /// Whether results of servers are searched for it. Stricter than `is_sensitive`: a word too many that is missing
    /// from an error does no harm, while data must not lose one that only happens to stand in the configuration.
    pub fn is_redacted_in_results(&self) -> bool {
        let value = self.value.trim();
        let has = |is: fn(&char) -> bool| value.chars().any(|c| is(&c));
        let is_random = value.len() >= SHORTEST_RANDOM
            && !value.contains(char::is_whitespace)
            && has(char::is_ascii_digit)
            && has(char::is_ascii_alphabetic)
            && !is_plain(value);
        let is_address_with_more = value.contains("://") && !is_plain(value);
        value.len() >= SHORTEST_IN_RESULTS
            && ((names_a_secret(&self.name) && !is_path(value))
                || is_random
                || is_address_with_more)
    }

    /// The strings that give the secret away: the value, and a credential without its scheme word.
    fn needles(&self) -> impl Iterator<Item = &str> {
        let credential = self.value.split_once(' ').filter(|(scheme, _)| {
            ["bearer", "basic", "token"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
        });
        [Some(self.value.as_str()), credential.map(|(_, rest)| rest.trim())]
            .into_iter()
            .flatten()
            .filter(|needle| needle.len() >= SHORTEST_REDACTED)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.name)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[secret {}]", self.name)
    }
}

/// `text` with every occurrence of every secret replaced by `[secret NAME]`.
/// One pass, longest match first, so that neither a label nor a shorter secret spoils another's place.
pub fn redact<'a, 's>(
    text: &'a str,
    secrets: impl IntoIterator<Item = &'s Secret>,
) -> Cow<'a, str> {
    let mut occurrences: Vec<Occurrence<'s>> = secrets
        .into_iter()
        .flat_map(|secret| secret.needles().map(move |needle| (needle, secret)))
        .filter_map(|(needle, secret)| Some(Occurrence { needle, secret, at: text.find(needle)? }))
        .collect();
    if occurrences.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut copied = 0;
    while let Some(next) =
        occurrences.iter().min_by_key(|hunt| (hunt.at, std::cmp::Reverse(hunt.needle.len())))
    {
        clean.push_str(&text[copied..next.at]);
        clean.push_str(&next.secret.to_string());
        copied = next.at + next.needle.len();
        occurrences.retain_mut(|hunt| hunt.advance(text, copied));
    }
    clean.push_str(&text[copied..]);
    Cow::Owned(clean)
}

/// A command line or an address as it may be shown: without known secrets, without tokens of well-known shapes, and
/// without what stands before the `@` of an address.
pub fn shown<'s>(text: &str, secrets: impl IntoIterator<Item = &'s Secret>) -> String {
    let text = redact(text, secrets);
    let mut shown = String::with_capacity(text.len());
    let mut rest: &str = &text;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        shown.push_str(before);
        let host_end = behind.find(['/', '?', '#', ' ']).unwrap_or(behind.len());
        rest = match behind[..host_end].rfind('@') {
            Some(user_end) => {
                shown.push_str("[secret]");
                &behind[user_end..]
            }
            None => behind,
        };
    }
    shown.push_str(rest);
    Redactor::new([]).redact_text(&shown).into_owned()
}

/// Whether a variable or header of this name usually holds a secret.
pub fn names_a_secret(name: &str) -> bool {
    const MARKS: [&str; 9] = [
        "token",
        "secret",
        "password",
        "passwd",
        "credential",
        "apikey",
        "api_key",
        "api-key",
        "cookie",
    ];
    let name = name.to_ascii_lowercase();
    // Whoever wrote something is no secret, whatever authorizes them is.
    let is_about_rights = |rest: &str| !rest.starts_with("or") || rest.starts_with("ori");
    MARKS.iter().any(|mark| name.contains(mark))
        || name.match_indices("auth").any(|(at, auth)| is_about_rights(&name[at + auth.len()..]))
        || name
            .split(['_', '-', '.'])
            .any(|word| matches!(word, "key" | "pass" | "pwd" | "pat" | "dsn"))
}

/// One string being looked for, and where it occurs next.
struct Occurrence<'s> {
    needle: &'s str,
    secret: &'s Secret,
    at: usize,
}

impl Occurrence<'_> {
    /// Moves to the next occurrence at or after `from`; false when there is none.
    fn advance(&mut self, text: &str, from: usize) -> bool {
        if self.at >= from {
            return true;
        }
        match text[from..].find(self.needle) {
            Some(offset) => {
                self.at = from + offset;
                true
            }
            None => false,
        }
    }
}

/// Whether a value is surely the place of a file, such as one that holds a key: whoever is told that the file is missing
/// must be told which. A slash in front is not enough, since random bytes in base64 may begin with one.
fn is_path(value: &str) -> bool {
    const ROOTS: [&str; 16] = [
        "home",
        "Users",
        "root",
        "etc",
        "var",
        "tmp",
        "opt",
        "usr",
        "srv",
        "mnt",
        "media",
        "run",
        "data",
        "private",
        "Volumes",
        "workspace",
    ];
    let value = value.trim();
    let may_be_in_a_path =
        |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ' ' | '~');
    if ["~/", "./", "../"].iter().any(|start| value.starts_with(start)) {
        return value.chars().all(may_be_in_a_path);
    }
    let has_drive = value.starts_with(|c: char| c.is_ascii_alphabetic())
        && value.get(1..3).is_some_and(|drive| matches!(drive, ":\\" | ":/"));
    let root = value.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    has_drive || root.is_some_and(|(root, rest)| ROOTS.contains(&root) && !rest.is_empty())
}

/// Paths, addresses without credentials, numbers and ordinary words: hiding them only spoils messages.
fn is_plain(value: &str) -> bool {
    let value = value.trim();
    if value.len() < SHORTEST_REDACTED || value.parse::<f64>().is_ok() {
        return true;
    }
    if let Some((scheme, rest)) = value.split_once("://") {
        let is_address = matches!(scheme, "http" | "https" | "file" | "ws" | "wss");
        return is_address && !rest.contains(['@', '?']);
    }
    let is_path = value.starts_with(['/', '~', '.'])
        || value.get(1..3).is_some_and(|drive| matches!(drive, ":\\" | ":/"));
    is_path || value.chars().all(|c| c.is_alphabetic() || matches!(c, ' ' | '-' | '_' | ',' | '.'))
}

#[cfg(test)]
mod tests {
    use super::{Secret, names_a_secret, redact, shown};

    #[test]
    fn never_prints_its_value() {
        let secret = Secret::new("GITHUB_TOKEN", "ghp_0123456789");
        let printed = format!("{secret} {secret:?} {:?}", Some(&secret));
        assert!(!printed.contains("ghp_"), "{printed}");
        assert_eq!(secret.to_string(), "[secret GITHUB_TOKEN]");
        assert_eq!(secret.expose(), "ghp_0123456789");
    }

    #[test]
    fn a_file_is_named_even_where_it_holds_a_secret() {
        let is_hidden = |value: &str| {
            let secret = Secret::new("GOOGLE_APPLICATION_CREDENTIALS", value);
            assert_eq!(secret.is_sensitive(), secret.is_redacted_in_results(), "{value}");
            secret.is_sensitive()
        };
        for path in [
            "/home/ada/keys/service-account.json",
            "/Users/ada/Library/Application Support/key.json",
            "~/.config/gcloud/key.json",
            "./key-1.json",
            r"C:\\keys\\k1.json",
        ] {
            assert!(!is_hidden(path), "{path}");
        }
        for secret in [
            "/9j/4AAQSkZJRgABAQAAAQABAAD",
            "/wJalrXUtnFEMI/K7MDENG/bPxRfi",
            "./!x9$hunter2hunter2",
            "c:hunter2hunter2",
        ] {
            assert!(is_hidden(secret), "{secret}");
        }
    }

    #[test]
    fn redacts_every_occurrence_and_only_those() {
        let secrets = [
            Secret::new("SHORT", "abc"),
            Secret::new("LONG", "abcdef-123456"),
            Secret::new("PREFIX", "abcdef"),
            Secret::new("Authorization", "Bearer eyJhbGciOi"),
            Secret::new("LABEL", "secret"),
        ];
        let check = |text: &str, expect: &str| assert_eq!(redact(text, &secrets), expect);
        check("nothing here, abc", "nothing here, abc");
        check("x abcdef-123456 y abcdef-123456", "x [secret LONG] y [secret LONG]");
        check("abcdefabcdef!", "[secret PREFIX][secret PREFIX]!");
        check("got eyJhbGciOi", "got [secret Authorization]");
        check("header Bearer eyJhbGciOi.", "header [secret Authorization].");
        check("a secret abcdef", "a [secret LABEL] [secret PREFIX]");
        check("é abcdef é", "é [secret PREFIX] é");
        check("", "");
    }

    #[test]
    fn what_is_shown_has_no_password_and_no_token() {
        let secrets = [Secret::new("KEY", "hunter2-hunter2")];
        let token = format!("ghp_{}", "A1b2".repeat(9));
        for (text, expected) in [
            ("https://u:p@h.example/x@y", "https://[secret]@h.example/x@y"),
            ("psql postgres://ada:pw@db/x https://b/", "psql postgres://[secret]@db/x https://b/"),
            ("https://h.example/?q=a@b \"é\"", "https://h.example/?q=a@b \"é\""),
            ("run hunter2-hunter2", "run [secret KEY]"),
            (&*format!("--token={token}"), "--token=[secret GitHub token]"),
        ] {
            assert_eq!(shown(text, &secrets), expected);
        }
    }

    #[test]
    fn tells_secrets_from_plain_values() {
        for (name, value) in [
            ("GITHUB_TOKEN", "plainword"),
            ("API_KEY", "x"),
            ("DATABASE", "postgres://me:pw@host/db"),
            ("WEBHOOK", "https://hooks.example.com/?sig=1"),
            ("UNKNOWN", "f3a9c1d277b0"),
        ] {
            assert!(Secret::new(name, value).is_sensitive(), "{name}");
        }
        for (name, value) in [
            ("ROOT", "/home/me/project"),
            ("DRIVE", "C:\\Users\\me"),
            ("DEBUG", "true"),
            ("PORT", "8080123"),
            ("BASE_URL", "https://api.example.com/v1"),
            ("MODE", "read-only"),
        ] {
            assert!(!Secret::new(name, value).is_sensitive(), "{name}");
        }
        assert!(names_a_secret("X-Api-Key") && !names_a_secret("KEYBOARD"));
        for name in ["Authorization", "BASIC_AUTH", "OAUTH_ID", "AUTHORITY"] {
            assert!(names_a_secret(name), "{name}");
        }
        assert!(!names_a_secret("GIT_AUTHOR_NAME") && !names_a_secret("authors"));
    }
}
