//! Secret references: values of `env` and `headers` that name a secret's location instead of holding it.

/// Longest part of a name in a keychain; such names are opaque keys, never patterns.
const LONGEST_KEY: usize = 128;

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The text as it is, for values that only look like a reference.
    Literal(String),
    /// An environment variable of the gateway.
    Variable(String),
    /// A file; a line break at its end is not part of the secret.
    File(String),
    /// The output of a program, run without a shell.
    Command(Vec<String>),
    /// An item of 1Password, read by its program `op`.
    OnePassword(String),
    /// An entry of the system's keychain.
    Keychain {
        /// The service it belongs to.
        service: String,
        account: String,
    },
}

impl Reference {
    /// Whether a value, as it is written, is a reference. `file:` is one only before an absolute path or `~/`, since
    /// `file:./dev.db` and `file:///…` are values that servers themselves understand.
    pub fn is_one(written: &str) -> bool {
        let file = written.strip_prefix("file:");
        file.is_some_and(|path| {
            (path.starts_with('/') && !path.starts_with("//"))
                || path.starts_with("~/")
                || path.starts_with("${")
        }) || ["keychain://", "op://", "cmd:", "secretref:", "literal:"]
            .iter()
            .any(|form| written.starts_with(form))
    }

    /// Whether a text can hardly be anything but a reference. `file:` is not included, as it begins addresses of files that
    /// programs are given as arguments, and `literal:`, which says where nothing is.
    pub fn is_plainly_one(written: &str) -> bool {
        ["keychain://", "op://", "cmd:", "secretref:"].iter().any(|form| written.starts_with(form))
    }

    /// Reads a reference. The error is a fragment that names no value.
    pub fn parse(value: &str) -> Result<Reference, String> {
        if let Some(inner) = value.strip_prefix("secretref:") {
            return match inner.strip_prefix("env:") {
                Some(name) => key(name).map(Reference::Variable),
                None if inner.starts_with("secretref:") => {
                    Err("`secretref:` is given twice".into())
                }
                None => Reference::parse(inner),
            };
        }
        if let Some(text) = value.strip_prefix("literal:") {
            return Ok(Reference::Literal(text.to_owned()));
        }
        if let Some(path) = value.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() {
                Err("`file:` names no file".into())
            } else {
                Ok(Reference::File(path.to_owned()))
            };
        }
        if let Some(line) = value.strip_prefix("cmd:") {
            let words = words(line)?;
            return if words.is_empty() {
                Err("`cmd:` names no program".into())
            } else {
                Ok(Reference::Command(words))
            };
        }
        if let Some(item) = value.strip_prefix("op://") {
            let parts = item.split('/').filter(|part| !part.is_empty()).count();
            return if parts >= 3 {
                Ok(Reference::OnePassword(value.to_owned()))
            } else {
                Err("expected op://vault/item/field".into())
            };
        }
        let Some(entry) = value.strip_prefix("keychain://") else {
            return Err("is not a form of reference that is known".into());
        };
        let Some((service, account)) = entry.split_once('/') else {
            return Err("expected keychain://service/account".into());
        };
        Ok(Reference::Keychain { service: key(service)?, account: key(account)? })
    }
}

fn key(name: &str) -> Result<String, String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    let fits = (1..=LONGEST_KEY).contains(&name.len()) && !name.starts_with('-');
    if fits && name.chars().all(sound) {
        return Ok(name.to_owned());
    }
    Err("a name in a reference has letters, digits and _ . - @ only".to_owned())
}

/// Splits a command line; quotes group words, and nothing else is special.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote in `cmd:` is not closed".to_owned());
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::Reference;

    #[test]
    fn what_is_a_reference_and_what_only_looks_like_one() {
        for written in [
            "file:/run/secrets/key",
            "file:~/key",
            "file:${HOME}/key",
            "cmd:pass show key",
            "op://vault/item/field",
            "keychain://github/me",
            "secretref:env:KEY",
            "literal:file:/x",
        ] {
            assert!(Reference::is_one(written), "{written}");
        }
        for written in
            ["file:./dev.db", "file:///home/me", "file:dev.db", "command:x", "", "https://x"]
        {
            assert!(!Reference::is_one(written), "{written}");
        }
    }

    #[test]
    fn every_form_is_read() {
        let check =
            |value: &str, expect| assert_eq!(Reference::parse(value), Ok(expect), "{value}");
        let words = |all: &[&str]| all.iter().map(|&word| word.to_owned()).collect();
        check("file:/a b", Reference::File("/a b".into()));
        check("secretref:file:rel", Reference::File("rel".into()));
        check("secretref:env:KEY", Reference::Variable("KEY".into()));
        check(
            "cmd:pass show 'my key' \"\"",
            Reference::Command(words(&["pass", "show", "my key", ""])),
        );
        check("op://v/i/f", Reference::OnePassword("op://v/i/f".into()));
        check("literal:op://x", Reference::Literal("op://x".into()));
        let (service, account) = ("s".to_owned(), "me@x.org".to_owned());
        check("keychain://s/me@x.org", Reference::Keychain { service, account });
        for value in [
            "file:",
            "cmd:",
            "cmd:'x",
            "op://v/i",
            "keychain://s",
            "keychain://**/a",
            "keychain://-s/a",
            "secretref:secretref:env:X",
            "secretref:env:",
            "secretref:nothing",
        ] {
            assert!(Reference::parse(value).is_err(), "{value}");
        }
    }
}
