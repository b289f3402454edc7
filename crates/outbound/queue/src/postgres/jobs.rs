//! Counts of jobs as differences: triggers append rows, readers sum them, enqueues add them up.

use super::operations::{Operation, RecordRow, instant, to_sql};
use super::pool::Failure;
use crate::queue::{ClassStats, JOB_KEPT, JobSelection, JobStats};
use crate::record::NewRecord;
use crate::settings::BATCH_MAX;
use tidegate_algorithms::Nanos;

/// Rows of a job after which an enqueue adds them up.
const ROWS_MAX: i64 = 200;

/// Replaces many rows of a job by their sums. Rows that another transaction adds up are left to it.
const COMPACT_JOB: &str = "WITH taken AS (DELETE FROM jobs WHERE ctid = ANY(ARRAY( \
     SELECT ctid FROM jobs WHERE queue = $1 AND job = $2 LIMIT 10000 FOR UPDATE SKIP LOCKED)) RETURNING *) \
     INSERT INTO jobs SELECT queue, job, tenant, min(first_enqueued), max(last_enqueued), sum(accepted), \
     sum(accepted_cost), sum(live), sum(live_bytes), sum(live_cost), sum(dead), sum(purged) \
     FROM taken GROUP BY queue, job, tenant";

impl Operation<'_> {
    pub(super) async fn jobs(
        &mut self,
        selection: &JobSelection,
    ) -> Result<Vec<JobStats>, Failure> {
        let sql = "SELECT job, min(first_enqueued), sum(accepted)::bigint, sum(accepted_cost)::bigint, \
                   sum(live)::bigint, sum(live_bytes)::bigint, sum(live_cost)::bigint, sum(dead)::bigint, \
                   sum(purged)::bigint FROM jobs WHERE queue = $1 AND ($2::text IS NULL OR job = $2) \
                   AND ($3::text IS NULL OR tenant = $3) GROUP BY job ORDER BY 2 DESC, job LIMIT $4";
        let queue = self.queue.id;
        let limit = to_sql(selection.limit.min(BATCH_MAX) as u64);
        let rows = self.query(sql, &[&queue, &selection.job, &selection.tenant, &limit]).await?;
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let read = |row: &tokio_postgres::Row| {
            Ok(JobStats {
                job: row.try_get(0)?,
                first_enqueued: instant(row.try_get(1)?),
                accepted: count(row.try_get(2)?),
                accepted_cost: count(row.try_get(3)?),
                live: ClassStats {
                    records: count(row.try_get(4)?),
                    bytes: count(row.try_get(5)?),
                    cost: count(row.try_get(6)?),
                },
                dead: count(row.try_get(7)?),
                purged: count(row.try_get(8)?),
            })
        };
        rows.iter().map(read).collect()
    }

    /// Adds up the rows of the jobs in a batch, and forgets jobs that have no records left and got none for a week.
    pub(super) async fn tidy_jobs(&mut self, batch: &[NewRecord]) -> Result<(), Failure> {
        let jobs: std::collections::BTreeSet<&str> =
            batch.iter().filter_map(|record| record.job.as_deref()).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let queue = self.queue.id;
        for job in jobs {
            let sql = "SELECT count(*) FROM jobs WHERE queue = $1 AND job = $2";
            let rows = self.query(sql, &[&queue, &job]).await?;
            let count: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
            if count > ROWS_MAX {
                self.execute(COMPACT_JOB, &[&queue, &job]).await?;
            }
        }
        let kept = Nanos::from(JOB_KEPT).get();
        let before = to_sql(self.now.as_nanos().saturating_sub(kept));
        // All rows of the job are older, so that no open transaction adds to it.
        let sql = "DELETE FROM jobs WHERE queue = $1 AND job IN (SELECT job FROM jobs WHERE queue = $1 GROUP BY job \
                   HAVING max(last_enqueued) < $2 AND sum(live) = 0 AND sum(dead) = 0 LIMIT 100)";
        self.execute(sql, &[&queue, &before]).await
    }

    pub(super) async fn count_purged(&mut self, purged: &[RecordRow]) -> Result<(), Failure> {
        let queue = self.queue.id;
        for record in purged {
            let Some(job) = &record.job else { continue };
            let sql = "INSERT INTO jobs VALUES ($1, $2, $3, $4, $4, 0, 0, 0, 0, 0, 0, 1)";
            self.execute(sql, &[&queue, job, &record.tenant, &record.enqueued_at]).await?;
        }
        Ok(())
    }
}
