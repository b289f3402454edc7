//! What stands between the clients and the server, and answers for each request.
//!
//! One file for each: ourselves, and the systems we compare ourselves with. The
//! latter are written anew from what their sources and papers say, as small as
//! they can be without another outcome. Each number in them names where it is
//! from. They live in virtual time and draw from their own seed, so that a run
//! repeats bit for bit.

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

/// Where a request was turned away. The later, the more it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// By the system, before the program saw it.
    Socket,
    /// By one comparison with a published threshold.
    Threshold,
    /// By a limit or a queue, after bookkeeping.
    Gate,
    /// By the handler, after routing, parsing and logging.
    Handler,
}

impl Place {
    /// What it costs, as a share of the mean service time.
    pub(crate) const fn cost(self) -> f64 {
        match self {
            Place::Socket => 0.0,
            Place::Threshold => 0.001,
            Place::Gate => 0.005,
            Place::Handler => 0.02,
        }
    }
}

/// What a shield says to a request that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Enter,
    /// The shield keeps it, and lets it go in [`ReleasedRequests`] later.
    Wait,
    Refuse(Place),
}

/// Requests that waited and no longer do.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReleasedRequests {
    pub(crate) entered: Vec<u32>,
    pub(crate) refused: Vec<(u32, Place)>,
}

/// A request that the server has answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) slot: u32,
    pub(crate) category: Category,
    /// From entering the server to its answer.
    pub(crate) took: u64,
    /// Requests inside when it entered, itself included.
    pub(crate) inside: u32,
    /// Its client had stopped listening.
    pub(crate) late: bool,
}

/// What a shield shows of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dials {
    /// The share of the traffic that its slow loop lets pass; 1 without one.
    pub(crate) level: f64,
    /// How many it lets in at once.
    pub(crate) limit: f64,
}

/// Decides about each request.
pub(crate) trait Shield {
    fn arrive(&mut self, now: u64, request: &Request, released: &mut ReleasedRequests) -> Answer;

    /// The server has answered a request that entered.
    fn finished(&mut self, now: u64, done: &Done, released: &mut ReleasedRequests);

    /// When it wants to be woken at the latest.
    fn wake_at(&self) -> u64;

    fn wake(&mut self, now: u64, released: &mut ReleasedRequests);

    fn dials(&self) -> Dials;
}

/// What the system holds in its sockets for a program that takes everything.
/// Clients beyond it are turned away. It keeps the run without protection finite;
/// at the usual capacity it is 20 s of work, forty times what a client waits.
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
            let done = Done { slot: 0, category, took, inside: self.inside, late: false };
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
