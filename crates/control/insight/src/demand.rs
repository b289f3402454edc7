//! A sample of the callers of one limit, and what each of them asked for.
//!
//! "Bottom-k": of all callers, the `k` with the smallest fingerprints are kept. Fingerprints are hashes, so this is a
//! uniform sample of *distinct* callers, however often each of them calls, and a caller that is in the sample at the end
//! was in it from its first hit. The largest fingerprint kept also estimates how many callers there are.
//!
//! Time is divided into windows of the limit's period, aligned as fixed windows are. What a caller *asks for* in a window
//! counts, also when it is refused: that is the number a limit has to be compared with. A caller that waits when it is
//! refused asks for less than it wants; how early in a window it was refused first tells its pace.

mod compact;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::{Nanos, Timestamp};

pub use compact::CompactCount;

/// The callers of a sample unless it is created with another size: 10 KiB a limit.
pub const CALLERS_SAMPLED: usize = 256;
/// The most callers of a sample: 40 MB a limit, for replays.
pub const CALLERS_SAMPLED_MAX: usize = 1_000_000;
/// How many windows the longer mean covers.
pub const MEAN_WINDOWS: u32 = 10;

/// The pace of a shorter part of a window, in thousandths, says little.
const PASSED_MIN: u32 = 100;

/// The bits of the index of a half window; those above hold the flags.
const HALF_MASK: u32 = (1 << 30) - 1;
/// Indexes of half windows start over here: a multiple of the halves of ten windows.
const HALVES: u32 = (1 << 30) - 4;
/// The caller's last hit was refused.
const LAST_REFUSED: u32 = 1 << 31;
/// A hit of the present window was refused.
const WINDOW_REFUSED: u32 = 1 << 30;

/// What one caller asked of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerDemand {
    fingerprint: u64,
    hits: u32,
    refused: u32,
    /// The half window of the last hit, with the flags.
    half: u32,
    /// Units asked for in the present window.
    used: u32,
    /// Units asked for in the present ten windows.
    ten_used: u32,
    peak: CompactCount,
    ten_peak: CompactCount,
    /// The most units that it would have asked for in a window, had it gone on as it began.
    pace: CompactCount,
    refused_again: u16,
    /// Units admitted in the present half window and in the one before, for what passes around the end of a window.
    half_admitted: u16,
    last_half_admitted: u16,
}

impl CallerDemand {
    fn new(fingerprint: u64) -> Self {
        CallerDemand {
            fingerprint,
            hits: 0,
            refused: 0,
            half: 0,
            used: 0,
            ten_used: 0,
            peak: CompactCount::ZERO,
            ten_peak: CompactCount::ZERO,
            pace: CompactCount::ZERO,
            refused_again: 0,
            half_admitted: 0,
            last_half_admitted: 0,
        }
    }

    /// The hash of the caller.
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Units asked for.
    pub const fn hits(&self) -> u32 {
        self.hits
    }

    /// Units refused.
    pub const fn refused(&self) -> u32 {
        self.refused
    }

    /// The most units asked for in one window.
    pub fn peak(&self) -> u32 {
        self.peak.get()
    }

    /// The mean use of a window, over the ten windows in a row with the highest.
    pub fn mean(&self) -> f64 {
        f64::from(self.ten_peak.get()) / f64::from(MEAN_WINDOWS)
    }

    /// The most units for a whole window at the pace at which it was first refused in one. Zero without refusals.
    pub fn pace(&self) -> u32 {
        self.pace.get()
    }

    /// The share of refusals that came directly after another refusal. A caller that waits as long as it is asked to is
    /// admitted in between.
    pub fn repeated_share(&self) -> f64 {
        match (self.refused_again, self.refused) {
            (_, 0) => 0.0,
            (u16::MAX, _) => 1.0,
            (again, refused) => f64::from(again) / f64::from(refused),
        }
    }

    const fn half_index(&self) -> u32 {
        self.half & HALF_MASK
    }

    /// Counts a hit when so many thousandths of the window have passed, and returns the units admitted around the end of
    /// a window so far.
    fn observe(&mut self, hit: &DemandHit, half: u32, passed: u32) -> u32 {
        self.enter(half);
        let units = u32::try_from(hit.cost).unwrap_or(u32::MAX);
        self.hits = self.hits.saturating_add(units);
        self.used = self.used.saturating_add(units);
        self.ten_used = self.ten_used.saturating_add(units);
        self.peak = self.peak.max(CompactCount::at_least(self.used));
        self.ten_peak = self.ten_peak.max(CompactCount::at_least(self.ten_used));
        if hit.refused {
            self.refuse(units, passed);
        } else {
            self.half &= !LAST_REFUSED;
            let units = u16::try_from(units).unwrap_or(u16::MAX);
            self.half_admitted = self.half_admitted.saturating_add(units);
        }
        // The first half of a window: the half before it belongs to the window before.
        let around = u32::from(self.half_admitted) + u32::from(self.last_half_admitted);
        if half.is_multiple_of(2) { around } else { 0 }
    }

