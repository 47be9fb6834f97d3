//! Who may share one instance of a server: all clients of the machine, those of one project, or nobody.
//! Owns: the scopes.      Never: starts or asks a server.
//! In: a word of the config.  Out: a `Scope`.
//! Tests: `config/tests.rs`.

use crate::settings::words;

words! {
    /// Who shares one instance of a server.
    Scope {
        Machine = "machine": "All clients on the machine.",
        Project = "project": "Clients in the same folder, or with the same roots.",
        Session = "session": "Nobody: each client has one of its own.",
    }
}
