//! The order of shedding: four categories, and 128 cohorts of callers in each.
//!
//! A [`Level`] is one number from 0 (shed first) to 511 (shed last). The cohort
//! comes from a hash of the caller and the hour: within an hour the same callers are refused, so
//! whole sessions work or fail, and other callers are refused in the next hour. The hash has no
//! seed, so all nodes agree. The doors choose the category of a request.

use tidegate_algorithms::{Nanos, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::mix::mix;

/// Cohorts in a category.
pub const COHORTS: u16 = 128;

/// Levels in all.
pub const LEVELS: usize = 512;

const HOUR: Nanos = Nanos::from_secs(3600);

/// The importance of a request. Later categories are shed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Test-mode traffic: shed first.
    Test,
    /// Reading.
    Get,
    /// Writing.
    Post,
    /// Requests that the business depends on: shed last, or never.
    Critical,
}

impl Category {
    /// All categories in the order of shedding.
    pub const ALL: [Category; 4] =
        [Category::Test, Category::Get, Category::Post, Category::Critical];

    /// The position in the order of shedding, from 0.
    pub const fn rank(self) -> usize {
        self as usize
    }

    /// The name in configuration, metrics and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Test => "test",
            Category::Get => "get",
            Category::Post => "post",
            Category::Critical => "critical",
        }
    }
}

/// The sender of a request, as a number that is the same on every node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Caller(u64);

impl Caller {
    /// The caller with this name: a tenant, a user, an API key, an address.
    pub fn named(name: impl AsRef<[u8]>) -> Self {
        Caller(xxh3_64(name.as_ref()))
    }

    /// The caller with this hash.
    pub const fn numbered(number: u64) -> Self {
        Caller(number)
    }

    /// The caller's number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Whether the caller is among the given percentage of all callers. A caller among them is
    /// also among every higher percentage.
    pub const fn is_among(self, percent: u8) -> bool {
        // A salt, so that the result does not depend on the cohort.
        mix(self.0 ^ 0x7065_7263_656e_7421) % 100 < percent as u64
    }

    /// The caller's cohort in the hour of `now`.
    pub const fn cohort(self, now: Timestamp) -> Cohort {
        let hour = now.as_nanos() / HOUR.get();
        // The highest bits are mixed best.
        Cohort((mix(self.0 ^ mix(hour)) >> 57) as u8)
    }
}

/// A group of callers that are shed together. 0 to 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cohort(u8);

impl Cohort {
    /// The cohort with this number, modulo 128.
    pub const fn numbered(number: u8) -> Self {
        Cohort(number % 128)
    }

    /// The cohort's number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Category and cohort as one number: lower levels are shed first. 0 to 511.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u16);

impl Level {
    /// The lowest critical level.
    pub const CRITICAL: Level = Level(3 * COHORTS);

    /// The level of a cohort in a category.
    pub const fn new(category: Category, cohort: Cohort) -> Self {
        Level(category as u16 * COHORTS + cohort.0 as u16)
    }

    /// The level of a caller's request in the hour of `now`.
    pub const fn of(category: Category, caller: Caller, now: Timestamp) -> Self {
        Level::new(category, caller.cohort(now))
    }

    /// The level as a number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The index in an array of [`LEVELS`].
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The category.
    pub const fn category(self) -> Category {
        Category::ALL[(self.0 / COHORTS) as usize]
    }

    /// The cohort.
    pub const fn cohort(self) -> Cohort {
        Cohort((self.0 % COHORTS) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_keeps_its_category_and_its_cohort() {
        for category in Category::ALL {
            for number in 0..128 {
                let level = Level::new(category, Cohort::numbered(number));
                assert_eq!((level.category(), level.cohort().number()), (category, number));
                assert!(level.index() < LEVELS);
            }
        }
    }

    #[test]
    fn every_critical_level_lies_above_all_others() {
        assert!(Level::new(Category::Critical, Cohort::numbered(0)) >= Level::CRITICAL);
        assert!(Level::new(Category::Post, Cohort::numbered(127)) < Level::CRITICAL);
    }

    #[test]
    fn a_caller_stays_in_its_cohort_for_the_hour_and_moves_with_the_next() {
        let hour = |hours: u64, seconds: u64| Timestamp::from_secs(hours * 3600 + seconds);
        let moved = (0..100u32).filter(|number| {
            let caller = Caller::named(number.to_string());
            assert_eq!(caller.cohort(hour(7, 0)), caller.cohort(hour(7, 3599)));
            caller.cohort(hour(7, 0)) != caller.cohort(hour(8, 0))
        });
        assert!(moved.count() > 90);
    }

    #[test]
    fn callers_spread_evenly_over_the_cohorts() {
        let mut counts = [0u32; 128];
        for number in 0..128_000u32 {
            let cohort = Caller::named(number.to_string()).cohort(Timestamp::EPOCH);
            counts[usize::from(cohort.number())] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_caller_that_is_in_stays_in_when_the_percentage_grows() {
        let mut inside = 0;
        for number in 0..1000u32 {
            let caller = Caller::named(number.to_string());
            assert!(!caller.is_among(0) && caller.is_among(100));
            let first = (0..=100).find(|percent| caller.is_among(*percent));
            assert!((first.unwrap()..=100).all(|percent| caller.is_among(percent)));
            inside += u32::from(caller.is_among(30));
        }
        assert!((250..350).contains(&inside), "{inside}");
    }
}