    fn refuse(&mut self, units: u32, passed: u32) {
        self.refused = self.refused.saturating_add(units);
        if self.half & LAST_REFUSED != 0 {
            let units = u16::try_from(units).unwrap_or(u16::MAX);
            self.refused_again = self.refused_again.saturating_add(units);
        }
        if self.half & WINDOW_REFUSED == 0 {
            let whole = u64::from(self.used) * 1_000 / u64::from(passed.max(PASSED_MIN));
            let pace = CompactCount::at_least(u32::try_from(whole).unwrap_or(u32::MAX));
            self.pace = self.pace.max(pace);
        }
        self.half |= LAST_REFUSED | WINDOW_REFUSED;
    }

    /// Moves to a half window. A hit that arrives late counts in the present one.
    fn enter(&mut self, half: u32) {
        let last = self.half_index();
        let forward = (half + HALVES - last) % HALVES;
        if self.hits > 0 && (forward == 0 || forward > HALVES / 2) {
            return;
        }
        self.last_half_admitted = if forward == 1 { self.half_admitted } else { 0 };
        self.half_admitted = 0;
        let flags = if half / 2 == last / 2 {
            self.half & !HALF_MASK
        } else {
            self.used = 0;
            self.half & LAST_REFUSED
        };
        if half / 2 / MEAN_WINDOWS != last / 2 / MEAN_WINDOWS {
            self.ten_used = 0;
        }
        self.half = half | flags;
    }

    /// Adds what the same caller asked for in another sample.
    fn add(&mut self, other: &CallerDemand, relation: SampleRelation) {
        let add = match relation {
            SampleRelation::OtherNode => CompactCount::plus,
            SampleRelation::OtherSpan => CompactCount::max,
        };
        self.hits = self.hits.saturating_add(other.hits);
        self.refused = self.refused.saturating_add(other.refused);
        self.peak = add(self.peak, other.peak);
        self.ten_peak = add(self.ten_peak, other.ten_peak);
        self.pace = add(self.pace, other.pace);
        self.refused_again = self.refused_again.saturating_add(other.refused_again);
        if other.half_index() > self.half_index() {
            self.half = other.half;
            self.used = other.used;
            self.ten_used = other.ten_used;
            self.half_admitted = other.half_admitted;
            self.last_half_admitted = other.last_half_admitted;
        }
    }
}

/// One hit on a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandHit {
    /// The hash of the caller: of the values that select the limit's counter.
    pub fingerprint: u64,
    /// Units asked for.
    pub cost: u64,
    /// Whether the limit refused it, in shadow too.
    pub refused: bool,
}

/// How two samples of one limit relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleRelation {
    /// Of the same time on different nodes, with equal fingerprints for equal callers. Peaks add up, at most.
    OtherNode,
    /// Of different times.
    OtherSpan,
}

/// A uniform sample of the callers of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandSample {
    /// Half the period of the limit, in nanoseconds; at least one.
    half_period: u64,
    size: usize,
    /// Sorted by fingerprint.
    callers: Vec<CallerDemand>,
    /// Whether a caller did not fit.
    overflowed: bool,
    /// The most units that one caller was admitted in the second half of a window and the first half of the next.
    boundary_peak: u32,
}

impl DemandSample {
    /// An empty sample of a limit with this period.
    pub fn new(period: Nanos) -> Self {
        DemandSample::with_size(period, CALLERS_SAMPLED)
    }

    /// An empty sample of up to this many callers.
    pub fn with_size(period: Nanos, callers_max: usize) -> Self {
        DemandSample {
            half_period: (period.get() / 2).max(1),
            size: callers_max.clamp(2, CALLERS_SAMPLED_MAX),
            callers: Vec::new(),
            overflowed: false,
            boundary_peak: 0,
        }
    }

    /// Whether a hit of this caller would change the sample. A caller outside it costs one comparison.
    #[inline]
    pub fn is_sampled(&self, fingerprint: u64) -> bool {
        self.callers.len() < self.size
            || self.callers.last().is_none_or(|last| fingerprint <= last.fingerprint)
    }

