//! Real workers: what they can do, what they cannot, and how they end.
#![cfg(target_os = "linux")]

mod common;
mod corpus;
mod hostile;
mod language;
mod lives;
