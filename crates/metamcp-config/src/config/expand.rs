//! Variables in values: `${VAR}`, `${VAR:-default}`, `${env:VAR}`; `$${` is a plain `${`.

/// Longest value after expansion: more than a system accepts as one argument, and it bounds what a small file can blow up to.
const LONGEST: usize = 1 << 20;
/// Defaults inside defaults; deeper is not written by people.
const DEEPEST: usize = 8;

/// A value with its variables replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Expanded {
    /// The value; what could not be replaced stands as written.
    pub(super) text: String,
    /// Why it is not complete, one fragment for each variable.
    pub(super) missing: Vec<String>,
    /// The variables that were used, with their values.
    pub(super) used: Vec<(String, String)>,
}

/// Replaces the variables of `text`. The error is for text that is not well-formed.
pub(super) fn expand(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Expanded, String> {
    let mut expanded = Expanded::default();
    let rest = expand_into(&mut expanded, text, lookup, 0)?;
    debug_assert!(rest.is_empty(), "only a default ends before its text does");
    Ok(expanded)
}

/// Expands until the end of the text or, inside a default, until its closing brace; returns what follows.
fn expand_into<'t>(
    into: &mut Expanded,
    mut text: &'t str,
    lookup: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<&'t str, String> {
    if depth > DEEPEST {
        return Err(format!("defaults are nested more than {DEEPEST} deep"));
    }
    loop {
        let stop = text.find(|c| c == '$' || (depth > 0 && c == '}'));
        let Some(at) = stop else {
            into.push(text)?;
            return if depth == 0 { Ok("") } else { Err(unclosed()) };
        };
        into.push(&text[..at])?;
        text = &text[at..];
        if let Some(rest) = text.strip_prefix("$${") {
            into.push("${")?;
            text = rest;
        } else if let Some(rest) = text.strip_prefix("${") {
            text = reference(into, rest, lookup, depth)?;
        } else if let Some(rest) = text.strip_prefix('}') {
            return Ok(rest);
        } else {
            into.push("$")?;
            text = &text[1..];
        }
    }
}

/// One reference, from behind its `${`.
fn reference<'t>(
    into: &mut Expanded,
    text: &'t str,
    lookup: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<&'t str, String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).ok_or_else(unclosed)?;
    let (mut name, mut rest) = text.split_at(end);
    if let Some(after) = rest.strip_prefix(':').filter(|after| !after.starts_with('-')) {
        if name != "env" {
            return foreign(into, name, after);
        }
        let end =
            after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).ok_or_else(unclosed)?;
        (name, rest) = after.split_at(end);
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("`${` is not followed by the name of a variable; write `$${` for a plain `${`"
            .to_owned());
    }
    if let Some(default) = rest.strip_prefix(":-") {
        return match lookup(name).filter(|value| !value.is_empty()) {
            Some(value) => {
                into.take(name, value)?;
                let mut unused = Expanded::default();
                expand_into(&mut unused, default, &|_| Some(String::new()), depth + 1)
            }
            None => expand_into(into, default, lookup, depth + 1),
        };
    }
    let Some(rest) = rest.strip_prefix('}') else {
        return Err(format!(
            "`${{{name}` is not closed by `}}`; write `${{{name}}}`, `${{{name}:-default}}`, or `$${{` for a plain `${{`"
        ));
    };
    match lookup(name) {
        Some(value) => into.take(name, value)?,
        None => {
            into.push(&format!("${{{name}}}"))?;
            into.missing.push(format!("environment variable {name} is not set"));
        }
    }
    Ok(rest)
}

/// `${input:id}` and its like: other programs' references, which only they can answer.
fn foreign<'t>(into: &mut Expanded, kind: &str, text: &'t str) -> Result<&'t str, String> {
    let (id, rest) = text.split_once('}').ok_or_else(unclosed)?;
    let written = format!("${{{kind}:{id}}}");
    into.push(&written)?;
    let shown = crate::settings::shown(&written);
    into.missing.push(format!("{shown} can only be resolved by the program it was written for"));
    Ok(rest)
}

