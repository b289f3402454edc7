//! What the writer thread holds: the connection, and for each queue the totals and the schedule.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use tidegate_algorithms::{Clock, Timestamp};
use tidegate_data_dir::DataDirError;

use super::SqliteSettings;
use crate::error::QueueError;
use crate::queue::ClassStats;
use crate::record::RecordId;
use crate::schedule::{CLASSES, ClassSchedule, FairTags};
use crate::settings::QueueSettings;

/// Record types in one data directory; each has its state in memory.
const QUEUES_MAX: usize = 1_024;
/// Prepared statements that the connection keeps.
const STATEMENTS: usize = 64;
/// The row of `totals` that counts dead letters.
const DEAD_CLASS: i64 = -1;

/// The database and the state of its queues.
pub(super) struct Engine {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) queues: Vec<QueueState>,
    /// Queues whose row is committed.
    committed_queues: usize,
    instance: u32,
    next_sequence: i64,
    /// The sequence that the database knows; behind it no number was used.
    stored_sequence: i64,
}

/// One queue.
pub(super) struct QueueState {
    pub(super) id: i64,
    pub(super) record_type: String,
    pub(super) settings: QueueSettings,
    pub(super) totals: Totals,
    /// The totals of the last commit.
    committed: Totals,
    pub(super) tags: [FairTags; CLASSES],
    pub(super) schedule: ClassSchedule,
}

/// Counts that the database keeps beside the rows, because counting a million rows takes seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) classes: [ClassStats; CLASSES],
    pub(super) in_flight: u64,
    pub(super) dead: ClassStats,
}

impl ClassStats {
    pub(super) fn add(&mut self, bytes: u64, cost: u64) {
        self.records = self.records.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.cost = self.cost.saturating_add(cost);
    }

    pub(super) fn remove(&mut self, bytes: u64, cost: u64) {
        self.records = self.records.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.cost = self.cost.saturating_sub(cost);
    }
}

/// SQL has signed integers; instants beyond the year 2262 become the last one.
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

/// Reads a count; a negative one is damage, which counts as zero.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

impl Engine {
    pub(super) fn new(
        connection: Connection,
        path: PathBuf,
        settings: SqliteSettings,
    ) -> Result<Self, QueueError> {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let mut engine = Engine {
            connection,
            path,
            clock: settings.clock,
            queues: Vec::new(),
            committed_queues: 0,
            instance: 0,
            next_sequence: 1,
            stored_sequence: 1,
        };
        engine.load_counters(settings.file_bytes_max)?;
        Ok(engine)
    }

    fn load_counters(&mut self, file_bytes_max: Option<u64>) -> Result<(), QueueError> {
        let fail = |error| self.fail(error);
        let page: i64 =
            self.connection.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(fail)?;
        if let Some(bytes) = file_bytes_max {
            let pages = to_sql(bytes / count(page).max(1)).max(1);
            self.connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .map_err(fail)?;
        }
        let stored = self.counter("instance")?;
        let instance = match stored {
            Some(number) => number,
            None => {
                // SQLite seeds its generator from the system's.
                let sql = "INSERT INTO counters VALUES ('instance', abs(random() % 4294967296)) RETURNING value";
                self.connection.query_row(sql, [], |row| row.get(0)).map_err(fail)?
            }
        };
        let instance = u32::try_from(instance).map_err(|_| self.damaged("its instance number"))?;
        let sequence = self.counter("sequence")?.unwrap_or(1);
        // A restored or repaired file may have rows beyond the counter.
        let sql = "SELECT max(coalesce((SELECT max(sequence) FROM records), 0), \
                   coalesce((SELECT max(sequence) FROM dead_letters), 0), \
                   coalesce((SELECT max(sequence) FROM payloads), 0))";
        let last: i64 = self.connection.query_row(sql, [], |row| row.get(0)).map_err(fail)?;
        let next = last.checked_add(1).ok_or_else(|| self.damaged("its last sequence"))?;
        self.instance = instance;
        self.next_sequence = sequence.max(next).max(1);
        self.stored_sequence = self.next_sequence;
        Ok(())
    }

    fn counter(&self, name: &str) -> Result<Option<i64>, QueueError> {
        self.connection
            .query_row("SELECT value FROM counters WHERE name = ?1", [name], |row| row.get(0))
            .optional()
            .map_err(|error| self.fail(error))
    }

    /// The error for a failed call of SQLite.
    pub(super) fn fail(&self, error: rusqlite::Error) -> QueueError {
        DataDirError::from_sqlite(&self.path, error).into()
    }

    /// The error for a value that this program did not write.
    pub(super) fn damaged(&self, what: &str) -> QueueError {
        let detail = format!("{what} is out of range");
        DataDirError::Damaged { path: self.path.clone(), detail }.into()
    }

    pub(super) fn record_id(&self, sequence: i64, enqueued_at: Timestamp) -> RecordId {
        RecordId::new(enqueued_at, self.instance, count(sequence))
    }

    /// Whether the id names the row with its sequence.
    pub(super) fn is_own_id(&self, id: RecordId, enqueued_at: Timestamp) -> bool {
        id == RecordId::new(enqueued_at, self.instance, id.sequence())
    }

