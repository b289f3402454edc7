//! Stores that have to be waited for, or fail.

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

/// A store that fails each time with this error.
pub(crate) struct Down(pub(crate) StoreError);

impl CounterStore for Down {
    async fn apply(&self, _: &Batch<'_>, _: &mut Answers) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        Err(self.0.clone())
    }

    fn give_back(&self, _: &Batch<'_>) {}
}
