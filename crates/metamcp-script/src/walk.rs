//! One walk over the tree: blanks types, lowers what can be lowered, collects names and rejections.
//! Owns: the order of the walk, and how each node is treated.      Never: renders text, parses.
//! In: a program without syntax errors.  Out: `Walk` with edits, names and the first rejection.
//! Tests: the corpus in `tests/`.

mod class;
mod enumeration;
mod modules;

pub(crate) use modules::is_type;

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::{ScopeFlags, ScopeId};
use std::cell::Cell;

use crate::edits::Edits;
use crate::error::SyntaxError;
use crate::scan;
use crate::scope::{Scopes, Use};

/// The results of the walk.
pub(crate) struct Walk<'s> {
    pub(crate) source: &'s str,
    pub(crate) edits: Edits,
    pub(crate) scopes: Scopes,
    /// The first construct that cannot run, by offset.
    pub(crate) refusal: Option<(usize, SyntaxError)>,
    /// Whether a `return` belongs to the script itself.
    pub(crate) returns: bool,
    hoisting: bool,
    /// For each open class, whether it extends another.
    derived: Vec<bool>,
    enumeration: Option<enumeration::Members>,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self {
            source,
            edits: Edits::default(),
            scopes: Scopes::new(),
            refusal: None,
            returns: false,
            hoisting: false,
            derived: Vec::new(),
            enumeration: None,
        }
    }

    fn blank(&mut self, span: Span) {
        self.edits.blank(start(span), end(span));
    }

    /// Removes a statement or class member.
    fn remove(&mut self, span: Span) {
        self.edits.remove(start(span), end(span));
    }

    /// Blanks `sign` if it is the next thing after `at`.
    fn blank_sign(&mut self, at: usize, sign: &str) -> bool {
        let place = scan::next_is(self.source, at, sign);
        if let Some(place) = place {
            self.edits.blank(place, place + sign.len());
        }
        place.is_some()
    }

    fn refuse(&mut self, span: Span, message: &str, hint: &str) {
        let at = start(span);
        if self.refusal.as_ref().is_none_or(|(first, _)| at < *first) {
            let error = SyntaxError::at(self.source, at, message).hint(hint);
            self.refusal = Some((at, error));
        }
    }

    /// Rejects a `require` that is not a function of the script.
    pub(crate) fn refuse_require(&mut self, at: usize) {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        self.refuse(Span::new(at, at), modules::NO_MODULES, modules::INSTEAD);
    }

    fn text(&self, span: Span) -> &'s str {
        &self.source[start(span)..end(span)]
    }

    /// `servers.X`, `servers["X"]`, with any type assertions around `servers`.
    fn server_named(&mut self, object: &Expression<'_>, name: &str) {
        if let Expression::Identifier(object) = object.get_inner_expression()
            && object.name == "servers"
        {
            self.scopes.refer(start(object.span), Use::Server(name.to_owned()));
        }
    }
}

pub(crate) fn start(span: Span) -> usize {
    span.start as usize
}

pub(crate) fn end(span: Span) -> usize {
    span.end as usize
}

