//! Outcomes of requests, counted per route.

use std::sync::atomic::{AtomicU64, Ordering};

use super::encode::Fault;
use super::upstream::HostState;
use tidegate_answers::Cause;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The upstream answered.
    Served,
    /// A limiter refused it.
    Refused(Cause),
    /// It could not be served.
    Fault(Fault),
    /// It was queued for later.
    Kept,
    /// The gateway answered it, without an upstream.
    Own,
    /// The client disconnected before there was an answer.
    Gone,
    /// It waited in the queue for too long.
    Expired,
}

impl Outcome {
    /// The word for it, in metrics and logs.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Outcome::Served => "served",
            Outcome::Refused(cause) => cause.code(),
            Outcome::Fault(fault) => fault.code(),
            Outcome::Kept => "kept",
            Outcome::Own => "own",
            Outcome::Gone => "gone",
            Outcome::Expired => "expired",
        }
    }

    const fn index(self) -> usize {
        match self {
            Outcome::Served => 0,
            Outcome::Kept => 1,
            Outcome::Own => 2,
            Outcome::Gone => 3,
            Outcome::Expired => 4,
            Outcome::Refused(cause) => 5 + cause.index(),
            Outcome::Fault(fault) => 5 + Cause::ALL.len() + fault as usize,
        }
    }

    fn all() -> impl Iterator<Item = Outcome> {
        let refused = Cause::ALL.into_iter().map(Outcome::Refused);
        let faults = Fault::ALL.iter().copied().map(Outcome::Fault);
        [Outcome::Served, Outcome::Kept, Outcome::Own, Outcome::Gone, Outcome::Expired]
            .into_iter()
            .chain(refused)
            .chain(faults)
    }
}

const OUTCOMES: usize = 5 + Cause::ALL.len() + Fault::ALL.len();

/// Counts the outcomes of one route.
#[derive(Debug)]
pub(super) struct Tally([AtomicU64; OUTCOMES]);

impl Default for Tally {
    fn default() -> Self {
        Tally([const { AtomicU64::new(0) }; OUTCOMES])
    }
}

impl Tally {
    pub(super) fn count(&self, outcome: Outcome) {
        if let Some(count) = self.0.get(outcome.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The outcomes that occurred, with their counts.
    pub(super) fn read(&self) -> Vec<(&'static str, u64)> {
        let count = |outcome: Outcome| {
            let count = self.0.get(outcome.index());
            count.map_or(0, |count| count.load(Ordering::Relaxed))
        };
        let all = Outcome::all().map(|outcome| (outcome.code(), count(outcome)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

/// The metrics of a gateway at one instant.
#[derive(Clone, Debug)]
pub struct GatewayReading {
    /// The name of each route with its outcomes: `served`, `kept`, `own`, `gone`, or the code of a refusal or a fault.
    /// Outcomes that never occurred are left out. The last entry has an empty name: it counts requests without a route.
    pub routes: Vec<(String, Vec<(&'static str, u64)>)>,
    /// How kept requests ended after they were answered with 202: `served`, `expired`, or the code of a refusal or a
    /// fault.
    pub kept: Vec<(&'static str, u64)>,
    /// The name of each group of upstreams with its hosts.
    pub upstreams: Vec<(String, Vec<(String, HostState)>)>,
    /// Requests that wait for a limit, in a line or for their turn.
    pub waiting: usize,
    /// Requests in flight at an upstream, tunnels included.
    pub in_flight: u64,
    /// Tunnels opened.
    pub tunnels: u64,
    /// Responses that the upstream did not complete.
    pub broken: u64,
    /// How often the key set was fetched from its URL, and how often that failed.
    pub key_set_fetches: (u64, u64),
    /// Lines of the access log that were dropped because the queue was full.
    pub log_dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_index_and_code() {
        let tally = Tally::default();
        for outcome in Outcome::all() {
            tally.count(outcome);
        }
        let read = tally.read();
        assert_eq!(read.len(), OUTCOMES);
        assert!(read.iter().all(|(_, count)| *count == 1));
        let mut words: Vec<_> = read.iter().map(|(word, _)| *word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), OUTCOMES);
    }
}
