//! How deeply a source nests, judged before it is parsed: the parser recurses, and a stack has an end.

use std::iter::Peekable;
use std::str::CharIndices;

/// The place where brackets, or signs and words in a row, nest deeper than `limit`.
///
/// It reads strings, comments and templates as JavaScript does, and guesses where a regular expression starts
/// by what stands before it. A source that misleads it costs memory for the stack and nothing worse.
pub(crate) fn too_deep(source: &str, limit: usize) -> Option<usize> {
    let mut reader = Reader { chars: source.char_indices().peekable(), templates: Vec::new() };
    // For each open bracket, how many operators stand in it since something last separated them.
    let mut open = vec![0usize];
    let mut total = 0usize;
    let mut value_before = false;
    let mut ended = false;
    while let Some((at, c)) = reader.chars.next() {
        let mut is_value = false;
        match c {
            '(' | '[' | '{' => {
                open.push(0);
                total += 1;
            }
            ')' | ']' | '}' => {
                if c == '}' && reader.templates.last() == Some(&open.len()) {
                    reader.templates.pop();
                    if reader.template() {
                        reader.templates.push(open.len());
                        continue;
                    }
                }
                if open.len() > 1 {
                    total -= open.pop().unwrap_or_default() + 1;
                }
                is_value = c != '}';
            }
            ';' | ',' => {
                // What is separated does not nest in each other.
                let level = open.last_mut().expect("the bottom is never popped");
                total -= std::mem::take(level);
            }
            '"' | '\'' => {
                reader.string(c);
                is_value = true;
            }
            '`' => {
                is_value = true;
                if reader.template() {
                    open.push(0);
                    total += 1;
                    reader.templates.push(open.len());
                    is_value = false;
                }
            }
            '/' if reader.comment() => continue,
            '/' if !value_before => {
                reader.pattern();
                is_value = true;
            }
            '\n' if ended => {
                // Most likely the end of a statement, where nobody writes semicolons.
                let level = open.last_mut().expect("the bottom is never popped");
                total -= std::mem::take(level);
                continue;
            }
            c if c.is_whitespace() => continue,
            c if c.is_alphanumeric() || matches!(c, '_' | '$' | '#' | '@') => {
                let word = reader.word(source, at);
                is_value = !OPERATORS.contains(&word);
                total += usize::from(!is_value);
                *open.last_mut().expect("the bottom is never popped") += usize::from(!is_value);
            }
            _ => {
                total += 1;
                *open.last_mut().expect("the bottom is never popped") += 1;
            }
        }
        value_before = is_value;
        ended = is_value || c == '}';
        if total > limit {
            return Some(at);
        }
    }
    None
}

/// Words that stand before what they apply to, and so may nest.
const OPERATORS: [&str; 19] = [
    "async",
    "await",
    "case",
    "delete",
    "do",
    "else",
    "extends",
    "for",
    "if",
    "in",
    "instanceof",
    "keyof",
    "new",
    "of",
    "return",
    "typeof",
    "void",
    "while",
    "yield",
];

/// At least as many as there are tokens: one for each sign and one for each word.
pub(crate) fn tokens(source: &str) -> usize {
    let mut count = 0;
    let mut in_word = false;
    for byte in source.bytes() {
        let is_word =
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii();
        count += usize::from(!(byte.is_ascii_whitespace() || is_word && in_word));
        in_word = is_word;
    }
    count
}

struct Reader<'s> {
    chars: Peekable<CharIndices<'s>>,
    /// The depth at which each open `${` closes.
    templates: Vec<usize>,
}

impl<'s> Reader<'s> {
    fn string(&mut self, quote: char) {
        while let Some((_, c)) = self.chars.next() {
            match c {
                '\\' => drop(self.chars.next()),
                c if c == quote || c == '\n' => return,
                _ => {}
            }
        }
    }

    /// True if the template goes on after a `${`.
    fn template(&mut self) -> bool {
        while let Some((_, c)) = self.chars.next() {
            match c {
                '\\' => drop(self.chars.next()),
                '`' => return false,
                '$' if self.chars.next_if(|(_, c)| *c == '{').is_some() => return true,
                _ => {}
            }
        }
        false
    }

    fn comment(&mut self) -> bool {
        if self.chars.next_if(|(_, c)| *c == '/').is_some() {
            while self.chars.next_if(|(_, c)| *c != '\n').is_some() {}
            true
        } else if self.chars.next_if(|(_, c)| *c == '*').is_some() {
            let mut star = false;
            for (_, c) in self.chars.by_ref() {
                if star && c == '/' {
                    break;
                }
                star = c == '*';
            }
            true
        } else {
            false
        }
    }

    fn pattern(&mut self) {
        let mut in_class = false;
        while let Some((_, c)) = self.chars.next_if(|(_, c)| *c != '\n') {
            match c {
                '\\' => drop(self.chars.next_if(|(_, c)| *c != '\n')),
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => return,
                _ => {}
            }
        }
    }

    fn word(&mut self, source: &'s str, from: usize) -> &'s str {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
        while self.chars.next_if(|(_, c)| is_word(*c)).is_some() {}
        let to = self.chars.peek().map_or(source.len(), |(at, _)| *at);
        &source[from..to]
    }
}
