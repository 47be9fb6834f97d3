//! The QuickJS realm: engine, prelude and the one script.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rquickjs::context::EvalOptions;
use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::promise::PromiseState;
use rquickjs::{
    Array, Context, Ctx, Error, Exception, Function, Module, Object, Persistent, Promise, Runtime,
    Type, Value,
};

use super::natives;
use super::{Engine, State, clock, out_of_memory, position};
use crate::limits::QUESTIONS;
use crate::prelude;
use crate::protocol::{End, ScriptError, Server, WorkerLimits};

/// Heap above the limit, to describe the error once the limit was hit.
const RESERVE: usize = 4 * 1024 * 1024;

/// Does a little of everything that most scripts do.
const WARM_UP_SCRIPT: &str = "const list = []; for (let i = 0; i < 2; i++) list.push({ i, text: `${await i}` }); return list.map(({ i }) => i + 1);";

/// What it may use; the engine's own limits are not set then.
const WARM_UP_LIMITS: WorkerLimits =
    WorkerLimits { cpu: 0, heap: 0, stack: 0, sleep: 0, logs: 0, result: 1024, calls: 0 };

/// The garbage collection threshold, as a fraction of the heap. The engine's default of 256 KiB is less than the realm
/// alone, so every longer script paid for collections.
const GC_FRACTION: usize = 8;

/// Functions of the prelude; not reachable from the script.
struct Prelude {
    begin: Persistent<Function<'static>>,
    settle: Persistent<Function<'static>>,
    due: Persistent<Function<'static>>,
    describe: Persistent<Function<'static>>,
    encode: Persistent<Function<'static>>,
}

/// Engine, prelude and script.
pub(super) struct Realm {
    runtime: Runtime,
    context: Context,
    prelude: Prelude,
    promise: RefCell<Option<Persistent<Promise<'static>>>>,
    heap: Cell<usize>,
    result: Cell<usize>,
    lines: Cell<u32>,
    /// Memory touched before the script began, in bytes.
    touched: Cell<usize>,
    starved: Cell<bool>,
}

impl Realm {
    /// Builds everything that does not depend on the script; `None` if the engine fails.
    pub(super) fn build(state: &Rc<State>) -> Option<Realm> {
        let runtime = Runtime::new().ok()?;
        let own = Rc::clone(state);
        runtime.set_interrupt_handler(Some(Box::new(move || stop_if_over(&own))));
        runtime.set_loader(NoModules, NoModules);
        let context = Context::full(&runtime).ok()?;
        let (prelude, rejected) = context.with(|ctx| prelude(&ctx, state)).ok()?;
        runtime.set_host_promise_rejection_tracker(Some(Box::new(
            move |ctx, promise, reason, is_handled| {
                let handler = rejected.clone().restore(&ctx);
                if handler
                    .and_then(|handler| handler.call::<_, ()>((promise, reason, is_handled)))
                    .is_err()
                {
                    // Out of memory: the exception must not be taken for one of the script.
                    drop(ctx.catch());
                }
            },
        )));
        let mut realm = Realm {
            runtime,
            context,
            prelude,
            promise: RefCell::new(None),
            heap: Cell::new(usize::MAX),
            result: Cell::new(0),
            lines: Cell::new(1),
            touched: Cell::new(0),
            starved: Cell::new(false),
        };
        realm.run_warm_up_script();
        Some(realm)
    }

    /// Runs a script of ours like a guest's, so that the pages of parser and engine are loaded before a script waits.
    fn run_warm_up_script(&mut self) {
        // A name no server can have: what is made for it is replaced with the real servers.
        let server = Server { name: String::new(), identifiers: Vec::new() };
        let begun = self.guarded(|ctx| {
            self.introduce(ctx, &[server], &WARM_UP_LIMITS)?;
            self.start(ctx, WARM_UP_SCRIPT)
        });
        self.run_jobs();
        // The result does not matter. If it failed, so will the script, which reports it.
        drop((begun, self.ended()));
        self.promise.replace(None);
    }

    /// Passes servers and limits to the prelude.
    fn introduce(
        &self,
        ctx: &Ctx<'_>,
        servers: &[Server],
        limits: &WorkerLimits,
    ) -> rquickjs::Result<()> {
        let list = Array::new(ctx.clone())?;
        for (index, server) in servers.iter().enumerate() {
            let entry = Object::new(ctx.clone())?;
            entry.set("name", server.name.as_str())?;
            entry.set("identifiers", server.identifiers.clone())?;
            list.set(index, entry)?;
        }
        let WorkerLimits { sleep, result, calls, .. } = *limits;
        self.prelude.begin.clone().restore(ctx)?.call((list, sleep, result, calls))
    }

