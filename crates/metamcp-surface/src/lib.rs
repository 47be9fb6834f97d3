//! What the model sees: tools and responses of each tool surface, as text and JSON.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod apps;
pub mod direct;
pub mod discover;
pub mod excerpt;
pub mod execution;
pub mod full_surface;
pub mod pins;
pub mod server_request;
