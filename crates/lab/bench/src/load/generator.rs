//! Sends requests to one server over several connections, in a closed or an open loop.
//!
//! The closed loop keeps every connection full and measures throughput. The open
//! loop sends at the times of a Poisson process, whether or not earlier answers
//! have arrived, and measures latency from the time of arrival, so that a stall
//! of the server counts for every request that waited.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};

use super::arrivals::Arrivals;
use super::connection::Connection;
use super::{Protocol, Reply, wait_histogram};
use crate::questions::Questions;
use crate::stopwatch::Stopwatch;

/// The timeout of a server that sends nothing.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The initial capacity for callers: growing it takes time.
const CALLERS: usize = 1 << 16;

/// When the closed loop ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Enough {
    After(Duration),
    Replies(u64),
}

impl Enough {
    fn is_reached(self, took: Duration, replies: u64) -> bool {
        match self {
            Enough::After(time) => took >= time,
            Enough::Replies(wanted) => replies >= wanted,
        }
    }
}

/// How long one caller waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The arrival of the caller, from the start of the run.
    pub(crate) arrived: Duration,
    pub(crate) waited: Duration,
}

/// Replies of a saturated server.
#[derive(Clone, Debug)]
pub(crate) struct TimedReplies {
    /// How long callers waited, in nanoseconds.
    pub(crate) waits: Histogram<u64>,
    pub(crate) refused: u64,
}

/// The connections to one server.
pub(crate) struct Generator<P> {
    poll: Poll,
    events: Events,
    connections: Vec<Connection<P>>,
    questions: Questions,
    replies: Vec<Reply>,
    clock: Stopwatch,
    heard_last: Duration,
}

