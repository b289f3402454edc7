//! Which record is claimed next: pure functions.
//!
//! **Among tenants of a class**: start-time fair queueing. A record gets a start tag when it is enqueued: the later of
//! the class's virtual time and the end of the tenant's last record; the end is start plus cost. Records are claimed by
//! tag, and the virtual time is the tag of the last claim, or its end if no record was left. Two tenants with a backlog differ by at most the sum of their
//! largest costs in any interval. The tag is one number per record, so an index of any database gives the order.
//!
//! **Among classes**: by weight, with the same method on the fly, or strictly. A record that waits is promoted by one
//! class for each span of ageing.
//!
//! **Within a budget**: a record that does not fit ends the claim, because otherwise cheap records would overtake a
//! costly one forever.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_algorithms::{Nanos, Timestamp};

use crate::error::QueueError;
use crate::queue::{ClaimBudget, Withheld};
use crate::record::PriorityClass;
use crate::settings::BATCH_MAX;

/// The number of classes.
pub const CLASSES: usize = PriorityClass::ALL.len();
/// Tenants of a class whose last tag is kept in memory; about 2 MiB. Beyond it, the tenant with the earliest end is
/// dropped, and its next record starts at the virtual time.
pub const TENANTS_MAX: usize = 16_384;
/// The largest weight of a class.
pub const WEIGHT_MAX: u32 = 1_000;
/// Tags stay within SQL's signed integers.
const TAG_MAX: u64 = i64::MAX as u64;

/// How classes share a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassPolicy {
    /// In proportion to weights, by cost.
    Weighted {
        /// The weight of each class, the most urgent first.
        weights: [u32; CLASSES],
        /// A record is promoted by one class for each such span of waiting. `None`: never.
        ageing: Option<Duration>,
    },
    /// The most urgent class first; among classes of equal rank the record that waits longest.
    Strict {
        /// A record is promoted by one class for each such span of waiting. `None`: never.
        ageing: Option<Duration>,
    },
}

impl Default for ClassPolicy {
    /// Weights 8:4:2:1, ageing of one minute.
    fn default() -> Self {
        ClassPolicy::Weighted { weights: [8, 4, 2, 1], ageing: Some(Duration::from_secs(60)) }
    }
}

impl ClassPolicy {
    pub(crate) fn validate(&self) -> Result<(), QueueError> {
        let (ClassPolicy::Weighted { ageing, .. } | ClassPolicy::Strict { ageing }) = self;
        if ageing.is_some_and(|span| span.is_zero()) {
            return Err(QueueError::InvalidSettings("ageing is longer than zero".to_owned()));
        }
        if let ClassPolicy::Weighted { weights, .. } = self
            && weights.iter().any(|weight| !(1..=WEIGHT_MAX).contains(weight))
        {
            let text = format!("weights are between 1 and {WEIGHT_MAX}");
            return Err(QueueError::InvalidSettings(text));
        }
        Ok(())
    }

    /// The class as which a record counts after waiting since `waiting_since`.
    pub fn rank(&self, class: PriorityClass, waiting_since: Timestamp, now: Timestamp) -> usize {
        let (ClassPolicy::Weighted { ageing, .. } | ClassPolicy::Strict { ageing }) = *self;
        let Some(span) = ageing.map(Nanos::from).filter(|span| *span > Nanos::ZERO) else {
            return class.index();
        };
        let promotions = now.since(waiting_since).get() / span.get();
        class.index().saturating_sub(usize::try_from(promotions).unwrap_or(usize::MAX))
    }
}

/// The start tags of one class.
#[derive(Clone, Debug, Default)]
pub struct FairTags {
    virtual_time: u64,
    ends: HashMap<Box<str>, u64>,
}

impl FairTags {
    /// Tags that continue from a virtual time.
    pub fn starting_at(virtual_time: u64) -> Self {
        FairTags { virtual_time: virtual_time.min(TAG_MAX), ends: HashMap::new() }
    }

    /// The start tag of the tenant's next record.
    pub fn assign(&mut self, tenant: &str, cost: u64) -> u64 {
        let end = self.ends.get(tenant).copied().unwrap_or(0);
        let tag = self.virtual_time.max(end);
        self.set_end(tenant, end_tag(tag, cost));
        tag
    }

    /// Restores the end of a tenant's last record, after a restart.
    pub fn restore(&mut self, tenant: &str, end: u64) {
        let end = end.min(TAG_MAX).max(self.ends.get(tenant).copied().unwrap_or(0));
        self.set_end(tenant, end);
    }

    /// A claim reached this virtual time.
    pub fn advance(&mut self, reached: u64) {
        self.virtual_time = self.virtual_time.max(reached.min(TAG_MAX));
    }

    /// The virtual time.
    pub const fn virtual_time(&self) -> u64 {
        self.virtual_time
    }

    fn set_end(&mut self, tenant: &str, end: u64) {
        if let Some(known) = self.ends.get_mut(tenant) {
            *known = end;
            return;
        }
        if self.ends.len() >= TENANTS_MAX {
            self.shrink();
        }
        self.ends.insert(tenant.into(), end);
    }

    /// Drops the ends that the virtual time has passed: they change nothing. If all are ahead of it, drops the earliest
    /// half, so that the next inserts need no scan.
    fn shrink(&mut self) {
        let virtual_time = self.virtual_time;
        self.ends.retain(|_, end| *end > virtual_time);
        if self.ends.len() >= TENANTS_MAX {
            let mut ends: Vec<u64> = self.ends.values().copied().collect();
            let middle = ends.len() / 2;
            let (_, median, _) = ends.select_nth_unstable(middle);
            let median = *median;
            self.ends.retain(|_, end| *end > median);
        }
    }
}

