//! A queue as a plain list, compared with a store on random operations.
//!
//! The model answers every question by a scan. Only the scheduler is shared: it has a brute-force oracle of its own, in
//! the unit tests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use tidegate_queue::schedule::{
    CLASSES, Candidate, ClassPolicy, ClassSchedule, FairTags, plan_claim,
};
use tidegate_queue::{
    AttemptCharge, Capability, ClaimBudget, Clock, DeadLetterSelection, EnqueueOutcome, Nanos,
    NewRecord, OrderMode, Payload, PriorityClass, Queue, QueueSettings, Receipt, RecordId,
    SettleOutcome, Settlement, Timestamp, Withheld,
};

use crate::Backend;

/// Random histories that each store is compared on.
pub(crate) const SEEDS: u64 = 12;
const STEPS: usize = 60;
/// A claim checks the deadline of this many of the oldest records.
const OLDEST_CHECKED: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Delayed,
    Claimed,
    Blocked,
    Dead,
}

#[derive(Clone, Debug)]
struct Entry {
    number: usize,
    phase: Phase,
    position: usize,
    tag: u64,
    new: NewRecord,
    key: Option<String>,
    waiting_since: Timestamp,
    due_at: Timestamp,
    deadline: Timestamp,
    epoch: u64,
    attempts: u32,
    lapses: u32,
    died_at: Timestamp,
}

struct Model {
    settings: QueueSettings,
    entries: Vec<Entry>,
    dedup: HashMap<String, (usize, Timestamp)>,
    tags: [FairTags; CLASSES],
    schedule: ClassSchedule,
    next: usize,
}

impl Model {
    fn new(settings: QueueSettings) -> Self {
        let schedule = ClassSchedule::new(settings.classes);
        let tags = Default::default();
        Model { settings, entries: Vec::new(), dedup: HashMap::new(), tags, schedule, next: 0 }
    }

    fn enqueue(&mut self, number: usize, new: &NewRecord, now: Timestamp) -> usize {
        if let Some(key) = &new.dedup_key {
            if let Some((first, expires)) = self.dedup.get(key)
                && *expires > now
            {
                return *first;
            }
            let expires = now.after(Nanos::from(self.settings.dedup_window));
            self.dedup.insert(key.clone(), (number, expires));
        }
        let waiting_since = new.not_before.unwrap_or(now).max(now);
        let aged = self.settings.age_max.map(|age| waiting_since.after(Nanos::from(age)));
        let deadline = aged.unwrap_or(Timestamp::MAX).min(new.deadline.unwrap_or(Timestamp::MAX));
        let key = match self.settings.order {
            OrderMode::None => None,
            OrderMode::Key => new.order_key.clone(),
            OrderMode::Strict => Some(String::new()),
        };
        let entry = Entry {
            number,
            phase: Phase::Ready,
            position: 0,
            tag: 0,
            new: new.clone(),
            key,
            waiting_since,
            due_at: waiting_since,
            deadline,
            epoch: 0,
            attempts: 0,
            lapses: 0,
            died_at: now,
        };
        self.join(entry, now);
        number
    }

    /// Puts a record behind all others of its key.
    fn join(&mut self, mut entry: Entry, now: Timestamp) {
        let live = |other: &&Entry| other.phase != Phase::Dead && other.number != entry.number;
        let blocked = entry.key.is_some()
            && self.entries.iter().filter(live).any(|other| other.key == entry.key);
        entry.phase = match () {
            () if blocked => Phase::Blocked,
            () if entry.due_at > now => Phase::Delayed,
            () => Phase::Ready,
        };
        entry.tag = self.tags[entry.new.class.index()].assign(&entry.new.tenant, entry.new.cost);
        self.next += 1;
        entry.position = self.next;
        self.entries.retain(|other| other.number != entry.number);
        self.entries.push(entry);
        self.entries.sort_by_key(|entry| entry.number);
    }

