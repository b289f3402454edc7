//! The inner gate: the fast loop. A hard limit on what is inside, and a short,
//! ordered queue in front of it.
//!
//! [`GateState`] decides, and is all that a simulator needs. [`Gate`] puts it under a
//! lock and lets tasks wait. A lock, and not a counter beside it: what is held for a
//! few dozen nanoseconds costs about as much as the counter would, and the real
//! gate cannot differ from the simulated one.
//!
//! Whoever is let in gets a [`Slot`] that gives itself back when dropped: at the end,
//! on an error, on a panic, when the client goes away. A task that is dropped while
//! it waits gives up its place, and a slot that it was just given.

mod measure;
mod queue;
mod slots;
mod state;
mod tuning;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tokio::sync::oneshot;

use crate::category::{Category, Level};
use crate::cause::Cause;

pub use measure::{WAIT_BUCKETS, Waits};
pub use queue::Ticket;
pub use slots::{SLOTS_MAX, SlotId};
pub use state::GateState;
pub use turn::{Anyway, Ending, Event, GateCounts, GateSettings, Outcome, Turn, Window};

/// A gate for tasks. Waiting needs tokio's timer.
#[derive(Debug)]
pub struct Gate<C> {
    clock: C,
    guarded: Mutex<Guarded>,
    /// The mean service time, for those who ask before they come.
    service_time: AtomicU64,
}

#[derive(Debug)]
struct Guarded {
    state: GateState,
    /// How to reach those who wait, by the number of their ticket.
    waiting: Vec<Option<oneshot::Sender<Outcome>>>,
}

/// What [`Gate::enter`] came to.
#[derive(Debug)]
pub enum Entrance<C: Clock> {
    /// Inside until the slot is dropped.
    Entered(Slot<C>),
    /// Refused.
    Refused(Cause),
}

/// What a gate shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateView {
    /// How many are inside, those beyond the limit included.
    pub in_flight: u64,
    /// How many wait.
    pub queued: u64,
    /// How many may be inside.
    pub limit: u64,
    /// The mean service time of the last requests; zero while nobody knows.
    pub service_time: Nanos,
    /// How long requests waited, by the rank of their category.
    pub waits: [Waits; 4],
    /// What was counted since the start.
    pub counts: GateCounts,
}

impl<C: Clock> Gate<C> {
    /// An empty gate. The clock tells when slots are given back.
    pub fn new(settings: GateSettings, clock: C) -> Self {
        let state = GateState::new(settings, clock.now());
        let guarded = Mutex::new(Guarded { state, waiting: Vec::new() });
        Gate { clock, guarded, service_time: AtomicU64::new(0) }
    }

    /// Goes in, at once or after a short wait, or is refused.
    pub async fn enter(
        self: &Arc<Self>,
        now: Timestamp,
        level: Level,
        deadline: Option<Timestamp>,
    ) -> Entrance<C> {
        let outcome = match self.arrive(now, level, deadline) {
            Arrived::Done(outcome) => outcome,
            Arrived::Waits(place) => place.wait(now).await,
        };
        match outcome {
            Outcome::Enter(id) => Entrance::Entered(self.slot(id)),
            Outcome::Refuse(cause) => Entrance::Refused(cause),
        }
    }

    /// Goes in, whatever the gate would say. The slot is none when there are more
    /// inside than can be counted. Also says whether an enforcing gate would have refused.
    pub fn enter_anyway(self: &Arc<Self>, now: Timestamp, level: Level) -> (Option<Slot<C>>, bool) {
        let anyway = self.arrive_anyway(now, level);
        (anyway.slot.map(|id| self.slot(id)), anyway.would_refuse)
    }

    /// Whether there is too little time left before the deadline.
    #[inline]
    pub fn is_hopeless(&self, now: Timestamp, deadline: Option<Timestamp>) -> bool {
        let Some(at) = deadline else { return false };
        at <= now || at.since(now).get() < self.service_time.load(Ordering::Relaxed)
    }

    /// Refuses those who waited for too long, takes back what was held for too long, lets
    /// an adaptive limit move, and says what was measured since the last tick.
    pub fn tick(&self, now: Timestamp) -> Window {
        let mut guarded = self.guarded.lock();
        guarded.state.expire(now);
        guarded.state.take_back(now);
        guarded.state.adapt(now);
        guarded.deliver(now);
        let window = guarded.state.take_window(now);
        self.service_time.store(window.service_time.get(), Ordering::Relaxed);
        window
    }

    /// Changes how many may be inside.
    pub fn set_limit(&self, now: Timestamp, limit: u64) {
        let mut guarded = self.guarded.lock();
        guarded.state.set_limit(now, limit);
        guarded.deliver(now);
    }

    /// What it looks like at present.
    pub fn view(&self) -> GateView {
        let guarded = self.guarded.lock();
        let state = &guarded.state;
        GateView {
            in_flight: state.in_flight(),
            queued: state.queued() as u64,
            limit: state.limit(),
            service_time: state.service_time(),
            waits: Category::ALL.map(|category| state.waits(category)),
            counts: state.counts(),
        }
    }

    /// The clock that tells when slots are given back.
    pub(crate) const fn clock(&self) -> &C {
        &self.clock
    }

