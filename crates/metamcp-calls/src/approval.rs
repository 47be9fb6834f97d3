//! Whether a call needs a person's approval, and whether one that was given covers it.
//! Owns: what counts as destructive, what an approval covers and for how long.      Never: asks, stores, believes a server against the rules.
//! In: the rule of a tool, what is declared of it, the digest of its arguments, stored approvals, the time.  Out: send, ask or refuse.
//! Tests: below.

/// Which calls of a tool need an approval; the later, the stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// None.
    #[default]
    Never,
    /// Those that may destroy something.
    Destructive,
    /// All.
    Always,
}

/// What is declared of a tool's effects, in the protocol's own annotations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    /// Whether the user said so, and not only the server.
    pub is_vouched: bool,
}

/// Verbs that take something away for good. A tool whose name says one of them needs an approval even where its server
/// declares it harmless: a lie costs its author nothing, and the approval of an honest one costs a person one look.
const VERBS: [&str; 30] = [
    "clear",
    "del",
    "delete",
    "demolish",
    "deprovision",
    "destroy",
    "discard",
    "drop",
    "empty",
    "erase",
    "expunge",
    "flush",
    "force",
    "format",
    "kill",
    "nuke",
    "obliterate",
    "overwrite",
    "purge",
    "remove",
    "reset",
    "revoke",
    "rm",
    "rmdir",
    "shred",
    "terminate",
    "truncate",
    "uninstall",
    "unlink",
    "wipe",
];

impl Rule {
    /// Whether a call needs an approval. `names` are those of the tool: its server's, and the one it is shown under.
    pub fn covers(self, declared: Declared, names: &[&str]) -> bool {
        match self {
            Rule::Never => false,
            Rule::Always => true,
            Rule::Destructive => is_destructive(declared, names),
        }
    }
}

/// As the protocol has it, a tool is destructive unless it is declared read-only or not destructive. Names speak against
/// what a server declares, and not against what the user does.
fn is_destructive(declared: Declared, names: &[&str]) -> bool {
    let is_harmless = declared.read_only == Some(true) || declared.destructive == Some(false);
    !is_harmless || !declared.is_vouched && names.iter().any(|name| says_a_verb(name))
}

/// Whether one of the words of a name is such a verb: `delete_file`, `deleteFile`, `files.DELETE`.
fn says_a_verb(name: &str) -> bool {
    let mut words: Vec<String> = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let begins = c.is_uppercase() && !before.is_uppercase();
        if !c.is_alphabetic() || begins {
            words.push(String::new());
        }
        if c.is_alphabetic() {
            words.last_mut().expect("never empty").extend(c.to_lowercase());
        }
        before = c;
    }
    words.iter().any(|word| VERBS.contains(&word.as_str()))
}

/// What a person is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    pub server: &'a str,
    /// What the server is: an approval for one program says nothing of another that takes its name.
    pub made_by: &'a str,
    /// The tool, as its server calls it.
    pub tool: &'a str,
    /// Of the arguments as they would be sent.
    pub digest: &'a str,
}

/// How long an answer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// For one call, made before this time.
    Once { until_ms: u64 },
    /// For every call before this time.
    Until { ms: u64 },
    /// Until it is revoked.
    Always,
}

impl Lasting {
    /// Whether it counts no more.
    pub fn is_over(self, now_ms: u64) -> bool {
        match self {
            Lasting::Once { until_ms: until } | Lasting::Until { ms: until } => now_ms >= until,
            Lasting::Always => false,
        }
    }
}

/// An answer that a person gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub server: String,
    pub made_by: String,
    pub tool: String,
    /// The arguments it is for; none where it is for all.
    pub digest: Option<String>,
    pub lasting: Lasting,
    /// Whether the call may run.
    pub is_yes: bool,
}

impl Answer {
    /// Whether it is about this call, whatever its answer.
    pub fn is_about(&self, subject: &Subject<'_>) -> bool {
        self.server == subject.server
            && self.made_by == subject.made_by
            && self.tool == subject.tool
            && self.digest.as_deref().is_none_or(|digest| digest == subject.digest)
    }
}

/// What becomes of a call that needs an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The answer at this place allows it; one for a single call is used up by it.
    Allow(usize),
    /// A person said no a moment ago.
    Refuse,
    /// Nobody said anything that counts.
    Ask,
}

