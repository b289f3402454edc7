//! The closed sets of words that a rule file can choose from.

use serde::Serialize;
use tidegate_algorithms::{CalendarUnit, Period};
use tidegate_document::choices;

choices! {
    /// What happens to a request that is over the limit.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum WhenOver {
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
    #[derive(Serialize)]
    pub enum RefusalStatus {
        /// The caller asked for too much.
        TooManyRequests = "429",
        /// The service cannot take more.
        ServiceUnavailable = "503",
    }
}

choices! {
    /// The word for an algorithm.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum AlgorithmName {
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
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Unit {
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

choices! {
    /// Where the name of a plan is.
    pub(crate) enum PlanSource {
        /// In the value of the request's entry.
        Value = "value",
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
    pub fn calendar(self) -> Option<CalendarUnit> {
        CalendarUnit::from_word(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::Algorithm;

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
