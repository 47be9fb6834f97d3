#!/usr/bin/env python3
"""Makes the engine of the profile `hardened`: QuickJS-ng as WASM, as a snapshot, compiled ahead of time.

Everything comes from the package registries, pinned and checked: the sources of QuickJS-ng out of the
crate rquickjs-sys (the version in Cargo.lock, so that both engines are one), the C compiler from PyPI,
snapshot and code generator from crates.io by ./compiler. Two runs give the same bytes.

Run it by `cargo xtask hardened`. Results are in target/hardened, with their sums in SHA256SUMS.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = ROOT / "target" / "hardened"
PRELUDE = Path(os.environ.get("METAMCP_PRELUDE", ROOT / "crates/metamcp-sandbox/src/prelude"))

ENGINE = "rquickjs-sys"
ENGINE_VERSION = "0.14.0"
ENGINE_SHA256 = "cee271d0eeba64f0915b846cb7ae02e16faf3dfdffdca91731101d9d30fe3423"

ZIG = "ziglang==0.15.2"
# One sum a platform. Only the first was tried; that the others give the same module is to be seen.
ZIG_SHA256 = [
    "806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130",  # Linux x86_64
    "edc0aa60ec964a4cf462d40f68d7de242ddf37fd9a80f2afaee6397059463230",  # Linux aarch64
    "47af4f85e3e59bd672126cc026d3a01b516cad24b9a9ea075abfe8532f4c6bc1",  # macOS x86_64
    "acae2a9ce67ed249ad68d42c21bc73b5f9d51a33ba5ea42f609f78683e8d9bb7",  # macOS arm64
]

SOURCES = ["quickjs.c", "libregexp.c", "libunicode.c", "dtoa.c"]

# Without this, QuickJS-ng looks at no stack limit when built for WASI, and recursion ends in a trap
# instead of an error that the script can read.
PATCHES = {
    "quickjs.c": [(
        "#if defined(__wasi__)\n    rt->stack_limit = 0; /* no limit */\n#else\n    if (rt->stack_size == 0) {",
        "#if 0\n    rt->stack_limit = 0; /* no limit */\n#else\n    if (rt->stack_size == 0) {",
    )],
}

COMPILE = [
    "--target=wasm32-wasi",
    "-O2",
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-DEMSCRIPTEN=1",  # the engine's name for a machine without threads and rounding modes
    "-fno-sanitize=all",  # zig adds checks to C that the engine does not pass
    "-fvisibility=hidden",
    "-g0",
    "-Wno-ignored-attributes",
]

# The shadow stack comes first, so that running over it leaves the memory instead of entering the heap.
STACK = 5 * 1024 * 1024
LINK = [
    "--target=wasm32-wasi",
    "-mexec-model=reactor",
    "-nostartfiles",
    "-O2",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
    "-Wl,--gc-sections",
    f"-Wl,-z,stack-size={STACK}",
]

# By the name of the file's machine: one module for each processor and system, whatever C library is there.
TARGETS = {
    "x86_64-linux": "x86_64-unknown-linux-gnu",
    "aarch64-linux": "aarch64-unknown-linux-gnu",
    "x86_64-macos": "x86_64-apple-darwin",
    "aarch64-macos": "aarch64-apple-darwin",
    "x86_64-windows": "x86_64-pc-windows-gnu",
}


def main():
    global TARGETS
    TARGETS = chosen(sys.argv[1:])
    work = OUT / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    extract_engine(work)
    write_prelude(work)
    module = compile_module(work, zig())
    compile_ahead(module)
    sums()


def chosen(triples):
    """The machines whose target triples are given: the same as cargo's, of any vendor and C library. All by default."""
    found = {}
    for triple in triples:
        processor, system = triple.split("-")[0], next((word for word in ["linux", "darwin", "windows"] if word in triple), "")
        machine = f"{processor}-{system.replace('darwin', 'macos')}"
        if machine not in TARGETS:
            fail(f"there is no engine for {triple}; there is one for {', '.join(TARGETS)}")
        found[machine] = TARGETS[machine]
    return found or TARGETS


