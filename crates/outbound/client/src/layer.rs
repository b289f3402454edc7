//! The tower layer.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::request::Parts;
use tidegate_algorithms::Timestamp;
use tokio::time::Instant;
use tower_layer::Layer;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::observer::{Observer, PacingEvent};
use crate::scope::{Scope, Targets};
use crate::service::PacedService;
use crate::settings::PacingSettings;
use crate::slices::SliceSource;

/// Paces the calls of a client. Services made by one layer, or by its clones, share what they know of their targets.
#[derive(Clone, Debug)]
pub struct PacingLayer {
    pub(crate) shared: Arc<LayerState>,
}

#[derive(Clone)]
pub(crate) struct LayerState {
    pub(crate) settings: PacingSettings,
    pub(crate) scope: Arc<dyn Fn(&Parts) -> Scope + Send + Sync>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) slices: Option<Arc<dyn SliceSource>>,
    pub(crate) targets: Arc<Targets>,
    pub(crate) time: Arc<TimeBase>,
}

/// The start of the layer's time, and its source of chance.
#[derive(Debug)]
pub(crate) struct TimeBase {
    origin: Instant,
    seed: u64,
    draws: AtomicU64,
}

impl TimeBase {
    fn new(seed: u64) -> Self {
        TimeBase { origin: Instant::now(), seed, draws: AtomicU64::new(0) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::EPOCH.after(Instant::now().saturating_duration_since(self.origin).into())
    }

    pub(crate) fn random(&self) -> u64 {
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        xxh3_64_with_seed(&draw.to_le_bytes(), self.seed)
    }
}

impl Default for PacingLayer {
    fn default() -> Self {
        Self::new(PacingSettings::default())
    }
}

impl PacingLayer {
    /// A layer that keeps one state for each authority.
    pub fn new(settings: PacingSettings) -> Self {
        let shared = LayerState {
            settings,
            scope: Arc::new(|parts| Scope::of_authority(&parts.uri)),
            observer: None,
            slices: None,
            targets: Arc::default(),
            time: Arc::new(TimeBase::new(RandomState::new().hash_one(0))),
        };
        PacingLayer { shared: Arc::new(shared) }
    }

    /// Chooses which calls share a limit: by API key, by the first segment of the path.
    #[must_use]
    pub fn scope(self, scope: impl Fn(&Parts) -> Scope + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.scope = Arc::new(scope))
    }

    /// Spends a unit for each call, and takes units from a decision service ahead, so that several processes share a
    /// limit and none is refused. While that service does not answer, calls go on without.
    #[must_use]
    pub fn slices(self, source: impl SliceSource) -> Self {
        self.with(|shared| shared.slices = Some(Arc::new(source)))
    }

    /// Gives back the units that are left, before the process ends. What is not given back stays charged.
    pub async fn give_back(&self) {
        let Some(source) = &self.shared.slices else { return };
        for target in self.shared.targets.all() {
            if let Some(exchange) = target.unspent(self.shared.time.now()).await {
                // What could not be given back stays charged, as after a crash.
                let _ = source.exchange(exchange).await;
            }
        }
    }

    /// Shows each step to an observer.
    #[must_use]
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|shared| shared.observer = Some(Arc::new(observer)))
    }

    /// Draws jitter from a seed, for simulations that have to repeat themselves.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.with(|shared| shared.time = Arc::new(TimeBase::new(seed)))
    }

    fn with(self, change: impl FnOnce(&mut LayerState)) -> Self {
        let mut shared = Arc::unwrap_or_clone(self.shared);
        change(&mut shared);
        PacingLayer { shared: Arc::new(shared) }
    }
}

impl LayerState {
    pub(crate) fn observe(&self, target: &str, event: PacingEvent) {
        if let Some(observer) = &self.observer {
            observer.observe(target, event);
        }
    }
}

impl fmt::Debug for LayerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerState").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for PacingLayer {
    type Service = PacedService<S>;

    fn layer(&self, inner: S) -> PacedService<S> {
        PacedService::new(inner, Arc::clone(&self.shared))
    }
}
