//! docs/observability.md names every metric as it is exported.

use metamcp_engine::metrics::METRICS;

const PAGE: &str = include_str!("../../../../docs/observability.md");

#[test]
fn the_page_has_a_row_for_every_metric_and_no_other() {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with("| `metamcp_")).collect();
    let expected: Vec<String> = METRICS
        .iter()
        .map(|metric| {
            let mut name = format!("metamcp_{}", metric.name);
            if !metric.unit.is_empty() {
                name.push_str(&format!("_{}", metric.unit));
            }
            match metric.kind {
                "counter" => name.push_str("_total"),
                "info" => name.push_str("_info"),
                _ => {}
            }
            let labels: Vec<String> =
                metric.labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {} | {} | {} |", metric.kind, labels.join(", "), metric.help)
        })
        .collect();
    assert_eq!(rows, expected, "expected:\n{}", expected.join("\n"));
}
