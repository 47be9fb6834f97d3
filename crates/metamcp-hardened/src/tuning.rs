//! How the module is compiled and run: one text for the compiler and for the runtime, which must agree.
//! Owns: every setting of wasmtime.      Never: differs between the two.
//! In: nothing.  Out: a [`Config`].
//! Tests: loading fails if the two disagree.
//!
//! `hardened/compiler` reads this file too.

use wasmtime::Config;

/// The most memory a module can have: the largest heap that is granted (128 MiB), a fifth more for what
/// the allocator loses, an answer of the greatest length on its way in, and the engine itself.
/// Reserved as one piece, because growing in place needs no second piece to copy into.
pub(crate) const MEMORY: usize = 184 * 1024 * 1024;

/// Machine stack for compiled code. The engine's own limit is on its shadow stack and strikes long before,
/// with an error the script can read; this one is for what recurses without looking.
pub(crate) const STACK: usize = 4 * 1024 * 1024;

/// The settings.
pub(crate) fn config() -> Config {
    let mut config = Config::new();
    // Bounds are checked by code, not by faults: no signal handler, no reservation of gigabytes that a
    // limit on address space would refuse.
    config.signals_based_traps(false);
    config.memory_reservation(MEMORY as u64);
    config.memory_reservation_for_growth(0);
    config.memory_guard_size(0);
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
