//! `metamcp daemon run`: the daemon itself.

use std::io::Write;

use anyhow::bail;

use crate::ConfigRequest;
use crate::args::DaemonRunArgs;
use crate::exit::Exit;

pub(crate) fn run(
    _config_request: ConfigRequest,
    _args: &DaemonRunArgs,
    _out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    bail!("this program was built without the daemon")
}
