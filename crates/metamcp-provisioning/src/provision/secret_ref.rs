//! Secrets for installed servers: which values are secrets, and the reference that is recorded in their place.
//!
//! The secret is in the system's keyring or in a file that holds nothing else. Plans, approvals and the record of
//! what is installed hold the reference, which is resolved when the server starts.

use super::candidate::Input;
use metamcp_types::secret::{Secret, names_a_secret};

/// What the keyring knows them by, and how their names begin there.
pub const KEYRING: &str = "metamcp";
const ACCOUNT: &str = "provisioned.";
/// The folder of those that are files, and the one it is in.
pub const FOLDER: &str = "secrets";
const ABOVE: &str = "provision";
/// Digits of the number that each has; nobody guesses one.
const DIGITS: usize = 32;

impl Input {
    /// Whether it must not be shown, whether its publisher says so or only its name does.
    pub fn is_secret(&self) -> bool {
        self.secret || names_a_secret(&self.name)
    }

    /// Whether a value that a person gave for it is a secret that is to be put away: one that is not where a secret is,
    /// nor was put away before.
    pub fn is_worth_keeping(&self, value: &str) -> bool {
        let is_secret =
            self.is_secret() || Secret::new(&*self.name, value).is_redacted_in_results();
        is_secret && secret_ref(value).is_none() && self.default.as_deref() != Some(value)
    }
}

/// The name of a secret in the keyring.
pub fn keyring_account(number: &str) -> String {
    format!("{ACCOUNT}{number}")
}

/// What stands for a secret that is in the keyring.
pub fn in_keyring(number: &str) -> String {
    format!("keychain://{KEYRING}/{}", keyring_account(number))
}

/// What stands for a secret that is in this file.
pub fn in_file(path: &str) -> String {
    format!("file:{path}")
}

/// Where a secret is that was put away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretRef<'a> {
    /// In the keyring, under this number.
    Keyring(&'a str),
    /// In the folder of secrets, under this number.
    File(&'a str),
}

/// Whether a value stands for a secret that was put away, and where that is.
pub fn secret_ref(value: &str) -> Option<SecretRef<'_>> {
    let is_number =
        |text: &&str| text.len() == DIGITS && text.chars().all(|c| c.is_ascii_hexdigit());
    if let Some(rest) = value.strip_prefix("keychain://") {
        let account = rest.strip_prefix(KEYRING)?.strip_prefix('/')?;
        return account.strip_prefix(ACCOUNT).filter(is_number).map(SecretRef::Keyring);
    }
    let mut parts = value.strip_prefix("file:")?.rsplit(['/', '\\']);
    let number = parts.next().filter(is_number)?;
    (parts.next() == Some(FOLDER) && parts.next() == Some(ABOVE)).then_some(SecretRef::File(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_away_is_told_from_what_a_person_may_type() {
        let number = "0123456789abcdef0123456789abcdef";
        assert_eq!(secret_ref(&in_keyring(number)), Some(SecretRef::Keyring(number)));
        let path = format!("/home/ada/.metamcp/provision/secrets/{number}");
        assert_eq!(secret_ref(&in_file(&path)), Some(SecretRef::File(number)));
        for other in [
            "keychain://metamcp/provisioned.1",
            "keychain://github/me",
            "file:/home/ada/.metamcp/provision/secrets/../x",
            "file:/home/ada/.ssh/id_ed25519",
            "cmd:id",
            number,
        ] {
            assert_eq!(secret_ref(other), None, "{other}");
        }
    }

    #[test]
    fn values_that_are_secrets_are_known_by_their_name_or_by_what_they_are() {
        let input =
            |name: &str, secret: bool| Input { name: name.to_owned(), secret, ..Input::default() };
        for (name, secret, value) in [
            ("connection", true, "postgresql://localhost/notes"),
            ("database", false, "postgresql://ada:hunter2@db.example.com/notes"),
            ("API_KEY", false, "x"),
            ("thing", false, "a1b2c3d4e5f6a7b8c9d0"),
        ] {
            assert!(input(name, secret).is_worth_keeping(value), "{name}");
        }
        for (name, value) in
            [("directory", "/home/ada/notes"), ("region", "eu-central-1"), ("mode", "fast")]
        {
            assert!(!input(name, false).is_worth_keeping(value), "{name}");
        }
        let number = "0123456789abcdef0123456789abcdef";
        assert!(!input("API_KEY", true).is_worth_keeping(&in_keyring(number)));
        // What its publisher filled in was never one.
        let filled = Input { default: Some("abc".to_owned()), ..input("API_KEY", true) };
        assert!(!filled.is_worth_keeping("abc"));
    }
}
