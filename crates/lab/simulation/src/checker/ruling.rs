//! Which limits apply, which refuse, and whether the refusal was necessary.

use std::collections::BTreeMap;

use tidegate_engine::{Mode, Retry, Role};

use super::Finding;
use super::bound::{BucketBound, SlidingBound, sum_within};
use crate::history::{Admission, Track};
use crate::seen_verdict::{SeenRuling, SeenVerdict};
use crate::written_rules::{ExpectedVerdict, Kind, Subject};

/// Exactly the limits that the rules name apply, each in the role of its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roles;

impl Roles {
    /// Compares rulings with what was expected, one by one.
    pub(crate) fn check(expected: &[ExpectedVerdict], seen: &SeenVerdict) -> Finding {
        let names: Vec<_> = seen
            .rulings
            .iter()
            .map(|ruling| (ruling.descriptor, &*ruling.path, &*ruling.limit, ruling.algorithm))
            .collect();
        let wanted: Vec<_> = expected
            .iter()
            .map(|one| {
                let limit = &one.subject.limit;
                (one.descriptor, &*limit.path, &*limit.name, limit.algorithm)
            })
            .collect();
        if names != wanted {
            return Err(format!("met {names:?}, not {wanted:?}"));
        }
        for (one, ruling) in expected.iter().zip(&seen.rulings) {
            let enforced = if one.quota { Role::Alternative } else { Role::Required };
            let right = match one.mode {
                Mode::Off => false,
                Mode::ENFORCE => ruling.role == enforced,
                Mode::Enforce(percent) if percent.get() > 0 => {
                    ruling.role == enforced || ruling.role == Role::Observed
                }
                Mode::Shadow | Mode::Enforce(_) => ruling.role == Role::Observed,
            };
            if !right {
                return Err(format!(
                    "`{}` is in mode `{}`, but its role is {:?}",
                    ruling.limit, one.mode, ruling.role
                ));
            }
        }
        Ok(())
    }
}

/// A limit that is enforced for a part of the keys picks the same ones each time.
#[derive(Clone, Debug, Default)]
pub(crate) struct StableEnforcement(BTreeMap<(Subject, u8), bool>);

impl StableEnforcement {
    /// Compares with the earlier result of the key.
    pub(crate) fn check(&mut self, one: &ExpectedVerdict, role: Role) -> Finding {
        let enforced = role != Role::Observed;
        let key = (one.subject.clone(), one.mode.enforce_percent());
        let before = *self.0.entry(key).or_insert(enforced);
        if before != enforced {
            return Err(format!("enforced for {:?}: first {before}, now {enforced}", one.subject));
        }
        Ok(())
    }
}

/// A request is refused when an enforced limit or all its quotas refuse it; a quota in shadow always has room. The
/// verdict names one of them, and a limit in shadow refuses nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome;

impl Outcome {
    /// Compares the outcome with the rulings.
    pub(crate) fn check(seen: &SeenVerdict) -> Finding {
        let refuses = |ruling: &&SeenRuling| !ruling.admitted;
        let of = |role| seen.rulings.iter().filter(move |ruling| ruling.role == role);
        let required = of(Role::Required).any(|ruling| !ruling.admitted);
        let quotas = of(Role::Alternative).count();
        let open = of(Role::Observed).any(|ruling| ruling.quota);
        let exhausted =
            quotas > 0 && !open && of(Role::Alternative).filter(refuses).count() == quotas;
        if seen.admitted == (required || exhausted) {
            return Err(format!(
                "admitted: {}, but its rulings are {:?}",
                seen.admitted, seen.rulings
            ));
        }
        match &seen.refusal {
            None if seen.admitted => Ok(()),
            None => Err("refused, but no limit is named".to_owned()),
            Some(named) if seen.admitted => Err(format!("admitted, but {named:?} refused")),
            Some((path, limit)) => {
                let named = |ruling: &SeenRuling| {
                    let counts = match ruling.role {
                        Role::Required => true,
                        Role::Alternative => exhausted,
                        Role::Observed => false,
                    };
                    counts && !ruling.admitted && ruling.path == *path && ruling.limit == *limit
                };
                if seen.rulings.iter().any(named) {
                    return Ok(());
                }
                Err(format!("`{limit}` of `{path}` is named, but does not refuse"))
            }
        }
    }
}

/// A request is refused for ever if and only if its cost exceeds what the limit can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeverFits;

impl NeverFits {
    /// Compares the cost of a refusal with the capacity of the limit.
    pub(crate) fn check(one: &ExpectedVerdict, ruling: &SeenRuling) -> Finding {
        let (cost, most) = (one.cost, one.terms.stretched());
        if (ruling.retry == Retry::Never) != (cost > most) {
            return Err(format!("{cost} of at most {most} gets {:?}", ruling.retry));
        }
        Ok(())
    }
}

