//! One transaction: its statements, its locks, and the rows that all operations read.

use std::collections::{BTreeSet, HashMap};

use tidegate_algorithms::Timestamp;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement, Transaction};

use super::PostgresQueue;
use super::pool::{Connection, Failure, Session, damaged};
use super::totals::TotalsChange;
use crate::record::{Payload, PriorityClass, Record, RecordId};

/// States of a record, as in the embedded store: ready, delayed until `due_at`, claimed until `due_at`, behind another
/// record of its key.
const READY: i64 = 0;
const DELAYED: i64 = 1;
pub(super) const CLAIMED: i64 = 2;
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

pub(super) fn count(number: i64) -> u64 {
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

    pub(super) fn record_id(&self, sequence: i64, enqueued_at: Timestamp) -> RecordId {
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
}

/// The state of a record that joins its key or is returned.
pub(super) fn first_state(blocked: bool, waiting_since: Timestamp, now: Timestamp) -> i64 {
    match () {
        () if blocked => BLOCKED,
        () if waiting_since > now => DELAYED,
        () => READY,
    }
}
