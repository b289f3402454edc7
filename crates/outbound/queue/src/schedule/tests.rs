use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    tenant: usize,
    class: PriorityClass,
    candidate: Candidate,
}

/// The scheduler as a store drives it: tags at enqueue, an index by class and tag.
struct Indexed {
    tags: [FairTags; CLASSES],
    schedule: ClassSchedule,
    index: [BTreeMap<(u64, i64), Candidate>; CLASSES],
}

impl Indexed {
    fn new(policy: ClassPolicy) -> Self {
        Indexed {
            tags: Default::default(),
            schedule: ClassSchedule::new(policy),
            index: Default::default(),
        }
    }

    fn enqueue(&mut self, mut record: Waiting) {
        let class = record.class.index();
        let tenant = record.tenant.to_string();
        record.candidate.tag = self.tags[class].assign(&tenant, record.candidate.cost);
        let key = (record.candidate.tag, record.candidate.sequence);
        self.index[class].insert(key, record.candidate);
    }

    fn claim(&mut self, budget: &ClaimBudget, now: Timestamp) -> ClaimPlan {
        let mut cursors = self.index.each_ref().map(BTreeMap::values);
        let next =
            |class: PriorityClass| Ok::<_, Infallible>(cursors[class.index()].next().copied());
        let Ok(plan) = plan_claim(&mut self.schedule, budget, now, next);
        for (class, one) in plan.chosen.iter().chain(&plan.expired) {
            self.index[class.index()].remove(&(one.tag, one.sequence));
        }
        for (tags, reached) in self.tags.iter_mut().zip(plan.reached) {
            tags.advance(reached.unwrap_or(0));
        }
        plan
    }
}

/// The same definitions by brute force: every question is answered from the whole history.
#[derive(Default)]
struct History {
    enqueued: Vec<Waiting>,
    /// Sequences in the order of claims, each with the weight that it was charged at.
    claimed: Vec<(i64, u32)>,
    removed: Vec<i64>,
    /// The virtual times that claims reached.
    reached: Vec<(PriorityClass, u64)>,
}

impl History {
    fn class_records(&self, class: PriorityClass) -> impl Iterator<Item = &Waiting> {
        self.enqueued.iter().filter(move |record| record.class == class)
    }

    fn find(&self, sequence: i64) -> Waiting {
        *self.enqueued.iter().find(|record| record.candidate.sequence == sequence).unwrap()
    }

    fn enqueue(&mut self, mut record: Waiting) {
        let reached = self.reached.iter().filter(|(class, _)| *class == record.class);
        let virtual_time = reached.map(|(_, tag)| *tag).max().unwrap_or(0);
        let own = self.class_records(record.class).filter(|other| other.tenant == record.tenant);
        let ends = own.map(|other| other.candidate.tag + other.candidate.cost.max(1));
        record.candidate.tag = ends.max().unwrap_or(0).max(virtual_time);
        self.enqueued.push(record);
    }

    /// When the class is served next, in virtual time: all its charges replayed.
    fn class_start(&self, class: PriorityClass) -> u128 {
        let mut ends = [0_u128; CLASSES];
        let mut virtual_time = 0;
        for (sequence, weight) in &self.claimed {
            let record = self.find(*sequence);
            let index = record.class.index();
            virtual_time = ends[index].max(virtual_time);
            let share = u128::from(record.candidate.cost.max(1)) * SHARE / u128::from(*weight);
            ends[index] = virtual_time + share;
        }
        ends[class.index()].max(virtual_time)
    }

    fn head(&self, class: PriorityClass, now: Timestamp) -> Option<Waiting> {
        let gone = |record: &&Waiting| !self.removed.contains(&record.candidate.sequence);
        let waiting = self.class_records(class).filter(gone).copied();
        let waiting = waiting.filter(|record| record.candidate.deadline > now);
        waiting.min_by_key(|record| (record.candidate.tag, record.candidate.sequence))
    }