    /// What [`Gate::enter`] does at once. Whoever gets a slot has to [leave](Gate::leave).
    #[inline]
    pub(crate) fn arrive(
        self: &Arc<Self>,
        now: Timestamp,
        level: Level,
        deadline: Option<Timestamp>,
    ) -> Arrived<C> {
        let mut guarded = self.guarded.lock();
        let turn = guarded.state.arrive(now, level, deadline);
        // First those who made way: the newcomer may have the number of one of them.
        guarded.deliver(now);
        match turn {
            Turn::Enter(id) => Arrived::Done(Outcome::Enter(id)),
            Turn::Refuse(cause) => Arrived::Done(Outcome::Refuse(cause)),
            Turn::Wait { ticket, until } => {
                let outcome = guarded.expect(ticket);
                let gate = Arc::clone(self);
                Arrived::Waits(Place { gate, ticket, until, outcome: Some(outcome) })
            }
        }
    }

    /// What [`Gate::enter_anyway`] does. Whoever gets a slot has to [leave](Gate::leave).
    pub(crate) fn arrive_anyway(&self, now: Timestamp, level: Level) -> Anyway {
        self.guarded.lock().state.arrive_anyway(now, level)
    }

    fn slot(self: &Arc<Self>, id: SlotId) -> Slot<C> {
        Slot { gate: Arc::clone(self), id, ending: Ending::Abandoned }
    }

    /// Gives a slot back.
    #[inline]
    pub(crate) fn leave(&self, now: Timestamp, id: SlotId, ending: Ending) {
        let mut guarded = self.guarded.lock();
        guarded.state.leave(now, id, ending);
        guarded.deliver(now);
    }
}

impl Guarded {
    fn expect(&mut self, ticket: Ticket) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        let index = ticket.index();
        if self.waiting.len() <= index {
            self.waiting.resize_with(index + 1, || None);
        }
        self.waiting[index] = Some(sender);
        receiver
    }

    fn forget(&mut self, ticket: Ticket) {
        if let Some(sender) = self.waiting.get_mut(ticket.index()) {
            *sender = None;
        }
    }

    /// Tells those who wait what became of them. Under the lock, so that whoever
    /// holds it afterwards finds either a waiting ticket or an outcome.
    #[inline]
    fn deliver(&mut self, now: Timestamp) {
        while let Some(event) = self.state.next_event() {
            self.tell(event, now);
        }
    }

    /// Apart, since nearly nobody waits.
    #[cold]
    fn tell(&mut self, event: Event, now: Timestamp) {
        let sender = self.waiting.get_mut(event.ticket.index()).and_then(Option::take);
        let lost = match sender {
            Some(sender) => sender.send(event.outcome).err(),
            None => Some(event.outcome),
        };
        if let Some(Outcome::Enter(slot)) = lost {
            self.state.leave(now, slot, Ending::Abandoned);
        }
    }
}

/// A slot inside the gate. Gives itself back when dropped.
#[must_use = "the slot is given back when it is dropped"]
pub struct Slot<C: Clock> {
    gate: Arc<Gate<C>>,
    id: SlotId,
    /// How the work ended; nobody knows until it is said.
    ending: Ending,
}

impl<C: Clock> Slot<C> {
    /// Gives the slot back and says how the work ended. Without it, the gate learns
    /// nothing of how long work takes.
    pub fn finish(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl<C: Clock> Drop for Slot<C> {
    fn drop(&mut self) {
        self.gate.leave(self.gate.clock.now(), self.id, self.ending);
    }
}

impl<C: Clock> std::fmt::Debug for Slot<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What [`Gate::arrive`] came to.
pub(crate) enum Arrived<C: Clock> {
    Done(Outcome),
    Waits(Place<C>),
}

/// A place in the queue. Dropping it gives it up.
pub(crate) struct Place<C: Clock> {
    gate: Arc<Gate<C>>,
    ticket: Ticket,
    until: Timestamp,
    /// None once the outcome was taken.
    outcome: Option<oneshot::Receiver<Outcome>>,
}

impl<C: Clock> std::fmt::Debug for Place<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl<C: Clock> Place<C> {
    /// Waits for its turn. Whoever gets a slot has to [leave](Gate::leave).
    pub(crate) async fn wait(mut self, now: Timestamp) -> Outcome {
        let Some(outcome) = &mut self.outcome else {
            return Outcome::Refuse(Cause::QueueTimeout);
        };
        let patience = self.until.since(now).into();
        let told = tokio::time::timeout(patience, outcome).await;
        match told {
            Ok(Ok(outcome)) => self.settle(outcome),
            Ok(Err(_)) | Err(_) => self.time_out(),
        }
    }

    fn time_out(mut self) -> Outcome {
        let now = self.gate.clock.now();
        let mut guarded = self.gate.guarded.lock();
        let timed_out = guarded.state.time_out(now, self.ticket);
        if timed_out.is_some() {
            guarded.forget(self.ticket);
        }
        drop(guarded);
        let told = self.outcome.take().and_then(|mut outcome| outcome.try_recv().ok());
        match (timed_out, told) {
            (Some(cause), _) => Outcome::Refuse(cause),
            (None, Some(outcome)) => self.settle(outcome),
            (None, None) => Outcome::Refuse(Cause::QueueTimeout),
        }
    }

    fn settle(mut self, outcome: Outcome) -> Outcome {
        self.outcome = None;
        outcome
    }
}

impl<C: Clock> Drop for Place<C> {
    fn drop(&mut self) {
        let Some(mut outcome) = self.outcome.take() else { return };
        let now = self.gate.clock.now();
        let mut guarded = self.gate.guarded.lock();
        if guarded.state.give_up(now, self.ticket) {
            guarded.forget(self.ticket);
        } else if let Ok(Outcome::Enter(slot)) = outcome.try_recv() {
            guarded.state.leave(now, slot, Ending::Abandoned);
            guarded.deliver(now);
        }
    }
}

#[cfg(test)]
mod tests;
