//! The gate as a state machine: arrivals, departures and ticks in, a [`Turn`] out.
//!
//! It reads no clock and never blocks, so a simulator drives it in virtual time and every
//! run can be replayed. A [`Ticket`] names a waiting request; its outcome is an [`Event`]
//! from [`GateState::next_event`], which every driver drains after each call.
//!
//! The rules and their reasons:
//! - The limit is hard and the queue is short, half the limit: a request at the end of a
//!   longer queue would be answered too late.
//! - Higher categories go first. Within a category the oldest goes first in a burst, the
//!   newest in a standing queue: when not all can be served in time, serving the oldest
//!   first serves none in time.
//! - For a minute after an overload, while the offered demand is known to fit, every queue is a
//!   burst: it may be twice as long, and requests may wait as long as in a burst, however long it
//!   takes to empty. At 0.9 of the capacity that takes seconds now and then.
//! - An arrival at a full queue displaces the oldest request of the lowest category, if that
//!   does not rank higher. So critical requests displace others from the first millisecond.
//! - Some slots are reserved for critical requests. Critical requests may always wait as
//!   long as in a burst, since they are first in the queue.
//! - A request that cannot be done before its deadline is refused.

use std::collections::VecDeque;

use tidegate_algorithms::{Nanos, Timestamp};

use super::limit_tuner::LimitTuner;
use super::measure::{ServiceTime, TimeMean, WaitTimes, Waits};
use super::queue::{Order, Queue, Ticket, Waiter};
use super::settings::GateSettings;
use super::slots::{SLOTS_MAX, SlotId, SlotKind, Slots};
use super::turn::{Completion, Event, ForcedEntry, GateCounts, Turn, Window};
use crate::category::{Category, Level};
use crate::cause::Cause;

