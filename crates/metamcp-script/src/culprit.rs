//! What in a script an engine's `TypeError` is about. The engine says "not a function" and a place near it, which is
//! that of the last argument; the tree says which expression was called, read or iterated there.
//! Owns: the candidates at a place, and which tool call a name stands for.      Never: guesses among candidates, runs code.
//! In: the source, a position, what the engine complained about.  Out: candidates, the innermost first.
//! Tests: below.

use std::collections::HashMap;

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;

use crate::parse;
use crate::position::Position;
use crate::walk::{end, start};

/// Longest expression that is quoted, in bytes.
const MAX_QUOTED: usize = 80;
/// How far into an expression is looked.
const MAX_DEPTH: usize = 8;
/// Names that are followed to what they stand for: `rows` → `data.rows` → `await server.tool()`.
const MAX_STEPS: usize = 4;
/// Objects of the language: what is called on them by its right name is a function.
const LANGUAGE: [&str; 16] = [
    "Array", "Boolean", "Date", "Error", "JSON", "Map", "Math", "Number", "Object", "Promise",
    "Reflect", "RegExp", "Set", "String", "Symbol", "console",
];

/// What an engine complains about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Complaint<'a> {
    /// What is called is no function.
    NotAFunction,
    /// A member of this name is read or set of `undefined` or `null`.
    NoMember(&'a str),
    /// What is iterated is not iterable.
    NotIterable,
}

/// An expression that a complaint may be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// As written: `rows.map` where it is called, `data.rows` where a member of it is read, `data` where it is iterated.
    pub expression: String,
    /// Where it is a member of something: of what, as written, and its name.
    pub member: Option<(String, String)>,
    /// The tool call whose result the object of that member is, or the expression itself where it is no member.
    pub origin: Option<Origin>,
}

/// A tool's result under a name, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// As written.
    pub server: String,
    /// As written.
    pub tool: String,
    /// The members between the result and the value.
    pub path: Vec<String>,
}

/// The expressions at a position that a complaint can be about, the innermost first. None if that cannot be told.
pub fn culprits(source: &str, at: Position, complaint: Complaint<'_>) -> Vec<Culprit> {
    let Some(at) = offset(source, at) else { return Vec::new() };
    let found = parse::examine(source, |program| {
        let mut finder = Finder {
            source,
            at,
            complaint,
            found: Vec::new(),
            names: HashMap::new(),
            values: HashMap::new(),
        };
        finder.visit_program(program);
        finder.culprits()
    });
    found.unwrap_or_default()
}

fn offset(source: &str, at: Position) -> Option<usize> {
    let mut before = 0;
    for (index, line) in source.split('\n').enumerate() {
        if index + 1 == at.line as usize {
            let column = at.column.checked_sub(1)? as usize;
            let inside = line.char_indices().nth(column).map_or(line.len(), |(index, _)| index);
            return Some(before + inside);
        }
        before += line.len() + 1;
    }
    None
}

/// As much of an expression as is looked at.
#[derive(Debug, Clone)]
enum Shape {
    Name(String),
    Member(Box<Shape>, String),
    Awaited(Box<Shape>),
    /// What is called, and the first argument where it is a text.
    Called(Box<Shape>, Option<String>),
    Other,
}

impl Shape {
    fn of(expression: &Expression<'_>, depth: usize) -> Shape {
        if depth > MAX_DEPTH {
            return Shape::Other;
        }
        let inner = |expression: &Expression<'_>| Box::new(Shape::of(expression, depth + 1));
        match expression.get_inner_expression() {
            Expression::Identifier(it) => Shape::Name(it.name.to_string()),
            Expression::StaticMemberExpression(it) => {
                Shape::Member(inner(&it.object), it.property.name.to_string())
            }
            Expression::ComputedMemberExpression(it) => {
                match it.expression.get_inner_expression() {
                    Expression::StringLiteral(name) => {
                        Shape::Member(inner(&it.object), name.value.to_string())
                    }
                    _ => Shape::Other,
                }
            }
            Expression::AwaitExpression(it) => Shape::Awaited(inner(&it.argument)),
            Expression::CallExpression(it) => {
                let first = match it.arguments.first() {
                    Some(Argument::StringLiteral(text)) => Some(text.value.to_string()),
                    _ => None,
                };
                Shape::Called(inner(&it.callee), first)
            }
            _ => Shape::Other,
        }
    }

