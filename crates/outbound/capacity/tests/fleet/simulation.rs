//! Many members of one target in virtual time, with lost messages, frozen and killed members, and a store that fails or
//! forgets. Every send of every member is recorded.

#![allow(dead_code, reason = "the tests and the figures use different parts")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_algorithms::{Nanos, Timestamp};
use tidegate_capacity::{
    BeatSchedule, BrakeReport, CapacityDocument, Cost, Departure, Dimension, DocumentReading,
    LeaseHolder, MemberTerms, NewTarget, Pace, PreparedHeartbeat, StoreLost, TargetLimit,
    TargetLimits, TargetPacer, UsableShare,
};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MILLI: u64 = 1_000_000;

/// A small generator, so that a run is the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// What happens in a run besides the members' work.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Percent of messages to or from the store that are lost.
    pub(crate) lost: u64,
    /// Percent of seconds in which some member is frozen for up to thirty seconds.
    pub(crate) frozen: u64,
    /// Percent of seconds in which some member is killed and another one joins.
    pub(crate) killed: u64,
    /// Percent of seconds in which the store is unreachable for up to twenty seconds.
    pub(crate) outages: u64,
    /// Percent of seconds in which the store forgets everything.
    pub(crate) wiped: u64,
    /// Percent of seconds in which members change what they want.
    pub(crate) changes: u64,
    /// Percent of seconds in which an operator changes the limit.
    pub(crate) limit_changes: u64,
}

/// A mistake that is put in on purpose, to show that the checks find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Members count their lease from five seconds too late.
    LongLease,
    /// Members send on after the end of their lease, until the store answers.
    IgnoredEnd,
    /// The store replaces documents that changed since they were read.
    BlindWrites,
    /// A store that forgot everything gives slots at once.
    NoSettling,
    /// A member that was frozen or idle catches up on five seconds.
    Credit,
}

impl Defect {
    pub(crate) const ALL: [Defect; 5] = [
        Defect::LongLease,
        Defect::IgnoredEnd,
        Defect::BlindWrites,
        Defect::NoSettling,
        Defect::Credit,
    ];
}

pub(crate) struct Scene {
    pub(crate) limit: u64,
    pub(crate) slots: u16,
    pub(crate) members: usize,
    pub(crate) cost_max: u64,
    pub(crate) store_clock: bool,
    pub(crate) seconds: u64,
    pub(crate) store_lost: StoreLost,
    pub(crate) reserve: u16,
    /// An amount over a window of this many seconds, if there is a quota.
    pub(crate) quota: Option<(u64, u64)>,
    pub(crate) faults: Faults,
    pub(crate) defect: Option<Defect>,
}

enum Event {
    Beat(usize),
    /// Another member's write came first.
    Repeat(usize),
    Read(usize, Timestamp),
    Prepare(usize, Timestamp, Option<(Vec<u8>, u64)>, u64),
    Write(usize, PreparedHeartbeat, Option<u64>),
    Confirm(usize, PreparedHeartbeat),
    Send(usize),
    Second,
}

impl Scene {
    /// The limits of the scene, with this much in a second.
    fn limits(&self, amount: u64) -> TargetLimits {
        let mut limits = vec![TargetLimit::per_second(Dimension::Units, amount)];
        limits.extend(self.quota.map(|(amount, seconds)| TargetLimit {
            dimension: Dimension::Units,
            amount,
            window_ms: seconds * 1_000,
        }));
        TargetLimits::with_slots(limits, self.slots).unwrap()
    }
}

pub(crate) struct Member {
    pub(crate) holder: LeaseHolder,
    pub(crate) pacer: TargetPacer,
    pub(crate) limits: TargetLimits,
    pub(crate) schedule: BeatSchedule,
    /// The races that its present heartbeat lost.
    pub(crate) races: u64,
    /// Its clock differs from the true time by this much.
    pub(crate) offset: u64,
    pub(crate) frozen_until: u64,
    pub(crate) alive: bool,
    pub(crate) beating: bool,
    pub(crate) sending: bool,
    pub(crate) wants: u16,
    pub(crate) next_cost: u64,
    /// Whether no chunk of the quota pays for the next record.
    pub(crate) missing: bool,
}

