//! Enums, lowered in place the way the TypeScript compiler writes them.

use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::GetSpan;

use super::{Walk, end, start};
use crate::scan;

/// The enum whose values are being visited: a bare member name in them means that member.
pub(super) struct Members {
    name: String,
    known: Vec<String>,
}

impl Walk<'_> {
    pub(super) fn enumeration(&mut self, it: &TSEnumDeclaration<'_>) {
        if it.declare {
            self.remove(it.span);
            return;
        }
        let name = it.id.name.as_str();
        self.scopes.declare(name, true);
        let body = it.body.span;
        self.edits.replace(
            start(it.span),
            start(body) + 1,
            format!("var {name};(function({name}){{"),
        );
        let outer = self.enumeration.replace(Members { name: name.to_owned(), known: Vec::new() });
        // The value from which a member without an initializer counts on.
        let mut next = "0".to_owned();
        for member in &it.body.members {
            let quoted = quote(&member.id.static_name());
            match &member.initializer {
                None => {
                    let text = format!("{name}[{name}[{quoted}]={next}]={quoted}");
                    self.edits.replace(start(member.span), end(member.span), text);
                }
                Some(value) => {
                    let (before, after) = if is_text(value) {
                        (format!("{name}[{quoted}]=("), ")".to_owned())
                    } else {
                        (format!("{name}[{name}[{quoted}]=("), format!(")]={quoted}"))
                    };
                    self.edits.replace(start(member.span), start(value.span()), before);
                    self.visit_expression(value);
                    self.edits.insert(end(value.span()), after);
                }
            }
            next = format!("{name}[{quoted}]+1");
            if let Some(comma) = scan::next_is(self.source, end(member.span), ",") {
                self.edits.blank_with(comma, comma + 1, Some(';'), None);
            }
            if let Some(members) = &mut self.enumeration {
                members.known.push(member.id.static_name().to_string());
            }
        }
        self.enumeration = outer;
        self.edits.replace(end(body) - 1, end(body), format!("}})({name}||({name}={{}}));"));
    }

    /// Qualifies a bare name that is a member of the current enum.
    pub(super) fn qualify_member(&mut self, it: &IdentifierReference<'_>) -> bool {
        let Some(members) = &self.enumeration else { return false };
        let known = members.known.iter().any(|known| *known == it.name.as_str());
        if known {
            self.edits.insert(start(it.span), format!("{}.", members.name));
        }
        known
    }
}

/// Whether a value is a string, which has no reverse mapping from value to name.
fn is_text(value: &Expression<'_>) -> bool {
    match value.get_inner_expression() {
        Expression::StringLiteral(_) | Expression::TemplateLiteral(_) => true,
        Expression::BinaryExpression(sum) => {
            sum.operator == BinaryOperator::Addition && (is_text(&sum.left) || is_text(&sum.right))
        }
        _ => false,
    }
}

fn quote(name: &str) -> String {
    let mut quoted = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                quoted.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
