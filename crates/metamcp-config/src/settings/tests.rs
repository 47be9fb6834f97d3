use super::*;

fn given(flag: &str, value: u64, origin: Origin) -> Given {
    Given { setting: by_flag(flag).unwrap(), value: Value::Number(value), origin }
}

#[test]
fn the_contracts_numbers_are_the_defaults() {
    let Settings { pool, timeouts, limits, catalog_ttl, replay, .. } = Settings::default();
    assert_eq!(
        (pool.size, pool.reserve_size, pool.min_size, pool.failure_threshold),
        (20, 0, 0, 5)
    );
    let times =
        [pool.reserve_timeout, pool.wait_timeout, pool.idle_timeout, pool.cooldown, catalog_ttl];
    assert_eq!(times.map(|time| time.as_millis()), [5_000, 30_000, 300_000, 30_000, 3_600_000]);
    let times = [
        timeouts.connect,
        timeouts.install,
        timeouts.list,
        timeouts.call,
        timeouts.discover_budget,
    ];
    assert_eq!(times.map(|time| time.as_millis()), [60_000, 300_000, 15_000, 60_000, 10_000]);
    assert_eq!(
        (limits.line_bytes, limits.in_flight, limits.tools_per_server),
        (16_777_216, 64, 2_000)
    );
    assert_eq!(replay, Replay::Annotated);
    let daemon = Settings::default().daemon;
    assert_eq!((daemon.mode, daemon.idle_exit.as_millis()), (DaemonMode::Auto, 600_000));
}

#[test]
fn the_strongest_source_wins_and_is_remembered() {
    let file = |line| Origin::File { path: PathBuf::from("a.json"), line };
    let resolved = resolve([
        given("idle-timeout", 1_000, file(3)),
        given("idle-timeout", 2_000, Origin::Environment { name: "METAMCP_IDLE_TIMEOUT" }),
        given("cooldown", 3_000, file(4)),
        given("max-connections", 7, file(5)),
        given("max-connections", 8, Origin::Flag { name: "max-connections" }),
    ]);
    let pool = &resolved.settings.pool;
    assert_eq!(
        (pool.idle_timeout.as_millis(), pool.cooldown.as_millis(), pool.size),
        (2_000, 3_000, 8)
    );
    let origin = |flag| resolved.value(flag).unwrap().origin.to_string();
    assert_eq!(origin("idle-timeout"), "variable METAMCP_IDLE_TIMEOUT");
    assert_eq!(origin("cooldown"), "a.json:4");
    assert_eq!(origin("max-connections"), "flag --max-connections");
    assert_eq!(origin("failure-threshold"), "default");
    assert_eq!(resolved.value("config"), None);
}

#[test]
fn contradictions_are_settled_aloud() {
    let resolved = resolve([
        given("min-connections", 30, Origin::Default),
        given("reserve-connections", 2, Origin::Default),
        given("reserve-timeout", 0, Origin::Default),
        given("install-timeout", 10, Origin::Default),
    ]);
    assert_eq!(resolved.settings.pool.min_size, 20);
    assert_eq!(resolved.settings.timeouts.install.as_millis(), 60_000);
    assert_eq!(
        resolved.notes,
        [
            "minPoolSize 30 is more than poolSize 20; 20 is used",
            "resPoolSize 2 has no effect because resPoolTimeout is 0",
            "installTimeoutMs 10 is less than connectTimeoutMs 60000; 60000 is used",
        ]
    );
}

#[test]
fn variables_are_read_and_faults_name_the_variable() {
    let lookup = |name: &str| match name {
        "METAMCP_IDLE_TIMEOUT" => Some("2m".to_owned()),
        "METAMCP_REPLAY" => Some(String::new()),
        "METAMCP_COOLDOWN" => Some("soon".to_owned()),
        _ => None,
    };
    let (given, errors) = from_environment(&lookup);
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].value, Value::Number(120_000));
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].to_string(),
        "variable METAMCP_COOLDOWN: expected a whole number, found `soon`"
    );
}

