//! Plans and assessments as tables; texts as users see them.

use serde_json::{Value, json};

use super::*;

const DAY: u64 = 24 * 60 * 60 * 1000;
const NOW: u64 = 400 * DAY;
const KNOWN: [&str; 4] = [
    "@modelcontextprotocol/server-filesystem",
    "@playwright/mcp",
    "mcp-server-kubernetes",
    "firecrawl-mcp",
];

fn offered(identifier: &str, version: &str) -> Candidate {
    let document = json!({ "servers": [{
        "server": {
            "name": "io.github.ada/notes",
            "description": "Keeps notes",
            "version": version,
            "packages": [{
                "registryType": "npm",
                "identifier": identifier,
                "version": version,
                "transport": { "type": "stdio" },
                "packageArguments": [
                    { "type": "named", "name": "--mode", "value": "fast" },
                    { "type": "positional", "valueHint": "folder", "description": "where notes lie", "isRequired": true },
                ],
                "environmentVariables": [
                    { "name": "NOTES_TOKEN", "isRequired": true, "isSecret": true },
                    { "name": "bad name" },
                ],
            }],
        },
        "_meta": { "io.modelcontextprotocol.registry/official": { "status": "active", "isLatest": true } },
    }] });
    page("https://registry.example.com", &document).candidates.remove(0)
}

fn good() -> Facts {
    Facts {
        exists: true,
        integrity: Some("sha512-AAAA".to_owned()),
        published: Some(NOW - 30 * DAY),
        entry: Some("dist/index.js".to_owned()),
        lock: Some(Lock {
            digest: "d1".to_owned(),
            packages: 3,
            scripted: Vec::new(),
            unpinned: Vec::new(),
            integrity: Some("sha512-AAAA".to_owned()),
            undated: Vec::new(),
            elsewhere: Vec::new(),
        }),
        ..Facts::default()
    }
}

fn assessed(candidate: &Candidate, facts: &Facts, seen: Option<&str>, trust: &Trust) -> Verdict {
    let at = Circumstances { now: NOW, least_days: 7, seen, trust, known: &KNOWN };
    assess(candidate, facts, &at)
}

fn planned() -> Plan {
    let (candidate, facts) = (offered("@ada/notes", "1.2.3"), good());
    let verdict = assessed(&candidate, &facts, None, &Trust::default());
    let prefix = "/home/ada/.metamcp/provisioned/x";
    Plan::new("notes".to_owned(), &candidate, &facts, verdict, prefix, Ok(()))
}

