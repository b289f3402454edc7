//! Drops calls to a service that is short of capacity, before they are sent.
//!
//! A 503 without a quota is the service's trouble: more calls make it worse. When fewer than two of three calls are
//! accepted, the excess is dropped here with a growing probability, so that the service sees little more than it can
//! accept and still enough to show that it has recovered.

use tidegate_algorithms::{Nanos, Timestamp};

/// Bins of the count, and the time of one: ten seconds in all. The part that leaves grows by half in each ten seconds
/// after a recovery, so that a longer count would keep the service idle for minutes.
const BINS: usize = 10;
const BIN: Nanos = Nanos::from_secs(1);
/// Fewer calls than this say nothing.
const CALLS_MIN: u64 = 20;
/// Calls allowed for each accepted one, in tenths.
const CALLS_PER_ACCEPTED: u64 = 15;
/// The largest part that is dropped, in parts of 65,536: one call in ten always leaves.
const DROPPED_MAX: u64 = 58_982;

/// Counts of the last ten seconds.
#[derive(Clone, Debug)]
pub(crate) struct CallThrottle {
    /// Calls and accepted calls of each bin.
    bins: [(u32, u32); BINS],
    /// The number of the newest bin since the epoch.
    newest: u64,
}

impl CallThrottle {
    pub(crate) const fn new() -> Self {
        CallThrottle { bins: [(0, 0); BINS], newest: 0 }
    }

    /// Whether to drop the next call. `random` decides.
    pub(crate) fn drops(&mut self, now: Timestamp, random: u64) -> bool {
        self.advance(now);
        let (calls, accepted) = self.bins.iter().fold((0_u64, 0_u64), |(calls, accepted), bin| {
            (calls + u64::from(bin.0), accepted + u64::from(bin.1))
        });
        let allowed = accepted * CALLS_PER_ACCEPTED / 10;
        if calls < CALLS_MIN || calls <= allowed {
            return false;
        }
        let dropped = ((calls - allowed) * 65_536 / (calls + 1)).min(DROPPED_MAX);
        let is_dropped = random % 65_536 < dropped;
        if is_dropped {
            // A dropped call is demand too: without it the count would fall and open the door again.
            self.count(now, false);
        }
        is_dropped
    }

    /// Counts a call and whether the service accepted it.
    pub(crate) fn count(&mut self, now: Timestamp, accepted: bool) {
        self.advance(now);
        let bin = &mut self.bins[index(self.newest)];
        bin.0 = bin.0.saturating_add(1);
        bin.1 = bin.1.saturating_add(u32::from(accepted));
    }

    /// Clears the bins that ended since.
    fn advance(&mut self, now: Timestamp) {
        let newest = now.as_nanos() / BIN.get();
        let passed = newest.saturating_sub(self.newest).min(BINS as u64);
        for bin in 0..passed {
            self.bins[index(newest - bin)] = (0, 0);
        }
        self.newest = self.newest.max(newest);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder below ten")]
const fn index(bin: u64) -> usize {
    (bin % BINS as u64) as usize
}
