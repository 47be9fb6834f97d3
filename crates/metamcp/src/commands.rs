//! What the binary can be asked to do, one file per subcommand.
pub(crate) mod demo;
