//! What the items of a running `parallel` came to, kept in the gateway so that a failure, a limit or a kill loses none.
//! Owns: the groups of one run and their bounds.      Never: trusts a number or a text of the worker.
//! In: what the worker reports as each item ends.  Out: a group as JSON, in the form of `parallel.settled`.
//! Tests: below; `tests/it/limits.rs`, with real workers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::PartialResults;
use crate::limits::{PARTIAL_GROUPS, PARTIAL_ITEMS};
use crate::prelude::PARTIAL;
use crate::protocol::ProtocolViolation;

/// An item of which nothing is known.
const PENDING: &str = r#"{"status":"pending"}"#;
/// Groups that are kept of a run that was ended: the fullest ones.
const MAX_KEPT: usize = 4;

/// The groups that are under way.
#[derive(Debug, Default)]
pub(super) struct Partials {
    groups: BTreeMap<u32, Group>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Group {
    total: usize,
    finished: usize,
    items: BTreeMap<usize, Box<str>>,
    bytes: usize,
}

/// A report of the prelude.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Report<'a> {
    group: u32,
    #[serde(default)]
    total: usize,
    #[serde(default)]
    index: usize,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
}

impl Partials {
    /// Takes a report.
    ///
    /// # Errors
    /// One that the prelude never writes.
    pub(super) fn take(&mut self, payload: &str) -> Result<(), ProtocolViolation> {
        let report: Report<'_> = serde_json::from_str(payload)
            .map_err(|_| ProtocolViolation::Json { field: "partial" })?;
        let Some(item) = report.item.map(RawValue::get) else {
            self.remove(report.group);
            return Ok(());
        };
        let is_known = self.groups.contains_key(&report.group);
        // JSON takes up to four bytes for a character that the prelude counts.
        let fits = self.bytes.saturating_add(item.len()) <= 4 * PARTIAL
            && report.index < report.total.min(PARTIAL_ITEMS)
            && (is_known || self.groups.len() < PARTIAL_GROUPS);
        if fits {
            let group = self.groups.entry(report.group).or_default();
            group.total = report.total;
            group.finished += usize::from(item.starts_with(r#"{"status":"fulfilled""#));
            group.bytes += item.len();
            self.bytes += item.len();
            if let Some(before) = group.items.insert(report.index, item.into()) {
                group.bytes -= before.len();
                self.bytes -= before.len();
            }
        }
        Ok(())
    }

    /// Removes a group and returns what there is of it.
    pub(super) fn remove(&mut self, group: u32) -> Option<PartialResults> {
        let group = self.groups.remove(&group)?;
        self.bytes -= group.bytes;
        Some(group.results())
    }

    /// What is left at the end of a run that failed.
    pub(super) fn into_results(self) -> Vec<PartialResults> {
        let mut groups: Vec<Group> =
            self.groups.into_values().filter(|group| group.finished > 0).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        groups.into_iter().take(MAX_KEPT).map(Group::results).collect()
    }
}

impl Group {
    fn results(self) -> PartialResults {
        let mut json = String::with_capacity(self.bytes + 2);
        for index in 0..self.total.min(PARTIAL_ITEMS) {
            json.push(if index == 0 { '[' } else { ',' });
            json.push_str(self.items.get(&index).map_or(PENDING, |item| item));
        }
        json.push_str(if json.is_empty() { "[]" } else { "]" });
        PartialResults { json, finished: self.finished, total: self.total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(group: u32, index: usize, item: &str) -> String {
        format!(r#"{{"group":{group},"total":3,"index":{index},"item":{item}}}"#)
    }

    #[test]
    fn items_are_in_their_places_and_holes_are_marked() {
        let mut partials = Partials::default();
        let done = r#"{"status":"fulfilled","value":{"a":1}}"#;
        partials.take(&report(0, 2, done)).unwrap();
        partials.take(&report(0, 0, r#"{"status":"rejected","reason":"no"}"#)).unwrap();
        partials.take(&report(1, 0, done)).unwrap();
        let kept = partials.remove(0).unwrap();
        assert_eq!((kept.finished, kept.total), (1, 3));
        let rejected = r#"{"status":"rejected","reason":"no"}"#;
        assert_eq!(kept.json, format!("[{rejected},{PENDING},{done}]"));
        // One that ended is forgotten.
        partials.take(r#"{"group":1}"#).unwrap();
        assert_eq!((partials.bytes, partials.into_results()), (0, Vec::new()));
    }

    #[test]
    fn what_a_worker_invents_is_refused_or_bounded() {
        let mut partials = Partials::default();
        for wrong in ["", "[]", r#"{"index":1}"#, r#"{"group":-1}"#, r#"{"group":1,"x":2}"#] {
            assert!(partials.take(wrong).is_err(), "{wrong}");
        }
        partials.take(r#"{"group":1,"total":4000000000,"index":3999999999,"item":1}"#).unwrap();
        partials.take(r#"{"group":1,"total":3,"index":3,"item":1}"#).unwrap();
        assert!(partials.groups.is_empty());
        for group in 0..1000 {
            partials.take(&report(group, 0, "1")).unwrap();
        }
        assert_eq!(partials.groups.len(), PARTIAL_GROUPS);
        let long = format!("\"{}\"", "x".repeat(1024 * 1024));
        for index in 0..100 {
            partials.take(&report(0, index % 3, &long)).unwrap();
            partials.take(&report(1, index % 3, &long)).unwrap();
        }
        assert!(partials.bytes <= 4 * PARTIAL);
    }
}
