//! What clients do with their answers: give up, try again, make a second call.
//!
//! An answer after the timeout is worth nothing to a client. With retries, a client
//! that was refused or gave up asks again a little later, as long as its budget
//! lasts. With tasks of two calls, a good first answer leads to a second call.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::draw::{unit, whole};
use super::load::Request;
use crate::chance::Chance;
use crate::time::MILLISECOND;
use tidegate_overload::Category;

/// How long a client listens.
pub(crate) const TIMEOUT: u64 = 500 * MILLISECOND;
/// The first pause before a retry; each further one is twice as long. Jittered by
/// half, as the AWS builders' library advises.
const PAUSE: u64 = 100 * MILLISECOND;
/// Between the calls of a task.
const BETWEEN_CALLS: u64 = 10 * MILLISECOND;
/// Retries that a budget can save up.
const SAVED_MAX: f64 = 100.0;

/// How clients behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Habits {
    /// Attempts at one call, 1 for none but the first.
    pub(crate) attempts: u8,
    /// Retries for each first attempt, at the most. The SRE book: a tenth.
    pub(crate) budget: Option<f64>,
    /// Calls of a task.
    pub(crate) calls: u8,
}

impl Habits {
    pub(crate) const PLAIN: Habits = Habits { attempts: 1, budget: None, calls: 1 };
}

/// A request to be made later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Further {
    at: u64,
    order: u64,
    rank: usize,
    pub(crate) tenant: u16,
    pub(crate) attempt: u8,
    pub(crate) call: u8,
}

impl Further {
    pub(crate) fn category(&self) -> Category {
        Category::ALL.get(self.rank).copied().unwrap_or(Category::Test)
    }
}

/// What clients have in mind.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    habits: Habits,
    chance: Chance,
    further: BinaryHeap<Reverse<Further>>,
    /// Who stops listening next: slot and sequence. All listen equally long.
    listening: VecDeque<(u64, u32, u64)>,
    saved: f64,
    order: u64,
}

impl Clients {
    pub(crate) fn new(habits: Habits, seed: u64) -> Self {
        Clients {
            habits,
            chance: Chance::new(seed),
            further: BinaryHeap::new(),
            listening: VecDeque::new(),
            saved: 0.0,
            order: 0,
        }
    }

    /// When a further request is made, or somebody stops listening.
    #[inline]
    pub(crate) fn next_at(&self) -> u64 {
        let further = self.further.peek().map_or(u64::MAX, |Reverse(further)| further.at);
        let listening = self.listening.front().map_or(u64::MAX, |(at, _, _)| *at);
        further.min(listening)
    }

    /// A first attempt adds to the budget.
    pub(crate) fn asked(&mut self) {
        if let Some(budget) = self.habits.budget {
            self.saved = (self.saved + budget).min(SAVED_MAX);
        }
    }

    /// A request waits or is served, and its client listens. Only those who would
    /// ask again are watched.
    pub(crate) fn listens(&mut self, request: &Request) {
        if request.attempt < self.habits.attempts {
            self.listening.push_back((request.deadline, request.slot, request.sequence));
        }
    }

    pub(crate) fn turned_away(&mut self, now: u64, request: &Request) {
        if request.attempt >= self.habits.attempts {
            return;
        }
        if self.habits.budget.is_some() {
            if self.saved < 1.0 {
                return;
            }
            self.saved -= 1.0;
        }
        let pause = PAUSE << (request.attempt - 1).min(8);
        let jitter = 0.5 + unit(&mut self.chance);
        self.plan(now + whole(pause as f64 * jitter), request, request.attempt + 1, request.call);
    }

    /// A good answer. Says whether the task is done with it.
    pub(crate) fn served(&mut self, now: u64, request: &Request) -> bool {
        if request.call >= self.habits.calls {
            return true;
        }
        self.plan(now + BETWEEN_CALLS, request, 1, request.call + 1);
        false
    }

    fn plan(&mut self, at: u64, request: &Request, attempt: u8, call: u8) {
        self.order += 1;
        let Request { category, tenant, .. } = *request;
        let rank = category.rank();
        self.further.push(Reverse(Further { at, order: self.order, rank, tenant, attempt, call }));
    }

    /// A request that is made now.
    pub(crate) fn take_further(&mut self, now: u64) -> Option<Further> {
        let due = self.further.peek().is_some_and(|Reverse(further)| further.at <= now);
        if due { self.further.pop().map(|Reverse(further)| further) } else { None }
    }

    /// Slot and sequence of a request whose client stops listening now, if it is
    /// still there.
    pub(crate) fn take_silent(&mut self, now: u64) -> Option<(u32, u64)> {
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
        let mut clients = Clients::new(Habits::PLAIN, 1);
        clients.listens(&request(1, 1));
        clients.turned_away(0, &request(1, 1));
        assert_eq!(clients.next_at(), u64::MAX);
        assert!(clients.served(0, &request(1, 1)));
    }

    #[test]
    fn a_client_asks_again_until_it_has_tried_enough() {
        let mut clients = Clients::new(Habits { attempts: 3, ..Habits::PLAIN }, 1);
        clients.turned_away(0, &request(1, 1));
        let at = clients.next_at();
        assert!((PAUSE / 2..PAUSE * 3 / 2).contains(&at));
        let further = clients.take_further(at).unwrap();
        assert_eq!((further.category(), further.tenant, further.attempt), (Category::Post, 9, 2));
        clients.turned_away(0, &request(3, 1));
        assert_eq!(clients.next_at(), u64::MAX);
    }

    #[test]
    fn a_budget_allows_one_retry_for_ten_requests() {
        let habits = Habits { attempts: 3, budget: Some(0.1), calls: 1 };
        let mut clients = Clients::new(habits, 1);
        for _ in 0..25 {
            clients.asked();
        }
        for _ in 0..10 {
            clients.turned_away(0, &request(1, 1));
        }
        let mut retries = 0;
        while clients.take_further(u64::MAX).is_some() {
            retries += 1;
        }
        assert_eq!(retries, 2);
    }

    #[test]
    fn a_task_of_two_calls_is_done_after_the_second() {
        let mut clients = Clients::new(Habits { calls: 2, ..Habits::PLAIN }, 1);
        assert!(!clients.served(5, &request(1, 1)));
        assert_eq!(clients.take_further(5 + BETWEEN_CALLS).map(|further| further.call), Some(2));
        assert!(clients.served(5, &request(1, 2)));
    }

    #[test]
    fn a_client_that_would_ask_again_stops_listening_at_its_deadline() {
        let mut clients = Clients::new(Habits { attempts: 2, ..Habits::PLAIN }, 1);
        clients.listens(&request(1, 1));
        assert_eq!(clients.take_silent(TIMEOUT - 1), None);
        assert_eq!(clients.take_silent(TIMEOUT), Some((3, 7)));
    }
}
