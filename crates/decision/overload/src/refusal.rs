//! Refusals: the cause, and when to retry.

use tidegate_algorithms::Nanos;

use crate::category::Category;
use crate::cause::Cause;
use crate::mix::mix;

/// Below this admitted fraction clients are asked to wait twice as long.
const DEEP: f64 = 0.5;

/// A refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub cause: Cause,
    /// The category of the request.
    pub category: Category,
    /// When to retry. Random, so that clients do not retry at the same moment.
    pub retry_after: Nanos,
    /// Whether the whole fleet is saturated, so that a retry at another node fails too.
    pub fleet_saturated: bool,
}

/// When to retry. `admitted` is the fraction that the worker shedder admits, and `random` any
/// number.
///
/// One to five seconds when the fleet is saturated. Otherwise one second for critical requests up
/// to five for test requests, ± 50 %, and twice that in a deep overload.
pub fn retry_after(cause: Cause, category: Category, admitted: f64, random: u64) -> Nanos {
    let random = mix(random);
    if cause == Cause::ShedFleet {
        return Nanos::new(1_000_000_000 + random % 4_000_000_001);
    }
    let seconds = match category {
        Category::Critical => 1,
        Category::Post => 2,
        Category::Get => 3,
        Category::Test => 5,
    };
    let base = seconds * 1_000_000_000 * if admitted < DEEP { 2 } else { 1 };
    Nanos::new(base / 2 + random % (base + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn clients_do_not_come_back_together() {
        let times: std::collections::HashSet<Nanos> = (0..100)
            .map(|random| retry_after(Cause::ShedWorker, Category::Get, 1.0, random))
            .collect();
        assert!(times.len() > 90);
    }

    proptest! {
        #[test]
        fn a_node_asks_for_longer_the_lower_the_category_is(
            random: u64,
            deep: bool,
            cause in prop::sample::select(vec![
                Cause::ShedWorker, Cause::QueueFull, Cause::QueueTimeout, Cause::Deadline,
            ]),
        ) {
            let admitted = if deep { 0.4 } else { 0.6 };
            for (category, seconds) in Category::ALL.into_iter().zip([5u64, 3, 2, 1]) {
                let middle = Nanos::from_secs(seconds * if deep { 2 } else { 1 }).get();
                let told = retry_after(cause, category, admitted, random).get();
                prop_assert!((middle / 2..=middle / 2 * 3).contains(&told));
            }
        }

        #[test]
        fn the_fleet_asks_for_one_to_five_seconds(random: u64, admitted in 0.0..1.0f64) {
            let told = retry_after(Cause::ShedFleet, Category::Get, admitted, random);
            prop_assert!((Nanos::from_secs(1)..=Nanos::from_secs(5)).contains(&told));
        }
    }
}
