//! Takes a module, runs its `init`, and writes what its memory then is as a new module; compiles that one
//! for each machine it is told of.
//!
//! `compiler MODULE SNAPSHOT [TRIPLE=OUT]...`

#[path = "../../../crates/metamcp-hardened/src/tuning.rs"]
mod tuning;

use std::path::Path;
use std::rc::Rc;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use wasmtime::{Engine, OptLevel};
use wizer::Wizer;

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [module, snapshot, targets @ ..] = words.as_slice() else {
        bail!("compiler MODULE SNAPSHOT [TRIPLE=OUT]...");
    };
    let wasm = fs::read(module).with_context(|| module.clone())?;
    let wasm = snapshot_of(&wasm)?;
    fs::write(snapshot, &wasm).with_context(|| snapshot.clone())?;
    for target in targets {
        let Some((triple, out)) = target.split_once('=') else { bail!("{target} is not TRIPLE=OUT") };
        compile(&wasm, triple, Path::new(out)).with_context(|| target.clone())?;
    }
    Ok(())
}

/// `init` may look at the clock and draw random numbers; both are the same each time, and drawn anew by
/// the script's beginning. Whatever else it asks for fails the build.
fn snapshot_of(wasm: &[u8]) -> Result<Vec<u8>> {
    let mut wizer = Wizer::new();
    wizer.init_func("init").wasm_bulk_memory(true).make_linker(Some(Rc::new(|engine: &Engine| {
        let mut linker = wasmtime::Linker::new(engine);
        linker.func_wrap("host", "now", || 0.0_f64)?;
        Ok(linker)
    })))?;
    wizer.run(wasm)
}

/// For the least machine of each kind: whatever runs Linux on it runs this.
fn compile(wasm: &[u8], triple: &str, out: &Path) -> Result<()> {
    let mut config = tuning::config();
    config.target(triple)?;
    config.cranelift_opt_level(OptLevel::Speed);
    let code = Engine::new(&config)?.precompile_module(wasm)?;
    fs::write(out, code)?;
    Ok(())
}
