//! Which limits are charged, and how much.

use std::collections::BTreeMap;

use tidegate_rules::Charge;

use super::Finding;
use crate::seen_verdict::SeenVerdict;
use crate::written_rules::{ExpectedVerdict, Subject};

/// An admission charges each admitting limit once and in full. A refusal charges none, or with
/// `charge: always` the limits that admit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChargeCheck {
    pub(crate) charge: Charge,
}

impl ChargeCheck {
    /// Compares the remaining budget of each counter before and after.
    pub(crate) fn check(
        self,
        expected: &[ExpectedVerdict],
        before: &SeenVerdict,
        answer: &SeenVerdict,
        after: &SeenVerdict,
    ) -> Finding {
        let charging = answer.admitted || self.charge == Charge::Always;
        let mut counters: BTreeMap<&Subject, Counter> = BTreeMap::new();
        let rulings = before.rulings.iter().zip(&answer.rulings).zip(&after.rulings);
        for (one, ((before, ruling), after)) in expected.iter().zip(rulings) {
            let due = if charging && ruling.admitted { one.cost } else { 0 };
            if ruling.taken != due {
                return Err(format!("`{}` took {}, not {due}", ruling.limit, ruling.taken));
            }
            let counter = counters.entry(&one.subject).or_insert(Counter {
                before: before.remaining,
                after: after.remaining,
                due: 0,
                counts_refused: false,
            });
            counter.due = counter.due.saturating_add(due);
            counter.counts_refused |= one.terms.counts_refused() && !ruling.admitted;
        }
        for (subject, counter) in counters {
            let used = counter.before.saturating_sub(counter.after);
            let gained = counter.after > counter.before;
            if !counter.counts_refused && (gained || used != counter.due) {
                return Err(format!("{subject:?} was due {}, but {counter:?}", counter.due));
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Counter {
    before: u64,
    after: u64,
    due: u64,
    /// Whether a refusal was counted, so that the remaining budget proves nothing.
    counts_refused: bool,
}

/// A peek gives the same answer as the check after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeekAgrees;

impl PeekAgrees {
    /// Compares the outcomes, limit by limit.
    pub(crate) fn check(peeked: &SeenVerdict, answer: &SeenVerdict) -> Finding {
        let said = |seen: &SeenVerdict| -> Vec<bool> {
            seen.rulings.iter().map(|ruling| ruling.admitted).collect()
        };
        if peeked.admitted != answer.admitted || said(peeked) != said(answer) {
            return Err(format!("peeked {:?}, then {:?}", said(peeked), said(answer)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Basis, Mode, Retry, Role};

    use super::*;
    use crate::seen_verdict::SeenRuling;
    use crate::time::SECOND;
    use crate::written_rules::{Kind, LimitName, Terms};

    fn one(count_refused: bool) -> ExpectedVerdict {
        let limit =
            LimitName { path: "user".to_owned(), name: "one".to_owned(), algorithm: "sliding_log" };
        ExpectedVerdict {
            descriptor: 0,
            subject: Subject { limit, values: Vec::new() },
            terms: Terms {
                kind: Kind::SlidingLog { limit: 9, period: SECOND, count_refused },
                soft: None,
            },
            cost: 2,
            mode: Mode::ENFORCE,
            quota: false,
        }
    }

    fn seen(request: bool, limit: bool, taken: u64, remaining: u64) -> SeenVerdict {
        let ruling = SeenRuling {
            descriptor: 0,
            path: "user".to_owned(),
            limit: "one".to_owned(),
            algorithm: "sliding_log",
            role: Role::Required,
            basis: Basis::Exact,
            admitted: limit,
            taken,
            remaining,
            retry: Retry::Now,
            delay: 0,
            soft: false,
        };
        SeenVerdict {
            admitted: request,
            refusal: None,
            retry: Retry::Now,
            undecided: None,
            switched_off: false,
            rulings: vec![ruling],
        }
    }

    /// What was left before, the answer, what was left after.
    fn check(charge: Charge, before: u64, answer: &SeenVerdict, after: u64) -> Finding {
        let expected = [one(false)];
        let (before, after) = (seen(true, true, 0, before), seen(true, true, 0, after));
        ChargeCheck { charge }.check(&expected, &before, answer, &after)
    }

    #[test]
    fn an_admission_that_is_not_charged_once_and_in_full_is_caught() {
        let check =
            |taken, after| check(Charge::AllOrNothing, 9, &seen(true, true, taken, 7), after);
        assert_eq!(check(2, 7), Ok(()));
        assert!(check(2, 9).is_err());
        assert!(check(2, 5).is_err());
        assert!(check(1, 7).is_err());
    }

    #[test]
    fn a_refusal_that_charges_somebody_is_caught() {
        let refused = |taken| seen(false, true, taken, 9);
        assert_eq!(check(Charge::AllOrNothing, 9, &refused(0), 9), Ok(()));
        assert!(check(Charge::AllOrNothing, 9, &refused(0), 7).is_err());
        assert!(check(Charge::AllOrNothing, 9, &refused(0), 10).is_err());
        assert!(check(Charge::AllOrNothing, 9, &refused(2), 7).is_err());
        assert_eq!(check(Charge::Always, 9, &refused(2), 7), Ok(()));
        assert!(check(Charge::Always, 9, &refused(0), 9).is_err());
    }

    #[test]
    fn a_counted_refusal_may_use_what_is_left() {
        let refused = seen(false, false, 0, 1);
        let (before, after) = (seen(false, false, 0, 1), seen(false, false, 0, 0));
        let charging = ChargeCheck { charge: Charge::AllOrNothing };
        assert_eq!(charging.check(&[one(true)], &before, &refused, &after), Ok(()));
        assert!(charging.check(&[one(false)], &before, &refused, &after).is_err());
    }

    #[test]
    fn a_peek_that_says_otherwise_is_caught() {
        let (yes, no) = (seen(true, true, 0, 9), seen(false, false, 0, 9));
        assert_eq!(PeekAgrees::check(&yes, &yes), Ok(()));
        assert!(PeekAgrees::check(&yes, &no).is_err());
        assert!(PeekAgrees::check(&seen(true, false, 0, 9), &yes).is_err());
    }
}
