//! Limits that another limit of the same rule makes superfluous, by their terms alone.

use tidegate_algorithms::Algorithm;
use tidegate_rules::{Mode, Rule, RuleLimit, Snapshot};

use crate::evidence::{LimitName, OverlapEvidence};

/// The limit of the same rule that refuses whatever this one would, if there is one. Only enforced, hard limits of equal
/// cost are compared; of two equal limits the first one stays.
pub fn dominating_limit(
    snapshot: &Snapshot,
    rule: &Rule,
    limit: &RuleLimit,
) -> Option<OverlapEvidence> {
    let mut others = snapshot.limits_of(rule).iter().filter(|other| other.id != limit.id);
    let other = others.find(|other| {
        dominates(other, limit) && !(other.id > limit.id && dominates(limit, other))
    })?;
    Some(OverlapEvidence {
        other: LimitName::of(snapshot, rule, other),
        by_terms: true,
        refused: 0,
        refused_by_both: 0,
    })
}

/// Whether `first` never admits so much that `second` would refuse.
fn dominates(first: &RuleLimit, second: &RuleLimit) -> bool {
    let comparable = first.mode == Mode::ENFORCE
        && first.limit.soft().is_none()
        && !first.quota
        && !second.quota
        && first.cost >= second.cost
        && second.cost == 1
        && first.cost == 1;
    let (a, b) = (first.limit.algorithm(), second.limit.algorithm());
    if !comparable || a.holds_slots() || b.holds_slots() || b.counts_refused() {
        return false;
    }
    let most = most_admitted(a, b);
    most.is_some_and(|most| most <= u128::from(b.quota()) && most <= u128::from(b.capacity()))
}

/// The most that `a` admits in any span of the period of `b`; `None` if `b` has no windows and `a` no steady rate.
fn most_admitted(a: &Algorithm, b: &Algorithm) -> Option<u128> {
    let (span, period) = (u128::from(b.period().get()), u128::from(a.period().get()).max(1));
    let quota = u128::from(a.quota());
    let same_windows = matches!((a, b), (Algorithm::FixedWindow(_), Algorithm::FixedWindow(_)));
    match a {
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => {
            Some(u128::from(a.capacity()) + (quota * span).div_ceil(period))
        }
        // Windows of both begin at the same instants.
        Algorithm::FixedWindow(_) if same_windows && span.is_multiple_of(period) => {
            Some(quota * (span / period))
        }
        Algorithm::FixedWindow(_) => Some(quota * (span.div_ceil(period) + 1)),
        Algorithm::SlidingLog(_) => Some(quota * span.div_ceil(period)),
        // Its estimate may be off by as much as a window.
        Algorithm::SlidingWindow(_) => Some(quota * (span.div_ceil(period) + 1)),
        Algorithm::Concurrency(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_rules::{Options, Source, compile};

    use super::*;

    /// The names of limits that others make superfluous.
    fn dominated(limits: &str) -> Vec<String> {
        let text = format!("domain: d\ndescriptors:\n- key: user\n  limits:\n{limits}");
        let snapshot = compile(&[Source::new("r.yaml", text)], &Options::default()).unwrap();
        let rule = &snapshot.rules()[0];
        let limits = snapshot.limits_of(rule).iter();
        limits
            .filter(|limit| dominating_limit(&snapshot, rule, limit).is_some())
            .map(|limit| snapshot.limit_name(rule, limit).into_owned())
            .collect()
    }

    #[test]
    fn a_larger_quota_for_the_same_window_is_superfluous() {
        let limits = "  - {name: tight, unit: minute, requests_per_unit: 10}\n  \
                      - {name: loose, unit: minute, requests_per_unit: 100}\n";
        assert_eq!(dominated(limits), ["loose"]);
    }

    #[test]
    fn limits_that_layer_well_are_kept() {
        let limits = "  - {name: s, unit: second, requests_per_unit: 1}\n  \
                      - {name: m, unit: minute, requests_per_unit: 10}\n";
        assert_eq!(dominated(limits), [""; 0]);
        let limits = "  - {name: s, unit: second, requests_per_unit: 1}\n  \
                      - {name: m, unit: minute, requests_per_unit: 60}\n";
        assert_eq!(dominated(limits), ["m"]);
    }

    #[test]
    fn of_two_equal_limits_the_first_stays() {
        let limits = "  - {name: a, unit: minute, requests_per_unit: 10}\n  \
                      - {name: b, unit: minute, requests_per_unit: 10}\n";
        assert_eq!(dominated(limits), ["b"]);
    }

    #[test]
    fn a_limit_in_shadow_makes_nothing_superfluous() {
        let limits = "  - {name: a, unit: minute, requests_per_unit: 1, mode: shadow}\n  \
                      - {name: b, unit: minute, requests_per_unit: 10}\n";
        assert_eq!(dominated(limits), [""; 0]);
    }
}
