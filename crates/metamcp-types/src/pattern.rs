//! Names with `*` in them: of tools, servers and variables.
//! Owns: matching, linear in practice whatever the name.      Never: knows what is named.
//! In: a pattern as written, a name.  Out: whether it fits.
//! Tests: below.

/// A name in which `*` stands for any run of characters, also an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern as written in the file.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole of `name` fits. Case counts.
    pub fn matches(&self, name: &str) -> bool {
        glob(self.0.as_bytes(), name.as_bytes())
    }
}

/// Greedy matching with one point to fall back to: the last star. Linear in practice, never exponential.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            last_star = Some((p, n));
            p += 1;
        } else if pattern.get(p) == Some(&name[n]) {
            p += 1;
            n += 1;
        } else if let Some((star, taken)) = last_star {
            last_star = Some((star, taken + 1));
            p = star + 1;
            n = taken + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn stars_stand_for_any_run() {
        let check = |pattern: &str, name: &str, expect: bool| {
            assert_eq!(Pattern::new(pattern).matches(name), expect, "{pattern} against {name}");
        };
        check("read_file", "read_file", true);
        check("read_file", "read_files", false);
        check("read_*", "read_file", true);
        check("read_*", "read_", true);
        check("*_file", "read_file", true);
        check("*", "", true);
        check("", "", true);
        check("", "x", false);
        check("a*b*c", "aXbYbZc", true);
        check("a*b*c", "aXbYbZ", false);
        check("**", "anything", true);
        check("Read", "read", false);
        check("*ü*", "prüfen", true);
    }

    #[test]
    fn a_hostile_name_does_not_cost_much() {
        let pattern = Pattern::new("*a".repeat(50) + "b");
        assert!(!pattern.matches(&"a".repeat(20_000)));
    }
}
