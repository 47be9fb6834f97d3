//! The only reading of environment variables.

/// The value of a variable; one that is not UTF-8 counts as not set, since no setting and no file could name it.
pub(crate) fn lookup(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