    fn entry(&mut self, number: usize) -> &mut Entry {
        self.entries.iter_mut().find(|entry| entry.number == number).unwrap()
    }

    fn die(&mut self, number: usize, now: Timestamp) {
        let entry = self.entry(number);
        entry.phase = Phase::Dead;
        entry.died_at = now;
        let key = entry.key.clone();
        self.unblock(key.as_deref(), now);
    }

    fn unblock(&mut self, key: Option<&str>, now: Timestamp) {
        let live = self.entries.iter_mut().filter(|entry| entry.phase != Phase::Dead);
        let same = live.filter(|entry| key.is_some() && entry.key.as_deref() == key);
        if let Some(first) = same.min_by_key(|entry| entry.position)
            && first.phase == Phase::Blocked
        {
            first.phase = if first.due_at > now { Phase::Delayed } else { Phase::Ready };
        }
    }

    /// Makes records ready whose delay or lease has ended.
    fn release_due(&mut self, now: Timestamp) {
        let waits = |entry: &Entry| matches!(entry.phase, Phase::Delayed | Phase::Claimed);
        let due: Vec<usize> = self
            .entries
            .iter()
            .filter(|entry| waits(entry) && entry.due_at <= now)
            .map(|entry| entry.number)
            .collect();
        for number in due {
            let lapses_max = self.settings.lapses_max;
            let entry = self.entry(number);
            let lapsed = entry.phase == Phase::Claimed;
            entry.phase = Phase::Ready;
            entry.lapses += u32::from(lapsed);
            if lapsed && entry.lapses >= lapses_max {
                self.die(number, now);
            }
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        let waits = |entry: &&Entry| matches!(entry.phase, Phase::Delayed | Phase::Claimed);
        self.entries.iter().filter(waits).map(|entry| entry.due_at).min()
    }

    fn claim(
        &mut self,
        budget: &ClaimBudget,
        now: Timestamp,
    ) -> (Vec<usize>, Option<Withheld>, Option<Timestamp>) {
        self.release_due(now);
        let live = self.entries.iter().filter(|entry| entry.phase != Phase::Dead);
        let oldest = live.take(OLDEST_CHECKED).filter(|entry| entry.phase != Phase::Claimed);
        let expired: Vec<usize> =
            oldest.filter(|entry| entry.deadline <= now).map(|entry| entry.number).collect();
        for number in expired {
            self.die(number, now);
        }
        let mut ready: Vec<(PriorityClass, Candidate)> = self
            .entries
            .iter()
            .filter(|entry| entry.phase == Phase::Ready)
            .map(|entry| {
                let candidate = Candidate {
                    sequence: entry.number as i64,
                    tag: entry.tag,
                    cost: entry.new.cost,
                    bytes: entry.new.payload.encoded_len() as u64,
                    waiting_since: entry.waiting_since,
                    deadline: entry.deadline,
                };
                (entry.new.class, candidate)
            })
            .collect();
        ready.sort_by_key(|(class, candidate)| (*class, candidate.tag, candidate.sequence));
        let Ok(plan) = plan_claim(&mut self.schedule, budget, now, |class| {
            let index = ready.iter().position(|(own, _)| *own == class);
            Ok::<_, Infallible>(index.map(|index| ready.remove(index).1))
        });
        for (_, candidate) in &plan.expired {
            self.die(number_of(candidate), now);
        }
        let mut taken = Vec::new();
        for (tags, reached) in self.tags.iter_mut().zip(plan.reached) {
            tags.advance(reached.unwrap_or(0));
        }
        for (_, candidate) in &plan.chosen {
            let entry = self.entry(number_of(candidate));
            entry.phase = Phase::Claimed;
            entry.epoch += 1;
            entry.due_at = now.after(Nanos::from(budget.lease));
            taken.push(entry.number);
        }
        let looks_on = plan.withheld.is_none() && taken.len() < budget.records;
        let next_due = self.next_due().filter(|_| looks_on);
        (taken, plan.withheld, next_due)
    }

    /// Follows a claim of a store that promises no order: checks that it took what it may, and all that it could.
    fn follow(&mut self, budget: &ClaimBudget, taken: &[usize], now: Timestamp) {
        let ready: Vec<Entry> =
            self.entries.iter().filter(|entry| entry.phase == Phase::Ready).cloned().collect();
        let (mut cost, mut bytes) = (0, 0);
        for number in taken {
            assert!(ready.iter().any(|entry| entry.number == *number), "{number} is not ready");
            let entry = self.entry(*number);
            assert_eq!(entry.phase, Phase::Ready, "{number} was delivered twice");
            entry.phase = Phase::Claimed;
            entry.epoch += 1;
            entry.due_at = now.after(Nanos::from(budget.lease));
            cost += entry.new.cost;
            bytes += entry.new.payload.encoded_len() as u64;
        }
        assert!(taken.len() <= budget.records && cost <= budget.cost && bytes <= budget.bytes);
    }

    fn settle(
        &mut self,
        number: usize,
        epoch: u64,
        settlement: &Settlement,
        now: Timestamp,
    ) -> SettleOutcome {
        let found = self
            .entries
            .iter_mut()
            .find(|entry| entry.number == number && entry.phase != Phase::Dead);
        let Some(entry) = found.filter(|entry| entry.epoch == epoch) else {
            return SettleOutcome::StaleReceipt;
        };
        match settlement {
            Settlement::Ack => {
                let key = entry.key.clone();
                self.entries.retain(|entry| entry.number != number);
                self.unblock(key.as_deref(), now);
            }
            Settlement::Nack { not_before, charge } => {
                entry.due_at = *not_before;
                entry.phase = if *not_before > now { Phase::Delayed } else { Phase::Ready };
                entry.attempts += u32::from(*charge == AttemptCharge::Failed);
                entry.epoch += 1;
            }
            Settlement::Extend { lease } => {
                entry.phase = Phase::Claimed;
                entry.due_at = now.after(Nanos::from(*lease));
            }
            Settlement::DeadLetter { .. } => self.die(number, now),
        }
        SettleOutcome::Applied
    }

    fn select_dead(&self, selection: &Selection, limit: usize) -> Vec<usize> {
        let dead = self.entries.iter().filter(|entry| entry.phase == Phase::Dead);
        let chosen = dead.filter(|entry| match selection {
            Selection::All => true,
            Selection::Before(instant) => entry.died_at < *instant,
            Selection::One(number) => entry.number == *number,
        });
        chosen.take(limit).map(|entry| entry.number).collect()
    }

    fn redrive(&mut self, selection: &Selection, limit: usize, now: Timestamp) -> u64 {
        let selected = self.select_dead(selection, limit);
        for number in &selected {
            let mut entry = self.entry(*number).clone();
            entry.epoch += 1;
            entry.attempts = 0;
            entry.lapses = 0;
            entry.waiting_since = now;
            entry.due_at = now;
            let aged = self.settings.age_max.map(|age| now.after(Nanos::from(age)));
            entry.deadline = aged.unwrap_or(Timestamp::MAX);
            self.join(entry, now);
        }
        selected.len() as u64
    }

    fn purge(&mut self, selection: &Selection, limit: usize) -> u64 {
        let selected = self.select_dead(selection, limit);
        self.entries.retain(|entry| !selected.contains(&entry.number));
        selected.len() as u64
    }
}

fn number_of(candidate: &Candidate) -> usize {
    usize::try_from(candidate.sequence).unwrap()
}

enum Selection {
    All,
    Before(Timestamp),
    One(usize),
}

/// A small generator (SplitMix64), so that a seed gives the same history everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).unwrap()
    }

    fn settings(&mut self) -> QueueSettings {
        let ageing = (self.roll(2) == 0).then(|| Duration::from_secs(20));
        QueueSettings {
            order: [OrderMode::None, OrderMode::Key, OrderMode::Strict][self.index(3)],
            classes: if self.roll(2) == 0 {
                ClassPolicy::Weighted { weights: [8, 4, 2, 1], ageing }
            } else {
                ClassPolicy::Strict { ageing }
            },
            age_max: (self.roll(2) == 0).then(|| Duration::from_secs(120)),
            dedup_window: Duration::from_secs(60),
            lapses_max: 3,
            ..QueueSettings::default()
        }
    }

    fn record(&mut self, number: usize, now: Timestamp) -> NewRecord {
        let span = |seconds| now.after(Nanos::from_secs(seconds));
        NewRecord {
            tenant: format!("tenant {}", self.roll(3)),
            cost: self.roll(12),
            class: PriorityClass::ALL[self.index(4)],
            job: None,
            order_key: Some(format!("key {}", self.roll(4))),
            dedup_key: (self.roll(3) == 0).then(|| format!("once {}", self.roll(6))),
            not_before: (self.roll(4) == 0).then(|| span(self.roll(40))),
            deadline: (self.roll(5) == 0).then(|| span(50 + self.roll(60))),
            payload: Payload::from_body(number.to_string()),
        }
    }

    fn settlement(&mut self, now: Timestamp) -> Settlement {
        match self.roll(6) {
            0 | 1 => Settlement::Ack,
            2 | 3 => Settlement::Nack {
                not_before: now.after(Nanos::from_secs(self.roll(3) * 10)),
                charge: [AttemptCharge::Failed, AttemptCharge::Free][self.index(2)],
            },
            4 => Settlement::Extend { lease: Duration::from_secs(20) },
            _ => Settlement::DeadLetter { detail: "no".to_owned() },
        }
    }
}

