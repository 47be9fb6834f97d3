//! Which of the gateway's own variables a server gets beside those of its `env`.
//! Owns: the three choices and how they combine.      Never: reads a variable, knows the lists behind each choice.
//! In: names as configured.  Out: whether a variable passes.
//! Tests: below.

use crate::pattern::Pattern;

/// The word for every variable.
const ALL: &str = "all";

/// Which variables are passed on. What the lists behind each of them hold is for those to say who start the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PassEnv {
    /// What no program works without: for servers that the gateway itself installed.
    #[default]
    Least,
    /// What a developer's tools need as well, and every variable that is named here.
    Usual(Vec<Pattern>),
    /// All of them.
    All,
}

impl PassEnv {
    /// Reads names, in which `*` stands for anything; one of them may be `all`.
    pub fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> PassEnv {
        let names: Vec<&str> = names.into_iter().map(str::trim).collect();
        if names.iter().any(|name| name.eq_ignore_ascii_case(ALL)) {
            return PassEnv::All;
        }
        let names = names.into_iter().filter(|name| !name.is_empty());
        PassEnv::Usual(names.map(Pattern::new).collect())
    }

    /// Reads a setting: names with commas between them.
    pub fn from_text(text: &str) -> PassEnv {
        PassEnv::named(text.split(','))
    }

    /// The same with the global setting. `Least` is never widened: it is a security boundary.
    pub fn with(&self, global: &PassEnv) -> PassEnv {
        match (self, global) {
            (PassEnv::Least, _) => PassEnv::Least,
            (PassEnv::All, _) | (_, PassEnv::All) => PassEnv::All,
            (PassEnv::Usual(own), PassEnv::Usual(more)) => {
                PassEnv::Usual(own.iter().chain(more).cloned().collect())
            }
            (PassEnv::Usual(own), PassEnv::Least) => PassEnv::Usual(own.clone()),
        }
    }

    /// The same where names that differ by case alone mean the same variable, as on Windows.
    pub fn names_in_any_case(&self, variable: &str) -> bool {
        let upper = |name: &str| name.to_ascii_uppercase();
        match self {
            PassEnv::Usual(names) => {
                let variable = upper(variable);
                names.iter().any(|name| Pattern::new(upper(name.as_str())).matches(&variable))
            }
            PassEnv::Least | PassEnv::All => self.names(variable),
        }
    }

    /// Whether a variable was named, or all were.
    pub fn names(&self, variable: &str) -> bool {
        match self {
            PassEnv::Least => false,
            PassEnv::Usual(names) => names.iter().any(|name| name.matches(variable)),
            PassEnv::All => true,
        }
    }
}

/// What is wrong with a name, if anything.
pub fn fault(name: &str) -> Option<&'static str> {
    let name = name.trim();
    if name.is_empty() {
        Some("is empty: expected the name of a variable")
    } else if name.contains(['=', '\0', '$', '{', ',']) || name.contains(char::is_whitespace) {
        Some("is not the name of a variable; write only its name, as in \"GITHUB_TOKEN\"")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::PassEnv;

    #[test]
    fn what_is_opened_and_for_whom() {
        let one = PassEnv::named(["GITHUB_TOKEN", "AWS_*"]);
        assert!(one.names("GITHUB_TOKEN") && one.names("AWS_ACCESS_KEY_ID"));
        assert!(!one.names("GITHUB_TOKEN_2") && !one.names("github_token"));
        assert!(one.names_in_any_case("github_token") && one.names_in_any_case("aws_Region"));
        assert!(!one.names_in_any_case("GITHUB_TOKEN_2"));
        let all = PassEnv::from_text("A, all");
        assert_eq!(all, PassEnv::All);
        assert!(all.names("WHATEVER"));
        let global = PassEnv::from_text(" B ,C");
        assert!(one.with(&global).names("B") && one.with(&global).names("GITHUB_TOKEN"));
        assert_eq!(one.with(&all), PassEnv::All);
        assert_eq!(PassEnv::Least.with(&all), PassEnv::Least, "installed servers stay narrow");
        assert_eq!(PassEnv::from_text(""), PassEnv::Usual(Vec::new()));
    }
}
