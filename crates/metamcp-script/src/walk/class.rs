//! Classes: modifiers, members that are only types, parameters that are properties.

use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_ast_visit::walk;
use oxc_span::{GetSpan, Span};

use super::{Walk, end, start};
use crate::scan;

/// Modifiers of a member or parameter that have no effect at run time.
const MODIFIERS: [&str; 7] =
    ["public", "private", "protected", "readonly", "override", "abstract", "declare"];

impl Walk<'_> {
    pub(super) fn class(&mut self, it: &Class<'_>) {
        if it.declare {
            self.remove(it.span);
            return;
        }
        if let Some(word) = it.r#abstract.then_some("abstract") {
            self.blank_sign(start(it.span), word);
        }
        if let Some(last) = it.implements.last() {
            let head = [
                it.super_type_arguments.as_ref().map(|types| end(types.span)),
                it.super_class.as_ref().map(|class| end(class.span())),
                it.type_parameters.as_ref().map(|types| end(types.span)),
                it.id.as_ref().map(|id| end(id.span)),
            ];
            let class_word = self.text(it.span).find("class").unwrap_or(0) + "class".len();
            let from = head.into_iter().flatten().max().unwrap_or(start(it.span) + class_word);
            self.edits.blank(scan::next(self.source, from), end(last.span));
        }
        self.derived.push(it.super_class.is_some());
        walk::walk_class(self, it);
        self.derived.pop();
    }

    pub(super) fn property(&mut self, it: &PropertyDefinition<'_>) {
        if it.declare || it.r#type.is_abstract() {
            self.remove(it.span);
            return;
        }
        self.visit_decorators(&it.decorators);
        self.blank_modifiers(start(it.span), start(it.key.span()), true);
        self.member_key(&it.key, it.computed, it.optional || it.definite);
        if let Some(annotation) = &it.type_annotation {
            self.visit_ts_type_annotation(annotation);
        }
        if let Some(value) = &it.value {
            self.field_value(value);
        }
        self.edits.end_statement(end(it.span));
    }

    pub(super) fn accessor(&mut self, it: &AccessorProperty<'_>) {
        if it.r#type.is_abstract() {
            self.remove(it.span);
            return;
        }
        self.visit_decorators(&it.decorators);
        self.blank_modifiers(start(it.span), start(it.key.span()), true);
        self.member_key(&it.key, it.computed, it.definite);
        if let Some(annotation) = &it.type_annotation {
            self.visit_ts_type_annotation(annotation);
        }
        if let Some(value) = &it.value {
            self.field_value(value);
        }
        self.edits.end_statement(end(it.span));
    }

    pub(super) fn method(&mut self, it: &MethodDefinition<'_>) {
        if it.r#type.is_abstract() || it.value.body.is_none() {
            self.remove(it.span);
            return;
        }
        self.visit_decorators(&it.decorators);
        self.blank_modifiers(start(it.span), start(it.key.span()), true);
        self.member_key(&it.key, it.computed, it.optional);
        if it.kind.is_constructor() {
            self.parameter_properties(&it.value);
        }
        self.visit_function(&it.value, oxc_syntax::scope::ScopeFlags::Function);
    }

    /// Blanks the modifiers between two offsets. Where a class member begins with one, a semicolon keeps what follows,
    /// such as a bracket or a star, from joining the member before.
    pub(super) fn blank_modifiers(&mut self, from: usize, to: usize, is_member: bool) {
        for (index, (at, word)) in scan::words(self.source, from, to).into_iter().enumerate() {
            if MODIFIERS.contains(&word) {
                let first = (is_member && index == 0 && at == from).then_some(';');
                self.edits.blank_with(at, at + word.len(), first, None);
            }
        }
    }

    fn member_key(&mut self, key: &PropertyKey<'_>, computed: bool, marked: bool) {
        if computed {
            self.visit_property_key(key);
        }
        if marked {
            let mut at = end(key.span());
            if computed {
                at = scan::next_is(self.source, at, "]").map_or(at, |bracket| bracket + 1);
            }
            // One of them; which one does not matter.
            if !self.blank_sign(at, "?") {
                self.blank_sign(at, "!");
            }
        }
    }

    /// The value of a field is a function scope of its own: `arguments` and `this` are not those outside.
    fn field_value(&mut self, value: &Expression<'_>) {
        self.scopes.enter(true);
        self.visit_expression(value);
        self.scopes.leave();
    }

    /// `constructor(private x: T)` assigns; the assignments go where the body starts, or after `super(…)`.
    fn parameter_properties(&mut self, constructor: &Function<'_>) {
        let mut assignments = String::new();
        for parameter in &constructor.params.items {
            if !parameter.has_modifier() {
                continue;
            }
            let Some(name) = parameter.pattern.get_identifier_name() else {
                let span = parameter.span;
                return self.refuse_parameter(span, "a parameter property needs a plain name");
            };
            assignments.push_str(&format!("this.{name}={name};"));
        }
        let (Some(body), false) = (&constructor.body, assignments.is_empty()) else { return };
        if self.derived.last() != Some(&true) {
            return self.edits.insert(start(body.span) + 1, assignments);
        }
        match body.statements.iter().find(|statement| is_super_call(statement)) {
            Some(call) => self.edits.insert(end(call.span()), format!(";{assignments}")),
            None => self.refuse_parameter(
                constructor.params.span,
                "parameter properties of a derived class need `super(…)` as a statement of the constructor",
            ),
        }
    }

    fn refuse_parameter(&mut self, span: Span, message: &str) {
        self.refuse(
            span,
            message,
            "declare the field in the class and assign it in the constructor",
        );
    }
}

fn is_super_call(statement: &Statement<'_>) -> bool {
    let Statement::ExpressionStatement(statement) = statement else { return false };
    let Expression::CallExpression(call) = &statement.expression else { return false };
    matches!(call.callee, Expression::Super(_))
}
