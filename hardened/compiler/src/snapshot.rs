//! A module that begins where another one is after its `init`.
//!
//! All state of our module is in its one memory: the only global that changes is the stack pointer, and it
//! is back where it was when `init` returns; the table is never written. So the new module is the old one
//! with other data. This is what Wizer does for any module; for this one it takes a hundred lines instead
//! of two hundred crates.

use anyhow::{Context, Result, bail, ensure};
use wasmtime::{Engine, Linker, Module, Store, Val};

use crate::tuning;

/// The magic number and the version of a module.
const PREAMBLE: usize = 8;
/// Sections by their numbers in the file.
const CUSTOM: u8 = 0;
const MEMORY: u8 = 5;
const EXPORT: u8 = 7;
const START: u8 = 8;
const DATA_COUNT: u8 = 12;
const DATA: u8 = 11;

const PAGE: usize = 65_536;

/// Zeros between two pieces of data that are worth a new piece. Copying them costs less than a piece more.
const GAP: usize = 1024;

/// Makes the new module.
pub fn of(wasm: &[u8]) -> Result<Vec<u8>> {
    let memory = memory_after_init(wasm)?;
    let mut out = wasm[..PREAMBLE].to_vec();
    for (kind, body) in sections(wasm)? {
        match kind {
            CUSTOM | DATA_COUNT => {}
            START => bail!("a module with a start function cannot begin twice"),
            MEMORY => {
                let mut body = vec![1, 0];
                number(&mut body, memory.len() / PAGE);
                section(&mut out, MEMORY, &body);
            }
            EXPORT => section(&mut out, EXPORT, &without_beginnings(body)?),
            DATA => section(&mut out, DATA, &data(&memory)),
            _ => section(&mut out, kind, body),
        }
    }
    Ok(out)
}

/// Runs `init`. It may look at the clock, which stands still; whatever else it asks for fails the build.
fn memory_after_init(wasm: &[u8]) -> Result<Vec<u8>> {
    let mut config = tuning::config(cfg!(windows));
    config.epoch_interruption(false);
    let engine = Engine::new(&config)?;
    let module = Module::new(&engine, wasm)?;
    let mut linker = Linker::new(&engine);
    linker.func_wrap("host", "now", || 0.0_f64)?;
    linker.define_unknown_imports_as_traps(&module)?;
    let mut store = Store::new(&engine, ());
    let instance = linker.instantiate(&mut store, &module)?;
    for global in module.exports().filter(|export| export.ty().global().is_some()) {
        bail!("the global {} is exported, and would not be kept", global.name());
    }
    // The constructors of the C library, if there are any.
    if let Ok(initialize) = instance.get_typed_func::<(), ()>(&mut store, "_initialize") {
        initialize.call(&mut store, ())?;
    }
    let init = instance.get_func(&mut store, "init").context("the module has no init")?;
    init.call(&mut store, &[], &mut [] as &mut [Val])?;
    let memory = instance.get_memory(&mut store, "memory").context("the module has no memory")?;
    Ok(memory.data(&store).to_vec())
}

/// Each section: its number and its inside.
fn sections(wasm: &[u8]) -> Result<Vec<(u8, &[u8])>> {
    let mut found = Vec::new();
    let mut rest = &wasm[PREAMBLE..];
    while let Some((&kind, after)) = rest.split_first() {
        let (length, after) = leb(after)?;
        ensure!(length <= after.len(), "a section is cut short");
        let (body, after) = after.split_at(length);
        found.push((kind, body));
        rest = after;
    }
    Ok(found)
}

/// The exports without those that would begin again.
fn without_beginnings(body: &[u8]) -> Result<Vec<u8>> {
    let (count, mut rest) = leb(body)?;
    let mut kept = Vec::new();
    let mut left = 0;
    for _ in 0..count {
        let entry = rest;
        let (length, after) = leb(rest)?;
        let (name, after) = after.split_at_checked(length).context("an export is cut short")?;
        let (_, after) = after.split_first().context("an export is cut short")?;
        let (_, after) = leb(after)?;
        if name != b"init" && name != b"_initialize" {
            kept.extend_from_slice(&entry[..entry.len() - after.len()]);
            left += 1;
        }
        rest = after;
    }
    let mut out = Vec::new();
    number(&mut out, left);
    out.extend_from_slice(&kept);
    Ok(out)
}

/// All of the memory but its zeros, as pieces of data with their addresses.
fn data(memory: &[u8]) -> Vec<u8> {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for (address, _) in memory.iter().enumerate().filter(|&(_, &byte)| byte != 0) {
        match pieces.last_mut() {
            Some((_, end)) if address - *end < GAP => *end = address + 1,
            _ => pieces.push((address, address + 1)),
        }
    }
    let mut out = Vec::new();
    number(&mut out, pieces.len());
    for (start, end) in pieces {
        // Active, in memory 0, at a constant of 32 bits.
        out.extend_from_slice(&[0, 0x41]);
        signed(&mut out, start);
        out.push(0x0b);
        number(&mut out, end - start);
        out.extend_from_slice(&memory[start..end]);
    }
    out
}

fn section(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    number(out, body.len());
    out.extend_from_slice(body);
}

fn leb(bytes: &[u8]) -> Result<(usize, &[u8])> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Ok((value, &bytes[index + 1..]));
        }
    }
    bail!("a number is cut short")
}

fn number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// As [`number`], with room for the sign, which is always plus: memories are far below 2 GiB.
fn signed(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x40 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
