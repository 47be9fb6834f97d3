//! The bus: keys with revisions, compare-and-set and a time to live by its own clock.

use std::collections::BTreeMap;

use metamcp_fleet::identity::{InstanceId, Stamp};
use metamcp_fleet::lease::{Answer, Entry};

pub(crate) struct Key {
    pub(crate) revision: u64,
    pub(crate) entry: Entry,
    written: i64,
}

pub(crate) struct Bus {
    pub(crate) bucket: u64,
    pub(crate) revision: u64,
    pub(crate) is_ready: bool,
    pub(crate) keys: BTreeMap<InstanceId, Key>,
    /// In millionths of true time.
    pub(crate) rate: u64,
    /// The wall clock of the leader against that of the others.
    pub(crate) offset: i64,
    pub(crate) down_until: u64,
    pub(crate) ttl: i64,
}

#[derive(Debug, Clone)]
pub(crate) enum Write {
    Claim { entry: Entry },
    Renew { entry: Entry, over: Stamp },
    Delete { over: Stamp },
}

impl Bus {
    fn clock(&self, t: u64) -> i64 {
        (t * self.rate / 1_000_000) as i64 + self.offset
    }

    pub(crate) fn stamp(&mut self) -> Stamp {
        self.revision += 1;
        Stamp { bucket: self.bucket, revision: self.revision }
    }

    pub(crate) fn is_live(&self, key: &Key, t: u64) -> bool {
        self.clock(t) - key.written < self.ttl
    }

    /// The epoch that the bus holds an instance for.
    pub(crate) fn holder(&self, instance: InstanceId, t: u64) -> Option<Stamp> {
        let key = self.keys.get(&instance).filter(|key| self.is_live(key, t))?;
        let own = Stamp { bucket: self.bucket, revision: key.revision };
        Some(key.entry.epoch.unwrap_or(own))
    }

    /// Removes what is over. Returns the keys.
    pub(crate) fn sweep(&mut self, t: u64) -> Vec<InstanceId> {
        let over: Vec<InstanceId> = self
            .keys
            .iter()
            .filter(|(_, key)| !self.is_live(key, t))
            .map(|(instance, _)| *instance)
            .collect();
        for instance in &over {
            self.keys.remove(instance);
        }
        over
    }

    /// A write, and what the watch shows of it.
    pub(crate) fn write(
        &mut self,
        instance: InstanceId,
        write: Write,
        t: u64,
    ) -> (Answer, Option<(Stamp, Option<Entry>)>) {
        if self.keys.get(&instance).is_some_and(|key| !self.is_live(key, t)) {
            self.keys.remove(&instance);
        }
        let bucket = self.bucket;
        let found = self.keys.get(&instance).map(|key| Stamp { bucket, revision: key.revision });
        let is_fit = match &write {
            Write::Claim { .. } => found.is_none(),
            Write::Renew { over, .. } | Write::Delete { over } => found == Some(*over),
        };
        if !is_fit {
            return (Answer::Conflict, None);
        }
        let stamp = self.stamp();
        let entry = match write {
            Write::Claim { entry } | Write::Renew { entry, .. } => Some(entry),
            Write::Delete { .. } => None,
        };
        match entry.clone() {
            Some(entry) => {
                let written = self.clock(t);
                self.keys.insert(instance, Key { revision: stamp.revision, entry, written });
            }
            None => drop(self.keys.remove(&instance)),
        }
        (Answer::Done(stamp), Some((stamp, entry)))
    }
}
