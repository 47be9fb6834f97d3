//! From source to `PreparedScript`: the parse, the walk and the ending, on a stack that is large enough.
//! Owns: the order of steps, the stack, the messages of parse errors.      Never: parses a source nested too deeply.
//! In: a source within the length limit.  Out: `PreparedScript` or `SyntaxError`.
//! Tests: below, and the corpus in `tests/`.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use oxc_allocator::Allocator;
use oxc_ast::ast::Program;
use oxc_ast_visit::Visit;
use oxc_parser::{ParseOptions, Parser, ParserReturn};
use oxc_span::SourceType;

use crate::edits::is_break;
use crate::error::SyntaxError;
use crate::nesting::NestingError;
use crate::scope::Use;
use crate::walk::Walk;
use crate::{MAX_NESTING, PreparedScript, ending, nesting};

/// Stack that a token can cost the parser and the walk; every pattern of the tests passes with 1 KiB already.
/// Unoptimised code takes more.
const STACK_PER_TOKEN: usize = if cfg!(debug_assertions) { 16 * 1024 } else { 1536 };

/// Stack that an open bracket can cost.
const STACK_PER_LEVEL: usize = if cfg!(debug_assertions) { 64 * 1024 } else { 16 * 1024 };

/// Stack for everything else.
const STACK_BASE: usize = 128 * 1024;

/// Up to this much, the caller's own stack is used, so that short scripts need no thread.
const OWN_STACK: usize = 1024 * 1024;

pub(crate) fn prepare(source: &str) -> Result<PreparedScript, SyntaxError> {
    let source = &*unfenced(source);
    let stack = stack_for(source)?;
    let guarded = || catch_unwind(AssertUnwindSafe(|| read(source))).ok();
    let outcome = if stack <= OWN_STACK { guarded() } else { on_stack(stack, guarded) };
    outcome.unwrap_or_else(|| {
        Err(SyntaxError::at(source, 0, "the script cannot be read: the parser failed on it")
            .hint("make it shorter or simpler"))
    })
}

/// An upper bound on the stack for parsing: brackets are counted, and each operator that nests is a token.
fn stack_for(source: &str) -> Result<usize, SyntaxError> {
    match nesting::judge(source, MAX_NESTING) {
        Ok(levels) => {
            Ok(STACK_BASE + levels * STACK_PER_LEVEL + nesting::tokens(source) * STACK_PER_TOKEN)
        }
        Err(NestingError::Deep(at)) => {
            let message = format!("nested more than {MAX_NESTING} levels deep");
            Err(SyntaxError::at(source, at, message)
                .hint("pull parts out into functions or variables"))
        }
        Err(NestingError::Slash(at)) => {
            let message = "this slash may be a division or start a regular expression";
            Err(SyntaxError::at(source, at, message)
                .hint("put the regular expression into a variable: `const pattern = /…/;`"))
        }
    }
}

/// Runs on a separate stack, of which only the used part costs memory.
fn on_stack<T: Send>(size: usize, run: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().stack_size(size).spawn_scoped(scope, run);
        spawned.ok().and_then(|running| running.join().ok().flatten())
    })
}

/// The source without a Markdown fence around it, which would parse as templates; blanks replace it.
fn unfenced(source: &str) -> Cow<'_, str> {
    const FENCE: &str = "```";
    let inside = source.trim();
    let word = inside.strip_prefix(FENCE).and_then(|rest| rest.split('\n').next()).unwrap_or("-");
    let fenced = word.trim().bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !fenced || inside.len() < 2 * FENCE.len() || !inside.ends_with(FENCE) {
        return Cow::Borrowed(source);
    }
    let start = source.len() - source.trim_start().len();
    let opened = start + FENCE.len() + word.len();
    let closed = source.trim_end().len() - FENCE.len();
    if opened > closed {
        return Cow::Borrowed(source);
    }
    let blank =
        |text: &str| text.chars().map(|c| if is_break(c) { c } else { ' ' }).collect::<String>();
    Cow::Owned(
        [&blank(&source[..opened]), &source[opened..closed], &blank(&source[closed..])].concat(),
    )
}

