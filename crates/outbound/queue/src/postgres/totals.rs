//! Totals as differences: each transaction appends a row, and readers sum them.

use super::operations::Operation;
use super::pool::Failure;
use crate::queue::{ClassStats, QueueStats};
use crate::schedule::CLASSES;
use tidegate_algorithms::Timestamp;

/// Rows of `totals` after which an enqueue adds them up.
const ROWS_MAX: i64 = 200;
/// The class that counts dead letters.
const DEAD_CLASS: i64 = -1;

/// Replaces many rows by their sums. Rows that another transaction adds up are left to it.
pub(super) const COMPACT_TOTALS: &str = "WITH taken AS (DELETE FROM totals WHERE ctid = ANY(ARRAY( \
     SELECT ctid FROM totals WHERE queue = $1 LIMIT 10000 FOR UPDATE SKIP LOCKED)) RETURNING *) \
     INSERT INTO totals SELECT queue, class, sum(records), sum(bytes), sum(cost), sum(in_flight) \
     FROM taken GROUP BY queue, class";

/// What a transaction changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TotalsChange {
    live: [Counts; CLASSES],
    dead: Counts,
    in_flight: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    records: i64,
    bytes: i64,
    cost: i64,
}

impl Counts {
    fn change(&mut self, direction: i64, bytes: i64, cost: i64) {
        self.records += direction;
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(direction));
        self.cost = self.cost.saturating_add(cost.saturating_mul(direction));
    }
}

impl TotalsChange {
    pub(super) fn add_live(&mut self, class: i64, bytes: i64, cost: i64) {
        self.change_live(class, 1, bytes, cost);
    }

    pub(super) fn remove_live(&mut self, class: i64, bytes: i64, cost: i64) {
        self.change_live(class, -1, bytes, cost);
    }

    fn change_live(&mut self, class: i64, direction: i64, bytes: i64, cost: i64) {
        if let Some(counts) = usize::try_from(class).ok().and_then(|class| self.live.get_mut(class))
        {
            counts.change(direction, bytes, cost);
        }
    }

    pub(super) fn add_dead(&mut self, bytes: i64, cost: i64) {
        self.dead.change(1, bytes, cost);
    }

    pub(super) fn remove_dead(&mut self, bytes: i64, cost: i64) {
        self.dead.change(-1, bytes, cost);
    }

    pub(super) fn change_in_flight(&mut self, difference: i64) {
        self.in_flight += difference;
    }
}

impl Operation<'_> {
    /// Appends the changes of this transaction.
    pub(super) async fn store_totals(&mut self) -> Result<(), Failure> {
        let change = std::mem::take(&mut self.totals);
        let rows = (0_i64..).zip(change.live).chain([(DEAD_CLASS, change.dead)]);
        for (class, counts) in rows {
            let in_flight = if class == 0 { change.in_flight } else { 0 };
            if counts == Counts::default() && in_flight == 0 {
                continue;
            }
            let sql = "INSERT INTO totals VALUES ($1, $2, $3, $4, $5, $6)";
            let queue = self.queue.id;
            self.execute(
                sql,
                &[&queue, &class, &counts.records, &counts.bytes, &counts.cost, &in_flight],
            )
            .await?;
        }
        Ok(())
    }

    /// The statistics, and how many rows were summed.
    pub(super) async fn stats(&mut self) -> Result<(QueueStats, i64), Failure> {
        let queue = self.queue.id;
        let sql = "SELECT class, sum(records)::bigint, sum(bytes)::bigint, sum(cost)::bigint, \
                   sum(in_flight)::bigint, count(*) FROM totals WHERE queue = $1 GROUP BY class";
        let mut stats = QueueStats::default();
        let mut rows_summed = 0;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        for row in self.query(sql, &[&queue]).await? {
            let class: i64 = row.try_get(0)?;
            let sum = ClassStats {
                records: count(row.try_get(1)?),
                bytes: count(row.try_get(2)?),
                cost: count(row.try_get(3)?),
            };
            stats.in_flight = stats.in_flight.saturating_add(count(row.try_get(4)?));
            rows_summed += row.try_get::<_, i64>(5)?;
            if class == DEAD_CLASS {
                (stats.dead_records, stats.dead_bytes) = (sum.records, sum.bytes);
            } else if let Some(known) =
                usize::try_from(class).ok().and_then(|class| stats.classes.get_mut(class))
            {
                *known = sum;
            }
        }
        let sql = "SELECT enqueued_at FROM records WHERE queue = $1 ORDER BY sequence LIMIT 1";
        let oldest = self.query(sql, &[&queue]).await?;
        let oldest: Option<i64> = oldest.first().map(|row| row.try_get(0)).transpose()?;
        stats.oldest = oldest.map(|nanos| Timestamp::from_nanos(count(nanos)));
        Ok((stats, rows_summed))
    }

    /// Adds up the totals if there are many rows.
    pub(super) async fn compact_totals(&mut self, rows: i64) -> Result<(), Failure> {
        if rows <= ROWS_MAX {
            return Ok(());
        }
        let queue = self.queue.id;
        self.execute(COMPACT_TOTALS, &[&queue]).await
    }
}
