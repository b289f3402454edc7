//! Clients: timeouts, retries, tasks of two calls.
//!
//! An answer after the timeout is worth nothing. With retries, a client retries after a refusal
//! or a timeout as long as its budget lasts. In a task of two calls, a good first answer leads to
//! the second call.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::draw::{unit, whole};
use super::load::Request;
use crate::chance::Chance;
use crate::time::MILLISECOND;
use tidegate_overload::Category;

/// How long a client waits for its answer.
pub(crate) const TIMEOUT: u64 = 500 * MILLISECOND;
/// The pause before the first retry; it doubles with each. Jittered by half, as the AWS Builders'
/// Library advises.
const PAUSE: u64 = 100 * MILLISECOND;
/// Between the calls of a task.
const BETWEEN_CALLS: u64 = 10 * MILLISECOND;
/// The most retries that a budget holds.
const SAVED_MAX: f64 = 100.0;

/// How clients behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClientBehaviour {
    /// Attempts of one call; 1 means no retries.
    pub(crate) attempts: u8,
    /// The most retries for each first attempt. A tenth in the SRE book.
    pub(crate) budget: Option<f64>,
    /// Calls of a task.
    pub(crate) calls: u8,
}

impl ClientBehaviour {
    pub(crate) const PLAIN: ClientBehaviour =
        ClientBehaviour { attempts: 1, budget: None, calls: 1 };
}

/// A request to be made later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlannedRequest {
    at: u64,
    order: u64,
    rank: usize,
    pub(crate) tenant: u16,
    pub(crate) attempt: u8,
    pub(crate) call: u8,
}

impl PlannedRequest {
    pub(crate) fn category(&self) -> Category {
        Category::ALL.get(self.rank).copied().unwrap_or(Category::Test)
    }
}

/// The timeouts and planned requests of all clients.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    behaviour: ClientBehaviour,
    chance: Chance,
    planned: BinaryHeap<Reverse<PlannedRequest>>,
    /// Timeout, slot and sequence of requests in order: all clients wait equally long.
    listening: VecDeque<(u64, u32, u64)>,
    saved: f64,
    order: u64,
}

impl Clients {
    pub(crate) fn new(behaviour: ClientBehaviour, seed: u64) -> Self {
        Clients {
            behaviour,
            chance: Chance::new(seed),
            planned: BinaryHeap::new(),
            listening: VecDeque::new(),
            saved: 0.0,
            order: 0,
        }
    }

    /// The next planned request or timeout.
    #[inline]
    pub(crate) fn next_at(&self) -> u64 {
        let planned = self.planned.peek().map_or(u64::MAX, |Reverse(planned)| planned.at);
        let listening = self.listening.front().map_or(u64::MAX, |(at, _, _)| *at);
        planned.min(listening)
    }

    /// Adds a first attempt to the budget.
    pub(crate) fn add_to_budget(&mut self) {
        if let Some(budget) = self.behaviour.budget {
            self.saved = (self.saved + budget).min(SAVED_MAX);
        }
    }

    /// Watches for the timeout of a request whose client would retry.
    pub(crate) fn watch_timeout(&mut self, request: &Request) {
        if request.attempt < self.behaviour.attempts {
            self.listening.push_back((request.deadline, request.slot, request.sequence));
        }
    }

    /// Plans a retry if the behaviour and the budget allow one.
    pub(crate) fn plan_retry(&mut self, now: u64, request: &Request) {
        if request.attempt >= self.behaviour.attempts {
            return;
        }
        if self.behaviour.budget.is_some() {
            if self.saved < 1.0 {
                return;
            }
            self.saved -= 1.0;
        }
        let pause = PAUSE << (request.attempt - 1).min(8);
        let jitter = 0.5 + unit(&mut self.chance);
        self.plan(now + whole(pause as f64 * jitter), request, request.attempt + 1, request.call);
    }