pub(crate) struct Fleet {
    pub(crate) scene: Scene,
    pub(crate) random: Random,
    pub(crate) limits: TargetLimits,
    pub(crate) now: u64,
    pub(crate) order: u64,
    pub(crate) queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    pub(crate) store: Option<(Vec<u8>, u64)>,
    pub(crate) version: u64,
    pub(crate) incarnations: u64,
    pub(crate) unreachable_until: u64,
    pub(crate) members: Vec<Member>,
    pub(crate) sent: Vec<(u64, u64)>,
    pub(crate) granted_ms: u64,
    /// The limits that the document had, and since when.
    pub(crate) limits_known: Vec<(u64, u64)>,
    pub(crate) figures: StoreFigures,
    /// Instants at which a slot had two members that could use it.
    pub(crate) violations: Vec<String>,
}

/// What members asked of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreFigures {
    /// Heartbeats that members began.
    pub(crate) heartbeats: u64,
    /// Writes that reached the store.
    pub(crate) writes: u64,
    /// Writes that another member's write came before.
    pub(crate) conflicts: u64,
}

impl Fleet {
    pub(crate) fn new(scene: Scene, seed: u64) -> Self {
        let limits = scene.limits(scene.limit);
        let mut fleet = Fleet {
            random: Random(seed),
            limits,
            now: 100 * SECOND,
            order: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            store: None,
            version: 0,
            incarnations: 0,
            unreachable_until: 0,
            members: Vec::new(),
            sent: Vec::new(),
            granted_ms: 0,
            limits_known: vec![(0, scene.limit)],
            figures: StoreFigures::default(),
            violations: Vec::new(),
            scene,
        };
        for _ in 0..fleet.scene.members {
            fleet.join();
        }
        fleet.after(SECOND, Event::Second);
        fleet
    }

