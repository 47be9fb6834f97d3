//! Usage errors as JSON: clap itself formats them for people only.

use std::ffi::OsString;

/// Whether an invalid command line requests JSON: `--json` occurs before any `--`.
pub(crate) fn asks_for_json(mut arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.find(|word| word == "--json" || word == "--").is_some_and(|word| word == "--json")
}

/// The error and its suggestion on one line, without the usage.
pub(crate) fn what_is_wrong(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nUsage:").next().unwrap_or(text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(line: &[&str]) -> bool {
        asks_for_json(line.iter().map(OsString::from))
    }

    #[test]
    fn json_behind_two_dashes_is_not_for_us() {
        assert!(asks(&["metamcp", "list", "--jsn", "--json"]));
        assert!(!asks(&["metamcp", "list", "--jsn"]));
        assert!(!asks(&["metamcp", "add", "x", "--bad", "--", "server", "--json"]));
    }

    #[test]
    fn what_is_wrong_is_one_line_without_the_usage() {
        let told = |line: &[&str]| {
            let line = line.iter().map(OsString::from);
            what_is_wrong(&crate::args::parse(line).expect_err("the line is wrong"))
        };
        let typo = told(&["metamcp", "list", "--jsn"]);
        assert!(typo.starts_with("unexpected argument '--jsn' found"), "{typo}");
        assert!(typo.contains("--json"), "{typo}");
        for line in [&["metamcp", "serch", "x"][..], &["metamcp", "call"], &["metamcp", "run"]] {
            let told = told(line);
            assert!(!told.is_empty() && !told.contains('\n') && !told.contains("Usage"), "{told}");
        }
    }
}
