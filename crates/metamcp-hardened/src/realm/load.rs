//! The built-in module, loaded and instantiated.

use std::sync::OnceLock;

use wasmtime::{Engine, Error, Instance, Module, Result, Store, Trap, UpdateDeadline};

use super::Natives;
use super::host::{self, StoreData};
use super::tick::{self, Ticker};
use crate::tuning;

/// The compiled module as `cargo xtask hardened` made it; `build.rs` verified its checksum.
static MODULE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/engine.cwasm"));

/// A fresh instance with its full memory, and nothing of any script in it.
pub(super) fn instance<N: Natives + 'static>(
    natives: N,
    ticker: Ticker,
) -> Result<(Store<StoreData<N>>, Instance)> {
    let module = module(ticker)?;
    let mut store = Store::new(module.engine(), StoreData::new(natives));
    store.limiter(|inside| inside);
    store.epoch_deadline_callback(|mut store| {
        if store.data_mut().natives.is_out_of_time() {
            Err(Trap::Interrupt.into())
        } else {
            Ok(UpdateDeadline::Continue(1))
        }
    });
    store.set_epoch_deadline(1);
    let linker = host::linker(module.engine())?;
    let instance = linker.instantiate(&mut store, module)?;
    let memory = instance
        .get_memory(&mut store, "memory")
        .ok_or_else(|| Error::msg("the module exports no memory"))?;
    store.data_mut().remember(memory);
    Ok((store, instance))
}

/// Loaded once per process. A worker runs one script; tests run many.
fn module(ticker: Ticker) -> Result<&'static Module> {
    static LOADED: OnceLock<Module> = OnceLock::new();
    if let Some(module) = LOADED.get() {
        return Ok(module);
    }
    let module = load(&Engine::new(&tuning::config(cfg!(windows)))?)?;
    let module = LOADED.get_or_init(|| module);
    tick::start(module.engine(), ticker)?;
    Ok(module)
}

#[expect(
    unsafe_code,
    reason = "compiled code cannot be checked when it is loaded, only be known to be ours"
)]
fn load(engine: &Engine) -> Result<Module> {
    // SAFETY: the bytes are what wasmtime's own compiler wrote. They are part of this binary, and were
    // compared with the checksum written beside them when it was built.
    unsafe { Module::deserialize(engine, MODULE) }
}
