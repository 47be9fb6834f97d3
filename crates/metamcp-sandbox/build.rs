//! Compiles the prelude, so that a worker does not read it from its source: that took a third of its start.
//!
//! The engine that compiles is the one that runs it, of the same version and for the machine that builds.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

#[cfg(target_os = "linux")]
use rquickjs::module::{WriteOptions, WriteOptionsEndianness};
#[cfg(target_os = "linux")]
use rquickjs::{CatchResultExt, Context, Module, Runtime};

/// What the file names of our own frames begin with; `prelude.rs` has it as well.
const FILE: &str = "metamcp:prelude";

/// Where the sources are.
const SOURCES: &str = "src/prelude";

fn main() {
    say(&format!("rerun-if-changed={SOURCES}"));
    say("rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux")
        && let Err(why) = compile_all()
    {
        say(&format!("error=the prelude of the sandbox cannot be compiled: {why}"));
    }
}

/// Writes `prelude.rs`: a list of names and compiled modules.
fn compile_all() -> Result<(), Box<dyn Error>> {
    let out = env::var("OUT_DIR")?;
    let mut sources: Vec<_> = fs::read_dir(SOURCES)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, Box<dyn Error>>>()?;
    sources.sort();
    let mut list = String::from("&[\n");
    for path in sources {
        let name =
            path.file_stem().and_then(|stem| stem.to_str()).ok_or("a name that is no text")?;
        let compiled = Path::new(&out).join(format!("{name}.bytecode"));
        fs::write(&compiled, compile(name, &fs::read_to_string(&path)?)?)?;
        list.push_str(&format!("({name:?}, include_bytes!({compiled:?})),\n"));
    }
    list.push_str("]\n");
    Ok(fs::write(Path::new(&out).join("prelude.rs"), list)?)
}

/// One part as a module that exports it. Positions stay, so that a frame of ours is known as such; the text goes, which
/// nobody needs but `toString`.
#[cfg(target_os = "linux")]
fn compile(name: &str, source: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let endianness = match env::var("CARGO_CFG_TARGET_ENDIAN")?.as_str() {
        "big" => WriteOptionsEndianness::Big,
        _ => WriteOptionsEndianness::Little,
    };
    let context = Context::full(&Runtime::new()?)?;
    context.with(|ctx| {
        let file = format!("{FILE}/{name}");
        let options = WriteOptions { endianness, strip_source: true, ..WriteOptions::default() };
        Module::declare(ctx.clone(), file, format!("export default {source}"))
            .and_then(|module| module.write(options))
            .catch(&ctx)
            .map_err(|error| format!("{name}.js: {error}").into())
    })
}

#[cfg(not(target_os = "linux"))]
fn compile(_name: &str, _source: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    Err("that needs a Linux machine to build on".into())
}

/// How a build script speaks to cargo.
fn say(line: &str) {
    println!("cargo::{line}");
}
