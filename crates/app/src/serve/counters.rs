//! The store: where counters live, and what doors show of it.

use tidegate_doors::StoreReading;
use tidegate_engine::{CounterStore, MemoryConfig, MemoryStore};

use crate::config::{Config, WhenFull};
use crate::exit::{Complaint, Failure};

/// A store that the service can stand on.
pub(super) trait Counters: CounterStore + Send + Sync + 'static {
    /// What it holds.
    fn reading(&self, budget_bytes: usize) -> StoreReading;
}

impl Counters for MemoryStore {
    fn reading(&self, budget_bytes: usize) -> StoreReading {
        StoreReading { stats: self.stats(), budget_bytes }
    }
}

/// The most bytes that counters in memory may take.
pub(super) fn budget_bytes(config: &Config) -> usize {
    usize::try_from(config.store.memory.budget.bytes()).unwrap_or(usize::MAX)
}

/// Counters in this process.
pub(super) fn in_memory(config: &Config) -> Result<MemoryStore, Failure> {
    let when_full = match config.store.memory.when_full {
        WhenFull::Approximate => tidegate_engine::WhenFull::Approximate,
        WhenFull::Allow => tidegate_engine::WhenFull::Allow,
        WhenFull::Deny => tidegate_engine::WhenFull::Deny,
    };
    let budget_bytes = budget_bytes(config);
    let store = MemoryStore::new(MemoryConfig { budget_bytes, when_full, seed: None });
    Ok(store.map_err(|error| Complaint::new(error.to_string(), "raise `store.memory.budget`"))?)
}
