//! What a model sees: the tool lists, the results of every tool of both surfaces, and what it must never see.
#![expect(
    clippy::unwrap_used,
    reason = "all of this is tests, which clippy cannot see outside test functions"
)]

mod approvals;
mod budget;
mod chain;
mod cold;
mod full;
mod gateway;
mod large;
mod names;
mod overrides;
mod paging;
mod pins;
mod progress;
mod records;
mod redacted;
mod scoped;
mod tokens;
