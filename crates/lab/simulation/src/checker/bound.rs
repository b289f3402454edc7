//! Bounds on what a counter may admit, by algorithm.

use super::Finding;
use crate::history::Admission;
use crate::written_rules::Window;

/// In any span, at most the capacity plus the refill of that span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketBound {
    pub(crate) capacity: u64,
    pub(crate) amount: u64,
    pub(crate) period: u64,
}

impl BucketBound {
    /// Checks every span that ends with the last admission.
    pub(crate) fn check(&self, admissions: &[Admission]) -> Finding {
        match self.overfull(admissions, 0) {
            Some((sum, span)) => Err(format!(
                "{sum} admitted in {span} ns; the bucket holds {} and refills {} in {} ns",
                self.capacity, self.amount, self.period
            )),
            None => Ok(()),
        }
    }

    /// A sum of costs up to the last admission and its span, for which the bucket has no room.
    /// `spare` nanoseconds of each span refill nothing.
    pub(crate) fn overfull(&self, admissions: &[Admission], spare: u64) -> Option<(u64, u64)> {
        let last = admissions.last()?;
        let (period, amount) = (u128::from(self.period), u128::from(self.amount));
        let mut sum = 0_u64;
        for admission in admissions.iter().rev() {
            sum = sum.saturating_add(admission.cost);
            let span = last.at.saturating_sub(admission.at);
            // One unit's time is rounded up to 2⁻¹⁴ ns.
            let rounded = if spare > 0 { spare.saturating_add(sum >> 14) } else { 0 };
            let refilled = amount * u128::from(span.saturating_sub(rounded));
            if u128::from(sum) * period > u128::from(self.capacity) * period + refilled {
                return Some((sum, span));
            }
        }
        None
    }
}

/// Each departure comes after the turns of the earlier ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepartureSpacing {
    pub(crate) amount: u64,
    pub(crate) period: u64,
}

impl DepartureSpacing {
    /// Compares the last departure with every one before it.
    pub(crate) fn check(&self, admissions: &[Admission]) -> Finding {
        let Some((last, before)) = admissions.split_last() else { return Ok(()) };
        let leaves = last.at.saturating_add(last.delay);
        let mut turns = 0_u64;
        for admission in before.iter().rev() {
            turns = turns.saturating_add(admission.cost);
            let left = admission.at.saturating_add(admission.delay);
            // A delay is rounded up to whole nanoseconds.
            let apart = leaves.saturating_add(1).saturating_sub(left);
            if u128::from(apart) * u128::from(self.amount)
                < u128::from(turns) * u128::from(self.period)
            {
                return Err(format!("{turns} turns before it, but it leaves after {apart} ns"));
            }
        }
        Ok(())
    }
}

/// No more than the limit in one window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowBound {
    pub(crate) limit: u64,
    pub(crate) window: Window,
}

impl WindowBound {
    /// Adds up the window of the last admission.
    pub(crate) fn check(&self, admissions: &[Admission]) -> Finding {
        let Some(last) = admissions.last() else { return Ok(()) };
        let present = self.window.number(last.counted_at);
        let same = |admission: &&Admission| self.window.number(admission.counted_at) == present;
        let sum: u64 = admissions.iter().rev().take_while(same).map(|one| one.cost).sum();
        if sum > self.limit {
            return Err(format!("{sum} admitted in window {present}, of {}", self.limit));
        }
        Ok(())
    }
}

/// No more than the limit in any period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogBound {
    pub(crate) limit: u64,
    pub(crate) period: u64,
}

impl LogBound {
    /// Adds up the period that ends with the last admission.
    pub(crate) fn check(&self, admissions: &[Admission]) -> Finding {
        let sum = sum_within(admissions, self.period.saturating_sub(1));
        if sum > self.limit {
            return Err(format!("{sum} admitted in {} ns, of {}", self.period, self.limit));
        }
        Ok(())
    }
}

/// At most the limit in a period less one slice, and at most twice the limit in a period; one less if use is rounded up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingBound {
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) buckets: u64,
    pub(crate) rounds_down: bool,
}

impl SlidingBound {
    /// Adds up both spans that end with the last admission.
    pub(crate) fn check(&self, admissions: &[Admission]) -> Finding {
        let slice = self.slice();
        let inside = sum_within(admissions, self.period.saturating_sub(slice));
        if inside > self.limit {
            return Err(format!("{inside} admitted in a period less a slice, of {}", self.limit));
        }
        let whole = sum_within(admissions, self.period.saturating_sub(1));
        let most = (2 * self.limit).saturating_sub(u64::from(!self.rounds_down));
        if whole > most {
            return Err(format!("{whole} admitted in {} ns, of at most {most}", self.period));
        }
        Ok(())
    }

    pub(crate) const fn slice(&self) -> u64 {
        self.period.div_ceil(self.buckets)
    }
}

/// Requests above the limit are admitted only while a soft allowance is open; then it rests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoftAllowance {
    pub(crate) lasting: u64,
    pub(crate) rest: u64,
}