    /// Compiles and calls the script.
    fn start(&self, ctx: &Ctx<'_>, code: &str) -> rquickjs::Result<()> {
        let mut options = EvalOptions::default();
        options.strict = false;
        options.filename = Some(position::FILE.to_owned());
        let main: Value = ctx.eval_with_options(position::wrapped(code), options)?;
        let promise: Promise = main.get::<Function>()?.call(())?;
        self.promise.replace(Some(Persistent::save(ctx, promise)));
        Ok(())
    }

    /// Runs the engine's job queue until it is empty or the script ended.
    fn run_jobs(&self) {
        loop {
            match self.runtime.execute_pending_job() {
                Ok(true) if self.state() == Some(PromiseState::Pending) => {}
                Ok(_) => return,
                // A job threw outside of any promise. The pending exception must not be taken for one of the
                // next job. That happens when there is no memory left to settle a promise, which then stays
                // pending.
                Err(_) => {
                    let thrown = self.context.with(|ctx| self.is_starved(&ctx.catch()));
                    self.starved.set(self.starved.get() || thrown);
                }
            }
        }
    }
}

impl Engine for Realm {
    fn begin(&mut self, code: &str, servers: &[Server], limits: &WorkerLimits) -> Result<(), End> {
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        self.heap.set(size(limits.heap));
        self.result.set(size(limits.result));
        self.touched.set(clock::touched());
        self.lines.set(u32::try_from(code.lines().count()).unwrap_or(u32::MAX));
        self.runtime.set_memory_limit(size(limits.heap));
        self.runtime.set_gc_threshold(size(limits.heap) / GC_FRACTION);
        self.runtime.set_max_stack_size(size(limits.stack));
        self.guarded(|ctx| {
            self.introduce(ctx, servers, limits)?;
            self.start(ctx, code)
        })
    }

    fn run(&mut self) -> Result<(), End> {
        self.run_jobs();
        Ok(())
    }

    fn ended(&mut self) -> Option<End> {
        if self.state()? == PromiseState::Pending {
            return None;
        }
        let encoded = self.guarded(|ctx| {
            let Some(promise) = self.promise.borrow().clone() else { return Ok(Err(0)) };
            let value: Value = promise.restore(ctx)?.result().ok_or(Error::Exception)??;
            let encode = self.prelude.encode.clone().restore(ctx)?;
            let text: Value = encode.call((value,))?;
            Ok(match text.as_string() {
                Some(text) => Ok(text.to_string()?),
                None => Err(text.as_number().unwrap_or_default() as u64),
            })
        });
        Some(match encoded {
            Ok(Ok(text)) if text.len() <= self.result.get() => {
                End::Ok { value: position::without_lone_surrogates(text) }
            }
            Ok(Ok(text)) => End::ResultLimit { bytes: text.len() as u64 },
            Ok(Err(bytes)) => End::ResultLimit { bytes },
            Err(end) => end,
        })
    }

    fn settle(&mut self, id: u32, answer: Result<String, String>) -> Result<(), End> {
        self.guarded(|ctx| {
            let settle = self.prelude.settle.clone().restore(ctx)?;
            let (ok, text) = match answer {
                Ok(text) => (true, text),
                Err(text) => (false, text),
            };
            match ctx.json_parse(text) {
                Ok(value) => settle.call((id, ok, value)),
                Err(error) => {
                    let thrown = ctx.catch();
                    if self.is_starved(&thrown) {
                        return Err(ctx.throw(thrown));
                    }
                    if !matches!(error, Error::Exception | Error::InvalidString(_)) {
                        return Err(error);
                    }
                    let fact = Object::new(ctx.clone())?;
                    fact.set("code", "invalid_result")?;
                    fact.set("message", "the answer is not JSON")?;
                    settle.call((id, false, fact))
                }
            }
        })
    }

    fn due(&mut self, number: u32) -> Result<(), End> {
        self.guarded(|ctx| self.prelude.due.clone().restore(ctx)?.call((number,)))
    }

    fn ran_out(&mut self) -> bool {
        self.starved.get()
    }

    fn warm_up(&mut self) {
        self.run_warm_up_script();
    }
}

impl Realm {
    /// Whether this is what the engine throws out of memory: an error, `null` if there was no memory for one, or nothing
    /// at all due to an omission in the engine. A script that throws the same gains nothing.
    fn is_starved(&self, thrown: &Value<'_>) -> bool {
        let message = thrown.as_exception().and_then(Exception::message);
        message.is_some_and(|message| message.starts_with("out of memory"))
            || thrown.type_of() == Type::Uninitialized
            || (thrown.is_null()
                && clock::touched().saturating_sub(self.touched.get()) > self.heap.get() / 2)
    }