impl<P: Protocol> Generator<P> {
    /// Opens this many connections.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub(crate) fn connect(
        address: SocketAddr,
        connections: usize,
        questions: Questions,
        protocol: impl Fn(&Questions) -> anyhow::Result<P>,
    ) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        let events = Events::with_capacity(connections.max(1));
        let connections = (0..connections).map(|place| {
            Connection::connect(address, protocol(&questions)?, poll.registry(), Token(place))
        });
        let connections = connections.collect::<anyhow::Result<_>>()?;
        Ok(Generator {
            poll,
            events,
            connections,
            questions,
            replies: Vec::new(),
            clock: Stopwatch::start(),
            heard_last: Duration::ZERO,
        })
    }

    /// Keeps the connections full until the end; returns the number of replies. Calls
    /// stay in flight, so that the next run continues where this one ends.
    ///
    /// # Errors
    /// When a call fails or is refused.
    pub(crate) fn saturate(&mut self, enough: Enough) -> anyhow::Result<u64> {
        let mut replied = 0;
        self.saturate_with(enough, |replies, _| {
            replied += replies.len() as u64;
            check_admitted(replies)
        })?;
        Ok(replied)
    }

    /// Like [`Self::saturate`], but records how long each caller waited, and counts refusals.
    ///
    /// # Errors
    /// When a call fails.
    pub(crate) fn saturate_and_time(&mut self, enough: Enough) -> anyhow::Result<TimedReplies> {
        let mut timed = TimedReplies { waits: wait_histogram()?, refused: 0 };
        self.saturate_with(enough, |replies, now| {
            for reply in replies {
                let waited = now.saturating_sub(reply.asked).as_nanos();
                timed.waits.saturating_record(u64::try_from(waited).unwrap_or(u64::MAX));
                timed.refused += u64::from(!reply.admitted);
            }
            Ok(())
        })?;
        Ok(timed)
    }

    fn saturate_with(
        &mut self,
        enough: Enough,
        mut on_replies: impl FnMut(&[Reply], Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let start = self.clock.elapsed();
        let mut replied = 0;
        let mut now = start;
        while !enough.is_reached(now.saturating_sub(start), replied) {
            for connection in &mut self.connections {
                while connection.has_room() {
                    connection.ask(self.questions.ask(), now);
                }
                connection.send()?;
            }
            self.listen(Some(SILENCE_MAX))?;
            now = self.clock.elapsed();
            replied += self.replies.len() as u64;
            on_replies(&self.replies, now)?;
            self.check_alive(now)?;
        }
        Ok(())
    }

    /// Sends requests at this average rate for a time, then waits for the last answers;
    /// returns the latencies in the order of the answers. Two runs at one rate have the
    /// same times of arrival.
    ///
    /// It polls without sleeping, because the system wakes a sleeping thread some microseconds
    /// late. Other work of this processor runs as `meanwhile` between two polls: the scheduler
    /// would run another thread milliseconds late.
    ///
    /// # Errors
    /// When a call fails or is refused, or when `meanwhile` fails.
    pub(crate) fn arrive(
        &mut self,
        per_second: f64,
        time: Duration,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Wait>> {
        let mut waits = Vec::with_capacity(CALLERS);
        let start = self.clock.elapsed();
        let mut arrivals = Arrivals::new(per_second, start, start + time);
        let mut turn = 0;
        while !arrivals.is_over() || self.in_flight() > 0 {
            let now = self.clock.elapsed();
            while let Some(place) = self.next_with_room(turn) {
                let Some(arrived) = arrivals.due(now) else { break };
                let connection =
                    self.connections.get_mut(place).context("a connection that is there")?;
                connection.ask(self.questions.ask(), arrived);
                turn = place + 1;
            }
            for connection in &mut self.connections {
                connection.send()?;
            }
            meanwhile()?;
            self.listen(Some(Duration::ZERO))?;
            let now = self.clock.elapsed();
            for reply in &self.replies {
                waits.push(Wait {
                    arrived: reply.asked.saturating_sub(start),
                    waited: now.saturating_sub(reply.asked),
                });
            }
            check_admitted(&self.replies)?;
            self.check_alive(now)?;
        }
        Ok(waits)
    }

    fn in_flight(&self) -> usize {
        self.connections.iter().map(Connection::in_flight).sum()
    }

    /// The first connection, from an index on, that takes a request.
    fn next_with_room(&self, from: usize) -> Option<usize> {
        let count = self.connections.len();
        let mut places = (from..from + count).map(|place| place % count.max(1));
        places.find(|place| self.connections.get(*place).is_some_and(Connection::has_room))
    }

    /// Waits at most this long for replies, and reads them.
    fn listen(&mut self, timeout: Option<Duration>) -> anyhow::Result<()> {
        self.replies.clear();
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in &self.events {
            let Token(place) = event.token();
            let connection =
                self.connections.get_mut(place).context("news of no connection of ours")?;
            if event.is_readable() {
                connection.receive(&mut self.replies)?;
            }
            connection.send()?;
        }
        Ok(())
    }

    /// The server must not fall silent.
    fn check_alive(&mut self, now: Duration) -> anyhow::Result<()> {
        if !self.replies.is_empty() || self.in_flight() == 0 {
            self.heard_last = now;
        }
        if now.saturating_sub(self.heard_last) > SILENCE_MAX {
            bail!("the server has not answered for {SILENCE_MAX:?}");
        }
        Ok(())
    }
}

/// Everything must be admitted, or something else is measured than is meant.
fn check_admitted(replies: &[Reply]) -> anyhow::Result<()> {
    ensure!(replies.iter().all(|reply| reply.admitted), "the server refused a call");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Http1, Http2};
    use crate::peer;
    use crate::questions::Wire;

    fn generator(name: peer::PeerName, wire: Wire) -> Generator<Http2> {
        let questions = Questions::zipf(wire, 100, 1_000).unwrap();
        let address = peer::start(name);
        Generator::connect(address, 2, questions, |questions| Http2::new(questions, 64)).unwrap()
    }

    #[test]
    fn a_tonic_server_is_saturated_until_it_has_replied_enough() {
        let mut generator = generator(peer::PeerName::BareTonic, Wire::Rls { descriptors: 1 });
        for _ in 0..2 {
            let replies = generator.saturate(Enough::Replies(5_000)).unwrap();
            assert!((5_000..5_000 + 128).contains(&replies), "{replies}");
        }
    }

    #[test]
    fn every_reply_of_a_saturated_server_is_timed() {
        let mut generator = generator(peer::PeerName::BareTonic, Wire::Rls { descriptors: 1 });
        let timed = generator.saturate_and_time(Enough::Replies(1_000)).unwrap();
        assert!((1_000..1_000 + 128).contains(&timed.waits.len()), "{}", timed.waits.len());
        assert!(timed.waits.min() > 0);
        assert_eq!(timed.refused, 0);
    }

    #[test]
    fn more_is_asked_than_the_first_window_takes() {
        let mut generator = generator(peer::PeerName::BareTonic, Wire::Rls { descriptors: 10 });
        let bytes = generator.questions.bytes() as u64;
        let replies = 10 * 65_535 / bytes;
        assert!(generator.saturate(Enough::Replies(replies)).unwrap() >= replies);
    }

    #[test]
    fn callers_that_arrive_are_all_answered() {
        let mut generator = generator(peer::PeerName::BareTonic, Wire::Rls { descriptors: 1 });
        let time = Duration::from_millis(150);
        let waits = generator.arrive(10_000.0, time, || Ok(())).unwrap();
        assert!((1_200..1_800).contains(&waits.len()), "{}", waits.len());
        assert!(waits.iter().all(|wait| wait.arrived < time && !wait.waited.is_zero()));
        assert_eq!(generator.in_flight(), 0);
    }

    #[test]
    fn callers_arrive_at_the_same_times_each_time() {
        let mut generator = generator(peer::PeerName::BareTonic, Wire::Rls { descriptors: 1 });
        let mut times = || {
            let waits = generator.arrive(2_000.0, Duration::from_millis(50), || Ok(())).unwrap();
            let mut times: Vec<Duration> = waits.iter().map(|wait| wait.arrived).collect();
            times.sort_unstable();
            times
        };
        assert_eq!(times(), times());
    }

    #[test]
    fn a_generator_can_be_the_server_that_answers_it() {
        let mut upstream = peer::Upstream::listen().unwrap();
        let questions = Questions::each(Wire::Page, 1).unwrap();
        let address = upstream.address().unwrap();
        let mut generator =
            Generator::connect(address, 4, questions, |_| Ok(Http1::plain())).unwrap();
        let time = Duration::from_millis(100);
        let waits = generator.arrive(1_000.0, time, || upstream.answer()).unwrap();
        assert!((50..150).contains(&waits.len()), "{}", waits.len());
        assert_eq!(generator.in_flight(), 0);
    }

    #[test]
    fn what_fails_meanwhile_ends_the_arrivals() {
        let mut generator = generator(peer::PeerName::BareTonic, Wire::Rls { descriptors: 1 });
        let time = Duration::from_secs(3_600);
        let error = generator.arrive(1.0, time, || bail!("no more")).unwrap_err();
        assert_eq!(error.to_string(), "no more");
    }

    #[test]
    fn limitador_counts_and_admits() {
        let mut generator = generator(peer::PeerName::Limitador, Wire::Rls { descriptors: 1 });
        assert!(generator.saturate(Enough::Replies(500)).unwrap() >= 500);
    }

    #[test]
    fn an_axum_server_is_asked_in_json() {
        let questions = Questions::zipf(Wire::Json, 100, 1_000).unwrap();
        let address = peer::start(peer::PeerName::BareAxum);
        let protocol = |questions: &Questions| Ok(Http1::new(questions));
        let mut generator = Generator::connect(address, 10, questions, protocol).unwrap();
        assert!(generator.saturate(Enough::Replies(1_000)).unwrap() >= 1_000);
    }

    #[test]
    fn a_server_that_does_not_know_the_method_is_an_error() {
        let mut generator = generator(peer::PeerName::BareTonic, Wire::Throttlecrab);
        let error = generator.saturate(Enough::Replies(1)).unwrap_err();
        assert_eq!(error.to_string(), "a call ended without an answer");
    }

    #[test]
    fn a_port_without_a_listener_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let questions = Questions::each(Wire::Json, 1).unwrap();
        let protocol = |questions: &Questions| Ok(Http1::new(questions));
        assert!(Generator::connect(address, 1, questions, protocol).is_err());
    }
}