    /// Handles an answer in time. Returns whether the task is done.
    pub(crate) fn served(&mut self, now: u64, request: &Request) -> bool {
        if request.call >= self.behaviour.calls {
            return true;
        }
        self.plan(now + BETWEEN_CALLS, request, 1, request.call + 1);
        false
    }

    fn plan(&mut self, at: u64, request: &Request, attempt: u8, call: u8) {
        self.order += 1;
        let Request { category, tenant, .. } = *request;
        let rank = category.rank();
        self.planned.push(Reverse(PlannedRequest {
            at,
            order: self.order,
            rank,
            tenant,
            attempt,
            call,
        }));
    }

    /// A request that is made now.
    pub(crate) fn take_planned(&mut self, now: u64) -> Option<PlannedRequest> {
        let due = self.planned.peek().is_some_and(|Reverse(planned)| planned.at <= now);
        if due { self.planned.pop().map(|Reverse(planned)| planned) } else { None }
    }

    /// Slot and sequence of a request that times out now.
    pub(crate) fn take_timed_out(&mut self, now: u64) -> Option<(u32, u64)> {
        let due = self.listening.front().is_some_and(|(at, _, _)| *at <= now);
        if due {
            self.listening.pop_front().map(|(_, slot, sequence)| (slot, sequence))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_overload::Level;

    use super::*;

    fn request(attempt: u8, call: u8) -> Request {
        Request {
            slot: 3,
            sequence: 7,
            category: Category::Post,
            tenant: 9,
            level: Level::CRITICAL,
            arrived: 0,
            deadline: TIMEOUT,
            attempt,
            call,
        }
    }

    #[test]
    fn a_client_without_retries_goes_away() {
        let mut clients = Clients::new(ClientBehaviour::PLAIN, 1);
        clients.watch_timeout(&request(1, 1));
        clients.plan_retry(0, &request(1, 1));
        assert_eq!(clients.next_at(), u64::MAX);
        assert!(clients.served(0, &request(1, 1)));
    }

    #[test]
    fn a_client_asks_again_until_it_has_tried_enough() {
        let mut clients =
            Clients::new(ClientBehaviour { attempts: 3, ..ClientBehaviour::PLAIN }, 1);
        clients.plan_retry(0, &request(1, 1));
        let at = clients.next_at();
        assert!((PAUSE / 2..PAUSE * 3 / 2).contains(&at));
        let planned = clients.take_planned(at).unwrap();
        assert_eq!((planned.category(), planned.tenant, planned.attempt), (Category::Post, 9, 2));
        clients.plan_retry(0, &request(3, 1));
        assert_eq!(clients.next_at(), u64::MAX);
    }

    #[test]
    fn a_budget_allows_one_retry_for_ten_requests() {
        let behaviour = ClientBehaviour { attempts: 3, budget: Some(0.1), calls: 1 };
        let mut clients = Clients::new(behaviour, 1);
        for _ in 0..25 {
            clients.add_to_budget();
        }
        for _ in 0..10 {
            clients.plan_retry(0, &request(1, 1));
        }
        let mut retries = 0;
        while clients.take_planned(u64::MAX).is_some() {
            retries += 1;
        }
        assert_eq!(retries, 2);
    }

    #[test]
    fn a_task_of_two_calls_is_done_after_the_second() {
        let mut clients = Clients::new(ClientBehaviour { calls: 2, ..ClientBehaviour::PLAIN }, 1);
        assert!(!clients.served(5, &request(1, 1)));
        assert_eq!(clients.take_planned(5 + BETWEEN_CALLS).map(|planned| planned.call), Some(2));
        assert!(clients.served(5, &request(1, 2)));
    }

    #[test]
    fn a_client_that_would_ask_again_stops_listening_at_its_deadline() {
        let mut clients =
            Clients::new(ClientBehaviour { attempts: 2, ..ClientBehaviour::PLAIN }, 1);
        clients.watch_timeout(&request(1, 1));
        assert_eq!(clients.take_timed_out(TIMEOUT - 1), None);
        assert_eq!(clients.take_timed_out(TIMEOUT), Some((3, 7)));
    }
}
