//! Claim: which records are taken, and what becomes of those whose time is over.

use std::collections::{HashMap, VecDeque};

use tidegate_algorithms::{Nanos, Timestamp};

use super::operations::{
    CLAIMED, Operation, RECORD_COLUMN_COUNT, RecordRow, count, decode_payload, instant, to_sql,
};
use super::pool::{Failure, damaged};
use crate::queue::{Claim, ClaimBudget, DeadLetterReason, Delivery, Receipt};
use crate::schedule::{CLASSES, Candidate, ClaimPlan, ClassSchedule, plan_claim};
use crate::settings::BATCH_MAX;

/// Ended delays and leases that one claim makes ready; the next claim continues.
const DUE_MAX: i64 = 10_000;
/// The oldest records whose deadline a claim checks, beside those that it meets in order.
const OLDEST_CHECKED: i64 = 16;
/// Candidates of each class beyond the budget, because some of them may have expired.
const SPARE_CANDIDATES: usize = 16;

impl Operation<'_> {
    /// Takes records; returns them and the virtual times that they reach.
    pub(super) async fn claim(
        &mut self,
        budget: &ClaimBudget,
        schedule: &mut ClassSchedule,
    ) -> Result<(Claim, [Option<i64>; CLASSES]), Failure> {
        self.release_due().await?;
        self.expire_oldest().await?;
        let plan = self.plan(budget, schedule).await?;
        let expired: Vec<i64> = plan.expired.iter().map(|(_, one)| one.sequence).collect();
        self.move_to_dead_letters(&expired, DeadLetterReason::Expired, "").await?;
        let reached = plan.reached.map(|tag| tag.map(to_sql));
        let deliveries = self.mark_claimed(&plan, budget).await?;
        self.totals.change_in_flight(deliveries.len() as i64);
        let next_due = if plan.withheld.is_none() && deliveries.len() < budget.records {
            self.next_due().await?
        } else {
            None
        };
        Ok((Claim { deliveries, withheld: plan.withheld, next_due }, reached))
    }

    async fn plan(
        &mut self,
        budget: &ClaimBudget,
        schedule: &mut ClassSchedule,
    ) -> Result<ClaimPlan, Failure> {
        let sql = "SELECT sequence, tag, cost, bytes, waiting_since, deadline FROM records \
                   WHERE queue = $1 AND class = $2 AND state = 0 ORDER BY tag, sequence LIMIT $3 \
                   FOR UPDATE SKIP LOCKED";
        let queue = self.queue.id;
        let wanted = to_sql((budget.records.min(BATCH_MAX) + SPARE_CANDIDATES) as u64);
        let mut candidates: [VecDeque<Candidate>; CLASSES] = Default::default();
        for (class, found) in (0_i64..).zip(&mut candidates) {
            for row in self.query(sql, &[&queue, &class, &wanted]).await? {
                found.push_back(Candidate {
                    sequence: row.try_get(0)?,
                    tag: count(row.try_get(1)?),
                    cost: count(row.try_get(2)?),
                    bytes: count(row.try_get(3)?),
                    waiting_since: instant(row.try_get(4)?),
                    deadline: instant(row.try_get(5)?),
                });
            }
        }
        plan_claim(schedule, budget, self.now, |class| Ok(candidates[class.index()].pop_front()))
    }

    async fn mark_claimed(
        &mut self,
        plan: &ClaimPlan,
        budget: &ClaimBudget,
    ) -> Result<Vec<Delivery>, Failure> {
        if plan.chosen.is_empty() {
            return Ok(Vec::new());
        }
        let lease_ends = self.now.after(Nanos::from(budget.lease));
        let sequences: Vec<i64> = plan.chosen.iter().map(|(_, one)| one.sequence).collect();
        let sql = "UPDATE records r SET state = 2, epoch = r.epoch + 1, due_at = $2 FROM payloads p \
                   WHERE r.sequence = ANY($1) AND p.sequence = r.sequence RETURNING r.sequence, r.class, r.tenant, \
                   r.serial_key, r.cost, r.bytes, r.enqueued_at, r.deadline, r.epoch, r.attempts, r.lapses, r.job, \
                   p.payload";
        let rows = self.query(sql, &[&sequences, &to_sql(lease_ends.as_nanos())]).await?;
        let mut found = HashMap::with_capacity(rows.len());
        for row in &rows {
            let stored = RecordRow::read(row)?;
            let payload: Vec<u8> = row.try_get(RECORD_COLUMN_COUNT)?;
            let (sequence, epoch) = (stored.sequence, stored.epoch);
            let instance = self.queue.database.instance;
            let record = stored.into_record(instance, decode_payload(payload)?)?;
            let receipt = Receipt::of_epoch(record.id, epoch);
            found.insert(sequence, Delivery { receipt, lease_ends, record });
        }
        let in_order = sequences.iter().map(|sequence| found.remove(sequence));
        in_order.collect::<Option<_>>().ok_or_else(|| damaged("the payload of a record"))
    }

    /// Makes records ready whose delay or lease has ended.
    async fn release_due(&mut self) -> Result<(), Failure> {
        let sql = "WITH due AS (SELECT sequence, state FROM records WHERE queue = $1 AND state IN (1, 2) \
                   AND due_at <= $2 ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED) \
                   UPDATE records r SET state = 0, lapses = r.lapses + (due.state = 2)::int FROM due \
                   WHERE r.sequence = due.sequence RETURNING r.sequence, due.state, r.lapses";
        let (queue, now) = (self.queue.id, to_sql(self.now.as_nanos()));
        let lapses_max = i64::from(self.queue.settings.lapses_max);
        let mut lapsed = Vec::new();
        for row in self.query(sql, &[&queue, &now, &DUE_MAX]).await? {
            let (sequence, state, lapses): (i64, i64, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            if state == CLAIMED {
                self.totals.change_in_flight(-1);
                if lapses >= lapses_max {
                    lapsed.push(sequence);
                }
            }
        }
        self.move_to_dead_letters(&lapsed, DeadLetterReason::Lapsed, "").await
    }

    /// Moves the oldest records to the dead letters if their deadline has passed, whatever their class.
    async fn expire_oldest(&mut self) -> Result<(), Failure> {
        let sql = "SELECT sequence FROM records WHERE sequence = ANY(ARRAY(SELECT sequence FROM (SELECT sequence, \
                   state, deadline FROM records WHERE queue = $1 ORDER BY sequence LIMIT $3) oldest \
                   WHERE state <> 2 AND deadline <= $2)) AND state <> 2 FOR UPDATE SKIP LOCKED";
        let (queue, now) = (self.queue.id, to_sql(self.now.as_nanos()));
        let rows = self.query(sql, &[&queue, &now, &OLDEST_CHECKED]).await?;
        let expired = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        self.move_to_dead_letters(&expired, DeadLetterReason::Expired, "").await
    }

    async fn next_due(&mut self) -> Result<Option<Timestamp>, Failure> {
        let sql = "SELECT due_at FROM records WHERE queue = $1 AND state IN (1, 2) ORDER BY due_at LIMIT 1";
        let queue = self.queue.id;
        let rows = self.query(sql, &[&queue]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map(instant))
    }
}