    fn state(&self) -> Option<PromiseState> {
        let promise = self.promise.borrow().clone()?;
        self.context.with(|ctx| promise.restore(&ctx).ok().map(|promise| promise.state()))
    }

    /// Runs a function in the realm; an exception becomes an end.
    fn guarded<T>(&self, run: impl FnOnce(&Ctx<'_>) -> rquickjs::Result<T>) -> Result<T, End> {
        let thrown = match self.context.with(|ctx| match run(&ctx) {
            Ok(value) => Ok(value),
            Err(Error::Exception) => Err(Ok(Persistent::save(&ctx, ctx.catch()))),
            Err(error) => Err(Err(error)),
        }) {
            Ok(value) => return Ok(value),
            Err(thrown) => thrown,
        };
        // Outside of `with`, which borrows the runtime.
        self.runtime.set_memory_limit(self.heap.get().saturating_add(RESERVE));
        Err(match thrown {
            Ok(thrown) => self.describe(thrown),
            Err(Error::Allocation) => End::MemoryLimit(out_of_memory()),
            Err(error) => End::Error(ScriptError {
                name: "SyntaxError".into(),
                message: error.to_string(),
                ..ScriptError::default()
            }),
        })
    }

    fn describe(&self, thrown: Persistent<Value<'static>>) -> End {
        let mut memory = false;
        let described = self.context.with(|ctx| {
            let thrown = thrown.restore(&ctx)?;
            memory = self.is_starved(&thrown);
            let describe = self.prelude.describe.clone().restore(&ctx)?;
            let (name, message, stack, tool): (String, String, String, Option<String>) = {
                let parts: Array = describe.call((thrown,))?;
                (parts.get(0)?, parts.get(1)?, parts.get(2)?, parts.get(3)?)
            };
            let tool = tool.map(position::without_lone_surrogates);
            Ok::<_, Error>(position::located(name, message, &stack, tool, self.lines.get()))
        });
        match described {
            Ok(error) if memory => End::MemoryLimit(error),
            Ok(error) => End::Error(error),
            Err(error) => {
                let again = self.context.with(|ctx| self.is_starved(&ctx.catch()));
                if memory || again || matches!(error, Error::Allocation) {
                    // Not even the reserve was enough.
                    return End::MemoryLimit(out_of_memory());
                }
                End::Error(ScriptError {
                    name: "Error".into(),
                    message: "the script threw something that cannot be shown".into(),
                    ..ScriptError::default()
                })
            }
        }
    }
}

/// The interrupt handler, called every few thousand steps. A script out of time exits here: an exception
/// could be swallowed, as by a promise's executor, and the loop around it would go on.
#[expect(clippy::exit, reason = "the only way out of the engine that a script cannot close")]
fn stop_if_over(state: &State) -> bool {
    if state.is_out_of_time() {
        state.end(End::CpuLimit);
        std::process::exit(super::DONE);
    }
    false
}

/// A module loader that finds nothing. Without it a script could import the prelude's modules by name.
struct NoModules;

impl Resolver for NoModules {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        _base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<String> {
        Err(Exception::throw_reference(ctx, &format!("could not load module '{name}'")))
    }
}

impl Loader for NoModules {
    fn load<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> rquickjs::Result<Module<'js>> {
        Err(Error::new_loading(name))
    }
}

/// The prelude, and its handler of promise rejections.
type Built = (Prelude, Persistent<Function<'static>>);

fn prelude(ctx: &Ctx<'_>, state: &Rc<State>) -> rquickjs::Result<Built> {
    // The time zone is read from a file on first use; after the lockdown that would fail.
    ctx.eval::<Value, _>("new Date(0).getTimezoneOffset()")?;
    natives::seed_math_random(ctx)?;
    let limits = Object::new(ctx.clone())?;
    limits.set("payload", prelude::PAYLOAD)?;
    limits.set("line", prelude::LINE)?;
    limits.set("timers", prelude::TIMERS)?;
    limits.set("questions", QUESTIONS)?;
    limits.set("partial", prelude::PARTIAL)?;
    limits.set("partial_item", prelude::PARTIAL_ITEM)?;
    let parts: Array =
        prelude::part(ctx, prelude::CORE)?.call((natives::object(ctx, state)?, limits))?;
    let save = |index| Ok::<_, Error>(Persistent::save(ctx, parts.get::<Function>(index)?));
    let prelude = Prelude {
        begin: save(0)?,
        settle: save(1)?,
        due: save(2)?,
        describe: save(3)?,
        encode: save(4)?,
    };
    Ok((prelude, save(5)?))
}
