//! A subset of the catalog as its own snapshot: its users cannot see the rest.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use metamcp_config::config::ServerConfig;
use metamcp_search::search::{CachedTokenizer, Index, ServerIndex};

use super::{DefinitionId, Known, LazyIndex, Snapshot, about};

/// A snapshot of a subset, and what it was built from: the next one is built from the difference.
#[derive(Debug, Clone)]
pub struct Narrowed {
    from: Arc<Snapshot>,
    pub part: Arc<Snapshot>,
    /// The parts of its index, built by the first search.
    parts: HashMap<DefinitionId, LazyPart>,
}

/// One server's part of an index, built when needed: calls need only the tools.
type LazyPart = Arc<LazyLock<Arc<ServerIndex>, Box<dyn FnOnce() -> Arc<ServerIndex> + Send>>>;

fn lazy(make: impl FnOnce() -> Arc<ServerIndex> + Send + 'static) -> LazyPart {
    Arc::new(LazyLock::new(Box::new(make)))
}

impl Narrowed {
    pub fn is(&self, other: &Narrowed) -> bool {
        Arc::ptr_eq(&self.part, &other.part)
    }

    pub fn is_of(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.from, snapshot)
    }

    /// The subset with these servers, and of them only the tools for which `keep` is true. What did not change since `before`
    /// is reused. The generation changes only with the subset.
    pub fn of(
        from: &Arc<Snapshot>,
        servers: &[(DefinitionId, Arc<ServerConfig>)],
        keep: impl Fn(&ServerConfig, &str) -> bool,
        before: Option<&Narrowed>,
    ) -> Narrowed {
        let (mut known, mut failed) = (HashMap::new(), HashMap::new());
        let mut parts = HashMap::new();
        let mut changed = before.is_none();
        let tuning = from.index().tuning();
        for (id, config) in servers {
            if let Some(why) = from.failed.get(id) {
                failed.insert(*id, Arc::clone(why));
            }
            let Some(now) = from.known.get(id) else { continue };
            let earlier = before.and_then(|before| {
                let source = before.from.known.get(id)?;
                let same = Arc::ptr_eq(&source.tools, &now.tools);
                let kept = before.part.known.get(id)?;
                same.then_some((kept, before.parts.get(id)?))
            });
            let own = match earlier {
                Some((kept, part)) => {
                    parts.insert(*id, Arc::clone(part));
                    Known { listed_at: now.listed_at, saved_at: now.saved_at, ..kept.clone() }
                }
                None => {
                    let is_whole = now.tools.all().all(|tool| keep(config, &tool.name));
                    let tools = if is_whole {
                        Arc::clone(&now.tools)
                    } else {
                        Arc::new(now.tools.filtered(|tool| keep(config, &tool.name)))
                    };
                    let kept = before.and_then(|before| {
                        let kept = before.part.known.get(id)?;
                        let same = kept.tools.fingerprint == tools.fingerprint
                            && kept.tools.skipped == tools.skipped;
                        same.then_some((kept, before.parts.get(id)?))
                    });
                    match (kept, from.index().server(&config.name)) {
                        // The change is outside of this subset.
                        (Some((kept, part)), _) => {
                            parts.insert(*id, Arc::clone(part));
                            Known {
                                listed_at: now.listed_at,
                                saved_at: now.saved_at,
                                ..kept.clone()
                            }
                        }
                        (None, Some(part)) if is_whole => {
                            changed = true;
                            let part = Arc::clone(part);
                            parts.insert(*id, lazy(move || part));
                            now.clone()
                        }
                        (None, _) => {
                            changed = true;
                            let (config, listed) = (Arc::clone(config), Arc::clone(&tools));
                            let part = lazy(move || {
                                let mut words = CachedTokenizer::default();
                                let (name, about) = (&config.name, about(&config));
                                Arc::new(ServerIndex::build_tuned(
                                    &mut words, name, about, &listed, &tuning,
                                ))
                            });
                            parts.insert(*id, part);
                            Known { saved_at: now.saved_at, ..Known::new(tools, now.listed_at) }
                        }
                    }
                }
            };
            known.insert(*id, own);
        }
        changed = changed || before.is_some_and(|before| before.part.known.len() != known.len());
        let (index, generation) = match before.filter(|_| !changed) {
            Some(before) => (Arc::clone(&before.part.index), before.part.generation),
            None => {
                let generation = before.map_or(0, |before| before.part.generation);
                let own: Vec<LazyPart> = parts.values().cloned().collect();
                let whole = move || {
                    let own = own.iter().map(|part| Arc::clone(LazyLock::force(part)));
                    Arc::new(Index::tuned(own.collect(), tuning))
                };
                let index: Arc<LazyIndex> = Arc::new(LazyLock::new(Box::new(whole)));
                (index, generation + 1)
            }
        };
        let part = Arc::new(Snapshot { known, failed, index, generation });
        Narrowed { from: Arc::clone(from), part, parts }
    }
}
