//! The functions the module imports, and bounds checks on its pointers.

use std::ops::Range;

use wasmtime::{AsContext, Caller, Error, Linker, Memory, ResourceLimiter, Result};

use super::{MEMORY, Natives};

/// The host's state for one module.
pub(super) struct StoreData<N> {
    pub(super) natives: N,
    memory: Option<Memory>,
    reported_end: ReportedEnd,
    most: usize,
}

/// How a script ended, in the pieces in which the module reports it.
#[derive(Debug, Default)]
pub(super) struct ReportedEnd {
    pub(super) value: String,
    pub(super) name: String,
    pub(super) message: String,
    pub(super) stack: String,
    pub(super) tool: Option<String>,
}

impl<N> StoreData<N> {
    pub(super) fn new(natives: N) -> StoreData<N> {
        StoreData { natives, memory: None, reported_end: ReportedEnd::default(), most: MEMORY }
    }

    pub(super) fn remember(&mut self, memory: Memory) {
        self.memory = Some(memory);
    }

    pub(super) fn memory(&self) -> Memory {
        self.memory.expect("the memory is remembered when the module is loaded")
    }

    /// Limits the module's memory, all of it.
    pub(super) fn allow(&mut self, most: usize) {
        self.most = most.min(MEMORY);
    }

    pub(super) fn take_reported_end(&mut self) -> ReportedEnd {
        std::mem::take(&mut self.reported_end)
    }

    /// The range of a text in the memory, if it is entirely inside.
    pub(super) fn room(
        &self,
        store: impl AsContext,
        address: u32,
        length: u32,
    ) -> Option<Range<usize>> {
        let end = (address as usize).checked_add(length as usize)?;
        (end <= self.memory().data_size(store)).then_some(address as usize..end)
    }
}

impl<N> ResourceLimiter for StoreData<N> {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        Ok(desired <= self.most)
    }

    fn table_growing(&mut self, current: usize, _: usize, _: Option<usize>) -> Result<bool> {
        // The table is created once, with the functions called through it.
        Ok(current == 0)
    }
}

/// Everything the module can reach.
pub(super) fn linker<N: Natives + 'static>(
    engine: &wasmtime::Engine,
) -> Result<Linker<StoreData<N>>> {
    let mut linker = Linker::new(engine);
    linker.func_wrap(
        "host",
        "request",
        |mut caller: Caller<'_, StoreData<N>>, op: u32, text: u32, length: u32| -> Result<i32> {
            let payload = string(&caller, text, length)?;
            let number = u8::try_from(op)
                .ok()
                .and_then(|op| caller.data_mut().natives.request(op, payload))
                .and_then(|number| i32::try_from(number).ok());
            Ok(number.unwrap_or(-1))
        },
    )?;
    linker.func_wrap(
        "host",
        "log",
        |mut caller: Caller<'_, StoreData<N>>, level: u32, text: u32, length: u32| -> Result<()> {
            let text = string(&caller, text, length)?;
            caller.data_mut().natives.log(u8::try_from(level).unwrap_or(u8::MAX), text);
            Ok(())
        },
    )?;
    linker.func_wrap(
        "host",
        "progress",
        |mut caller: Caller<'_, StoreData<N>>,
         value: f64,
         total: f64,
         text: u32,
         length: u32|
         -> Result<()> {
            let total = (!total.is_nan()).then_some(total);
            let message = if text == 0 { None } else { Some(string(&caller, text, length)?) };
            caller.data_mut().natives.progress(value, total, message);
            Ok(())
        },
    )?;
    linker.func_wrap(
        "host",
        "timer",
        |mut caller: Caller<'_, StoreData<N>>, milliseconds: f64| -> u32 {
            caller.data_mut().natives.timer(milliseconds)
        },
    )?;
    linker.func_wrap("host", "clear", |mut caller: Caller<'_, StoreData<N>>, number: u32| {
        caller.data_mut().natives.clear(number);
    })?;
    linker.func_wrap(
        "host",
        "random",
        |mut caller: Caller<'_, StoreData<N>>, out: u32, length: u32| -> Result<()> {
            let range = range(&caller, out, length)?;
            let memory = caller.data().memory();
            let (bytes, inside) = memory.data_and_store_mut(&mut caller);
            inside.natives.random(&mut bytes[range]);
            Ok(())
        },
    )?;
    linker.func_wrap(
        "host",
        "sha256",
        |mut caller: Caller<'_, StoreData<N>>, from: u32, length: u32, out: u32| -> Result<()> {
            let (from, out) = (range(&caller, from, length)?, range(&caller, out, 32)?);
            let memory = caller.data().memory();
            let (bytes, inside) = memory.data_and_store_mut(&mut caller);
            let sum = inside.natives.sha256(&bytes[from]);
            bytes[out].copy_from_slice(&sum);
            Ok(())
        },
    )?;
    linker.func_wrap("host", "now", |mut caller: Caller<'_, StoreData<N>>| -> f64 {
        caller.data_mut().natives.now()
    })?;
    linker.func_wrap(
        "host",
        "say",
        |mut caller: Caller<'_, StoreData<N>>, what: u32, text: u32, length: u32| -> Result<()> {
            let text = string(&caller, text, length)?;
            let reported_end = &mut caller.data_mut().reported_end;
            match what {
                0 => reported_end.value = text,
                1 => reported_end.name = text,
                2 => reported_end.message = text,
                3 => reported_end.stack = text,
                _ => reported_end.tool = Some(text),
            }
            Ok(())
        },
    )?;
    Ok(linker)
}

fn range<N>(caller: &Caller<'_, StoreData<N>>, address: u32, length: u32) -> Result<Range<usize>> {
    match caller.data().room(caller, address, length) {
        Some(range) => Ok(range),
        None => Err(Error::msg(format!("{length} bytes at {address} are not inside the memory"))),
    }
}

/// A string of the script. Invalid UTF-8 in it (halves of surrogate pairs) is replaced.
fn string<N>(caller: &Caller<'_, StoreData<N>>, address: u32, length: u32) -> Result<String> {
    let range = range(caller, address, length)?;
    let bytes = &caller.data().memory().data(caller)[range];
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
