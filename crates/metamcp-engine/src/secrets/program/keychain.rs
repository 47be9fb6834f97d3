//! The line by which `security -i` stores a secret in the Keychain of macOS.
//!
//! A secret on its command line could be read by every program of the machine; on its input it cannot. It is given as
//! hexadecimal digits, so that nothing in it can end a word or a line.

/// The longest line that `security` reads in one piece.
const LONGEST: usize = 4096;

/// The line, or why this cannot be stored there.
pub(super) fn line(service: &str, account: &str, secret: &str) -> Result<String, String> {
    let is_plain = |word: &str| !word.chars().any(|c| matches!(c, '"' | '\\') || c.is_control());
    if !is_plain(service) || !is_plain(account) {
        return Err(
            "its name in the Keychain would contain quotes or line breaks, which `security` cannot be told"
                .to_owned(),
        );
    }
    // Read back, other characters would come as digits, and nobody could say whether they are the secret.
    if !secret.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return Err(
            "the Keychain's `security` gives back only printable ASCII as it was".to_owned()
        );
    }
    let digits: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("add-generic-password -U -s \"{service}\" -a \"{account}\" -X {digits}\n");
    if line.len() >= LONGEST {
        let most = (LONGEST - (line.len() - digits.len()).min(LONGEST)) / 2;
        return Err(format!("it is too long for `security`, which takes about {most} characters"));
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_secret_is_digits_whatever_it_contains() {
        let stored = line("metamcp", "/Users/me/my home", "a\"b -w").unwrap();
        assert_eq!(
            stored,
            "add-generic-password -U -s \"metamcp\" -a \"/Users/me/my home\" -X 612262202d77\n"
        );
    }

    #[test]
    fn what_could_be_another_command_or_would_come_back_otherwise_is_refused() {
        for (account, secret) in [
            ("a\"b", "secret"),
            ("a\\", "secret"),
            ("a\ndelete-keychain", "secret"),
            ("a", "gr\u{fc}n"),
            ("a", "two\nlines"),
        ] {
            assert!(line("metamcp", account, secret).is_err(), "{account:?} {secret:?}");
        }
        let long = line("metamcp", "a", &"x".repeat(3000)).unwrap_err();
        assert!(long.contains("about 2024 characters"), "{long}");
        assert!(line("metamcp", "a", &"x".repeat(2023)).is_ok());
    }
}
