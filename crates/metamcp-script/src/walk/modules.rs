//! Imports, exports and namespaces: type-only ones and the `export` keyword are removed, modules are rejected.

use oxc_ast::ast::*;
use oxc_ast_visit::Visit;
use oxc_span::GetSpan;

use super::{Walk, end, start};
use crate::scan;

pub(super) const NO_MODULES: &str = "there are no modules here: nothing can be imported";
pub(super) const INSTEAD: &str = "every server is there under its own name and as `servers.name`; so are `tools`, `parallel`, `sleep`, \
     `results`, `progress`, `console`, URL, TextEncoder, structuredClone and crypto";

impl Walk<'_> {
    pub(super) fn import(&mut self, it: &ImportDeclaration<'_>) {
        let only_types = it.import_kind.is_type()
            || it.specifiers.as_ref().is_some_and(|all| {
                !all.is_empty()
                    && all.iter().all(|one| {
                        matches!(one, ImportDeclarationSpecifier::ImportSpecifier(one) if one.import_kind.is_type())
                    })
            });
        if only_types {
            self.remove(it.span);
        } else {
            self.refuse(it.span, NO_MODULES, INSTEAD);
        }
    }

    pub(super) fn export_named(&mut self, it: &ExportNamedDeclaration<'_>) {
        match &it.declaration {
            Some(declaration) if is_type(declaration) => self.remove(it.span),
            Some(declaration) => {
                self.blank_export(start(it.span), start(declaration.span()));
                self.visit_declaration(declaration);
            }
            None if it.source.is_some() && !it.export_kind.is_type() => {
                self.refuse(it.span, NO_MODULES, INSTEAD);
            }
            None => self.remove(it.span),
        }
    }

    /// If it is last, `ending` returns it as the value; here only its keywords are removed.
    pub(super) fn export_default(&mut self, it: &ExportDefaultDeclaration<'_>) {
        match &it.declaration {
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => return self.remove(it.span),
            ExportDefaultDeclarationKind::FunctionDeclaration(function)
                if function.body.is_none() =>
            {
                return self.remove(it.span);
            }
            _ => {}
        }
        let declared = start(it.declaration.span());
        match &it.declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(function)
                if function.id.is_none() =>
            {
                self.edits.replace(start(it.span), declared, ";(");
                self.edits.insert(end(function.span), ")");
            }
            ExportDefaultDeclarationKind::ClassDeclaration(class) if class.id.is_none() => {
                self.edits.replace(start(it.span), declared, ";(");
                self.edits.insert(end(class.span), ")");
            }
            kind if kind.is_expression() => {
                self.edits.replace(start(it.span), declared, ";(");
                self.edits.insert(end(it.declaration.span()), ")");
            }
            _ => self.blank_export(start(it.span), declared),
        }
        self.visit_export_default_declaration_kind(&it.declaration);
    }

    fn blank_export(&mut self, from: usize, to: usize) {
        for (at, word) in scan::words(self.source, from, to) {
            let first = (at == from).then_some(';');
            self.edits.blank_with(at, at + word.len(), first, None);
        }
    }

    pub(super) fn namespace(&mut self, it: &TSModuleDeclaration<'_>) {
        if it.declare || it.body.as_ref().is_none_or(holds_only_types) {
            self.remove(it.span);
        } else {
            self.refuse(
                it.span,
                "a namespace with values cannot run here",
                "write an object, as in `const name = { … }`, or plain functions",
            );
        }
    }
}

/// Whether a declaration leaves nothing behind at run time.
pub(crate) fn is_type(declaration: &Declaration<'_>) -> bool {
    match declaration {
        Declaration::TSTypeAliasDeclaration(_)
        | Declaration::TSInterfaceDeclaration(_)
        | Declaration::TSGlobalDeclaration(_) => true,
        Declaration::TSModuleDeclaration(module) => {
            module.declare || module.body.as_ref().is_none_or(holds_only_types)
        }
        Declaration::FunctionDeclaration(function) => function.declare || function.body.is_none(),
        Declaration::VariableDeclaration(it) => it.declare,
        Declaration::ClassDeclaration(it) => it.declare,
        Declaration::TSEnumDeclaration(it) => it.declare,
        Declaration::TSImportEqualsDeclaration(it) => it.import_kind.is_type(),
    }
}

fn holds_only_types(body: &TSModuleDeclarationBody<'_>) -> bool {
    let block = match body {
        TSModuleDeclarationBody::TSModuleBlock(block) => block,
        TSModuleDeclarationBody::TSModuleDeclaration(inner) => {
            return inner.body.as_ref().is_none_or(holds_only_types);
        }
    };
    block.body.iter().all(|statement| match statement {
        Statement::ExportNamedDeclaration(export) => {
            export.declaration.as_ref().is_none_or(is_type)
        }
        Statement::EmptyStatement(_) => true,
        statement => statement.as_declaration().is_some_and(is_type),
    })
}
