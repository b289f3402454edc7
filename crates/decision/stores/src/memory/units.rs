//! One unit of each token bucket of a rule: the commonest request of all, straight through.
//!
//! A rule's limits lie in one shard for each key, so one lock is enough. All buckets are looked
//! at before the first is charged, and what they decided is put into words when the shard is free
//! again. A bucket with no unit left keeps all of them from being charged. Whatever else is unusual,
//! a new key included, ends this way before anything is charged; `in_place` decides then.

use tidegate_algorithms::{BucketState, Taken, Timestamp, TokenBucket};

use super::MemoryStore;
use super::shard::Shard;
use super::slot::{Bits, Pack};
use crate::fingerprint::Fingerprint;

/// What one unit of each bucket comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units<const N: usize> {
    /// All had one, and it was taken. The states after that, for [`TokenBucket::tell_taken`].
    Taken([BucketState; N]),
    /// Some had none, and nothing was taken. The states as they are.
    Short([BucketState; N]),
}

/// Where a unit is taken, and the state after that.
#[derive(Clone, Copy, Debug)]
struct Unit {
    slot: usize,
    after: BucketState,
    bits: Bits,
    fits: bool,
}

impl MemoryStore {
    /// Takes one unit of each bucket, if all of their keys are known and have one left. `None`,
    /// and nothing charged, where that takes more thought. `key` is what the buckets have in
    /// common, and the number beside each tells its counters from those of the others.
    #[inline(always)]
    pub fn take_units<const N: usize>(
        &self,
        key: Fingerprint,
        buckets: [(u64, &TokenBucket); N],
        now: Timestamp,
    ) -> Option<Units<N>> {
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
        if !units.iter().all(|unit| unit.fits) {
            return states_of(&shard, &units).map(Units::Short);
        }
        units.iter().for_each(|unit| shard.put(unit.slot, unit.bits));
        Some(Units::Taken(units.map(|unit| unit.after)))
    }
}

impl Unit {
    /// Before anything was looked for.
    const NOWHERE: Unit = Unit {
        slot: usize::MAX,
        after: BucketState::from_parts(Timestamp::EPOCH, 0),
        bits: Bits::NONE,
        fits: false,
    };
}

/// The unit of one bucket whose key is known.
#[inline(always)]
fn look(shard: &Shard, key: Fingerprint, bucket: &TokenBucket, now: Timestamp) -> Option<Unit> {
    let (slot, bits) = shard.bits(key)?;
    let before = BucketState::unpack(bits)?;
    Some(match bucket.take_unit(before, now)? {
        Taken::Fits(after) => Unit { slot, after, bits: after.pack()?, fits: true },
        Taken::Refused => Unit { slot, after: before, bits, fits: false },
    })
}

/// The states of units that are not taken.
#[cold]
fn states_of<const N: usize>(shard: &Shard, units: &[Unit; N]) -> Option<[BucketState; N]> {
    let mut states = units.map(|unit| unit.after);
    for (state, unit) in states.iter_mut().zip(units) {
        *state = BucketState::unpack(shard.bits_at(unit.slot)?)?;
    }
    Some(states)
}
