//! The engine as WASM, with scripts that mean well and scripts that do not.
#![cfg(all(feature = "wasm", unix))]
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

#[path = "wasm/attacks.rs"]
mod attacks;
#[path = "wasm/corpus.rs"]
mod corpus;
#[path = "wasm/honest.rs"]
mod honest;
#[path = "wasm/world.rs"]
mod world;
