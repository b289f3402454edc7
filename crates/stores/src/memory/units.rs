//! One unit of each token bucket of a rule: the commonest request of all, straight through.
//!
//! A rule's limits lie in one shard for each key, so one lock is enough. All buckets are looked
//! at before the first is charged, and what they decided is put into words when the shard is free
//! again. Whatever is unusual about one of them, a new key and a refusal included, ends this way
//! before anything is charged; `in_place` decides then.

use tidegate_algorithms::{BucketState, Taken, Timestamp, TokenBucket};

use super::MemoryStore;
use super::shard::Shard;
use super::slot::{Bits, Pack};
use crate::fingerprint::Fingerprint;

/// Where a unit is taken, and the state after that.
#[derive(Clone, Copy, Debug)]
struct Unit {
    slot: usize,
    after: BucketState,
    bits: Bits,
}

impl MemoryStore {
    /// Takes one unit of each bucket, if all of their keys are known and have one left; returns
    /// the states after that, for [`TokenBucket::tell_taken`]. `None`, and nothing charged, when
    /// it is anything else. `key` is what the buckets have in common, and the number beside each
    /// tells its counters from those of the others.
    #[inline(always)]
    pub fn take_units<const N: usize>(
        &self,
        key: Fingerprint,
        buckets: [(u64, &TokenBucket); N],
        now: Timestamp,
    ) -> Option<[BucketState; N]> {
        let mut shard = self.lock(key);
        let mut units = [Unit::NOWHERE; N];
        for (unit, (group, bucket)) in units.iter_mut().zip(&buckets) {
            *unit = look(&shard, key.under(*group), bucket, now)?;
        }
        // Limits that share a counter take a unit each, and only one would be counted.
        for at in 1..N {
            if units[..at].iter().any(|unit| unit.slot == units[at].slot) {
                return None;
            }
        }
        units.iter().for_each(|unit| shard.put(unit.slot, unit.bits));
        Some(units.map(|unit| unit.after))
    }
}

impl Unit {
    /// Before anything was looked for.
    const NOWHERE: Unit = Unit {
        slot: usize::MAX,
        after: BucketState::from_parts(Timestamp::EPOCH, 0),
        bits: Bits::NONE,
    };
}

/// The unit of one bucket, if its key is known and has one left.
#[inline(always)]
fn look(shard: &Shard, key: Fingerprint, bucket: &TokenBucket, now: Timestamp) -> Option<Unit> {
    let (slot, bits) = shard.bits(key)?;
    match bucket.take_unit(BucketState::unpack(bits)?, now)? {
        Taken::Fits(after) => Some(Unit { slot, after, bits: after.pack()? }),
        Taken::Refused => None,
    }
}