/// Slots, queue and measurements of one gate.
#[derive(Debug)]
pub struct GateState {
    settings: GateSettings,
    limit: u64,
    slots: Slots,
    queue: Queue,
    /// When the queue was last empty.
    empty: Timestamp,
    /// Whether an overload ended a moment ago.
    recovering: bool,
    events: VecDeque<Event>,
    service: ServiceTime,
    waits: WaitTimes,
    in_flight_mean: TimeMean,
    queued_mean: TimeMean,
    tuning: Option<LimitTuner>,
    counts: GateCounts,
    /// `counts.entered` at the start of the window.
    entered_before: u64,
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
            recovering: false,
            events: VecDeque::new(),
            service: ServiceTime::default(),
            waits: WaitTimes::default(),
            in_flight_mean: TimeMean::new(now),
            queued_mean: TimeMean::new(now),
            tuning: settings.adaptive.map(|adaptive| LimitTuner::new(adaptive, limit, now)),
            counts: GateCounts::default(),
            entered_before: 0,
        }
    }

    /// Decides about a new request.
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
        // Room means that no waiting request could use it, so none is overtaken.
        if self.has_room(category) {
            return match self.let_in(now, SlotKind::within(category)) {
                Some(slot) => {
                    self.waits.record_none(category);
                    Turn::Enter(slot)
                }
                None => Turn::Refuse(Cause::QueueFull),
            };
        }
        let turn = self.join(now, category, deadline);
        self.update_means(now);
        turn
    }

    /// Admits a request that may be neither refused nor queued: within the limit if there is
    /// room, above it otherwise. Requests above the limit stand for queued ones; more of
    /// them than the queue has room for would have been refused.
    pub fn arrive_forced(&mut self, now: Timestamp, level: Level) -> ForcedEntry {
        let category = level.category();
        if self.has_room(category) {
            self.waits.record_none(category);
            return ForcedEntry {
                slot: self.let_in(now, SlotKind::within(category)),
                would_refuse: false,
            };
        }
        let would_refuse = self.slots.beyond() >= self.queue_max() as u64;
        ForcedEntry { slot: self.let_in(now, SlotKind::Beyond), would_refuse }
    }

    /// Frees a slot. False when the watchdog had reclaimed it.
    pub fn leave(&mut self, now: Timestamp, slot: SlotId, completion: Completion) -> bool {
        let Some(held) = self.slots.give_back(slot) else {
            self.counts.late += 1;
            return false;
        };
        self.counts.left += 1;
        if completion == Completion::Succeeded {
            let took = now.since(held.since);
            self.service.record(took);
            if let Some(tuning) = &mut self.tuning {
                tuning.succeeded(took);
            }
        }
        self.admit_waiting(now);
        true
    }

    /// Removes a request that stopped waiting. False when it had left the queue: then its
    /// event is out, and the caller must free a slot in it.
    pub fn give_up(&mut self, now: Timestamp, ticket: Ticket) -> bool {
        let gone = self.queue.leave(ticket).is_some();
        if gone {
            self.counts.gave_up += 1;
            self.update_means(now);
        }
        gone
    }

    /// Removes a request whose time to wait is over. `None` when it had left the queue: then
    /// its event is out.
    pub fn time_out(&mut self, now: Timestamp, ticket: Ticket) -> Option<Cause> {
        self.queue.leave(ticket)?;
        self.update_means(now);
        Some(Cause::QueueTimeout)
    }

    /// Refuses requests that have waited too long. Arrivals and departures do this too; the
    /// tick does when there are none.
    pub fn expire(&mut self, now: Timestamp) {
        for category in Category::ALL {
            let wait_max = self.wait_max(now, category);
            while let Some((ticket, waiting)) = self.queue.oldest(category) {
                if now.since(waiting.since) <= wait_max && now < waiting.until {
                    break;
                }
                self.queue.leave(ticket);
                self.report(ticket, Err(Cause::QueueTimeout));
            }
        }
        self.update_means(now);
    }

    /// Reclaims slots that were held too long, and returns how many.
    pub fn take_back(&mut self, now: Timestamp) -> u64 {
        let taken = self.slots.take_back(now, self.settings.hold_max);
        self.counts.taken_back += taken;
        if taken > 0 {
            self.admit_waiting(now);
        }
        taken
    }

    /// Moves an adaptive limit at the end of its window, and returns the new one.
    pub fn adapt(&mut self, now: Timestamp) -> Option<u64> {
        let in_flight = self.in_flight();
        let limit = self.tuning.as_mut()?.tick(now, in_flight)?;
        self.set_limit(now, limit);
        Some(limit)
    }

    /// Changes the limit. A lower one takes effect as requests finish.
    pub fn set_limit(&mut self, now: Timestamp, limit: u64) {
        self.limit = within_bounds(limit);
        self.admit_waiting(now);
    }

    /// Notes whether an overload ended a moment ago. Then a queue is a burst, however long it lasts.
    pub const fn set_recovering(&mut self, recovering: bool) {
        self.recovering = recovering;
    }

    /// The next end of a wait, in order of occurrence.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The measurements since the last call.
    pub fn take_window(&mut self, now: Timestamp) -> Window {
        let before = std::mem::replace(&mut self.entered_before, self.counts.entered);
        Window {
            in_flight: self.in_flight_mean.take_mean(now),
            queued: self.queued_mean.take_mean(now),
            entered: self.counts.entered - before,
            queue_wait: self.waits.take_mean(),
            service_time: self.service.mean(),
        }
    }

    /// The limit on requests in flight.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Requests in flight, including those above the limit.
    pub const fn in_flight(&self) -> u64 {
        self.slots.within() + self.slots.beyond()
    }

    /// Requests in flight within the limit.
    pub const fn within(&self) -> u64 {
        self.slots.within()
    }

    /// Requests in the queue.
    pub const fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The length of the queue: twice as long after an overload.
    pub fn queue_max(&self) -> usize {
        let percent = self.settings.queue_percent.saturating_mul(1 + u64::from(self.recovering));
        let length = self.limit.saturating_mul(percent) / 100;
        usize::try_from(length).unwrap_or(SLOTS_MAX).clamp(1, SLOTS_MAX)
    }

    /// The mean service time of recent requests; zero until measured.
    pub const fn service_time(&self) -> Nanos {
        self.service.mean()
    }

    /// Waiting times of a category.
    pub const fn waits(&self, category: Category) -> Waits {
        self.waits.of(category)
    }

    /// Counters since the start.
    pub const fn counts(&self) -> GateCounts {
        self.counts
    }

    fn join(&mut self, now: Timestamp, category: Category, deadline: Option<Timestamp>) -> Turn {
        if self.queue.len() >= self.queue_max() {
            let lowest = self.queue.lowest().filter(|lowest| *lowest <= category);
            let evicted = lowest.and_then(|lowest| self.queue.next(lowest, Order::OldestFirst));
            let Some((ticket, _)) = evicted else { return Turn::Refuse(Cause::QueueFull) };
            self.report(ticket, Err(Cause::QueueFull));
        }
        let patience = deadline.map_or(Nanos::MAX, |at| Nanos::new(at.since(now).get() / 3));
        let until = now.after(self.settings.burst_wait_max.min(patience));
        let ticket = self.queue.join(Waiter { category, since: now, until, deadline });
        Turn::Wait { ticket, until }
    }

    /// Admits queued requests while there is room.
    fn admit_waiting(&mut self, now: Timestamp) {
        if self.queue.is_empty() {
            return self.update_means(now);
        }
        self.expire(now);
        while let Some((ticket, waiting)) = self.next_in_line(now) {
            if self.is_hopeless(now, waiting.deadline) {
                self.report(ticket, Err(Cause::Deadline));
                continue;
            }
            let kind = SlotKind::within(waiting.category);
            let Some(slot) = self.let_in(now, kind) else { break };
            let wait = now.since(waiting.since);
            self.waits.record(waiting.category, wait);
            if let Some(tuning) = &mut self.tuning {
                tuning.waited(wait);
            }
            self.report(ticket, Ok(slot));
        }
        self.update_means(now);
    }

    fn next_in_line(&mut self, now: Timestamp) -> Option<(Ticket, Waiter)> {
        if self.queue.is_empty() {
            return None;
        }
        let order = if self.is_standing(now) { Order::NewestFirst } else { Order::OldestFirst };
        let mut categories = Category::ALL.into_iter().rev();
        categories.find_map(|category| {
            if self.has_room(category) { self.queue.next(category, order) } else { None }
        })
    }

    fn let_in(&mut self, now: Timestamp, kind: SlotKind) -> Option<SlotId> {
        let slot = self.slots.hold(now, kind)?;
        self.counts.entered += 1;
        self.update_means(now);
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

    /// Slots reserved for critical requests; never all of them.
    const fn reserved(&self) -> u64 {
        let part = self.limit.saturating_mul(self.settings.reserved_percent) / 100;
        let part = if part == 0 && self.settings.reserved_percent > 0 { 1 } else { part };
        if part < self.limit { part } else { self.limit - 1 }
    }

    fn is_standing(&self, now: Timestamp) -> bool {
        !self.recovering && now.since(self.empty) > self.settings.standing_after
    }

    fn wait_max(&self, now: Timestamp, category: Category) -> Nanos {
        // Critical requests go first, so they never form a standing queue.
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

    fn report(&mut self, ticket: Ticket, outcome: Result<SlotId, Cause>) {
        self.events.push_back(Event { ticket, outcome });
    }

    /// Updates the means over time after a change.
    fn update_means(&mut self, now: Timestamp) {
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

/// At least one, or the gate would refuse everything; at most the number of slots.
fn within_bounds(limit: u64) -> u64 {
    limit.clamp(1, SLOTS_MAX as u64)
}

#[cfg(test)]
mod tests;
