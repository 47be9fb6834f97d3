//! The native functions of the prelude. None touches anything but the socket and this process.

use std::cell::Cell;
use std::rc::Rc;
use std::time::SystemTime;

use rquickjs::object::Property;
use rquickjs::{Ctx, Exception, Function, Object, Result, TypedArray};
use sha2::{Digest, Sha256};

use super::State;
use crate::prelude;
use crate::protocol::Op;

/// The object the prelude is given.
pub(super) fn object<'js>(ctx: &Ctx<'js>, state: &Rc<State>) -> Result<Object<'js>> {
    let natives = Object::new(ctx.clone())?;
    let add = |name: &str, function: Function<'js>| natives.set(name, function);

    let own = Rc::clone(state);
    add(
        "request",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, op: u8, payload: String| {
            own.request(&ctx, op, payload)
        })?,
    )?;
    let own = Rc::clone(state);
    add("log", Function::new(ctx.clone(), move |level: u8, text: String| own.log(level, text))?)?;
    let own = Rc::clone(state);
    add(
        "progress",
        Function::new(
            ctx.clone(),
            move |value: f64, total: Option<f64>, message: Option<String>| {
                own.progress(value, total, message);
            },
        )?,
    )?;
    let own = Rc::clone(state);
    add(
        "timer",
        Function::new(ctx.clone(), move |delay: f64| own.timers.borrow_mut().start(delay))?,
    )?;
    let own = Rc::clone(state);
    add(
        "clear",
        Function::new(ctx.clone(), move |number: u32| own.timers.borrow_mut().stop(number))?,
    )?;
    add(
        "part",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, name: String| prelude::part(&ctx, &name))?,
    )?;
    add("random", Function::new(ctx.clone(), random)?)?;
    add("sha256", Function::new(ctx.clone(), |ctx: Ctx<'js>, bytes: String| sha256(ctx, &bytes))?)?;
    add(
        "encode",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, text: String| {
            TypedArray::<u8>::new_copy(ctx, text.as_bytes())
        })?,
    )?;
    add("decode", Function::new(ctx.clone(), |bytes: String, fatal: bool| decode(&bytes, fatal))?)?;
    Ok(natives)
}

impl State {
    fn request(&self, ctx: &Ctx<'_>, op: u8, payload: String) -> Result<u32> {
        let op =
            Op::of(op).map_err(|violation| Exception::throw_type(ctx, &violation.to_string()))?;
        Ok(self.ask(op, payload))
    }
}

/// Replaces `Math.random`: the engine seeds it when a context is made, and all workers forked from one zygote would share
/// the seed. Xorshift*, as the engine's own; not for secrets.
#[expect(clippy::disallowed_methods, reason = "wall time is all that is left to seed from")]
pub(super) fn seed_math_random(ctx: &Ctx<'_>) -> Result<()> {
    /// Significant bits of a double.
    const BITS: u32 = 53;
    let state = Cell::new(0_u64);
    let random = Function::new(ctx.clone(), move || {
        let mut x = state.get();
        while x == 0 {
            // Without getrandom: the clock, as the engine does.
            x = getrandom::u64().unwrap_or_else(|_| {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                now.map_or(1, |now| now.as_micros() as u64)
            });
        }
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        state.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> (u64::BITS - BITS)) as f64
            / (1_u64 << BITS) as f64
    })?;
    random.set_name("random")?;
    ctx.globals()
        .get::<_, Object>("Math")?
        .prop("random", Property::from(random).writable().configurable())
}

fn random(ctx: Ctx<'_>, count: usize) -> Result<TypedArray<'_, u8>> {
    let mut bytes = vec![0; count.min(65_536)];
    getrandom::fill(&mut bytes)
        .map_err(|error| Exception::throw_message(&ctx, &format!("no random numbers: {error}")))?;
    TypedArray::new_copy(ctx, bytes)
}

fn sha256<'js>(ctx: Ctx<'js>, hexadecimal: &str) -> Result<TypedArray<'js, u8>> {
    TypedArray::new_copy(ctx, Sha256::digest(bytes_of(hexadecimal)))
}

/// Decodes UTF-8; `None` if it is invalid and `fatal`.
fn decode(hexadecimal: &str, fatal: bool) -> Option<String> {
    let bytes = bytes_of(hexadecimal);
    if fatal {
        String::from_utf8(bytes).ok()
    } else {
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Decodes hexadecimal digits. Bytes are passed as text because borrowing an engine's array is unsafe: a
/// script could shrink it meanwhile.
fn bytes_of(hexadecimal: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
    hexadecimal
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}
