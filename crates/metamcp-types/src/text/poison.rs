//! Signs of prompt injection (tool poisoning) in a description. They flag, they never block:
//! the list is known to attackers, and honest authors write odd things.

use std::sync::LazyLock;

/// How much of a text is looked at; descriptions are cut far below this, error texts are not.
const MAX_LOOKED_AT: usize = 16 * 1024;

/// An unbroken run of this many base64 characters is not prose.
const LONG_BLOB: usize = 160;

/// Phrases and what they are a sign of. Matched in lower case with white space folded to single spaces.
const SIGNS: &[(&str, &[&str])] = &[
    (
        "instruction markup",
        &[
            "<important>",
            "</important>",
            "<system>",
            "</system>",
            "<system_prompt",
            "<system-reminder",
            "<instructions>",
            "<instruction>",
            "<critical>",
            "<secret>",
            "<hidden>",
            "<assistant>",
            "<user>",
            "<|im_start|>",
            "<|im_end|>",
            "<|system|>",
            "<|endoftext|>",
            "[inst]",
            "[/inst]",
            "<<sys>>",
            "[system]",
            "[system message]",
            "### system",
            "###instruction",
            "### instruction",
            "</tool>",
            "</function>",
            "<antml",
            "<tool_call>",
        ],
    ),
    (
        "orders to the model",
        &[
            "ignore previous",
            "ignore all previous",
            "ignore any previous",
            "ignore prior",
            "ignore the above",
            "ignore earlier",
            "ignore your instructions",
            "ignore all other",
            "disregard previous",
            "disregard all",
            "disregard the above",
            "disregard any",
            "disregard your",
            "forget previous",
            "forget all previous",
            "forget your instructions",
            "forget everything",
            "override your",
            "new instructions",
            "your new task",
            "you are now",
            "from now on you",
            "from now on,",
            "your system prompt",
            "the system prompt",
            "developer mode",
            "jailbreak",
            "as an ai",
            "act as if",
            "you must always",
            "you must call",
            "must be called before",
            "must be called first",
            "must call this tool",
            "always call this tool",
            "always run this tool",
            "call this tool before",
            "call this tool first",
            "use this tool before any",
            "before using any",
            "before calling any",
            "before you use any",
            "before any other tool",
            "before using other tool",
            "before doing anything",
            "before answering",
            "before responding",
            "before every",
            "prior to any other",
            "prior to using any",
            "first read the file",
            "read the contents of the file",
            "read the file ~",
            "pass its content",
            "pass the content",
            "as 'sidenote'",
            "as sidenote",
            "in the sidenote",
            "append the conversation",
            "the full conversation so",
            "the whole conversation",
            "the entire conversation",
            "the conversation history",
            "the chat history",
            "include all messages",
            "all previous messages",
            "the previous messages",
            "full conversation history",
            "full chat history",
            "you must first read",
            "you must first send",
            "you must first run",
            "you must first call",
            "include the conversation",
        ],
    ),
    (
        "secrecy",
        &[
            "do not tell the user about",
            "do not tell the user that",
            "do not tell the user this",
            "do not tell the user you",
            "do not tell the user anything",
            "do not tell the user what",
            "do not tell the user how",
            "do not tell the user why",
            "do not tell the user or",
            "do not tell the user.",
            "do not tell the user,",
            "do not tell the user;",
            "do not tell the user!",
            "don't tell the user about",
            "don't tell the user that",
            "don't tell the user this",
            "don't tell the user you",
            "don't tell the user anything",
            "don't tell the user what",
            "don't tell the user how",
            "don't tell the user why",
            "don't tell the user or",
            "don't tell the user.",
            "don't tell the user,",
            "don't tell the user;",
            "don't tell the user!",
            "never tell the user about",
            "never tell the user that",
            "never tell the user this",
            "never tell the user you",
            "never tell the user anything",
            "never tell the user what",
            "never tell the user how",
            "never tell the user why",
            "never tell the user or",
            "never tell the user.",
            "never tell the user,",
            "never tell the user;",
            "never tell the user!",
            "do not inform the user",
            "don't inform the user",
            "without informing the user",
            "without telling the user",
            "without the user knowing",
            "without the user's knowledge",
            "without the user noticing",
            "without the user seeing",
            "without the user being",
            "without asking the user",
            "without asking for confirmation",
            "without asking for permission",
            "without asking for approval",
            "without asking for consent",
            "without user confirmation",
            "without confirmation from the user",
            "do not mention this",
            "do not mention it",
            "do not mention that",
            "do not mention the",
            "do not mention these",
            "do not mention any",
            "do not mention to the user",
            "don't mention this",
            "don't mention it",
            "don't mention that",
            "don't mention the",
            "don't mention these",
            "don't mention any",
            "don't mention to the user",
            "never mention this",
            "never mention it",
            "never mention that",
            "never mention the",
            "never mention these",
            "never mention any",
            "never mention to the user",
            "do not reveal this",
            "do not reveal it",
            "do not reveal that",
            "do not reveal the",
            "do not reveal these",
            "do not reveal any",
            "do not reveal to the user",
            "don't reveal this",
            "don't reveal it",
            "don't reveal that",
            "don't reveal the",
            "don't reveal these",
            "don't reveal any",
            "don't reveal to the user",
            "do not disclose this",
            "do not disclose it",
            "do not disclose that",
            "do not disclose the",
            "do not disclose these",
            "do not disclose any",
            "do not disclose to the user",
            "do not notify the user",
            "do not notify anyone",
            "don't notify the user",
            "don't notify anyone",
            "do not ask the user for",
            "do not ask the user about",
            "do not ask the user before",
            "do not ask the user whether",
            "do not ask the user if",
            "do not ask the user to confirm",
            "do not ask the user to approve",
            "do not ask the user.",
            "don't ask the user for",
            "don't ask the user about",
            "don't ask the user before",
            "don't ask the user whether",
            "don't ask the user if",
            "don't ask the user to confirm",
            "don't ask the user to approve",
            "don't ask the user.",
            "hide this from",
            "keep this secret",
            "keep this hidden",
            "silently send ",
            "silently forward ",
            "silently copy ",
            "silently upload ",
            "silently post ",
            "silently attach ",
            "silently include ",
            "silently append ",
            "silently add ",
            "silently read ",
            "silently call ",
            "silently run ",
            "silently execute ",
            "silently pass ",
            "silently store ",
            "silently record ",
            "silently log ",
            "silently download ",
            "do it silently",
            "do this silently",
            "user does not need to know",
            "user doesn't need to know",
            "user must not know",
            "user must not see",
            "user must not be",
            "user must not notice",
            "user should not see",
            "do not show the user",
            "don't show the user",
            "do not display this",
            "do not display it",
            "do not display these",
            "upset the user",
            "confidential instruction",
            "invisible to the user",
        ],
    ),
    (
        "paths to secrets",
        &[
            "~/.ssh",
            "/.ssh/",
            "id_rsa",
            "id_ed25519",
            "authorized_keys",
            "known_hosts",
            "/etc/passwd",
            "/etc/shadow",
            ".aws/credentials",
            "~/.aws",
            "~/.cursor",
            "~/.claude",
            "~/.config/gcloud",
            "~/.kube/config",
            "~/.netrc",
            "~/.npmrc",
            "~/.pypirc",
            "~/.git-credentials",
            "~/.gnupg",
            "~/.bash_history",
            "~/.zsh_history",
            "~/.docker/config",
            "claude_desktop_config",
            ".cursor/mcp.json",
            "~/.metamcp",
            "~/.env",
            "/proc/self/environ",
            "login keychain",
            "wallet.dat",
            "seed phrase",
            "contents of .env",
            "content of .env",
            "the .env file",
            "private key file",
            "environment variables to",
            "all environment variables",
        ],
    ),
    (
        "sends data elsewhere",
        &[
            "exfiltrat",
            "curl http",
            "curl -",
            "wget http",
            "| sh",
            "| bash",
            "webhook.site",
            "requestbin",
            "ngrok",
            "burpcollaborator",
            "pipedream.net",
            "interact.sh",
            "send the contents to",
            "send all",
            "forward all",
            "forward every",
            "bcc ",
            "upload the contents",
            "post the contents",
            "/dev/tcp/",
            "base64 -d",
            "base64 encode the",
            "nc -e",
            "rm -rf",
        ],
    ),
    (
        "speaks of other tools",
        &[
            "instead of any other tool",
            "instead of the other",
            "instead of other tools",
            "other tools are",
            "do not use any other tool",
            "do not use any other server",
            "don't use any other",
            "never use any other",
            "do not use other",
            "never use the other",
            "is deprecated and must not",
            "is unsafe, use this",
            "this tool replaces all",
            "this tool replaces every",
            "this tool replaces the tool",
            "this tool replaces other",
            "supersedes all",
            "supersedes the",
            "takes precedence over all",
            "takes precedence over any",
            "takes precedence over every",
            "takes precedence over other",
            "takes precedence over the other",
            "has priority over",
            "when the tool",
            "whenever another tool",
            "when another tool",
            "when any other tool",
            "side effect of",
            "modify the behavior of",
            "modifies the behavior of",
            "changes the behavior of",
            "change the recipient to",
            "change the recipient address",
            "best tool",
            "always prefer this tool",
            "always choose this",
            "always use this tool",
            "only tool you should",
            "the only correct tool",
            "must be preferred",
        ],
    ),
];

