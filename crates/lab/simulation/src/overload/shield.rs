//! Shields: the load shedders between the clients and the server.
//!
//! One file for Tidegate, and one for each system that it is compared with. Those are small ports
//! of their sources and papers, and each number names its source. All run in virtual time and
//! draw from their own seed, so a run repeats bit for bit.

mod cinnamon;
mod codel;
mod dagor;
mod failsafe;
mod level_queue;
mod netflix;
mod none;
mod static_limit;
mod stripe;
mod tidegate;

pub(crate) use cinnamon::{Cinnamon, CinnamonSettings};
pub(crate) use codel::{Codel, CodelSettings};
pub(crate) use dagor::{Dagor, DagorSettings};
pub(crate) use failsafe::{Failsafe, FailsafeSettings};
pub(crate) use netflix::{
    CRITICAL_FIRST, Gradient2, Gradient2Settings, Netflix, Vegas, VegasSettings,
};
pub(crate) use none::NoShield;
pub(crate) use static_limit::{StaticLimit, StaticSettings};
pub(crate) use stripe::{Stripe, StripeSettings};
pub(crate) use tidegate::{Tidegate, TidegateSettings};

use super::load::Request;
use tidegate_overload::Category;

/// The stage that refused a request. Later stages cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalStage {
    /// The operating system, before the program saw the request.
    Socket,
    /// One comparison with a published threshold.
    Threshold,
    /// A limit or a queue, after bookkeeping.
    Gate,
    /// The handler, after routing, parsing and logging.
    Handler,
}

impl RefusalStage {
    /// The cost as a share of the mean service time.
    pub(crate) const fn cost(self) -> f64 {
        match self {
            RefusalStage::Socket => 0.0,
            RefusalStage::Threshold => 0.001,
            RefusalStage::Gate => 0.005,
            RefusalStage::Handler => 0.02,
        }
    }
}

/// A shield's answer to an arriving request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Enter,
    /// The shield queues it, and returns it in [`ReleasedRequests`] later.
    Wait,
    Refuse(RefusalStage),
}

/// Requests that left the shield's queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReleasedRequests {
    pub(crate) entered: Vec<u32>,
    pub(crate) refused: Vec<(u32, RefusalStage)>,
}

/// A request that the server has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FinishedRequest {
    pub(crate) slot: u32,
    pub(crate) category: Category,
    /// From entering the server to its answer.
    pub(crate) took: u64,
    /// Requests at the server when it entered, including itself.
    pub(crate) inside: u32,
    /// Whether its client had timed out.
    pub(crate) late: bool,
}

/// The present control values of a shield.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Controls {
    /// The share of the traffic that its slow loop admits; 1 without one.
    pub(crate) level: f64,
    /// Its limit on requests in flight.
    pub(crate) limit: f64,
}

/// Decides about each request.
pub(crate) trait Shield {
    fn arrive(&mut self, now: u64, request: &Request, released: &mut ReleasedRequests) -> Answer;

    /// The server has answered a request that entered.
    fn finished(&mut self, now: u64, done: &FinishedRequest, released: &mut ReleasedRequests);

    /// When to call [`Shield::wake`].
    fn wake_at(&self) -> u64;

    fn wake(&mut self, now: u64, released: &mut ReleasedRequests);

    fn controls(&self) -> Controls;
}

/// How many requests the sockets of an unprotected program hold; more are refused. At the usual
/// capacity they are 20 s of work, forty times the timeout of a client.
pub(crate) const SOCKETS_MAX: usize = 65_536;

#[cfg(test)]
pub(crate) mod bench {
    //! A server of fixed service time around a shield, for its tests.

    use tidegate_overload::{Cohort, Level};

    use super::*;

    pub(crate) struct Bench<S> {
        pub(crate) shield: S,
        pub(crate) now: u64,
        pub(crate) inside: u32,
        next: u32,
    }

    impl<S: Shield> Bench<S> {
        pub(crate) fn new(shield: S) -> Self {
            Bench { shield, now: 0, inside: 0, next: 0 }
        }

        pub(crate) fn arrive(&mut self, category: Category) -> Answer {
            self.arrive_as(category, 64).0
        }

        pub(crate) fn arrive_as(
            &mut self,
            category: Category,
            cohort: u8,
        ) -> (Answer, ReleasedRequests) {
            self.next += 1;
            let request = Request {
                slot: self.next,
                sequence: u64::from(self.next),
                category,
                tenant: 0,
                level: Level::new(category, Cohort::numbered(cohort)),
                arrived: self.now,
                deadline: self.now + 500_000_000,
                attempt: 1,
                call: 1,
            };
            let mut released = ReleasedRequests::default();
            let answer = self.shield.arrive(self.now, &request, &mut released);
            self.inside += u32::from(answer == Answer::Enter);
            (answer, released)
        }

        pub(crate) fn finish(&mut self, category: Category, took: u64) -> ReleasedRequests {
            let mut released = ReleasedRequests::default();
            let done =
                FinishedRequest { slot: 0, category, took, inside: self.inside, late: false };
            self.inside = self.inside.saturating_sub(1);
            self.shield.finished(self.now, &done, &mut released);
            self.inside += u32::try_from(released.entered.len()).unwrap();
            released
        }

        /// Lets time pass, and wakes the shield whenever it asked to.
        pub(crate) fn pass(&mut self, nanos: u64) -> ReleasedRequests {
            let until = self.now + nanos;
            let mut released = ReleasedRequests::default();
            while self.shield.wake_at() <= until {
                self.now = self.now.max(self.shield.wake_at());
                self.shield.wake(self.now, &mut released);
            }
            self.now = until;
            released
        }
    }
}
