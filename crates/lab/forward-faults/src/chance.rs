//! Random choices of a scene, the same for the same seed.

use std::time::Duration;

use tidegate_throttled_service::Chance;

/// The choices of one scene.
#[derive(Clone, Debug)]
pub(crate) struct SceneChance(Chance);

impl SceneChance {
    pub(crate) fn new(seed: u64) -> Self {
        SceneChance(Chance::new(seed))
    }

    /// An index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.0.below(count as u64)).unwrap_or(0)
    }

    /// A time between both.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from((most - least).as_micros()).unwrap_or(u64::MAX);
        least + Duration::from_micros(self.0.below(span.saturating_add(1)))
    }
}
