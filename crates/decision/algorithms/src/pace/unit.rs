//! One unit in one go: the commonest check of a token bucket.
//!
//! A state is a number already: whole nanoseconds, and a part of one above the
//! scale's bits. Where the state was written at the same pace, one unit is
//! added to it as it is, and what a full bucket holds is compared with it as it
//! is. Nothing is counted in ticks before the decision stands.
//!
//! Whether the unit fits is asked by a branch, which the processor guesses. A
//! state chosen by arithmetic would have to wait for the clock, and the next
//! decision for the state.
//!
//! Another pace, another fineness, a clock out of order: [`Pace`] knows what to
//! do, and is asked instead.

use super::{BucketState, FINEST, LATEST, Scale};
use crate::time::{Nanos, Timestamp};

/// One unit and all that fits before it, in the numbers of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    nanos: u64,
    part: u32,
    /// What may be owed at the most so that one more unit fits.
    room_nanos: u64,
    room_part: u32,
    /// The lowest bits of a part: the scale, and what is finer than the ticks.
    fine: u32,
    /// What these bits are in a state of this pace.
    tag: u32,
    /// Nanoseconds owed beyond this are not believed.
    longest: u64,
}

/// What one unit comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It fits, and this is the state after it.
    Fits(BucketState),
    /// It does not fit; the state stays what it is.
    Refused,
}

impl Unit {
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
            // No state is like this: a unit never fits, and this way never serves.
            (0, 1)
        };
        Unit {
            nanos: nanos(interval),
            part: part(interval),
            room_nanos: nanos(room),
            room_part: part(room) | scale.0,
            fine,
            tag,
            longest,
        }
    }

    /// Takes one unit, if nothing is unusual.
    #[inline(always)]
    pub(super) fn take(&self, state: BucketState, now: Timestamp) -> Option<Taken> {
        if state.part & self.fine != self.tag || state.full_at > LATEST {
            return None;
        }
        let (full_at, now) = (state.full_at.as_nanos(), now.as_nanos());
        if full_at < now {
            return fits(now.checked_add(self.nanos)?, self.part | self.tag);
        }
        let owed = full_at - now;
        if self.rounded(owed, state) > self.room_nanos {
            return (owed <= self.longest).then_some(Taken::Refused);
        }
        let (part, carry) = state.part.overflowing_add(self.part);
        fits(full_at + self.nanos + u64::from(carry), part)
    }

    /// How long until a unit fits that [`Unit::take`] refused at that instant.
    #[inline(always)]
    pub(super) fn wait(&self, state: BucketState, now: Timestamp) -> Nanos {
        let owed = state.full_at.since(now).get();
        Nanos::new(self.rounded(owed, state).saturating_sub(self.room_nanos))
    }

    /// Whole nanoseconds owed, and one more for a part that there is no room for.
    #[inline(always)]
    fn rounded(&self, owed: u64, state: BucketState) -> u64 {
        owed.wrapping_add(u64::from(state.part > self.room_part))
    }
}

#[inline(always)]
fn fits(full_at: u64, part: u32) -> Option<Taken> {
    let full_at = Timestamp::from_nanos(full_at);
    (full_at <= LATEST).then_some(Taken::Fits(BucketState { full_at, part }))
}
