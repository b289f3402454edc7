//! Enqueue, claim, settle and statistics, within the writer's transaction.

use bytes::Bytes;
use rusqlite::{CachedStatement, OptionalExtension, Row, Rows, params};
use tidegate_algorithms::{Nanos, Timestamp};

use super::rows::{EncodedClaim, RECORD_COLUMN_COUNT, RECORD_COLUMNS, StoredRecord};
use super::schema::record_state::{BLOCKED, CLAIMED, DELAYED, READY};
use super::state::{Engine, count, instant, to_sql};
use crate::error::{Fullness, QueueError};
use crate::queue::{
    AttemptCharge, ClaimBudget, DeadLetterReason, EnqueueOutcome, QueueStats, Receipt,
    SettleOutcome, Settlement,
};
use crate::record::{NewRecord, PriorityClass};
use crate::schedule::{CLASSES, Candidate, ClaimPlan, plan_claim};

/// Ended delays and leases that one claim makes ready; the next claim continues.
const DUE_MAX: i64 = 10_000;
/// The oldest records whose deadline a claim checks, beside those that it meets in order.
const OLDEST_CHECKED: i64 = 16;
/// Expired deduplication keys that one enqueue deletes.
const DEDUP_SWEEP: i64 = 1_000;

/// A claim that ended or goes on.
struct ClaimedRow {
    record: StoredRecord,
    state: i64,
}

impl Engine {
    pub(super) fn enqueue(
        &mut self,
        index: usize,
        batch: &[NewRecord],
        payloads: &[Bytes],
    ) -> Result<Vec<EnqueueOutcome>, QueueError> {
        let now = self.clock.now();
        let duplicates = self.find_duplicates(index, batch, now)?;
        self.check_room(index, batch, &duplicates, payloads)?;
        let mut outcomes: Vec<EnqueueOutcome> = Vec::with_capacity(batch.len());
        for ((record, payload), duplicate) in batch.iter().zip(payloads).zip(duplicates) {
            outcomes.push(match duplicate {
                Some(Original::Stored(outcome)) => outcome,
                Some(Original::InBatch(first)) => EnqueueOutcome::Duplicate(outcomes[first].id()),
                None => self.insert(index, record, payload, now)?,
            });
        }
        self.forget_jobs(index, batch, now)?;
        if batch.iter().any(|record| record.dedup_key.is_some()) {
            let sql = "DELETE FROM dedup_keys WHERE (queue, dedup_key) IN (SELECT queue, dedup_key \
                       FROM dedup_keys WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
            self.execute(sql, params![to_sql(now.as_nanos()), DEDUP_SWEEP])?;
        }
        Ok(outcomes)
    }

