//! What makes a worker start sooner: the prelude compiled, and one library less.
//!
//! Reading the prelude from its source took a third of a worker's start. The engine that compiles it is the one that
//! runs it, of the same version and for the machine that builds.

#![expect(clippy::disallowed_methods, reason = "a build script talks to cargo through variables")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
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
    // What cannot be built in stays a library that is loaded.
    unwinding_built_in().ok();
}

/// Has the unwinder of panics linked in instead of loaded. Every worker is an `exec`, which finds, maps and relocates
/// each library anew, and the first act of this one is to ask the processor what it is, which a virtual machine has to
/// answer slowly. The linker finds our `libgcc_s` first, which names the same code as an archive.
fn unwinding_built_in() -> Result<(), Box<dyn Error>> {
    let is_ours = env::var("HOST")? == env::var("TARGET")?
        && env::var("CARGO_CFG_TARGET_OS")? == "linux"
        && env::var("CARGO_CFG_TARGET_ENV")? == "gnu";
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output()?;
    // A compiler that has none says the bare name.
    let archive = String::from_utf8(asked.stdout)?;
    if is_ours && Path::new(archive.trim()).is_absolute() {
        let place = Path::new(&env::var("OUT_DIR")?).join("unwinding");
        fs::create_dir_all(&place)?;
        fs::write(place.join("libgcc_s.so"), "GROUP ( -lgcc_eh -lgcc )\n")?;
        say(&format!("rustc-link-search=native={}", place.display()));
    }
    Ok(())
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
        let compiled = compiled.to_str().ok_or("a folder that is no text")?;
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
