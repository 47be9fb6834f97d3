//! Typed reading of JSON values: each wrong type is a problem with its place, each unknown key a warning.

use std::collections::HashMap;

use jsonc_parser::ast::{Object, ObjectProp, Value};
use jsonc_parser::common::{Range, Ranged};

use super::report::{Report, under};
use crate::settings::shown;
use metamcp_types::nearest::{is_slip, nearest};

/// A value and the path that leads to it.
#[derive(Clone)]
pub(super) struct Node<'n, 'a> {
    pub(super) value: &'n Value<'a>,
    pub(super) path: String,
}

impl<'n, 'a> Node<'n, 'a> {
    pub(super) fn range(&self) -> Range {
        self.value.range()
    }

    pub(super) fn string(&self, report: &mut Report<'_>) -> Option<&'n str> {
        match self.value {
            Value::StringLit(literal) => Some(&literal.value),
            _ => self.wrong(report, "a string"),
        }
    }

    pub(super) fn boolean(&self, report: &mut Report<'_>) -> Option<bool> {
        match self.value {
            Value::BooleanLit(literal) => Some(literal.value),
            _ => self.wrong(report, "`true` or `false`"),
        }
    }

    /// A whole number within the range, also where it is written `6e4` or `60.0`.
    pub(super) fn number(
        &self,
        report: &mut Report<'_>,
        what: &str,
        min: u64,
        max: u64,
    ) -> Option<u64> {
        let Value::NumberLit(literal) = self.value else {
            return self.wrong(report, what);
        };
        let Some(number) = whole(literal.value) else {
            let written = shown(literal.value);
            report.problem(self.range(), &self.path, format!("expected {what}, found {written}"));
            return None;
        };
        if !(min..=max).contains(&number) {
            report.problem(
                self.range(),
                &self.path,
                format!("{number} is out of range: {min} to {max}"),
            );
            return None;
        }
        Some(number)
    }

    pub(super) fn object(&self, report: &mut Report<'_>) -> Option<&'n Object<'a>> {
        match self.value {
            Value::Object(object) => Some(object),
            _ => self.wrong(report, "an object"),
        }
    }

    /// The elements of an array.
    pub(super) fn elements(
        &self,
        report: &mut Report<'_>,
        what: &str,
    ) -> Option<Vec<Node<'n, 'a>>> {
        let Value::Array(array) = self.value else {
            return self.wrong(report, what);
        };
        let node = |(index, value)| Node { value, path: format!("{}[{index}]", self.path) };
        Some(array.elements.iter().enumerate().map(node).collect())
    }

    /// A list of strings; every element that is none is a problem.
    pub(super) fn strings(&self, report: &mut Report<'_>) -> Option<Vec<(&'n str, Node<'n, 'a>)>> {
        let elements = self.elements(report, "a list of strings")?;
        let read: Vec<_> =
            elements.into_iter().map(|node| Some((node.string(report)?, node))).collect();
        read.into_iter().collect()
    }

    /// Reports that the value is not `what`.
    pub(super) fn wrong<T>(&self, report: &mut Report<'_>, what: &str) -> Option<T> {
        let found = kind(self.value);
        let hint = match self.value {
            Value::NumberLit(number) if what.contains("string") => {
                Some(format!("put it in quotes: \"{}\"", shown(number.value)))
            }
            Value::StringLit(text) if what.contains("number") && whole(&text.value).is_some() => {
                Some(format!("write it without quotes: {}", shown(&text.value)))
            }
            Value::StringLit(text)
                if what.contains("`true`") && matches!(&*text.value, "true" | "false") =>
            {
                Some(format!("write it without quotes: {}", text.value))
            }
            _ => None,
        };
        report.problem_with(
            self.range(),
            &self.path,
            format!("expected {what}, found {found}"),
            hint,
        );
        None
    }
}

/// The properties of an object, none of them twice.
pub(super) fn properties<'n, 'a>(
    report: &mut Report<'_>,
    object: &'n Object<'a>,
    path: &str,
) -> Vec<(&'n str, &'n ObjectProp<'a>, Node<'n, 'a>)> {
    let mut first_lines: HashMap<&str, usize> = HashMap::with_capacity(object.properties.len());
    let mut read = Vec::with_capacity(object.properties.len());
    for property in &object.properties {
        let name = property.name.as_str();
        let path = under(path, name);
        match first_lines.get(name) {
            Some(line) => {
                let message = format!("given twice, first in line {line}");
                report.problem_with(
                    property.name.range(),
                    &path,
                    message,
                    "keep one of the two".to_owned(),
                );
            }
            None => {
                first_lines.insert(name, report.line(property.name.range()));
                read.push((name, property, Node { value: &property.value, path }));
            }
        }
    }
    read
}

/// A key that an object may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Names that mean the same.
    pub(super) aliases: &'static [&'static str],
}

