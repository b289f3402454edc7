//! One unit of a token bucket in few instructions: the most frequent check of all.
//!
//! A state is already a number: whole nanoseconds, and a fraction above the bits of the scale. If
//! it was written at the same rate, the interval is added to it as it is, and the result is
//! compared with the capacity in the same form. No ticks are calculated before the decision is
//! known.
//!
//! Whether the unit fits is a branch, which the processor predicts. A state selected by arithmetic
//! would have to wait for the clock, and the next decision for the state.
//!
//! A state of another rate or of finer ticks, and a clock out of order, are left to
//! [`BucketMeter`].
//!
//! [`BucketMeter`]: super::BucketMeter

use super::{BucketState, FINEST, LATEST, Scale};
use crate::time::Timestamp;

/// One unit, and the room for it, in the representation of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitStep {
    nanos: u64,
    part: u32,
    /// The largest debt with which one more unit fits.
    room_nanos: u64,
    room_part: u32,
    /// The lowest bits of a part: the scale, and fractions finer than the ticks.
    fine: u32,
    /// The value of these bits in a state of this bucket.
    tag: u32,
    /// A longer debt in nanoseconds is not believed.
    longest: u64,
}

/// The result of taking one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitOutcome {
    /// It fits; the state after it.
    Taken(BucketState),
    /// It does not fit, and the state is unchanged.
    Refused,
}

impl UnitStep {
    pub(super) fn new(
        shift: u32,
        interval: u64,
        capacity: u64,
        longest: u64,
        scale: Scale,
    ) -> Self {
        let nanos = |ticks: u64| ticks >> shift;
        let part = |ticks: u64| {
            let fraction = (ticks << (FINEST - shift)) & ((1 << FINEST) - 1);
            u32::try_from(fraction << Scale::BITS).unwrap_or(0)
        };
        let room = capacity.saturating_sub(interval);
        let (fine, tag) = if interval <= capacity {
            (u32::MAX >> shift, scale.0)
        } else {
            // Matches no state: a unit never fits, and the general arithmetic says so.
            (0, 1)
        };
        UnitStep {
            nanos: nanos(interval),
            part: part(interval),
            room_nanos: nanos(room),
            room_part: part(room) | scale.0,
            fine,
            tag,
            longest,
        }
    }

    /// Takes one unit; `None` if the state needs the general arithmetic.
    #[inline(always)]
    pub(crate) fn take(&self, state: BucketState, now: Timestamp) -> Option<UnitOutcome> {
        if state.part & self.fine != self.tag || state.full_at > LATEST {
            return None;
        }
        let (full_at, now) = (state.full_at.as_nanos(), now.as_nanos());
        if full_at < now {
            return taken(now.checked_add(self.nanos)?, self.part | self.tag);
        }
        let owed = full_at - now;
        // Rounded up if the fraction does not fit.
        if owed.wrapping_add(u64::from(state.part > self.room_part)) > self.room_nanos {
            return (owed <= self.longest).then_some(UnitOutcome::Refused);
        }
        let (part, carry) = state.part.overflowing_add(self.part);
        taken(full_at + self.nanos + u64::from(carry), part)
    }
}

#[inline(always)]
fn taken(full_at: u64, part: u32) -> Option<UnitOutcome> {
    let full_at = Timestamp::from_nanos(full_at);
    (full_at <= LATEST).then_some(UnitOutcome::Taken(BucketState { full_at, part }))
}
