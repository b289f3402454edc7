//! What a door answered, and how long it took.
//!
//! Plain counters that a door touches once for each request, and that the debug
//! door reads. No labels and no text here: names are the reader's matter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the duration buckets, in microseconds; one more bucket
/// takes what is above them all.
pub const DURATION_BOUNDS_MICROS: [u64; 12] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 25_000, 100_000, 1_000_000];

/// How a door answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answered {
    /// Admitted.
    Admitted,
    /// Refused by a limit.
    Refused,
    /// By the failure mode, because nothing could be decided.
    Undecided,
    /// The request makes no sense.
    Invalid,
    /// The door itself failed, or ran out of time.
    Failed,
}

impl Answered {
    /// All of them, in the order of [`MeterReading::answers`].
    pub const ALL: [Answered; 5] = [
        Answered::Admitted,
        Answered::Refused,
        Answered::Undecided,
        Answered::Invalid,
        Answered::Failed,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Answered::Admitted => "admitted",
            Answered::Refused => "refused",
            Answered::Undecided => "undecided",
            Answered::Invalid => "invalid",
            Answered::Failed => "failed",
        }
    }
}

/// Counts what one door answers.
#[derive(Debug)]
pub struct Meter {
    door: &'static str,
    answers: [AtomicU64; Answered::ALL.len()],
    buckets: [AtomicU64; DURATION_BOUNDS_MICROS.len() + 1],
    nanos: AtomicU64,
}

/// What a meter showed at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterReading {
    /// How many requests were answered how, in the order of [`Answered::ALL`].
    pub answers: [u64; Answered::ALL.len()],
    /// How many requests took how long; by bucket, not cumulative.
    pub buckets: [u64; DURATION_BOUNDS_MICROS.len() + 1],
    /// How long all of them took together.
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
    pub fn count(&self, answered: Answered, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS_MICROS.partition_point(|bound| bound * 1_000 < nanos);
        if let Some(count) = self.answers.get(answered as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(count) = self.buckets.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What it shows now.
    pub fn read(&self) -> MeterReading {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        MeterReading {
            answers: self.answers.each_ref().map(read),
            buckets: self.buckets.each_ref().map(read),
            total: Duration::from_nanos(read(&self.nanos)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_in_one_bucket_and_under_one_answer() {
        let meter = Meter::new("test");
        meter.count(Answered::Admitted, Duration::from_micros(5));
        meter.count(Answered::Refused, Duration::from_nanos(5_001));
        meter.count(Answered::Failed, Duration::MAX);
        let reading = meter.read();
        assert_eq!(reading.answers, [1, 1, 0, 0, 1]);
        assert_eq!((reading.buckets[0], reading.buckets[1], reading.buckets[12]), (1, 1, 1));
    }
}
