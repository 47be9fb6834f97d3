//! See ARCHITECTURE.md.
mod commands;
mod example;
mod tokens;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = match words.as_slice() {
        ["__example", name, ..] => example::run(
            name,
            &arguments[2..],
            &mut std::io::stdin().lock(),
            &mut std::io::stdout().lock(),
        ),
        ["demo", rest @ ..] => commands::demo::run(
            rest.contains(&"--json"),
            &mut anstream::AutoStream::auto(std::io::stdout()),
            &mut anstream::AutoStream::auto(std::io::stderr()),
        ),
        _ => Ok(()),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(anstream::stderr(), "metamcp: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
