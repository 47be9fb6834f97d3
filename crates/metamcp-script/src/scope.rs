//! Which names of a script are declared in it and which are free.
//! Owns: scopes and hoisting.      Never: knows which servers exist.
//! In: declarations and uses, in the order of the walk.  Out: the free uses.
//! Tests: the corpus in `tests/`.

use std::collections::HashSet;

/// The object whose members are servers.
const SERVERS: &str = "servers";

/// The scopes open at a point of the walk.
#[derive(Debug)]
pub(crate) struct Scopes {
    open: Vec<Scope>,
    called_on_top: HashSet<String>,
}

#[derive(Debug, Default)]
struct Scope {
    is_function: bool,
    declared: HashSet<String>,
    /// Uses that no inner scope declares, with their offset.
    used: Vec<(usize, Use)>,
}

/// One use of a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// A bare identifier.
    Name(String),
    /// `X` in `servers.X`.
    Server(String),
    /// A call of `require`.
    Require,
}

impl Use {
    fn declared_as(&self) -> &str {
        match self {
            Use::Name(name) => name,
            Use::Server(_) => SERVERS,
            Use::Require => "require",
        }
    }
}

impl Scopes {
    pub(crate) fn new() -> Self {
        let top = Scope { is_function: true, ..Scope::default() };
        Self { open: vec![top], called_on_top: HashSet::new() }
    }

    pub(crate) fn enter(&mut self, is_function: bool) {
        self.open.push(Scope { is_function, ..Scope::default() });
    }

    /// Names are hoisted, so a use is resolved when its scope ends and all declarations are known.
    pub(crate) fn leave(&mut self) {
        let Some(scope) = self.open.pop() else { return };
        let outer = self.open.last_mut().expect("the top scope is never left");
        let free =
            scope.used.into_iter().filter(|(_, one)| !scope.declared.contains(one.declared_as()));
        outer.used.extend(free);
    }

    /// Whether the walk is outside all functions of the script.
    pub(crate) fn on_top(&self) -> bool {
        self.open.iter().filter(|scope| scope.is_function).count() == 1
    }

    pub(crate) fn declare(&mut self, name: &str, hoisted: bool) {
        let scope = self.open.iter_mut().rev().find(|scope| !hoisted || scope.is_function);
        if let Some(scope) = scope {
            scope.declared.insert(name.to_owned());
        }
    }

    pub(crate) fn refer(&mut self, at: usize, name: Use) {
        if let Some(scope) = self.open.last_mut() {
            scope.used.push((at, name));
        }
    }

    /// Whether the script itself uses a name that its top scope declares.
    pub(crate) fn is_used(&self, name: &str) -> bool {
        self.called_on_top.contains(name)
    }

    /// The free uses of the whole script, in order of offset.
    pub(crate) fn finish(&mut self) -> Vec<(usize, Use)> {
        while self.open.len() > 1 {
            self.leave();
        }
        let Some(top) = self.open.pop() else { return Vec::new() };
        let (own, mut free): (Vec<_>, Vec<_>) =
            top.used.into_iter().partition(|(_, one)| top.declared.contains(one.declared_as()));
        self.called_on_top = own.into_iter().map(|(_, one)| one.declared_as().to_owned()).collect();
        free.sort_by_key(|(at, _)| *at);
        free
    }
}