impl Key {
    /// Its name and those that mean the same.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// A key that other programs use; the reason says what becomes of it here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foreign {
    pub(super) name: &'static str,
    pub(super) reason: &'static str,
    /// Whether leaving it out may change how the server behaves.
    pub(super) matters: bool,
}

/// One key that was given.
pub(super) struct Field<'n, 'a> {
    pub(super) written: &'n str,
    pub(super) node: Node<'n, 'a>,
}

/// The known keys of an object, by their own name.
pub(super) struct Fields<'n, 'a> {
    found: Vec<(&'static str, Field<'n, 'a>)>,
}

impl<'n, 'a> Fields<'n, 'a> {
    /// Whether a key is there and was not taken yet.
    pub(super) fn holds(&self, name: &str) -> bool {
        self.found.iter().any(|(known, _)| *known == name)
    }

    /// Sorts the keys of an object into known, foreign and unknown ones.
    pub(super) fn read(
        report: &mut Report<'_>,
        object: &'n Object<'a>,
        path: &str,
        keys: &[Key],
        foreign: &[Foreign],
    ) -> Self {
        Self::sort(report, object, path, keys, foreign, false)
    }

    /// The same for an object that says who may do what: there a key that nothing reads is a problem, since what it was
    /// meant to keep out would be let in.
    pub(super) fn read_rules(
        report: &mut Report<'_>,
        object: &'n Object<'a>,
        path: &str,
        keys: &[Key],
    ) -> Self {
        Self::sort(report, object, path, keys, &[], true)
    }

    fn sort(
        report: &mut Report<'_>,
        object: &'n Object<'a>,
        path: &str,
        keys: &[Key],
        foreign: &[Foreign],
        are_rules: bool,
    ) -> Self {
        let mut fields = Self { found: Vec::new() };
        for (name, property, node) in properties(report, object, path) {
            let range = property.name.range();
            if let Some(key) =
                keys.iter().find(|key| key.name == name || key.aliases.contains(&name))
            {
                fields.add(report, key.name, Field { written: name, node });
            } else if let Some(known) = foreign.iter().find(|known| known.name == name) {
                if known.matters {
                    report.warn(range, &node.path, known.reason, None);
                } else {
                    report.note(range, &node.path, known.reason);
                }
            } else if !is_comment(name) && !report.is_full() {
                if are_rules {
                    let guesses = nearest(name, keys.iter().flat_map(Key::names), 1);
                    let hint = guesses.first().map(|guess| did_you_mean(guess));
                    report.problem_with(range, &node.path, UNREAD_RULE, hint);
                } else {
                    unknown(report, range, &node.path, name, keys);
                }
            }
        }
        fields
    }

    /// Takes a key out, under whichever of its names it was given.
    pub(super) fn take(&mut self, name: &str) -> Option<Field<'n, 'a>> {
        let at = self.found.iter().position(|(known, _)| *known == name)?;
        Some(self.found.swap_remove(at).1)
    }

