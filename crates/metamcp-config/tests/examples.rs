//! Every example loads without a word and satisfies the published schema.

use std::path::Path;

use metamcp_config::config::{ServerState, json_schema, parse};

#[test]
fn examples_load_without_warnings_and_satisfy_the_schema() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let validator = jsonschema::validator_for(&json_schema()).expect("our schema is a schema");
    let lookup = |name: &str| Some(format!("value-of-{name}"));
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.extension().is_some_and(|extension| extension == "json" || extension == "jsonc") {
            continue;
        }
        seen += 1;
        let name = path.display();
        let text = std::fs::read_to_string(&path).unwrap();
        let loaded = parse(&text, &lookup).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(loaded.warnings, [], "{name}");
        assert!(!loaded.config.servers.is_empty(), "{name} shows no server");
        for server in &loaded.config.servers {
            let wanted = matches!(&server.state, ServerState::Disabled { reason } if reason.contains("config file"));
            assert!(server.is_enabled() || wanted, "{name}: {}: {:?}", server.name, server.state);
        }
        let options = jsonc_parser::ParseOptions::default();
        let json: serde_json::Value = jsonc_parser::parse_to_serde_value(&text, &options).unwrap();
        let faults: Vec<String> = validator
            .iter_errors(&json)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert_eq!(faults, [""; 0], "{name}");
    }
    assert!(seen >= 5, "only {seen} examples found");
}
