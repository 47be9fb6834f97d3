//! See ARCHITECTURE.md.
mod example;

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
