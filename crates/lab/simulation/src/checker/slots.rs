//! Slots in use.

use super::Finding;
use crate::history::HeldSlot;

/// At most the limit of slots is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotBound {
    pub(crate) limit: u64,
}

impl SlotBound {
    /// Adds up the slots that are certainly in use, including the latest.
    pub(crate) fn check(&self, held: &[HeldSlot]) -> Finding {
        let sure: u64 = held.iter().filter(|held| held.certain).map(|held| held.count).sum();
        if sure > self.limit {
            return Err(format!("{sure} slots in flight, of {}", self.limit));
        }
        Ok(())
    }
}

/// A concurrency limit's remaining slots are the limit less the slots not returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotsInUse {
    pub(crate) limit: u64,
}

impl SlotsInUse {
    /// Compares the remaining slots of a peek with the held ones.
    pub(crate) fn check(&self, held: u64, remaining: u64) -> Finding {
        let left = self.limit.saturating_sub(held);
        if remaining != left {
            return Err(format!(
                "{held} of {} slots are held, but {remaining} are left",
                self.limit
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(count: u64, certain: bool) -> HeldSlot {
        HeldSlot { permit: 1, count, certain }
    }

    #[test]
    fn one_slot_too_many_in_flight_is_caught() {
        let bound = SlotBound { limit: 3 };
        assert_eq!(bound.check(&[held(2, true), held(1, true), held(5, false)]), Ok(()));
        assert!(bound.check(&[held(2, true), held(2, true)]).is_err());
    }

    #[test]
    fn a_slot_that_leaks_or_comes_back_twice_is_caught() {
        let in_use = SlotsInUse { limit: 3 };
        assert_eq!(in_use.check(2, 1), Ok(()));
        assert_eq!(in_use.check(5, 0), Ok(()));
        assert!(in_use.check(2, 0).is_err());
        assert!(in_use.check(2, 2).is_err());
    }
}
