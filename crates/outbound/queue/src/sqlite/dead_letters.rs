//! Dead letters: how records become some, and how operators list, redrive and purge them.

use rusqlite::types::ToSql;
use rusqlite::{OptionalExtension, params};
use tidegate_algorithms::Timestamp;

use super::rows::{RECORD_COLUMNS, StoredRecord, decode_payload, read_dead_letter};
use super::state::{Engine, instant, to_sql};
use crate::error::QueueError;
use crate::queue::{DeadLetter, DeadLetterReason, DeadLetterSelection};
use crate::record::{Payload, RecordId};
use crate::settings::BATCH_MAX;

impl Engine {
    /// Moves a live record that is not in flight to the dead letters. Its payload stays where it is.
    pub(super) fn move_to_dead_letters(
        &mut self,
        index: usize,
        sequence: i64,
        reason: DeadLetterReason,
        detail: &str,
        now: Timestamp,
    ) -> Result<(), QueueError> {
        let sql = format!("DELETE FROM records WHERE sequence = ?1 RETURNING {RECORD_COLUMNS}");
        let record = self
            .connection
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.query_row([sequence], StoredRecord::read))
            .map_err(|error| self.fail(error))?;
        let class = record.class(self)?;
        let totals = &mut self.queues[index].totals;
        totals.classes[class.index()].remove(record.bytes, record.cost);
        totals.dead.add(record.bytes, record.cost);
        let sql = "INSERT INTO dead_letters VALUES \
                   (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
        self.execute(
            sql,
            params![
                sequence,
                self.queues[index].id,
                record.class,
                record.tenant,
                record.serial_key,
                to_sql(record.cost),
                to_sql(record.bytes),
                to_sql(record.enqueued_at.as_nanos()),
                to_sql(record.deadline.as_nanos()),
                record.epoch,
                record.attempts,
                record.lapses,
                to_sql(now.as_nanos()),
                reason.name(),
                detail,
                record.job,
            ],
        )?;
        self.unblock(index, record.serial_key.as_deref(), now)
    }

    pub(super) fn list_dead_letters(
        &self,
        index: usize,
        after: Option<RecordId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        let fail = |error| self.fail(error);
        let sql = format!(
            "SELECT {RECORD_COLUMNS}, died_at, reason, detail FROM dead_letters \
             INDEXED BY dead_letters_of_queue WHERE queue = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(fail)?;
        let from = after.map_or(0, |id| to_sql(id.sequence()));
        let limit = to_sql(limit.min(BATCH_MAX) as u64);
        let mut rows =
            statement.query(params![self.queues[index].id, from, limit]).map_err(fail)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(fail)? {
            found.push(read_dead_letter(self, row)?);
        }
        Ok(found)
    }

    pub(super) fn show_dead_letter(
        &self,
        index: usize,
        id: RecordId,
    ) -> Result<Option<DeadLetter>, QueueError> {
        let fail = |error| self.fail(error);
        let sql = format!(
            "SELECT {RECORD_COLUMNS}, died_at, reason, detail FROM dead_letters \
             WHERE sequence = ?1 AND queue = ?2"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(fail)?;
        let sequence = to_sql(id.sequence());
        let mut rows = statement.query(params![sequence, self.queues[index].id]).map_err(fail)?;
        let Some(row) = rows.next().map_err(fail)? else { return Ok(None) };
        let mut found = read_dead_letter(self, row)?;
        if found.record.id != id {
            return Ok(None);
        }
        found.record.payload = self.payload(sequence)?;
        Ok(Some(found))
    }

    fn payload(&self, sequence: i64) -> Result<Payload, QueueError> {
        let sql = "SELECT payload FROM payloads WHERE sequence = ?1";
        let payload: Option<Vec<u8>> = self
            .connection
            .query_row(sql, [sequence], |row| row.get(0))
            .optional()
            .map_err(|error| self.fail(error))?;
        let payload = payload.ok_or_else(|| self.damaged("the payload of a dead letter"))?;
        decode_payload(payload.into(), &self.path)
    }

    pub(super) fn redrive(
        &mut self,
        index: usize,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<u64, QueueError> {
        let now = self.clock.now();
        let selected = self.select_dead_letters(index, selection, limit)?;
        for sequence in &selected {
            self.redrive_one(index, *sequence, now)?;
        }
        Ok(selected.len() as u64)
    }

    /// Enqueues a dead letter again: same id, last in the order of its key, no attempts, a new deadline.
    fn redrive_one(
        &mut self,
        index: usize,
        sequence: i64,
        now: Timestamp,
    ) -> Result<(), QueueError> {
        let record = self.delete_dead_letter(sequence)?;
        let class = record.class(self)?;
        let position = self.take_sequence();
        let queue = &mut self.queues[index];
        let id = queue.id;
        queue.totals.dead.remove(record.bytes, record.cost);
        queue.totals.classes[class.index()].add(record.bytes, record.cost);
        let tag = queue.tags[class.index()].assign(&record.tenant, record.cost);
        let deadline = queue.settings.deadline(None, now);
        let state = self.first_state(id, record.serial_key.as_deref(), now, now)?;
        let sql = "INSERT INTO records VALUES \
                   (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13, ?14, 0, 0, ?15)";
        self.execute(
            sql,
            params![
                sequence,
                id,
                state,
                record.class,
                to_sql(tag),
                position,
                record.tenant,
                record.serial_key,
                to_sql(record.cost),
                to_sql(record.bytes),
                to_sql(record.enqueued_at.as_nanos()),
                to_sql(now.as_nanos()),
                to_sql(deadline.as_nanos()),
                // A receipt from before stays stale.
                record.epoch.saturating_add(1),
                record.job,
            ],
        )
    }

    fn delete_dead_letter(&self, sequence: i64) -> Result<StoredRecord, QueueError> {
        let sql =
            format!("DELETE FROM dead_letters WHERE sequence = ?1 RETURNING {RECORD_COLUMNS}");
        self.connection
            .prepare_cached(&sql)
            .and_then(|mut statement| statement.query_row([sequence], StoredRecord::read))
            .map_err(|error| self.fail(error))
    }

    pub(super) fn purge(
        &mut self,
        index: usize,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<u64, QueueError> {
        let selected = self.select_dead_letters(index, selection, limit)?;
        for sequence in &selected {
            let record = self.delete_dead_letter(*sequence)?;
            self.execute("DELETE FROM payloads WHERE sequence = ?1", [sequence])?;
            self.count_purged(index, record.job.as_deref(), &record.tenant)?;
            self.queues[index].totals.dead.remove(record.bytes, record.cost);
        }
        Ok(selected.len() as u64)
    }

    fn select_dead_letters(
        &self,
        index: usize,
        selection: &DeadLetterSelection,
        limit: usize,
    ) -> Result<Vec<i64>, QueueError> {
        let queue = self.queues[index].id;
        let limit = limit.min(BATCH_MAX);
        let rows = to_sql(limit as u64);
        match selection {
            DeadLetterSelection::All => self.select_sequences(
                "SELECT sequence FROM dead_letters WHERE queue = ?1 ORDER BY sequence LIMIT ?2",
                &[&queue, &rows],
            ),
            DeadLetterSelection::Before(instant) => self.select_sequences(
                "SELECT sequence FROM dead_letters WHERE queue = ?1 AND died_at < ?3 \
                 ORDER BY sequence LIMIT ?2",
                &[&queue, &rows, &to_sql(instant.as_nanos())],
            ),
            DeadLetterSelection::Ids(ids) => {
                let mut found = Vec::new();
                for id in ids {
                    if found.len() >= limit {
                        break;
                    }
                    found.extend(self.find_dead_letter(queue, *id)?);
                }
                // An id that is given twice is one record.
                found.sort_unstable();
                found.dedup();
                Ok(found)
            }
        }
    }

    fn find_dead_letter(&self, queue: i64, id: RecordId) -> Result<Option<i64>, QueueError> {
        let sql = "SELECT enqueued_at FROM dead_letters WHERE sequence = ?1 AND queue = ?2";
        let sequence = to_sql(id.sequence());
        let at: Option<i64> = self
            .connection
            .query_row(sql, params![sequence, queue], |row| row.get(0))
            .optional()
            .map_err(|error| self.fail(error))?;
        Ok(at.filter(|at| self.is_own_id(id, instant(*at))).map(|_| sequence))
    }

    fn select_sequences(
        &self,
        sql: &str,
        arguments: &[&dyn ToSql],
    ) -> Result<Vec<i64>, QueueError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| {
                statement.query_map(arguments, |row| row.get(0)).and_then(Iterator::collect)
            })
            .map_err(|error| self.fail(error))
    }
}
