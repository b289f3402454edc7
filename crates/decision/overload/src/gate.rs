//! The gate, the fast loop: a hard limit on requests in flight, and a short, ordered
//! queue in front of it.
//!
//! [`GateState`] decides; a simulator needs nothing else. [`Gate`] puts it behind a lock and
//! lets tasks wait. The lock is held for a few dozen nanoseconds, about the price of an
//! atomic counter, and with it the real gate cannot differ from the simulated one.
//!
//! An admitted request holds a [`Slot`], which its drop frees: at the end, on an error, on
//! a panic, when the client disconnects. Dropping a waiting task removes it from the queue
//! and frees a slot that it was granted meanwhile.

mod limit_tuner;
mod measure;
mod queue;
mod settings;
mod slots;
mod state;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tidegate_macros::debug_fields;
use tokio::sync::oneshot;

use crate::category::{Category, Level};
use crate::cause::Cause;

pub use measure::{WAIT_BUCKETS, Waits};
pub use queue::Ticket;
pub use settings::GateSettings;
pub use slots::{SLOTS_MAX, SlotId};
pub use state::GateState;
pub use turn::{Completion, Event, ForcedEntry, GateCounts, Turn, Window};

/// A gate for tasks. Waiting needs tokio's timer.
#[derive(Debug)]
pub struct Gate<C> {
    clock: C,
    inner: Mutex<GateInner>,
    /// The mean service time, readable without the lock.
    service_time: AtomicU64,
}

#[derive(Debug)]
struct GateInner {
    state: GateState,
    /// One channel for each queued task, by the index of its ticket.
    waiting: Vec<Option<oneshot::Sender<Result<SlotId, Cause>>>>,
}

/// A reading of the gate's gauges and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateView {
    /// Requests in flight, including those above the limit.
    pub in_flight: u64,
    /// Requests in the queue.
    pub queued: u64,
    /// The limit on requests in flight.
    pub limit: u64,
    /// The mean service time of recent requests; zero until measured.
    pub service_time: Nanos,
    /// Waiting times, by the rank of the category.
    pub waits: [Waits; 4],
    /// Counters since the start.
    pub counts: GateCounts,
}

impl<C: Clock> Gate<C> {
    /// An empty gate. The clock times the release of slots.
    pub fn new(settings: GateSettings, clock: C) -> Self {
        let state = GateState::new(settings, clock.now());
        let inner = Mutex::new(GateInner { state, waiting: Vec::new() });
        Gate { clock, inner, service_time: AtomicU64::new(0) }
    }

    /// Enters, immediately or after a short wait, or is refused.
    pub async fn enter(
        self: &Arc<Self>,
        now: Timestamp,
        level: Level,
        deadline: Option<Timestamp>,
    ) -> Result<Slot<C>, Cause> {
        let outcome = match self.arrive(now, level, deadline) {
            GateEntry::Decided(outcome) => outcome,
            GateEntry::Queued(position) => position.wait(now).await,
        };
        outcome.map(|id| self.slot(id))
    }

    /// Enters without being refused. Returns no slot when [`SLOTS_MAX`] are taken, and
    /// whether an enforcing gate would have refused.
    pub fn enter_forced(self: &Arc<Self>, now: Timestamp, level: Level) -> (Option<Slot<C>>, bool) {
        let entry = self.arrive_forced(now, level);
        (entry.slot.map(|id| self.slot(id)), entry.would_refuse)
    }

    /// Whether less than the mean service time is left before the deadline.
    #[inline]
    pub fn is_hopeless(&self, now: Timestamp, deadline: Option<Timestamp>) -> bool {
        let Some(at) = deadline else { return false };
        at <= now || at.since(now).get() < self.service_time.load(Ordering::Relaxed)
    }

    /// Refuses requests that waited too long, reclaims slots held too long, moves an
    /// adaptive limit, and returns the measurements since the last tick.
    pub fn tick(&self, now: Timestamp) -> Window {
        let mut inner = self.inner.lock();
        inner.state.expire(now);
        inner.state.take_back(now);
        inner.state.adapt(now);
        inner.deliver(now);
        let window = inner.state.take_window(now);
        self.service_time.store(window.service_time.get(), Ordering::Relaxed);
        window
    }

    /// Changes the limit.
    pub fn set_limit(&self, now: Timestamp, limit: u64) {
        let mut inner = self.inner.lock();
        inner.state.set_limit(now, limit);
        inner.deliver(now);
    }

    /// Notes whether an overload ended a moment ago: see [`GateState::set_recovering`].
    pub fn set_recovering(&self, recovering: bool) {
        self.inner.lock().state.set_recovering(recovering);
    }

    /// Reads the gauges and counters.
    pub fn view(&self) -> GateView {
        let inner = self.inner.lock();
        let state = &inner.state;
        GateView {
            in_flight: state.in_flight(),
            queued: state.queued() as u64,
            limit: state.limit(),
            service_time: state.service_time(),
            waits: Category::ALL.map(|category| state.waits(category)),
            counts: state.counts(),
        }
    }

    /// The clock that times the release of slots.
    pub(crate) const fn clock(&self) -> &C {
        &self.clock
    }

    /// [`Gate::enter`] up to the wait. The caller must [free](Gate::leave) a granted slot.
    #[inline]
    pub(crate) fn arrive(
        self: &Arc<Self>,
        now: Timestamp,
        level: Level,
        deadline: Option<Timestamp>,
    ) -> GateEntry<C> {
        let mut inner = self.inner.lock();
        let turn = inner.state.arrive(now, level, deadline);
        // Displaced waiters first: the newcomer may reuse the index of one of them.
        inner.deliver(now);
        match turn {
            Turn::Enter(id) => GateEntry::Decided(Ok(id)),
            Turn::Refuse(cause) => GateEntry::Decided(Err(cause)),
            Turn::Wait { ticket, until } => {
                let outcome = inner.open_channel(ticket);
                let gate = Arc::clone(self);
                GateEntry::Queued(QueuePosition { gate, ticket, until, outcome: Some(outcome) })
            }
        }
    }