    /// For each record of the batch the record that was stored with its deduplication key before.
    fn find_duplicates(
        &self,
        index: usize,
        batch: &[NewRecord],
        now: Timestamp,
    ) -> Result<Vec<Option<Original>>, QueueError> {
        let fail = |error| self.fail(error);
        let sql = "SELECT sequence, enqueued_at FROM dedup_keys \
                   WHERE queue = ?1 AND dedup_key = ?2 AND expires_at > ?3";
        let mut seen: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
        let mut found = Vec::with_capacity(batch.len());
        for (position, record) in batch.iter().enumerate() {
            let Some(key) = record.dedup_key.as_deref() else {
                found.push(None);
                continue;
            };
            if let Some(first) = seen.get(key) {
                found.push(Some(Original::InBatch(*first)));
                continue;
            }
            let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
            let arguments = params![self.queues[index].id, key, to_sql(now.as_nanos())];
            let stored = statement
                .query_row(arguments, |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
                .optional()
                .map_err(fail)?;
            match stored {
                Some((sequence, at)) => {
                    let id = self.record_id(sequence, instant(at));
                    found.push(Some(Original::Stored(EnqueueOutcome::Duplicate(id))));
                }
                None => {
                    seen.insert(key, position);
                    found.push(None);
                }
            }
        }
        Ok(found)
    }

    fn check_room(
        &self,
        index: usize,
        batch: &[NewRecord],
        duplicates: &[Option<Original>],
        payloads: &[Bytes],
    ) -> Result<(), QueueError> {
        let new = payloads.iter().zip(duplicates).filter(|(_, original)| original.is_none());
        let (mut batch_records, mut batch_bytes) = (0_u64, 0_u64);
        for (payload, _) in new {
            batch_records += 1;
            batch_bytes = batch_bytes.saturating_add(payload.len() as u64);
        }
        debug_assert!(batch_records <= batch.len() as u64, "a record is counted once");
        let stats = self.stats(index)?;
        Fullness::check(&stats, &self.queues[index].settings, batch_records, batch_bytes)
    }

    fn insert(
        &mut self,
        index: usize,
        record: &NewRecord,
        payload: &Bytes,
        now: Timestamp,
    ) -> Result<EnqueueOutcome, QueueError> {
        let sequence = self.take_sequence();
        let waiting_since = record.not_before.unwrap_or(now).max(now);
        let queue = &mut self.queues[index];
        let id = queue.id;
        let class = record.class.index();
        let tag = queue.tags[class].assign(&record.tenant, record.cost);
        queue.totals.classes[class].add(payload.len() as u64, record.cost);
        let deadline = queue.settings.deadline(record.deadline, waiting_since);
        let expires = now.after(Nanos::from(queue.settings.dedup_window));
        let serial_key = queue.settings.serial_key(record).map(str::to_owned);
        let state = self.first_state(id, serial_key.as_deref(), waiting_since, now)?;
        let sql = "INSERT INTO records VALUES \
                   (?1, ?2, ?3, ?4, ?5, ?1, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12, 0, 0, 0, ?13)";
        self.execute(
            sql,
            params![
                sequence,
                id,
                state,
                class as i64,
                to_sql(tag),
                record.tenant,
                serial_key,
                to_sql(record.cost),
                payload.len() as i64,
                to_sql(now.as_nanos()),
                to_sql(waiting_since.as_nanos()),
                to_sql(deadline.as_nanos()),
                record.job,
            ],
        )?;
        let sql = "INSERT INTO payloads VALUES (?1, ?2)";
        self.execute(sql, params![sequence, payload.as_ref()])?;
        if let Some(key) = &record.dedup_key {
            let sql = "INSERT INTO dedup_keys VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET \
                       sequence = ?3, enqueued_at = ?4, expires_at = ?5";
            let (at, expires) = (to_sql(now.as_nanos()), to_sql(expires.as_nanos()));
            self.execute(sql, params![id, key, sequence, at, expires])?;
        }
        Ok(EnqueueOutcome::Accepted(self.record_id(sequence, now)))
    }

    /// The state of a record that joins its key.
    pub(super) fn first_state(
        &self,
        queue: i64,
        serial_key: Option<&str>,
        waiting_since: Timestamp,
        now: Timestamp,
    ) -> Result<i64, QueueError> {
        if let Some(key) = serial_key {
            let sql = "SELECT 1 FROM records INDEXED BY records_of_key \
                       WHERE queue = ?1 AND serial_key = ?2 LIMIT 1";
            let fail = |error| self.fail(error);
            let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
            if statement.exists(params![queue, key]).map_err(fail)? {
                return Ok(BLOCKED);
            }
        }
        Ok(if waiting_since > now { DELAYED } else { READY })
    }

    pub(super) fn claim(
        &mut self,
        index: usize,
        budget: &ClaimBudget,
    ) -> Result<EncodedClaim, QueueError> {
        let now = self.clock.now();
        self.release_due(index, now)?;
        self.expire_oldest(index, now)?;
        let plan = self.plan(index, budget, now)?;
        for (_, candidate) in &plan.expired {
            self.move_to_dead_letters(
                index,
                candidate.sequence,
                DeadLetterReason::Expired,
                "",
                now,
            )?;
        }
        let lease_ends = now.after(Nanos::from(budget.lease));
        let mut claim = EncodedClaim { withheld: plan.withheld, ..EncodedClaim::default() };
        for (tags, reached) in self.queues[index].tags.iter_mut().zip(plan.reached) {
            tags.advance(reached.unwrap_or(0));
        }
        for (_, candidate) in &plan.chosen {
            let (record, payload) = self.mark_claimed(candidate.sequence, lease_ends)?;
            claim.push(self, record, lease_ends, payload)?;
        }
        let taken = plan.chosen.len() as u64;
        let totals = &mut self.queues[index].totals;
        totals.in_flight = totals.in_flight.saturating_add(taken);
        if claim.withheld.is_none() && plan.chosen.len() < budget.records {
            claim.next_due = self.next_due(index)?;
        }
        Ok(claim)
    }

    fn plan(
        &mut self,
        index: usize,
        budget: &ClaimBudget,
        now: Timestamp,
    ) -> Result<ClaimPlan, QueueError> {
        let Engine { connection, queues, path, .. } = self;
        let queue = &mut queues[index];
        let sql = "SELECT sequence, tag, cost, bytes, waiting_since, deadline FROM records \
                   INDEXED BY records_ready WHERE queue = ?1 AND class = ?2 AND state = 0 \
                   ORDER BY tag, sequence";
        let planned = (|| {
            // One cursor for each class, so that only records that are taken are read.
            let mut statements: Vec<CachedStatement<'_>> = Vec::with_capacity(CLASSES);
            for _ in 0..CLASSES {
                statements.push(connection.prepare_cached(sql)?);
            }
            let mut cursors: Vec<Rows<'_>> = Vec::with_capacity(CLASSES);
            for (class, statement) in (0_i64..).zip(&mut statements) {
                cursors.push(statement.query(params![queue.id, class])?);
            }
            plan_claim(&mut queue.schedule, budget, now, |class: PriorityClass| {
                let cursor = &mut cursors[class.index()];
                cursor.next()?.map(read_candidate).transpose()
            })
        })();
        planned.map_err(|error| tidegate_data_dir::DataDirError::from_sqlite(path, error).into())
    }

    fn mark_claimed(
        &self,
        sequence: i64,
        lease_ends: Timestamp,
    ) -> Result<(StoredRecord, Vec<u8>), QueueError> {
        let fail = |error| self.fail(error);
        let sql = format!(
            "UPDATE records SET state = {CLAIMED}, epoch = epoch + 1, due_at = ?2 WHERE sequence = ?1 \
             RETURNING {RECORD_COLUMNS}"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(fail)?;
        let ends = to_sql(lease_ends.as_nanos());
        let record =
            statement.query_row(params![sequence, ends], StoredRecord::read).map_err(fail)?;
        let sql = "SELECT payload FROM payloads WHERE sequence = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
        let payload = statement.query_row([sequence], |row| row.get(0)).optional().map_err(fail)?;
        let payload = payload.ok_or_else(|| self.damaged("the payload of a record"))?;
        Ok((record, payload))
    }

    /// Makes records ready whose delay or lease has ended.
    fn release_due(&mut self, index: usize, now: Timestamp) -> Result<(), QueueError> {
        let fail = |error| self.fail(error);
        let sql = "SELECT sequence, state, lapses FROM records INDEXED BY records_due \
                   WHERE queue = ?1 AND state IN (1, 2) AND due_at <= ?2 ORDER BY due_at LIMIT ?3";
        let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
        let arguments = params![self.queues[index].id, to_sql(now.as_nanos()), DUE_MAX];
        let due: Vec<(i64, i64, u32)> = statement
            .query_map(arguments, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .and_then(Iterator::collect)
            .map_err(fail)?;
        drop(statement);
        for (sequence, state, lapses) in due {
            let lapsed = i64::from(state == CLAIMED);
            let sql = "UPDATE records SET state = 0, lapses = lapses + ?2 WHERE sequence = ?1";
            self.execute(sql, params![sequence, lapsed])?;
            if state == CLAIMED {
                let queue = &mut self.queues[index];
                queue.totals.in_flight = queue.totals.in_flight.saturating_sub(1);
                if lapses.saturating_add(1) >= queue.settings.lapses_max {
                    let reason = DeadLetterReason::Lapsed;
                    self.move_to_dead_letters(index, sequence, reason, "", now)?;
                }
            }
        }
        Ok(())
    }

    /// Moves the oldest records to the dead letters if their deadline has passed, whatever their class.
    fn expire_oldest(&mut self, index: usize, now: Timestamp) -> Result<(), QueueError> {
        let fail = |error| self.fail(error);
        let sql = "SELECT sequence, state, deadline FROM records INDEXED BY records_of_queue \
                   WHERE queue = ?1 ORDER BY sequence LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
        let oldest: Vec<(i64, i64, i64)> = statement
            .query_map(params![self.queues[index].id, OLDEST_CHECKED], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .and_then(Iterator::collect)
            .map_err(fail)?;
        drop(statement);
        for (sequence, state, deadline) in oldest {
            if state != CLAIMED && instant(deadline) <= now {
                let reason = DeadLetterReason::Expired;
                self.move_to_dead_letters(index, sequence, reason, "", now)?;
            }
        }
        Ok(())
    }

    fn next_due(&self, index: usize) -> Result<Option<Timestamp>, QueueError> {
        let fail = |error| self.fail(error);
        let sql = "SELECT due_at FROM records INDEXED BY records_due \
                   WHERE queue = ?1 AND state IN (1, 2) ORDER BY due_at LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
        let found: Option<i64> = statement
            .query_row([self.queues[index].id], |row| row.get(0))
            .optional()
            .map_err(fail)?;
        Ok(found.map(instant))
    }

    pub(super) fn settle(
        &mut self,
        index: usize,
        settlements: &[(Receipt, Settlement)],
    ) -> Result<Vec<SettleOutcome>, QueueError> {
        let now = self.clock.now();
        let mut outcomes = Vec::with_capacity(settlements.len());
        for (receipt, settlement) in settlements {
            outcomes.push(match self.find_claimed(index, receipt)? {
                Some(row) => {
                    self.settle_one(index, &row, settlement, now)?;
                    SettleOutcome::Applied
                }
                None => SettleOutcome::StaleReceipt,
            });
        }
        Ok(outcomes)
    }

    /// The row of a receipt, if the record was not settled or claimed again since.
    fn find_claimed(
        &self,
        index: usize,
        receipt: &Receipt,
    ) -> Result<Option<ClaimedRow>, QueueError> {
        let fail = |error| self.fail(error);
        let Some(epoch) = receipt.epoch() else { return Ok(None) };
        let sql = format!(
            "SELECT {RECORD_COLUMNS}, state FROM records WHERE sequence = ?1 AND queue = ?2 AND epoch = ?3"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(fail)?;
        let sequence = to_sql(receipt.record().sequence());
        let read = |row: &Row<'_>| {
            Ok(ClaimedRow {
                record: StoredRecord::read(row)?,
                state: row.get(RECORD_COLUMN_COUNT)?,
            })
        };
        let found = statement
            .query_row(params![sequence, self.queues[index].id, epoch], read)
            .optional()
            .map_err(fail)?;
        Ok(found.filter(|row| self.is_own_id(receipt.record(), row.record.enqueued_at)))
    }

    fn settle_one(
        &mut self,
        index: usize,
        row: &ClaimedRow,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Result<(), QueueError> {
        let sequence = row.record.sequence;
        let totals = &mut self.queues[index].totals;
        if row.state == CLAIMED {
            totals.in_flight = totals.in_flight.saturating_sub(1);
        }
        match settlement {
            Settlement::Ack => {
                let class = row.record.class(self)?;
                let totals = &mut self.queues[index].totals;
                totals.classes[class.index()].remove(row.record.bytes, row.record.cost);
                self.execute("DELETE FROM records WHERE sequence = ?1", [sequence])?;
                self.execute("DELETE FROM payloads WHERE sequence = ?1", [sequence])?;
                self.unblock(index, row.record.serial_key.as_deref(), now)
            }
            Settlement::Nack { not_before, charge } => {
                let state = if *not_before > now { DELAYED } else { READY };
                let failed = i64::from(*charge == AttemptCharge::Failed);
                let sql = "UPDATE records SET state = ?2, due_at = ?3, attempts = attempts + ?4, \
                           epoch = epoch + 1 WHERE sequence = ?1";
                let due = to_sql(not_before.as_nanos());
                self.execute(sql, params![sequence, state, due, failed])
            }
            Settlement::Extend { lease } => {
                totals.in_flight = totals.in_flight.saturating_add(1);
                let ends = to_sql(now.after(Nanos::from(*lease)).as_nanos());
                let sql = "UPDATE records SET state = 2, due_at = ?2 WHERE sequence = ?1";
                self.execute(sql, params![sequence, ends])
            }
            Settlement::DeadLetter { detail } => {
                let detail = DeadLetterReason::cut(detail);
                let reason = DeadLetterReason::Rejected;
                self.move_to_dead_letters(index, sequence, reason, &detail, now)
            }
        }
    }

    /// The first record of a key may be claimed after the one before it has left.
    pub(super) fn unblock(
        &mut self,
        index: usize,
        serial_key: Option<&str>,
        now: Timestamp,
    ) -> Result<(), QueueError> {
        let Some(key) = serial_key else { return Ok(()) };
        let sql = "UPDATE records SET state = CASE WHEN due_at > ?3 THEN 1 ELSE 0 END \
                   WHERE state = 3 AND sequence = (SELECT sequence FROM records \
                   INDEXED BY records_of_key WHERE queue = ?1 AND serial_key = ?2 \
                   ORDER BY position LIMIT 1)";
        self.execute(sql, params![self.queues[index].id, key, to_sql(now.as_nanos())])
    }

    pub(super) fn stats(&self, index: usize) -> Result<QueueStats, QueueError> {
        let fail = |error| self.fail(error);
        let queue = &self.queues[index];
        let sql = "SELECT enqueued_at FROM records INDEXED BY records_of_queue \
                   WHERE queue = ?1 ORDER BY sequence LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
        let oldest: Option<i64> =
            statement.query_row([queue.id], |row| row.get(0)).optional().map_err(fail)?;
        Ok(QueueStats {
            classes: queue.totals.classes,
            in_flight: queue.totals.in_flight,
            dead_records: queue.totals.dead.records,
            dead_bytes: queue.totals.dead.bytes,
            oldest: oldest.map(instant),
        })
    }

    pub(super) fn execute(
        &self,
        sql: &str,
        arguments: impl rusqlite::Params,
    ) -> Result<(), QueueError> {
        let done = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(arguments));
        done.map(|_| ()).map_err(|error| self.fail(error))
    }
}

/// The record that a duplicate repeats.
enum Original {
    /// It was stored before.
    Stored(EnqueueOutcome),
    /// It stands earlier in the batch, at this index.
    InBatch(usize),
}

fn read_candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    Ok(Candidate {
        sequence: row.get(0)?,
        tag: count(row.get(1)?),
        cost: count(row.get(2)?),
        bytes: count(row.get(3)?),
        waiting_since: instant(row.get(4)?),
        deadline: instant(row.get(5)?),
    })
}
