//! The gateway over HTTP, byte by byte: the tests send what a client library would never send.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "all of this is tests, which clippy cannot see outside test functions"
)]

mod combinations;
mod crowd;
mod ending;
mod endpoints;
mod fast_path;
mod fleet;
mod guarded;
mod heads;
mod legacy;
mod lines;
mod metrics;
mod served;
mod shares;
mod signed;
mod stateless;
mod streams;
mod tls;
mod token;
mod wire;
