//! Statistics of the process at one moment, by name.

use std::collections::BTreeMap;
use std::time::Duration;

/// Statistics since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsReading {
    /// Cumulative counts by name.
    pub counters: BTreeMap<String, u64>,
    /// Values that rise and fall, by name.
    pub gauges: BTreeMap<String, u64>,
    /// Cumulative histograms of durations.
    pub timers: Vec<Timer>,
}

/// A histogram of durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Its name.
    pub name: String,
    /// For each bucket its inclusive upper bound in microseconds and its count, in ascending order; not cumulative. The
    /// last bucket has no bound.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// The sum of all durations.
    pub sum: Duration,
}

impl StatsReading {
    /// Adds to a counter: two sources may have the same name.
    pub fn add(&mut self, name: String, count: u64) {
        let sum = self.counters.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Counters and gauges by name.
    pub fn values(&self) -> BTreeMap<&str, u64> {
        let values = self.counters.iter().chain(&self.gauges);
        values.map(|(name, value)| (name.as_str(), *value)).collect()
    }
}

impl Timer {
    /// How many durations it has.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The buckets, each with a duration in microseconds that stands for its durations: the middle of its bounds.
    pub(crate) fn representatives(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut lower = 0;
        self.buckets.iter().map(move |(upper, count)| {
            let upper = upper.unwrap_or(lower);
            let middle = lower.midpoint(upper);
            lower = upper;
            (middle, *count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sources_of_one_name_are_summed() {
        let mut reading = StatsReading::default();
        reading.add("a".to_owned(), 1);
        reading.add("a".to_owned(), u64::MAX);
        reading.gauges.insert("b".to_owned(), 3);
        assert_eq!(reading.values(), BTreeMap::from([("a", u64::MAX), ("b", 3)]));
    }

    #[test]
    fn the_middle_of_a_bucket_stands_for_its_durations() {
        let buckets = vec![(Some(10), 1), (Some(30), 2), (None, 3)];
        let timer = Timer { name: String::new(), buckets, sum: Duration::ZERO };
        let middles: Vec<_> = timer.representatives().collect();
        assert_eq!(middles, [(5, 1), (20, 2), (30, 3)]);
        assert_eq!(timer.count(), 6);
    }
}
