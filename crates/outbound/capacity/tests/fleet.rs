//! Many members of one target in virtual time, with lost messages, frozen and killed members, and a store that fails or
//! forgets. Every send of every member is recorded; no window may hold more than the limit.

#![allow(clippy::unwrap_used, reason = "a test cannot continue without these values")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_algorithms::Timestamp;
use tidegate_capacity::{
    BrakeReport, CapacityDocument, Cost, Departure, Dimension, DocumentReading, LeaseHolder,
    MemberTerms, NewTarget, Pace, PreparedHeartbeat, TargetLimit, TargetLimits, TargetPacer,
};

const SECOND: u64 = 1_000_000_000;
const MILLI: u64 = 1_000_000;

/// A small generator, so that a run is the same for the same seed.
struct Random(u64);

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
struct Faults {
    /// Percent of messages to or from the store that are lost.
    lost: u64,
    /// Percent of seconds in which some member is frozen for up to thirty seconds.
    frozen: u64,
    /// Percent of seconds in which some member is killed and another one joins.
    killed: u64,
    /// Percent of seconds in which the store is unreachable for up to twenty seconds.
    outages: u64,
    /// Percent of seconds in which the store forgets everything.
    wiped: u64,
    /// Percent of seconds in which members change what they want.
    changes: u64,
}

struct Scene {
    limit: u64,
    slots: u16,
    members: usize,
    cost_max: u64,
    store_clock: bool,
    seconds: u64,
    faults: Faults,
}

enum Event {
    Beat(usize),
    Read(usize, Timestamp),
    Prepare(usize, Timestamp, Option<(Vec<u8>, u64)>, u64),
    Write(usize, PreparedHeartbeat, Option<u64>),
    Confirm(usize, PreparedHeartbeat),
    Send(usize),
    Second,
}

struct Member {
    holder: LeaseHolder,
    pacer: TargetPacer,
    /// Its clock differs from the true time by this much.
    offset: u64,
    frozen_until: u64,
    alive: bool,
    beating: bool,
    sending: bool,
    wants: u16,
    next_cost: u64,
}

struct Fleet {
    scene: Scene,
    random: Random,
    limits: TargetLimits,
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    store: Option<(Vec<u8>, u64)>,
    version: u64,
    incarnations: u64,
    unreachable_until: u64,
    members: Vec<Member>,
    sent: Vec<(u64, u64)>,
    granted_ms: u64,
}

impl Fleet {
    fn new(scene: Scene, seed: u64) -> Self {
        let limit = TargetLimit::per_second(Dimension::Units, scene.limit);
        let limits = TargetLimits::with_slots(vec![limit], scene.slots).unwrap();
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
            scene,
        };
        for _ in 0..fleet.scene.members {
            fleet.join();
        }
        fleet.after(SECOND, Event::Second);
        fleet
    }

    fn join(&mut self) {
        let index = self.members.len();
        let mut holder = LeaseHolder::new(MemberTerms::named(format!("member-{index}")));
        holder.set_wants(self.scene.slots);
        let next_cost = 1 + self.random.below(self.scene.cost_max);
        self.members.push(Member {
            holder,
            pacer: TargetPacer::new(&self.limits),
            offset: self.random.below(1_000 * SECOND),
            frozen_until: 0,
            alive: true,
            beating: false,
            sending: false,
            wants: self.scene.slots,
            next_cost,
        });
        let start = self.random.below(SECOND);
        self.after(start, Event::Beat(index));
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((self.now + delay, self.order)));
        self.events.insert(self.order, event);
    }

    /// The member's own clock.
    fn clock(&self, member: usize) -> Timestamp {
        Timestamp::from_nanos(self.now + self.members[member].offset)
    }

    fn travel(&mut self) -> u64 {
        MILLI + self.random.below(10 * MILLI)
    }

    /// Whether a message to or from the store arrives.
    fn arrives(&mut self) -> bool {
        self.now >= self.unreachable_until && !self.random.percent(self.scene.faults.lost)
    }

    fn run(&mut self) {
        let end = self.now + self.scene.seconds * SECOND;
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
            | Event::Prepare(member, ..)
            | Event::Confirm(member, _)
            | Event::Send(member)
                if !self.members[member].alive =>
            {
                drop(event);
            }
            Event::Beat(member)
            | Event::Prepare(member, ..)
            | Event::Confirm(member, _)
            | Event::Send(member)
                if self.now < self.members[member].frozen_until =>
            {
                let delay = self.members[member].frozen_until - self.now;
                self.after(delay, event);
            }
            Event::Beat(member) => {
                let read_at = self.clock(member);
                self.members[member].beating = true;
                self.retry_later(member);
                let delay = self.travel();
                self.after(delay, Event::Read(member, read_at));
            }
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
                if !self.arrives() || self.store.as_ref().map(|(_, version)| *version) != expected {
                    return;
                }
                self.version += 1;
                self.store = Some((prepared.document.encode().unwrap(), self.version));
                if self.arrives() {
                    let delay = self.travel();
                    self.after(delay, Event::Confirm(member, prepared));
                }
            }
            Event::Confirm(member, prepared) => {
                let now = self.clock(member);
                self.members[member].holder.confirm(prepared, now);
                self.members[member].beating = false;
                self.update_pace(member);
                self.send_soon(member);
            }
            Event::Send(member) => self.send(member),
            Event::Second => self.second(),
        }
    }

    /// The next heartbeat, whether or not this one succeeds.
    fn retry_later(&mut self, member: usize) {
        let jitter = u32::try_from(self.random.below(1_000_000)).unwrap();
        let pause = self.members[member].holder.pause(jitter).get();
        self.after(pause, Event::Beat(member));
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
            may_have_holders: true,
        };
        let now = self.clock(member);
        let state = &mut self.members[member];
        // Slots are given back only when their use has passed.
        let wants = if state.pacer.is_idle(now) { state.wants } else { state.wants.max(1) };
        state.holder.set_wants(wants);
        let reading =
            DocumentReading { document, store_time_ms: (store_time > 0).then_some(store_time) };
        let prepared =
            state.holder.prepare(reading, &fallback, BrakeReport::NONE, read_at, now).unwrap();
        self.update_pace(member);
        let delay = self.travel();
        self.after(delay, Event::Write(member, prepared, expected));
    }

    fn update_pace(&mut self, member: usize) {
        let now = self.clock(member);
        let state = &mut self.members[member];
        let slots = u16::try_from(state.holder.slots(now).len()).unwrap();
        state.pacer.set_pace(Pace { slots, level_ppm: Pace::UTILISATION_DEFAULT }, now);
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
        let state = &mut self.members[member];
        state.sending = false;
        if state.wants == 0 {
            return;
        }
        let cost = Cost::units(state.next_cost);
        let Departure::At(at) = state.pacer.earliest(cost, now, state.holder.deadline()) else {
            return;
        };
        if at > now {
            state.sending = true;
            let late = self.random.below(2 * MILLI);
            let delay = at.since(now).get() + late;
            self.after(delay, Event::Send(member));
            return;
        }
        state.pacer.depart(cost, now);
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

    /// No slot has two members that may use it.
    fn check_owners(&mut self) {
        let mut owners = vec![None; usize::from(self.scene.slots)];
        let mut held = 0;
        for (index, member) in self.members.iter().enumerate() {
            let now = Timestamp::from_nanos(self.now + member.offset);
            for lease in member.holder.slots(now) {
                held += 1;
                let owner = &mut owners[usize::from(lease.slot)];
                assert_eq!(*owner, None, "slot {} is used by two members", lease.slot);
                *owner = Some(index);
            }
        }
        self.granted_ms += held * 1_000 / u64::from(self.scene.slots);
    }

    fn most_in_a_second(&self) -> u64 {
        let (mut first, mut inside, mut most) = (0, 0, 0);
        for (at, cost) in &self.sent {
            inside += cost;
            while self.sent[first].0 + SECOND <= *at {
                inside -= self.sent[first].1;
                first += 1;
            }
            most = most.max(inside);
        }
        most
    }

    fn units_sent(&self) -> u64 {
        self.sent.iter().map(|(_, cost)| cost).sum()
    }
}