/// Who speaks, as transcripts write it; a sign only where a line or a sentence begins, or every coordinate system is one.
const ROLES: [&str; 2] = ["system:", "assistant:"];

/// What each sign says about a tool, for a reader who has to judge it.
const IN_WORDS: [(&str, &str); 9] = [
    ("hidden characters", "its texts hold characters that cannot be seen"),
    ("instruction markup", "its description imitates instructions of the system"),
    ("orders to the model", "its description gives the model orders"),
    ("secrecy", "its description tells the model to keep something from the user"),
    ("paths to secrets", "its description names files that hold secrets"),
    ("sends data elsewhere", "its description speaks of sending data elsewhere"),
    ("speaks of other tools", "its description says how to treat other tools"),
    ("encoded text", "its description holds encoded text"),
    ("look-alike letters in the name", "letters of its name look like others"),
];

/// How far back a negation is looked for: "never assume a path without user confirmation" asks for a confirmation.
const NEGATION_REACH: usize = 80;

/// The same by their first two bytes, so that one pass over a text finds any of them and compares few.
static BY_START: LazyLock<Vec<Vec<(&'static str, &'static str)>>> = LazyLock::new(|| {
    let mut table = vec![Vec::new(); 128 * 128];
    for (sign, phrases) in SIGNS {
        for phrase in *phrases {
            if let Some(place) = phrase.as_bytes().first_chunk().and_then(|pair| place(*pair)) {
                table[place].push((*phrase, *sign));
            }
        }
    }
    table
});

