//! How the module is compiled and run: one configuration for the compiler and the runtime, which must agree.
//! Owns: every setting of wasmtime.      Never: differs between the two.
//! In: the system the module is for.  Out: a [`Config`].
//! Tests: loading fails if the two disagree.
//!
//! `hardened/compiler` reads this file too.

use wasmtime::Config;

/// The address space reserved for a module's memory. It covers all that 32 bits can address, so that compiled code
/// needs no bounds checks: anything beyond the memory faults. With checks instead, scripts took twice as long when
/// measured, and the module is 5.2 MB instead of 3.0. None of it is committed before the module grows into it.
pub(crate) const RESERVED: u64 = 4 << 30;

/// Guard regions before and after the memory that always fault, for offsets beyond an address.
pub(crate) const GUARD: u64 = 32 << 20;

/// Machine stack for compiled code. The engine's own limit is on its shadow stack and is hit long before, with an error
/// the script can catch; this one is for recursion without a check.
pub(crate) const STACK: usize = 4 * 1024 * 1024;

/// The configuration for a module that runs on Windows, or on another system.
pub(crate) fn config(is_windows: bool) -> Config {
    let mut config = Config::new();
    config.signals_based_traps(true);
    config.memory_reservation(RESERVED);
    config.memory_reservation_for_growth(0);
    config.memory_guard_size(GUARD);
    config.guard_before_linear_memory(true);
    config.memory_may_move(false);
    // A copy-on-write image needs a file, and a worker has none.
    config.memory_init_cow(false);
    config.max_wasm_stack(STACK);
    // The time limit is enforced by the timer that increments the epoch.
    config.epoch_interruption(true);
    // Nobody reads positions inside the engine; without them the module is smaller.
    config.wasm_backtrace(false);
    config.generate_address_map(false);
    // Windows finds its way through no stack without it.
    config.native_unwind_info(is_windows);
    // On macOS signals, as everywhere else: ports need a thread and a right that its sandbox has to grant.
    config.macos_use_mach_ports(false);
    // Features that the C compiler does not use are disabled, to reduce the attack surface.
    config.wasm_simd(false);
    config.wasm_relaxed_simd(false);
    config.wasm_tail_call(false);
    config.wasm_multi_memory(false);
    config.wasm_memory64(false);
    config
}
