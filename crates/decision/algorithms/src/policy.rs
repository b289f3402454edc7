//! Policies of limits that rules write, the engine passes on and stores apply.
//!
//! Each is one enum that knows its words, so that rule files, hints, schemas and stores agree.

use tidegate_words::words;

words! {
    /// Which limits are charged when one limit of a request refuses.
    #[derive(Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
    pub enum Charge {
        /// None.
        #[default]
        AllOrNothing = "all_or_nothing",
        /// Every limit that matched, as envoyproxy/ratelimit does.
        Always = "always",
    }
}

words! {
    /// What decides while the shared store is unavailable.
    #[derive(Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
    pub enum OnStoreError {
        /// This process, on its share of the limit, from the last known state.
        #[default]
        Local = "local",
        /// Every request passes.
        Allow = "allow",
        /// Every request is refused.
        Deny = "deny",
    }
}

words! {
    /// How closely processes that share a limit agree. A store of one process is always exact.
    #[derive(Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
    pub enum Consistency {
        /// Each check goes to the shared store.
        #[default]
        Exact = "exact",
        /// Checks spend slices of the limit that were fetched ahead; the limit is never exceeded.
        Leased = "leased",
        /// Counted locally and added up on a beat; may be exceeded by a stated bound.
        Eventual = "eventual",
    }
}

words! {
    /// How a sliding window counter rounds its weighted use to whole units.
    #[derive(Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
    pub enum RoundingMode {
        /// Up: it never admits more than the estimate allows.
        #[default]
        Up = "up",
        /// Down: a part of a unit does not count.
        Down = "down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_for_a_policy() {
        for word in Charge::WORDS {
            assert_eq!(Charge::from_word(word).map(Charge::as_str), Some(*word));
        }
        for word in OnStoreError::WORDS {
            assert_eq!(OnStoreError::from_word(word).map(OnStoreError::as_str), Some(*word));
        }
        for word in Consistency::WORDS {
            assert_eq!(Consistency::from_word(word).map(Consistency::as_str), Some(*word));
        }
        assert_eq!(Charge::from_word("never"), None);
    }
}