/// Where phrases that start so stand.
fn place([first, second]: [u8; 2]) -> Option<usize> {
    (first < 128 && second < 128).then_some(usize::from(first) * 128 + usize::from(second))
}

/// Why `text` looks like an attack on the model, if it does.
pub fn looks_poisoned(text: &str) -> Option<&'static str> {
    if super::hides_something(text) {
        return Some("hidden characters");
    }
    if begins_as_a_role(text) {
        return Some("instruction markup");
    }
    let mut folded = fold(text);
    // What a text ends with is followed by what ends a sentence.
    folded.push('.');
    let bytes = folded.as_bytes();
    let mut before = b' ';
    let mut run = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        // A phrase starts where a word starts, or with something that is no letter.
        let starts = !byte.is_ascii_alphanumeric() || !before.is_ascii_alphanumeric();
        if starts && let Some(place) = bytes[at..].first_chunk().and_then(|pair| place(*pair)) {
            let found = BY_START[place].iter().find(|(phrase, _)| {
                bytes[at..].starts_with(phrase.as_bytes()) && !is_harmless(&folded, at, phrase)
            });
            if let Some((_, sign)) = found {
                return Some(sign);
            }
        }
        run = if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'=') { run + 1 } else { 0 };
        if run >= LONG_BLOB {
            return Some("encoded text");
        }
        before = byte;
    }
    None
}