    /// Two names of one key: harmless while they agree.
    fn add(&mut self, report: &mut Report<'_>, key: &'static str, field: Field<'n, 'a>) {
        let Some((_, first)) = self.found.iter().find(|(known, _)| *known == key) else {
            self.found.push((key, field));
            return;
        };
        if !same(first.node.value, field.node.value) {
            let message = format!("contradicts `{}`, which means the same", first.written);
            let hint = "keep one of the two".to_owned();
            report.problem_with(field.node.range(), &field.node.path, message, hint);
        }
    }
}

/// Keys by which people put comments into JSON, and extensions by convention.
pub(super) fn is_comment(name: &str) -> bool {
    name.starts_with(['_', '#']) || name.starts_with("//") || name.starts_with("x-")
}

/// What is wrong with a rule that nothing reads.
const UNREAD_RULE: &str =
    "unknown key; it is not ignored, since that would allow what it was meant to deny";

/// Keys of which a misspelt one lets in what it was meant to keep out, under whichever of their names it was meant.
const RULES: [&str; 9] = [
    "approve",
    "approvals",
    "tools",
    "allowedTools",
    "deniedTools",
    "disabled",
    "enabled",
    "toolset",
    "toolsets",
];

fn did_you_mean(guess: &str) -> String {
    format!("did you mean `{guess}`?")
}

/// Warns of a key that nothing reads; a rule that was mistyped is a problem. What is only somewhat like a rule is none:
/// other programs have keys such as `cacheToolsList`, and a file that says so can still be used.
pub(super) fn unknown(
    report: &mut Report<'_>,
    range: Range,
    path: &str,
    name: &str,
    known: &[Key],
) {
    let guess = nearest(name, known.iter().flat_map(Key::names), 1).first().copied();
    let hint = guess.map(did_you_mean);
    let meant = guess.filter(|guess| is_slip(name, guess));
    let meant =
        meant.and_then(|guess| known.iter().find(|key| key.names().any(|one| one == guess)));
    // A server's key; for all servers it is `approvals.rule`.
    let is_misplaced = name == "approve";
    if is_misplaced || meant.is_some_and(|key| RULES.contains(&key.name)) {
        report.problem_with(range, path, UNREAD_RULE, hint);
    } else {
        report.warn(range, path, "unknown key, ignored", hint);
    }
}

/// What a value is, as in "found …".
pub(super) fn kind(value: &Value<'_>) -> &'static str {
    match value {
        Value::StringLit(_) => "a string",
        Value::NumberLit(_) => "a number",
        Value::BooleanLit(literal) if literal.value => "`true`",
        Value::BooleanLit(_) => "`false`",
        Value::Object(_) => "an object",
        Value::Array(_) => "a list",
        Value::NullKeyword(_) => "`null`",
    }
}

/// Equal apart from where they stand in the file.
fn same(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::StringLit(a), Value::StringLit(b)) => a.value == b.value,
        (Value::NumberLit(a), Value::NumberLit(b)) => a.value == b.value,
        (Value::BooleanLit(a), Value::BooleanLit(b)) => a.value == b.value,
        (Value::NullKeyword(_), Value::NullKeyword(_)) => true,
        (Value::Array(a), Value::Array(b)) => {
            a.elements.len() == b.elements.len()
                && a.elements.iter().zip(&b.elements).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.properties.len() == b.properties.len()
                && a.properties
                    .iter()
                    .zip(&b.properties)
                    .all(|(a, b)| a.name.as_str() == b.name.as_str() && same(&a.value, &b.value))
        }
        _ => false,
    }
}

/// The number, where it is whole, not negative and exactly representable.
fn whole(literal: &str) -> Option<u64> {
    if let Ok(number) = literal.parse() {
        return Some(number);
    }
    /// Up to here every whole number is one `f64`.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number: f64 = literal.parse().ok()?;
    let fits = number.fract() == 0.0 && (0.0..EXACT).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked in the line above"
    )]
    fits.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn whole_numbers_in_any_spelling() {
        for (text, expect) in [
            ("60000", Some(60_000)),
            ("6e4", Some(60_000)),
            ("60.0", Some(60)),
            ("0", Some(0)),
            ("-0", Some(0)),
            ("1.5", None),
            ("-1", None),
            ("1e400", None),
            ("18446744073709551616", None),
        ] {
            assert_eq!(whole(text), expect, "{text}");
        }
    }
}
