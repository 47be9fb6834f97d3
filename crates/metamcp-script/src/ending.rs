//! What a script's value is: its own `return`, its last expression, or the result of a function nobody called.
//! Owns: which of them it is, and the code that returns it.      Never: changes anything before the end.
//! In: the walk and the program.  Out: `Ending`, and edits.
//! Tests: the corpus in `tests/`.

use oxc_ast::ast::*;
use oxc_span::GetSpan;

use crate::Ending;
use crate::parse;
use crate::walk::{Walk, end, is_type, start};

/// The function to call if the script defines it and nothing calls it.
const MAIN: &str = "main";

/// Makes the script return its value. Runs after the walk, when it is known what is left of the script.
pub(crate) fn finish(walk: &mut Walk<'_>, program: &Program<'_>) -> Ending {
    if walk.returns {
        return Ending::Return;
    }
    let values: Vec<&Statement<'_>> =
        program.body.iter().filter(|statement| !leaves_nothing(statement)).collect();
    let Some(last) = values.last() else {
        // A string alone parses as a directive, such as "use strict".
        let Some(directive) = program.directives.last() else { return Ending::Nothing };
        let earlier = program.directives.len().checked_sub(2).map(|at| &program.directives[at]);
        let before = earlier.map(|directive| end(directive.span));
        let literal = directive.expression.span;
        wrap(walk, before, start(literal), end(literal), "");
        return Ending::LastExpression;
    };
    let before = program
        .body
        .iter()
        .take_while(|statement| statement.span().start < last.span().start)
        .last()
        .map(|statement| end(statement.span()))
        .or(program.directives.last().map(|directive| end(directive.span)));
    match last {
        Statement::ExpressionStatement(statement) => {
            let call = if is_uncalled(&statement.expression) { "()" } else { "" };
            let value = statement.expression.span();
            wrap(walk, before, start(value), end(value), call);
            if call.is_empty() { Ending::LastExpression } else { Ending::CalledFunction }
        }
        Statement::ExportDefaultDeclaration(export) => default_export(walk, export, &values),
        Statement::BlockStatement(block) if is_object(walk.source, block) => {
            wrap(walk, before, start(block.span), end(block.span), "");
            Ending::LastExpression
        }
        _ => call_main(walk, &values),
    }
}

/// Puts `return (` before the value and `)` after it. If the value starts its line, `return (` goes to the end of the
/// statement before, so that no column shifts.
fn wrap(walk: &mut Walk<'_>, before: Option<usize>, from: usize, to: usize, call: &str) {
    let gap = &walk.source[before.unwrap_or(0)..from];
    // A line break in a comment of the gap would do as well, but `return (` must not end up inside a comment.
    if gap.contains('\n') {
        let before = before.unwrap_or(0);
        let ended = before == 0 || walk.source[..before].ends_with(';');
        walk.edits.insert(before, if ended { "return (" } else { ";return (" });
    } else {
        walk.edits.insert(from, "return (");
    }
    walk.edits.continue_statement(to);
    walk.edits.insert(to, format!("){call}"));
}

fn default_export(
    walk: &mut Walk<'_>,
    export: &ExportDefaultDeclaration<'_>,
    values: &[&Statement<'_>],
) -> Ending {
    let at = start(export.span);
    let called = match &export.declaration {
        ExportDefaultDeclarationKind::FunctionDeclaration(function) => match &function.id {
            Some(id) => {
                if function.params.items.is_empty() && !walk.scopes.is_used(&id.name) {
                    walk.edits.insert(end(function.span), format!(";return {}()", id.name));
                    return Ending::CalledFunction;
                }
                return call_main(walk, values);
            }
            None => function.params.items.is_empty(),
        },
        ExportDefaultDeclarationKind::ClassDeclaration(class) if class.id.is_some() => {
            return call_main(walk, values);
        }
        kind => kind.as_expression().is_some_and(is_uncalled),
    };
    walk.edits.replace_again(at, "return (");
    walk.edits.continue_statement(end(export.declaration.span()));
    if called {
        walk.edits.insert(end(export.declaration.span()), "()");
        return Ending::CalledFunction;
    }
    Ending::LastExpression
}

/// Calls the function of a script that only defines one, or `main` if the script defines it without using it.
fn call_main(walk: &mut Walk<'_>, values: &[&Statement<'_>]) -> Ending {
    let function = |statement: &&Statement<'_>| match statement {
        Statement::FunctionDeclaration(function) => callable(function),
        Statement::ExportNamedDeclaration(export) => match &export.declaration {
            Some(Declaration::FunctionDeclaration(function)) => callable(function),
            _ => None,
        },
        _ => None,
    };
    let name = match values {
        [only] => function(only),
        all => all.iter().filter_map(function).find(|name| name == MAIN),
    };
    let (Some(name), Some(last)) = (name, values.last()) else { return Ending::Nothing };
    if walk.scopes.is_used(&name) {
        return Ending::Nothing;
    }
    walk.edits.insert(end(last.span()), format!(";return {name}()"));
    Ending::CalledFunction
}

fn callable(function: &Function<'_>) -> Option<String> {
    let name = function.id.as_ref()?.name.to_string();
    (function.params.items.is_empty() && !function.generator).then_some(name)
}

/// A function as the value of a script is only useful if it is called.
fn is_uncalled(expression: &Expression<'_>) -> bool {
    match expression.get_inner_expression() {
        Expression::ArrowFunctionExpression(arrow) => arrow.params.items.is_empty(),
        Expression::FunctionExpression(function) => function.params.items.is_empty(),
        _ => false,
    }
}

/// `{ total, items }` and `{ count: items.length }` are blocks to the grammar but meant as objects.
fn is_object(source: &str, block: &BlockStatement<'_>) -> bool {
    let [only] = block.body.as_slice() else { return block.body.is_empty() };
    let expression = match only {
        Statement::ExpressionStatement(statement) => statement,
        Statement::LabeledStatement(labeled) => match &labeled.body {
            Statement::ExpressionStatement(statement) => statement,
            _ => return false,
        },
        _ => return false,
    };
    let text = &source[start(block.span)..end(block.span)];
    !source[..end(expression.span)].ends_with(';') && parse::reads(&format!("({text})"))
}

fn leaves_nothing(statement: &Statement<'_>) -> bool {
    match statement {
        Statement::EmptyStatement(_) | Statement::ImportDeclaration(_) => true,
        Statement::ExportNamedDeclaration(export) => match &export.declaration {
            Some(declaration) => is_type(declaration),
            None => true,
        },
        statement => statement.as_declaration().is_some_and(is_type),
    }
}
