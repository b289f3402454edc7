//! One scenario with one shield and one seed: a discrete-event simulation.
//!
//! Arrivals, service times, clients and the shield draw from separate random streams, so all
//! shields get the same arrivals. Events of the same instant happen in a fixed order, and nothing
//! reads a real clock.

use super::clients::{Clients, TIMEOUT};
use super::draw::whole;
use super::load::{Arrivals, Levels, Request, TENANTS, slot_index};
use super::record::Record;
use super::scenario::{Phase, Script};
use super::server::Server;
use super::shield::{Answer, FinishedRequest, RefusalStage, ReleasedRequests, Shield};
use crate::chance::Chance;
use crate::time::SECOND;
use tidegate_overload::Category;

/// The cost of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCost {
    /// The cost of the stage that refuses. The default.
    ByStage,
    /// The cost of this stage, whichever refuses.
    As(RefusalStage),
}

impl RefusalCost {
    /// All costs.
    pub const ALL: [RefusalCost; 4] = [
        RefusalCost::ByStage,
        RefusalCost::As(RefusalStage::Threshold),
        RefusalCost::As(RefusalStage::Gate),
        RefusalCost::As(RefusalStage::Handler),
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            RefusalCost::ByStage => "by-place",
            RefusalCost::As(RefusalStage::Socket) => "socket",
            RefusalCost::As(RefusalStage::Threshold) => "threshold",
            RefusalCost::As(RefusalStage::Gate) => "gate",
            RefusalCost::As(RefusalStage::Handler) => "handler",
        }
    }
}

/// A request at the server, or queued at the shield.
#[derive(Clone, Copy, Debug)]
struct RequestRecord {
    request: Request,
    entered: u64,
    inside: u32,
    /// Whether its client has timed out and may have retried.
    silent: bool,
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct Episode<'a, S> {
    script: &'a Script,
    shield: S,
    server: Server,
    arrivals: Arrivals,
    clients: Clients,
    levels: Levels,
    service: Chance,
    tenant_limits: Option<TenantLimits>,
    cost: RefusalCost,
    record: Record,
    held: Vec<Option<RequestRecord>>,
    free: Vec<u32>,
    released: ReleasedRequests,
    sequence: u64,
    slowdown: f64,
    phase: usize,
    phase_end: u64,
    second_end: u64,
}

impl<'a, S: Shield> Episode<'a, S> {
    pub(crate) fn new(
        script: &'a Script,
        shield: S,
        levels: Levels,
        cost: RefusalCost,
        seed: u64,
    ) -> Self {
        let mut seeds = Chance::new(seed);
        let rate = script.tenant_rate.map(|rate| rate * script.capacity());
        Episode {
            script,
            shield,
            server: Server::new(script.discipline, script.workers, script.service.mean()),
            arrivals: Arrivals::new(seeds.next(), script.noisy_share),
            clients: Clients::new(script.behaviour, seeds.next()),
            levels,
            service: Chance::new(seeds.next()),
            tenant_limits: rate.map(TenantLimits::new),
            cost,
            record: Record::new(),
            held: Vec::new(),
            free: Vec::new(),
            released: ReleasedRequests::default(),
            sequence: 0,
            slowdown: 1.0,
            phase: 0,
            phase_end: 0,
            second_end: SECOND,
        }
    }

    pub(crate) fn run(mut self) -> Record {
        let Some(first) = self.script.phases.first().copied() else { return self.record };
        self.enter_phase(0, &first);
        loop {
            let fixed = self.phase_end.min(self.second_end);
            let done = self.server.next_at();
            let wake = self.shield.wake_at();
            let client = self.clients.next_at();
            let now = fixed.min(done).min(wake).min(client).min(self.arrivals.next_at());
            if now == fixed {
                if !self.pass_mark(now) {
                    return self.record;
                }
            } else if now == done {
                self.finish(now);
            } else if now == wake {
                self.shield.wake(now, &mut self.released);
                self.settle(now);
            } else if now == client {
                self.client(now);
            } else {
                let (category, tenant) = self.arrivals.take();
                self.clients.add_to_budget();
                self.arrive(now, category, tenant, 1, 1);
            }
        }
    }

    /// Ends a second or a phase. False at the end of the script.
    fn pass_mark(&mut self, now: u64) -> bool {
        if now == self.second_end {
            let second = self.record.seconds.len() + 1;
            self.record.next_second(self.shield.controls(), self.script.steady.contains(&second));
            self.second_end += SECOND;
        }
        if now < self.phase_end {
            return true;
        }
        self.phase += 1;
        let Some(phase) = self.script.phases.get(self.phase).copied() else { return false };
        self.enter_phase(now, &phase);
        true
    }

    fn enter_phase(&mut self, now: u64, phase: &Phase) {
        let capacity = self.script.capacity();
        self.arrivals.set_rates(now, &phase.load.map(|load| load * capacity));
        self.server.set_workers(now, phase.workers);
        self.slowdown = phase.slowdown;
        self.phase_end = now + phase.seconds * SECOND;
    }

