//! Well-known servers, each checked to exist at its version, with the hash it had then.

use super::candidate::{Argument, Candidate, Input, Kind, Offer, Source, Status};

/// Arguments that are secret whatever they are called: the address of a database holds its password.
const SECRET: [&str; 1] = ["connection"];

/// One line of the list.
struct Known {
    kind: Kind,
    package: &'static str,
    version: &'static str,
    integrity: &'static str,
    about: &'static str,
    /// Fixed arguments.
    fixed: &'static [&'static str],
    /// Name, flag and meaning of an argument it cannot do without.
    asked: Option<(&'static str, Option<&'static str>, &'static str)>,
    /// Variables, with whether it cannot do without.
    environment: &'static [(&'static str, bool, &'static str)],
    /// What variables are filled in with where nobody gives one.
    filled: &'static [(&'static str, &'static str)],
}

const KNOWN: &[Known] = &[
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-filesystem",
        version: "2026.8.31",
        integrity: "sha512-kKaFkyAh6oipvc9+EAbJ552JafnMnOq5nzmzWkp1jJdBhTAAGpmIpWihUG1+rfNhmEFM98gUZDdCHCDD4v6a7Q==",
        about: "Read, write, edit, move and search files and directories on this machine",
        fixed: &[],
        asked: Some(("directory", None, "a directory it may work in")),
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-memory",
        version: "2026.8.31",
        integrity: "sha512-ljj/3S4aGjxdNSQWw6gucKKGnTLdBPWxzapyY/MT2tOVyZwvxChvevXSLPwx59nKJAlVpUVW+cOlnVRXRwiqMQ==",
        about: "Remember facts across conversations in a knowledge graph of entities, relations and observations",
        fixed: &[],
        asked: None,
        environment: &[("MEMORY_FILE_PATH", false, "where the graph is stored")],
        // By default it is stored beside its program, which it may not write.
        filled: &[("MEMORY_FILE_PATH", "${data}/memory.jsonl")],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-github",
        version: "2025.4.8",
        integrity: "sha512-8N43bQw9MlUB0piTZHK2JMh8kYPKxH57d4Z7Wb8PS4by2MkZ0FzI5xPImg3xumpev82VZw2VWHQJJJYp+WkwEw==",
        about: "GitHub repositories, files, issues, pull requests, branches and code search",
        fixed: &[],
        asked: None,
        environment: &[("GITHUB_PERSONAL_ACCESS_TOKEN", true, "a token of your GitHub account")],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-gitlab",
        version: "2025.4.25",
        integrity: "sha512-IQY57XkHjaIcSOWi+Qs9w8ZZMqhz5YOYOkU3v1CTbHU8rcIm/NhtX4/7XBeFRgXwRpvTuGP+WdnWg+1hH/wJdw==",
        about: "GitLab projects, files, issues, merge requests and branches",
        fixed: &[],
        asked: None,
        environment: &[
            ("GITLAB_PERSONAL_ACCESS_TOKEN", true, "a token of your GitLab account"),
            ("GITLAB_API_URL", false, "the address of your GitLab"),
        ],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-google-maps",
        version: "0.6.2",
        integrity: "sha512-XMC0zJL88wnNVNAPveztKXoqKQ8cSDvErJookZGqAKUvFZQXBuRT3Al5NZri+GrfIACD26zs+A1+Bdqf5bSkDw==",
        about: "Google Maps: geocoding, directions, distances, elevation and places",
        fixed: &[],
        asked: None,
        environment: &[("GOOGLE_MAPS_API_KEY", true, "a key of the Maps API")],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-postgres",
        version: "0.6.2",
        integrity: "sha512-ukbVmVxLAsdZ5pTVWbhf9fc7lqkSf7XqizNH8XAotI21GnRPtkqO+WLWpeBFU+/2Fyv63uXS7/9NnR8Y8wOP1Q==",
        about: "Query a PostgreSQL database, read only, and inspect its schemas",
        fixed: &[],
        asked: Some(("connection", None, "the address of the database, postgresql://host/name")),
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-slack",
        version: "2025.4.25",
        integrity: "sha512-9WBjnxl4OgYZ1kKBqUmHbd2XVoqtnO9u8kaxSaGb4NAWf2Q4D/LV6FoJUAHPPcvKcB7AQLNJa8KO3yNOcU6fvQ==",
        about: "Slack: list channels, post and reply to messages, add reactions, read history and users",
        fixed: &[],
        asked: None,
        environment: &[
            ("SLACK_BOT_TOKEN", true, "the token of a bot"),
            ("SLACK_TEAM_ID", true, "the workspace"),
        ],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-sequential-thinking",
        version: "2026.8.31",
        integrity: "sha512-/EMH++1j2e+VmHwpibw1IUPHxA0tcQY09Yo5/OIPwW/8irEKLAufJNGSZQhCK18n8TUvV6WwZyQOuaDKxe/CeQ==",
        about: "Think through a problem step by step, revising and branching thoughts",
        fixed: &[],
        asked: None,
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@modelcontextprotocol/server-everything",
        version: "2026.8.31",
        integrity: "sha512-5U3OZh8Xq0Li4nA26l6uNvV9/1suMDuWSn+NjLZIhzinhMY6N3A4DCrxVecBGPf2PsNFKTEv5krxGPRwzxc7jQ==",
        about: "A test server that exercises every feature of the protocol: echo, add, long running operations, images",
        fixed: &[],
        asked: None,
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@brave/brave-search-mcp-server",
        version: "2.1.4",
        integrity: "sha512-a34HBs6os4Ilp0yHPV/j3UrgBQH1uTDLsNA9y5IlO30RCYUFm9QPfC0coh2c7WEDxKcHuWjVsrfuXIJNheu9YA==",
        about: "Search the web, news, images, videos and local places with Brave Search",
        fixed: &[],
        asked: None,
        environment: &[("BRAVE_API_KEY", true, "a key of the Brave Search API")],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@playwright/mcp",
        version: "0.0.83",
        integrity: "sha512-oNcl+Ae2/IAjhfPeP46BfIkSakfmprY+aOtkv5MjrQ4lPav4/yNtPhL0iq8SlIM90oApWgBDUxaNKvktazUKOg==",
        about: "Drive a web browser: open pages, click, type, fill forms, take screenshots and snapshots",
        fixed: &["--headless"],
        asked: None,
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@stripe/mcp",
        version: "0.3.3",
        integrity: "sha512-Ra7keWg5GKDQ7RUIDa8L3ClKMsmhsJVAXG2/rYeaICEHjyMHYhD9KL2BWVqOqr1IjQwhnA8qbf+Tnb4x09DLyQ==",
        about: "Stripe payments: customers, products, prices, invoices, subscriptions, refunds and balance",
        fixed: &["--tools=all"],
        asked: None,
        environment: &[("STRIPE_SECRET_KEY", true, "a restricted key of your Stripe account")],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@sentry/mcp-server",
        version: "0.39.0",
        integrity: "sha512-sJzFkzka+1wkrCk+v/uWvl3lB0Kcu6Mb/jxlnOZyifJKhTpWv1gF6pJEmAGmf19s2f0ARAw6CsDaYuhGN+I4bw==",
        about: "Sentry: look into issues, errors, events, releases and projects",
        fixed: &[],
        asked: None,
        environment: &[
            ("SENTRY_ACCESS_TOKEN", true, "a token of your Sentry account"),
            ("SENTRY_HOST", false, "the host of your own Sentry"),
        ],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "mcp-server-kubernetes",
        version: "4.1.7",
        integrity: "sha512-c6rNCdzBBIUO3mpOSKCJjqJMpRyEJEyf3l+iw8xg/+KzThOrPVaPdxpsEvgzq8gCwKprwVL+wJUGLwuRspuwuA==",
        about: "Manage a Kubernetes cluster: pods, deployments, services, logs, helm charts, kubectl",
        fixed: &[],
        asked: None,
        environment: &[(
            "KUBECONFIG",
            true,
            "the file that says how to reach the cluster, usually .kube/config in your home",
        )],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "mcp-server-linear",
        version: "1.6.0",
        integrity: "sha512-U5yZsNOImvL0S1P8BqDOFDKJXxgI8HjEx7fbvGEuS3W/orKIwF/hw+wGYmjT+A/M2UUSbjVTcTkrZ0w4uZmRFw==",
        about: "Linear: search, create and update issues, projects and teams",
        fixed: &[],
        asked: None,
        environment: &[("LINEAR_ACCESS_TOKEN", true, "a token of your Linear account")],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@upstash/context7-mcp",
        version: "4.1.1",
        integrity: "sha512-fUARTIZGVKzlzQKDhKUg4aIQ3yEU/12STdfxJDDnLMSN7yyHiPvNHI05iFwxkv3vC8G76Wp27MwK6Jucl/C5pA==",
        about: "Documentation and code examples of programming libraries, up to date and by version",
        fixed: &[],
        asked: None,
        environment: &[("CONTEXT7_API_KEY", false, "raises the rate limit")],
        filled: &[],
    },
    Known {
        kind: Kind::Npm,
        package: "@notionhq/notion-mcp-server",
        version: "2.5.2",
        integrity: "sha512-5nPSwHMnugSGAhSJS5vVIlMao+iTJO9HoWGpCnT8lJNrPy3rZMqs1V/CPiN4MuxF+5EBgRE/f/Tirl6Wfi75Mg==",
        about: "Notion: search, read, create and update pages, databases, blocks and comments",
        fixed: &[],
        asked: None,
        environment: &[("NOTION_TOKEN", true, "the token of an integration")],
        filled: &[],
    },
    Known {
        kind: Kind::Pypi,
        package: "mcp-server-time",
        version: "2026.8.18",
        integrity: "sha256:1407583af42dc0163909d855c9ef20114a12b4981c3975033721a7906cdd212a",
        about: "Current time in any time zone, and conversion of times between time zones",
        fixed: &[],
        asked: None,
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Pypi,
        package: "mcp-server-fetch",
        version: "2026.8.18",
        integrity: "sha256:6642df733a1032e7f37d0f13849af8a944d46c02420d2c070cc14e0948f8fcc2",
        about: "Fetch a web page by its URL and turn it into markdown for reading",
        fixed: &[],
        asked: None,
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Pypi,
        package: "mcp-server-git",
        version: "2026.8.18",
        integrity: "sha256:6c32a8e771564122a9bafac373cf871fb3ab540ddc1ba0ee8e9c8c6e9878aef7",
        about: "Work with a local git repository: status, diff, log, add, commit, branch, checkout",
        fixed: &[],
        asked: Some(("repository", Some("--repository"), "the folder of the repository")),
        environment: &[],
        filled: &[],
    },
    Known {
        kind: Kind::Pypi,
        package: "mcp-server-sqlite",
        version: "2025.4.25",
        integrity: "sha256:5ba5706aa29d249a3cde8226577e021c07792d3198e9db40fd005578d2a0801d",
        about: "Query and change a SQLite database, create tables, describe its schema",
        fixed: &[],
        asked: Some(("db-path", Some("--db-path"), "the file of the database")),
        environment: &[],
        filled: &[],
    },
];

