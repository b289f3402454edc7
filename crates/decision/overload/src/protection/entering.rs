//! The way in: what holds something.
//!
//! Where nobody has to wait it is one call and no future, since that is so for nearly all
//! requests: a future is made, moved and polled, and costs as much as a limiter does.

use tidegate_algorithms::{CallerMode, Clock, Timestamp};

use super::{Admission, Pass, Protection, Request, Screened, contain};
use crate::category::Category;
use crate::cause::Cause;
use crate::decisions::Answer;
use crate::gate::{Arrived, Outcome, Place, SlotId};
use crate::mode::Limiter;

/// What [`Protection::try_enter`] came to.
#[derive(Debug)]
#[must_use = "it is not in yet"]
pub enum Entering<'a, C: Clock> {
    /// Nothing to wait for.
    Done(Admission<C>),
    /// There is a queue at the gate.
    Waits(Waiting<'a, C>),
}

/// A request that waits at the gate. Dropping it gives everything up.
#[derive(Debug)]
#[must_use = "it is not in yet"]
pub struct Waiting<'a, C: Clock> {
    protection: &'a Protection<C>,
    /// What it holds already.
    pass: Pass<C>,
    place: Place<C>,
    since: Timestamp,
    category: Category,
}

impl<C: Clock> Protection<C> {
    /// What holds something: the fleet's grant and the gate. May wait at the gate, for no
    /// longer than its settings say; dropping the future gives everything up.
    pub async fn enter(&self, screened: Screened) -> Admission<C> {
        match self.try_enter(screened) {
            Entering::Done(admission) => admission,
            Entering::Waits(waiting) => waiting.wait().await,
        }
    }

    /// The same up to where it has to wait, if it has to.
    #[inline]
    pub fn try_enter(&self, screened: Screened) -> Entering<'_, C> {
        let free = || Entering::Done(Admission::Admitted(Pass::free()));
        let Some(request) = screened.0 else { return free() };
        let category = request.level.category();
        let Some(now) = contain(|| self.clock.now()) else {
            let acting = CallerMode::Enforce;
            self.decisions.count(Limiter::Gate, acting, category, Answer::ErrorOpen);
            return free();
        };
        if self.kill_all.is_killed(now) {
            return free();
        }
        let mut pass = Pass::new(&self.node, now, request.deadline, request.level);
        if self.watched() {
            pass.count_as_present();
        }
        match self.counted_by_fleet(now, &request) {
            Ok(true) => pass.hold_credit(),
            Ok(false) => {}
            Err(cause) => return self.refused(cause, category),
        }
        if self.acting(Limiter::Gate, now, request.caller) != Some(CallerMode::Enforce) {
            if let Some(slot) = self.slot_anyway(now, &request) {
                pass.hold_slot(slot);
            }
            return Entering::Done(Admission::Admitted(pass));
        }
        let arrived = contain(|| self.node.gate.arrive(now, request.level, request.deadline));
        let outcome = match arrived {
            Some(Arrived::Waits(place)) => {
                let waiting = Waiting { protection: self, pass, place, since: now, category };
                return Entering::Waits(waiting);
            }
            Some(Arrived::Done(outcome)) => Some(outcome),
            None => None,
        };
        Entering::Done(self.settle(pass, category, outcome))
    }

    /// What becomes of a request that an enforcing gate has answered. `None` is a gate that failed.
    #[inline(always)]
    fn settle(
        &self,
        mut pass: Pass<C>,
        category: Category,
        outcome: Option<Outcome>,
    ) -> Admission<C> {
        let refuses = outcome.map(|outcome| matches!(outcome, Outcome::Refuse(_)));
        self.decide(Limiter::Gate, Some(CallerMode::Enforce), category, refuses);
        match outcome {
            None => {}
            Some(Outcome::Enter(slot)) => pass.hold_slot(slot),
            Some(Outcome::Refuse(cause)) => {
                return Admission::Refused(self.refusal(cause, category));
            }
        }
        Admission::Admitted(pass)
    }

    #[cold]
    fn refused(&self, cause: Cause, category: Category) -> Entering<'_, C> {
        Entering::Done(Admission::Refused(self.refusal(cause, category)))
    }

    /// Whether the fleet shedder has counted the request.
    #[inline]
    fn counted_by_fleet(&self, now: Timestamp, request: &Request) -> Result<bool, Cause> {
        let Some(acting) = self.acting(Limiter::Fleet, now, request.caller) else {
            return Ok(false);
        };
        let category = request.level.category();
        let counted = contain(|| self.node.fleet.try_count(now, category));
        let refuses = counted.map(|counted| counted.is_none());
        if self.decide(Limiter::Fleet, Some(acting), category, refuses) {
            return Err(Cause::ShedFleet);
        }
        Ok(counted.flatten().unwrap_or(false))
    }

    /// The slot of a request that the gate may not refuse. Counted also when the gate is
    /// off: it is the worker shedder's signal.
    fn slot_anyway(&self, now: Timestamp, request: &Request) -> Option<SlotId> {
        let acting = self.acting(Limiter::Gate, now, request.caller);
        let entered = contain(|| self.node.gate.arrive_anyway(now, request.level));
        let hopeless = self.node.gate.is_hopeless(now, request.deadline);
        let refuses = entered.map(|anyway| anyway.would_refuse || hopeless);
        self.decide(Limiter::Gate, acting, request.level.category(), refuses);
        entered.and_then(|anyway| anyway.slot)
    }
}

impl<C: Clock> Waiting<'_, C> {
    /// Waits for its turn, for no longer than the gate's settings say.
    pub async fn wait(self) -> Admission<C> {
        let Waiting { protection, pass, place, since, category } = self;
        let outcome = contain_future(place.wait(since)).await;
        protection.settle(pass, category, outcome)
    }
}

pub(super) async fn contain_future<T>(limiter: impl Future<Output = T>) -> Option<T> {
    let mut limiter = std::pin::pin!(limiter);
    std::future::poll_fn(|context| match contain(|| limiter.as_mut().poll(context)) {
        None => std::task::Poll::Ready(None),
        Some(polled) => polled.map(Some),
    })
    .await
}
