//! Dead letters: how records become some, and how operators list, redrive and purge them.

use std::collections::BTreeSet;

use tokio_postgres::Row;

use super::operations::{
    Operation, RECORD_COLUMN_COUNT, RecordRow, decode_payload, first_state, instant,
    record_columns, to_sql,
};
use super::pool::{Failure, damaged};
use super::tags::TagRequests;
use crate::queue::{DeadLetter, DeadLetterReason, DeadLetterSelection};
use crate::record::{Payload, RecordId};
use crate::settings::BATCH_MAX;

impl Operation<'_> {
    /// Moves live records whose rows are locked to the dead letters. Their payloads stay where they are.
    pub(super) async fn move_to_dead_letters(
        &mut self,
        sequences: &[i64],
        reason: DeadLetterReason,
        detail: &str,
    ) -> Result<(), Failure> {
        if sequences.is_empty() {
            return Ok(());
        }
        let sql = "SELECT DISTINCT serial_key FROM records WHERE sequence = ANY($1) AND serial_key IS NOT NULL";
        let rows = self.query(sql, &[&sequences]).await?;
        let keys: BTreeSet<String> =
            rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        self.lock_keys(&keys).await?;
        let sql = "WITH gone AS (DELETE FROM records WHERE sequence = ANY($1) RETURNING *) \
                   INSERT INTO dead_letters SELECT sequence, queue, class, tenant, serial_key, cost, bytes, \
                   enqueued_at, deadline, epoch, attempts, lapses, $2, $3, $4, job FROM gone \
                   RETURNING class, bytes, cost";
        let now = to_sql(self.now.as_nanos());
        for row in self.query(sql, &[&sequences, &now, &reason.name(), &detail]).await? {
            let (class, bytes, cost): (i64, i64, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            self.totals.remove_live(class, bytes, cost);
            self.totals.add_dead(bytes, cost);
        }
        for key in &keys {
            self.unblock(key).await?;
        }
        Ok(())
    }

    pub(super) async fn list_dead_letters(
        &mut self,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Failure> {
        let sql = concat!(
            "SELECT ",
            record_columns!(),
            ", died_at, reason, detail FROM dead_letters WHERE queue = $1 AND sequence > $2 \
             ORDER BY sequence LIMIT $3"
        );
        let from = after.map_or(0, |id| to_sql(id.sequence()));
        let limit = to_sql(limit.min(BATCH_MAX) as u64);
        let queue = self.queue.id;
        let rows = self.query(sql, &[&queue, &from, &limit]).await?;
        rows.iter().map(|row| self.read_dead_letter(row, Payload::default())).collect()
    }

    pub(super) async fn show_dead_letter(
        &mut self,
        id: RecordId,
    ) -> Result<Option<DeadLetter>, Failure> {
        let sql = concat!(
            "SELECT ",
            record_columns!(),
            ", died_at, reason, detail, payload FROM dead_letters JOIN payloads USING (sequence) \
             WHERE queue = $1 AND sequence = $2"
        );
        let queue = self.queue.id;
        let rows = self.query(sql, &[&queue, &to_sql(id.sequence())]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let payload = decode_payload(row.try_get(RECORD_COLUMN_COUNT + 3)?)?;
        let found = self.read_dead_letter(row, payload)?;
        Ok(Some(found).filter(|found| found.record.id == id))
    }

    fn read_dead_letter(&self, row: &Row, payload: Payload) -> Result<DeadLetter, Failure> {
        let stored = RecordRow::read(row)?;
        let reason: String = row.try_get(RECORD_COLUMN_COUNT + 1)?;
        Ok(DeadLetter {
            bytes: u64::try_from(stored.bytes).unwrap_or(0),
            record: stored.into_record(self.queue.database.instance, payload)?,
            died_at: instant(row.try_get(RECORD_COLUMN_COUNT)?),
            reason: DeadLetterReason::from_name(&reason)
                .ok_or_else(|| damaged("the reason of a dead letter"))?,
            detail: row.try_get(RECORD_COLUMN_COUNT + 2)?,
        })
    }

    /// Enqueues dead letters again: same id, last in the order of their key, no attempts, a new deadline.
    pub(super) async fn redrive(
        &mut self,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<u64, Failure> {
        let records = self.delete_dead_letters(selection, limit).await?;
        let keys: BTreeSet<String> =
            records.iter().filter_map(|record| record.serial_key.clone()).collect();
        self.lock_keys(&keys).await?;
        let mut busy_keys = self.find_busy_keys(&keys).await?;
        let positions = self.take_sequences(records.len()).await?;
        let mut requests = TagRequests::default();
        for (index, record) in records.iter().enumerate() {
            let cost = u64::try_from(record.cost).unwrap_or(0);
            requests.push(index, record.class, &record.tenant, cost);
        }
        let tags = self.assign_tags(requests).await?;
        let (queue, now) = (self.queue.id, self.now);
        let deadline = to_sql(self.queue.settings.deadline(None, now).as_nanos());
        for (index, (record, position)) in records.iter().zip(positions).enumerate() {
            let key = record.serial_key.as_ref();
            let blocked = key.is_some_and(|key| !busy_keys.insert(key.clone()));
            let state = first_state(blocked, now, now);
            self.totals.remove_dead(record.bytes, record.cost);
            self.totals.add_live(record.class, record.bytes, record.cost);
            let sql = "INSERT INTO records VALUES \
                       ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14, 0, 0, $15)";
            self.execute(
                sql,
                &[
                    &record.sequence,
                    &queue,
                    &state,
                    &record.class,
                    &tags.get(&index).copied().unwrap_or(0),
                    &position,
                    &record.tenant,
                    &record.serial_key,
                    &record.cost,
                    &record.bytes,
                    &record.enqueued_at,
                    &to_sql(now.as_nanos()),
                    &deadline,
                    // A receipt from before stays stale.
                    &record.epoch.saturating_add(1),
                    &record.job,
                ],
            )
            .await?;
        }
        Ok(records.len() as u64)
    }

    pub(super) async fn purge(
        &mut self,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<u64, Failure> {
        let records = self.delete_dead_letters(selection, limit).await?;
        let sequences: Vec<i64> = records.iter().map(|record| record.sequence).collect();
        self.execute("DELETE FROM payloads WHERE sequence = ANY($1)", &[&sequences]).await?;
        for record in &records {
            self.totals.remove_dead(record.bytes, record.cost);
        }
        self.count_purged(&records).await?;
        Ok(records.len() as u64)
    }

    /// Deletes the rows of the selected dead letters and returns them, the oldest first.
    async fn delete_dead_letters(
        &mut self,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<Vec<RecordRow>, Failure> {
        let queue = self.queue.id;
        let rows = to_sql(limit.min(BATCH_MAX) as u64);
        let found = match selection {
            DeadLetterSelection::All => {
                let sql = "SELECT sequence, enqueued_at FROM dead_letters WHERE queue = $1 ORDER BY sequence LIMIT $2 \
                           FOR UPDATE SKIP LOCKED";
                self.query(sql, &[&queue, &rows]).await?
            }
            DeadLetterSelection::Before(instant) => {
                let sql = "SELECT sequence, enqueued_at FROM dead_letters WHERE queue = $1 AND died_at < $3 \
                           ORDER BY sequence LIMIT $2 FOR UPDATE SKIP LOCKED";
                self.query(sql, &[&queue, &rows, &to_sql(instant.as_nanos())]).await?
            }
            DeadLetterSelection::Ids(ids) => {
                let sequences: Vec<i64> = ids.iter().map(|id| to_sql(id.sequence())).collect();
                let sql = "SELECT sequence, enqueued_at FROM dead_letters WHERE queue = $1 AND sequence = ANY($2) \
                           ORDER BY sequence LIMIT $3 FOR UPDATE SKIP LOCKED";
                self.query(sql, &[&queue, &sequences, &rows]).await?
            }
        };
        let mut sequences: Vec<i64> = Vec::with_capacity(found.len());
        for row in &found {
            let (sequence, enqueued_at): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let own = match selection {
                DeadLetterSelection::Ids(ids) => ids.iter().any(|id| {
                    to_sql(id.sequence()) == sequence && self.is_own_id(*id, enqueued_at)
                }),
                DeadLetterSelection::All | DeadLetterSelection::Before(_) => true,
            };
            if own {
                sequences.push(sequence);
            }
        }
        let sql = concat!(
            "DELETE FROM dead_letters WHERE sequence = ANY($1) RETURNING ",
            record_columns!()
        );
        let deleted = self.query(sql, &[&sequences]).await?;
        let mut records =
            deleted.iter().map(RecordRow::read).collect::<Result<Vec<_>, Failure>>()?;
        records.sort_by_key(|record| record.sequence);
        Ok(records)
    }
}
