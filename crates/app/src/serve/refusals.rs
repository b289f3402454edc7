//! Refused requests in the log: sums and a few examples, never a line for each.
//!
//! Every ten seconds the counters are compared with those of the last report. Each counter that grew is a line, up to a
//! maximum; examples from the gateway follow. None of this happens while a request waits.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_gateway::{GatewayReading, RefusedRequest};
use tidegate_overload::{Answer, Protection, SteadyClock};

/// The time between two reports.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Ticks between two reports, at one tick a second.
const TICKS: u32 = 10;
/// The maximum of lines with sums in one report.
const LINES_MAX: usize = 50;

/// The outcomes of requests that were not refused.
const NOT_REFUSED: [&str; 4] = ["served", "kept", "own", "gone"];

/// Logs refusals, with the counters of the last report.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    ticks: u32,
    known: BTreeMap<RefusalCounter, u64>,
}

/// The labels of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusalCounter {
    /// Requests of a route that were not served.
    NotServed { route: String, code: &'static str },
    /// Requests that a limiter in shadow mode would have refused.
    WouldRefuse { limiter: &'static str, category: &'static str },
    /// Requests that passed because a limiter failed.
    LimiterFailed { limiter: &'static str, category: &'static str },
}

impl RefusalLog {
    /// Counts a tick, and reports when it is time.
    pub(super) fn tick(
        &mut self,
        reading: &GatewayReading,
        protection: Option<&Protection<SteadyClock>>,
        take_examples: impl FnOnce() -> Vec<RefusedRequest>,
    ) {
        self.ticks = (self.ticks + 1) % TICKS;
        if self.ticks != 0 {
            return;
        }
        let grown = self.grown(counters(reading, protection));
        for (counter, count) in grown.iter().take(LINES_MAX) {
            write(counter, *count);
        }
        if let Some(more) = grown.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
            tracing::info!(more, "further kinds of refusals are in the metrics");
        }
        for RefusedRequest { client, route, code, details, .. } in take_examples() {
            let client = client.map(|client| client.to_string()).unwrap_or_default();
            let (limit, refused_by) = details
                .as_ref()
                .map_or((None, None), |details| (details.limit.as_deref(), details.refused_by));
            let (category, caller) = details
                .as_ref()
                .map_or((None, None), |details| (details.category, details.caller.as_deref()));
            tracing::info!(
                client,
                route = &*route,
                code,
                limit,
                refused_by,
                category,
                caller,
                "example of a refused request"
            );
        }
    }

    /// The counters that grew since the last report, and by how much.
    fn grown(&mut self, now: Vec<(RefusalCounter, u64)>) -> Vec<(RefusalCounter, u64)> {
        let mut grown = Vec::new();
        for (counter, count) in now {
            let before = self.known.insert(counter.clone(), count).unwrap_or(0);
            if count > before {
                grown.push((counter, count - before));
            }
        }
        grown
    }
}

/// The present counters. The document bounds their number.
fn counters(
    reading: &GatewayReading,
    protection: Option<&Protection<SteadyClock>>,
) -> Vec<(RefusalCounter, u64)> {
    let mut counters = Vec::new();
    for (route, outcomes) in &reading.routes {
        for (code, count) in outcomes.iter().filter(|(code, _)| !NOT_REFUSED.contains(code)) {
            counters.push((RefusalCounter::NotServed { route: route.clone(), code }, *count));
        }
    }
    for decision in protection.map(Protection::decisions).unwrap_or_default() {
        let (limiter, category) = (decision.limiter.as_str(), decision.category.as_str());
        let counter = match decision.answer {
            Answer::WouldReject => RefusalCounter::WouldRefuse { limiter, category },
            Answer::ErrorOpen => RefusalCounter::LimiterFailed { limiter, category },
            // Refusals are among the outcomes of the routes.
            Answer::Allow | Answer::Reject => continue,
        };
        match counters.iter_mut().find(|(known, _)| *known == counter) {
            Some((_, count)) => *count += decision.count,
            None => counters.push((counter, decision.count)),
        }
    }
    counters
}

fn write(counter: &RefusalCounter, count: u64) {
    match counter {
        RefusalCounter::NotServed { route, code } => {
            tracing::info!(route, code, count, "requests were not served");
        }
        RefusalCounter::WouldRefuse { limiter, category } => {
            tracing::info!(limiter, category, count, "requests would have been refused");
        }
        RefusalCounter::LimiterFailed { limiter, category } => {
            tracing::error!(limiter, category, count, "a limiter failed; requests passed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(served: u64, limited: u64) -> GatewayReading {
        GatewayReading {
            routes: vec![("all".to_owned(), vec![("served", served), ("rate_limited", limited)])],
            upstreams: Vec::new(),
            waiting: 0,
            in_flight: 0,
            tunnels: 0,
            broken: 0,
            log_dropped: 0,
            kept: Vec::new(),
            key_set_fetches: (0, 0),
        }
    }

    #[test]
    fn a_report_has_only_the_refusals_since_the_last_one() {
        let mut log = RefusalLog::default();
        let refused = |count| {
            vec![(
                RefusalCounter::NotServed { route: "all".to_owned(), code: "rate_limited" },
                count,
            )]
        };
        assert_eq!(log.grown(counters(&reading(9, 5), None)), refused(5));
        assert_eq!(log.grown(counters(&reading(99, 5), None)), []);
        assert_eq!(log.grown(counters(&reading(99, 7), None)), refused(2));
    }

    #[test]
    fn examples_are_taken_with_each_report_and_not_before() {
        let mut log = RefusalLog::default();
        let mut taken = 0;
        for _ in 0..30 {
            log.tick(&reading(0, 0), None, || {
                taken += 1;
                Vec::new()
            });
        }
        assert_eq!(taken, 3);
    }
}
