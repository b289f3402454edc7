//! Requests and refusals over time, at most a few hundred points.

use tidegate_algorithms::Timestamp;

/// The most points; beyond it two become one.
const POINTS_MAX: usize = 720;
const SECOND: u64 = 1_000_000_000;

/// Requests and refusals in equal steps of time.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    start: Option<u64>,
    /// Seconds in a step.
    step: u64,
    points: Vec<TimelinePoint>,
}

/// One step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimelinePoint {
    pub(crate) requests: u64,
    pub(crate) new_refused: u64,
    pub(crate) old_refused: u64,
}

impl Default for Timeline {
    fn default() -> Self {
        Timeline { start: None, step: 1, points: Vec::new() }
    }
}

impl Timeline {
    pub(crate) fn count(&mut self, time: Timestamp, new_refused: bool, old_refused: bool) {
        let second = time.as_nanos() / SECOND;
        let start = *self.start.get_or_insert(second);
        let mut index = second.saturating_sub(start) / self.step;
        while index >= u64::try_from(POINTS_MAX).unwrap_or(u64::MAX) {
            self.coarsen();
            index = second.saturating_sub(start) / self.step;
        }
        let index = usize::try_from(index).unwrap_or(0);
        if self.points.len() <= index {
            self.points.resize(index + 1, TimelinePoint::default());
        }
        if let Some(point) = self.points.get_mut(index) {
            point.requests += 1;
            point.new_refused += u64::from(new_refused);
            point.old_refused += u64::from(old_refused);
        }
    }

    fn coarsen(&mut self) {
        self.step = self.step.saturating_mul(2);
        let pairs = self.points.chunks(2).map(|pair| {
            pair.iter().fold(TimelinePoint::default(), |sum, point| TimelinePoint {
                requests: sum.requests + point.requests,
                new_refused: sum.new_refused + point.new_refused,
                old_refused: sum.old_refused + point.old_refused,
            })
        });
        self.points = pairs.collect();
    }

    pub(crate) const fn step_seconds(&self) -> u64 {
        self.step
    }

    pub(crate) fn points(&self) -> &[TimelinePoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_has_few_points_and_loses_no_request() {
        let mut timeline = Timeline::default();
        for hour in 0..10_000 {
            timeline.count(Timestamp::from_secs(hour * 3_600), hour % 2 == 0, false);
        }
        assert!(timeline.points().len() <= POINTS_MAX);
        let sum: u64 = timeline.points().iter().map(|point| point.requests).sum();
        let refused: u64 = timeline.points().iter().map(|point| point.new_refused).sum();
        assert_eq!((sum, refused), (10_000, 5_000));
    }
}
