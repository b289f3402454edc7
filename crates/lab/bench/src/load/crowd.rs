//! Callers that arrive whether or not earlier ones were answered, and do not wait for ever.
//!
//! Each caller asks once. A connection is used again after a whole answer; whoever has waited
//! too long closes it and is gone, as clients are. Refusals are answers here: what comes out
//! is how many of each kind were served in time, how many were turned away, and how many
//! gave up.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};

use super::arrivals::Arrivals;
use super::http1::Http1;
use super::link::Link;
use super::{Reply, wait_histogram};
use crate::keys::Draw;
use crate::questions::Questions;
use crate::stopwatch::Stopwatch;

/// Longer than any answer to these callers.
const INPUT_BYTES: usize = 8 * 1024;
/// Connections at once; a system gives a process some ten thousand descriptors.
const CONNECTIONS_MAX: usize = 16_000;
const PERCENT: u64 = 100;

/// A kind of callers.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) questions: Questions,
    /// So many of a hundred callers are of this kind.
    pub(crate) percent: u64,
}

/// What became of the callers of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    pub(crate) arrived: u64,
    /// How long those waited who were served in time, in nanoseconds.
    pub(crate) served: Histogram<u64>,
    pub(crate) refused: u64,
    /// Nobody answered in time, or the connection broke.
    pub(crate) given_up: u64,
}

impl Fate {
    fn new() -> anyhow::Result<Self> {
        Ok(Fate { arrived: 0, served: wait_histogram()?, refused: 0, given_up: 0 })
    }
}

/// How callers come, and how long they wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rush {
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
    /// Places whose connection is there and unused.
    idle: Vec<usize>,
    /// Places without a connection.
    free: Vec<usize>,
    kinds: Vec<Kind>,
    /// Which kind comes next.
    draw: Draw,
    clock: Stopwatch,
    /// When who gives up: their place and their number. In the order of time.
    patience: VecDeque<(Duration, usize, u64)>,
    replies: Vec<Reply>,
    /// How many have asked.
    asked: u64,
}

/// A connection and who uses it.
struct Caller {
    link: Link<Http1>,
    /// The kind of whoever asks now, and their number.
    kind: usize,
    number: u64,
}

