//! Tidegate: the production code of `tidegate-overload` in virtual time.
//!
//! The worker shedder's threshold comes first, then the gate, and both tick together as in a
//! process. The gate gets no deadlines, because no baseline has them.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;
use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_overload::{
    Completion, GateSettings, GateState, Signals, SlotId, Ticket, Turn, WorkerSettings,
    WorkerShedder,
};

use super::{Answer, Controls, FinishedRequest, RefusalStage, ReleasedRequests, Shield};
use crate::overload::load::{Request, slot_index};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TidegateSettings {
    pub(crate) gate: GateSettings,
    /// None for the gate alone.
    pub(crate) worker: Option<WorkerSettings>,
}

impl TidegateSettings {
    pub(crate) fn new(workers: u32) -> Self {
        let gate = GateSettings::new(u64::from(workers));
        TidegateSettings { gate, worker: Some(WorkerSettings::default()) }
    }
}

/// The production gate and worker shedder.
#[derive(Debug)]
pub(crate) struct Tidegate {
    gate: GateState,
    shedder: Option<WorkerShedder>,
    period: u64,
    tick_at: u64,
    /// The slot of each ticket's request.
    waiting: HashMap<Ticket, u32, FixedState>,
    /// When each queued request times out, in order: all may wait equally long.
    patience: VecDeque<(u64, Ticket)>,
    /// The gate's slot of each request at the server.
    inside: Vec<Option<SlotId>>,
}

impl Tidegate {
    pub(crate) fn new(settings: TidegateSettings) -> Self {
        let law = settings.worker.unwrap_or_default().law;
        Tidegate {
            gate: GateState::new(settings.gate, Timestamp::EPOCH),
            shedder: settings.worker.map(WorkerShedder::new),
            period: law.period.get(),
            tick_at: law.period.get(),
            waiting: HashMap::with_hasher(FixedState::default()),
            patience: VecDeque::new(),
            inside: Vec::new(),
        }
    }

    fn let_in(&mut self, slot: u32, held: SlotId) {
        let index = slot_index(slot);
        if self.inside.len() <= index {
            self.inside.resize(index + 1, None);
        }
        self.inside[index] = Some(held);
    }

    fn handle_events(&mut self, released: &mut ReleasedRequests) {
        while let Some(event) = self.gate.next_event() {
            let Some(slot) = self.waiting.remove(&event.ticket) else { continue };
            match event.outcome {
                Ok(held) => {
                    self.let_in(slot, held);
                    released.entered.push(slot);
                }
                Err(_) => released.refused.push((slot, RefusalStage::Gate)),
            }
        }
    }

    fn tick(&mut self, now: Timestamp) {
        self.gate.expire(now);
        self.gate.take_back(now);
        let window = self.gate.take_window(now);
        if let Some(shedder) = &self.shedder {
            let signals = Signals::of_gate(&window, self.gate.limit(), Nanos::ZERO);
            let view = shedder.tick(now, &signals, tidegate_overload::CallerMode::Enforce);
            self.gate.set_recovering(view.recovers);
        }
    }

    fn end_patience(&mut self, now: u64, released: &mut ReleasedRequests) {
        while let Some((_, ticket)) = self.patience.front().filter(|(until, _)| *until <= now) {
            let refused = self.gate.time_out(Timestamp::from_nanos(now), *ticket);
            if let Some(slot) = refused.and_then(|_| self.waiting.remove(ticket)) {
                released.refused.push((slot, RefusalStage::Gate));
            }
            self.patience.pop_front();
        }
        // Most have left the queue: removing them saves a wake-up for each.
        while let Some((_, ticket)) = self.patience.front()
            && !self.waiting.contains_key(ticket)
        {
            self.patience.pop_front();
        }
    }
}

impl Shield for Tidegate {
    fn arrive(&mut self, now: u64, request: &Request, released: &mut ReleasedRequests) -> Answer {
        let level = request.level;
        if let Some(shedder) = &self.shedder {
            let sequence = shedder.offer(level);
            if !shedder.judge(level, sequence) {
                return Answer::Refuse(RefusalStage::Threshold);
            }
        }
        let answer = match self.gate.arrive(Timestamp::from_nanos(now), level, None) {
            Turn::Enter(held) => {
                self.let_in(request.slot, held);
                Answer::Enter
            }
            Turn::Wait { ticket, until } => {
                self.waiting.insert(ticket, request.slot);
                self.patience.push_back((until.as_nanos(), ticket));
                Answer::Wait
            }
            Turn::Refuse(_) => Answer::Refuse(RefusalStage::Gate),
        };
        self.handle_events(released);
        answer
    }

    fn finished(&mut self, now: u64, done: &FinishedRequest, released: &mut ReleasedRequests) {
        let held = self.inside.get_mut(slot_index(done.slot)).and_then(Option::take);
        if let Some(held) = held {
            // The server does not know which clients have timed out.
            self.gate.leave(Timestamp::from_nanos(now), held, Completion::Succeeded);
        }
        self.handle_events(released);
    }

    fn wake_at(&self) -> u64 {
        let patience = self.patience.front().map_or(u64::MAX, |(until, _)| *until);
        self.tick_at.min(patience)
    }

    fn wake(&mut self, now: u64, released: &mut ReleasedRequests) {
        self.end_patience(now, released);
        if now >= self.tick_at {
            self.tick(Timestamp::from_nanos(now));
            self.tick_at = now + self.period;
        }
        self.handle_events(released);
    }

    fn controls(&self) -> Controls {
        let level = self.shedder.as_ref().map_or(1.0, |shedder| shedder.view().admitted);
        Controls { level, limit: self.gate.limit() as f64 }
    }
}
