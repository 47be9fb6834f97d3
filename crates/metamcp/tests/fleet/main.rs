//! A fleet of real parts: gateways, servers of NATS, balancers and clients, in network namespaces where that is possible.
//!
//! `cargo xtask test` installs NATS and the clients into the build folder. Without them every test here fails with that
//! hint: a test that did not run proves nothing.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start, wait and measure for themselves"
)]
#![expect(
    clippy::unwrap_used,
    reason = "all of this is tests, which clippy cannot see outside test functions"
)]

mod bus;
mod clients;
mod documented;
mod events;
mod lists;
mod logins;
mod messages;
mod network;
mod nodes;
mod principals;
mod results;
mod strangers;
mod upgrade;
mod world;

use std::time::Duration;

/// However busy the machine is, exceeding this means a hang.
const PATIENCE: Duration = Duration::from_mins(2);
