//! See ARCHITECTURE.md.

pub mod catalog;
pub mod files;
