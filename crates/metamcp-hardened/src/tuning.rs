//! How the module is compiled and run: one text for the compiler and for the runtime, which must agree.
//! Owns: every setting of wasmtime.      Never: differs between the two.
//! In: nothing.  Out: a [`Config`].
//! Tests: loading fails if the two disagree.
//!
//! `hardened/compiler` reads this file too.

use wasmtime::Config;

/// The address space a module's memory is given. All that 32 bits can point at is inside, so that code needs
/// no check of an address: what is not memory yet faults. With checks instead, measured, scripts take twice
/// as long and the module is 5.2 MB instead of 3.0. Nothing of it is memory before the module grows into it.
pub(crate) const RESERVED: u64 = 4 << 30;

/// Address space before and after the memory that always faults, for offsets beyond an address.
pub(crate) const GUARD: u64 = 32 << 20;

/// Machine stack for compiled code. The engine's own limit is on its shadow stack and strikes long before,
/// with an error the script can read; this one is for what recurses without looking.
pub(crate) const STACK: usize = 4 * 1024 * 1024;

/// The settings.
pub(crate) fn config() -> Config {
    let mut config = Config::new();
    config.signals_based_traps(true);
    config.memory_reservation(RESERVED);
    config.memory_reservation_for_growth(0);
    config.memory_guard_size(GUARD);
    config.guard_before_linear_memory(true);
    config.memory_may_move(false);
    // A copy-on-write image would be a file, and a worker has none.
    config.memory_init_cow(false);
    config.max_wasm_stack(STACK);
    // How long a script may run is decided by whoever looks at the clock.
    config.epoch_interruption(true);
    // Nobody reads positions inside the engine; without them the module is smaller.
    config.wasm_backtrace(false);
    config.generate_address_map(false);
    config.native_unwind_info(false);
    // What the C compiler does not use is not there to be attacked.
    config.wasm_simd(false);
    config.wasm_relaxed_simd(false);
    config.wasm_tail_call(false);
    config.wasm_multi_memory(false);
    config.wasm_memory64(false);
    config
}
