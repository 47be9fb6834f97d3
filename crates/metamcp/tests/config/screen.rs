//! What a person sees at a terminal: columns, colours, progress, and that declining has an effect.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};

use nix::pty::{Winsize, openpty};
use serde_json::json;

use crate::Shell;

const OWN: &str = "user/.metamcp/mcp.json";

/// A program on its own pseudo-terminal.
struct Screen {
    child: Child,
    terminal: File,
    shown: String,
}

impl Screen {
    fn open(shell: &Shell, line: &[&str], variables: &[(&str, &str)], width: u16) -> Screen {
        let size = Winsize { ws_row: 40, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).unwrap();
        let slave = || Stdio::from(pair.slave.try_clone().unwrap());
        let mut command = shell.command(line);
        command.env("TERM", "xterm-256color").envs(variables.iter().copied());
        let child = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        Screen { child, terminal: File::from(pair.master), shown: String::new() }
    }

    /// Reads more; false when the program has exited.
    fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // Reading fails when the program has exited.
        let read = self.terminal.read(&mut bytes).unwrap_or(0);
        self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        read > 0
    }

    fn until(&mut self, words: &str) {
        while !self.shown.contains(words) {
            assert!(self.more(), "{words:?} was never shown: {:?}", self.shown);
        }
    }

    fn types(&mut self, words: &str) {
        self.terminal.write_all(words.as_bytes()).unwrap();
    }

    /// Everything that was shown, and the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        while self.more() {}
        let code = self.child.wait().unwrap().code();
        (self.shown, code)
    }
}

fn shown(shell: &Shell, line: &[&str], variables: &[(&str, &str)], width: u16) -> String {
    Screen::open(shell, line, variables, width).end().0
}

fn shell() -> Shell {
    let shell = Shell::new();
    let numbers =
        json!({ "command": env!("CARGO_BIN_EXE_metamcp"), "args": ["__example", "numbers"] });
    let off = json!({ "command": "x", "disabled": true });
    shell.write(OWN, &json!({ "mcpServers": { "numbers": numbers, "off": off } }).to_string());
    shell
}

#[test]
fn lists_have_columns_and_colours_on_a_terminal_only() {
    let shell = shell();
    shell.run(&["list", "numbers"]);
    for line in
        [&["list"][..], &["tools"], &["tools", "numbers"], &["search", "average of numbers"]]
    {
        let (coloured, plain) =
            (shown(&shell, line, &[], 60), shown(&shell, line, &[("NO_COLOR", "1")], 60));
        assert!(coloured.contains("\u{1b}["), "{line:?}: {coloured:?}");
        assert!(!plain.contains('\u{1b}'), "{line:?}: {plain:?}");
        for row in plain.lines() {
            assert!(row.trim_end().chars().count() <= 60, "{line:?}: {row:?}");
        }
        // A pipe has no width, whatever `COLUMNS` says.
        let piped = |width: &str| shell.run_with(line, &[("COLUMNS", width)]).stdout;
        assert_eq!(piped("40"), piped("140"), "{line:?}");
        assert!(!piped("40").contains(&0x1b), "{line:?}");
    }
    let list = shown(&shell, &["list"], &[("NO_COLOR", "1")], 60);
    assert!(list.contains("numbers  user  enabled       7  Example numbers"), "{list}");
    assert!(list.contains("Running ones are not marked"), "{list}");
}

/// The server waits for the test, so it is starting for as long as the test wants.
#[test]
fn who_waits_for_a_server_sees_that_it_starts() {
    let shell = shell();
    let gate = shell.path("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let script = format!(
        "read -r _ < '{}'; exec '{}' __example numbers",
        gate.display(),
        env!("CARGO_BIN_EXE_metamcp")
    );
    let slow = json!({ "command": "/bin/sh", "args": ["-c", script] });
    shell.write(OWN, &json!({ "mcpServers": { "slow": slow } }).to_string());
    for line in [
        &["call", "slow:evaluate", "expression=1+1"][..],
        &["doctor", "slow"],
        &["tools"],
        &["search", "arithmetic"],
    ] {
        // Only a server that was never listed is waited for.
        drop(std::fs::remove_dir_all(shell.path("user/.metamcp/cache")));
        let mut screen = Screen::open(&shell, line, &[], 80);
        screen.until("starting");
        assert!(screen.shown.contains("slow"), "{line:?}: {:?}", screen.shown);
        std::fs::write(&gate, "go\n").unwrap();
        let (shown, code) = screen.end();
        assert_eq!(code, Some(0), "{line:?}: {shown}");
    }
    // No progress with `--quiet`, with JSON, or in a pipe.
    for line in [&["call", "slow:evaluate", "expression=1+1", "-q"][..], &["tools", "--json"]] {
        drop(std::fs::remove_dir_all(shell.path("user/.metamcp/cache")));
        let screen = Screen::open(&shell, line, &[], 80);
        std::fs::write(&gate, "go\n").unwrap();
        let (shown, code) = screen.end();
        assert_eq!(code, Some(0), "{line:?}: {shown}");
        assert!(!shown.contains('\u{1b}') && !shown.contains("starting"), "{line:?}: {shown:?}");
    }
}

