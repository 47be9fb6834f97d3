//! Which calls of a server need a person's approval: its own rule, the user's where a project replaced the server, and
//! the rule for everything.
//! Owns: how these rules combine.      Never: decides on a call, knows what a tool does.
//! In: rules of files and settings.  Out: the rule of one tool.
//! Tests: below, `metamcp/tests/config/approve.rs`.

use metamcp_types::pattern::Pattern;

use super::{ServerConfig, ServerOrigin};
use crate::settings::{ApprovalSettings, Approve, Given, Value};

/// The rule that a server's entry gives itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApproveRule {
    /// For every tool not named below; none where the rule for everything holds.
    pub default: Option<Approve>,
    /// Exceptions in file order; an exact name goes before a pattern, then the first that fits.
    pub per_tool: Vec<(Pattern, Approve)>,
}

impl ApproveRule {
    /// The rule for one tool, if there is one here.
    fn for_tool(&self, tool: &str) -> Option<Approve> {
        let exact = self.per_tool.iter().find(|(pattern, _)| pattern.as_str() == tool);
        let fitting = || self.per_tool.iter().find(|(pattern, _)| pattern.matches(tool));
        exact.or_else(fitting).map(|(_, rule)| *rule).or(self.default)
    }
}

/// The rule for everything: what the settings say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Everywhere {
    pub rule: Approve,
    /// Tools that always need an approval: `server:tool`, or a tool's name.
    pub always: Vec<Pattern>,
}

impl From<&ApprovalSettings> for Everywhere {
    fn from(settings: &ApprovalSettings) -> Everywhere {
        let names = settings.always.split(',').map(str::trim).filter(|name| !name.is_empty());
        Everywhere { rule: settings.rule, always: names.map(Pattern::new).collect() }
    }
}

/// All rules of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalRules {
    /// What its entry says.
    pub own: ApproveRule,
    /// What the user's entry of this name says, where a project's took its place.
    pub users: Option<ApproveRule>,
    pub everywhere: Everywhere,
}

impl ServerConfig {
    /// Which calls of a tool need an approval. The tool is named as its server names it, so that no other name leads
    /// around a rule. A project's file can make what the user has stricter, and nothing less strict.
    pub fn approve(&self, tool: &str) -> Approve {
        let ApprovalRules { own, users, everywhere } = &self.approvals;
        let id = format!("{}:{tool}", self.name);
        let is_meant = |pattern: &Pattern| {
            pattern.matches(&id) || !pattern.as_str().contains(':') && pattern.matches(tool)
        };
        if everywhere.always.iter().any(is_meant) {
            return Approve::Always;
        }
        let own = own.for_tool(tool);
        if self.origin != ServerOrigin::Project {
            return own.unwrap_or(everywhere.rule);
        }
        let users = users.as_ref().and_then(|users| users.for_tool(tool));
        users.unwrap_or(everywhere.rule).max(own.unwrap_or_default())
    }

    /// Whether any call may need an approval.
    pub fn may_need_approval(&self) -> bool {
        let ApprovalRules { own, users, everywhere } = &self.approvals;
        let is_strict = |rule: &ApproveRule| {
            rule.default.is_some_and(|rule| rule != Approve::Never)
                || rule.per_tool.iter().any(|(_, rule)| *rule != Approve::Never)
        };
        everywhere.rule != Approve::Never
            || !everywhere.always.is_empty()
            || is_strict(own)
            || users.as_ref().is_some_and(is_strict)
    }
}