fn scene() -> Scene {
    Scene {
        limit: 500,
        slots: 20,
        members: 4,
        cost_max: 1,
        store_clock: true,
        seconds: 120,
        faults: Faults::default(),
    }
}

const ALL_FAULTS: Faults =
    Faults { lost: 10, frozen: 10, killed: 3, outages: 2, wiped: 2, changes: 20 };

fn play(scene: Scene, seed: u64) -> Fleet {
    let mut fleet = Fleet::new(scene, seed);
    fleet.run();
    let most = fleet.most_in_a_second();
    assert!(
        most <= fleet.scene.limit,
        "seed {seed}: {most} in a second, limit {}",
        fleet.scene.limit
    );
    fleet
}

#[test]
fn steady_members_use_the_limit_and_never_exceed_it() {
    for members in [1, 4, 10] {
        let fleet = play(Scene { members, ..scene() }, 1);
        let ideal = fleet.scene.limit * fleet.scene.seconds;
        // The first seconds are spent in settling: the store might have been wiped.
        let settling = fleet.scene.limit * 17;
        let ratio = fleet.units_sent() as f64 / (ideal - settling) as f64;
        assert!(ratio >= 0.95, "{members} members: {ratio}");
    }
}

#[test]
fn no_fault_makes_the_fleet_exceed_the_limit() {
    for seed in 0..40 {
        let fleet = play(Scene { faults: ALL_FAULTS, store_clock: seed % 2 == 0, ..scene() }, seed);
        assert!(fleet.units_sent() > 0, "seed {seed}");
    }
}

#[test]
fn mixed_costs_keep_the_limit_too() {
    for seed in 0..15 {
        play(Scene { cost_max: 10, faults: ALL_FAULTS, ..scene() }, seed);
    }
}

#[test]
fn the_capacity_of_a_killed_member_is_in_use_again_after_its_lease() {
    let mut fleet = Fleet::new(Scene { seconds: 40, ..scene() }, 3);
    fleet.run();
    fleet.members[0].alive = false;
    fleet.scene.seconds = 17;
    fleet.run();
    let from = fleet.now;
    fleet.scene.seconds = 10;
    fleet.run();
    let recent: u64 = fleet.sent.iter().filter(|(at, _)| *at >= from).map(|(_, cost)| cost).sum();
    assert!(recent as f64 >= 0.95 * 10.0 * fleet.scene.limit as f64, "{recent}");
}
