//! What was refused and why, in the log: sums and a few examples, never a line for each.
//!
//! Every ten seconds the counters are compared with what they were. What grew is a line, up to a
//! maximum; then come the examples that the gateway kept. Nothing of this is on a request's way.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_gateway::{GatewayReading, RefusedRequest};
use tidegate_overload::{Answer, Protection, SteadyClock};

/// From one report to the next.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(10);
/// A look is taken each second.
const LOOKS: u32 = 10;
/// The most lines of sums in one report.
const LINES_MAX: usize = 50;

/// How requests end that were not refused.
const NOT_REFUSED: [&str; 4] = ["served", "kept", "own", "gone"];

/// What the counters were at the last report.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    looks: u32,
    known: BTreeMap<Sum, u64>,
}

/// Something that is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sum {
    /// What clients of a route were told.
    Told { route: String, code: &'static str },
    /// What a limiter that protects the node would have refused.
    Would { limiter: &'static str, category: &'static str },
    /// A limiter that protects the node failed, and let the request pass.
    Failed { limiter: &'static str, category: &'static str },
}

impl Refusals {
    pub(super) fn new() -> Self {
        Refusals::default()
    }

    /// Takes a look, and reports when it is time.
    pub(super) fn look(
        &mut self,
        reading: &GatewayReading,
        protection: Option<&Protection<SteadyClock>>,
        take_examples: impl FnOnce() -> Vec<RefusedRequest>,
    ) {
        self.looks = (self.looks + 1) % LOOKS;
        if self.looks != 0 {
            return;
        }
        let grown = self.grown(sums(reading, protection));
        for (sum, count) in grown.iter().take(LINES_MAX) {
            write(sum, *count);
        }
        if let Some(more) = grown.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
            tracing::info!(more, "further kinds of refusals are in the metrics");
        }
        for RefusedRequest { client, route, code, .. } in take_examples() {
            let client = client.map(|client| client.to_string()).unwrap_or_default();
            tracing::info!(client, route = &*route, code, "for example, this was refused");
        }
    }

    /// What grew since the last time, and by how much.
    fn grown(&mut self, now: Vec<(Sum, u64)>) -> Vec<(Sum, u64)> {
        let mut grown = Vec::new();
        for (sum, count) in now {
            let before = self.known.insert(sum.clone(), count).unwrap_or(0);
            if count > before {
                grown.push((sum, count - before));
            }
        }
        grown
    }
}

/// Everything that is reported, as it is now. How many there are follows from the document.
fn sums(reading: &GatewayReading, protection: Option<&Protection<SteadyClock>>) -> Vec<(Sum, u64)> {
    let mut sums = Vec::new();
    for (route, outcomes) in &reading.routes {
        for (code, count) in outcomes.iter().filter(|(code, _)| !NOT_REFUSED.contains(code)) {
            sums.push((Sum::Told { route: route.clone(), code }, *count));
        }
    }
    for decision in protection.map(Protection::decisions).unwrap_or_default() {
        let (limiter, category) = (decision.limiter.name(), decision.category.name());
        let sum = match decision.answer {
            Answer::WouldReject => Sum::Would { limiter, category },
            Answer::ErrorOpen => Sum::Failed { limiter, category },
            // Refusals are told to clients, and counted there.
            Answer::Allow | Answer::Reject => continue,
        };
        match sums.iter_mut().find(|(known, _)| *known == sum) {
            Some((_, count)) => *count += decision.count,
            None => sums.push((sum, decision.count)),
        }
    }
    sums
}

fn write(sum: &Sum, count: u64) {
    match sum {
        Sum::Told { route, code } => {
            tracing::info!(route, code, count, "requests were not served");
        }
        Sum::Would { limiter, category } => {
            tracing::info!(limiter, category, count, "requests would have been refused");
        }
        Sum::Failed { limiter, category } => {
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
    fn a_report_says_what_was_refused_since_the_last_and_nothing_of_the_rest() {
        let mut refusals = Refusals::new();
        let told =
            |count| vec![(Sum::Told { route: "all".to_owned(), code: "rate_limited" }, count)];
        assert_eq!(refusals.grown(sums(&reading(9, 5), None)), told(5));
        assert_eq!(refusals.grown(sums(&reading(99, 5), None)), []);
        assert_eq!(refusals.grown(sums(&reading(99, 7), None)), told(2));
    }

    #[test]
    fn examples_are_taken_with_each_report_and_not_before() {
        let mut refusals = Refusals::new();
        let mut taken = 0;
        for _ in 0..30 {
            refusals.look(&reading(0, 0), None, || {
                taken += 1;
                Vec::new()
            });
        }
        assert_eq!(taken, 3);
    }
}
