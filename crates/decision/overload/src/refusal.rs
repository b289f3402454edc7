//! What a refused request is told.

use tidegate_algorithms::Nanos;

use crate::category::Category;
use crate::cause::Cause;
use crate::mix::mix;

/// Below this admitted fraction clients are asked to stay away twice as long.
const DEEP: f64 = 0.5;

/// A refusal: why, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub cause: Cause,
    /// What was refused.
    pub category: Category,
    /// When to come back. No two clients are told the same, so they do not come back
    /// together.
    pub retry_after: Nanos,
    /// Whether the whole fleet is saturated, so that a retry is in vain anywhere.
    pub fleet_saturated: bool,
}

/// When to come back. `admitted` is the fraction that the worker shedder admits, and
/// `random` any number.
///
/// A fleet that is short asks for one to five seconds. A node asks for the longer the lower
/// the category is, half of it more or less.
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
