//! The gate as a state machine: an arrival, a departure, a moment in; a turn out.
//!
//! No clock is read and nothing waits, so a simulator drives it in virtual time
//! and every run replays. Who waits is told by a [`Ticket`]; what becomes of it
//! comes as an [`Event`] from [`GateState::next_event`], which every driver empties
//! after each call.
//!
//! The rules, each for its reason:
//! - The limit is hard, and the queue short: half the limit. What waits longer
//!   than that would be answered too late.
//! - Categories go in order. Within one the oldest goes first while the queue is
//!   a burst, the newest once it has been standing for a while: when not all can be
//!   served in time, serving the oldest serves nobody in time.
//! - A full queue gives up the oldest of its lowest category for whoever ranks
//!   as high. So critical requests displace others from the first millisecond.
//! - Some slots are for critical requests only: the others never hold all. And critical
//!   requests may always wait as long as in a burst, since nobody is before them.
//! - Whoever cannot be done in time is refused instead of worked on.

use std::collections::VecDeque;

use tidegate_algorithms::{Nanos, Timestamp};

use super::measure::{OverTime, ServiceTime, WaitTimes, Waits};
use super::queue::{Order, Queue, Ticket, Waiting};
use super::slots::{Place, SLOTS_MAX, SlotId, Slots};
use super::tuning::Tuning;
use super::turn::{Anyway, Ending, Event, GateCounts, GateSettings, Outcome, Turn, Window};
use crate::category::{Category, Level};
use crate::cause::Cause;

/// Slots, queue and measurements of one gate.
#[derive(Debug)]
pub struct GateState {
    settings: GateSettings,
    limit: u64,
    slots: Slots,
    queue: Queue,
    /// When the queue was empty last.
    empty: Timestamp,
    events: VecDeque<Event>,
    service: ServiceTime,
    waits: WaitTimes,
    in_flight_mean: OverTime,
    queued_mean: OverTime,
    tuning: Option<Tuning>,
    counts: GateCounts,
}

impl GateState {
    /// An empty gate.
    pub fn new(settings: GateSettings, now: Timestamp) -> Self {
        let limit = within_bounds(settings.limit);
        GateState {
            settings,
            limit,
            slots: Slots::default(),
            queue: Queue::default(),
            empty: now,
            events: VecDeque::new(),
            service: ServiceTime::default(),
            waits: WaitTimes::default(),
            in_flight_mean: OverTime::new(now),
            queued_mean: OverTime::new(now),
            tuning: settings.adaptive.map(|adaptive| Tuning::new(adaptive, limit, now)),
            counts: GateCounts::default(),
        }
    }

    /// Somebody wants in.
    pub fn arrive(&mut self, now: Timestamp, level: Level, deadline: Option<Timestamp>) -> Turn {
        let category = level.category();
        if self.queue.is_empty() {
            self.empty = self.empty.max(now);
        } else {
            self.expire(now);
        }
        if self.is_hopeless(now, deadline) {
            return Turn::Refuse(Cause::Deadline);
        }
        // Whoever could go in has been let in already, so nobody is overtaken.
        if self.has_room(category) {
            return match self.let_in(now, Place::within(category)) {
                Some(slot) => {
                    self.waits.take_in_none(category);
                    Turn::Enter(slot)
                }
                None => Turn::Refuse(Cause::QueueFull),
            };
        }
        let turn = self.join(now, category, deadline);
        self.note(now);
        turn
    }

    /// Lets a request in that may not be refused nor held up: within the limit if
    /// there is room, and beyond it otherwise. Those beyond stand for those
    /// who would wait; more of them than the queue is long would be refused.
    pub fn arrive_anyway(&mut self, now: Timestamp, level: Level) -> Anyway {
        let category = level.category();
        if self.has_room(category) {
            self.waits.take_in_none(category);
            return Anyway { slot: self.let_in(now, Place::within(category)), would_refuse: false };
        }
        let would_refuse = self.slots.beyond() >= self.queue_max() as u64;
        Anyway { slot: self.let_in(now, Place::Beyond), would_refuse }
    }