/// The end of a record: a record without cost takes the share of cost 1, so that it cannot starve others.
pub(crate) fn end_tag(tag: u64, cost: u64) -> u64 {
    tag.saturating_add(cost.max(1)).min(TAG_MAX)
}

/// The first record of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassHead {
    /// Since when it may be claimed.
    pub waiting_since: Timestamp,
    /// Its cost.
    pub cost: u64,
}

/// Chooses the class of the next record.
#[derive(Clone, Debug)]
pub struct ClassSchedule {
    policy: ClassPolicy,
    virtual_time: u128,
    ends: [u128; CLASSES],
}

/// Fixed point: shares of one unit of cost.
const SHARE: u128 = 1 << 32;

impl ClassSchedule {
    /// A schedule in which no class has been served.
    pub const fn new(policy: ClassPolicy) -> Self {
        ClassSchedule { policy, virtual_time: 0, ends: [0; CLASSES] }
    }

    /// The class to serve, given the first record of each class.
    pub fn choose(
        &self,
        heads: &[Option<ClassHead>; CLASSES],
        now: Timestamp,
    ) -> Option<PriorityClass> {
        let waiting =
            PriorityClass::ALL.into_iter().filter_map(|class| Some((class, heads[class.index()]?)));
        match self.policy {
            ClassPolicy::Weighted { .. } => waiting.min_by_key(|(class, _)| self.start(*class)),
            ClassPolicy::Strict { .. } => waiting.min_by_key(|(class, head)| {
                (self.policy.rank(*class, head.waiting_since, now), head.waiting_since)
            }),
        }
        .map(|(class, _)| class)
    }

    /// The first record of the class was claimed.
    pub fn charge(&mut self, class: PriorityClass, head: ClassHead, now: Timestamp) {
        let ClassPolicy::Weighted { weights, .. } = self.policy else { return };
        let weight = weights[self.policy.rank(class, head.waiting_since, now)];
        let start = self.start(class);
        self.virtual_time = start;
        let share = u128::from(head.cost.max(1)) * SHARE / u128::from(weight.max(1));
        self.ends[class.index()] = start.saturating_add(share);
    }

    fn start(&self, class: PriorityClass) -> u128 {
        self.virtual_time.max(self.ends[class.index()])
    }
}

/// A record that may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The store's number of it.
    pub sequence: i64,
    /// Its start tag.
    pub tag: u64,
    /// Its cost.
    pub cost: u64,
    /// Its payload bytes.
    pub bytes: u64,
    /// Since when it may be claimed.
    pub waiting_since: Timestamp,
    /// When it becomes a dead letter.
    pub deadline: Timestamp,
}

/// What a claim takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimPlan {
    /// The records to deliver, in this order.
    pub chosen: Vec<(PriorityClass, Candidate)>,
    /// Records whose deadline has passed, met on the way.
    pub expired: Vec<(PriorityClass, Candidate)>,
    /// The first record that did not fit.
    pub withheld: Option<Withheld>,
    /// The virtual time of each class of which records were chosen: their last start tag, or their last end if no
    /// record is left. Then all tenants start equal again.
    pub reached: [Option<u64>; CLASSES],
}

/// Plans a claim. `next` gives the next candidate of a class by tag and then sequence.
pub fn plan_claim<E>(
    schedule: &mut ClassSchedule,
    budget: &ClaimBudget,
    now: Timestamp,
    mut next: impl FnMut(PriorityClass) -> Result<Option<Candidate>, E>,
) -> Result<ClaimPlan, E> {
    let mut plan = ClaimPlan::default();
    let (mut cost, mut bytes) = (budget.cost, budget.bytes);
    let mut candidates: [Option<Candidate>; CLASSES] = [None; CLASSES];
    for class in PriorityClass::ALL {
        candidates[class.index()] = next_unexpired(class, now, &mut plan, &mut next)?;
    }
    while plan.chosen.len() < budget.records.min(BATCH_MAX) {
        let heads = candidates.map(|candidate| {
            candidate.map(|one| ClassHead { waiting_since: one.waiting_since, cost: one.cost })
        });
        let Some(class) = schedule.choose(&heads, now) else { break };
        let index = class.index();
        let (Some(candidate), Some(head)) = (candidates[index], heads[index]) else { break };
        if candidate.cost > cost || candidate.bytes > bytes {
            plan.withheld = Some(Withheld { cost: candidate.cost, bytes: candidate.bytes });
            break;
        }
        cost -= candidate.cost;
        bytes -= candidate.bytes;
        schedule.charge(class, head, now);
        plan.chosen.push((class, candidate));
        candidates[index] = next_unexpired(class, now, &mut plan, &mut next)?;
    }
    for (class, chosen) in &plan.chosen {
        let index = class.index();
        let is_empty = candidates[index].is_none();
        let tag = if is_empty { end_tag(chosen.tag, chosen.cost) } else { chosen.tag };
        plan.reached[index] = plan.reached[index].max(Some(tag));
    }
    Ok(plan)
}

fn next_unexpired<E>(
    class: PriorityClass,
    now: Timestamp,
    plan: &mut ClaimPlan,
    next: &mut impl FnMut(PriorityClass) -> Result<Option<Candidate>, E>,
) -> Result<Option<Candidate>, E> {
    // A claim moves a batch of expired records at most, so that it holds the writer only briefly.
    while plan.expired.len() < BATCH_MAX {
        match next(class)? {
            Some(candidate) if candidate.deadline <= now => plan.expired.push((class, candidate)),
            other => return Ok(other),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
