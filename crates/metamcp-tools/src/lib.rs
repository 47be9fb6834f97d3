//! What a server offers: tools as they are listed, their arguments checked, their signatures and declarations.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod arguments;
pub mod cursor;
pub mod declarations;
pub mod signature;
pub mod tool;
