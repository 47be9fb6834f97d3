//! The settings as a page of the reference.

/// `docs/reference/settings.md`.
pub fn settings_markdown() -> String {
    String::new()
}
