//! Servers that keep something for the client that uses them: by package, by the name they give themselves, by their tools.
//! Memory servers are not among them: what they keep is meant for every client.
//!
//! To add one: its package to `PACKAGES`, with what it keeps; a word only where everything called so keeps the same. Names
//! are compared as a whole or word by word, so that `browserslist` is no browser.

/// What is kept per client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Browser,
    Debugger,
    Thoughts,
    Terminal,
    Interpreter,
    Device,
}

use Kept::{Browser, Debugger, Device, Interpreter, Terminal, Thoughts};

impl Kept {
    /// With its article, as in "keeps … per client".
    pub(super) fn what(self) -> &'static str {
        match self {
            Browser => "a browser",
            Debugger => "a debugging session",
            Thoughts => "a train of thought",
            Terminal => "terminals",
            Interpreter => "the variables of an interpreter",
            Device => "a session with a device",
        }
    }
}

/// Packages of npm and `PyPI` and images, without tag and host, whose names do not say it in the words below.
const PACKAGES: &[(&str, Kept)] = &[
    ("@agent-infra/mcp-server-browser", Browser),
    ("@agentdeskai/browser-tools-mcp", Browser),
    ("@browsermcp/mcp", Browser),
    ("agent-browser", Browser),
    ("browser-mcp", Browser),
    ("browsermcp", Browser),
    ("chrome-mcp", Browser),
    ("mcp-browser", Browser),
    ("mcp-chrome", Browser),
    ("mcp-chrome-bridge", Browser),
    ("mcp-server-browser", Browser),
    ("puppeteer-real-browser-mcp-server", Browser),
    ("stealth-browser-mcp", Browser),
    ("xcodebuildmcp", Device),
    ("frida-mcp", Debugger),
    ("mcp-pdb", Debugger),
    ("code-reasoning", Thoughts),
    ("@mettamatt/code-reasoning", Thoughts),
    ("clear-thought", Thoughts),
    ("@waldzellai/clear-thought", Thoughts),
    ("lotus-wisdom-mcp", Thoughts),
    ("mcp-sequentialthinking-tools", Thoughts),
    ("mcp-think-tool", Thoughts),
    ("mcp-ssh-manager", Terminal),
    ("wcgw", Terminal),
    ("mcp-python-interpreter", Interpreter),
    ("matlab-mcp", Interpreter),
];

/// Words, one after the other in a name, that say what is kept.
const WORDS: &[(&[&str], Kept)] = &[
    (&["playwright"], Browser),
    (&["puppeteer"], Browser),
    (&["chrome", "devtools"], Browser),
    (&["chromedevtools"], Browser),
    (&["browser", "use"], Browser),
    (&["browseruse"], Browser),
    (&["browserbase"], Browser),
    (&["stagehand"], Browser),
    (&["hyperbrowser"], Browser),
    (&["selenium"], Browser),
    (&["webdriver"], Browser),
    (&["camoufox"], Browser),
    (&["nodriver"], Browser),
    (&["zendriver"], Browser),
    (&["patchright"], Browser),
    (&["debugger"], Debugger),
    (&["debugpy"], Debugger),
    (&["gdb"], Debugger),
    (&["lldb"], Debugger),
    (&["windbg"], Debugger),
    (&["sequential", "thinking"], Thoughts),
    (&["sequentialthinking"], Thoughts),
    (&["structured", "thinking"], Thoughts),
    (&["branch", "thinking"], Thoughts),
    (&["desktop", "commander"], Terminal),
    (&["desktopcommander"], Terminal),
    (&["iterm"], Terminal),
    (&["iterm2"], Terminal),
    (&["tmux"], Terminal),
    (&["libtmux"], Terminal),
    (&["terminal"], Terminal),
    (&["pty"], Terminal),
    (&["jupyter"], Interpreter),
    (&["ipython"], Interpreter),
    (&["repl"], Interpreter),
    (&["appium"], Device),
];

/// Tools, folded, all of which one server has.
const TOOLS: &[(&[&str], Kept)] = &[
    (&["browser_navigate"], Browser),
    (&["browser_click"], Browser),
    (&["browser_snapshot"], Browser),
    (&["puppeteer_navigate"], Browser),
    (&["playwright_navigate"], Browser),
    (&["stagehand_navigate"], Browser),
    (&["browserbase_stagehand_navigate"], Browser),
    (&["browserbase_session_create"], Browser),
    (&["chrome_navigate"], Browser),
    (&["navigate_page", "take_snapshot"], Browser),
    (&["start_browser", "find_element"], Browser),
    (&["start_browser", "navigate"], Browser),
    (&["navigate", "click", "screenshot"], Browser),
    (&["start_debugging"], Debugger),
    (&["set_breakpoint"], Debugger),
    (&["debug_set_breakpoint"], Debugger),
    (&["gdb_start"], Debugger),
    (&["create_debug_session"], Debugger),
    (&["sequentialthinking"], Thoughts),
    (&["sequential_thinking"], Thoughts),
    (&["sequentialthinking_tools"], Thoughts),
    (&["process_thought"], Thoughts),
    (&["capture_thought"], Thoughts),
    (&["start_process", "interact_with_process"], Terminal),
    (&["execute_command", "read_output"], Terminal),
    (&["write_to_terminal"], Terminal),
    (&["create_terminal"], Terminal),
    (&["send_keys", "capture_pane"], Terminal),
    (&["execute_command", "capture_pane"], Terminal),
    (&["insert_execute_code_cell"], Interpreter),
    (&["execute_python", "list_variables"], Interpreter),
    (&["python_repl"], Interpreter),
    (&["appium_session_management"], Device),
];

/// What a package, an image or a program of this name keeps; the name is in lower case and without a version.
pub(super) fn of_package(name: &str) -> Option<Kept> {
    let listed = PACKAGES.iter().find(|(known, _)| *known == name);
    listed.map(|(_, kept)| *kept).or_else(|| of_name(name))
}

/// What a name of several words says.
pub(super) fn of_name(name: &str) -> Option<Kept> {
    let lower = name.to_lowercase();
    let words: Vec<&str> =
        lower.split(|each: char| !each.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let says = |known: &&(&[&str], Kept)| words.windows(known.0.len()).any(|part| part == known.0);
    WORDS.iter().find(says).map(|(_, kept)| *kept)
}

/// Which of these tools, folded, shows what is kept.
pub(super) fn of_tools(names: &[String]) -> Option<(usize, Kept)> {
    TOOLS.iter().find_map(|(all, kept)| {
        let place = |tool: &&str| names.iter().position(|name| name == tool);
        let first = all.first().and_then(place)?;
        all.iter().all(|tool| place(&tool).is_some()).then_some((first, *kept))
    })
}

/// A tool's name as the table has it.
pub(super) fn folded(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}
