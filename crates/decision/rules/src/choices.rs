//! The closed sets of words that a rule file can choose from.
//!
//! Each set is one enum that knows its words, so that the reader, the hints and
//! the schema cannot disagree.

use serde::Serialize;
use tidegate_algorithms::{Algorithm, CalendarUnit, Period};

macro_rules! choices {
    (
        $(#[$about:meta])*
        $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
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

            /// The choice that a word stands for.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

choices! {
    /// What a limit does with its answer.
    Mode {
        /// The answer holds.
        Enforce = "enforce",
        /// Counted and reported; never refuses.
        Shadow = "shadow",
        /// Neither counted nor refused.
        Off = "off",
    }
}

choices! {
    /// Who is charged when one limit of a request refuses.
    Charge {
        /// Nobody.
        AllOrNothing = "all_or_nothing",
        /// Every limit that matched, as envoyproxy/ratelimit has it.
        Always = "always",
    }
}

choices! {
    /// What decides while the shared store cannot be asked.
    OnStoreError {
        /// This process, from the last known state.
        Local = "local",
        /// Nobody: every request passes.
        Allow = "allow",
        /// Nobody: every request is refused.
        Deny = "deny",
    }
}

choices! {
    /// How closely processes that share a limit agree.
    Consistency {
        /// The store is asked each time.
        Exact = "exact",
        /// Slices of the limit are taken ahead; never exceeded.
        Leased = "leased",
        /// Counted locally and added up on a beat; may be exceeded by a stated bound.
        Eventual = "eventual",
    }
}

choices! {
    /// What happens to a request that is over the limit.
    WhenOver {
        /// It is refused.
        Refuse = "refuse",
        /// It waits until it would be admitted.
        Delay = "delay",
        /// It is stored and processed later.
        Queue = "queue",
    }
}

choices! {
    /// The HTTP status of a refusal by a limit.
    RefusalStatus {
        /// The caller asked for too much.
        TooManyRequests = "429",
        /// The service cannot take more.
        ServiceUnavailable = "503",
    }
}

choices! {
    /// The word for an algorithm.
    AlgorithmName {
        /// One count per window.
        FixedWindow = "fixed_window",
        /// Weighted counts of the last slices.
        SlidingWindow = "sliding_window",
        /// Every request remembered; exact.
        SlidingLog = "sliding_log",
        /// Burst apart from rate.
        TokenBucket = "token_bucket",
        /// A queue with constant outflow.
        LeakyBucket = "leaky_bucket",
        /// Requests in flight.
        Concurrency = "concurrency",
    }
}

choices! {
    /// The unit of time of a limit, as written.
    Unit {
        /// One second.
        Second = "second",
        /// Sixty seconds.
        Minute = "minute",
        /// Sixty minutes.
        Hour = "hour",
        /// Twenty-four hours.
        Day = "day",
        /// Seven days.
        Week = "week",
        /// Thirty days, unless the calendar is asked.
        Month = "month",
        /// 365 days, unless the calendar is asked.
        Year = "year",
    }
}

impl Unit {
    /// The length of one unit, as envoyproxy/ratelimit has it.
    pub fn period(self) -> Period {
        let seconds = match self {
            Unit::Second => return Period::SECOND,
            Unit::Minute => return Period::MINUTE,
            Unit::Hour => return Period::HOUR,
            Unit::Day => return Period::DAY,
            Unit::Week => 7 * 86_400,
            Unit::Month => 30 * 86_400,
            Unit::Year => 365 * 86_400,
        };
        Period::new(std::time::Duration::from_secs(seconds)).unwrap_or(Period::MAX)
    }

    /// The calendar's unit of the same name, if it has one.
    pub const fn calendar(self) -> Option<CalendarUnit> {
        match self {
            Unit::Day => Some(CalendarUnit::Day),
            Unit::Week => Some(CalendarUnit::Week),
            Unit::Month => Some(CalendarUnit::Month),
            Unit::Year => Some(CalendarUnit::Year),
            Unit::Second | Unit::Minute | Unit::Hour => None,
        }
    }
}

impl From<&Algorithm> for AlgorithmName {
    fn from(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::FixedWindow(_) => AlgorithmName::FixedWindow,
            Algorithm::SlidingWindow(_) => AlgorithmName::SlidingWindow,
            Algorithm::SlidingLog(_) => AlgorithmName::SlidingLog,
            Algorithm::TokenBucket(_) => AlgorithmName::TokenBucket,
            Algorithm::LeakyBucket(_) => AlgorithmName::LeakyBucket,
            Algorithm::Concurrency(_) => AlgorithmName::Concurrency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_the_same_name_in_a_rule_file() {
        let mut words = AlgorithmName::WORDS.to_vec();
        let mut names = Algorithm::NAMES.to_vec();
        words.sort_unstable();
        names.sort_unstable();
        assert_eq!(words, names);
    }
}
