//! What concurrent searches cost a single call, and how many searches run per second.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::{Programs, numbers, route, servers};

/// Concurrent searches while calls are measured.
const AT_ONCE: usize = 4;

/// Appends the rows: one server of 2,000 tools, and ten of them.
pub(super) fn rows(
    programs: &Programs,
    folder: &Path,
    rounds: usize,
    page: &mut String,
) -> Result<()> {
    page.push_str(concat!(
        "\n## A lone call while four searches are under way\n\n",
        "`mcp_call` of 64 B, one after the other, without and with four searches under way all the time, in turns.\n",
        "Times are microseconds.\n",
        "A ratio below 1 means that cores which are kept busy wake faster than those that sleep between calls.\n\n",
        "| tools | quiet p50 | p99 | searched p50 | p99 | p50 ratio | p99 ratio | searches/s meanwhile | searches/s alone, 1 at a time | 4 at a time |\n",
        "|---|---|---|---|---|---|---|---|---|---|\n",
    ));
    for (count, tools) in [(1, "2,000"), (10, "20,000")] {
        // The server has two more of its own.
        let config = servers(programs, folder, count, &["--tools", "1998"])?;
        let (at_once, children) = (AT_ONCE.to_string(), count.to_string());
        let options = [
            "--gateway",
            "--searches",
            &at_once,
            "--children",
            &children,
            "--payload",
            "64",
            "--calls",
            "20000",
        ];
        let mut best: Option<Value> = None;
        // The scheduler places the three processes anew with each start, which matters more than the load.
        for _ in 0..rounds.max(3) * 2 {
            let mut command = route(programs, folder, &options);
            command.arg(&programs.metamcp).arg("--config").arg(&config);
            let new = numbers(&mut command)?;
            best = Some(match best {
                None => new,
                Some(best) => better(&best, &new),
            });
        }
        let best = best.unwrap_or_default();
        let of = |name: &str| best[name].as_f64().unwrap_or(f64::NAN);
        writeln!(
            page,
            "| {tools} | {:.0} | {:.0} | {:.0} | {:.0} | **{:.2}** | **{:.2}** | {:.0} | {:.0} | {:.0} |",
            of("quiet_p50_us"),
            of("quiet_p99_us"),
            of("storm_p50_us"),
            of("storm_p99_us"),
            of("storm_p50_us") / of("quiet_p50_us"),
            of("storm_p99_us") / of("quiet_p99_us"),
            of("searches_per_s_beside"),
            of("searches_per_s_alone"),
            of("searches_per_s_together"),
        )?;
    }
    Ok(())
}

/// The better of each number: the shorter time, the higher rate.
fn better(one: &Value, other: &Value) -> Value {
    let Some(all) = one.as_object() else { return other.clone() };
    let pick = |name: &str| {
        let (one, other) = (one[name].as_f64(), other[name].as_f64());
        let (one, other) = (one.unwrap_or(f64::NAN), other.unwrap_or(f64::NAN));
        if name.contains("per_s") { one.max(other) } else { one.min(other) }
    };
    all.keys().map(|name| (name.clone(), Value::from(pick(name)))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_two_runs_the_shorter_times_and_the_higher_rates_are_kept() {
        let one = json!({ "quiet_p50_us": 1.0, "searches_per_s_alone": 5.0 });
        let other = json!({ "quiet_p50_us": 2.0, "searches_per_s_alone": 7.0 });
        assert_eq!(
            better(&one, &other),
            json!({ "quiet_p50_us": 1.0, "searches_per_s_alone": 7.0 })
        );
    }
}