#[test]
fn every_bad_package_is_refused_with_its_reason() {
    let refused = |facts: Facts, seen: Option<&str>, identifier: &str| {
        let verdict = assessed(&offered(identifier, "1.2.3"), &facts, seen, &Trust::default());
        let reasons: Vec<String> = verdict.refusals.iter().map(ToString::to_string).collect();
        assert_eq!(verdict.word(), "refused");
        reasons.join("; ")
    };
    let hour = Facts { published: Some(NOW - DAY / 8), ..good() };
    insta::assert_snapshot!(refused(hour, None, "@ada/notes"), @"this version is 3 hours old, less than the minimum of 7 days: hijacked accounts are usually noticed in that time");
    let undated = Facts { published: None, ..good() };
    insta::assert_snapshot!(refused(undated, None, "@ada/notes"), @"its source does not say when this version was published");
    insta::assert_snapshot!(refused(good(), Some("sha512-BBBB"), "@ada/notes"), @"the hash of this version changed: it was sha512-BBBB and is sha512-AAAA");
    insta::assert_snapshot!(refused(Facts::default(), None, "@ada/notes"), @"npm:@ada/notes@1.2.3 does not exist at its source: it was removed, or never existed");
    insta::assert_snapshot!(refused(good(), None, "firecrawl-mpc"), @"its name resembles firecrawl-mcp, a well-known other package (typosquatting)");
    let scripted = Facts { scripts: vec!["@ada/notes: postinstall".to_owned()], ..good() };
    insta::assert_snapshot!(refused(scripted, None, "@ada/notes"), @r#"it has install scripts (@ada/notes: postinstall); list "npm:@ada/notes" under installScripts in trusted.json to allow them"#);
    let mut below = good();
    below.lock.as_mut().unwrap().scripted.push("left-pad@1.0.0".to_owned());
    assert!(refused(below, None, "@ada/notes").contains("left-pad@1.0.0: install"));
    let mut loose = good();
    loose.lock.as_mut().unwrap().unpinned.push("git-thing@1.0.0".to_owned());
    assert!(refused(loose, None, "@ada/notes").contains("git-thing@1.0.0 is not pinned"));
    let mut other = good();
    other.lock.as_mut().unwrap().integrity = Some("sha512-CCCC".to_owned());
    assert!(refused(other, None, "@ada/notes").contains("changed"));
}

#[test]
fn what_was_deleted_stays_refused_and_what_is_trusted_needs_no_question() {
    let mut deleted = offered("@ada/notes", "1.2.3");
    deleted.status = Status::Deleted("malware".to_owned());
    let trust = Trust::read(br#"{"publishers": ["npm:@ada"]}"#).unwrap();
    let verdict = assessed(&deleted, &good(), None, &trust);
    assert_eq!(verdict.word(), "refused");
    let mut bare = offered("@ada/notes", "1.2.3");
    bare.offer.arguments.clear();
    bare.offer.environment.clear();
    assert_eq!(assessed(&bare, &good(), None, &trust).word(), "trusted");
    // Who owns one scope owns no other, and no name without one.
    for other in ["@adaa/notes", "ada-notes"] {
        assert_eq!(
            assessed(&offered(other, "1.2.3"), &good(), None, &trust).word(),
            "needs approval"
        );
    }
    let agreed = Trust::read(br#"{"installScripts": ["npm:@ada/notes"]}"#).unwrap();
    let scripted = Facts { scripts: vec!["@ada/notes: install".to_owned()], ..good() };
    let verdict = assessed(&offered("@ada/notes", "1.2.3"), &scripted, None, &agreed);
    assert!(verdict.scripts_agreed && verdict.refusals.is_empty());
    let planned = |sandbox_available| {
        let (entry, verdict) = (offered("@ada/notes", "1.2.3"), verdict.clone());
        told(&Plan::new("notes".to_owned(), &entry, &scripted, verdict, "/x", sandbox_available))
    };
    assert!(planned(Ok(())).contains("its install scripts run sandboxed as well"));
    let bare = planned(Err("there are none".to_owned()));
    assert!(bare.contains("its install scripts run WITHOUT a sandbox"), "{bare}");
    assert!(Trust::read(b"{\"publishers\": 7}").is_err());
}

#[test]
fn names_that_pretend_are_told_from_names_that_are() {
    for (name, of) in [
        ("server-filesystem", Some(KNOWN[0])),
        ("modelcontextprotocol-server-filesystem", Some(KNOWN[0])),
        ("modelcontextprotocol_server-fi1esystem", Some(KNOWN[0])),
        ("@modelcontextprotoco1/server-anything", Some(KNOWN[0])),
        ("@modelcontextprotcol/server-filesystem", Some(KNOWN[0])),
        ("mcp-server-kubernetesx", Some(KNOWN[2])),
        ("mcp-server-kubernettes", Some(KNOWN[2])),
        ("@modelcontextprotocol/server-new", None),
        ("mcp-server-kubernetes", None),
        ("@ada/mcp", None),
        ("weather-mcp", None),
    ] {
        assert_eq!(look_alike(name, KNOWN), of, "{name}");
    }
}

#[test]
fn nothing_but_names_reaches_a_client() {
    for (kind, name, version) in [
        (Kind::Npm, "--node-options", "1.0.0"),
        (Kind::Npm, "a;rm -rf ~", "1.0.0"),
        (Kind::Npm, "$(id)", "1.0.0"),
        (Kind::Npm, "name\0", "1.0.0"),
        (Kind::Npm, "name\n", "1.0.0"),
        (Kind::Npm, "../../x", "1.0.0"),
        (Kind::Npm, "@/x", "1.0.0"),
        (Kind::Npm, "git+ssh://x", "1.0.0"),
        (Kind::Npm, "name", "latest"),
        (Kind::Npm, "name", "^1.0.0"),
        (Kind::Npm, "name", "1.0.0 || 2"),
        (Kind::Npm, "name", ""),
        (Kind::Pypi, "name[extra]", "1.0"),
        (Kind::Pypi, "name @ https://x", "1.0"),
        (Kind::Pypi, "-r", "1.0"),
        (Kind::Oci, "ghcr.io/a/b:latest", ""),
        (
            Kind::Oci,
            "evil.example.com/a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "",
        ),
        (
            Kind::Oci,
            "--privileged@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "",
        ),
        (Kind::Remote, "http://a.example.com/mcp", ""),
        (Kind::Remote, "https://{tenant}.example.com/mcp", ""),
        (Kind::Remote, "https://localhost/mcp", ""),
        (Kind::Remote, "javascript:alert(1)", ""),
    ] {
        assert!(valid(kind, name, version).is_err(), "{name} {version}");
    }
    assert!(valid(Kind::Npm, "@scope/some.name_x", "1.0.0-beta.1").is_ok());
    assert!(valid(Kind::Pypi, "mcp-server-time", "2026.8.18").is_ok());
    assert!(valid(Kind::Remote, "https://mcp.example.com/mcp", "").is_ok());
    let docker = format!("ghcr.io/a/b@sha256:{}", "0".repeat(64));
    assert!(valid(Kind::Oci, &docker, "").is_ok());
}

#[test]
fn a_command_line_comes_from_the_table_and_paths_stay_inside() {
    let view = |bin: Value| {
        let document = json!({ "name": "@ada/notes", "version": "1.2.3", "bin": bin, "dist": { "integrity": "sha512-AAAA" } });
        npm_view("@ada/notes", "1.2.3", &document).entry
    };
    assert_eq!(view(json!("./cli.js")).as_deref(), Some("cli.js"));
    assert_eq!(view(json!({ "a": "x.js", "notes": "y.js" })).as_deref(), Some("y.js"));
    assert_eq!(view(json!({ "a": "x.js", "b": "y.js" })), None);
    for bad in ["../../../bin/sh", "/bin/sh", "a/../../b", "C:\\x", "", "a\nb"] {
        assert_eq!(view(json!(bad)), None, "{bad}");
    }
    let argv = planned().complete(&[("folder".to_owned(), "/notes".to_owned())]).unwrap().argv;
    assert_eq!(argv[0], "node");
    assert!(argv[1].ends_with("/node_modules/@ada/notes/dist/index.js"));
    assert_eq!(argv[2..], ["--mode", "fast", "/notes"]);
    // Another version than the one asked for is none.
    assert!(!npm_view("a", "1.0.0", &json!({ "version": "1.0.1" })).exists);
}

#[test]
fn a_yes_is_for_one_plan_for_a_while() {
    let plan = planned();
    let values = vec![("folder".to_owned(), "/notes".to_owned())];
    let approval = plan.approve(values, NOW);
    assert!(plan.agreed(&approval, NOW + 60_000).is_ok());
    assert_eq!(plan.agreed(&approval, NOW + 16 * 60_000), Err(Rejected::Expired));
    assert_eq!(plan.agreed(&approval, NOW - DAY), Err(Rejected::Expired));
    let changes: [fn(&mut Plan); 17] = [
        |plan| plan.argv.push(Word::Fixed("--evil".to_owned())),
        |plan| plan.version = "1.2.4".to_owned(),
        |plan| plan.integrity = Some("sha512-BBBB".to_owned()),
        |plan| plan.environment.push(Input { name: "AWS_SECRET".to_owned(), ..Input::default() }),
        |plan| plan.lock.as_mut().unwrap().digest = "d2".to_owned(),
        |plan| plan.verdict.scripts_agreed = true,
        |plan| plan.asked[0].default = Some("/".to_owned()),
        |plan| plan.asked[0].secret = true,
        |plan| plan.environment[0].default = Some("x".to_owned()),
        |plan| plan.source = Source::Builtin,
        |plan| plan.candidate = "io.github.eve/notes".to_owned(),
        |plan| plan.server = "files".to_owned(),
        |plan| plan.kind = Kind::Pypi,
        |plan| plan.identifier = "@eve/notes".to_owned(),
        |plan| plan.prefix = "/home/ada".to_owned(),
        |plan| plan.contained = Contained::default(),
        |plan| plan.asked[0].required = false,
    ];
    for change in changes {
        let mut other = plan.clone();
        change(&mut other);
        assert_eq!(other.agreed(&approval, NOW), Err(Rejected::Other));
        assert_ne!(other.id(), plan.id());
    }
    let missing = Rejected::Missing { name: "folder".to_owned() };
    assert_eq!(plan.complete(&[]), Err(missing));
    for bad in ["--inspect=0.0.0.0", "a\0b", "a\nb"] {
        let bad = plan.complete(&[("folder".to_owned(), bad.to_owned())]);
        assert_eq!(bad, Err(Rejected::Value { name: "folder".to_owned() }));
    }
}

#[test]
fn a_trusted_publisher_is_trusted_with_what_it_wrote_itself() {
    let trust = Trust::read(br#"{"publishers": ["npm:@ada"]}"#).unwrap();
    let mut entry = offered("@ada/notes", "1.2.3");
    let verdict = assessed(&entry, &good(), None, &trust);
    assert_eq!(verdict.word(), "needs approval");
    assert!(verdict.reasons.iter().any(|reason| reason.contains("come from a registry entry")));
    entry.offer.environment.clear();
    assert_eq!(assessed(&entry, &good(), None, &trust).word(), "needs approval");
    entry.source = Source::Builtin;
    assert_eq!(assessed(&entry, &good(), None, &trust).word(), "trusted");
}

#[test]
fn a_registry_names_no_variable_that_decides_what_runs() {
    let assessed_with = |name: &str, default: Option<&str>, source: Source| {
        let mut entry = offered("@ada/notes", "1.2.3");
        let default = default.map(str::to_owned);
        let input = Input { name: name.to_owned(), default, ..Input::default() };
        entry.offer.environment = vec![input];
        entry.source = source;
        assessed(&entry, &good(), None, &Trust::default()).word()
    };
    let registry = || Source::Registry("https://registry.example.com".to_owned());
    for name in ["LD_PRELOAD", "PYTHONPATH", "GIT_SSH_COMMAND"] {
        assert_eq!(assessed_with(name, None, registry()), "refused", "{name}");
        assert_eq!(assessed_with(name, None, Source::Builtin), "needs approval", "{name}");
    }
    for name in ["GITHUB_TOKEN", "PYTHONUNBUFFERED", "GIT_AUTHOR_NAME", "HTTPS_PROXY"] {
        assert_eq!(assessed_with(name, None, registry()), "needs approval", "{name}");
    }
    assert_eq!(assessed_with("https_proxy", Some("http://x"), registry()), "refused");
}

#[test]
fn what_a_publisher_fills_in_is_shown_and_opens_nothing() {
    let mut plan = planned();
    plan.asked[0].default = Some("/".to_owned());
    plan.environment[0].default = Some("cmd:id".to_owned());
    insta::assert_snapshot!(told(&plan));
    let default = plan.complete(&[]).unwrap();
    assert_eq!(default.argv.last().map(String::as_str), Some("/"));
    assert_eq!(plan.given(&default.argv).count(), 0);
    // What stands in the form already was given by nobody.
    let repeated = plan.complete(&[("folder".to_owned(), "/".to_owned())]).unwrap();
    assert_eq!(plan.given(&repeated.argv).count(), 0);
    let own = plan.complete(&[("folder".to_owned(), "/notes".to_owned())]).unwrap();
    assert_eq!(plan.given(&own.argv).collect::<Vec<_>>(), ["/notes"]);
}

#[test]
fn secrets_are_neither_asked_for_in_a_question_nor_shown() {
    let mut plan = planned();
    assert!(!plan.asks_for_a_secret());
    plan.asked[0].secret = true;
    assert!(plan.asks_for_a_secret());
    assert!(question(&plan, None)["requestedSchema"]["properties"].get("folder").is_none());
    let handed =
        "secret     folder is not on the command line, where every user of this machine could";
    assert!(told(&plan).contains(handed), "{}", told(&plan));
    assert!(!told(&planned()).contains("secret "));
    let argv = plan.complete(&[("folder".to_owned(), "hunter2".to_owned())]).unwrap().argv;
    let shown = plan.shown(&argv);
    assert_eq!(shown.last().map(String::as_str), Some("[secret folder]"));
    assert_eq!(shown[..argv.len() - 1], argv[..argv.len() - 1]);
    // What was put away is not shown either, whatever its publisher says of it.
    plan.asked[0].secret = false;
    let kept = secret_ref::in_keyring("0123456789abcdef0123456789abcdef");
    let argv = plan.complete(&[("folder".to_owned(), kept)]).unwrap().argv;
    assert_eq!(plan.shown(&argv).last().map(String::as_str), Some("[secret folder]"));
    let postgres = builtin().into_iter().find(|one| one.name.ends_with("server-postgres")).unwrap();
    let Argument::Asked { input, .. } = &postgres.offer.arguments[0] else { panic!("not asked") };
    assert!(input.secret);
}

#[test]
fn a_secret_is_no_argument_of_an_image() {
    let image = format!("ghcr.io/ada/notes@sha256:{}", "a".repeat(64));
    let input = |name: &str, secret| Input { name: name.to_owned(), secret, ..Input::default() };
    let with = |argument: Input| {
        let mut candidate = offered("@ada/notes", "1.2.3");
        candidate.offer.kind = Kind::Oci;
        candidate.offer.identifier.clone_from(&image);
        candidate.offer.arguments = vec![Argument::Asked { flag: None, input: argument }];
        let integrity = image.split_once('@').map(|(_, hash)| hash.to_owned());
        let facts = Facts { integrity, lock: None, ..good() };
        let verdict = assessed(&candidate, &facts, None, &Trust::default());
        Plan::new("notes".to_owned(), &candidate, &facts, verdict, "/x", Ok(()))
    };
    for refused in [input("address", true), input("api-key", false)] {
        let plan = with(refused);
        let why = plan.verdict.refusals[0].to_string();
        assert!(why.contains("a secret, only as an argument"), "{why}");
        assert_eq!(plan.complete(&[]), Err(Rejected::Refused));
    }
    let plan = with(input("address", false));
    assert!(!plan.is_refused(), "{:?}", plan.verdict);
    let given = |value: &str| plan.complete(&[("address".to_owned(), value.to_owned())]);
    assert!(given("localhost").is_ok());
    for secret in [
        "postgresql://ada:hunter2@db/notes",
        &secret_ref::in_keyring("0123456789abcdef0123456789abcdef"),
    ] {
        let told = given(secret).unwrap_err();
        assert_eq!(told, Rejected::InTheOpen { name: "address".to_owned() });
    }
}

#[test]
fn no_entry_forges_a_line_of_a_plan() {
    let forged = "x\nhash       sha512-GOOD";
    let mut plan = planned();
    plan.candidate = forged.to_owned();
    plan.identifier = forged.to_owned();
    plan.version = forged.to_owned();
    plan.integrity = Some(forged.to_owned());
    plan.source = Source::Registry(forged.to_owned());
    plan.asked[0].name = forged.to_owned();
    plan.asked[0].default = Some(forged.to_owned());
    plan.environment[0].name = forged.to_owned();
    plan.argv.push(Word::Asked(forged.to_owned()));
    let lines = told(&planned()).lines().count();
    assert_eq!(told(&plan).lines().count(), lines);
    assert_eq!(candidates_text(&[plan]).lines().count(), 4);
}

#[test]
fn an_entry_is_kept_as_it_may_be_shown_or_not_at_all() {
    let good = offered("@ada/notes", "1.2.3");
    let spoilt = |spoil: fn(&mut Candidate)| {
        let mut one = good.clone();
        spoil(&mut one);
        sound(one)
    };
    assert_eq!(sound(good.clone()), Some(good.clone()));
    let cleaned = spoilt(|one| one.description = "a\n\u{1b}[31mb\u{202e}".to_owned()).unwrap();
    assert!(!cleaned.description.chars().any(char::is_control));
    let spoils: [fn(&mut Candidate); 11] = [
        |one| one.name = "x".repeat(1000),
        |one| one.offer.identifier = "x".repeat(5000),
        |one| one.offer.version = "1\n2".to_owned(),
        |one| one.offer.arguments.push(Argument::Fixed("x".repeat(5000))),
        |one| one.offer.runtime_arguments.push("x".repeat(5000)),
        |one| one.offer.environment[0].name = "A\nB".to_owned(),
        |one| one.offer.environment[0].name = "A=B".to_owned(),
        |one| one.offer.environment[0].default = Some("x".repeat(5000)),
        |one| {
            let input = Input { name: "folder\nnote  all is well".to_owned(), ..Input::default() };
            one.offer.arguments.push(Argument::Asked { flag: None, input });
        },
        |one| {
            let input = Input { name: "x".to_owned(), ..Input::default() };
            one.offer.arguments.push(Argument::Asked { flag: Some("-".repeat(500)), input });
        },
        |one| one.offer.arguments = vec![Argument::Fixed("x".to_owned()); 1000],
    ];
    for spoil in spoils {
        assert_eq!(spoilt(spoil), None);
    }
}

#[test]
fn what_npm_fetches_past_its_registry_is_refused() {
    let lock = |wish: &str| {
        let document = json!({ "packages": {
            "": { "dependencies": { "@ada/notes": "1.2.3" } },
            "node_modules/@ada/notes": { "version": "1.2.3", "integrity": "sha512-AAAA", "dependencies": { "left": wish } },
            "node_modules/left": { "version": "1.0.0", "integrity": "sha512-BBBB" },
        } });
        npm_lock("@ada/notes", document.to_string().as_bytes()).unwrap()
    };
    for (member, value) in [
        ("link", json!(true)),
        ("resolved", json!("git+ssh://git@x/left#1")),
        ("resolved", json!("file:../../left.tgz")),
    ] {
        let mut document = json!({ "packages": {
            "node_modules/@ada/notes": { "version": "1.2.3", "integrity": "sha512-AAAA" },
            "node_modules/left": { "version": "1.0.0", "integrity": "sha512-BBBB" },
        } });
        document["packages"]["node_modules/left"][member] = value;
        let lock = npm_lock("@ada/notes", document.to_string().as_bytes()).unwrap();
        assert_eq!(lock.elsewhere.len(), 1, "{document}");
    }
    for fine in ["^1.0.0", ">=1 <2 || 3.x", "latest", "npm:@other/left@^1.0.0", "*", ""] {
        assert!(lock(fine).elsewhere.is_empty(), "{fine}");
    }
    for bad in
        ["https://x.example.com/left.tgz", "git+ssh://git@x/left", "ada/left", "file:../left"]
    {
        let facts = Facts { lock: Some(lock(bad)), ..good() };
        let verdict = assessed(&offered("@ada/notes", "1.2.3"), &facts, None, &Trust::default());
        let said = verdict.refusals.iter().map(ToString::to_string).collect::<String>();
        assert!(said.contains(&format!("left from {bad}")), "{bad}: {said}");
    }
}

#[test]
fn any_file_of_a_version_is_that_version() {
    let several = |locked: &str| {
        let mut facts = good();
        facts.hashes = vec!["sha512-AAAA".to_owned(), "sha512-CCCC".to_owned()];
        facts.lock.as_mut().unwrap().integrity = Some(locked.to_owned());
        facts
    };
    let entry = offered("@ada/notes", "1.2.3");
    let word = |facts: &Facts, seen| assessed(&entry, facts, seen, &Trust::default()).word();
    assert_eq!(word(&several("sha512-CCCC"), Some("sha512-CCCC")), "needs approval");
    assert_eq!(word(&several("sha512-DDDD"), None), "refused");
    assert_eq!(word(&several("sha512-AAAA"), Some("sha512-DDDD")), "refused");
    // Whoever vouches for one file does not vouch for its neighbour.
    let mut vouched = entry.clone();
    vouched.offer.integrity = Some("sha512-AAAA".to_owned());
    let verdict = assessed(&vouched, &several("sha512-CCCC"), None, &Trust::default());
    assert_eq!(verdict.word(), "refused");
}

#[test]
fn a_plan_as_a_person_reads_it() {
    insta::assert_snapshot!(told(&planned()));
    insta::assert_snapshot!(format!("{:#}", question(&planned(), None)["requestedSchema"]));
    insta::assert_snapshot!(candidates_text(&[planned()]));
}

#[test]
fn pages_of_registries_are_read_whatever_is_in_them() {
    let document = json!({
        "servers": [
            { "server": { "name": "a/old", "description": "x", "packages": [{ "registry_type": "npm", "name": "old", "version": "1.0.0" }] } },
            { "server": { "name": "a/two", "description": "x", "packages": [
                { "registryType": "oci", "identifier": "ghcr.io/a/b:1", "transport": { "type": "stdio" } },
                { "registryType": "pypi", "identifier": "two", "version": "2.0", "transport": { "type": "stdio" } } ] } },
            { "server": { "name": "a/remote", "description": "x", "remotes": [{ "type": "streamable-http", "url": "https://a.example.com/mcp" }] } },
            { "server": { "name": "a/stale" , "packages": [] }, "_meta": { "io.modelcontextprotocol.registry/official": { "isLatest": false } } },
            { "server": { "name": "a/gone" }, "_meta": { "io.modelcontextprotocol.registry/official": { "status": "deleted" } } },
            { "server": { "name": "a/strange", "packages": [{ "registryType": "mcpb", "identifier": "x" }] } },
            7, null, {}, { "server": { "name": 3 } },
        ],
        "metadata": { "nextCursor": "a/strange:1" },
    });
    let read = page("https://registry.example.com", &document);
    let named: Vec<(String, Kind)> =
        read.candidates.iter().map(|one| (one.name.clone(), one.offer.kind)).collect();
    let expected = [
        ("a/old".to_owned(), Kind::Npm),
        ("a/two".to_owned(), Kind::Pypi),
        ("a/remote".to_owned(), Kind::Remote),
        ("a/gone".to_owned(), Kind::Remote),
    ];
    assert_eq!(named, expected);
    assert_eq!(read.unusable, ["a/stale", "a/strange"]);
    assert_eq!(read.next.as_deref(), Some("a/strange:1"));
    assert!(!page("x", &json!({ "title": "Not Found", "status": 404 })).is_page);
}

#[test]
fn candidates_of_registries_are_ranked_by_what_they_do() {
    let all = builtin();
    for (need, package) in [
        ("take a screenshot of a web page", "@playwright/mcp"),
        ("convert a time between time zones", "mcp-server-time"),
        ("create an issue on GitHub", "@modelcontextprotocol/server-github"),
        ("send a message to a slack channel", "@modelcontextprotocol/server-slack"),
        ("add a card to a Trello board", "@delorenj/mcp-server-trello"),
    ] {
        let found = ranked(need, &all, 3);
        assert!(found.iter().any(|(one, _)| one.offer.identifier == package), "{need}");
    }
}

#[test]
fn what_pip_says_is_read_with_its_dates() {
    let files = json!([
        { "filename": "mcp_server_time-1.0-py3-none-any.whl", "sha256": "ab", "uploaded": "2026-01-01T00:00:00Z", "yanked": false },
        { "filename": "mcp_server_time-1.0.tar.gz", "sha256": "cd", "uploaded": "2026-01-02T00:00:00Z", "yanked": false },
        { "filename": "mcp_server_time-1.0.1.tar.gz", "sha256": "ef", "uploaded": null, "yanked": true },
    ]);
    let files = json!({ "mcp-server-time": files, "mcp.server_time": files });
    assert_eq!(pip_newest("mcp-server-time", &files).as_deref(), Some("1.0"));
    let facts = pip_files("mcp-server-time", "1.0", &files);
    assert_eq!(facts.integrity.as_deref(), Some("sha256:ab"));
    assert_eq!(facts.hashes, ["sha256:ab", "sha256:cd"]);
    assert_eq!(facts.published, unix_millis("2026-01-02T00:00:00Z"));
    assert!(facts.scripts.is_empty() && !facts.yanked);
    let source = pip_files("mcp.server_time", "1.0.1", &files);
    assert!(source.exists && source.yanked && source.published.is_none());
    assert_eq!(source.scripts.len(), 1);
    assert!(!pip_files("mcp-server-time", "2.0", &files).exists);
}

#[test]
fn servers_get_short_names_that_are_free() {
    let name = |identifier: &str| server_name(identifier, |taken| taken == "memory");
    assert_eq!(name("@modelcontextprotocol/server-filesystem"), "filesystem");
    assert_eq!(name("@modelcontextprotocol/server-memory"), "modelcontextprotocol-server-memory");
    assert_eq!(name("mcp-server-time"), "time");
    assert_eq!(name("@playwright/mcp"), "playwright");
    assert_eq!(name("@sentry/mcp-server"), "sentry");
    assert_eq!(name("https://mcp.example.com/mcp"), "mcp-example-com");
    assert_eq!(name("metamcp"), "metamcp-2");
}

#[test]
fn a_request_says_what_is_needed() {
    let request = |arguments: Value| ProvisionRequest::decode(Some(&arguments));
    let wanted = request(json!({ "intent": " mail ", "context": "imap", "autoProvision": true }));
    let wanted = wanted.unwrap();
    assert_eq!((wanted.intent.as_str(), wanted.wants_install, wanted.force), ("mail", true, false));
    assert_eq!(wanted.context.as_deref(), Some("imap"));
    let asked = request(json!({ "query": "mail", "force": true, "reason": "x" })).unwrap();
    assert_eq!((asked.intent.as_str(), asked.force), ("mail", true));
    for bad in [json!({ "intent": 3 }), json!({ "intent": "x", "autoProvision": "yes" })] {
        assert!(matches!(request(bad), Err(BadRequest::Malformed { .. })));
    }
    for missing in [json!({}), json!({ "intent": " " })] {
        assert_eq!(request(missing), Err(BadRequest::Missing));
    }
    let slip = request(json!({ "intent": "x", "auto_provison": true })).unwrap_err();
    assert!(slip.to_string().contains("did you mean `autoProvision`?"), "{slip}");
}

#[test]
fn a_clock_is_no_weather_service() {
    let tool = |name: &str, description: &str| {
        json!({ "name": name, "description": description, "inputSchema": {
            "type": "object", "properties": { "timezone": { "type": "string" } } } })
    };
    let page = json!({ "tools": [
        tool("get_current_time", "Get current time in a specific timezones"),
        tool("convert_time", "Convert time between timezones"),
    ] });
    let mut listing = metamcp_tools::tool::Listing::new();
    listing.page(page.to_string().as_bytes()).unwrap();
    let tools = std::sync::Arc::new(listing.finish(Some("mcp-time"), None));
    let part = metamcp_search::search::ServerIndex::build_with(
        &mut metamcp_search::search::CachedTokenizer::default(),
        "time",
        None,
        &tools,
    );
    let index = metamcp_search::search::Index::new(vec![std::sync::Arc::new(part)]);
    let met = |need: &str| {
        let hits = index.search(need, metamcp_search::search::Strategy::Hybrid, 5, None);
        metamcp_search::search::meets(need, &hits)
    };
    assert!(met("what time is it in Tokyo right now"));
    assert!(!met("current weather forecast"));
    assert!(met("convert a time to another timezone"));
    assert!(!met("current exchange rate of the euro"));
    assert!(!met("get the current git branch"));
}
