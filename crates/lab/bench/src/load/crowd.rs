//! Open-loop callers with a timeout.
//!
//! Each caller sends one request. A connection is reused after a complete answer; a caller that
//! times out closes it, as clients do. Refusals are answers: the result is how many callers of
//! each kind were served in time, refused, or gave up.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};

use super::arrivals::Arrivals;
use super::connection::Connection;
use super::http1::Http1;
use super::{Reply, wait_histogram};
use crate::keys::Draw;
use crate::questions::Questions;
use crate::stopwatch::Stopwatch;

/// More than the longest answer.
const INPUT_BYTES: usize = 8 * 1024;
/// Connections at once: below the usual limit on file descriptors.
const CONNECTIONS_MAX: usize = 16_000;
const PERCENT: u64 = 100;

/// A kind of callers.
#[derive(Clone, Debug)]
pub(crate) struct CallerKind {
    pub(crate) questions: Questions,
    /// The share of this kind, in percent.
    pub(crate) percent: u64,
}

/// Outcomes of the callers of one kind.
#[derive(Clone, Debug)]
pub(crate) struct CallerOutcome {
    pub(crate) arrived: u64,
    /// Latencies of callers that were served in time, in nanoseconds.
    pub(crate) served: Histogram<u64>,
    pub(crate) refused: u64,
    /// Callers without an answer in time, or with a broken connection.
    pub(crate) given_up: u64,
}

impl CallerOutcome {
    fn new() -> anyhow::Result<Self> {
        Ok(CallerOutcome { arrived: 0, served: wait_histogram()?, refused: 0, given_up: 0 })
    }
}

/// The rate of arrivals, and how long callers wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalPlan {
    pub(crate) per_second: f64,
    pub(crate) time: Duration,
    pub(crate) patience: Duration,
}

/// Callers of one server.
pub(crate) struct Crowd {
    address: SocketAddr,
    poll: Poll,
    events: Events,
    callers: Vec<Option<Caller>>,
    /// Indexes of idle connections.
    idle: Vec<usize>,
    /// Indexes without a connection.
    free: Vec<usize>,
    kinds: Vec<CallerKind>,
    /// Draws the kind of the next caller.
    draw: Draw,
    clock: Stopwatch,
    /// Timeouts in order of time, with index and number of the caller.
    patience: VecDeque<(Duration, usize, u64)>,
    replies: Vec<Reply>,
    /// Requests sent.
    asked: u64,
}

/// A connection and the caller that uses it.
struct Caller {
    connection: Connection<Http1>,
    /// The kind and number of the current caller.
    kind: usize,
    number: u64,
}

impl Crowd {
    /// # Errors
    /// When the system cannot create an event queue.
    pub(crate) fn new(address: SocketAddr, kinds: Vec<CallerKind>) -> anyhow::Result<Self> {
        Ok(Crowd {
            address,
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            callers: Vec::new(),
            idle: Vec::new(),
            free: Vec::new(),
            kinds,
            draw: Draw::uniform(PERCENT),
            clock: Stopwatch::start(),
            patience: VecDeque::new(),
            replies: Vec::new(),
            asked: 0,
        })
    }

    /// Runs callers for a time and waits for the last; returns the outcomes of each kind.
    ///
    /// # Errors
    /// When an answer is malformed, or there are too many connections.
    pub(crate) fn run(&mut self, plan: ArrivalPlan) -> anyhow::Result<Vec<CallerOutcome>> {
        let mut outcomes: Vec<CallerOutcome> =
            self.kinds.iter().map(|_| CallerOutcome::new()).collect::<anyhow::Result<_>>()?;
        let start = self.clock.elapsed();
        let mut arrivals = Arrivals::new(plan.per_second, start, start + plan.time);
        while !arrivals.is_over() || !self.patience.is_empty() {
            let now = self.clock.elapsed();
            while let Some(arrived) = arrivals.due(now) {
                self.ask(arrived, plan.patience, &mut outcomes)?;
            }
            self.listen(&mut outcomes)?;
            self.give_up(self.clock.elapsed(), &mut outcomes);
        }
        Ok(outcomes)
    }

    fn ask(
        &mut self,
        arrived: Duration,
        patience: Duration,
        outcomes: &mut [CallerOutcome],
    ) -> anyhow::Result<()> {
        let drawn = self.draw.next().unwrap_or(0);
        let mut below = 0;
        let kind = self.kinds.iter().position(|kind| {
            below += kind.percent;
            drawn < below
        });
        let kind = kind.context("the shares of callers are less than a hundred percent")?;
        if let Some(outcome) = outcomes.get_mut(kind) {
            outcome.arrived += 1;
        }
        let Some(index) = self.idle.pop().map_or_else(|| self.connect(), |idle| Ok(Some(idle)))?
        else {
            // Too many connections: counts as not answered.
            outcomes.iter_mut().skip(kind).take(1).for_each(|outcome| outcome.given_up += 1);
            return Ok(());
        };
        let caller = self.callers.get_mut(index).and_then(Option::as_mut);
        let caller = caller.context("a caller that is there")?;
        let of = self.kinds.get_mut(kind).context("a kind that is there")?;
        self.asked += 1;
        caller.kind = kind;
        caller.number = self.asked;
        caller.connection.ask(of.questions.ask(), arrived);
        self.patience.push_back((arrived + patience, index, self.asked));
        if caller.connection.send().is_err() {
            self.leave(index, outcomes);
        }
        Ok(())
    }

