//! Stores on real servers, on a clock turned by hand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_stores::{Answers, Batch, CounterStore, RedisSettings, RedisStore, StoreError};

/// Long enough for a machine that does many things at once.
const PATIENCE: Duration = Duration::from_secs(20);

static STORES: AtomicUsize = AtomicUsize::new(0);

/// A store that decides each batch at the batch's own instant.
pub(crate) struct ManualRedis(pub(crate) RedisStore);

impl ManualRedis {
    /// A store with keys of its own.
    pub(crate) fn on(url: &str) -> Self {
        let mut settings = RedisSettings::parse(url).expect("the URL is right");
        settings.deadline = PATIENCE;
        settings.prefix = format!("t{}", STORES.fetch_add(1, Ordering::Relaxed));
        ManualRedis(RedisStore::new(settings).expect("the settings are right"))
    }
}

impl CounterStore for ManualRedis {
    async fn apply(&self, batch: &Batch<'_>, answers: &mut Answers) -> Result<(), StoreError> {
        self.0.connected().await;
        self.0.set_clock(batch.now);
        self.0.apply(batch, answers).await
    }

    fn give_back(&self, batch: &Batch<'_>) {
        self.0.give_back(batch);
    }
}
