//! The two text forms that scrapers read.

use std::collections::HashSet;

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// The form that Prometheus had before, 0.0.4.
    Prometheus,
}

impl Format {
    /// What an `Accept` header asks for: the older form only where nothing else is accepted.
    pub fn accepted(accept: Option<&str>) -> Format {
        let accept = accept.unwrap_or_default();
        let is_refused = |range: &str| {
            let weight = range.split(';').find_map(|part| part.trim().strip_prefix("q="));
            weight.and_then(|weight| weight.trim().parse().ok()).is_some_and(|q: f32| q <= 0.0)
        };
        let names = |kind: &str| {
            accept.split(',').any(|range| {
                let named = range.split(';').next().unwrap_or_default().trim();
                named.eq_ignore_ascii_case(kind) && !is_refused(range)
            })
        };
        match names("text/plain") && !names("application/openmetrics-text") {
            true => Format::Prometheus,
            false => Format::OpenMetrics,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// `OpenMetrics` in this form.
    pub(super) fn of(self, text: String) -> String {
        match self {
            Format::OpenMetrics => text,
            Format::Prometheus => older(&text),
        }
    }
}

/// In the older form a counter is named with its `_total`, there are no infos and units, and nothing marks the end.
fn older(text: &str) -> String {
    let kinds = || text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let of = |wanted: &str| -> HashSet<&str> {
        kinds().filter(|(_, kind)| *kind == wanted).map(|(name, _)| name).collect()
    };
    let (counters, infos) = (of("counter"), of("info"));
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|mark| {
            let (name, rest) = line.strip_prefix(mark)?.split_once(' ')?;
            Some((mark, name, rest))
        });
        match described {
            Some((mark, name, rest)) if counters.contains(name) => {
                out.push_str(&format!("{mark}{name}_total {rest}\n"));
            }
            Some((mark, name, rest)) if infos.contains(name) => {
                let rest = if mark == "# TYPE " { "gauge" } else { rest };
                out.push_str(&format!("{mark}{name}_info {rest}\n"));
            }
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_form_it_can_read() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (None, Format::OpenMetrics),
            (Some("*/*"), Format::OpenMetrics),
            (Some(prometheus), Format::OpenMetrics),
            (Some("text/plain; version=0.0.4"), Format::Prometheus),
            (Some("text/plain;q=0, */*"), Format::OpenMetrics),
            (Some("text/plain, application/openmetrics-text;q=0"), Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn the_older_form_names_counters_and_infos_its_own_way() {
        let new = "# HELP m_build Version.\n# TYPE m_build info\nm_build_info{version=\"1\"} 1\n\
                   # HELP m_calls Calls.\n# TYPE m_calls counter\nm_calls_total{t=\"a\"} 3\n\
                   # HELP m_x_seconds X.\n# TYPE m_x_seconds gauge\n# UNIT m_x_seconds seconds\nm_x_seconds 2\n# EOF\n";
        let old = "# HELP m_build_info Version.\n# TYPE m_build_info gauge\nm_build_info{version=\"1\"} 1\n\
                   # HELP m_calls_total Calls.\n# TYPE m_calls_total counter\nm_calls_total{t=\"a\"} 3\n\
                   # HELP m_x_seconds X.\n# TYPE m_x_seconds gauge\nm_x_seconds 2\n";
        assert_eq!(older(new), old);
    }
}