    /// The index of a new connection, unless there are too many.
    fn connect(&mut self) -> anyhow::Result<Option<usize>> {
        let index = self.free.pop().unwrap_or(self.callers.len());
        if index >= CONNECTIONS_MAX {
            return Ok(None);
        }
        let protocol = Http1::plain();
        let registry = self.poll.registry();
        let connection =
            Connection::begin(self.address, protocol, INPUT_BYTES, registry, Token(index))?;
        let caller = Some(Caller { connection, kind: 0, number: 0 });
        match self.callers.get_mut(index) {
            Some(free) => *free = caller,
            None => self.callers.push(caller),
        }
        Ok(Some(index))
    }

    /// Reads answers.
    fn listen(&mut self, outcomes: &mut [CallerOutcome]) -> anyhow::Result<()> {
        // Without blocking: the system would wake us too late for the next arrival.
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        let indexes = self.events.iter().map(|event| (event.token().0, event.is_readable()));
        let indexes: Vec<(usize, bool)> = indexes.collect();
        let now = self.clock.elapsed();
        for (index, readable) in indexes {
            let Some(caller) = self.callers.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            self.replies.clear();
            let heard = match readable {
                true => caller.connection.receive(&mut self.replies),
                false => Ok(()),
            };
            let alive = heard.and_then(|()| caller.connection.send()).is_ok();
            let (kind, waits) = (caller.kind, caller.connection.in_flight() > 0);
            for reply in &self.replies {
                let Some(outcome) = outcomes.get_mut(kind) else { continue };
                let waited = now.saturating_sub(reply.asked).as_nanos();
                match reply.admitted {
                    true => {
                        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
                        outcome.served.saturating_record(waited);
                    }
                    false => outcome.refused += 1,
                }
            }
            if !alive {
                self.leave(index, outcomes);
            } else if !self.replies.is_empty() && !waits {
                self.idle.push(index);
            }
        }
        Ok(())
    }

    /// Closes a connection. A caller that waits on it gives up.
    fn leave(&mut self, index: usize, outcomes: &mut [CallerOutcome]) {
        let Some(caller) = self.callers.get_mut(index).and_then(Option::take) else { return };
        if caller.connection.in_flight() == 0 {
            self.idle.retain(|idle| *idle != index);
        } else if let Some(outcome) = outcomes.get_mut(caller.kind) {
            outcome.given_up += 1;
        }
        self.free.push(index);
    }

    /// Closes the connections of callers whose timeout has passed, and forgets answered callers.
    fn give_up(&mut self, now: Duration, outcomes: &mut [CallerOutcome]) {
        while let Some((end, index, number)) = self.patience.front().copied() {
            let waits = self.waits(index, number);
            if waits && end > now {
                return;
            }
            self.patience.pop_front();
            if waits {
                self.leave(index, outcomes);
            }
        }
    }

    /// Whether this caller still waits.
    fn waits(&self, index: usize, number: u64) -> bool {
        let caller = self.callers.get(index).and_then(Option::as_ref);
        caller.is_some_and(|caller| caller.number == number && caller.connection.in_flight() > 0)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_overload::Category;

    use super::*;
    use crate::peer::{self, Capacity};
    use crate::questions::Wire;

    const PATIENT: Duration = Duration::from_secs(60);

    fn crowd(address: SocketAddr) -> Crowd {
        let kind = |category, percent| CallerKind {
            questions: Questions::each(Wire::Call(category), 10).unwrap(),
            percent,
        };
        Crowd::new(address, vec![kind(Category::Critical, 20), kind(Category::Get, 80)]).unwrap()
    }

    fn run(patience: Duration) -> ArrivalPlan {
        ArrivalPlan { per_second: 2_000.0, time: Duration::from_millis(100), patience }
    }

    #[test]
    fn patient_callers_are_all_served_by_a_server_that_refuses_no_request() {
        let address = peer::start(peer::PeerName::Upstream);
        let outcomes = crowd(address).run(run(PATIENT)).unwrap();
        for outcome in &outcomes {
            assert_eq!(
                (outcome.served.len(), outcome.refused, outcome.given_up),
                (outcome.arrived, 0, 0)
            );
        }
        let arrived: Vec<u64> = outcomes.iter().map(|outcome| outcome.arrived).collect();
        assert!(arrived[0] > 10 && arrived[1] > 2 * arrived[0], "{arrived:?}");
    }

    #[test]
    fn impatient_callers_give_up_and_their_connections_are_replaced() {
        let capacity = Capacity { slots: 2, millis: 600_000 };
        let address = peer::start_with(peer::PeerName::SlowApi, capacity);
        let mut crowd = crowd(address);
        for _ in 0..2 {
            let outcomes = crowd.run(run(Duration::from_millis(1))).unwrap();
            assert!(
                outcomes
                    .iter()
                    .all(|outcome| outcome.given_up == outcome.arrived && outcome.arrived > 0)
            );
        }
        assert!(crowd.callers.iter().all(Option::is_none));
    }
}