#[test]
fn the_table_is_consistent() {
    let mut seen = std::collections::HashSet::new();
    for setting in SETTINGS.iter() {
        let variable = format!("METAMCP_{}", setting.flag.to_uppercase().replace('-', "_"));
        assert_eq!(setting.env, variable, "flag and variable have the same name");
        assert!(
            seen.insert(setting.flag.to_owned()) && seen.insert(setting.env.to_owned()),
            "{setting:?} twice"
        );
        if let Some(key) = setting.key {
            assert!(seen.insert(format!("file {key}")), "{key} twice");
            assert_eq!(by_file_key(key), Some(setting));
            for alias in setting.aliases {
                let object =
                    key.rsplit_once('.').map_or(String::new(), |(object, _)| format!("{object}."));
                assert_eq!(by_file_key(&format!("{object}{alias}")), Some(setting));
            }
        }
        if let Some(default) = &setting.default {
            assert_eq!(
                setting.kind.from_text(&default.text()).as_ref(),
                Ok(default),
                "{setting:?}"
            );
        }
        assert!(
            !setting.help.ends_with('.') && setting.help.len() <= 72,
            "{setting:?}: help is one short line"
        );
    }
    assert_eq!(by_file_key("pool.nothing"), None);
    assert_eq!(by_file_key("config"), None, "a file cannot say which file is read");
}

/// A setting that is stored nowhere, or in another's place, would leave a value unchanged here.
#[test]
fn every_setting_reaches_its_own_field() {
    for setting in SETTINGS.iter() {
        let value = match setting.kind {
            Kind::Count { max, .. } | Kind::Millis { max, .. } | Kind::Bytes { max, .. } => {
                Value::Number(max - 1)
            }
            Kind::Word(words) => {
                let default = setting.default_text();
                Value::Word(words.iter().find(|known| known.word != default).unwrap().word)
            }
            Kind::Switch => Value::Switch(setting.default != Some(Value::Switch(true))),
            Kind::Path => Value::Path("elsewhere".into()),
            Kind::Text | Kind::Names => Value::Text("something".into()),
        };
        let mut changed = resolve([]).settings;
        (setting.store)(&mut changed, &value);
        assert_ne!(changed, Settings::default(), "{setting:?} changes nothing");
        (setting.store)(&mut changed, setting.default.as_ref().unwrap_or(&value));
        if setting.default.is_some() {
            assert_eq!(changed, Settings::default(), "{setting:?} changed another field too");
        }
    }
}

#[test]
fn variables_of_metatools_are_understood_and_checked() {
    let read = |name: &'static str, value: &'static str| {
        from_environment(&move |asked| (asked == name).then(|| value.to_owned()))
    };
    let set = |name, value| {
        let (given, errors) = read(name, value);
        assert!(errors.is_empty(), "{errors:?}");
        resolve(given).settings
    };
    assert_eq!(set("METATOOLS_SEARCH_STRATEGY", "BM25").search, Strategy::Bm25);
    assert_eq!(set("METATOOLS_SEARCH_STRATEGY", "lexical").search, Strategy::Lexical);
    assert_eq!(set("METATOOLS_SEARCH_BM25_NAME_BOOST", "5").bm25.name_boost, 5);
    assert_eq!(set("METATOOLS_SEARCH_BM25_NAMESPACE_BOOST", "4").bm25.namespace_boost, 4);
    assert_eq!(set("METATOOLS_SEARCH_BM25_TAGS_BOOST", "3").bm25.tags_boost, 3);
    assert_eq!(set("METATOOLS_SEARCH_BM25_MAX_DOCS", "1000").bm25.max_tools, 1000);
    assert_eq!(set("METATOOLS_SEARCH_BM25_MAX_DOCTEXT_LEN", "1000").bm25.max_text, 1000);
    let wrong = |name, value| {
        let (_, errors) = read(name, value);
        errors.first().map(ToString::to_string).unwrap_or_default()
    };
    let said = wrong("METATOOLS_SEARCH_STRATEGY", "lexcial");
    assert!(
        said.contains("METATOOLS_SEARCH_STRATEGY") && said.contains("did you mean `lexical`"),
        "{said}"
    );
    let said = wrong("METATOOLS_SEARCH_BM25_NAME_BOOST", "lots");
    assert!(said.contains("expected a whole number, found `lots`"), "{said}");
}
