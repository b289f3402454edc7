//! Enqueue, claim and settle, each within one transaction.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use bytes::Bytes;
use tidegate_algorithms::{Nanos, Timestamp};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement, Transaction};

use super::PostgresQueue;
use super::pool::{Connection, Failure, Session, damaged};
use super::tags::TagRequests;
use super::totals::TotalsChange;
use crate::error::Fullness;
use crate::queue::{
    AttemptCharge, Claim, ClaimBudget, DeadLetterReason, Delivery, EnqueueOutcome, Receipt,
    SettleOutcome, Settlement,
};
use crate::record::{NewRecord, Payload, PriorityClass, Record, RecordId};
use crate::schedule::{CLASSES, Candidate, ClaimPlan, ClassSchedule, plan_claim};
use crate::settings::BATCH_MAX;

/// Ended delays and leases that one claim makes ready; the next claim continues.
const DUE_MAX: i64 = 10_000;
/// The oldest records whose deadline a claim checks, beside those that it meets in order.
const OLDEST_CHECKED: i64 = 16;
/// Candidates of each class beyond the budget, because some of them may have expired.
const SPARE_CANDIDATES: usize = 16;
/// Expired deduplication keys that one enqueue deletes.
const DEDUP_SWEEP: i64 = 1_000;
/// States of a record, as in the embedded store: ready, delayed until `due_at`, claimed until `due_at`, behind another
/// record of its key.
const READY: i64 = 0;
const DELAYED: i64 = 1;
const CLAIMED: i64 = 2;
const BLOCKED: i64 = 3;

/// The columns that [`RecordRow::read`] reads, of `records` and of `dead_letters`.
macro_rules! record_columns {
    () => {
        "sequence, class, tenant, serial_key, cost, bytes, enqueued_at, deadline, epoch, attempts, lapses, job"
    };
}
pub(super) use record_columns;

/// The number of these columns.
pub(super) const RECORD_COLUMN_COUNT: usize = 12;

/// One transaction.
pub(super) struct Operation<'a> {
    transaction: Transaction<'a>,
    statements: &'a mut HashMap<&'static str, Statement>,
    pub(super) queue: &'a PostgresQueue,
    pub(super) now: Timestamp,
    pub(super) totals: TotalsChange,
}

/// The columns that records and dead letters have in common.
#[derive(Debug)]
pub(super) struct RecordRow {
    pub(super) sequence: i64,
    pub(super) class: i64,
    pub(super) tenant: String,
    pub(super) serial_key: Option<String>,
    pub(super) cost: i64,
    pub(super) bytes: i64,
    pub(super) enqueued_at: i64,
    deadline: i64,
    pub(super) epoch: i64,
    attempts: i64,
    lapses: i64,
    pub(super) job: Option<String>,
}

/// The columns of new records, for one statement.
#[derive(Default)]
struct RecordColumns<'a> {
    sequences: Vec<i64>,
    states: Vec<i64>,
    classes: Vec<i64>,
    tags: Vec<i64>,
    positions: Vec<i64>,
    tenants: Vec<&'a str>,
    serial_keys: Vec<Option<&'a str>>,
    costs: Vec<i64>,
    bytes: Vec<i64>,
    waiting_since: Vec<i64>,
    deadlines: Vec<i64>,
    jobs: Vec<Option<&'a str>>,
    payloads: Vec<Bytes>,
}

pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads an instant; the last one stands for "never".
pub(super) fn instant(number: i64) -> Timestamp {
    match u64::try_from(number) {
        Ok(nanos) if number < i64::MAX => Timestamp::from_nanos(nanos),
        Ok(_) => Timestamp::MAX,
        Err(_) => Timestamp::EPOCH,
    }
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

impl RecordRow {
    pub(super) fn read(row: &Row) -> Result<Self, Failure> {
        Ok(RecordRow {
            sequence: row.try_get(0)?,
            class: row.try_get(1)?,
            tenant: row.try_get(2)?,
            serial_key: row.try_get(3)?,
            cost: row.try_get(4)?,
            bytes: row.try_get(5)?,
            enqueued_at: row.try_get(6)?,
            deadline: row.try_get(7)?,
            epoch: row.try_get(8)?,
            attempts: row.try_get(9)?,
            lapses: row.try_get(10)?,
            job: row.try_get(11)?,
        })
    }

    pub(super) fn into_record(self, instance: u32, payload: Payload) -> Result<Record, Failure> {
        let class = usize::try_from(self.class).ok().and_then(PriorityClass::from_index);
        let enqueued_at = instant(self.enqueued_at);
        let deadline = instant(self.deadline);
        Ok(Record {
            id: RecordId::new(enqueued_at, instance, count(self.sequence)),
            tenant: self.tenant,
            cost: count(self.cost),
            class: class.ok_or_else(|| damaged("the class of a record"))?,
            // The empty key orders a strict queue.
            order_key: self.serial_key.filter(|key| !key.is_empty()),
            job: self.job,
            enqueued_at,
            deadline: (deadline != Timestamp::MAX).then_some(deadline),
            attempts: u32::try_from(self.attempts).unwrap_or(u32::MAX),
            lapses: u32::try_from(self.lapses).unwrap_or(u32::MAX),
            payload,
        })
    }
}

pub(super) fn decode_payload(payload: Vec<u8>) -> Result<Payload, Failure> {
    Payload::decode(payload.into()).ok_or_else(|| damaged("the payload of a record"))
}

impl<'a> Operation<'a> {
    pub(super) async fn begin<'b: 'a>(
        session: &'a mut Session<'b>,
        queue: &'a PostgresQueue,
    ) -> Result<Self, Failure> {
        let Connection { client, statements } = session.connection()?;
        let transaction = client.transaction().await?;
        let totals = TotalsChange::default();
        let now = Timestamp::EPOCH;
        let mut operation = Operation { transaction, statements, queue, now, totals };
        operation.now = match &queue.database.clock {
            Some(clock) => clock.now(),
            None => {
                let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint";
                let rows = operation.query(sql, &[]).await?;
                let row = rows.first().ok_or_else(|| damaged("the server's clock"))?;
                instant(row.try_get(0)?)
            }
        };
        Ok(operation)
    }

    pub(super) async fn commit(mut self) -> Result<(), Failure> {
        self.store_totals().await?;
        Ok(self.transaction.commit().await?)
    }

    /// Runs a statement that is prepared once for each connection.
    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Failure> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.transaction.prepare(sql).await?;
                self.statements.insert(sql, statement.clone());
                statement
            }
        };
        Ok(self.transaction.query(&statement, arguments).await?)
    }

    pub(super) async fn execute(
        &mut self,
        sql: &'static str,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<(), Failure> {
        self.query(sql, arguments).await.map(|_| ())
    }

    fn record_id(&self, sequence: i64, enqueued_at: Timestamp) -> RecordId {
        RecordId::new(enqueued_at, self.queue.database.instance, count(sequence))
    }

    pub(super) fn is_own_id(&self, id: RecordId, enqueued_at: i64) -> bool {
        id == self.record_id(to_sql(id.sequence()), instant(enqueued_at))
    }

    /// Serializes with other transactions that add or remove records of these keys.
    pub(super) async fn lock_keys(&mut self, keys: &BTreeSet<String>) -> Result<(), Failure> {
        let queue = self.queue.id;
        for key in keys {
            let sql = "SELECT pg_advisory_xact_lock(hashtextextended($1, $2))::text";
            self.execute(sql, &[key, &queue]).await?;
        }
        Ok(())
    }

    pub(super) async fn take_sequences(&mut self, number: usize) -> Result<Vec<i64>, Failure> {
        let sql = "SELECT nextval('record_sequence') FROM generate_series(1, $1::bigint)";
        let rows = self.query(sql, &[&to_sql(number as u64)]).await?;
        let numbers = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        if numbers.len() == number { Ok(numbers) } else { Err(damaged("the record sequence")) }
    }

    pub(super) async fn enqueue(
        &mut self,
        batch: &[NewRecord],
    ) -> Result<Vec<EnqueueOutcome>, Failure> {
        let now = self.now;
        self.queue.settings.validate_batch(batch, now)?;
        let sequences = self.take_sequences(batch.len()).await?;
        let originals = self.claim_dedup_keys(batch, &sequences).await?;
        let new: Vec<usize> =
            (0..batch.len()).filter(|index| !originals.contains_key(index)).collect();
        let rows = self.check_room(batch, &new).await?;
        self.insert(batch, &new, &sequences).await?;
        self.compact_totals(rows).await?;
        self.tidy_jobs(batch).await?;
        let mut outcomes = Vec::with_capacity(batch.len());
        for (index, sequence) in sequences.iter().enumerate() {
            outcomes.push(match originals.get(&index) {
                Some(original) => EnqueueOutcome::Duplicate(*original),
                None => EnqueueOutcome::Accepted(self.record_id(*sequence, now)),
            });
        }
        Ok(outcomes)
    }

    /// Stores the deduplication keys of a batch; returns the records that repeat a key, with the first id of it.
    async fn claim_dedup_keys(
        &mut self,
        batch: &[NewRecord],
        sequences: &[i64],
    ) -> Result<HashMap<usize, RecordId>, Failure> {
        let mut keyed: Vec<(&str, usize)> = batch
            .iter()
            .enumerate()
            .filter_map(|(index, record)| Some((record.dedup_key.as_deref()?, index)))
            .collect();
        let mut originals = HashMap::new();
        if keyed.is_empty() {
            return Ok(originals);
        }
        // Sorted, so that batches with the same keys wait for each other instead of deadlocking.
        keyed.sort_unstable();
        let now = to_sql(self.now.as_nanos());
        let window = Nanos::from(self.queue.settings.dedup_window);
        let expires = to_sql(self.now.after(window).as_nanos());
        let queue = self.queue.id;
        for (key, index) in keyed {
            // A conflict waits for the other transaction. The row is then its, unless the key has expired.
            let sql = "INSERT INTO dedup_keys VALUES ($1, $2, $3, $4, $5) ON CONFLICT (queue, dedup_key) \
                       DO UPDATE SET \
                       sequence = CASE WHEN dedup_keys.expires_at <= $4 THEN $3 ELSE dedup_keys.sequence END, \
                       enqueued_at = CASE WHEN dedup_keys.expires_at <= $4 THEN $4 ELSE dedup_keys.enqueued_at END, \
                       expires_at = CASE WHEN dedup_keys.expires_at <= $4 THEN $5 ELSE dedup_keys.expires_at END \
                       RETURNING sequence, enqueued_at";
            let rows = self.query(sql, &[&queue, &key, &sequences[index], &now, &expires]).await?;
            let row = rows.first().ok_or_else(|| damaged("a deduplication key"))?;
            let (sequence, at): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            if sequence != sequences[index] {
                originals.insert(index, self.record_id(sequence, instant(at)));
            }
        }
        let sql = "DELETE FROM dedup_keys WHERE ctid = ANY(ARRAY(SELECT ctid FROM dedup_keys \
                   WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))";
        self.execute(sql, &[&now, &DEDUP_SWEEP]).await?;
        Ok(originals)
    }

    async fn check_room(&mut self, batch: &[NewRecord], new: &[usize]) -> Result<i64, Failure> {
        let (stats, rows) = self.stats().await?;
        let sizes = new.iter().map(|index| batch[*index].payload.encoded_len() as u64);
        Fullness::check(&stats, &self.queue.settings, new.len() as u64, sizes.sum())?;
        Ok(rows)
    }

    /// Inserts the records with these indexes.
    async fn insert(
        &mut self,
        batch: &[NewRecord],
        new: &[usize],
        sequences: &[i64],
    ) -> Result<(), Failure> {
        let settings = &self.queue.settings;
        let (queue, now) = (self.queue.id, self.now);
        let keys: BTreeSet<String> = new
            .iter()
            .filter_map(|index| settings.serial_key(&batch[*index]))
            .map(str::to_owned)
            .collect();
        let mut busy_keys = HashSet::new();
        let mut positions = sequences.to_vec();
        if !keys.is_empty() {
            self.lock_keys(&keys).await?;
            busy_keys = self.find_busy_keys(&keys).await?;
            // Numbers that were taken after the lock are in the order of the lock.
            positions = self.take_sequences(batch.len()).await?;
        }
        let mut requests = TagRequests::default();
        for index in new {
            let record = &batch[*index];
            requests.push(*index, record.class.index() as i64, &record.tenant, record.cost);
        }
        let tags = self.assign_tags(requests).await?;
        let mut columns = RecordColumns::default();
        for index in new {
            let record = &batch[*index];
            let settings = &self.queue.settings;
            let serial_key = settings.serial_key(record);
            let blocked = serial_key.is_some_and(|key| !busy_keys.insert(key.to_owned()));
            let waiting_since = record.not_before.unwrap_or(now).max(now);
            let payload = record.payload.encode();
            let class = record.class.index() as i64;
            let (bytes, cost) = (to_sql(payload.len() as u64), to_sql(record.cost));
            self.totals.add_live(class, bytes, cost);
            columns.sequences.push(sequences[*index]);
            columns.states.push(first_state(blocked, waiting_since, now));
            columns.classes.push(class);
            columns.tags.push(tags.get(index).copied().unwrap_or(0));
            columns.positions.push(positions[*index]);
            columns.tenants.push(&record.tenant);
            columns.serial_keys.push(serial_key);
            columns.costs.push(cost);
            columns.bytes.push(bytes);
            columns.waiting_since.push(to_sql(waiting_since.as_nanos()));
            let deadline = settings.deadline(record.deadline, waiting_since);
            columns.deadlines.push(to_sql(deadline.as_nanos()));
            columns.jobs.push(record.job.as_deref());
            columns.payloads.push(payload);
        }
        self.insert_columns(&columns, queue, now).await
    }

    /// One statement for all records of a batch: a statement each would take as many round trips.
    async fn insert_columns(
        &mut self,
        columns: &RecordColumns<'_>,
        queue: i64,
        now: Timestamp,
    ) -> Result<(), Failure> {
        if columns.sequences.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO records SELECT sequence, $1, state, class, tag, position, tenant, serial_key, cost, \
                   bytes, $2, waiting_since, waiting_since, deadline, 0, 0, 0, job FROM unnest($3::bigint[], $4::bigint[], \
                   $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], \
                   $12::bigint[], $13::bigint[], $14::text[]) AS new (sequence, state, class, tag, position, tenant, \
                   serial_key, cost, bytes, waiting_since, deadline, job)";
        self.execute(
            sql,
            &[
                &queue,
                &to_sql(now.as_nanos()),
                &columns.sequences,
                &columns.states,
                &columns.classes,
                &columns.tags,
                &columns.positions,
                &columns.tenants,
                &columns.serial_keys,
                &columns.costs,
                &columns.bytes,
                &columns.waiting_since,
                &columns.deadlines,
                &columns.jobs,
            ],
        )
        .await?;
        let payloads: Vec<&[u8]> = columns.payloads.iter().map(AsRef::as_ref).collect();
        let sql = "INSERT INTO payloads SELECT * FROM unnest($1::bigint[], $2::bytea[])";
        self.execute(sql, &[&columns.sequences, &payloads]).await
    }

    /// The keys that have live records.
    pub(super) async fn find_busy_keys(
        &mut self,
        keys: &BTreeSet<String>,
    ) -> Result<HashSet<String>, Failure> {
        let sql =
            "SELECT DISTINCT serial_key FROM records WHERE queue = $1 AND serial_key = ANY($2)";
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let queue = self.queue.id;
        let rows = self.query(sql, &[&queue, &keys]).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

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

    pub(super) async fn settle(
        &mut self,
        settlements: &[(Receipt, Settlement)],
    ) -> Result<Vec<SettleOutcome>, Failure> {
        let mut claims = self.find_claims(settlements).await?;
        let leaving = settlements.iter().filter(|(_, settlement)| {
            matches!(settlement, Settlement::Ack | Settlement::DeadLetter { .. })
        });
        let keys = leaving
            .filter_map(|(receipt, _)| claims.get(&receipt_key(receipt)?)?.0.serial_key.clone());
        let keys: BTreeSet<String> = keys.collect();
        self.lock_keys(&keys).await?;
        let mut outcomes = Vec::with_capacity(settlements.len());
        let mut sent = Vec::new();
        for (receipt, settlement) in settlements {
            let found = receipt_key(receipt).and_then(|key| claims.remove(&key));
            let Some((record, state)) = found else {
                outcomes.push(SettleOutcome::StaleReceipt);
                continue;
            };
            outcomes.push(SettleOutcome::Applied);
            if state == CLAIMED {
                self.totals.change_in_flight(-1);
            }
            match settlement {
                Settlement::Ack => sent.push(record),
                Settlement::Nack { not_before, charge } => {
                    self.return_record(record.sequence, *not_before, *charge).await?;
                }
                Settlement::Extend { lease } => {
                    self.totals.change_in_flight(1);
                    let ends = to_sql(self.now.after(Nanos::from(*lease)).as_nanos());
                    let sql = "UPDATE records SET state = 2, due_at = $2 WHERE sequence = $1";
                    self.execute(sql, &[&record.sequence, &ends]).await?;
                    // The receipt stays valid, also for the rest of this batch.
                    claims.insert((record.sequence, record.epoch), (record, CLAIMED));
                }
                Settlement::DeadLetter { detail } => {
                    let detail = DeadLetterReason::cut(detail);
                    let reason = DeadLetterReason::Rejected;
                    self.move_to_dead_letters(&[record.sequence], reason, &detail).await?;
                }
            }
        }
        self.remove_sent(&sent).await?;
        Ok(outcomes)
    }

    /// Locks the rows of receipts whose records were not settled or claimed again since, each with its state.
    async fn find_claims(
        &mut self,
        settlements: &[(Receipt, Settlement)],
    ) -> Result<HashMap<(i64, i64), (RecordRow, i64)>, Failure> {
        let receipts: Vec<(i64, i64)> =
            settlements.iter().filter_map(|(receipt, _)| receipt_key(receipt)).collect();
        let (sequences, epochs): (Vec<i64>, Vec<i64>) = receipts.into_iter().unzip();
        let queue = self.queue.id;
        let sql = concat!(
            "SELECT ",
            record_columns!(),
            ", state FROM records WHERE queue = $1 AND (sequence, epoch) IN \
             (SELECT * FROM unnest($2::bigint[], $3::bigint[])) ORDER BY sequence FOR UPDATE"
        );
        let mut claims = HashMap::new();
        for row in self.query(sql, &[&queue, &sequences, &epochs]).await? {
            let record = RecordRow::read(&row)?;
            let state: i64 = row.try_get(RECORD_COLUMN_COUNT)?;
            claims.insert((record.sequence, record.epoch), (record, state));
        }
        // A receipt of another store has other ids.
        for (receipt, _) in settlements {
            if let Some(key) = receipt_key(receipt)
                && let Some((record, _)) = claims.get(&key)
                && !self.is_own_id(receipt.record(), record.enqueued_at)
            {
                claims.remove(&key);
            }
        }
        Ok(claims)
    }

    async fn return_record(
        &mut self,
        sequence: i64,
        not_before: Timestamp,
        charge: AttemptCharge,
    ) -> Result<(), Failure> {
        let state = first_state(false, not_before, self.now);
        let failed = i64::from(charge == AttemptCharge::Failed);
        let due = to_sql(not_before.as_nanos());
        let sql = "UPDATE records SET state = $2, due_at = $3, attempts = attempts + $4, epoch = epoch + 1 \
                   WHERE sequence = $1";
        self.execute(sql, &[&sequence, &state, &due, &failed]).await
    }

    async fn remove_sent(&mut self, sent: &[RecordRow]) -> Result<(), Failure> {
        if sent.is_empty() {
            return Ok(());
        }
        let sequences: Vec<i64> = sent.iter().map(|record| record.sequence).collect();
        self.execute("DELETE FROM records WHERE sequence = ANY($1)", &[&sequences]).await?;
        self.execute("DELETE FROM payloads WHERE sequence = ANY($1)", &[&sequences]).await?;
        for record in sent {
            self.totals.remove_live(record.class, record.bytes, record.cost);
            if let Some(key) = &record.serial_key {
                self.unblock(key).await?;
            }
        }
        Ok(())
    }

    /// The first record of a key may be claimed after the one before it has left. The key must be locked.
    pub(super) async fn unblock(&mut self, key: &str) -> Result<(), Failure> {
        let sql = "UPDATE records SET state = CASE WHEN due_at > $3 THEN 1 ELSE 0 END WHERE state = 3 \
                   AND sequence = (SELECT sequence FROM records WHERE queue = $1 AND serial_key = $2 \
                   ORDER BY position LIMIT 1)";
        let (queue, now) = (self.queue.id, to_sql(self.now.as_nanos()));
        self.execute(sql, &[&queue, &key, &now]).await
    }
}

/// The sequence and the epoch of a receipt; `None` if this store did not make it.
fn receipt_key(receipt: &Receipt) -> Option<(i64, i64)> {
    Some((to_sql(receipt.record().sequence()), receipt.epoch()?))
}

/// The state of a record that joins its key or is returned.
pub(super) fn first_state(blocked: bool, waiting_since: Timestamp, now: Timestamp) -> i64 {
    match () {
        () if blocked => BLOCKED,
        () if waiting_since > now => DELAYED,
        () => READY,
    }
}
