//! The steps that hold something: the fleet's grant and the gate.
//!
//! A request that does not have to wait enters by one synchronous call. Nearly all do, and
//! creating, moving and polling a future costs as much as a limiter.

use tidegate_algorithms::{CallerMode, Clock, Timestamp};

use super::{Pass, Protection, Request, ScreenedRequest, contain};
use crate::category::Category;
use crate::cause::Cause;
use crate::decisions::Answer;
use crate::gate::{GateEntry, QueuePosition, SlotId};
use crate::mode::Limiter;
use crate::refusal::Refusal;
use crate::stalled_callers::CallerShare;

/// The result of [`Protection::try_enter`].
#[derive(Debug)]
#[must_use = "dropping a pass or a queued request gives up what it holds"]
pub enum Entry<'a, C: Clock> {
    /// Admitted until the pass is dropped.
    Entered(Pass<C>),
    /// Queued at the gate.
    Queued(QueuedRequest<'a, C>),
    /// Refused.
    Refused(Refusal),
}

/// A request in the queue of the gate. Dropping it leaves the queue and gives up what the
/// request holds.
#[derive(Debug)]
#[must_use = "the request has not entered yet"]
pub struct QueuedRequest<'a, C: Clock> {
    protection: &'a Protection<C>,
    /// What the request holds before its slot.
    pass: Pass<C>,
    position: QueuePosition<C>,
    since: Timestamp,
    category: Category,
}

impl<C: Clock> Protection<C> {
    /// Enters through the fleet's grant and the gate. May wait at the gate, bounded by its
    /// settings; dropping the future gives up what the request holds.
    pub async fn enter(&self, screened: ScreenedRequest) -> Result<Pass<C>, Refusal> {
        match self.try_enter(screened) {
            Entry::Entered(pass) => Ok(pass),
            Entry::Queued(queued) => queued.wait().await,
            Entry::Refused(refusal) => Err(refusal),
        }
    }

    /// Like [`Protection::enter`], but returns instead of waiting.
    #[inline]
    pub fn try_enter(&self, screened: ScreenedRequest) -> Entry<'_, C> {
        let free = || Entry::Entered(Pass::free());
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
        let mut pass = Pass::new(&self.node, now, request.deadline, request.level, request.caller);
        if self.watched() {
            pass.count_as_present();
        }
        match self.counted_by_fleet(now, &request) {
            Ok(true) => pass.hold_credit(),
            Ok(false) => {}
            Err(cause) => return Entry::Refused(self.refusal(cause, category)),
        }
        if self.acting(Limiter::Gate, now, request.caller) != Some(CallerMode::Enforce) {
            if let Some(slot) = self.forced_slot(now, &request) {
                pass.hold_slot(slot);
            }
            return Entry::Entered(pass);
        }
        let gate = &self.node.gate;
        match self.node.stalled.take(request.caller, || gate.view().limit, now) {
            CallerShare::Whole => {}
            CallerShare::Counted => pass.count_in_part(),
            CallerShare::Spent => {
                return match self.conclude(pass, category, Some(Err(Cause::QueueFull))) {
                    Ok(pass) => Entry::Entered(pass),
                    Err(refusal) => Entry::Refused(refusal),
                };
            }
        }
        let arrived = contain(|| gate.arrive(now, request.level, request.deadline));
        let outcome = match arrived {
            Some(GateEntry::Queued(position)) => {
                let queued =
                    QueuedRequest { protection: self, pass, position, since: now, category };
                return Entry::Queued(queued);
            }
            Some(GateEntry::Decided(outcome)) => Some(outcome),
            None => None,
        };
        match self.conclude(pass, category, outcome) {
            Ok(pass) => Entry::Entered(pass),
            Err(refusal) => Entry::Refused(refusal),
        }
    }

    /// Counts the answer of an enforcing gate and puts a slot into the pass. `outcome` is `None`
    /// when the gate panicked.
    #[inline(always)]
    fn conclude(
        &self,
        mut pass: Pass<C>,
        category: Category,
        outcome: Option<Result<SlotId, Cause>>,
    ) -> Result<Pass<C>, Refusal> {
        let refuses = outcome.map(|outcome| outcome.is_err());
        self.decide(Limiter::Gate, Some(CallerMode::Enforce), category, refuses);
        match outcome {
            None => {}
            Some(Ok(slot)) => pass.hold_slot(slot),
            Some(Err(cause)) => return Err(self.refusal(cause, category)),
        }
        Ok(pass)
    }

    /// Whether the fleet shedder counted the request, or why it refused.
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

    /// The slot of a request that the gate may not refuse. Taken also while the gate is off:
    /// requests in flight are the worker shedder's signal.
    fn forced_slot(&self, now: Timestamp, request: &Request) -> Option<SlotId> {
        let acting = self.acting(Limiter::Gate, now, request.caller);
        let entered = contain(|| self.node.gate.arrive_forced(now, request.level));
        let hopeless = self.node.gate.is_hopeless(now, request.deadline);
        let refuses = entered.map(|entry| entry.would_refuse || hopeless);
        self.decide(Limiter::Gate, acting, request.level.category(), refuses);
        entered.and_then(|entry| entry.slot)
    }
}

impl<C: Clock> QueuedRequest<'_, C> {
    /// Waits for a slot, bounded by the gate's settings.
    pub async fn wait(self) -> Result<Pass<C>, Refusal> {
        let QueuedRequest { protection, pass, position, since, category } = self;
        let outcome = contain_future(position.wait(since)).await;
        protection.conclude(pass, category, outcome)
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