/// What of a project's settings may count, beside what is in force without them: nothing that lets more calls run without
/// an approval. `now` are the values without the project's. Returns also the keys that do not count.
pub fn tightened(given: Vec<Given>, now: &[Given]) -> (Vec<Given>, Vec<&'static str>) {
    let mut ignored = Vec::new();
    let kept = given.into_iter().filter_map(|given| {
        let before = now.iter().find(|one| one.setting == given.setting);
        let before = before.map(|one| one.value.text()).unwrap_or_default();
        match given.setting.flag {
            "approve" => {
                let rule = |word: &str| Approve::from_word(word).unwrap_or_default();
                let is_stricter = rule(&given.value.text()) >= rule(&before);
                if !is_stricter {
                    ignored.extend(given.setting.key);
                }
                is_stricter.then_some(given)
            }
            "approve-always" => {
                let all = format!("{before},{}", given.value.text());
                Some(Given { value: Value::Text(all.into()), ..given })
            }
            "approval-wait" => {
                ignored.extend(given.setting.key);
                None
            }
            _ => Some(given),
        }
    });
    (kept.collect(), ignored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Origin, SETTINGS};

    use Approve::{Always, Destructive, Never};

    fn rule(default: Option<Approve>, per_tool: &[(&str, Approve)]) -> ApproveRule {
        let per_tool = per_tool.iter().map(|(name, rule)| (Pattern::new(*name), *rule)).collect();
        ApproveRule { default, per_tool }
    }

    fn server(origin: ServerOrigin, approvals: ApprovalRules) -> ServerConfig {
        ServerConfig { origin, approvals, ..ServerConfig::stdio("files", "x", &[]) }
    }

    fn everywhere(rule: Approve, always: &str) -> Everywhere {
        let always = always.to_owned();
        Everywhere::from(&ApprovalSettings { rule, always, ..ApprovalSettings::default() })
    }

    #[test]
    fn a_users_own_rules_go_from_exact_to_general() {
        let own = rule(Some(Always), &[("read_*", Never), ("read_secret", Destructive)]);
        let rules =
            ApprovalRules { own, users: None, everywhere: everywhere(Destructive, "web:*,  send") };
        let files = server(ServerOrigin::User, rules);
        assert_eq!(files.approve("write"), Always);
        assert_eq!(files.approve("read_all"), Never);
        assert_eq!(files.approve("read_secret"), Destructive);
        assert_eq!(files.approve("send"), Always);
        let plain = ApprovalRules {
            everywhere: everywhere(Destructive, "files:re*"),
            ..Default::default()
        };
        let files = server(ServerOrigin::User, plain);
        assert_eq!((files.approve("write"), files.approve("read")), (Destructive, Always));
        // The list for everything is not undone by a server's own rule.
        let own = rule(Some(Never), &[]);
        let rules = ApprovalRules { own, users: None, everywhere: everywhere(Never, "files:re*") };
        assert_eq!(server(ServerOrigin::User, rules).approve("read"), Always);
        assert!(!server(ServerOrigin::User, ApprovalRules::default()).may_need_approval());
    }

    #[test]
    fn a_rule_in_the_wrong_place_is_an_error() {
        let parse = |text: &str| crate::config::parse(text, &|_| None);
        assert!(parse(r#"{ "mcpServers": {}, "approve": "always" }"#).is_err());
        assert!(parse(r#"{ "mcpServers": {}, "approvals": { "rule": "sometimes" } }"#).is_err());
        let slip = parse(r#"{ "mcpServers": { "a": { "command": "x", "aprove": "always" } } }"#);
        assert!(!slip.unwrap().config.server("a").unwrap().is_enabled());
    }

    #[test]
    fn a_project_only_makes_rules_stricter() {
        for general in [Never, Destructive, Always] {
            for own in [None, Some(Never), Some(Destructive), Some(Always)] {
                let approvals = |users: Option<ApproveRule>| ApprovalRules {
                    own: rule(own, &[]),
                    users,
                    everywhere: everywhere(general, ""),
                };
                // A server that only the project has: the user's rule for everything is the least.
                let new = server(ServerOrigin::Project, approvals(None));
                assert_eq!(new.approve("x"), general.max(own.unwrap_or(Never)));
                assert_eq!(new.may_need_approval(), new.approve("x") != Never);
                for users in [Never, Destructive, Always] {
                    let users_rule = rule(None, &[("x", users)]);
                    let replaced = server(ServerOrigin::Project, approvals(Some(users_rule)));
                    assert_eq!(replaced.approve("x"), users.max(own.unwrap_or(Never)));
                    assert_eq!(replaced.approve("y"), general.max(own.unwrap_or(Never)));
                }
            }
        }
    }

    #[test]
    fn settings_of_a_project_only_make_rules_stricter() {
        let given = |flag: &str, text: &'static str| {
            let setting = SETTINGS.iter().find(|one| one.flag == flag).unwrap();
            let value =
                if flag == "approve" { Value::Word(text) } else { Value::Text(text.into()) };
            Given { setting, value, origin: Origin::Default }
        };
        let now = [given("approve", "destructive"), given("approve-always", "send")];
        let said = |project: Vec<Given>| {
            let (kept, ignored) = tightened(project, &now);
            let kept: Vec<String> = kept.iter().map(|one| one.value.text().into_owned()).collect();
            (kept, ignored)
        };
        assert_eq!(said(vec![given("approve", "never")]), (vec![], vec!["approvals.rule"]));
        assert_eq!(said(vec![given("approve", "always")]), (vec!["always".to_owned()], vec![]));
        assert_eq!(
            said(vec![given("approve-always", "mail:*")]),
            (vec!["send,mail:*".to_owned()], vec![])
        );
        assert_eq!(said(vec![given("approval-wait", "1")]), (vec![], vec!["approvals.waitMs"]));
        assert_eq!(said(vec![given("toolset", "x")]), (vec!["x".to_owned()], vec![]));
    }
}