/// All of them.
pub fn builtin() -> Vec<Candidate> {
    KNOWN.iter().map(Known::candidate).collect()
}

impl Known {
    fn filled(&self, name: &str) -> Option<String> {
        let found = self.filled.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }

    fn candidate(&self) -> Candidate {
        let input = |name: &str, required: bool, about: &str| Input {
            name: name.to_owned(),
            description: about.to_owned(),
            required,
            secret: metamcp_types::secret::names_a_secret(name) || SECRET.contains(&name),
            default: None,
        };
        let asked = self.asked.map(|(name, flag, about)| Argument::Asked {
            flag: flag.map(str::to_owned),
            input: input(name, true, about),
        });
        let fixed = self.fixed.iter().map(|word| Argument::Fixed((*word).to_owned()));
        Candidate {
            name: self.package.to_owned(),
            title: None,
            description: self.about.to_owned(),
            source: Source::Builtin,
            status: Status::Active,
            published: None,
            offer: Offer {
                kind: self.kind,
                identifier: self.package.to_owned(),
                version: self.version.to_owned(),
                integrity: Some(self.integrity.to_owned()),
                arguments: fixed.chain(asked).collect(),
                environment: self
                    .environment
                    .iter()
                    .map(|(name, required, about)| Input {
                        default: self.filled(name),
                        ..input(name, *required, about)
                    })
                    .collect(),
                runtime_arguments: Vec::new(),
            },
        }
    }
}
