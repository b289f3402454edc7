//! Policies of limits that rules write, the engine passes on and stores apply.
//!
//! Each is one enum that knows its words, so that rule files, hints, schemas and stores agree.

macro_rules! policy {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
        pub enum $name {
            $($(#[$variant_about])* $variant,)+
        }

        impl $name {
            /// The words, in the order in which they are explained.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it in a rule file.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// The policy that a word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

policy! {
    /// Which limits are charged when one limit of a request refuses.
    Charge {
        /// None.
        #[default]
        AllOrNothing = "all_or_nothing",
        /// Every limit that matched, as envoyproxy/ratelimit does.
        Always = "always",
    }
}

policy! {
    /// What decides while the shared store is unavailable.
    OnStoreError {
        /// This process, on its share of the limit, from the last known state.
        #[default]
        Local = "local",
        /// Every request passes.
        Allow = "allow",
        /// Every request is refused.
        Deny = "deny",
    }
}

policy! {
    /// How closely processes that share a limit agree. A store of one process is always exact.
    Consistency {
        /// Each check goes to the shared store.
        #[default]
        Exact = "exact",
        /// Checks spend slices of the limit that were fetched ahead; the limit is never exceeded.
        Leased = "leased",
        /// Counted locally and added up on a beat; may be exceeded by a stated bound.
        Eventual = "eventual",
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