    fn root(&self) -> Option<&str> {
        match self {
            Shape::Name(name) => Some(name),
            Shape::Member(object, _) => object.root(),
            _ => None,
        }
    }
}

struct Finder<'s> {
    source: &'s str,
    at: usize,
    complaint: Complaint<'s>,
    found: Vec<(Span, Shape, Option<Span>)>,
    /// How often each name is declared, in whatever scope.
    names: HashMap<String, usize>,
    /// What a constant is declared as.
    values: HashMap<String, Shape>,
}

impl Finder<'_> {
    fn culprits(mut self) -> Vec<Culprit> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_by_key(|(span, ..)| span.size());
        found
            .into_iter()
            .filter_map(|(span, shape, object)| self.culprit(span, &shape, object))
            .collect()
    }

    fn culprit(&self, span: Span, shape: &Shape, object: Option<Span>) -> Option<Culprit> {
        if self.complaint == Complaint::NotAFunction
            && shape
                .root()
                .is_some_and(|root| LANGUAGE.contains(&root) && !self.names.contains_key(root))
        {
            return None;
        }
        let (member, origin) = match (shape, object) {
            (Shape::Member(of, name), Some(object)) => {
                (Some((self.quoted(object)?, name.clone())), self.origin(of, 0))
            }
            _ => (None, self.origin(shape, 0)),
        };
        Some(Culprit { expression: self.quoted(span)?, member, origin })
    }

    fn quoted(&self, span: Span) -> Option<String> {
        let text = self.source.get(start(span)..end(span))?;
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (line.len() <= MAX_QUOTED).then_some(line)
    }

    /// The tool result that an expression is, or is a part of.
    fn origin(&self, shape: &Shape, steps: usize) -> Option<Origin> {
        if steps > MAX_STEPS {
            return None;
        }
        match shape {
            Shape::Awaited(promise) => self.called(promise),
            Shape::Member(object, name) => {
                let mut origin = self.origin(object, steps + 1)?;
                origin.path.push(name.clone());
                Some(origin)
            }
            // Of a name that is declared twice nobody here knows which one is meant.
            Shape::Name(name) if self.names.get(name) == Some(&1) => {
                self.origin(self.values.get(name)?, steps + 1)
            }
            _ => None,
        }
    }

    /// `server.tool(…)`, `server.call("tool", …)`, with `servers.server` or `servers["server"]` for the server.
    fn called(&self, shape: &Shape) -> Option<Origin> {
        let Shape::Called(callee, first) = shape else { return None };
        let Shape::Member(object, method) = &**callee else { return None };
        let server = match &**object {
            Shape::Name(name) if !self.names.contains_key(name) => name,
            Shape::Member(servers, name) => match &**servers {
                Shape::Name(servers) if servers == "servers" => name,
                _ => return None,
            },
            _ => return None,
        };
        let tool = match (method.as_str(), first) {
            ("call", Some(tool)) => tool,
            _ => method,
        };
        Some(Origin { server: server.clone(), tool: tool.clone(), path: Vec::new() })
    }

    fn has(&self, span: Span) -> bool {
        (start(span)..end(span)).contains(&self.at)
    }

    fn add(&mut self, expression: &Expression<'_>) {
        let object = match expression.get_inner_expression() {
            Expression::StaticMemberExpression(it) => Some(it.object.span()),
            Expression::ComputedMemberExpression(it) => Some(it.object.span()),
            _ => None,
        };
        self.found.push((expression.span(), Shape::of(expression, 0), object));
    }

    /// In the function in which the script failed, nothing outside of it was under way at this place.
    fn enter_function(&mut self, span: Span) {
        if self.has(span) && self.at > start(span) {
            self.found.clear();
        }
    }

    /// The place of a call that fails is in its arguments, or at the name of what is called.
    fn call(&mut self, callee: &Expression<'_>, whole: Span) {
        let name = match callee.get_inner_expression() {
            Expression::StaticMemberExpression(it) => it.property.span,
            other => other.span(),
        };
        if self.complaint == Complaint::NotAFunction && (start(name)..end(whole)).contains(&self.at)
        {
            self.add(callee);
        }
    }

    fn member(&mut self, object: &Expression<'_>, name: &str, whole: Span) {
        if self.complaint == Complaint::NoMember(name) && self.has(whole) {
            self.add(object);
        }
    }

    fn iterated(&mut self, expression: &Expression<'_>) {
        if self.complaint == Complaint::NotIterable && self.has(expression.span()) {
            self.add(expression);
        }
    }

    /// `const [a, b] = await Promise.all([…])`
    fn declare_all(&mut self, pattern: &ArrayPattern<'_>, value: &Expression<'_>) {
        let Expression::AwaitExpression(awaited) = value.get_inner_expression() else { return };
        let Expression::CallExpression(call) = awaited.argument.get_inner_expression() else {
            return;
        };
        let is_all = matches!(Shape::of(&call.callee, 0), Shape::Member(of, name) if name == "all" && matches!(&*of, Shape::Name(of) if of == "Promise"));
        let Some(Argument::ArrayExpression(list)) = call.arguments.first().filter(|_| is_all)
        else {
            return;
        };
        for (target, element) in pattern.elements.iter().zip(&list.elements) {
            let Some(element) = element.as_expression() else { return };
            if let Some(BindingPattern::BindingIdentifier(name)) = target {
                let value = Shape::Awaited(Box::new(Shape::of(element, 0)));
                self.values.insert(name.name.to_string(), value);
            }
        }
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        *self.names.entry(it.name.to_string()).or_default() += 1;
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.kind == VariableDeclarationKind::Const
            && let Some(value) = &it.init
        {
            match &it.id {
                BindingPattern::BindingIdentifier(name) => {
                    self.values.insert(name.name.to_string(), Shape::of(value, 0));
                }
                BindingPattern::ArrayPattern(pattern) => self.declare_all(pattern, value),
                _ => {}
            }
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        self.enter_function(it.span);
        walk::walk_function(self, it, flags);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        self.enter_function(it.span);
        walk::walk_arrow_function_expression(self, it);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        self.call(&it.callee, it.span);
        walk::walk_call_expression(self, it);
    }

    fn visit_new_expression(&mut self, it: &NewExpression<'a>) {
        self.call(&it.callee, it.span);
        walk::walk_new_expression(self, it);
    }

    fn visit_static_member_expression(&mut self, it: &StaticMemberExpression<'a>) {
        self.member(&it.object, &it.property.name, it.span);
        walk::walk_static_member_expression(self, it);
    }

    fn visit_computed_member_expression(&mut self, it: &ComputedMemberExpression<'a>) {
        match it.expression.get_inner_expression() {
            Expression::StringLiteral(name) => self.member(&it.object, &name.value, it.span),
            Expression::NumericLiteral(number) => {
                self.member(&it.object, &number.value.to_string(), it.span);
            }
            _ => {}
        }
        walk::walk_computed_member_expression(self, it);
    }

    fn visit_for_of_statement(&mut self, it: &ForOfStatement<'a>) {
        self.iterated(&it.right);
        walk::walk_for_of_statement(self, it);
    }

    fn visit_spread_element(&mut self, it: &SpreadElement<'a>) {
        self.iterated(&it.argument);
        walk::walk_spread_element(self, it);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates at the mark `^`, as `expression < object < origin`.
    fn at_mark(marked: &str, complaint: Complaint<'_>) -> Vec<String> {
        let offset = marked.find('^').unwrap();
        let source = marked.replacen('^', "", 1);
        let found = culprits(&source, Position::of(&source, offset), complaint);
        found
            .into_iter()
            .map(|culprit| {
                let mut line = culprit.expression;
                if let Some((object, name)) = culprit.member {
                    line.push_str(&format!(" < {object} . {name}"));
                }
                if let Some(Origin { server, tool, path }) = culprit.origin {
                    line.push_str(&format!(" < {server}:{tool}/{}", path.join("/")));
                }
                line
            })
            .collect()
    }

    #[test]
    fn the_receiver_of_a_call_is_found_from_its_arguments() {
        let call = |marked| at_mark(marked, Complaint::NotAFunction);
        assert_eq!(
            call("const cust = await sqlite.read_query({});\nreturn cust.map(^k => k.id)"),
            ["cust.map < cust . map < sqlite:read_query/"]
        );
        assert_eq!(
            call("const t = await servers['my fs'].call('read', {}); t.lines.^slice()"),
            ["t.lines.slice < t.lines . slice < my fs:read/lines"]
        );
        assert_eq!(
            call(
                "const [a, b] = await Promise.all([x.one(), y.two()]); b.filter(^Boolean).map(c => c)"
            ),
            ["b.filter < b . filter < y:two/"]
        );
        // Inside the callback nothing of the call around it was under way.
        assert_eq!(call("rows.map(r => r.name.foo(^1))"), ["r.name.foo < r.name . foo"]);
        assert_eq!(call("console.log(cust.map(^k => k))"), ["cust.map < cust . map"]);
        assert_eq!(call("a.b(c(^d))"), ["c", "a.b < a . b"], "either may be meant");
        assert_eq!(call("big.rows(Math.^max(1))"), ["big.rows < big . rows"]);
        assert_eq!(call("const f = 1; ^f()"), ["f"]);
    }

    #[test]
    fn a_name_declared_twice_stands_for_nothing() {
        let call = |marked| at_mark(marked, Complaint::NotAFunction);
        let twice = "const t = await a.b(); for (const t of [1]) { t.map(^x => x) }";
        assert_eq!(call(twice), ["t.map < t . map"]);
        assert_eq!(call("let t = await a.b(); t = 1; t.map(^x => x)"), ["t.map < t . map"]);
        assert_eq!(
            call("const a = {}; const t = await a.b(); t.map(^x => x)"),
            ["t.map < t . map"]
        );
    }

    #[test]
    fn a_member_is_found_by_its_name() {
        let found = |marked, name| at_mark(marked, Complaint::NoMember(name));
        let source = "const data = await s.t(); return ^data.rows.map(x => x)";
        assert_eq!(found(source, "map"), ["data.rows < data . rows < s:t/"]);
        assert_eq!(found("^big.rows.a.b.c", "a"), ["big.rows < big . rows"]);
        assert_eq!(found("^big['rows'].x", "x"), ["big['rows'] < big . rows"]);
        assert_eq!(found("^list[0].x", "0"), ["list"]);
        assert_eq!(found("^a.x", "y"), [""; 0]);
    }

    #[test]
    fn what_is_iterated_is_found() {
        let found = |marked| at_mark(marked, Complaint::NotIterable);
        assert_eq!(found("const d = await s.t(); for (const x of ^d) {}"), ["d < s:t/"]);
        assert_eq!(found("return [...^big.rows]"), ["big.rows < big . rows"]);
    }

    #[test]
    fn what_cannot_be_read_gives_nothing() {
        assert_eq!(at_mark("const = ^", Complaint::NotAFunction), [""; 0]);
        assert_eq!(culprits("a()", Position { line: 9, column: 1 }, Complaint::NotAFunction), []);
    }
}