    /// [`Gate::enter_forced`]; the caller must [free](Gate::leave) a granted slot.
    pub(crate) fn arrive_forced(&self, now: Timestamp, level: Level) -> ForcedEntry {
        self.inner.lock().state.arrive_forced(now, level)
    }

    fn slot(self: &Arc<Self>, id: SlotId) -> Slot<C> {
        Slot { gate: Arc::clone(self), id, completion: Completion::Abandoned }
    }

    /// Frees a slot.
    #[inline]
    pub(crate) fn leave(&self, now: Timestamp, id: SlotId, completion: Completion) {
        let mut inner = self.inner.lock();
        inner.state.leave(now, id, completion);
        inner.deliver(now);
    }
}

impl GateInner {
    fn open_channel(&mut self, ticket: Ticket) -> oneshot::Receiver<Result<SlotId, Cause>> {
        let (sender, receiver) = oneshot::channel();
        let index = ticket.index();
        if self.waiting.len() <= index {
            self.waiting.resize_with(index + 1, || None);
        }
        self.waiting[index] = Some(sender);
        receiver
    }

    fn close_channel(&mut self, ticket: Ticket) {
        if let Some(sender) = self.waiting.get_mut(ticket.index()) {
            *sender = None;
        }
    }

    /// Sends the outcomes to the waiting tasks. Under the lock, so that its next holder
    /// finds either a queued ticket or an outcome.
    #[inline]
    fn deliver(&mut self, now: Timestamp) {
        while let Some(event) = self.state.next_event() {
            self.send(event, now);
        }
    }

    /// Not inlined: events are rare.
    #[cold]
    fn send(&mut self, event: Event, now: Timestamp) {
        let sender = self.waiting.get_mut(event.ticket.index()).and_then(Option::take);
        let undelivered = match sender {
            Some(sender) => sender.send(event.outcome).err(),
            None => Some(event.outcome),
        };
        if let Some(Ok(slot)) = undelivered {
            self.state.leave(now, slot, Completion::Abandoned);
        }
    }
}

/// A slot of the gate. Dropping it frees it.
#[must_use = "dropping the slot frees it"]
pub struct Slot<C: Clock> {
    gate: Arc<Gate<C>>,
    id: SlotId,
    /// How the work ended; abandoned unless [finished](Slot::finish).
    completion: Completion,
}

impl<C: Clock> Slot<C> {
    /// Frees the slot and records how the work ended. Only finished work enters the mean
    /// service time.
    pub fn finish(mut self, completion: Completion) {
        self.completion = completion;
    }
}

impl<C: Clock> Drop for Slot<C> {
    fn drop(&mut self) {
        self.gate.leave(self.gate.clock.now(), self.id, self.completion);
    }
}

debug_fields!([C: Clock] Slot<C> { id });

/// The result of [`Gate::arrive`].
pub(crate) enum GateEntry<C: Clock> {
    Decided(Result<SlotId, Cause>),
    Queued(QueuePosition<C>),
}

/// A position in the queue. Dropping it leaves the queue.
pub(crate) struct QueuePosition<C: Clock> {
    gate: Arc<Gate<C>>,
    ticket: Ticket,
    until: Timestamp,
    /// None once the outcome was received.
    outcome: Option<oneshot::Receiver<Result<SlotId, Cause>>>,
}

debug_fields!([C: Clock] QueuePosition<C> { ticket });

impl<C: Clock> QueuePosition<C> {
    /// Waits for a slot. The caller must [free](Gate::leave) it.
    pub(crate) async fn wait(mut self, now: Timestamp) -> Result<SlotId, Cause> {
        let Some(outcome) = &mut self.outcome else {
            return Err(Cause::QueueTimeout);
        };
        let patience = self.until.since(now).into();
        match tokio::time::timeout(patience, outcome).await {
            Ok(Ok(outcome)) => self.conclude(outcome),
            Ok(Err(_)) | Err(_) => self.time_out(),
        }
    }

    fn time_out(mut self) -> Result<SlotId, Cause> {
        let now = self.gate.clock.now();
        let mut inner = self.gate.inner.lock();
        let timed_out = inner.state.time_out(now, self.ticket);
        if timed_out.is_some() {
            inner.close_channel(self.ticket);
        }
        drop(inner);
        let received = self.outcome.take().and_then(|mut outcome| outcome.try_recv().ok());
        match (timed_out, received) {
            (Some(cause), _) => Err(cause),
            (None, Some(outcome)) => self.conclude(outcome),
            (None, None) => Err(Cause::QueueTimeout),
        }
    }

    fn conclude(mut self, outcome: Result<SlotId, Cause>) -> Result<SlotId, Cause> {
        self.outcome = None;
        outcome
    }
}

impl<C: Clock> Drop for QueuePosition<C> {
    fn drop(&mut self) {
        let Some(mut outcome) = self.outcome.take() else { return };
        let now = self.gate.clock.now();
        let mut inner = self.gate.inner.lock();
        if inner.state.give_up(now, self.ticket) {
            inner.close_channel(self.ticket);
        } else if let Ok(Ok(slot)) = outcome.try_recv() {
            inner.state.leave(now, slot, Completion::Abandoned);
            inner.deliver(now);
        }
    }
}

#[cfg(test)]
mod tests;