    fn claim(&mut self, policy: ClassPolicy, budget: &ClaimBudget, now: Timestamp) -> Vec<i64> {
        let mut chosen = Vec::new();
        let (mut cost, mut bytes) = (0, 0);
        while chosen.len() < budget.records {
            let heads = PriorityClass::ALL.into_iter().filter_map(|class| self.head(class, now));
            let best = match policy {
                ClassPolicy::Weighted { .. } => {
                    heads.min_by_key(|head| (self.class_start(head.class), head.class))
                }
                ClassPolicy::Strict { .. } => heads.min_by_key(|head| {
                    let since = head.candidate.waiting_since;
                    (policy.rank(head.class, since, now), since, head.class)
                }),
            };
            let Some(best) = best else { break };
            cost += best.candidate.cost;
            bytes += best.candidate.bytes;
            if cost > budget.cost || bytes > budget.bytes {
                break;
            }
            let weight = match policy {
                ClassPolicy::Weighted { weights, .. } => {
                    weights[policy.rank(best.class, best.candidate.waiting_since, now)]
                }
                ClassPolicy::Strict { .. } => 1,
            };
            self.claimed.push((best.candidate.sequence, weight));
            self.removed.push(best.candidate.sequence);
            chosen.push(best.candidate.sequence);
        }
        for sequence in &chosen {
            let record = self.find(*sequence);
            let end = record.candidate.tag + record.candidate.cost.max(1);
            let is_left = self.head(record.class, now).is_some();
            self.reached.push((record.class, if is_left { record.candidate.tag } else { end }));
        }
        chosen
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue { tenant: usize, class: usize, cost: u64, bytes: u64, lives: u64 },
    Claim { records: usize, cost: u64, bytes: u64 },
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_usize..4, 0..CLASSES, 0_u64..20, 0_u64..50, 1_u64..400).prop_map(
            |(tenant, class, cost, bytes, lives)| Step::Enqueue { tenant, class, cost, bytes, lives }
        ),
        2 => (0_usize..6, 0_u64..60, 0_u64..200)
            .prop_map(|(records, cost, bytes)| Step::Claim { records, cost, bytes }),
        1 => (1_u64..90).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

fn policy() -> impl Strategy<Value = ClassPolicy> {
    let ageing = prop::option::of((1_u64..120).prop_map(Duration::from_secs));
    prop_oneof![
        (prop::array::uniform4(1_u32..10), ageing.clone())
            .prop_map(|(weights, ageing)| ClassPolicy::Weighted { weights, ageing }),
        ageing.prop_map(|ageing| ClassPolicy::Strict { ageing }),
    ]
}

fn record(sequence: i64, tenant: usize, class: usize, cost: u64, now: Timestamp) -> Waiting {
    Waiting {
        tenant,
        class: PriorityClass::ALL[class],
        candidate: Candidate {
            sequence,
            tag: 0,
            cost,
            bytes: 1,
            waiting_since: now,
            deadline: Timestamp::MAX,
        },
    }
}

fn one_record() -> ClaimBudget {
    ClaimBudget::records(1, Duration::from_secs(1))
}

proptest! {
    #[test]
    fn claims_equal_a_brute_force_search(
        policy in policy(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut indexed = Indexed::new(policy);
        let mut history = History::default();
        let mut now = Timestamp::from_secs(1_000);
        for (sequence, step) in (0..).zip(steps) {
            match step {
                Step::Enqueue { tenant, class, cost, bytes, lives } => {
                    let mut record = record(sequence, tenant, class, cost, now);
                    record.candidate.bytes = bytes;
                    record.candidate.deadline = now.after(Nanos::from_secs(lives));
                    indexed.enqueue(record);
                    history.enqueue(record);
                }
                Step::Claim { records, cost, bytes } => {
                    let lease = Duration::from_secs(1);
                    let budget = ClaimBudget { records, cost, bytes, lease };
                    let plan = indexed.claim(&budget, now);
                    let chosen: Vec<i64> =
                        plan.chosen.iter().map(|(_, candidate)| candidate.sequence).collect();
                    prop_assert_eq!(chosen, history.claim(policy, &budget, now));
                    prop_assert!(plan.expired.iter().all(|(_, one)| one.deadline <= now));
                    prop_assert!(plan.chosen.iter().all(|(_, one)| one.deadline > now));
                }
                Step::Wait { seconds } => now = now.after(Nanos::from_secs(seconds)),
            }
        }
    }

    /// The bound of start-time fair queueing, for every interval of claims.
    #[test]
    fn tenants_with_a_backlog_get_equal_cost(
        costs in prop::collection::vec((1_u64..50, 1_u64..50), 60),
    ) {
        let mut indexed = Indexed::new(ClassPolicy::default());
        let now = Timestamp::from_secs(1);
        let largest = [costs.iter().map(|pair| pair.0).max(), costs.iter().map(|pair| pair.1).max()];
        let bound = largest[0].unwrap() + largest[1].unwrap();
        // The first tenant enqueues everything before the second does.
        for (index, (cost, _)) in (0..).zip(&costs) {
            indexed.enqueue(record(index, 0, 1, *cost, now));
        }
        for (index, (_, cost)) in (1_000..).zip(&costs) {
            indexed.enqueue(record(index, 1, 1, *cost, now));
        }
        let mut served = vec![[0_u64; 2]];
        let mut left = [costs.len(); 2];
        while left.iter().all(|records| *records > 0) {
            let plan = indexed.claim(&one_record(), now);
            let (_, candidate) = plan.chosen[0];
            let tenant = usize::from(candidate.sequence >= 1_000);
            left[tenant] -= 1;
            let mut sum = *served.last().unwrap();
            sum[tenant] += candidate.cost;
            served.push(sum);
        }
        for (from, begin) in served.iter().enumerate() {
            for end in &served[from..] {
                let difference = (end[0] - begin[0]).abs_diff(end[1] - begin[1]);
                prop_assert!(difference <= bound, "{difference} over {bound}");
            }
        }
    }

    #[test]
    fn classes_with_a_backlog_share_by_weight(
        weights in prop::array::uniform4(1_u32..20),
        cost_max in 1_u64..30,
    ) {
        let policy = ClassPolicy::Weighted { weights, ageing: None };
        let mut indexed = Indexed::new(policy);
        let now = Timestamp::from_secs(1);
        let mut sequence = 0;
        let mut served = [0_u64; CLASSES];
        for round in 0_u64..400 {
            for class in 0..CLASSES {
                // Every class keeps a backlog.
                sequence += 1;
                indexed.enqueue(record(sequence, 0, class, 1 + round % cost_max, now));
            }
            let (class, candidate) = indexed.claim(&one_record(), now).chosen[0];
            served[class.index()] += candidate.cost;
        }
        for (first, second) in [(0, 1), (1, 2), (2, 3), (0, 3)] {
            let share = |class: usize| served[class] as f64 / f64::from(weights[class]);
            let slack = |class: usize| cost_max as f64 / f64::from(weights[class]);
            let difference = (share(first) - share(second)).abs();
            prop_assert!(difference <= slack(first) + slack(second) + 1e-3);
        }
    }

    /// With strict classes, a record is overtaken only by records that arrived before its promotions were complete.
    #[test]
    fn ageing_bounds_how_long_a_low_class_waits(ageing in 1_u64..100, class in 1..CLASSES) {
        let policy = ClassPolicy::Strict { ageing: Some(Duration::from_secs(ageing)) };
        let mut indexed = Indexed::new(policy);
        let start = Timestamp::from_secs(10_000);
        indexed.enqueue(record(0, 0, class, 1, start));
        let promoted = start.after(Nanos::from_secs(ageing * class as u64));
        let mut now = start;
        for sequence in 1.. {
            indexed.enqueue(record(sequence, 0, 0, 1, now));
            let (_, candidate) = indexed.claim(&one_record(), now).chosen[0];
            if candidate.sequence == 0 {
                break;
            }
            prop_assert!(now < promoted, "still waiting at {now:?}");
            now = now.after(Nanos::from_secs(1));
        }
        prop_assert_eq!(now, promoted);
    }
}

#[test]
fn a_tenant_that_sends_one_record_at_a_time_gets_no_more_than_its_share() {
    let mut indexed = Indexed::new(ClassPolicy::default());
    let now = Timestamp::from_secs(1);
    for sequence in 0..1_000 {
        indexed.enqueue(record(sequence, 0, 1, 1, now));
    }
    let mut served = [0; 2];
    indexed.enqueue(record(1_000, 1, 1, 100, now));
    for sequence in 1_001..1_500 {
        let (_, candidate) = indexed.claim(&one_record(), now).chosen[0];
        let tenant = usize::from(candidate.sequence >= 1_000);
        served[tenant] += candidate.cost;
        if tenant == 1 {
            indexed.enqueue(record(sequence, 1, 1, 100, now));
        }
    }
    assert!(served[0].abs_diff(served[1]) <= 101, "{served:?}");
}

#[test]
fn tenants_start_equal_again_when_a_class_is_empty() {
    let mut indexed = Indexed::new(ClassPolicy::default());
    let now = Timestamp::from_secs(1);
    // A costly record, alone in its class.
    indexed.enqueue(record(0, 0, 1, 1_000, now));
    assert_eq!(indexed.claim(&one_record(), now).chosen.len(), 1);
    indexed.enqueue(record(1, 0, 1, 1, now));
    indexed.enqueue(record(2, 1, 1, 1, now));
    indexed.enqueue(record(3, 1, 1, 1, now));
    let order: Vec<i64> =
        (0..3).map(|_| indexed.claim(&one_record(), now).chosen[0].1.sequence).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn a_costly_record_is_not_overtaken() {
    let mut indexed = Indexed::new(ClassPolicy::default());
    let now = Timestamp::from_secs(1);
    indexed.enqueue(record(0, 0, 1, 50, now));
    indexed.enqueue(record(1, 0, 1, 1, now));
    let budget = ClaimBudget { cost: 10, ..ClaimBudget::records(5, Duration::from_secs(1)) };
    let plan = indexed.claim(&budget, now);
    assert!(plan.chosen.is_empty());
    assert_eq!(plan.withheld, Some(Withheld { cost: 50, bytes: 1 }));
    let budget = ClaimBudget { cost: 51, ..budget };
    assert_eq!(indexed.claim(&budget, now).chosen.len(), 2);
}

#[test]
fn the_memory_for_tenants_is_bounded() {
    let mut tags = FairTags::default();
    for tenant in 0..3 * TENANTS_MAX {
        tags.assign(&tenant.to_string(), 1 + (tenant % 7) as u64);
        assert!(tags.ends.len() <= TENANTS_MAX);
    }
    tags.advance(100);
    tags.restore("new", 500);
    assert_eq!(tags.assign("new", 3), 500);
    assert_eq!(tags.assign("other", 3), 100);
    assert_eq!(tags.virtual_time(), 100);
}

#[test]
fn tags_end_at_the_largest_number() {
    let mut tags = FairTags::starting_at(u64::MAX);
    assert_eq!(tags.assign("a", u64::MAX), i64::MAX as u64);
    assert_eq!(tags.assign("a", u64::MAX), i64::MAX as u64);
}
