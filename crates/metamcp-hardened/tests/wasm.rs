//! The engine as WASM, with scripts that mean well and scripts that do not.
#![cfg(feature = "wasm")]

#[path = "wasm/attacks.rs"]
mod attacks;
#[path = "wasm/honest.rs"]
mod honest;
#[path = "wasm/world.rs"]
mod world;
