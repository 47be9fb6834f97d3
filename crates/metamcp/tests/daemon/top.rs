//! `metamcp top` in a pseudo-terminal over a real daemon, and its lines of JSON.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

use metamcp_testkit::{Workspace, eventually};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::calls::{parsed, text};
use crate::crowd::{HUNG, command, join, process, shell, stateful, told, workspace};

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const SHOW: &str = "\u{1b}[?25h";

/// How long something to read is waited for before the time is looked at.
const LOOK_MS: u8 = 200;

/// Rows and columns of the terminal.
const SIZE: (u16, u16) = (24, 100);

/// `metamcp top` on a terminal of its own.
struct Screen {
    child: Child,
    terminal: File,
    /// Kept open, so that its settings can be looked at when the program has ended.
    slave: File,
    written: String,
    grid: Grid,
}

/// What a terminal shows, as far as `top` makes use of it: places, text and clearing.
#[derive(Default)]
struct Grid {
    rows: Vec<Vec<char>>,
    at: (usize, usize),
    /// The part of an escape sequence that has arrived.
    open: Option<String>,
    /// A character that has arrived in part.
    bytes: Vec<u8>,
}

impl Grid {
    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let whole = match std::str::from_utf8(&self.bytes) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text: Vec<u8> = self.bytes.drain(..whole).collect();
        String::from_utf8(text).unwrap().chars().for_each(|c| self.put(c));
    }

    fn put(&mut self, c: char) {
        if let Some(open) = &mut self.open {
            open.push(c);
            let is_over = c.is_ascii_alphabetic() || (open.len() == 1 && c != '[');
            if is_over {
                let sequence = self.open.take().unwrap();
                self.obey(&sequence);
            }
            return;
        }
        match c {
            '\u{1b}' => self.open = Some(String::new()),
            '\r' => self.at.1 = 0,
            '\n' => self.at.0 += 1,
            c => {
                let (row, column) = self.at;
                self.rows.resize(usize::from(SIZE.0).max(row + 1), Vec::new());
                let row = &mut self.rows[row];
                row.resize(row.len().max(column + 1), ' ');
                row[column] = c;
                self.at.1 += 1;
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        let numbers = sequence.trim_start_matches('[').trim_end_matches(char::is_alphabetic);
        let mut numbers = numbers.split(';').map(|one| one.parse().unwrap_or(1_usize));
        match sequence.chars().last() {
            Some('H') => {
                let mut next = || numbers.next().unwrap_or(1).saturating_sub(1);
                self.at = (next(), next());
            }
            Some('J') => self.rows.clear(),
            _ => {}
        }
    }

    fn text(&self) -> String {
        self.rows.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
    }
}

impl Screen {
    fn open(mut command: Command) -> Screen {
        let size = Winsize { ws_row: SIZE.0, ws_col: SIZE.1, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).unwrap();
        let slave = || Stdio::from(pair.slave.try_clone().unwrap());
        command.arg("top").env("TERM", "xterm-256color");
        let child = command.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        let (terminal, slave) = (File::from(pair.master), File::from(pair.slave));
        Screen { child, terminal, slave, written: String::new(), grid: Grid::default() }
    }

    /// Reads what there is, and says whether `is_seen` held after any part of it: what is shown may be gone again.
    fn more(&mut self, is_seen: impl Fn(&Screen) -> bool) -> bool {
        if is_seen(self) {
            return true;
        }
        let mut ready = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::from(LOOK_MS)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let read = self.terminal.read(&mut bytes).unwrap();
        let mut was_seen = false;
        for part in bytes[..read].chunk_by(|_, next| *next != 0x1b) {
            self.written.push_str(&String::from_utf8_lossy(part));
            self.grid.write(part);
            was_seen = was_seen || is_seen(self);
        }
        was_seen
    }

    /// Reads until these words are on the screen.
    fn until(&mut self, words: &str) {
        let shows = eventually(HUNG, || self.more(|screen| screen.grid.text().contains(words)));
        assert!(shows, "{words:?} was never shown:\n{}", self.grid.text());
    }

    /// Reads until this was written to the terminal.
    fn until_written(&mut self, sequence: &str) {
        let was = eventually(HUNG, || self.more(|screen| screen.written.contains(sequence)));
        assert!(was, "{sequence:?} was never written");
    }

    fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_flags.contains(LocalFlags::ICANON)
    }

    /// Waits for the end, and checks that the terminal is as before.
    fn ended(mut self) -> Option<i32> {
        self.until_written(LEAVE);
        self.until_written(SHOW);
        let code = self.child.wait().unwrap().code();
        assert!(!self.is_raw(), "the terminal was not restored");
        code
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn running() -> (Workspace, metamcp_testkit::Client) {
    let mut workspace = workspace();
    workspace.server("kept", stateful("machine"));
    workspace.write_config().unwrap();
    let client = join(command(&workspace));
    told(&client, "kept", "remember", &json!({"key": "x"}));
    (workspace, client)
}

#[test]
fn a_person_looks_restarts_and_leaves() {
    let (workspace, client) = running();
    let before = process(&client, "kept");
    let mut screen = Screen::open(command(&workspace));
    screen.until_written(ENTER);
    screen.until("kept");
    assert!(screen.is_raw());
    screen.types("?");
    screen.until("restart it (asks)");
    screen.types(" ");
    screen.types("l");
    screen.until("Log of kept");
    screen.types("\u{1b}");
    screen.until("Servers");
    screen.types("c");
    screen.until("remember");
    screen.types("q");
    screen.until("Servers");
    screen.types("r");
    screen.until("Restart kept?");
    screen.types("y");
    screen.until("starts it anew");
    let is_new = || process(&client, "kept") != before;
    assert!(eventually(HUNG, is_new), "{before}");
    screen.types("d");
    screen.until("Disable kept");
    screen.types("n");
    screen.until("Nothing was changed");
    screen.types("q");
    assert_eq!(screen.ended(), Some(0));
}

#[test]
fn a_server_is_disabled_and_enabled_again() {
    let (workspace, _client) = running();
    // The user's own file, which `metamcp disable` changes.
    let entry = json!({"command": "true", "disabled": true});
    let home = crate::crowd::home(&workspace);
    std::fs::create_dir_all(&home).unwrap();
    let own = home.join("mcp.json");
    std::fs::write(&own, json!({"mcpServers": {"other": entry}}).to_string()).unwrap();
    let mut command = command(&workspace);
    command.arg("--config").arg(&own);
    let mut screen = Screen::open(command);
    screen.until("disabled");
    screen.types("/other\r");
    screen.types("d");
    screen.until("Enable other");
    screen.types("y");
    let disabled = || {
        std::fs::read_to_string(&own).unwrap().contains("\"disabled\": true")
            || std::fs::read_to_string(&own).unwrap().contains("\"disabled\":true")
    };
    assert!(eventually(HUNG, || !disabled()), "{}", std::fs::read_to_string(&own).unwrap());
    screen.types("\u{3}");
    assert_eq!(screen.ended(), Some(0));
}

#[test]
fn a_signal_restores_the_terminal_and_a_daemon_that_ends_is_waited_for() {
    let (workspace, client) = running();
    let mut screen = Screen::open(command(&workspace));
    screen.until("kept");
    text(&workspace, &["daemon", "stop"]);
    screen.until("the daemon has ended");
    told(&client, "kept", "recall", &json!({}));
    screen.until("up ");
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let mut screen = Screen::open(command(&workspace));
        screen.until("kept");
        kill(Pid::from_raw(screen.child.id().try_into().unwrap()), signal).unwrap();
        assert_eq!(screen.ended(), Some(0), "{signal}");
    }
    assert!(!screen.written.contains(LEAVE), "the first one goes on");
    screen.types("q");
    screen.ended();
}

#[test]
fn without_a_terminal_there_are_lines_of_json() {
    let (workspace, _client) = running();
    let refused = shell(&workspace, &["top"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(said.contains("needs a terminal") && said.contains("--json"), "{said}");
    let once = text(&workspace, &["top", "--json", "--once"]);
    assert_eq!(once.lines().count(), 1);
    let overview: Value = serde_json::from_str(&once).unwrap();
    assert_eq!(overview["serverCalls"][0]["calls"], 1, "{overview:#}");
    assert_eq!(overview["status"]["pid"], parsed(&workspace, &["status", "--json"])["pid"]);
}