    /// Counts a hit at `now`.
    pub fn observe(&mut self, hit: &DemandHit, now: Timestamp) {
        if !self.is_sampled(hit.fingerprint) {
            self.overflowed = true;
            return;
        }
        let half = u32::try_from(now.as_nanos() / self.half_period % u64::from(HALVES));
        let at = self.find(hit.fingerprint).unwrap_or_else(|at| {
            if self.callers.len() == self.size {
                self.callers.pop();
                self.overflowed = true;
            }
            self.callers.insert(at, CallerDemand::new(hit.fingerprint));
            at
        });
        let passed = if hit.refused { self.passed(now) } else { 0 };
        if let Some(caller) = self.callers.get_mut(at) {
            let around = caller.observe(hit, half.unwrap_or(0), passed);
            self.boundary_peak = self.boundary_peak.max(around);
        }
    }

    /// The index of a caller, or where it belongs.
    ///
    /// Fingerprints are spread evenly, so that a caller is near the place that its fingerprint says: a few neighbouring
    /// cache lines, where a binary search would wait for one line after the other.
    fn find(&self, fingerprint: u64) -> Result<usize, usize> {
        /// A full sample is off by about eight places; beyond that, the order is searched.
        const STEPS_MAX: usize = 24;
        let last = self.callers.last().map_or(0, |last| last.fingerprint);
        let count = u128::try_from(self.callers.len()).unwrap_or(0);
        let guess = u128::from(fingerprint) * count / (u128::from(last) + 1);
        let mut at = usize::try_from(guess).unwrap_or(usize::MAX).min(self.callers.len());
        let key = |at: usize| self.callers.get(at).map(|caller| caller.fingerprint);
        for _ in 0..STEPS_MAX {
            let before = at.checked_sub(1).and_then(key);
            if before.is_some_and(|before| before >= fingerprint) {
                at -= 1;
                continue;
            }
            match key(at) {
                Some(here) if here < fingerprint => at += 1,
                Some(here) if here == fingerprint => return Ok(at),
                _ => return Err(at),
            }
        }
        self.callers.binary_search_by_key(&fingerprint, |caller| caller.fingerprint)
    }

    /// The thousandths of its window that have passed.
    fn passed(&self, now: Timestamp) -> u32 {
        let window = u128::from(self.half_period) * 2;
        let within = u128::from(now.as_nanos()) % window;
        u32::try_from(within * 1_000 / window).unwrap_or(0)
    }

    /// Adds another sample of the same limit. Samples of other periods are left out.
    pub fn merge(&mut self, other: &DemandSample, relation: SampleRelation) {
        if other.half_period != self.half_period {
            return;
        }
        for theirs in &other.callers {
            let key = theirs.fingerprint;
            match self.callers.binary_search_by_key(&key, |caller| caller.fingerprint) {
                Ok(at) => {
                    if let Some(ours) = self.callers.get_mut(at) {
                        ours.add(theirs, relation);
                    }
                }
                Err(at) => self.callers.insert(at, *theirs),
            }
        }
        // Beyond the smaller of the two largest fingerprints one of the samples may lack callers that it saw.
        self.overflowed |= other.overflowed || self.callers.len() > self.size;
        self.callers.truncate(self.size);
        self.boundary_peak = self.boundary_peak.max(other.boundary_peak);
    }

    /// The sampled callers, by fingerprint.
    pub fn callers(&self) -> &[CallerDemand] {
        &self.callers
    }

    /// How many distinct callers there were: exact until the sample is full, then an estimate with a standard error of
    /// `1/√k`, 6 % at 256.
    pub fn callers_estimate(&self) -> u64 {
        let kept = self.callers.len();
        let (true, Some(last)) = (self.overflowed, self.callers.last()) else {
            return u64::try_from(kept).unwrap_or(u64::MAX);
        };
        let others = u128::try_from(kept.saturating_sub(1)).unwrap_or(0);
        let estimate = (others << 64) / u128::from(last.fingerprint.max(1));
        u64::try_from(estimate).unwrap_or(u64::MAX)
    }

    /// The most units that one sampled caller was admitted in half a window on each side of a window's end. Counts up to
    /// 65,535 for each half.
    pub const fn boundary_peak(&self) -> u32 {
        self.boundary_peak
    }

    /// The memory of a full sample of this many callers, in bytes.
    pub const fn bytes_of(callers: usize) -> usize {
        callers * size_of::<CallerDemand>()
    }
}

#[cfg(test)]
mod tests;
