//! Tools of a server: parsing of `tools/list`, argument validation, signatures and declarations.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod about;
pub mod arguments;
pub mod cursor;
pub mod declarations;
pub mod names;
pub mod overrides;
pub mod signature;
pub mod tool;