def extract_engine(work):
    """Takes the sources out of the crate as it was downloaded, not out of a folder that may have changed."""
    lock = (ROOT / "Cargo.lock").read_text()
    locked = re.search(rf'name = "{ENGINE}"\nversion = "([^"]+)"\nsource = [^\n]+\nchecksum = "([0-9a-f]+)"', lock)
    if not locked or locked.groups() != (ENGINE_VERSION, ENGINE_SHA256):
        fail(f"Cargo.lock has another {ENGINE} than {ENGINE_VERSION}; both engines must be one: update the pin in {__file__}")
    metadata = json.loads(run(["cargo", "metadata", "--format-version=1", "--locked"], cwd=ROOT, capture=True))
    manifest = next(Path(p["manifest_path"]) for p in metadata["packages"] if p["name"] == ENGINE)
    source = manifest.parent
    crate = source.parent.parent.parent / "cache" / source.parent.name / f"{source.name}.crate"
    if sha256(crate) != ENGINE_SHA256:
        fail(f"{crate} has another checksum than the pinned one")
    with tarfile.open(crate) as archive:
        for member in archive.getmembers():
            path = Path(member.name)
            if member.isfile() and len(path.parts) == 3 and path.parts[1] == "quickjs" and path.suffix in (".c", ".h"):
                (work / path.name).write_bytes(archive.extractfile(member).read())
    for name, patches in PATCHES.items():
        text = (work / name).read_text()
        for before, after in patches:
            if text.count(before) != 1:
                fail(f"the patch of {name} does not apply")
            text = text.replace(before, after)
        (work / name).write_text(text)
    for name in ["glue.c", "system.c", "system.h"]:
        shutil.copy(HERE / name, work / name)


def write_prelude(work):
    """The JavaScript of the native worker, as C: both engines run the same."""
    if not (PRELUDE / "core.js").exists():
        fail(f"there is no prelude in {PRELUDE}")
    file_name = re.search(r'FILE: &str = "([^"]+)"', (PRELUDE.parent / "prelude.rs").read_text())
    if not file_name:
        fail("prelude.rs does not say what the file of our own frames is called")
    lines = [
        "struct source { const char *name; const char *text; unsigned long length; };",
        f"#define PRELUDE_FILE {json.dumps(file_name.group(1))}",
    ]
    parts = []
    for path in sorted(PRELUDE.glob("*.js")):
        data = path.read_bytes()
        numbers = ",".join(map(str, data + b"\0"))
        lines.append(f"static const unsigned char text_{path.stem}[] = {{{numbers}}};")
        entry = f'{{ "{path.stem}", (const char *)text_{path.stem}, {len(data)} }}'
        if path.stem == "core":
            lines.append(f"static const struct source prelude_core = {entry};")
        else:
            parts.append(entry)
    lines.append("static const struct source prelude_parts[] = { " + ", ".join(parts) + " };")
    (work / "prelude.h").write_text("\n".join(lines) + "\n")


def zig():
    """The compiler, in an environment of its own; pip checks the sum of what it downloads."""
    folder = OUT / "zig"
    python = folder / "bin" / "python"
    wanted = "\n".join([ZIG + "".join(f" --hash=sha256:{sum}" for sum in ZIG_SHA256), ""])
    note = folder / "installed"
    if not note.exists() or note.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        requirements = folder / "requirements.txt"
        requirements.write_text(wanted)
        run([python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--require-hashes", "-r", requirements])
        note.write_text(wanted)
    return [python, "-m", "ziglang", "cc"]


def compile_module(work, zig):
    environment = dict(os.environ, ZIG_GLOBAL_CACHE_DIR=str(OUT / "zig-cache"), ZIG_LOCAL_CACHE_DIR=str(OUT / "zig-cache"))
    objects = []
    for name in SOURCES + ["glue.c", "system.c"]:
        run([*zig, *COMPILE, "-include", "system.h", "-c", name, "-o", name[:-2] + ".o"], cwd=work, env=environment)
        objects.append(name[:-2] + ".o")
    module = OUT / "quickjs.wasm"
    run([*zig, *LINK, *objects, "-o", "quickjs.wasm"], cwd=work, env=environment)
    shutil.copy(work / "quickjs.wasm", module)
    return module


def compile_ahead(module):
    manifest = HERE / "compiler" / "Cargo.toml"
    command = ["cargo", "run", "--quiet", "--locked", "--manifest-path", manifest, "--", module, OUT / "snapshot.wasm"]
    for machine, triple in TARGETS.items():
        command += [f"{triple}={OUT / f'engine-{machine}.cwasm'}"]
    target = Path(os.environ.get("CARGO_TARGET_DIR", OUT)) / "compiler"
    run(command, env=dict(os.environ, CARGO_TARGET_DIR=str(target)))


def sums():
    names = ["quickjs.wasm", "snapshot.wasm"] + [f"engine-{machine}.cwasm" for machine in TARGETS]
    lines = [f"{sha256(OUT / name)}  {name}\n" for name in names]
    (OUT / "SHA256SUMS").write_text("".join(lines))
    for name, line in zip(names, lines):
        sys.stdout.write(f"{(OUT / name).stat().st_size:>9}  {line}")


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def run(command, capture=False, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE if capture else None, **options)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command[:6]))} … ended with {done.returncode}")
    return done.stdout


def fail(why):
    sys.exit(f"hardened: {why}")


if __name__ == "__main__":
    main()