impl<'a> Visit<'a> for Walk<'_> {
    fn enter_scope(&mut self, flags: ScopeFlags, _: &Cell<Option<ScopeId>>) {
        self.scopes.enter(flags.is_function() || flags.is_class_static_block());
    }

    fn leave_scope(&mut self) {
        self.scopes.leave();
    }

    fn visit_program(&mut self, it: &Program<'a>) {
        // The top scope exists from the start, so the program opens none.
        if let Some(hashbang) = &it.hashbang {
            self.visit_hashbang(hashbang);
        }
        self.visit_statements(&it.body);
    }

    // -- names --

    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        self.scopes.declare(&it.name, self.hoisting);
    }

    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        if !self.qualify_member(it) {
            self.scopes.refer(start(it.span), Use::Name(it.name.to_string()));
        }
    }

    fn visit_static_member_expression(&mut self, it: &StaticMemberExpression<'a>) {
        self.server_named(&it.object, &it.property.name);
        walk::walk_static_member_expression(self, it);
    }

    fn visit_computed_member_expression(&mut self, it: &ComputedMemberExpression<'a>) {
        if let Expression::StringLiteral(name) = &it.expression {
            self.server_named(&it.object, &name.value);
        }
        walk::walk_computed_member_expression(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if let (BindingPattern::ObjectPattern(pattern), Some(object)) = (&it.id, &it.init) {
            for property in &pattern.properties {
                if let Some(name) = property.key.static_name() {
                    self.server_named(object, &name);
                }
            }
        }
        let outer = std::mem::replace(&mut self.hoisting, it.kind.is_var());
        self.visit_binding_pattern(&it.id);
        self.hoisting = outer;
        if it.definite {
            self.blank_sign(end(it.id.span()), "!");
        }
        if let Some(annotation) = &it.type_annotation {
            self.visit_ts_type_annotation(annotation);
        }
        if let Some(init) = &it.init {
            self.visit_expression(init);
        }
    }

    // -- statements --

    fn visit_statement(&mut self, it: &Statement<'a>) {
        walk::walk_statement(self, it);
        self.edits.end_statement(end(it.span()));
    }

    fn visit_hashbang(&mut self, it: &Hashbang<'a>) {
        self.blank(it.span);
    }

    fn visit_return_statement(&mut self, it: &ReturnStatement<'a>) {
        self.returns |= self.scopes.on_top();
        walk::walk_return_statement(self, it);
    }

    fn visit_variable_declaration(&mut self, it: &VariableDeclaration<'a>) {
        if it.declare {
            self.remove(it.span);
        } else {
            walk::walk_variable_declaration(self, it);
        }
    }

    fn visit_ts_type_alias_declaration(&mut self, it: &TSTypeAliasDeclaration<'a>) {
        self.remove(it.span);
    }

    fn visit_ts_interface_declaration(&mut self, it: &TSInterfaceDeclaration<'a>) {
        self.remove(it.span);
    }

    fn visit_ts_global_declaration(&mut self, it: &TSGlobalDeclaration<'a>) {
        self.remove(it.span);
    }

    fn visit_ts_module_declaration(&mut self, it: &TSModuleDeclaration<'a>) {
        self.namespace(it);
    }

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        self.enumeration(it);
    }

    // -- functions --

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        if it.declare || it.body.is_none() {
            self.remove(it.span);
            return;
        }
        if let (true, Some(id)) = (it.is_declaration(), &it.id) {
            self.scopes.declare(&id.name, false);
        }
        walk::walk_function(self, it, flags);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        self.enter_scope(ScopeFlags::Function | ScopeFlags::Arrow, &it.scope_id);
        let parameters = it.params.span;
        if let Some(types) = &it.type_parameters {
            if scan::has_break(&self.source[start(types.span)..start(parameters)]) {
                // No line break may separate `async`, `return` and the like from the parenthesis.
                self.edits.blank_with(start(types.span), start(parameters) + 1, Some('('), None);
            } else {
                self.blank(types.span);
            }
        }
        self.visit_formal_parameters(&it.params);
        if let Some(returned) = &it.return_type {
            if scan::has_break(&self.source[end(parameters)..end(returned.span)]) {
                // The arrow must stay on the line of its parenthesis, so the parenthesis moves to the arrow.
                self.edits.blank(end(parameters) - 1, end(parameters));
                self.edits.blank_with(start(returned.span), end(returned.span), None, Some(')'));
            } else {
                self.blank(returned.span);
            }
        }
        match it.body.statements.first() {
            // An expression body is not a statement that could be terminated.
            Some(Statement::ExpressionStatement(body)) if it.expression => {
                self.visit_expression(&body.expression);
            }
            _ => self.visit_function_body(&it.body),
        }
        self.leave_scope();
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        let annotated = it.type_annotation.as_ref().map_or(0, |annotation| end(annotation.span));
        let until = end(it.span).max(annotated);
        self.edits.blank(start(it.span), until);
        self.blank_sign(until, ",");
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        self.visit_decorators(&it.decorators);
        self.blank_modifiers(start(it.span), start(it.pattern.span()), false);
        self.visit_binding_pattern(&it.pattern);
        if it.optional {
            self.blank_sign(end(it.pattern.span()), "?");
        }
        if let Some(annotation) = &it.type_annotation {
            self.visit_ts_type_annotation(annotation);
        }
        if let Some(initializer) = &it.initializer {
            self.visit_expression(initializer);
        }
    }

    fn visit_catch_parameter(&mut self, it: &CatchParameter<'a>) {
        let outer = std::mem::replace(&mut self.hoisting, false);
        walk::walk_catch_parameter(self, it);
        self.hoisting = outer;
    }

    // -- classes --

    fn visit_class(&mut self, it: &Class<'a>) {
        self.class(it);
    }

    fn visit_ts_class_implements_list(
        &mut self,
        _: &oxc_allocator::Vec<'a, TSClassImplements<'a>>,
    ) {
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        self.property(it);
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        self.accessor(it);
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        self.method(it);
    }

    fn visit_ts_index_signature(&mut self, it: &TSIndexSignature<'a>) {
        self.remove(it.span);
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(
            it.span,
            "decorators cannot run here",
            "call the function yourself, as in `const wrapped = decorate(original)`",
        );
    }

    // -- types --

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.blank(it.span);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(end(it.expression.span()), end(it.span));
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(end(it.expression.span()), end(it.span));
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(end(it.span) - 1, end(it.span));
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        // Parentheses instead: `() => <T>{}` without its type would be a body, and a line break in the type would end a
        // `return`.
        let value = it.expression.span();
        self.edits.blank_with(start(it.span), start(value), Some('('), None);
        self.visit_expression(&it.expression);
        self.edits.insert(end(value), ")");
    }

    // -- modules --

    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        self.import(it);
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        self.refuse(it.span, modules::NO_MODULES, modules::INSTEAD);
    }

    fn visit_meta_property(&mut self, it: &MetaProperty<'a>) {
        if it.meta.name == "import" {
            self.refuse(it.span, "`import.meta` does not exist here", modules::INSTEAD);
        }
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        if let Expression::Identifier(callee) = &it.callee
            && callee.name == "require"
        {
            self.scopes.refer(start(callee.span), Use::Require);
        }
        walk::walk_call_expression(self, it);
    }

    fn visit_export_named_declaration(&mut self, it: &ExportNamedDeclaration<'a>) {
        self.export_named(it);
    }

    fn visit_export_default_declaration(&mut self, it: &ExportDefaultDeclaration<'a>) {
        self.export_default(it);
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        if it.export_kind.is_type() {
            self.remove(it.span);
        } else {
            self.refuse(it.span, modules::NO_MODULES, modules::INSTEAD);
        }
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        if it.import_kind.is_type() {
            self.remove(it.span);
        } else {
            self.refuse(it.span, modules::NO_MODULES, modules::INSTEAD);
        }
    }

    fn visit_ts_export_assignment(&mut self, it: &TSExportAssignment<'a>) {
        self.refuse(
            it.span,
            "a script exports nothing",
            "write `return value` instead of `export = value`",
        );
    }

    fn visit_ts_namespace_export_declaration(&mut self, it: &TSNamespaceExportDeclaration<'a>) {
        self.remove(it.span);
    }
}
