//! Clients that wait as long as they are asked to.
//!
//! A log shows what clients sent under the rules of its day. Under other rules a refused client may wait or insist; which
//! is not known. All lines as logged bound the refusals from above. This is the bound from below: after a refusal the
//! caller's further requests are dropped until its retry time, and one is sent then.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::FixedState;
use tidegate_algorithms::{Nanos, Retry, Timestamp};

use super::habits::{CallerKeys, ClientHabits};
use super::pending::{PendingRequests, RequestRef};
use super::rule_set::{RuleSet, SetAnswer};

/// The most callers that wait at a time; further ones insist.
const WAITING_MAX: usize = 1_000_000;
/// No client retries faster.
const RETRY_MIN: Nanos = Nanos::from_millis(1);

/// The new rules with clients that wait.
#[derive(Debug)]
pub(crate) struct ObedientClients {
    pub(crate) rules: RuleSet,
    /// Requests that were not sent because their caller waited.
    pub(crate) dropped: u64,
    /// Until when each caller waits.
    waiting: HashMap<u64, Timestamp, FixedState>,
    retries: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// The request that each waiting caller sends at its retry time.
    requests: HashMap<u64, (PendingRequests, u16), FixedState>,
}

impl ObedientClients {
    pub(crate) fn new(rules: RuleSet) -> Self {
        ObedientClients {
            rules,
            dropped: 0,
            waiting: HashMap::default(),
            retries: BinaryHeap::new(),
            requests: HashMap::default(),
        }
    }

    /// Sends a request of the log, unless its caller waits. `domains` are the names of all domains. With habits, callers
    /// wait that have the habit; otherwise all.
    pub(crate) fn send(
        &mut self,
        request: &RequestRef<'_>,
        domains: &[String],
        habits: Option<&ClientHabits>,
    ) {
        let now = request.terms().time;
        self.retry_until(now, domains);
        let domain = request.domain(domains);
        let keys = request.with_request(domain, CallerKeys::of);
        if keys.all().any(|caller| self.waiting.contains_key(&caller)) {
            self.dropped += 1;
            return;
        }
        let terms = request.terms();
        let answer = request.with_request(domain, |request| self.rules.decide(request, terms));
        let caller = keys.refused(&answer);
        if !answer.admitted && habits.is_none_or(|habits| habits.waits(caller)) {
            self.wait(caller, &answer, now, || (request.alone(), request.domain_index()));
        }
    }

    /// Lets the callers retry whose time has come.
    fn retry_until(&mut self, now: Timestamp, domains: &[String]) {
        while let Some(Reverse((at, caller))) = self.retries.peek().copied() {
            if at > now {
                return;
            }
            self.retries.pop();
            self.waiting.remove(&caller);
            let Some((mut alone, domain)) = self.requests.remove(&caller) else { continue };
            alone.set_time(at);
            let Some(request) = alone.requests().next() else { continue };
            let name = domains.get(usize::from(domain)).map_or("", |name| name);
            let terms = *request.terms();
            let answer = request.with_request(name, |request| self.rules.decide(request, &terms));
            if !answer.admitted {
                self.wait(caller, &answer, at, || (request.alone(), domain));
            }
        }
    }

    fn wait(
        &mut self,
        caller: u64,
        answer: &SetAnswer,
        now: Timestamp,
        request: impl FnOnce() -> (PendingRequests, u16),
    ) {
        // A request that can never pass is not sent again.
        let Retry::After(wait) = answer.retry else { return };
        if self.waiting.len() >= WAITING_MAX {
            return;
        }
        let until = now.after(wait.max(RETRY_MIN));
        self.waiting.insert(caller, until);
        self.requests.insert(caller, request());
        self.retries.push(Reverse((until, caller)));
    }
}
