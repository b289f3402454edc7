//! The requests of one door: how they were answered, and how long that took.
//!
//! A door adds to a few atomic counters once for each request; nothing is formatted before a scrape.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::exposition::{Exposition, Seconds};

crate::metrics! {
    /// The metrics of all meters.
    pub METER_METRICS:
    REQUESTS = Counter "tidegate_requests_total" ["door", "answer"]
        "Requests answered, by door and answer.";
    REQUEST_DURATION = Histogram "tidegate_request_duration_seconds" ["door"]
        "Time from a whole request to its answer.";
}

/// Upper bounds of the duration buckets in microseconds; one more bucket has no bound.
pub const DURATION_BOUNDS_MICROS: [u64; 12] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 25_000, 100_000, 1_000_000];

/// How a door answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerKind {
    /// Admitted.
    Admitted,
    /// Refused by a limit.
    Refused,
    /// Admitted or refused by the failure mode, because a store failed.
    Undecided,
    /// Admitted, because limiter code panicked.
    ErrorOpen,
    /// Rejected as malformed.
    Invalid,
    /// Not answered: the door failed or the deadline passed.
    Failed,
}

impl AnswerKind {
    /// All kinds, in the order of [`MeterReading::answers`].
    pub const ALL: [AnswerKind; 6] = [
        AnswerKind::Admitted,
        AnswerKind::Refused,
        AnswerKind::Undecided,
        AnswerKind::ErrorOpen,
        AnswerKind::Invalid,
        AnswerKind::Failed,
    ];

    /// The value of the label `answer`.
    pub const fn as_str(self) -> &'static str {
        match self {
            AnswerKind::Admitted => "admitted",
            AnswerKind::Refused => "refused",
            AnswerKind::Undecided => "undecided",
            AnswerKind::ErrorOpen => "error_open",
            AnswerKind::Invalid => "invalid",
            AnswerKind::Failed => "failed",
        }
    }
}

/// Counts the requests of one door.
#[derive(Debug)]
pub struct Meter {
    door: &'static str,
    answers: [AtomicU64; AnswerKind::ALL.len()],
    buckets: [AtomicU64; DURATION_BOUNDS_MICROS.len() + 1],
    nanos: AtomicU64,
}

/// The counts of a meter at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterReading {
    /// Requests by kind of answer, in the order of [`AnswerKind::ALL`].
    pub answers: [u64; AnswerKind::ALL.len()],
    /// Requests by duration; not cumulative.
    pub buckets: [u64; DURATION_BOUNDS_MICROS.len() + 1],
    /// The sum of all durations.
    pub total: Duration,
}

impl Meter {
    /// A meter for the door of this name.
    pub fn new(door: &'static str) -> Self {
        Meter {
            door,
            answers: Default::default(),
            buckets: Default::default(),
            nanos: AtomicU64::new(0),
        }
    }

    /// The door's name.
    pub const fn door(&self) -> &'static str {
        self.door
    }

    /// Counts one request.
    #[inline]
    pub fn count(&self, answer: AnswerKind, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS_MICROS.partition_point(|bound| bound * 1_000 < nanos);
        if let Some(count) = self.answers.get(answer as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(count) = self.buckets.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn read(&self) -> MeterReading {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MeterReading {
            answers: self.answers.each_ref().map(read),
            buckets: self.buckets.each_ref().map(read),
            total: Duration::from_nanos(read(&self.nanos)),
        }
    }
}

/// Writes the metrics of all doors. One function and no [`Collector`](crate::Collector): the doors share their families.
pub fn collect_meters(meters: &[Arc<Meter>], out: &mut Exposition) {
    let readings: Vec<_> = meters.iter().map(|meter| (meter.door(), meter.read())).collect();
    let mut requests = out.family(REQUESTS);
    for (door, reading) in &readings {
        for (answer, count) in AnswerKind::ALL.iter().zip(reading.answers) {
            requests.sample(&[door, answer.as_str()], count);
        }
    }
    let mut durations = out.family(REQUEST_DURATION);
    for (door, reading) in &readings {
        let bounds = DURATION_BOUNDS_MICROS.map(|micros| Seconds(Duration::from_micros(micros)));
        durations.histogram(&[door], bounds, &reading.buckets, reading.total.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_in_one_bucket_and_under_one_answer() {
        let meter = Meter::new("test");
        meter.count(AnswerKind::Admitted, Duration::from_micros(5));
        meter.count(AnswerKind::Refused, Duration::from_nanos(5_001));
        meter.count(AnswerKind::Failed, Duration::MAX);
        let reading = meter.read();
        assert_eq!(reading.answers, [1, 1, 0, 0, 0, 1]);
        assert_eq!((reading.buckets[0], reading.buckets[1], reading.buckets[12]), (1, 1, 1));
    }
}
