//! Finds the compiled engine for the feature `wasm`, compares its checksum, and puts it where the code
//! includes it from.

#![expect(clippy::disallowed_methods, reason = "a build script talks to cargo through variables")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use sha2::{Digest, Sha256};

/// Where the module is looked for instead of `target/hardened`.
const PLACE: &str = "METAMCP_HARDENED_MODULES";

fn main() {
    say("rerun-if-changed=build.rs");
    say(&format!("rerun-if-env-changed={PLACE}"));
    if env::var_os("CARGO_FEATURE_WASM").is_none() {
        return;
    }
    if let Err(why) = put() {
        say(&format!(
            "error=the profile `hardened` needs the engine as WASM: {why}; run `cargo xtask hardened` first"
        ));
    }
}

fn put() -> Result<(), String> {
    let (processor, system) =
        (variable("CARGO_CFG_TARGET_ARCH")?, variable("CARGO_CFG_TARGET_OS")?);
    let name = format!("engine-{processor}-{system}.cwasm");
    let place = match env::var_os(PLACE) {
        Some(place) => PathBuf::from(place),
        None => Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../../target/hardened"),
    };
    let (module, sums) = (place.join(&name), place.join("SHA256SUMS"));
    say(&format!("rerun-if-changed={}", module.display()));
    say(&format!("rerun-if-changed={}", sums.display()));
    let bytes = fs::read(&module).map_err(|error| format!("{}: {error}", module.display()))?;
    let sums = fs::read_to_string(&sums).map_err(|error| format!("{}: {error}", sums.display()))?;
    let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if !sums.lines().any(|line| line == format!("{sum}  {name}")) {
        return Err(format!("{} is not the file that SHA256SUMS names", module.display()));
    }
    let out = Path::new(&variable("OUT_DIR")?).join("engine.cwasm");
    fs::write(&out, bytes).map_err(|error| format!("{}: {error}", out.display()))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}

/// How a build script speaks to cargo.
fn say(line: &str) {
    println!("cargo::{line}");
}