/// A sign as a sentence about the tool.
pub fn flag_in_words(sign: &str) -> &str {
    IN_WORDS.iter().find(|(known, _)| *known == sign).map_or(sign, |(_, words)| words)
}

/// Whether a line, or a sentence on it, starts like one of a transcript.
fn begins_as_a_role(text: &str) -> bool {
    let starts = |part: &str| {
        let start: String =
            part.trim_start().chars().take(12).flat_map(char::to_lowercase).collect();
        let start = start.trim_start_matches(['*', '#', '>', '[', ' ']);
        ROLES.iter().any(|role| {
            let after = start.strip_prefix(role);
            after.is_some_and(|after| after.is_empty() || after.starts_with([' ', '*']))
        })
    };
    let looked_at = super::start(text, MAX_LOOKED_AT);
    looked_at.lines().any(|line| starts(line) || line.split(['.', '!', '?']).skip(1).any(starts))
}

/// Whether what stands before a phrase turns it into its opposite.
fn is_harmless(folded: &str, at: usize, phrase: &str) -> bool {
    let before = &folded[..at];
    // Part of an example of a path that is refused.
    if phrase.starts_with('/') {
        return before.ends_with("..");
    }
    if !phrase.starts_with("without") {
        return false;
    }
    let mut from = at.saturating_sub(NEGATION_REACH);
    while !before.is_char_boundary(from) {
        from += 1;
    }
    let sentence = before[from..].rsplit(['.', '!', '?']).next().unwrap_or_default();
    ["never ", "not ", "n't "].iter().any(|word| sentence.contains(word))
}

/// Letters of two look-alike scripts in one name: `reаd_file` with a Cyrillic а is not `read_file`.
pub fn mixes_scripts(name: &str) -> bool {
    let latin = name.chars().any(|c| c.is_ascii_alphabetic());
    let disguise = |c: char| {
        matches!(c, '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{13a0}'..='\u{13ff}'
            | '\u{1d00}'..='\u{1dbf}' | '\u{2100}'..='\u{218f}' | '\u{a4d0}'..='\u{a4ff}'
            | '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}')
    };
    // Fullwidth and mathematical letters have no honest use in a name, with or without Latin beside them.
    name.chars().any(|c| matches!(c, '\u{ff01}'..='\u{ff5e}' | '\u{1d400}'..='\u{1d7ff}'))
        || (latin && name.chars().any(disguise))
}

/// Lower case, hidden characters and emphasis gone, white space folded, look-alike letters undone.
fn fold(text: &str) -> String {
    let mut folded = String::with_capacity(text.len().min(MAX_LOOKED_AT));
    for c in text.chars().take(MAX_LOOKED_AT) {
        if super::is_hidden(c) || (c.is_control() && !c.is_whitespace()) {
            continue;
        }
        match plain_letter(c) {
            c if c.is_whitespace() && folded.ends_with(' ') => {}
            c if c.is_whitespace() => folded.push(' '),
            '*' => {}
            '’' => folded.push('\''),
            c => folded.extend(c.to_lowercase()),
        }
    }
    folded
}

fn plain_letter(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        'а' | 'А' => 'a',
        'е' | 'Е' => 'e',
        'о' | 'О' => 'o',
        'р' | 'Р' => 'p',
        'с' | 'С' => 'c',
        'х' | 'Х' => 'x',
        'у' | 'У' => 'y',
        'і' | 'І' => 'i',
        'ѕ' | 'Ѕ' => 's',
        other => other,
    }
}
