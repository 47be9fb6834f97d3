//! Flags that the chart and the compose file give are flags that there are.

const SETTINGS: &str = include_str!("../../../../docs/reference/settings.md");
const CHART: &str = include_str!("../../../../packages/helm/metamcp/templates/gateways.yaml");
const COMPOSE: &str = include_str!("../../../../packages/fleet/compose.yaml");
const PAGE: &str = include_str!("../../../../docs/fleet.md");

#[test]
fn the_chart_the_compose_file_and_the_page_use_flags_and_variables_that_there_are() {
    let mut seen = 0;
    let (gateways, _bus) = COMPOSE.split_once("x-nats:").expect("the compose file has two parts");
    for text in [CHART, gateways] {
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("- --")) {
            let flag = line.split(['=', ' ']).next().unwrap();
            assert!(SETTINGS.contains(&format!("[`--{flag}`]")), "--{flag}");
            seen += 1;
        }
        for word in text.split([' ', ':', '"', '(', ')', '\n']) {
            let Some(name) = Some(word).filter(|word| word.starts_with("METAMCP_")) else {
                continue;
            };
            assert!(SETTINGS.contains(&format!("`{name}`")), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
    for flag in PAGE.split('`').filter(|word| word.starts_with("--")) {
        let flag = flag.split([' ', '=']).next().unwrap();
        // Of `metamcp fleet`, and of metamcp itself.
        if !["--json", "--to", "--host"].contains(&flag) {
            assert!(SETTINGS.contains(&format!("[`{flag}`]")), "{flag}");
        }
    }
}
