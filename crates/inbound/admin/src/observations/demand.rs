//! Samples of the callers of limits, for findings about rules.
//!
//! A limit is sampled from its first refusal, hit near its limit or hit in shadow mode on; hits of other limits cost one
//! relaxed load. The number of samples is bounded by their memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use tidegate_engine::{Request, Role, Ruling, ShownValue, Verdict};
use tidegate_insight::{CALLERS_SAMPLED, DemandHit, DemandSample};

use super::shards::Shards;

/// The most bytes of all samples.
const SAMPLES_BYTES_MAX: usize = 8 << 20;
/// Marks of sampled limits, by a part of their identity.
const MARKS: usize = 4_096;
/// A hit is near its limit from four fifths on.
const NEAR_FIFTHS: u64 = 5;

/// Samples of callers, by limit.
#[derive(Debug)]
pub(super) struct DemandSamples {
    hashes: RandomState,
    /// Whether any limit with this part of the identity is sampled.
    marks: Box<[AtomicBool]>,
    samples: Shards<HashMap<u64, DemandSample>>,
    /// How many samples may still begin.
    room: AtomicUsize,
}

impl DemandSamples {
    pub(super) fn new() -> Self {
        let room = SAMPLES_BYTES_MAX / DemandSample::bytes_of(CALLERS_SAMPLED).max(1);
        DemandSamples {
            hashes: RandomState::default(),
            marks: (0..MARKS).map(|_| AtomicBool::new(false)).collect(),
            samples: Shards::new(HashMap::new),
            room: AtomicUsize::new(room),
        }
    }

    /// Counts the hits of a verdict on sampled limits. Never waits for a lock.
    #[inline]
    pub(super) fn observe(&self, request: &Request<'_>, verdict: &Verdict) {
        for ruling in verdict.rulings() {
            let Some(limit) = verdict.limit(ruling) else { continue };
            let mark = usize::try_from(limit.identity % 4_096).unwrap_or(0);
            let Some(mark) = self.marks.get(mark) else { continue };
            if mark.load(Ordering::Relaxed) || begins(ruling) {
                self.sample(mark, request, verdict, ruling);
            }
        }
    }

    #[cold]
    fn sample(&self, mark: &AtomicBool, request: &Request<'_>, verdict: &Verdict, ruling: &Ruling) {
        let (Some(limit), Some(rule)) = (verdict.limit(ruling), verdict.rule(ruling)) else {
            return;
        };
        let algorithm = limit.limit.algorithm();
        let Some(descriptor) = super::descriptor_of(request, ruling) else { return };
        // Slots have no period.
        if algorithm.holds_slots() {
            return;
        }
        let mut hasher = self.hashes.build_hasher();
        for (entry, level) in descriptor.entries.iter().zip(rule.levels()) {
            // Values that all callers of the counter share say nothing about the caller.
            if matches!(level.shown(), ShownValue::KeyOnly | ShownValue::Requested) {
                entry.value.hash(&mut hasher);
            }
        }
        let (fingerprint, refused) = (hasher.finish(), !ruling.decision.is_admitted());
        let hit = DemandHit { fingerprint, cost: ruling.cost, refused };
        let Some(now) = verdict.decided_at() else { return };
        self.samples.change(limit.identity, |samples| {
            if let Some(sample) = samples.get_mut(&limit.identity) {
                return sample.observe(&hit, now);
            }
            let take = |room: usize| room.checked_sub(1);
            let has_room =
                || self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
            if begins(ruling) && has_room() {
                mark.store(true, Ordering::Relaxed);
                let mut sample = DemandSample::new(algorithm.period());
                sample.observe(&hit, now);
                samples.insert(limit.identity, sample);
            }
        });
    }

    /// The sample of a limit.
    pub(super) fn read(&self, identity: u64) -> Option<DemandSample> {
        let mut found = None;
        self.samples
            .each(|samples| found = found.take().or_else(|| samples.get(&identity).cloned()));
        found
    }

    /// How many hits were lost because another thread held the lock.
    pub(super) fn missed(&self) -> u64 {
        self.samples.missed()
    }
}

/// Whether a limit is sampled from this hit on.
fn begins(ruling: &Ruling) -> bool {
    let decision = &ruling.decision;
    !decision.is_admitted()
        || ruling.role == Role::Observed
        || decision.remaining.saturating_mul(NEAR_FIFTHS) <= decision.limit
}
