//! How much each limit let through and refused, counted on the way.
//!
//! One line of memory for each limit, touched once for each ruling: cheap
//! enough to be always on in a service. Counts are in hits, as costs are, and
//! stay over a change of rules, by the limit's identity. Nothing here knows
//! keys: who was refused is an [`Observer`](crate::Observer)'s matter.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_algorithms::Decision;
use tidegate_stores::{Role, Verb};

/// What one limit decided so far, in hits.
///
/// Every hit that was checked is in `within` or in `over`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Let through by the limit.
    pub within: u64,
    /// Of those, the ones that used the last part of the limit; see [`NearLimit`].
    pub near: u64,
    /// Of those let through, the ones on a soft limit's allowance.
    pub soft: u64,
    /// Refused by the limit.
    pub over: u64,
    /// Of those refused, the ones that went on because the limit is in shadow.
    pub shadow: u64,
    /// Given back.
    pub refunded: u64,
}

/// From which share of a limit on its use counts as near the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearLimit {
    millionths: u32,
}

impl NearLimit {
    /// From this share on, in millionths; a million and more means never.
    pub const fn from_millionths(millionths: u32) -> Self {
        NearLimit { millionths }
    }

    /// How many of the last `cost` hits are near the limit, when `used` of it are now used.
    #[inline]
    pub fn part(self, limit: u64, used: u64, cost: u64) -> u64 {
        let scaled = u128::from(limit) * u128::from(self.millionths);
        if u128::from(used) * 1_000_000 <= scaled {
            return 0;
        }
        let threshold = u64::try_from(scaled / 1_000_000).unwrap_or(u64::MAX);
        cost.min(used.saturating_sub(threshold))
    }
}

impl Default for NearLimit {
    /// From four fifths on, as envoyproxy/ratelimit has it.
    fn default() -> Self {
        NearLimit { millionths: 800_000 }
    }
}

/// A limit's counts. Alone in its line, so that limits do not slow each other.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct TallyCell {
    within: AtomicU64,
    near: AtomicU64,
    soft: AtomicU64,
    over: AtomicU64,
    shadow: AtomicU64,
    refunded: AtomicU64,
}

impl TallyCell {
    /// Counts one decision.
    #[inline]
    pub(crate) fn count(
        &self,
        verb: Verb,
        near: NearLimit,
        role: Role,
        cost: u64,
        decision: &Decision,
    ) {
        let add = |count: &AtomicU64, hits: u64| {
            if hits > 0 {
                count.fetch_add(hits, Ordering::Relaxed);
            }
        };
        match verb {
            Verb::Check | Verb::Take | Verb::Charge => {}
            Verb::Refund => return add(&self.refunded, cost),
            Verb::Peek | Verb::Reset => return,
        }
        if decision.is_admitted() {
            let used = decision.limit.saturating_sub(decision.remaining);
            add(&self.within, cost);
            add(&self.near, near.part(decision.limit, used, cost));
            add(&self.soft, if decision.soft { cost } else { 0 });
        } else {
            add(&self.over, cost);
            add(&self.shadow, if role == Role::Observed { cost } else { 0 });
        }
    }

    pub(crate) fn read(&self) -> Tally {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Tally {
            within: read(&self.within),
            near: read(&self.near),
            soft: read(&self.soft),
            over: read(&self.over),
            shadow: read(&self.shadow),
            refunded: read(&self.refunded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_of_a_cost_beyond_the_share_is_near() {
        let near = NearLimit::default();
        assert_eq!(near.part(10, 8, 8), 0);
        assert_eq!(near.part(10, 9, 1), 1);
        assert_eq!(near.part(10, 10, 10), 2);
        assert_eq!(near.part(0, 0, 0), 0);
        assert_eq!(near.part(u64::MAX, u64::MAX, u64::MAX), u64::MAX / 5);
        assert_eq!(NearLimit::from_millionths(1_000_000).part(10, 10, 10), 0);
    }
}