    /// Gives a slot back. False when it had been taken back before.
    pub fn leave(&mut self, now: Timestamp, slot: SlotId, ending: Ending) -> bool {
        let Some(held) = self.slots.give_back(slot) else {
            self.counts.late += 1;
            return false;
        };
        self.counts.left += 1;
        if ending == Ending::Succeeded {
            let took = now.since(held.since);
            self.service.take_in(took);
            if let Some(tuning) = &mut self.tuning {
                tuning.succeeded(took);
            }
        }
        self.admit_waiting(now);
        true
    }

    /// Who waited has gone away. False when it was not waiting any more: then its
    /// event has come, and a slot in it has to be given back.
    pub fn give_up(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        let gone = self.queue.leave(ticket).is_some();
        if gone {
            self.counts.gave_up += 1;
            self.note(now);
        }
        gone
    }

    /// Who waited has waited as long as it may. `None` when it was not waiting any
    /// more: then its event has come.
    pub fn time_out(&mut self, now: Timestamp, ticket: Ticket) -> Option<Cause> {
        self.queue.leave(ticket)?;
        self.note(now);
        Some(Cause::QueueTimeout)
    }

    /// Refuses those who have waited for too long. Arrivals and departures do so by
    /// themselves; a tick has to, when there are none.
    pub fn expire(&mut self, now: Timestamp) {
        for category in Category::ALL {
            let wait_max = self.wait_max(now, category);
            while let Some((ticket, waiting)) = self.queue.oldest(category) {
                if now.since(waiting.since) <= wait_max && now < waiting.until {
                    break;
                }
                self.queue.leave(ticket);
                self.tell(ticket, Outcome::Refuse(Cause::QueueTimeout));
            }
        }
        self.note(now);
    }

    /// Takes back what has been held for too long, and says how many that were.
    pub fn take_back(&mut self, now: Timestamp) -> u64 {
        let taken = self.slots.take_back(now, self.settings.hold_max);
        self.counts.taken_back += taken;
        if taken > 0 {
            self.admit_waiting(now);
        }
        taken
    }

    /// Lets an adaptive limit move, when it is time to. Says where to.
    pub fn adapt(&mut self, now: Timestamp) -> Option<u64> {
        let in_flight = self.in_flight();
        let limit = self.tuning.as_mut()?.tick(now, in_flight)?;
        self.set_limit(now, limit);
        Some(limit)
    }

    /// Changes the limit. A lower one takes effect as those inside leave.
    pub fn set_limit(&mut self, now: Timestamp, limit: u64) {
        self.limit = within_bounds(limit);
        self.admit_waiting(now);
    }

    /// What became of somebody who waited, in the order in which it happened.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What was measured since the last time.
    pub fn take_window(&mut self, now: Timestamp) -> Window {
        Window {
            in_flight: self.in_flight_mean.take_mean(now),
            queued: self.queued_mean.take_mean(now),
            queue_wait: self.waits.take_mean(),
            service_time: self.service.mean(),
        }
    }

    /// How many may be inside.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How many are inside, those beyond the limit included.
    pub const fn in_flight(&self) -> u64 {
        self.slots.within() + self.slots.beyond()
    }

    /// How many are inside and count against the limit.
    pub const fn within(&self) -> u64 {
        self.slots.within()
    }

    /// How many wait.
    pub const fn queued(&self) -> usize {
        self.queue.len()
    }

    /// How many may wait.
    pub fn queue_max(&self) -> usize {
        let places = self.limit.saturating_mul(self.settings.queue_percent) / 100;
        usize::try_from(places).unwrap_or(SLOTS_MAX).clamp(1, SLOTS_MAX)
    }

    /// The mean service time of the last requests; zero while nobody knows.
    pub const fn service_time(&self) -> Nanos {
        self.service.mean()
    }

    /// How long requests of a category waited.
    pub const fn waits(&self, category: Category) -> Waits {
        self.waits.of(category)
    }

    /// What was counted.
    pub const fn counts(&self) -> GateCounts {
        self.counts
    }

