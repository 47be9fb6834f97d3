//! `metamcp completions`: a small script for a shell, and the candidates it requests.
//! Owns: the scripts, the source of each completion.      Never: starts a server, changes anything, reports errors.
//! In: the words of a command line so far.  Out: candidates, one per line.
//! Tests: below, and `tests/config/tools.rs` as a shell calls it.

mod completion_source;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::sync::Arc;

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use clap_complete::env::{Elvish, EnvCompleter};
use metamcp_config::clients::CLIENTS;

use self::completion_source::CompletionSource;
use crate::args::{self, CompletionsArgs, Shell};
use crate::console;
use crate::exit::Exit;

/// The variable that marks a call from a completion script. Its value is the shell.
pub(crate) const VARIABLE: &str = "_METAMCP_COMPLETE";

pub(crate) fn run(arguments: &CompletionsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let script = match arguments.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
        Shell::Powershell => POWERSHELL,
        Shell::Elvish => {
            Elvish.write_registration(VARIABLE, "metamcp", "metamcp", "metamcp", out)?;
            return Ok(Exit::Success);
        }
    };
    write!(out, "{script}")?;
    Ok(Exit::Success)
}

/// Completes for a script: `words` is the line up to the cursor, our own name first.
pub(crate) fn answer(
    shell: &OsStr,
    words: Vec<OsString>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut command = informed(&words);
    if shell == "elvish" {
        return Ok(Elvish.write_complete(&mut command, words, None, out)?);
    }
    let last = words.len().saturating_sub(1);
    let is_flag = words.get(last).is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    let folder = console::folder().ok();
    let mut all = complete(&mut command, words, last, folder.as_deref())?;
    // Flags are offered only after a `-`, or where there is nothing else.
    let looks_like_flag =
        |one: &CompletionCandidate| one.get_value().as_encoded_bytes().starts_with(b"-");
    if !is_flag && all.iter().any(|one| !looks_like_flag(one)) {
        all.retain(|one| !looks_like_flag(one));
    }
    for one in all {
        let value = one.get_value().to_string_lossy();
        if !is_safe(&value) {
            continue;
        }
        let help = one.get_help().map(ToString::to_string).unwrap_or_default();
        let help = metamcp_types::text::clean_line(help.lines().next().unwrap_or_default(), 80);
        if shell == "bash" || help.is_empty() {
            writeln!(out, "{value}")?;
        } else {
            writeln!(out, "{value}\t{help}")?;
        }
    }
    Ok(())
}

/// Whether a candidate is free of shell metacharacters. Names of tools, keys and values come from servers, and a
/// completion lands unquoted on the line of somebody who presses Enter next.
fn is_safe(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "_.:/=@%+,-".contains(c))
}

/// The command line, with completers for servers and tools.
fn informed(words: &[OsString]) -> Command {
    let is_named = |name: &str| words.iter().any(|word| word == name);
    let completion_source = Arc::new(CompletionSource::new(words));
    let by = |ask: fn(&CompletionSource, &str) -> Vec<(String, String)>| {
        let completion_source = Arc::clone(&completion_source);
        ArgValueCompleter::new(move |current: &OsStr| {
            let candidate = |(value, help): (String, String)| {
                CompletionCandidate::new(value).help((!help.is_empty()).then(|| help.into()))
            };
            let current = current.to_string_lossy();
            let all = ask(&completion_source, &current).into_iter();
            let fits = |value: &str| value.starts_with(&*current) && is_safe(value);
            all.filter(|(value, _)| fits(value)).map(candidate).collect()
        })
    };
    let clients = |_: &CompletionSource, _: &str| -> Vec<(String, String)> {
        CLIENTS.iter().map(|client| (client.id.to_owned(), client.name.to_owned())).collect()
    };
    type Completer = fn(&CompletionSource, &str) -> Vec<(String, String)>;
    let completed: [(&[&str], &str, Completer); 22] = [
        (&["list"], "server", CompletionSource::servers),
        (&["tools"], "servers", CompletionSource::servers),
        (&["get"], "name", CompletionSource::servers),
        (&["search"], "server", CompletionSource::servers),
        (&["doctor"], "servers", CompletionSource::servers),
        (&["remove"], "names", CompletionSource::servers),
        (&["enable"], "names", CompletionSource::servers),
        (&["disable"], "names", CompletionSource::servers),
        (&["calls"], "server", CompletionSource::servers),
        (&["logs"], "server", CompletionSource::servers),
        (&["restart"], "server", CompletionSource::servers),
        (&["auth", "login"], "server", CompletionSource::remote_servers),
        (&["auth", "logout"], "server", CompletionSource::remote_servers),
        (&["auth", "status"], "server", CompletionSource::remote_servers),
        (&["provisioned", "remove"], "name", CompletionSource::installed),
        (&["provisioned", "show"], "name", CompletionSource::installed),
        (&["provisioned", "accept"], "name", CompletionSource::installed),
        (&["provisioned", "allow"], "name", CompletionSource::installed),
        (&["init"], "client", clients),
        (&["import"], "from", clients),
        (&["call"], "tool", CompletionSource::tools),
        (&["call"], "pairs", CompletionSource::arguments),
    ];
    completed.into_iter().fold(args::command_with(&is_named), |command, (path, argument, ask)| {
        let completer = by(ask);
        within(command, path, move |sub| sub.mut_arg(argument, |arg| arg.add(completer)))
    })
}

