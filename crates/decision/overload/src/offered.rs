//! Offered requests at each level, admitted or not.
//!
//! Counts of admitted requests only would hide the levels that are shed, and all of them would be
//! admitted as soon as the load falls. Each thread counts in its own copy. Every tick folds the
//! copies into [`OfferedLevels`], which fade: they cover about a second with ticks of 250 ms.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::category::{Category, LEVELS, Level};
use crate::shards::{SHARDS, Shard};

/// The weight that is left of a request after one tick.
const DECAY: f64 = 0.8;

/// A smaller weight becomes zero, so that it does not become a denormal number.
const FORGOTTEN: f64 = 1e-6;

/// Counts of offered requests, one for each level.
#[derive(Debug)]
pub struct OfferedLoad {
    copies: Box<[LevelCounts; SHARDS]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct LevelCounts([Count; LEVELS]);

/// Two words, so that the counting thread is the only writer of the first.
#[derive(Debug)]
struct Count {
    /// Requests since the start.
    came: AtomicU32,
    /// Requests up to the last fold.
    folded: AtomicU32,
}

impl OfferedLoad {
    /// No requests yet.
    pub fn new() -> Self {
        let none = |_| Count { came: AtomicU32::new(0), folded: AtomicU32::new(0) };
        let counts = |_| LevelCounts(std::array::from_fn(none));
        OfferedLoad { copies: Box::new(std::array::from_fn(counts)) }
    }

    /// Counts a request. Returns a number that is unique among the requests of its level since the
    /// last fold.
    #[inline]
    pub fn count(&self, level: Level) -> u64 {
        let shard = Shard::of_thread();
        let Count { came, folded } = &shard.of(&self.copies).0[level.index()];
        let before = shard.add_one(came).wrapping_sub(folded.load(Ordering::Relaxed));
        // Without the copy: a replay may run on another thread.
        u64::from(before) << 16 | u64::from(level.number())
    }

    /// Folds the requests since the last call into `memory`, and returns their number.
    pub fn fold(&self, memory: &mut OfferedLevels) -> u64 {
        let mut arrivals = 0u64;
        for (level, weight) in memory.0.iter_mut().enumerate() {
            let here: u64 = self.copies.iter().map(|counts| counts.0[level].fold()).sum();
            arrivals = arrivals.saturating_add(here);
            let faded = *weight * DECAY;
            *weight = here as f64 + if faded < FORGOTTEN { 0.0 } else { faded };
        }
        arrivals
    }
}

impl Default for OfferedLoad {
    fn default() -> Self {
        OfferedLoad::new()
    }
}

impl Count {
    /// Requests since the last fold.
    fn fold(&self) -> u64 {
        let (came, folded) =
            (self.came.load(Ordering::Relaxed), self.folded.load(Ordering::Relaxed));
        // Without new requests nothing is written, so the cache line stays shared.
        if came == folded {
            return 0;
        }
        // A concurrent fold that wins has counted them.
        let mine = self.folded.compare_exchange(folded, came, Ordering::Relaxed, Ordering::Relaxed);
        mine.map_or(0, |_| u64::from(came.wrapping_sub(folded)))
    }
}

/// Requests that were offered recently, at each level.
#[derive(Clone, Debug)]
pub struct OfferedLevels([f64; LEVELS]);

impl OfferedLevels {
    /// No requests.
    pub const fn new() -> Self {
        OfferedLevels([0.0; LEVELS])
    }

    /// The weight of each level; recent requests weigh more.
    pub const fn levels(&self) -> &[f64; LEVELS] {
        &self.0
    }

    /// The share of critical requests; zero without requests.
    pub fn critical_share(&self) -> f64 {
        let total: f64 = self.0.iter().sum();
        let critical: f64 = self.0.iter().skip(Level::CRITICAL.index()).sum();
        if total > 0.0 { critical / total } else { 0.0 }
    }

    /// The weight of a category.
    pub fn category(&self, category: Category) -> f64 {
        self.0.iter().skip(category.rank() * LEVELS / 4).take(LEVELS / 4).sum()
    }
}

impl Default for OfferedLevels {
    fn default() -> Self {
        OfferedLevels::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::category::Cohort;

    const LOW: Level = Level::new(Category::Get, Cohort::numbered(3));
    const HIGH: Level = Level::new(Category::Critical, Cohort::numbered(3));

    #[test]
    fn what_came_is_counted_once_and_fades() {
        let (offered, mut memory) = (OfferedLoad::new(), OfferedLevels::new());
        (0..100).for_each(|_| _ = offered.count(LOW));
        assert_eq!(offered.fold(&mut memory), 100);
        assert_eq!(memory.levels()[LOW.index()], 100.0);
        assert_eq!(offered.fold(&mut memory), 0);
        assert_eq!(memory.levels()[LOW.index()], 80.0);
        (0..100).for_each(|_| _ = offered.fold(&mut memory));
        assert_eq!(memory.levels()[LOW.index()], 0.0);
    }

    #[test]
    fn no_count_of_any_thread_is_lost() {
        let (offered, mut memory) = (OfferedLoad::new(), OfferedLevels::new());
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| _ = offered.count(HIGH)));
            }
        });
        assert_eq!(offered.fold(&mut memory), 20_000);
    }

    #[test]
    fn the_critical_share_is_that_of_what_was_offered() {
        let (offered, mut memory) = (OfferedLoad::new(), OfferedLevels::new());
        assert_eq!(memory.critical_share(), 0.0);
        (0..30).for_each(|_| _ = offered.count(LOW));
        (0..10).for_each(|_| _ = offered.count(HIGH));
        offered.fold(&mut memory);
        assert_eq!(memory.critical_share(), 0.25);
        assert_eq!(memory.category(Category::Get), 30.0);
    }

    #[test]
    fn requests_of_a_level_are_told_apart() {
        let offered = OfferedLoad::new();
        let numbers: HashSet<u64> = (0..1000).map(|_| offered.count(LOW)).collect();
        assert_eq!(numbers.len(), 1000);
    }
}