/// Decides on a call by the answers given so far. An approval for longer is used before one for a single call, which
/// stays for another time. A refusal of these arguments counts more than an approval of any arguments.
pub fn decide(subject: &Subject<'_>, answers: &[Answer], now_ms: u64) -> Decision {
    let counts = |answer: &&Answer| !answer.lasting.is_over(now_ms) && answer.is_about(subject);
    if answers.iter().filter(counts).any(|answer| !answer.is_yes) {
        return Decision::Refuse;
    }
    let yes = |wants_once: bool| {
        answers.iter().position(|answer| {
            let is_once = matches!(answer.lasting, Lasting::Once { .. });
            counts(&answer) && answer.is_yes && is_once == wants_once
        })
    };
    yes(false).or_else(|| yes(true)).map_or(Decision::Ask, Decision::Allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(read_only: Option<bool>, destructive: Option<bool>) -> Declared {
        Declared { read_only, destructive, is_vouched: false }
    }

    #[test]
    fn a_tool_is_destructive_unless_it_is_declared_harmless_and_its_name_agrees() {
        let (yes, no) = (Some(true), Some(false));
        for (read_only, destructive, name, expect) in [
            // Nothing declared: the protocol's default.
            (None, None, "write_file", true),
            (None, yes, "write_file", true),
            (no, None, "write_file", true),
            (None, no, "write_file", false),
            (no, no, "write_file", false),
            (yes, None, "read_file", false),
            // What is read-only destroys nothing, whatever else is declared.
            (yes, yes, "read_file", false),
            // A liar.
            (yes, None, "delete_file", true),
            (yes, no, "deleteFile", true),
            (None, no, "files.DELETE", true),
            (yes, None, "rm", true),
            (yes, None, "dropTable", true),
            (yes, None, "wipe-disk2", true),
            // Not the verb.
            (yes, None, "list_deleted", false),
            (yes, None, "get_dropdown", false),
            (yes, None, "information", false),
        ] {
            let declared = declared(read_only, destructive);
            assert_eq!(Rule::Destructive.covers(declared, &[name]), expect, "{name} {declared:?}");
            assert!(Rule::Always.covers(declared, &[name]));
            assert!(!Rule::Never.covers(declared, &[name]));
        }
    }

    #[test]
    fn what_the_user_declares_counts_more_than_a_name() {
        let vouched =
            |destructive| Declared { destructive, is_vouched: true, ..Default::default() };
        assert!(!Rule::Destructive.covers(vouched(Some(false)), &["delete_draft"]));
        assert!(Rule::Destructive.covers(vouched(Some(true)), &["draft"]));
        // Another name does not hide the server's own.
        let lying = declared(Some(true), None);
        assert!(Rule::Destructive.covers(lying, &["delete_file", "tidy"]));
        assert!(Rule::Destructive.covers(lying, &["tidy", "delete_file"]));
        assert!(!Rule::Destructive.covers(lying, &["tidy", "look"]));
    }

    const SUBJECT: Subject<'_> =
        Subject { server: "files", made_by: "p1", tool: "delete", digest: "d1" };

    fn answer(digest: Option<&str>, lasting: Lasting, is_yes: bool) -> Answer {
        Answer {
            server: "files".into(),
            made_by: "p1".into(),
            tool: "delete".into(),
            digest: digest.map(str::to_owned),
            lasting,
            is_yes,
        }
    }

    #[test]
    fn an_approval_covers_exactly_what_it_was_given_for() {
        let once = answer(Some("d1"), Lasting::Once { until_ms: 100 }, true);
        assert_eq!(decide(&SUBJECT, std::slice::from_ref(&once), 99), Decision::Allow(0));
        // Later, other arguments, another tool, another server, another program under the same name.
        assert_eq!(decide(&SUBJECT, std::slice::from_ref(&once), 100), Decision::Ask);
        for other in [
            Subject { digest: "d2", ..SUBJECT },
            Subject { tool: "delete_all", ..SUBJECT },
            Subject { server: "files2", ..SUBJECT },
            Subject { made_by: "p2", ..SUBJECT },
        ] {
            assert_eq!(decide(&other, std::slice::from_ref(&once), 0), Decision::Ask, "{other:?}");
        }
        let any = answer(None, Lasting::Always, true);
        let other = Subject { digest: "d2", ..SUBJECT };
        assert_eq!(decide(&other, std::slice::from_ref(&any), u64::MAX), Decision::Allow(0));
        let foreign = Subject { made_by: "p2", ..SUBJECT };
        assert_eq!(decide(&foreign, &[any], 0), Decision::Ask);
        assert_eq!(decide(&SUBJECT, &[], 0), Decision::Ask);
    }

    #[test]
    fn the_longest_approval_is_used_and_a_refusal_counts_most() {
        let once = answer(Some("d1"), Lasting::Once { until_ms: 100 }, true);
        let hour = answer(Some("d1"), Lasting::Until { ms: 50 }, true);
        let rule = answer(None, Lasting::Always, true);
        let both = [once.clone(), hour.clone()];
        assert_eq!(decide(&SUBJECT, &both, 0), Decision::Allow(1));
        assert_eq!(decide(&SUBJECT, &both, 50), Decision::Allow(0));
        let no = answer(Some("d1"), Lasting::Until { ms: 10 }, false);
        let all = [once, hour, rule, no];
        assert_eq!(decide(&SUBJECT, &all, 9), Decision::Refuse);
        assert_eq!(decide(&SUBJECT, &all, 10), Decision::Allow(1));
        let other = Subject { digest: "d2", ..SUBJECT };
        assert_eq!(decide(&other, &all, 0), Decision::Allow(2));
    }
}