impl Crowd {
    /// # Errors
    /// When the system has nothing to wait on.
    pub(crate) fn new(address: SocketAddr, kinds: Vec<Kind>) -> anyhow::Result<Self> {
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

    /// Lets callers come for a time and waits for the last of them; returns what became of each
    /// kind.
    ///
    /// # Errors
    /// When an answer makes no sense, or there are too many connections.
    pub(crate) fn rush(&mut self, rush: Rush) -> anyhow::Result<Vec<Fate>> {
        let mut fates: Vec<Fate> =
            self.kinds.iter().map(|_| Fate::new()).collect::<anyhow::Result<_>>()?;
        let start = self.clock.elapsed();
        let mut arrivals = Arrivals::new(rush.per_second, start, start + rush.time);
        while !arrivals.is_over() || !self.patience.is_empty() {
            let now = self.clock.elapsed();
            while let Some(arrived) = arrivals.due(now) {
                self.ask(arrived, rush.patience, &mut fates)?;
            }
            self.listen(&mut fates)?;
            self.give_up(self.clock.elapsed(), &mut fates);
        }
        Ok(fates)
    }

    fn ask(
        &mut self,
        arrived: Duration,
        patience: Duration,
        fates: &mut [Fate],
    ) -> anyhow::Result<()> {
        let drawn = self.draw.next().unwrap_or(0);
        let mut below = 0;
        let kind = self.kinds.iter().position(|kind| {
            below += kind.percent;
            drawn < below
        });
        let kind = kind.context("the shares of callers are less than a hundred percent")?;
        if let Some(fate) = fates.get_mut(kind) {
            fate.arrived += 1;
        }
        let Some(place) = self.idle.pop().map_or_else(|| self.connect(), |idle| Ok(Some(idle)))?
        else {
            // Nowhere to stand: as good as not answered.
            fates.iter_mut().skip(kind).take(1).for_each(|fate| fate.given_up += 1);
            return Ok(());
        };
        let caller = self.callers.get_mut(place).and_then(Option::as_mut);
        let caller = caller.context("a caller that is there")?;
        let of = self.kinds.get_mut(kind).context("a kind that is there")?;
        self.asked += 1;
        caller.kind = kind;
        caller.number = self.asked;
        caller.link.ask(of.questions.ask(), arrived);
        self.patience.push_back((arrived + patience, place, self.asked));
        if caller.link.send().is_err() {
            self.leave(place, fates);
        }
        Ok(())
    }

    /// A place with a connection that has just begun, if there may be another.
    fn connect(&mut self) -> anyhow::Result<Option<usize>> {
        let place = self.free.pop().unwrap_or(self.callers.len());
        if place >= CONNECTIONS_MAX {
            return Ok(None);
        }
        let protocol = Http1::plain();
        let registry = self.poll.registry();
        let link = Link::begin(self.address, protocol, INPUT_BYTES, registry, Token(place))?;
        let caller = Some(Caller { link, kind: 0, number: 0 });
        match self.callers.get_mut(place) {
            Some(free) => *free = caller,
            None => self.callers.push(caller),
        }
        Ok(Some(place))
    }

    /// Takes what has come.
    fn listen(&mut self, fates: &mut [Fate]) -> anyhow::Result<()> {
        // Without waiting: the system wakes us too late for the next arrival.
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        let places = self.events.iter().map(|event| (event.token().0, event.is_readable()));
        let places: Vec<(usize, bool)> = places.collect();
        let now = self.clock.elapsed();
        for (place, readable) in places {
            let Some(caller) = self.callers.get_mut(place).and_then(Option::as_mut) else {
                continue;
            };
            self.replies.clear();
            let heard = match readable {
                true => caller.link.receive(&mut self.replies),
                false => Ok(()),
            };
            let alive = heard.and_then(|()| caller.link.send()).is_ok();
            let (kind, waits) = (caller.kind, caller.link.in_flight() > 0);
            for reply in &self.replies {
                let Some(fate) = fates.get_mut(kind) else { continue };
                let waited = now.saturating_sub(reply.asked).as_nanos();
                match reply.admitted {
                    true => {
                        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
                        fate.served.saturating_record(waited);
                    }
                    false => fate.refused += 1,
                }
            }
            if !alive {
                self.leave(place, fates);
            } else if !self.replies.is_empty() && !waits {
                self.idle.push(place);
            }
        }
        Ok(())
    }

    /// Closes a connection. Whoever waits there gives up.
    fn leave(&mut self, place: usize, fates: &mut [Fate]) {
        let Some(caller) = self.callers.get_mut(place).and_then(Option::take) else { return };
        if caller.link.in_flight() == 0 {
            self.idle.retain(|idle| *idle != place);
        } else if let Some(fate) = fates.get_mut(caller.kind) {
            fate.given_up += 1;
        }
        self.free.push(place);
    }

    /// Whoever has waited for too long leaves. Those who were answered are forgotten.
    fn give_up(&mut self, now: Duration, fates: &mut [Fate]) {
        while let Some((end, place, number)) = self.patience.front().copied() {
            let waits = self.waits(place, number);
            if waits && end > now {
                return;
            }
            self.patience.pop_front();
            if waits {
                self.leave(place, fates);
            }
        }
    }

    /// Whether this one still waits there.
    fn waits(&self, place: usize, number: u64) -> bool {
        let caller = self.callers.get(place).and_then(Option::as_ref);
        caller.is_some_and(|caller| caller.number == number && caller.link.in_flight() > 0)
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
        let kind = |category, percent| Kind {
            questions: Questions::each(Wire::Call(category), 10).unwrap(),
            percent,
        };
        Crowd::new(address, vec![kind(Category::Critical, 20), kind(Category::Get, 80)]).unwrap()
    }

    fn rush(patience: Duration) -> Rush {
        Rush { per_second: 2_000.0, time: Duration::from_millis(100), patience }
    }

    #[test]
    fn patient_callers_are_all_served_by_a_server_that_refuses_nobody() {
        let address = peer::start(peer::Name::Upstream);
        let fates = crowd(address).rush(rush(PATIENT)).unwrap();
        for fate in &fates {
            assert_eq!((fate.served.len(), fate.refused, fate.given_up), (fate.arrived, 0, 0));
        }
        let arrived: Vec<u64> = fates.iter().map(|fate| fate.arrived).collect();
        assert!(arrived[0] > 10 && arrived[1] > 2 * arrived[0], "{arrived:?}");
    }

    #[test]
    fn callers_without_patience_give_up_and_their_places_are_taken_again() {
        let capacity = Capacity { slots: 2, millis: 600_000 };
        let address = peer::start_with(peer::Name::SlowApi, capacity);
        let mut crowd = crowd(address);
        for _ in 0..2 {
            let fates = crowd.rush(rush(Duration::from_millis(1))).unwrap();
            assert!(fates.iter().all(|fate| fate.given_up == fate.arrived && fate.arrived > 0));
        }
        assert!(crowd.callers.iter().all(Option::is_none));
    }
}