    fn join(&mut self, now: Timestamp, category: Category, deadline: Option<Timestamp>) -> Turn {
        if self.queue.len() >= self.queue_max() {
            let lowest = self.queue.lowest().filter(|lowest| *lowest <= category);
            let evicted = lowest.and_then(|lowest| self.queue.next(lowest, Order::OldestFirst));
            let Some((ticket, _)) = evicted else { return Turn::Refuse(Cause::QueueFull) };
            self.tell(ticket, Outcome::Refuse(Cause::QueueFull));
        }
        let patience = deadline.map_or(Nanos::MAX, |at| Nanos::new(at.since(now).get() / 3));
        let until = now.after(self.settings.burst_wait_max.min(patience));
        let ticket = self.queue.join(Waiting { category, since: now, until, deadline });
        Turn::Wait { ticket, until }
    }

    /// Lets in whoever may go in now.
    fn admit_waiting(&mut self, now: Timestamp) {
        if self.queue.is_empty() {
            return self.note(now);
        }
        self.expire(now);
        while let Some((ticket, waiting)) = self.next_in_line(now) {
            if self.is_hopeless(now, waiting.deadline) {
                self.tell(ticket, Outcome::Refuse(Cause::Deadline));
                continue;
            }
            let place = Place::within(waiting.category);
            let Some(slot) = self.let_in(now, place) else { break };
            let wait = now.since(waiting.since);
            self.waits.take_in(waiting.category, wait);
            if let Some(tuning) = &mut self.tuning {
                tuning.waited(wait);
            }
            self.tell(ticket, Outcome::Enter(slot));
        }
        self.note(now);
    }

    fn next_in_line(&mut self, now: Timestamp) -> Option<(Ticket, Waiting)> {
        if self.queue.is_empty() {
            return None;
        }
        let order = if self.is_standing(now) { Order::NewestFirst } else { Order::OldestFirst };
        let mut categories = Category::ALL.into_iter().rev();
        categories.find_map(|category| {
            if self.has_room(category) { self.queue.next(category, order) } else { None }
        })
    }

    fn let_in(&mut self, now: Timestamp, place: Place) -> Option<SlotId> {
        let slot = self.slots.hold(now, place)?;
        self.counts.entered += 1;
        self.note(now);
        Some(slot)
    }

    const fn has_room(&self, category: Category) -> bool {
        let free = self.slots.within() < self.limit;
        match category {
            Category::Critical => free,
            Category::Test | Category::Get | Category::Post => {
                free && self.slots.other() < self.limit - self.reserved()
            }
        }
    }

    /// Slots that only critical requests hold; never all of them.
    const fn reserved(&self) -> u64 {
        let part = self.limit.saturating_mul(self.settings.reserved_percent) / 100;
        let part = if part == 0 && self.settings.reserved_percent > 0 { 1 } else { part };
        if part < self.limit { part } else { self.limit - 1 }
    }

    fn is_standing(&self, now: Timestamp) -> bool {
        now.since(self.empty) > self.settings.standing_after
    }

    fn wait_max(&self, now: Timestamp, category: Category) -> Nanos {
        // Critical requests go first, so theirs is no standing queue.
        if category != Category::Critical && self.is_standing(now) {
            let tenth = Nanos::new(self.service.mean().get() / 10);
            self.settings.standing_wait_max.max(tenth)
        } else {
            self.settings.burst_wait_max
        }
    }

    fn is_hopeless(&self, now: Timestamp, deadline: Option<Timestamp>) -> bool {
        deadline.is_some_and(|at| at <= now || at.since(now) < self.service.mean())
    }

    fn tell(&mut self, ticket: Ticket, outcome: Outcome) {
        self.events.push_back(Event { ticket, outcome });
    }

    /// Keeps the measurements in step with what changed.
    fn note(&mut self, now: Timestamp) {
        if self.queue.is_empty() {
            self.empty = self.empty.max(now);
        }
        let in_flight = self.in_flight();
        self.in_flight_mean.set(now, in_flight);
        if let Some(tuning) = &mut self.tuning {
            tuning.in_flight(now, in_flight);
        }
        self.queued_mean.set(now, self.queue.len() as u64);
    }
}

/// A gate of none would refuse everybody for ever, and one beyond what can be counted
/// would count wrong.
fn within_bounds(limit: u64) -> u64 {
    limit.clamp(1, SLOTS_MAX as u64)
}

#[cfg(test)]
mod tests;
