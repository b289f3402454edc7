//! When to read: each node at its own phase of the beat, so that a thousand nodes that start together do not read
//! together. Pure: times are durations since the start.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The shortest and the longest beat; what a snapshot says beyond is cut to them.
pub(crate) const BEAT_MIN: Duration = Duration::from_millis(100);
pub(crate) const BEAT_MAX: Duration = Duration::from_secs(3_600);
/// The beat before the first snapshot says another.
pub(crate) const BEAT_DEFAULT: Duration = Duration::from_secs(5);
/// How far a read strays from its phase, in thousandths of the beat, to either side.
const JITTER: u64 = 50;

/// The times of reads.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    node: u64,
    beat: Duration,
    /// How many reads have been planned.
    planned: u64,
    next: Duration,
}

impl Schedule {
    pub(crate) fn new(node: &str, beat: Duration, now: Duration) -> Self {
        let node = xxh3_64_with_seed(node.as_bytes(), 0);
        let mut schedule = Schedule { node, beat: BEAT_DEFAULT, planned: 0, next: now };
        schedule.set_beat(beat);
        schedule.next = now + schedule.part_of_beat(schedule.node);
        schedule
    }

    pub(crate) fn set_beat(&mut self, beat: Duration) {
        self.beat = beat.clamp(BEAT_MIN, BEAT_MAX);
    }

    /// When the next read is due.
    pub(crate) const fn next(&self) -> Duration {
        self.next
    }

    /// Plans the read after one that ended now: a beat after the last one was due, whatever came of it.
    pub(crate) fn plan(&mut self, now: Duration) {
        self.planned += 1;
        let hash = xxh3_64_with_seed(&self.planned.to_le_bytes(), self.node);
        // 950 to 1050 thousandths.
        let thousandths = 1_000 - JITTER + hash % (2 * JITTER + 1);
        let length = self.beat.saturating_mul(u32::try_from(thousandths).unwrap_or(1_000)) / 1_000;
        self.next = self.next.max(now.saturating_sub(length)) + length;
    }

    fn part_of_beat(&self, hash: u64) -> Duration {
        let nanos = u64::try_from(self.beat.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(hash % nanos.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(10);

    #[test]
    fn nodes_that_start_together_read_at_different_times() {
        let mut seconds = [0; 10];
        for node in 0..1_000 {
            let schedule = Schedule::new(&format!("node-{node}"), BEAT, Duration::ZERO);
            seconds[usize::try_from(schedule.next().as_secs()).unwrap()] += 1;
        }
        assert!(seconds.iter().all(|reads| (70..130).contains(reads)), "{seconds:?}");
    }

    #[test]
    fn a_read_follows_another_after_a_beat_whatever_came_of_it() {
        let mut schedule = Schedule::new("node", BEAT, Duration::ZERO);
        for _ in 0..1_000 {
            let before = schedule.next();
            schedule.plan(before + Duration::from_secs(1));
            let after = schedule.next() - before;
            assert!((9_500..=10_500).contains(&after.as_millis()), "{after:?}");
        }
    }

    #[test]
    fn a_read_that_took_longer_than_a_beat_is_not_made_up_for() {
        let mut schedule = Schedule::new("node", BEAT, Duration::ZERO);
        let late = schedule.next() + Duration::from_secs(95);
        schedule.plan(late);
        assert!(schedule.next() >= late, "{:?}", schedule.next());
    }

    #[test]
    fn no_beat_makes_it_spin_or_sleep_for_ever() {
        let mut schedule = Schedule::new("node", Duration::ZERO, Duration::ZERO);
        assert_eq!(schedule.beat, BEAT_MIN);
        schedule.set_beat(Duration::MAX);
        assert_eq!(schedule.beat, BEAT_MAX);
    }
}
