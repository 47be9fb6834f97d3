//! The catalog: which tools every server has, as far as is known.
//! Owns: the schema cache on disk.      Never: starts a server, ranks.
//! In: fresh tool lists.  Out: the last known ones.
//! Tests: `catalog/schema_cache/tests.rs`.

pub mod schema_cache;
