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
            "system:",
            "<tool_call>",
            "assistant:",
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
            "system prompt",
            "developer mode",
            "jailbreak",
            "as an ai",
            "act as if",
            "you must first",
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
            "include the conversation",
            "full conversation",
            "entire conversation",
            "conversation history",
            "chat history",
            "previous messages",
            "all messages",
        ],
    ),
    (
        "secrecy",
        &[
            "do not tell the user",
            "don't tell the user",
            "not tell the user",
            "never tell the user",
            "do not inform the user",
            "don't inform the user",
            "without informing the user",
            "without telling the user",
            "without the user",
            "without asking the user",
            "without asking for",
            "without user confirmation",
            "without confirmation from the user",
            "do not mention",
            "don't mention",
            "never mention",
            "do not reveal",
            "don't reveal",
            "do not disclose",
            "do not notify",
            "don't notify",
            "do not ask the user",
            "don't ask the user",
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
            "user must not",
            "user should not see",
            "do not show the user",
            "don't show the user",
            "do not display",
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
            "do not use any other",
            "don't use any other",
            "never use any other",
            "do not use other",
            "never use the other",
            "is deprecated and must not",
            "is unsafe, use this",
            "this tool replaces",
            "supersedes all",
            "supersedes the",
            "takes precedence over",
            "has priority over",
            "when the tool",
            "whenever another tool",
            "when another tool",
            "when any other tool",
            "side effect of",
            "modify the behavior of",
            "modifies the behavior of",
            "changes the behavior of",
            "change the recipient",
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
    let folded = fold(text);
    let bytes = folded.as_bytes();
    let mut before = b' ';
    let mut run = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        // A phrase starts where a word starts, or with something that is no letter.
        let starts = !byte.is_ascii_alphanumeric() || !before.is_ascii_alphanumeric();
        if starts && let Some(place) = bytes[at..].first_chunk().and_then(|pair| place(*pair)) {
            let found = BY_START[place]
                .iter()
                .find(|(phrase, _)| bytes[at..].starts_with(phrase.as_bytes()));
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