impl Expanded {
    fn push(&mut self, piece: &str) -> Result<(), String> {
        if self.text.len() + piece.len() > LONGEST {
            return Err(format!("longer than {LONGEST} bytes once its variables are replaced"));
        }
        self.text.push_str(piece);
        Ok(())
    }

    fn take(&mut self, name: &str, value: String) -> Result<(), String> {
        self.push(&value)?;
        if !self.used.iter().any(|(known, _)| known == name) {
            self.used.push((name.to_owned(), value));
        }
        Ok(())
    }
}

fn unclosed() -> String {
    "`${` is not closed by `}`; write `$${` for a plain `${`".to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Expanded, expand};

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/me".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${HOME}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn replaces_what_is_a_variable_and_nothing_else() {
        let check = |text: &str, expect: &str| {
            let expanded = expand(text, &lookup).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(expanded.text, expect, "{text}");
            assert_eq!(expanded.missing, [""; 0], "{text}");
        };
        check("", "");
        check("plain", "plain");
        check("${HOME}/x", "/home/me/x");
        check("${env:HOME}", "/home/me");
        check("${HOME}${HOME}", "/home/me/home/me");
        check("${NOPE:-there}", "there");
        check("${env:NOPE:-there}", "there");
        check("${NOPE:-}", "");
        check("${EMPTY}", "");
        check("${EMPTY:-filled}", "filled");
        check("${HOME:-unused ${NOPE}}", "/home/me");
        check("${NOPE:-${ALSO_NOPE:-${HOME}}}/x", "/home/me/x");
        check("${NOPE:-a:b-c}", "a:b-c");
        check("$${HOME}", "${HOME}");
        check("$$${HOME}", "$${HOME}");
        check("cost $5, pa$$word, $HOME, a}b", "cost $5, pa$$word, $HOME, a}b");
        check("${TRICK}", "${HOME}");
        check("ü${HOME}/ü", "ü/home/me/ü");
    }

    #[test]
    fn missing_variables_are_named_and_stay_as_written() {
        let expanded = expand("a ${NOPE} ${input:token} b", &lookup).unwrap();
        assert_eq!(expanded.text, "a ${NOPE} ${input:token} b");
        assert_eq!(
            expanded.missing,
            [
                "environment variable NOPE is not set",
                "${input:token} can only be resolved by the program it was written for"
            ]
        );
    }

    #[test]
    fn says_what_is_not_well_formed() {
        let check = |text: &str, expect: &str| {
            let error = expand(text, &lookup).expect_err(text);
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("${", "not closed");
        check("${HOME", "not closed");
        check("${}", "not followed by the name");
        check("${1X}", "not followed by the name");
        check("${env:}", "not followed by the name");
        check("${HOME x}", "`${HOME` is not closed");
        check("${a.b}", "`${a` is not closed");
        check("${NOPE:-", "not closed");
        check("${NOPE:-a${HOME}", "not closed");
        check("${input:x", "not closed");
        check(&"${A:-".repeat(20), "nested more than 8 deep");
        let long = |_: &str| Some("x".repeat(600_000));
        assert!(expand("${A}${B}", &long).unwrap_err().contains("longer than"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[${}:a-zA-Z_ü-]{0,40}") {
            let _outcome = expand(&text, &lookup);
        }

        #[test]
        fn text_without_dollar_is_untouched(text in "[^$]*") {
            let expanded = Expanded { text: text.clone(), ..Expanded::default() };
            prop_assert_eq!(expand(&text, &lookup), Ok(expanded));
        }

        #[test]
        fn an_escaped_text_comes_back(text in "[${}a-z:-]{0,30}") {
            let escaped = text.replace("${", "$${");
            if !text.contains("$${") {
                prop_assert_eq!(expand(&escaped, &lookup).unwrap().text, text);
            }
        }
    }
}
