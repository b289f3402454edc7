//! Enqueue: deduplication, room, the rows of a batch.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use tidegate_algorithms::{Nanos, Timestamp};

use super::operations::{Operation, first_state, instant, to_sql};
use super::pool::{Failure, damaged};
use super::tags::TagRequests;
use crate::error::Fullness;
use crate::queue::EnqueueOutcome;
use crate::record::{NewRecord, RecordId};

/// Expired deduplication keys that one enqueue deletes.
const DEDUP_SWEEP: i64 = 1_000;

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

impl Operation<'_> {
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
}
