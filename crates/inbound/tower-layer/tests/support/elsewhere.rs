//! A store that has to be waited for.

use tidegate_engine::{CounterStore, MemoryConfig, MemoryStore, StoreError};
use tidegate_stores::{Answers, Batch};

/// A store that lets others run before it decides.
pub(crate) struct Elsewhere(MemoryStore);

impl Elsewhere {
    pub(crate) fn new() -> Self {
        Elsewhere(MemoryStore::new(MemoryConfig::default()).unwrap())
    }
}

impl CounterStore for Elsewhere {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        self.0.apply(batch, answers).await
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.0.give_back(batch);
    }
}