/// Looks at the tree of a source that was prepared before; none if it cannot be parsed as it is.
pub(crate) fn examine<T: Send>(
    source: &str,
    look: impl FnOnce(&Program<'_>) -> T + Send,
) -> Option<T> {
    let source = &*unfenced(source);
    let stack = stack_for(source).ok()?;
    let looked = || {
        let allocator = Allocator::default();
        let read = parsed(&allocator, source);
        read.errors.is_empty().then(|| look(&read.program))
    };
    let guarded = || catch_unwind(AssertUnwindSafe(looked)).ok().flatten();
    if stack <= OWN_STACK { guarded() } else { on_stack(stack, guarded) }
}

/// Whether a text parses as TypeScript.
pub(crate) fn reads(text: &str) -> bool {
    parsed(&Allocator::default(), text).errors.is_empty()
}

fn parsed<'a>(allocator: &'a Allocator, text: &'a str) -> ParserReturn<'a> {
    // As a module, because that allows `await` everywhere.
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    Parser::new(allocator, text, SourceType::ts().with_module(true)).with_options(options).parse()
}

fn read(source: &str) -> Result<PreparedScript, SyntaxError> {
    let allocator = Allocator::default();
    let read = parsed(&allocator, source);
    let Some(error) = read.errors.first() else { return walked(source, &read, 0) };
    // A lone object or anonymous function: its author meant an expression.
    let start = source.trim_start();
    if ["{", "function", "async function"].iter().any(|word| start.starts_with(word)) {
        let bracketed = format!("({}\n)", source.trim_end().trim_end_matches(';'));
        let second = parsed(&allocator, allocator.alloc_str(&bracketed));
        if second.errors.is_empty() {
            return walked(&bracketed, &second, 1);
        }
    }
    let mut labels = error.labels.iter().flatten();
    let at = if let Some(label) = labels.next() { label.offset() } else { 0 };
    let message = decapitalised(&error.message);
    let mut told = SyntaxError::at(source, at, message);
    told.hint = hint(source, at, &error.message).or(error.help.as_deref().map(decapitalised));
    Err(told)
}

fn walked(source: &str, read: &ParserReturn<'_>, lead: u32) -> Result<PreparedScript, SyntaxError> {
    let mut walk = Walk::new(source);
    walk.visit_program(&read.program);
    let free = walk.scopes.finish();
    let mut names = Vec::new();
    for (at, one) in free {
        match one {
            Use::Require => walk.refuse_require(at),
            Use::Name(name) | Use::Server(name) => {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    if let Some((_, refusal)) = walk.refusal.take() {
        return Err(refusal);
    }
    let ending = ending::finish(&mut walk, &read.program);
    let (code, mut shifts) = walk.edits.apply(source);
    shifts.lead = lead;
    Ok(PreparedScript { code, names, ending, shifts })
}

fn decapitalised(message: &str) -> String {
    let message = message.strip_suffix('.').unwrap_or(message);
    let mut letters = message.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => "not valid TypeScript".to_owned(),
    }
}

/// What to write instead, for common mistakes of models.
fn hint(source: &str, at: usize, message: &str) -> Option<String> {
    let (before, rest) = source.split_at(source.floor_char_boundary(at));
    let hint = if message.contains("`await`") {
        "make the function around it `async`"
    } else if rest.starts_with(':') && message.contains("semicolon") {
        "an object that starts a statement needs brackets: `({ … })`, or `return { … }`"
    } else if rest.starts_with('<') || before.ends_with('<') || message.contains("JSX") {
        "JSX does not exist here; build text or objects instead"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{on_stack, read, stack_for};
    use crate::{MAX_SOURCE_BYTES, prepare};

    /// Everything that recurses in the parser or the tree, repeated as often as it fits.
    const DEEP: &[(&str, &str, &str)] = &[
        ("", "[", ""),
        ("", "(", ""),
        ("x=", "{a:", ""),
        ("", "{", ""),
        ("", "!", "x"),
        ("", "a?b:", "c"),
        ("", "a?", ""),
        ("", "`${", ""),
        ("", "x=>", "x"),
        ("", "(x)=>", "x"),
        ("", "async x=>", "x"),
        ("", "x=", "1"),
        ("", "2**", "2"),
        ("", "a+", "a"),
        ("a", ".b", ""),
        ("a", "()", ""),
        ("a", "[0]", ""),
        ("a", "?.b", ""),
        ("a", "``", ""),
        ("a", "!", ""),
        ("a", " as b", ""),
        ("", "new ", "a"),
        ("", "await ", "a"),
        ("", "typeof ", "a"),
        ("", "- ", "a"),
        ("", "if(1)", "x"),
        ("", "if(1);else ", "x"),
        ("", "do ", "x"),
        ("", "for(;;)", "x"),
        ("", "while(1)", "x"),
        ("", "a:", "x"),
        ("", "a,", "x"),
        ("", "<T>", "x"),
        ("", "function f(){", ""),
        ("", "class A{a=", ""),
        ("", "class A extends ", "B"),
        ("x=", "class extends ", "B"),
        ("", "f(", ""),
        ("", "[...", ""),
        ("let x:", "[", ""),
        ("let x:", "A<", ""),
        ("let x:", "{a:", ""),
        ("let x:", "(", ""),
        ("let x:", "keyof ", "A"),
        ("let x:", "()=>", "A"),
        ("let x:", "A extends B?C:", "D"),
        ("let x:A", "[]", ""),
        ("let x:A", "|A", ""),
        ("let ", "[", ""),
        ("let ", "{a:", ""),
        ("let x:`", "${`", ""),
        ("", "try{", ""),
        ("", "switch(1){case 1:", ""),
        ("", "namespace A{", ""),
        ("enum A{a=", "(", ""),
        ("", "@", "a class A{}"),
        ("", "a&&", "b"),
        ("", "a??", "b"),
        ("", "yield ", "b"),
        ("", "a<", "b"),
        ("", "a<b>(", "b"),
        ("", "import(", ""),
        ("", "/", ""),
        ("", "x=/(", ""),
    ];

    fn sources(bytes: usize) -> impl Iterator<Item = String> {
        DEEP.iter().map(move |(before, unit, after)| {
            let times = (bytes - before.len() - after.len()) / unit.len();
            format!("{before}{}{after}", unit.repeat(times))
        })
    }

    /// Returning at all is the point: neither the stack nor the time may run out.
    #[test]
    fn the_deepest_sources_come_back() {
        let mut outcomes = String::new();
        for source in sources(MAX_SOURCE_BYTES) {
            let outcome = match prepare(&source) {
                Ok(_) => "runs".to_owned(),
                Err(error) => error.message,
            };
            let unit: String = source.chars().take(16).collect();
            outcomes.push_str(&format!("{unit}: {outcome}\n"));
        }
        insta::assert_snapshot!(outcomes);
    }

    /// As deep as allowed, on no more stack than estimated.
    #[test]
    fn the_stack_is_reckoned_right() {
        for source in (1..=6).flat_map(|times| sources(times * 180)) {
            let Ok(stack) = stack_for(&source) else { continue };
            assert!(on_stack(stack, || Some(read(&source))).is_some(), "{source}");
        }
    }
}