    pub(super) fn take_sequence(&mut self) -> i64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    pub(super) fn begin(&mut self) -> Result<(), QueueError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| self.fail(error))
    }

    pub(super) fn commit(&mut self) -> Result<(), QueueError> {
        self.store_totals().map_err(|error| self.fail(error))?;
        self.connection.execute_batch("COMMIT").map_err(|error| self.fail(error))?;
        self.stored_sequence = self.next_sequence;
        self.committed_queues = self.queues.len();
        for queue in &mut self.queues {
            queue.committed = queue.totals;
        }
        Ok(())
    }

    /// Forgets the open transaction. Start tags that it assigned stay used; a gap in them changes no order.
    pub(super) fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            // A failure leaves the transaction open, and the next `BEGIN` reports it.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        self.queues.truncate(self.committed_queues);
        for queue in &mut self.queues {
            queue.totals = queue.committed;
        }
    }

    fn store_totals(&self) -> rusqlite::Result<()> {
        let sql = "INSERT INTO totals VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE SET \
                   records = ?3, bytes = ?4, cost = ?5, in_flight = ?6";
        for queue in self.queues.iter().filter(|queue| queue.totals != queue.committed) {
            let mut statement = self.connection.prepare_cached(sql)?;
            let live = (0_i64..).zip(&queue.totals.classes);
            for (class, sum) in live.chain([(DEAD_CLASS, &queue.totals.dead)]) {
                let in_flight = if class == 0 { queue.totals.in_flight } else { 0 };
                statement.execute(params![
                    queue.id,
                    class,
                    to_sql(sum.records),
                    to_sql(sum.bytes),
                    to_sql(sum.cost),
                    to_sql(in_flight)
                ])?;
            }
        }
        if self.next_sequence != self.stored_sequence {
            let sql =
                "INSERT INTO counters VALUES ('sequence', ?1) ON CONFLICT DO UPDATE SET value = ?1";
            self.connection.prepare_cached(sql)?.execute([self.next_sequence])?;
        }
        Ok(())
    }

    /// Opens the queue of a record type and returns its index.
    pub(super) fn open(
        &mut self,
        record_type: &str,
        settings: &QueueSettings,
    ) -> Result<usize, QueueError> {
        if let Some(index) = self.queues.iter().position(|queue| queue.record_type == record_type) {
            let queue = &mut self.queues[index];
            if queue.settings.classes != settings.classes {
                queue.schedule = ClassSchedule::new(settings.classes);
            }
            queue.settings = settings.clone();
            return Ok(index);
        }
        if self.queues.len() >= QUEUES_MAX {
            let text = format!("at most {QUEUES_MAX} record types share a data directory");
            return Err(QueueError::InvalidSettings(text));
        }
        let queue = self.load_queue(record_type, settings).map_err(|error| self.fail(error))?;
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    fn load_queue(
        &self,
        record_type: &str,
        settings: &QueueSettings,
    ) -> rusqlite::Result<QueueState> {
        let connection = &self.connection;
        let known = connection
            .query_row("SELECT id FROM queues WHERE record_type = ?1", [record_type], |row| {
                row.get(0)
            })
            .optional()?;
        let id: i64 = match known {
            Some(id) => id,
            None => {
                let sql = "INSERT INTO queues (record_type) VALUES (?1) RETURNING id";
                connection.query_row(sql, [record_type], |row| row.get(0))?
            }
        };
        // The data directory has one owner, so that all claims are those of a process that ended: their leases end now.
        let sql = "UPDATE records SET due_at = 0 WHERE queue = ?1 AND state = 2 AND due_at > 0";
        connection.execute(sql, [id])?;
        let mut totals = Totals::default();
        let sql = "SELECT class, records, bytes, cost, in_flight FROM totals WHERE queue = ?1";
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([id])?;
        while let Some(row) = rows.next()? {
            let class: i64 = row.get(0)?;
            let sum = ClassStats {
                records: count(row.get(1)?),
                bytes: count(row.get(2)?),
                cost: count(row.get(3)?),
            };
            totals.in_flight = totals.in_flight.saturating_add(count(row.get(4)?));
            if class == DEAD_CLASS {
                totals.dead = sum;
            } else if let Some(known) =
                usize::try_from(class).ok().and_then(|class| totals.classes.get_mut(class))
            {
                *known = sum;
            }
        }
        Ok(QueueState {
            id,
            record_type: record_type.to_owned(),
            settings: settings.clone(),
            totals,
            committed: totals,
            tags: self.load_tags(id)?,
            schedule: ClassSchedule::new(settings.classes),
        })
    }

    /// Restores the tags from the records: the virtual time is the first tag, and each tenant ends after its last.
    fn load_tags(&self, queue: i64) -> rusqlite::Result<[FairTags; CLASSES]> {
        let mut tags: [FairTags; CLASSES] = Default::default();
        let sql = "SELECT class, min(tag) FROM records WHERE queue = ?1 GROUP BY class";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([queue])?;
        while let Some(row) = rows.next()? {
            let class = usize::try_from(row.get::<_, i64>(0)?).ok();
            if let Some(known) = class.and_then(|class| tags.get_mut(class)) {
                *known = FairTags::starting_at(count(row.get(1)?));
            }
        }
        let sql = "SELECT class, tenant, max(min(tag, 9000000000000000000) + max(cost, 1)) FROM records WHERE queue = ?1 \
                   GROUP BY class, tenant";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([queue])?;
        while let Some(row) = rows.next()? {
            let class = usize::try_from(row.get::<_, i64>(0)?).ok();
            if let Some(known) = class.and_then(|class| tags.get_mut(class)) {
                known.restore(row.get_ref(1)?.as_str()?, count(row.get(2)?));
            }
        }
        Ok(tags)
    }
}