fn within(command: Command, path: &[&str], change: impl FnOnce(Command) -> Command) -> Command {
    match path {
        [] => change(command),
        [first, rest @ ..] => command.mut_subcommand(first, |sub| within(sub, rest, change)),
    }
}

/// Bash splits words at `:` and `=`, so the script joins them again and strips the part before the split from the
/// candidates.
const BASH: &str = r#"_metamcp() {
    local rest=${COMP_LINE:0:COMP_POINT} words=() word current
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        [[ ${#words[@]} -eq 0 || $rest == [[:space:]]* ]] && words+=("")
        rest=${rest#"${rest%%[![:space:]]*}"}
        [[ $rest == "$word"* ]] || word=$rest
        words[${#words[@]}-1]+=$word
        rest=${rest#"$word"}
    done
    current=${words[${#words[@]}-1]}
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("${word#"${current%"$2"}"}")
    done < <(_METAMCP_COMPLETE=bash metamcp -- "${words[@]}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[=:/] ]] || compopt -o nospace
}
complete -o bashdefault -o default -F _metamcp metamcp
"#;

const ZSH: &str = r#"#compdef metamcp
_metamcp() {
    local line value
    local -a whole open
    for line in "${(@f)$(_METAMCP_COMPLETE=zsh metamcp -- "${(@)words[1,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value=${${line%%$'\t'*}//:/\\:}
        [[ $line == *$'\t'* ]] && line="$value:${line#*$'\t'}" || line=$value
        if [[ $value == *[=:/] ]]; then open+=("$line"); else whole+=("$line"); fi
    done
    (( $#whole )) && _describe -V metamcp whole
    (( $#open )) && _describe -V metamcp open -S ''
    (( $#whole || $#open )) || _files
}
if [[ $funcstack[1] == _metamcp ]]; then _metamcp "$@"; else compdef _metamcp metamcp; fi
"#;

const FISH: &str = r"function __metamcp_complete
    set -lx _METAMCP_COMPLETE fish
    metamcp -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token --cut-at-cursor) 2>/dev/null
end
complete --command metamcp --no-files --arguments '(__metamcp_complete)'
";

const POWERSHELL: &str = r#"Register-ArgumentCompleter -Native -CommandName metamcp -ScriptBlock {
    param($word, $ast, $position)
    $words = @($ast.CommandElements | Where-Object { $_.Extent.StartOffset -lt $position } | ForEach-Object { $_.ToString() })
    if ($word -eq '') { $words += '' }
    $before = $env:_METAMCP_COMPLETE
    $env:_METAMCP_COMPLETE = 'powershell'
    try { $lines = @(& metamcp '--' $words 2>$null) } finally { $env:_METAMCP_COMPLETE = $before }
    foreach ($line in $lines) {
        $value, $help = $line -split "`t", 2
        if (-not $help) { $help = $value }
        [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
    }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(words: &[&str]) -> Vec<String> {
        let mut out = Vec::new();
        answer(OsStr::new("bash"), words.iter().map(OsString::from).collect(), &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn scripts_are_small() {
        for script in [BASH, ZSH, FISH, POWERSHELL] {
            assert!(script.len() < 2048 && script.contains(VARIABLE));
        }
    }

    #[test]
    fn nothing_is_offered_that_a_shell_would_read() {
        for fine in ["notes:add", "path=", "key=a/b.c", "--json", "a@1.2", "x_y+z,w%"] {
            assert!(is_safe(fine), "{fine}");
        }
        for bad in ["$(touch x)", "`touch x`", "a b", "a\nb", "a\tb", "$x", "é"] {
            assert!(!is_safe(bad), "{bad}");
        }
        for sign in ";&|><*?[]{}~#!'\"\\()^$".chars() {
            assert!(!is_safe(&format!("a{sign}b")), "{sign}");
        }
    }

    #[test]
    fn commands_and_flags_are_completed() {
        assert_eq!(answered(&["metamcp", "comp"]), ["completions"]);
        let all = answered(&["metamcp", ""]);
        assert!(all.contains(&"list".to_owned()) && !all.iter().any(|one| one.starts_with('-')));
        assert_eq!(answered(&["metamcp", "call", "--js"]), ["--json"]);
        assert!(answered(&["metamcp", "import", "cur"]).contains(&"cursor".to_owned()));
    }
}
