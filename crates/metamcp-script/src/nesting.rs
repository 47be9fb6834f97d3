//! How deeply a source nests, checked before the parser recurses with look-ahead that is cubic in the depth.
//! Owns: the count of open brackets.      Never: judges whether the source is valid.
//! In: any text.  Out: the depth, or the position where it is too deep or ambiguous.
//! Tests: below, and in `parse`.

use std::iter::Peekable;
use std::str::CharIndices;

use crate::edits::is_break;

/// Why a source is not parsed, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NestingError {
    /// More open brackets than allowed.
    Deep(usize),
    /// A slash that may start a regular expression or divide, with different brackets either way.
    Slash(usize),
}

/// The largest number of brackets open at once, `<` and `?` among them, or the first position where there are more than
/// `limit`.
///
/// It must never undercount, so it skips strings, comments, templates and regular expressions as the parser does. If
/// only parsing could tell what a slash is, and the two readings hide different brackets, the source is rejected.
pub(crate) fn judge(source: &str, limit: usize) -> Result<usize, NestingError> {
    let mut reader = Reader { source, chars: source.char_indices().peekable() };
    let mut levels = vec![Level::default()];
    let (mut angles, mut held) = (0, 0);
    let mut deepest = 0;
    let mut before = Before::Sign;
    let mut newline = false;
    if source.starts_with("#!") {
        reader.line();
    }
    while let Some((at, c)) = reader.chars.next() {
        let level = levels.last_mut().expect("the bottom is never popped");
        let word = std::mem::take(&mut level.word);
        let now = match c {
            '(' | '[' | '{' => {
                let head = c == '(' && word == Some(Word::Head);
                levels.push(Level { head, ..Level::default() });
                Before::Sign
            }
            ')' | ']' | '}' => {
                let closed = if levels.len() > 1 { levels.pop() } else { None }.unwrap_or_default();
                angles -= closed.angles;
                held -= closed.held;
                if c == '}' && closed.template {
                    reader.template(&mut levels)
                } else if c == '}' || closed.head {
                    Before::Unknown
                } else {
                    Before::Value
                }
            }
            // A type in front of a value: the value nests inside it, so `>` does not close it.
            '<' if before != Before::Value => {
                level.held += 1;
                held += 1;
                Before::Sign
            }
            '<' => {
                level.angles += 1;
                angles += 1;
                Before::Sign
            }
            '?' if !reader.chars.peek().is_some_and(|(_, c)| ".?:,)=".contains(*c))
                && !source[..at].ends_with('?') =>
            {
                level.held += 1;
                held += 1;
                Before::Sign
            }
            '>' => {
                let arrow = source[..at].ends_with('=');
                if !arrow && level.angles > 0 {
                    level.angles -= 1;
                    angles -= 1;
                }
                if arrow { Before::Sign } else { Before::Unknown }
            }
            ';' => {
                angles -= std::mem::take(&mut level.angles);
                held -= std::mem::take(&mut level.held);
                Before::Sign
            }
            '"' | '\'' => {
                reader.string(c);
                Before::Value
            }
            '`' => reader.template(&mut levels),
            '/' if reader.comment(&mut newline) => {
                level_word(&mut levels, word);
                continue;
            }
            '/' => match (before, newline) {
                (Before::Sign, _) => {
                    reader.pattern();
                    Before::Value
                }
                (Before::Value, false) => Before::Sign,
                _ if reader.reads_the_same() => Before::Sign,
                _ => return Err(NestingError::Slash(at)),
            },
            c if is_break(c) => {
                newline = true;
                level_word(&mut levels, word);
                continue;
            }
            c if c.is_whitespace() || c == '\u{feff}' => {
                level_word(&mut levels, word);
                continue;
            }
            c if is_word(c) => {
                let member = source[..at].ends_with('.');
                let word = Word::of(reader.word(at));
                level.word = word.filter(|_| !member);
                match word {
                    Some(Word::Operator) if !member => Before::Sign,
                    Some(Word::Maybe) if !member => Before::Unknown,
                    _ => Before::Value,
                }
            }
            '+' | '-' if source[..at].ends_with(c) => Before::Unknown,
            // After a value it may be TypeScript's non-null assertion; before one, it negates.
            '!' if before != Before::Sign => Before::Unknown,
            _ => Before::Sign,
        };
        before = now;
        newline = false;
        let depth = levels.len() - 1 + angles + held;
        if depth > limit {
            return Err(NestingError::Deep(at));
        }
        deepest = deepest.max(depth);
    }
    Ok(deepest)
}

/// An upper bound on the number of tokens: one per punctuation character and one per word.
pub(crate) fn tokens(source: &str) -> usize {
    let mut count = 0;
    let mut in_word = false;
    for byte in source.bytes() {
        let is_word = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        count += usize::from(!(byte.is_ascii_whitespace() || is_word && in_word));
        in_word = is_word;
    }
    count
}

#[derive(Default)]
struct Level {
    /// Opened by `${` of a template.
    template: bool,
    /// Opened by the bracket of `if (…)` and the like, after which a statement may start.
    head: bool,
    /// Unclosed `<`.
    angles: usize,
    /// Conditionals and types in front of values: they may nest until the statement ends.
    held: usize,
    /// Its last word.
    word: Option<Word>,
}

/// What comes before a slash decides what the slash is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A division follows.
    Value,
    /// A regular expression follows.
    Sign,
    /// Either may follow.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    /// An expression follows.
    Operator,
    /// A bracket follows, and after it a statement.
    Head,
    /// A name in one place and an operator in another.
    Maybe,
}