impl SoftAllowance {
    /// Checks all allowances.
    pub(crate) fn check(&self, admissions: &[Admission]) -> Finding {
        let mut opened: Option<u64> = None;
        for soft in admissions.iter().filter(|admission| admission.soft) {
            let Some(begun) = opened else {
                opened = Some(soft.at);
                continue;
            };
            let passed = soft.at.saturating_sub(begun);
            if passed >= self.lasting.saturating_add(self.rest) {
                opened = Some(soft.at);
            } else if passed >= self.lasting {
                return Err(format!(
                    "admitted softly {passed} ns after an allowance of {} ns opened that rests {} ns",
                    self.lasting, self.rest
                ));
            }
        }
        Ok(())
    }
}

/// The sum of admissions in the span that ends with the last one.
pub(crate) fn sum_within(admissions: &[Admission], span: u64) -> u64 {
    let Some(last) = admissions.last() else { return 0 };
    let inside = |one: &&Admission| last.counted_at.saturating_sub(one.counted_at) <= span;
    let costs = admissions.iter().rev().take_while(inside).map(|one| one.cost);
    costs.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    fn at(millis: u64) -> Admission {
        let at = 1_700_000_000 * SECOND + millis * 1_000_000;
        Admission { at, counted_at: at, cost: 1, delay: 0, soft: false }
    }

    fn all<const N: usize>(millis: [u64; N]) -> Vec<Admission> {
        millis.map(at).to_vec()
    }

    #[test]
    fn a_bucket_that_admits_one_too_many_is_caught() {
        let bound = BucketBound { capacity: 2, amount: 1, period: SECOND };
        assert_eq!(bound.check(&all([0, 0, 1_000])), Ok(()));
        assert!(bound.check(&all([0, 0, 999])).is_err());
        assert!(bound.check(&all([0, 0, 0])).is_err());
        assert_eq!(bound.check(&[]), Ok(()));
    }

    #[test]
    fn departures_that_come_too_close_are_caught() {
        let spacing = DepartureSpacing { amount: 10, period: SECOND };
        let delayed =
            |millis: u64, delay: u64| Admission { delay: delay * 1_000_000, ..at(millis) };
        assert_eq!(spacing.check(&[delayed(0, 0), delayed(0, 100), delayed(50, 150)]), Ok(()));
        assert!(spacing.check(&[delayed(0, 0), delayed(0, 99)]).is_err());
        assert!(spacing.check(&[delayed(0, 0), delayed(0, 100), delayed(50, 149)]).is_err());
        let two_turns = Admission { cost: 2, ..at(0) };
        assert!(spacing.check(&[two_turns, delayed(0, 100)]).is_err());
    }

    #[test]
    fn a_window_with_one_too_many_is_caught() {
        let bound = WindowBound { limit: 2, window: Window::Every(SECOND) };
        assert_eq!(bound.check(&all([998, 999, 1_000, 1_001])), Ok(()));
        assert!(bound.check(&all([0, 500, 999])).is_err());
        let day = WindowBound { limit: 1, window: Window::DayInTokyo };
        // The run begins at 22:13 UTC, 07:13 in Tokyo.
        assert_eq!(day.check(&all([0, 17 * 3_600_000])), Ok(()));
        assert!(day.check(&all([0, 16 * 3_600_000])).is_err());
        let week = WindowBound { limit: 1, window: Window::Week };
        // On a Tuesday.
        assert_eq!(week.check(&all([0, 6 * 86_400_000])), Ok(()));
        assert!(week.check(&all([0, 5 * 86_400_000])).is_err());
    }

    #[test]
    fn a_period_with_one_too_many_is_caught_wherever_it_starts() {
        let bound = LogBound { limit: 2, period: SECOND };
        assert_eq!(bound.check(&all([600, 700, 1_600])), Ok(()));
        assert!(bound.check(&all([600, 700, 1_599])).is_err());
    }

    #[test]
    fn a_sliding_window_beyond_either_bound_is_caught() {
        let bound = SlidingBound { limit: 2, period: SECOND, buckets: 4, rounds_down: false };
        assert_eq!(bound.check(&all([0, 0, 751])), Ok(()));
        assert!(bound.check(&all([0, 0, 750])).is_err());
        let bound = SlidingBound { limit: 2, period: SECOND, buckets: 1, rounds_down: false };
        assert_eq!(bound.check(&all([0, 0, 999])), Ok(()));
        assert!(bound.check(&all([0, 0, 998, 999])).is_err());
    }

    #[test]
    fn an_allowance_that_stays_open_or_does_not_rest_is_caught() {
        let allowance = SoftAllowance { lasting: SECOND, rest: 2 * SECOND };
        let soft = |millis| Admission { soft: true, ..at(millis) };
        assert_eq!(allowance.check(&[soft(0), soft(999), soft(3_000), at(4_500)]), Ok(()));
        assert!(allowance.check(&[soft(0), soft(1_000)]).is_err());
        assert!(allowance.check(&[soft(0), at(1_000), soft(2_999)]).is_err());
        assert!(allowance.check(&[soft(0), soft(3_000), soft(4_000)]).is_err());
    }
}
