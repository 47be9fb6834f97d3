//! Takes a module, runs its `init`, and writes a module that begins with the memory as it then is; compiles
//! that one for each machine it is told of.
//!
//! `compiler MODULE SNAPSHOT [TRIPLE=OUT]...`

mod snapshot;
#[path = "../../../crates/metamcp-hardened/src/tuning.rs"]
mod tuning;

use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use wasmtime::{Engine, OptLevel};

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [module, snapshot, targets @ ..] = words.as_slice() else {
        bail!("compiler MODULE SNAPSHOT [TRIPLE=OUT]...");
    };
    let wasm = fs::read(module).with_context(|| module.clone())?;
    let wasm = snapshot::of(&wasm)?;
    fs::write(snapshot, &wasm).with_context(|| snapshot.clone())?;
    for target in targets {
        let Some((triple, out)) = target.split_once('=') else {
            bail!("{target} is not TRIPLE=OUT")
        };
        compile(&wasm, triple, Path::new(out)).with_context(|| target.clone())?;
    }
    Ok(())
}

/// For the least machine of each kind: whatever runs its system runs this.
fn compile(wasm: &[u8], triple: &str, out: &Path) -> Result<()> {
    let mut config = tuning::config(triple.contains("windows"));
    config.target(triple)?;
    config.cranelift_opt_level(OptLevel::Speed);
    let code = Engine::new(&config)?.precompile_module(wasm)?;
    fs::write(out, code)?;
    Ok(())
}