    fn arrive(&mut self, now: u64, category: Category, tenant: u16, attempt: u8, call: u8) {
        self.sequence += 1;
        let request = Request {
            slot: self.free.last().copied().unwrap_or_else(|| slot_after(&self.held)),
            sequence: self.sequence,
            category,
            tenant,
            level: self.levels.of(category, tenant),
            arrived: now,
            deadline: now + TIMEOUT,
            attempt,
            call,
        };
        self.record.offered(&request);
        if let Some(limits) = &mut self.tenant_limits
            && !limits.admits(now, tenant)
        {
            return self.refuse(now, &request, RefusalStage::Gate);
        }
        match self.shield.arrive(now, &request, &mut self.released) {
            Answer::Enter => {
                self.hold(request);
                self.enter(now, request.slot);
            }
            Answer::Wait => self.hold(request),
            Answer::Refuse(stage) => self.refuse(now, &request, stage),
        }
        self.settle(now);
    }

    fn hold(&mut self, request: Request) {
        self.free.pop();
        let held = RequestRecord { request, entered: 0, inside: 0, silent: false };
        let index = slot_index(request.slot);
        if index == self.held.len() {
            self.held.push(Some(held));
        } else if let Some(slot) = self.held.get_mut(index) {
            *slot = Some(held);
        }
        self.clients.watch_timeout(&request);
    }

    fn enter(&mut self, now: u64, slot: u32) {
        let inside = u32::try_from(self.server.inside() + 1).unwrap_or(u32::MAX);
        let Some(held) = look_up(&mut self.held, slot) else { return };
        held.entered = now;
        held.inside = inside;
        self.record.admitted(&held.request);
        let work = self.script.service.draw(&mut self.service) as f64 * self.slowdown;
        self.server.take(now, slot, whole(work));
    }

    fn let_go(&mut self, slot: u32) -> Option<RequestRecord> {
        let held = self.held.get_mut(slot_index(slot))?.take()?;
        self.free.push(slot);
        Some(held)
    }

    fn refuse(&mut self, now: u64, request: &Request, stage: RefusalStage) {
        let share = match self.cost {
            RefusalCost::ByStage => stage.cost(),
            // The operating system refuses at no cost to the program.
            RefusalCost::As(_) if stage == RefusalStage::Socket => 0.0,
            RefusalCost::As(stage) => stage.cost(),
        };
        let work = share * self.script.service.mean() as f64;
        self.server.burden(work);
        self.record.refused(request, work);
        self.clients.plan_retry(now, request);
    }

    fn finish(&mut self, now: u64) {
        let Some(held) = self.server.finish(now).and_then(|slot| self.let_go(slot)) else { return };
        let request = held.request;
        let listening = !held.silent && now <= request.deadline;
        self.record.answered(&request, now, listening);
        if listening && self.clients.served(now, &request) {
            self.record.task_done();
        }
        let took = now.saturating_sub(held.entered);
        let late = now > request.deadline;
        let done = FinishedRequest {
            slot: request.slot,
            category: request.category,
            took,
            inside: held.inside,
            late,
        };
        self.shield.finished(now, &done, &mut self.released);
        self.settle(now);
    }

    fn client(&mut self, now: u64) {
        if let Some((slot, sequence)) = self.clients.take_timed_out(now) {
            let held =
                look_up(&mut self.held, slot).filter(|held| held.request.sequence == sequence);
            if let Some(held) = held {
                held.silent = true;
                let request = held.request;
                self.clients.plan_retry(now, &request);
            }
        } else if let Some(planned) = self.clients.take_planned(now) {
            let category = planned.category();
            self.arrive(now, category, planned.tenant, planned.attempt, planned.call);
        }
    }

    /// Carries out what the shield decided about queued requests.
    #[inline]
    fn settle(&mut self, now: u64) {
        if !self.released.entered.is_empty() || !self.released.refused.is_empty() {
            self.do_released(now);
        }
    }

    fn do_released(&mut self, now: u64) {
        let mut released = std::mem::take(&mut self.released);
        for slot in released.entered.drain(..) {
            self.enter(now, slot);
        }
        for (slot, stage) in released.refused.drain(..) {
            let Some(held) = self.let_go(slot) else { continue };
            if held.silent {
                // Its client has retried already.
                self.record.refused(&held.request, 0.0);
            } else {
                self.refuse(now, &held.request, stage);
            }
        }
        // Put back to reuse its allocation.
        self.released = released;
    }
}

fn slot_after(held: &[Option<RequestRecord>]) -> u32 {
    u32::try_from(held.len()).unwrap_or(u32::MAX)
}

fn look_up(held: &mut [Option<RequestRecord>], slot: u32) -> Option<&mut RequestRecord> {
    held.get_mut(slot_index(slot))?.as_mut()
}

/// A token bucket for each tenant: the request rate limiter in its smallest form.
#[derive(Clone, Debug)]
struct TenantLimits {
    rate: f64,
    tokens: Vec<(f64, u64)>,
}

impl TenantLimits {
    fn new(rate: f64) -> Self {
        TenantLimits { rate, tokens: vec![(rate, 0); TENANTS] }
    }

    fn admits(&mut self, now: u64, tenant: u16) -> bool {
        let Some((tokens, at)) = self.tokens.get_mut(usize::from(tenant)) else { return true };
        let passed = now.saturating_sub(*at) as f64 / SECOND as f64;
        *tokens = (*tokens + passed * self.rate).min(self.rate);
        *at = now;
        let admits = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(admits));
        admits
    }
}