    pub(crate) fn join(&mut self) {
        let index = self.members.len();
        let (store_lost, reserve) = (self.scene.store_lost, self.scene.reserve);
        let named = MemberTerms::named(format!("member-{index}"));
        let mut holder = LeaseHolder::new(MemberTerms { store_lost, reserve, ..named });
        holder.set_wants(self.scene.slots);
        let next_cost = 1 + self.random.below(self.scene.cost_max);
        let (offset, start) = (self.random.below(1_000 * SECOND), self.random.below(SECOND));
        let starts_at = Timestamp::from_nanos(self.now + offset + start);
        self.members.push(Member {
            schedule: BeatSchedule::new(starts_at),
            races: 0,
            holder,
            pacer: TargetPacer::new(&self.limits),
            limits: self.limits.clone(),
            offset,
            frozen_until: 0,
            alive: true,
            beating: false,
            sending: false,
            wants: self.scene.slots,
            next_cost,
            missing: false,
        });
        self.after(start, Event::Beat(index));
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((self.now + delay, self.order)));
        self.events.insert(self.order, event);
    }

    /// The member's own clock.
    pub(crate) fn clock(&self, member: usize) -> Timestamp {
        Timestamp::from_nanos(self.now + self.members[member].offset)
    }

    fn travel(&mut self) -> u64 {
        MILLI + self.random.below(10 * MILLI)
    }

    /// Whether a message to or from the store arrives.
    fn arrives(&mut self) -> bool {
        self.now >= self.unreachable_until && !self.random.percent(self.scene.faults.lost)
    }

    /// Runs for the seconds of the scene.
    pub(crate) fn run(&mut self) {
        self.run_for(self.scene.seconds * SECOND);
    }

    /// Runs for this many nanoseconds.
    pub(crate) fn run_for(&mut self, span: u64) {
        let end = self.now + span;
        while let Some(&Reverse((at, order))) = self.queue.peek() {
            if at > end {
                break;
            }
            self.queue.pop();
            self.now = at;
            let event = self.events.remove(&order).unwrap();
            self.handle(event);
        }
        self.now = end;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Beat(member)
            | Event::Repeat(member)
            | Event::Prepare(member, ..)
            | Event::Confirm(member, _)
            | Event::Send(member)
                if !self.members[member].alive =>
            {
                drop(event);
            }
            Event::Beat(member)
            | Event::Repeat(member)
            | Event::Prepare(member, ..)
            | Event::Confirm(member, _)
            | Event::Send(member)
                if self.now < self.members[member].frozen_until =>
            {
                let delay = self.members[member].frozen_until - self.now;
                self.after(delay, event);
            }
            Event::Beat(member) => {
                if self.members[member].beating {
                    // The last heartbeat was not confirmed.
                    let now = self.clock(member);
                    self.members[member].holder.fail(now);
                    self.send_soon(member);
                }
                self.members[member].beating = true;
                self.figures.heartbeats += 1;
                self.plan_next_beat(member);
                self.begin_beat(member);
            }
            Event::Repeat(member) => self.begin_beat(member),
            Event::Read(member, read_at) => {
                let store_time = if self.scene.store_clock { self.now / MILLI } else { 0 };
                let reading = self.store.clone();
                if self.arrives() {
                    let delay = self.travel();
                    self.after(delay, Event::Prepare(member, read_at, reading, store_time));
                }
            }
            Event::Prepare(member, read_at, reading, store_time) => {
                self.prepare(member, read_at, reading, store_time)
            }
            Event::Write(member, prepared, expected) => {
                if !self.arrives() {
                    return;
                }
                self.figures.writes += 1;
                let changed = self.store.as_ref().map(|(_, version)| *version) != expected;
                if changed && !self.has(Defect::BlindWrites) {
                    self.figures.conflicts += 1;
                    self.members[member].races += 1;
                    if self.members[member].races < 8 && self.arrives() {
                        let delay = self.travel() + self.random.below(10 * MILLI);
                        self.after(delay, Event::Repeat(member));
                    }
                    return;
                }
                self.version += 1;
                self.store = Some((prepared.document.encode().unwrap(), self.version));
                self.note_limit(prepared.document.limits());
                if self.arrives() {
                    let delay = self.travel();
                    self.after(delay, Event::Confirm(member, prepared));
                }
            }
            Event::Confirm(member, prepared) => {
                let now = self.clock(member);
                self.members[member].holder.confirm(prepared, now);
                self.members[member].beating = false;
                self.follow_limits(member);
                self.update_pace(member);
                self.send_soon(member);
            }
            Event::Send(member) => self.send(member),
            Event::Second => self.second(),
        }
    }

    /// The next heartbeat, whether or not this one succeeds.
    fn plan_next_beat(&mut self, member: usize) {
        let (now, random) = (self.clock(member), self.random.next());
        let state = &mut self.members[member];
        let (period, lost) = (state.holder.period(), state.races > 0);
        state.races = 0;
        let next = state.schedule.next(now, period, lost, random);
        self.after(next.since(now).get(), Event::Beat(member));
    }

    fn begin_beat(&mut self, member: usize) {
        let read_at = self.clock(member);
        let delay = self.travel();
        self.after(delay, Event::Read(member, read_at));
    }

    fn prepare(
        &mut self,
        member: usize,
        read_at: Timestamp,
        reading: Option<(Vec<u8>, u64)>,
        store_time: u64,
    ) {
        let expected = reading.as_ref().map(|(_, version)| *version);
        let document = reading.map(|(bytes, _)| CapacityDocument::decode(&bytes).unwrap());
        self.incarnations += 1;
        let fallback = NewTarget {
            limits: self.limits.clone(),
            pools: Vec::new(),
            incarnation: self.incarnations,
            epoch: self.now / SECOND,
            may_have_holders: !self.has(Defect::NoSettling),
        };
        let now = self.clock(member);
        let late = if self.has(Defect::LongLease) { 5 * SECOND } else { 0 };
        let read_at = read_at.after(Nanos::new(late));
        let state = &mut self.members[member];
        // Slots are given back only when their use has passed.
        let wants = if state.pacer.is_idle(now) { state.wants } else { state.wants.max(1) };
        state.holder.set_wants(wants);
        let next = if state.missing { state.next_cost } else { 0 };
        state.holder.set_quota_demand(Cost::units(10_000), Cost::units(next), now);
        let reading =
            DocumentReading { document, store_time_ms: (store_time > 0).then_some(store_time) };
        let prepared =
            state.holder.prepare(reading, &fallback, BrakeReport::NONE, read_at, now).unwrap();
        self.update_pace(member);
        let delay = self.travel();
        self.after(delay, Event::Write(member, prepared, expected));
    }

    fn has(&self, defect: Defect) -> bool {
        self.scene.defect == Some(defect)
    }

    /// What a member may use now.
    fn usable(&self, member: usize) -> UsableShare {
        let holder = &self.members[member].holder;
        let usable = holder.usable(self.clock(member));
        match holder.grant() {
            Some(grant) if self.has(Defect::IgnoredEnd) => {
                let slots = u16::try_from(grant.slots.len()).unwrap();
                UsableShare { slots, ends: Timestamp::MAX, ..usable }
            }
            _ => usable,
        }
    }

    fn pace(&self, member: usize) -> Pace {
        let slots = self.usable(member).slots;
        Pace { slots, level_ppm: Pace::UTILISATION_DEFAULT }
    }

    fn update_pace(&mut self, member: usize) {
        let (now, pace) = (self.clock(member), self.pace(member));
        self.members[member].pacer.set_pace(pace, now);
    }

    fn follow_limits(&mut self, member: usize) {
        let (now, pace) = (self.clock(member), self.pace(member));
        let state = &mut self.members[member];
        let limits = state.holder.grant().unwrap().limits.clone();
        if limits != state.limits {
            state.pacer.set_limits(&limits, pace, now);
            state.limits = limits;
        }
    }

    /// Remembers the limit of the document that was stored.
    fn note_limit(&mut self, limits: &TargetLimits) {
        let limit = limits.limits()[0].amount;
        if self.limits_known.last().is_none_or(|(_, known)| *known != limit) {
            self.limits_known.push((self.now, limit));
        }
    }

    pub(crate) fn change_limit(&mut self) {
        let Some((bytes, version)) = &self.store else { return };
        let mut document = CapacityDocument::decode(bytes).unwrap();
        let amount = self.scene.limit / 4 + self.random.below(2 * self.scene.limit);
        document.set_limits(self.scene.limits(amount)).unwrap();
        self.version = self.version.max(*version) + 1;
        self.store = Some((document.encode().unwrap(), self.version));
        self.note_limit(document.limits());
    }

    /// The highest limit that members may know within a window that ends at `at`.
    fn highest_limit(&self, at: u64) -> u64 {
        let from = at.saturating_sub(SECOND + 15 * SECOND);
        let later = self.limits_known.iter().skip(1).map(|(since, _)| *since).chain([u64::MAX]);
        let known = self.limits_known.iter().zip(later);
        let in_force = known.filter(|((since, _), until)| *since <= at && *until >= from);
        in_force.map(|((_, limit), _)| *limit).max().unwrap()
    }

    fn send_soon(&mut self, member: usize) {
        if !self.members[member].sending {
            self.members[member].sending = true;
            self.after(0, Event::Send(member));
        }
    }

    fn send(&mut self, member: usize) {
        self.update_pace(member);
        let now = self.clock(member);
        let ends = self.usable(member).ends;
        let credit = if self.has(Defect::Credit) { 5 * SECOND } else { 0 };
        let state = &mut self.members[member];
        state.sending = false;
        if state.wants == 0 {
            return;
        }
        let cost = Cost::units(state.next_cost);
        let Departure::At(at) = state.pacer.earliest(cost, now, ends) else {
            return;
        };
        if at > now {
            state.sending = true;
            let late = self.random.below(2 * MILLI);
            let delay = at.since(now).get() + late;
            self.after(delay, Event::Send(member));
            return;
        }
        state.missing = !state.holder.covers(cost, now);
        if state.missing {
            // The next heartbeat asks for a chunk.
            return;
        }
        state.holder.spend(cost, now);
        state.pacer.depart(cost, Timestamp::from_nanos(now.as_nanos().saturating_sub(credit)));
        self.sent.push((self.now, state.next_cost));
        let next_cost = 1 + self.random.below(self.scene.cost_max);
        self.members[member].next_cost = next_cost;
        self.send_soon(member);
    }

    fn second(&mut self) {
        self.check_owners();
        let faults = self.scene.faults;
        let member = usize::try_from(self.random.below(self.members.len() as u64)).unwrap();
        if self.random.percent(faults.frozen) {
            self.members[member].frozen_until = self.now + self.random.below(30 * SECOND);
        }
        if self.random.percent(faults.killed) {
            self.members[member].alive = false;
            self.join();
        }
        if self.random.percent(faults.outages) {
            self.unreachable_until = self.now + self.random.below(20 * SECOND);
        }
        if self.random.percent(faults.wiped) {
            self.store = None;
        }
        if self.random.percent(faults.limit_changes) {
            self.change_limit();
        }
        if self.random.percent(faults.changes) {
            let wants = if self.random.percent(30) {
                0
            } else {
                self.random.below(u64::from(self.scene.slots)) + 1
            };
            self.members[member].wants = u16::try_from(wants).unwrap();
            self.send_soon(member);
        }
        self.after(SECOND, Event::Second);
    }

    /// The slots that a member may use now.
    pub(crate) fn slots_of(&self, member: usize) -> usize {
        self.members[member].holder.slots(self.clock(member)).len()
    }

    /// No slot has two members that may use it.
    fn check_owners(&mut self) {
        let mut owners = vec![None; usize::from(self.scene.slots)];
        let mut held = 0;
        for (index, member) in self.members.iter().enumerate() {
            let now = Timestamp::from_nanos(self.now + member.offset);
            for lease in member.holder.slots(now) {
                held += 1;
                let owner = &mut owners[usize::from(lease.slot)];
                if owner.is_some() {
                    let text = format!("slot {} is used by two members at {now:?}", lease.slot);
                    self.violations.push(text);
                }
                *owner = Some(index);
            }
        }
        self.granted_ms += held * 1_000 / u64::from(self.scene.slots);
    }

    /// Checks every slot, and every window of a second against the highest limit that members may know.
    pub(crate) fn check_windows(&self, seed: u64) {
        let found = self.violations.first().cloned().or_else(|| self.crowded_window());
        assert_eq!(found, None, "seed {seed}");
    }

    /// Whether a promise was broken.
    pub(crate) fn is_broken(&self) -> bool {
        !self.violations.is_empty() || self.crowded_window().is_some()
    }

    /// The first second that holds more than the limit.
    fn crowded_window(&self) -> Option<String> {
        let (mut first, mut inside) = (0, 0);
        for (at, cost) in &self.sent {
            inside += cost;
            while self.sent[first].0 + SECOND <= *at {
                inside -= self.sent[first].1;
                first += 1;
            }
            let limit = self.highest_limit(*at);
            if inside > limit {
                return Some(format!("{inside} in a second, limit {limit}, at {at}"));
            }
        }
        None
    }

    /// Checks every window of the quota.
    pub(crate) fn check_quota(&self, seed: u64) {
        let Some((amount, seconds)) = self.scene.quota else { return };
        let (mut first, mut inside) = (0, 0);
        for (at, cost) in &self.sent {
            inside += cost;
            while self.sent[first].0 + seconds * SECOND <= *at {
                inside -= self.sent[first].1;
                first += 1;
            }
            assert!(inside <= amount, "seed {seed}: {inside} of {amount} at {at}");
        }
    }

    pub(crate) fn units_between(&self, from: u64, until: u64) -> u64 {
        let within = self.sent.iter().filter(|(at, _)| (from..until).contains(at));
        within.map(|(_, cost)| cost).sum()
    }

    pub(crate) fn units_sent(&self) -> u64 {
        self.sent.iter().map(|(_, cost)| cost).sum()
    }
}

/// Four members that want everything, on a target of 500 a second in 20 slots, for two minutes.
pub(crate) fn scene() -> Scene {
    Scene {
        limit: 500,
        slots: 20,
        members: 4,
        cost_max: 1,
        store_clock: true,
        seconds: 120,
        store_lost: StoreLost::Stop,
        reserve: 0,
        quota: None,
        faults: Faults::default(),
        defect: None,
    }
}
