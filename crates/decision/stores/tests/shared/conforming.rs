//! A shared store that calls for every check answers as the pure functions do.

use std::time::Duration;

use tidegate_algorithms::Timestamp;
use tidegate_stores::{
    Answers, Batch, CounterStore, MemoryConfig, MemoryStore, NodeId, Remote, SharedSettings,
    SharedStore, StoreError,
};

/// A remote without a way to it, judging by the instants that it is sent.
#[derive(Debug)]
struct LocalRemote(MemoryStore);

impl CounterStore for LocalRemote {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        self.0.apply(batch, answers).await
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.0.give_back(batch);
    }
}

impl Remote for LocalRemote {
    async fn register(
        &self,
        _node: NodeId,
        _lasting: Duration,
        _now: Timestamp,
        _within: Duration,
    ) -> Result<usize, StoreError> {
        Ok(1)
    }

    async fn unregister(
        &self,
        _node: NodeId,
        _now: Timestamp,
        _within: Duration,
    ) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store without a cache of refusals: a cached refusal does not show the slots that are free since.
fn uncached_store() -> SharedStore<LocalRemote> {
    let config = MemoryConfig { seed: Some(7), ..MemoryConfig::default() };
    let remote = LocalRemote(MemoryStore::new(config).expect("the default budget is enough"));
    let settings = SharedSettings { refusals_for: Duration::ZERO, ..SharedSettings::default() };
    SharedStore::new(remote, settings).expect("enough bytes")
}

#[tokio::test(start_paused = true)]
async fn answers_random_sequences_as_the_pure_functions_do() {
    super::sequences::equal_the_model(uncached_store).await;
}

#[tokio::test(start_paused = true)]
async fn answers_for_long_lists_as_the_pure_functions_do() {
    super::sequences::equal_the_model_on_long_lists(uncached_store).await;
}