impl Word {
    fn of(word: &str) -> Option<Word> {
        Some(match word {
            "return" | "typeof" | "instanceof" | "in" | "new" | "delete" | "void" | "throw"
            | "case" | "do" | "else" | "extends" | "default" => Word::Operator,
            "if" | "while" | "for" | "with" => Word::Head,
            "of" | "yield" | "await" | "async" | "as" | "is" | "satisfies" | "keyof" => Word::Maybe,
            _ => return None,
        })
    }
}

/// Blanks and comments do not separate a word from its bracket; nor does the `await` of `for await (`.
fn level_word(levels: &mut [Level], word: Option<Word>) {
    if let Some(level) = levels.last_mut() {
        level.word = word;
    }
}

fn is_word(c: char) -> bool {
    // Anything non-ASCII can only be part of a name, or an error that ends the parse.
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '#' | '\\') || !c.is_ascii()
}

struct Reader<'s> {
    source: &'s str,
    chars: Peekable<CharIndices<'s>>,
}

impl<'s> Reader<'s> {
    fn line(&mut self) {
        while self.chars.next_if(|(_, c)| !is_break(*c)).is_some() {}
    }

    fn string(&mut self, quote: char) {
        while let Some((_, c)) = self.chars.next() {
            match c {
                '\\' => self.escaped(),
                c if c == quote || matches!(c, '\n' | '\r') => return,
                _ => {}
            }
        }
    }

    fn escaped(&mut self) {
        if let Some((_, '\r')) = self.chars.next() {
            self.chars.next_if(|(_, c)| *c == '\n');
        }
    }

    /// Reads to the end of the template, or to a `${`, which opens a level.
    fn template(&mut self, levels: &mut Vec<Level>) -> Before {
        while let Some((_, c)) = self.chars.next() {
            match c {
                '\\' => self.escaped(),
                '`' => return Before::Value,
                '$' if self.chars.next_if(|(_, c)| *c == '{').is_some() => {
                    levels.push(Level { template: true, ..Level::default() });
                    return Before::Sign;
                }
                _ => {}
            }
        }
        Before::Value
    }

    fn comment(&mut self, newline: &mut bool) -> bool {
        if self.chars.next_if(|(_, c)| *c == '/').is_some() {
            self.line();
            true
        } else if self.chars.next_if(|(_, c)| *c == '*').is_some() {
            let mut star = false;
            for (_, c) in self.chars.by_ref() {
                if star && c == '/' {
                    break;
                }
                *newline |= is_break(c);
                star = c == '*';
            }
            true
        } else {
            false
        }
    }

    fn pattern(&mut self) {
        let mut in_class = false;
        while let Some((_, c)) = self.chars.next_if(|(_, c)| !is_break(*c)) {
            match c {
                '\\' => drop(self.chars.next_if(|(_, c)| !is_break(*c))),
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => return,
                _ => {}
            }
        }
    }

    /// Whether the text after a slash reads the same as a division and as a regular expression: there is no second
    /// slash on the line, or nothing between them opens, closes or quotes anything.
    fn reads_the_same(&mut self) -> bool {
        let from = self.chars.peek().map_or(self.source.len(), |(at, _)| *at);
        let rest = &self.source[from..];
        let line = &rest[..rest.find(is_break).unwrap_or(rest.len())];
        let Some((between, _)) = line.split_once('/') else { return true };
        !between.contains(['"', '\'', '`', '(', ')', '[', ']', '{', '}', '<', '>', '\\', ';'])
    }

    fn word(&mut self, from: usize) -> &'s str {
        while self
            .chars
            .next_if(|(_, c)| is_word(*c) && !c.is_whitespace() && *c != '\u{feff}')
            .is_some()
        {}
        let to = self.chars.peek().map_or(self.source.len(), |(at, _)| *at);
        &self.source[from..to]
    }
}

#[cfg(test)]
mod tests {
    use super::{NestingError, judge};

    #[test]
    fn brackets_in_texts_do_not_count() {
        for source in [
            "'((((((' + \"((((((\" + `((((((`",
            "// ((((((\n/* (((((( */ x",
            "x = /((((((/",
            "return /[/((((((]/",
            "if (x) y = a / 2",
            "(a + b) / 2 / c",
            "'\\'((((((('",
            "x => /\"((((((/",
            "`${a}((((((${b}((((((`",
            "n => !/^[A-Z]((((((/.test(n)",
            "w && !/\\d((((((/.test(w)",
            "if (!/[\"'((((((]/.test(x)) y()",
            "return !!/[((((((]/.test(x)",
            "const m: Map<string, Array<number>> = new Map<string, Array<number>>()",
        ] {
            assert!(judge(source, 4).is_ok(), "{source}");
        }
    }

    #[test]
    fn nothing_hides_a_bracket() {
        for source in [
            "((((((",
            "`${((((((",
            "a / b; ((((((",
            "'\\\r\n'; ((((((",
            "// x\r((((((",
            "// x\u{2028}((((((",
            "#!'`\"\n((((((",
            "é / b / ((((((",
            "x.return / `/`; ((((((",
            "a<a<a<a<a<a",
            "a\n<a\n<a\n<a\n<a\n<a",
            "<T><T><T><T><T>x",
            "a?(b):c=>a?(b):c=>a?(b):c=>a?(b):c=>a?(b):c=>x",
            "a<b,a<b,a<b,a<b,a<b,a<b",
        ] {
            assert!(matches!(judge(source, 4), Err(NestingError::Deep(_))), "{source}");
        }
    }

    #[test]
    fn a_slash_that_could_hide_something_is_not_guessed_at() {
        for source in [
            "if (1) /`/; ((((((",
            "{}\n/`/; ((((((",
            "let x: string\n/`/; ((((((",
            "a! /`/; ((((((",
        ] {
            assert!(matches!(judge(source, 4), Err(NestingError::Slash(_))), "{source}");
        }
    }
}
