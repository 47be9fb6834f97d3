//! Workers without the Linux lockdown, with the engine as WASM: what the tests of the sandbox ask of the native engine.
//!
//! On Linux the lockdown is left out, so that the engine has to hold alone.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests start, wait and measure for themselves"
)]

#[path = "../../../metamcp-sandbox/tests/it/common.rs"]
mod common;
#[path = "../../../metamcp-sandbox/tests/it/corpus.rs"]
mod corpus;
#[path = "../../../metamcp-sandbox/tests/it/language.rs"]
mod language;
#[path = "../../../metamcp-sandbox/tests/it/limits.rs"]
mod limits;
mod lives;
mod program;
