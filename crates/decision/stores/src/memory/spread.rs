//! Several known keys that lie in several shards: a request with several
//! descriptors.
//!
//! As in `together`, every shard is locked until the last key is charged, in
//! one order for every caller. Unlike there, states stay in their slots, and
//! nothing is allocated. A new key, a key that stands twice and a state on the
//! shelf are left to `together`.

use smallvec::SmallVec;

use super::MemoryStore;
use super::in_place::{judge, uncharged};
use super::lock::Held;
use super::shard::Change;
use crate::batch::{Answer, Answered, Basis, Batch, Charge, Check, passes};

/// Checks that are decided this way at the most: more than requests have, and
/// few enough to sort and keep on the stack.
const SPREAD_MAX: usize = 16;

/// Where a check lies and its place in the request, in one number: those of
/// one shard follow each other once they are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Stop(usize);

impl Stop {
    const fn new(shard: usize, place: usize) -> Self {
        Stop(shard * SPREAD_MAX + place)
    }

    const fn shard(self) -> usize {
        self.0 / SPREAD_MAX
    }

    const fn place(self) -> usize {
        self.0 % SPREAD_MAX
    }
}

impl MemoryStore {
    /// Decides checks in their slots, wherever those are. Says whether it
    /// could; if not, nothing is done.
    #[inline(never)]
    pub(super) fn check_spread(&self, batch: &Batch<'_>, places: &mut [impl Answered]) -> bool {
        let Batch { checks, now, .. } = *batch;
        let mut stops = [Stop::default(); SPREAD_MAX];
        let Some(stops) = stops.get_mut(..checks.len()) else { return false };
        for (place, (stop, check)) in stops.iter_mut().zip(checks).enumerate() {
            *stop = Stop::new(self.shard_of(check.key.fingerprint), place);
        }
        stops.sort_unstable();

        let mut shards: SmallVec<[Held<'_>; SPREAD_MAX]> = SmallVec::new();
        let mut changes = [Change::default(); SPREAD_MAX];
        for group in stops.chunk_by(|one, next| one.shard() == next.shard()) {
            let [first, ..] = group else { continue };
            if has_twins(group, checks) {
                return false;
            }
            let shard = self.shards[first.shard()].lock();
            for stop in group {
                let place = stop.place();
                let (check, change) = (&checks[place], &mut changes[place]);
                let Some(limit) = check.limit.small() else { return false };
                let told = |answer| places[place].put(answer);
                if !judge(&shard, limit, check, now, change, told) {
                    return false;
                }
            }
            shards.push(shard);
        }

        let each = || checks.iter().zip(&changes);
        let pass = passes(each().map(|(check, change)| (check.role, change.admitted)))
            || batch.charge == Charge::Always;
        let groups = stops.chunk_by(|one, next| one.shard() == next.shard());
        for (group, shard) in groups.zip(&mut shards) {
            for stop in group {
                let change = &changes[stop.place()];
                if pass || !change.admitted {
                    shard.set_in_place(change);
                } else {
                    let check = &checks[stop.place()];
                    let decision = uncharged(shard, check, change, now);
                    places[stop.place()].put(Answer { decision, basis: Basis::Exact });
                }
            }
        }
        true
    }
}

/// Whether a key stands twice among those of one shard.
#[inline]
fn has_twins(group: &[Stop], checks: &[Check<'_>]) -> bool {
    let key = |stop: &Stop| checks[stop.place()].key.fingerprint;
    group
        .iter()
        .enumerate()
        .any(|(at, stop)| group[..at].iter().any(|other| key(other) == key(stop)))
}