/// A limit refuses only requests that do not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeededRefusal {
    pub(crate) now: u64,
    pub(crate) cost: u64,
}

impl NeededRefusal {
    /// Whether the history is complete and in order.
    pub(crate) fn can_tell(track: &Track) -> bool {
        track.whole && !track.late && !track.terms.counts_refused()
    }

    /// Adds the refused cost to the history and checks that it breaks a bound.
    pub(crate) fn check(&self, track: &Track) -> Finding {
        let refused = Admission {
            at: self.now,
            counted_at: self.now,
            cost: self.cost,
            delay: 0,
            soft: false,
        };
        let mut with = track.admissions.clone();
        with.push(refused);
        let limit = track.terms.capacity();
        let (sum, over) = match track.terms.kind {
            Kind::TokenBucket { amount, period, .. } | Kind::LeakyBucket { amount, period, .. } => {
                let bucket = BucketBound { capacity: limit, amount, period };
                (0, bucket.overfull(&with, 2).is_some())
            }
            Kind::FixedWindow { window, .. } => {
                let present = window.number(self.now);
                let same = with.iter().filter(|one| window.number(one.counted_at) == present);
                let sum = same.fold(0_u64, |sum, one| sum.saturating_add(one.cost));
                (sum, sum > limit)
            }
            Kind::SlidingLog { period, .. } => {
                let sum = sum_within(&with, period.saturating_sub(1));
                (sum, sum > limit)
            }
            Kind::SlidingWindow { period, buckets, rounds_down, .. } => {
                let slice = SlidingBound { limit, period, buckets, rounds_down }.slice();
                let sum = sum_within(&with, slice.saturating_mul(buckets + 1));
                (sum, sum > limit)
            }
            Kind::Concurrency { .. } => match track.exactly_held() {
                Some(held) => (held, held.saturating_add(self.cost) > limit),
                None => (0, true),
            },
        };
        if over {
            return Ok(());
        }
        Err(format!("{} refused though it fits: {sum} of {limit}, {:?}", self.cost, track.terms))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{Basis, Percent};

    use super::*;
    use crate::time::SECOND;
    use crate::written_rules::{LimitName, Terms, Window};

    fn expected(mode: Mode) -> ExpectedVerdict {
        let limit = LimitName {
            path: "user".to_owned(),
            name: "one".to_owned(),
            algorithm: "fixed_window",
        };
        ExpectedVerdict {
            descriptor: 0,
            subject: Subject { limit, values: vec!["ada".to_owned()] },
            terms: terms(),
            cost: 1,
            mode,
            quota: false,
        }
    }

    fn terms() -> Terms {
        let window = Window::Every(SECOND);
        Terms { kind: Kind::FixedWindow { limit: 2, window, count_refused: false }, soft: None }
    }

    fn ruling(role: Role, admitted: bool) -> SeenRuling {
        SeenRuling {
            descriptor: 0,
            path: "user".to_owned(),
            limit: "one".to_owned(),
            algorithm: "fixed_window",
            role,
            quota: role == Role::Alternative,
            basis: Basis::Exact,
            admitted,
            taken: u64::from(admitted),
            remaining: 0,
            retry: Retry::Now,
            delay: 0,
            soft: false,
        }
    }

    fn seen(admitted: bool, rulings: Vec<SeenRuling>) -> SeenVerdict {
        let named = || ("user".to_owned(), "one".to_owned());
        SeenVerdict {
            admitted,
            refusal: (!admitted).then(named),
            retry: Retry::Now,
            undecided: None,
            switched_off: false,
            rulings,
        }
    }

    #[test]
    fn a_limit_that_is_not_met_or_has_the_wrong_role_is_caught() {
        let check =
            |expected: &[ExpectedVerdict], rulings| Roles::check(expected, &seen(true, rulings));
        let enforced = expected(Mode::ENFORCE);
        let required = || vec![ruling(Role::Required, true)];
        let observed = || vec![ruling(Role::Observed, true)];
        assert_eq!(check(std::slice::from_ref(&enforced), required()), Ok(()));
        assert!(check(&[], required()).is_err());
        assert!(check(std::slice::from_ref(&enforced), vec![]).is_err());
        assert!(check(&[enforced], observed()).is_err());
        assert_eq!(check(&[expected(Mode::Shadow)], observed()), Ok(()));
        assert!(check(&[expected(Mode::Shadow)], required()).is_err());
        assert!(check(&[expected(Mode::Enforce(Percent::new(0)))], required()).is_err());
        assert_eq!(check(&[expected(Mode::Enforce(Percent::new(50)))], required()), Ok(()));
    }

    #[test]
    fn a_key_that_is_enforced_only_sometimes_is_caught() {
        let mut stable_enforcement = StableEnforcement::default();
        let half = expected(Mode::Enforce(Percent::new(50)));
        assert_eq!(stable_enforcement.check(&half, Role::Required), Ok(()));
        assert_eq!(stable_enforcement.check(&half, Role::Required), Ok(()));
        assert!(stable_enforcement.check(&half, Role::Observed).is_err());
    }

    #[test]
    fn an_outcome_that_does_not_follow_from_the_rulings_is_caught() {
        let refuses = |role| ruling(role, false);
        assert_eq!(Outcome::check(&seen(false, vec![refuses(Role::Required)])), Ok(()));
        assert!(Outcome::check(&seen(true, vec![refuses(Role::Required)])).is_err());
        assert_eq!(Outcome::check(&seen(true, vec![refuses(Role::Observed)])), Ok(()));
        assert!(Outcome::check(&seen(false, vec![refuses(Role::Observed)])).is_err());
        let quotas = vec![refuses(Role::Alternative), ruling(Role::Alternative, true)];
        assert_eq!(Outcome::check(&seen(true, quotas.clone())), Ok(()));
        assert!(Outcome::check(&seen(false, quotas)).is_err());
        let in_shadow = SeenRuling { quota: true, ..refuses(Role::Observed) };
        let quotas = vec![refuses(Role::Alternative), in_shadow];
        assert_eq!(Outcome::check(&seen(true, quotas.clone())), Ok(()));
        assert!(Outcome::check(&seen(false, quotas)).is_err());
    }

    #[test]
    fn a_refusal_that_names_no_limit_or_the_wrong_one_is_caught() {
        let refused = seen(false, vec![ruling(Role::Required, false)]);
        assert!(Outcome::check(&SeenVerdict { refusal: None, ..refused.clone() }).is_err());
        let other = Some(("user".to_owned(), "two".to_owned()));
        assert!(Outcome::check(&SeenVerdict { refusal: other.clone(), ..refused }).is_err());
        assert!(Outcome::check(&SeenVerdict { refusal: other, ..seen(true, vec![]) }).is_err());
    }

    #[test]
    fn a_wrong_never_is_caught() {
        let never = SeenRuling { retry: Retry::Never, ..ruling(Role::Required, false) };
        let later = SeenRuling { retry: Retry::After(SECOND_SPAN), ..never.clone() };
        let fits = expected(Mode::ENFORCE);
        let huge = ExpectedVerdict { cost: 3, ..fits.clone() };
        assert_eq!(NeverFits::check(&fits, &later), Ok(()));
        assert_eq!(NeverFits::check(&huge, &never), Ok(()));
        assert!(NeverFits::check(&fits, &never).is_err());
        assert!(NeverFits::check(&huge, &later).is_err());
    }

    const SECOND_SPAN: tidegate_engine::Nanos = tidegate_engine::Nanos::from_secs(1);

    /// A refusal after `used` at one instant.
    fn refused(kind: Kind, used: u64, cost: u64) -> Finding {
        let now = 1_700_000_000 * SECOND;
        let mut track = Track::unused(Terms { kind, soft: None }, now);
        track.charge(now, used, 0, false);
        track.hold(1, used);
        NeededRefusal { now, cost }.check(&track)
    }

    #[test]
    fn a_refusal_of_what_fits_is_caught_for_every_algorithm() {
        let (limit, period, count_refused) = (3, SECOND, false);
        let kinds = [
            Kind::TokenBucket { amount: 1, period, burst: limit },
            Kind::LeakyBucket { amount: 1, period, queue: limit - 1 },
            Kind::FixedWindow { limit, window: Window::Every(period), count_refused },
            Kind::SlidingLog { limit, period, count_refused },
            Kind::SlidingWindow { limit, period, buckets: 2, count_refused, rounds_down: false },
            Kind::Concurrency { limit, time_to_live: period },
        ];
        for kind in kinds {
            assert_eq!(refused(kind, 2, 2), Ok(()), "{kind:?}");
            assert_eq!(refused(kind, 0, 4), Ok(()), "{kind:?}");
            assert!(refused(kind, 2, 1).is_err(), "{kind:?}");
            assert!(refused(kind, 0, 1).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn a_history_with_gaps_cannot_tell_whether_a_refusal_was_needed() {
        let whole = Track::unused(terms(), SECOND);
        assert!(NeededRefusal::can_tell(&whole));
        assert!(!NeededRefusal::can_tell(&Track { late: true, ..whole.clone() }));
        assert!(!NeededRefusal::can_tell(&Track { whole: false, ..whole }));
    }
}