/// The test holds the lock, so init waits for as long as the test wants.
#[test]
fn who_waits_for_init_sees_what_it_does() {
    let shell = shell();
    shell.write("user/.cursor/mcp.json", r#"{ "mcpServers": {} }"#);
    let folder = File::open(shell.path("user/.cursor")).unwrap();
    folder.lock().unwrap();
    let line = ["init", "--yes", "--client", "cursor"];
    let mut screen = Screen::open(&shell, &line, &[], 80);
    screen.until("writing the file of Cursor");
    drop(folder);
    let (shown, code) = screen.end();
    assert_eq!(code, Some(0), "{shown}");
}

/// Two projects of one client may each have a server of the same name.
#[test]
fn a_server_is_picked_in_its_own_project() {
    let shell = shell();
    let server =
        |of: &str| json!({ "mcpServers": { "db": { "command": "/bin/sh", "args": [of] } } });
    let projects = json!({ "projects": { "/srv/a": server("one"), "/srv/b": server("two") } });
    shell.write("user/.claude.json", &projects.to_string());
    let mut screen = Screen::open(&shell, &["init", "--client", "claude-code"], &[], 80);
    screen.until("[y/N");
    for (typed, then) in [("c\n", "[x]     db  "), ("2\n", "[ ]     db  "), ("\n", "(imported)")] {
        screen.shown.clear();
        screen.types(typed);
        screen.until(then);
    }
    screen.until("[y/N");
    screen.types("y\n");
    let (shown, code) = screen.end();
    assert_eq!(code, Some(0), "{shown}");
    let after: serde_json::Value = serde_json::from_str(&shell.read("user/.claude.json")).unwrap();
    assert_eq!(after["projects"]["/srv/a"], projects["projects"]["/srv/a"], "{after}");
    assert_eq!(after["projects"]["/srv/b"]["mcpServers"], json!({}), "{after}");
}

#[test]
fn a_no_is_acknowledged() {
    let shell = shell();
    shell.write("user/.cursor/mcp.json", r#"{ "mcpServers": { "a": { "command": "x" } } }"#);
    let before = shell.read("user/.cursor/mcp.json");
    let mut screen = Screen::open(&shell, &["init", "--client", "cursor"], &[], 80);
    screen.until("[y/N");
    screen.types("n\n");
    let (shown, code) = screen.end();
    assert_eq!(shown.matches("Nothing was changed.").count(), 1, "{shown}");
    assert_eq!((code, shell.read("user/.cursor/mcp.json")), (Some(1), before));
}

/// The editor is a script here: the first time it breaks the file, the second time it fixes it.
#[test]
fn a_file_that_was_broken_in_the_editor_is_offered_again() {
    let shell = shell();
    let before = shell.read(OWN);
    shell.write("user/editor", "#!/bin/sh\nif grep -q broken \"$1\"; then echo '{\"mcpServers\": {}}' > \"$1\"; else echo '{ broken' > \"$1\"; fi\n");
    let editor = format!("sh {}", shell.path("user/editor").display());
    let variables = [("EDITOR", editor.as_str())];
    let mut screen = Screen::open(&shell, &["config", "edit"], &variables, 80);
    screen.until("Edit it again? [Y/n]");
    assert_eq!(shell.read(OWN), before, "nothing is written before it can be used");
    screen.types("y\n");
    let (shown, code) = screen.end();
    assert_eq!((code, shell.read(OWN).trim()), (Some(0), "{\"mcpServers\": {}}"), "{shown}");
    // Declining leaves the file as it was.
    shell.write(OWN, &before);
    let mut screen = Screen::open(&shell, &["config", "edit"], &variables, 80);
    screen.until("Edit it again? [Y/n]");
    screen.types("n\n");
    let (shown, code) = screen.end();
    assert!(shown.contains("Nothing was changed"), "{shown}");
    assert_eq!((code, shell.read(OWN)), (Some(3), before));
}

/// A person selects one server of two; the client that is not selected stays unchanged.
#[test]
fn clients_and_servers_are_chosen_from_a_list() {
    let shell = Shell::new();
    shell.program("x", "#!/bin/sh\n");
    let (cursor, kiro) = ("user/.cursor/mcp.json", "user/.kiro/settings/mcp.json");
    let text = r#"{ "mcpServers": { "one": { "command": "x" }, "two": { "command": "x", "args": ["2"] }, "lost": { "command": "no-such" } } }"#;
    shell.write(cursor, text);
    shell.write(kiro, text);
    let bin = shell.path("bin").display().to_string();
    let mut screen = Screen::open(&shell, &["init"], &[("PATH", &bin)], 100);
    screen.until("[y/N]");
    screen.types("c\n");
    screen.until("Enter when done");
    assert!(screen.shown.contains("will not start: its program `no-such` is not found"));
    // The second server, and all of the second client.
    screen.types("3 99\n");
    screen.until("is not a number from 1 to 8");
    screen.types("3 5\n");
    screen.until("5 [ ]");
    screen.types("\n");
    screen.until("two stays in the client");
    screen.types("y\n");
    let (shown, code) = screen.end();
    assert_eq!(code, Some(0), "{shown}");
    let left = shell.read(cursor);
    assert!(!left.contains("\"one\"") && left.contains("\"two\"") && left.contains("\"lost\""));
    assert_eq!(shell.read(kiro), text);
    let own = shell.read(OWN);
    assert!(own.contains("\"one\"") && !own.contains("\"two\""), "{own}");
}
