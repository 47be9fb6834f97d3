//! Two builds of the gateway under the same loads, in turns, so that both meet the same noise of a shared machine.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::{Programs, Row, client, numbers, servers};

/// How often each build is measured: medians of fewer runs vary by more than the difference to detect.
const TURNS: usize = 9;

/// Rows for `--against`: the medians of both, and the median of the ratios of neighbouring turns.
pub(super) fn rows(
    programs: &Programs,
    other: &Path,
    folder: &Path,
    rows: &[&Row],
    page: &mut String,
) -> Result<()> {
    page.push_str("| load | p50 other | p50 this | ratio | p99 ratio | CPU per call other | CPU this | ratio |\n");
    page.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        drop(writeln!(io::stderr(), "bench: {} in turns", row.name));
        let config = servers(programs, folder, row.children, &[])?;
        let one = |metamcp: &Path| -> Result<Value> {
            let mut command = client(programs, folder, row);
            command.args(["--gateway", "--children", &row.children.to_string(), "--"]);
            numbers(command.arg(metamcp).arg("--config").arg(&config))
        };
        let mut turns = Vec::new();
        for turn in 0..TURNS {
            // Alternate the order, because the first of two is often the slower one.
            turns.push(if turn % 2 == 0 {
                let before = one(other)?;
                (before, one(&programs.metamcp)?)
            } else {
                let this = one(&programs.metamcp)?;
                (one(other)?, this)
            });
        }
        let of = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let other_median = |name| median(turns.iter().map(|turn| of(&turn.0, name)).collect());
        let this_median = |name| median(turns.iter().map(|turn| of(&turn.1, name)).collect());
        let ratio =
            |name| median(turns.iter().map(|turn| of(&turn.1, name) / of(&turn.0, name)).collect());
        page.push_str(&format!(
            "| {} | {:.1} us | {:.1} us | **{:.3}** | {:.2} | {:.2} us | {:.2} us | **{:.3}** |\n",
            row.name,
            other_median("p50_us"),
            this_median("p50_us"),
            ratio("p50_us"),
            ratio("p99_us"),
            other_median("cpu_us_per_call"),
            this_median("cpu_us_per_call"),
            ratio("cpu_us_per_call"),
        ));
    }
    Ok(())
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_one_counts() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }
}