/// Plays a random history on a store and on the model.
pub(crate) async fn compare(backend: &impl Backend, seed: u64) {
    let mut dice = Dice(seed);
    let mut settings = dice.settings();
    // A store without priorities claims in an order of its own.
    let is_scheduled = backend.store().capabilities().contains(&Capability::Priority);
    if !is_scheduled {
        (settings.order, settings.age_max) = (OrderMode::None, None);
    }
    let name = format!("random-{seed}");
    let queue = backend.store().open_queue(&name, settings.clone()).await.unwrap();
    let mut model = Model::new(settings);
    let mut ids: HashMap<usize, RecordId> = HashMap::new();
    let mut receipts: Vec<(Receipt, usize, u64)> = Vec::new();
    let mut numbers = 0;
    for step in 0..STEPS {
        let at = format!("seed {seed}, step {step}");
        let now = backend.clock().now();
        match dice.roll(10) {
            0..=2 => {
                let first = numbers;
                numbers += 1 + dice.index(4);
                let mut batch: Vec<_> =
                    (first..numbers).map(|number| dice.record(number, now)).collect();
                if !is_scheduled {
                    // Which of them expires depends on the order.
                    batch.iter_mut().for_each(|record| record.deadline = None);
                }
                let outcomes = queue.enqueue(batch.clone()).await.unwrap();
                for (number, (new, outcome)) in (first..).zip(batch.iter().zip(outcomes)) {
                    let original = model.enqueue(number, new, now);
                    if original == number {
                        assert_eq!(outcome, EnqueueOutcome::Accepted(outcome.id()), "{at}");
                        ids.insert(number, outcome.id());
                    } else {
                        assert_eq!(outcome, EnqueueOutcome::Duplicate(ids[&original]), "{at}");
                    }
                }
            }
            3..=5 => {
                let budget = ClaimBudget {
                    records: dice.index(6),
                    cost: dice.roll(40),
                    bytes: 200,
                    lease: Duration::from_secs(10 + dice.roll(30)),
                };
                let claim = queue.claim(budget).await.unwrap();
                let bodies: Vec<usize> = claim
                    .deliveries
                    .iter()
                    .map(|one| std::str::from_utf8(&one.record.payload.body).unwrap())
                    .map(|body| body.parse().unwrap())
                    .collect();
                let (taken, withheld, next_due) = if is_scheduled {
                    model.claim(&budget, now)
                } else {
                    model.release_due(now);
                    model.follow(&budget, &bodies, now);
                    let looks_on = claim.withheld.is_none() && bodies.len() < budget.records;
                    let ready = model.entries.iter().any(|entry| entry.phase == Phase::Ready);
                    assert!(!looks_on || !ready, "{at}: a record was left");
                    (bodies.clone(), claim.withheld, model.next_due().filter(|_| looks_on))
                };
                assert_eq!(bodies, taken, "{at}: {budget:?}");
                assert_eq!((claim.withheld, claim.next_due), (withheld, next_due), "{at}");
                for (delivery, number) in claim.deliveries.into_iter().zip(taken) {
                    let entry = model.entry(number);
                    let record = &delivery.record;
                    assert_eq!(record.id, ids[&number], "{at}");
                    assert_eq!((record.attempts, record.lapses), (entry.attempts, entry.lapses));
                    receipts.push((delivery.receipt, number, entry.epoch));
                }
            }
            6 | 7 if !receipts.is_empty() => {
                let index = dice.index(receipts.len());
                let (receipt, number, epoch) = receipts[index].clone();
                let settlement = dice.settlement(now);
                let expected = model.settle(number, epoch, &settlement, now);
                let outcome = queue.settle(vec![(receipt, settlement.clone())]).await.unwrap();
                assert_eq!(outcome, [expected], "{at}: {settlement:?}");
            }
            8 => {
                let (selection, plain) = match dice.roll(3) {
                    0 => (DeadLetterSelection::All, Selection::All),
                    1 => (DeadLetterSelection::Before(now), Selection::Before(now)),
                    _ => {
                        let number = dice.index(numbers.max(1));
                        let known = ids.get(&number).copied();
                        let id = known.unwrap_or(RecordId::from_u128(7));
                        (DeadLetterSelection::Ids(vec![id]), Selection::One(number))
                    }
                };
                // Without an order, the model does not know which ones a limit leaves.
                let limit = if is_scheduled { dice.index(4) } else { 1_000 };
                if dice.roll(3) == 0 {
                    let purged = queue.purge(selection, limit).await.unwrap();
                    assert_eq!(purged, model.purge(&plain, limit), "{at}");
                } else {
                    let redriven = queue.redrive(selection, limit).await.unwrap();
                    assert_eq!(redriven, model.redrive(&plain, limit, now), "{at}");
                }
            }
            _ => backend.clock().advance(Duration::from_secs(1 + dice.roll(25))),
        }
        check_stats(&*queue, &model, &at).await;
    }
}

async fn check_stats(queue: &dyn Queue, model: &Model, at: &str) {
    let stats = queue.stats().await.unwrap();
    for class in PriorityClass::ALL {
        let live = model.entries.iter().filter(|entry| entry.phase != Phase::Dead);
        let own: Vec<&Entry> = live.filter(|entry| entry.new.class == class).collect();
        let bytes = own.iter().map(|entry| entry.new.payload.encoded_len() as u64).sum::<u64>();
        let cost = own.iter().map(|entry| entry.new.cost).sum::<u64>();
        let counted = stats.classes[class.index()];
        let counted = (counted.records, counted.bytes, counted.cost);
        assert_eq!(counted, (own.len() as u64, bytes, cost), "{at}: {class:?}");
    }
    let count = |phase| model.entries.iter().filter(|entry| entry.phase == phase).count() as u64;
    assert_eq!(stats.in_flight, count(Phase::Claimed), "{at}");
    assert_eq!(stats.dead_records, count(Phase::Dead), "{at}");
}
