//! Counts of jobs. Triggers keep them; this reads them, counts purges and forgets finished jobs.

use rusqlite::{Row, params};
use tidegate_algorithms::{Nanos, Timestamp};

use super::state::{Engine, count, instant, to_sql};
use crate::error::QueueError;
use crate::queue::{ClassStats, JOB_KEPT, JobSelection, JobStats};
use crate::record::NewRecord;
use crate::settings::BATCH_MAX;

/// Finished jobs that one enqueue forgets.
const JOBS_SWEEP: i64 = 100;

impl Engine {
    pub(super) fn jobs(
        &self,
        index: usize,
        selection: &JobSelection,
    ) -> Result<Vec<JobStats>, QueueError> {
        let fail = |error| self.fail(error);
        let sql = "SELECT job, min(first_enqueued) AS first, sum(accepted), sum(accepted_cost), sum(live), \
                   sum(live_bytes), sum(live_cost), sum(dead), sum(purged) FROM jobs \
                   WHERE queue = ?1 AND (?2 IS NULL OR job = ?2) AND (?3 IS NULL OR tenant = ?3) \
                   GROUP BY job ORDER BY first DESC, job LIMIT ?4";
        let mut statement = self.connection.prepare_cached(sql).map_err(fail)?;
        let limit = to_sql(selection.limit.min(BATCH_MAX) as u64);
        let arguments = params![self.queues[index].id, selection.job, selection.tenant, limit];
        let found = statement.query_map(arguments, read_job).map_err(fail)?;
        found.collect::<rusqlite::Result<_>>().map_err(fail)
    }

    /// Forgets jobs that have no records left and got none for a week.
    pub(super) fn forget_jobs(
        &self,
        index: usize,
        batch: &[NewRecord],
        now: Timestamp,
    ) -> Result<(), QueueError> {
        if batch.iter().all(|record| record.job.is_none()) {
            return Ok(());
        }
        let kept = Nanos::from(JOB_KEPT).get();
        let before = to_sql(now.as_nanos().saturating_sub(kept));
        let sql = "DELETE FROM jobs WHERE (queue, job, tenant) IN (SELECT queue, job, tenant FROM jobs \
                   WHERE queue = ?1 AND first_enqueued < ?2 AND last_enqueued < ?2 AND live = 0 AND dead = 0 \
                   ORDER BY first_enqueued LIMIT ?3)";
        self.execute(sql, params![self.queues[index].id, before, JOBS_SWEEP])
    }

    pub(super) fn count_purged(
        &self,
        index: usize,
        job: Option<&str>,
        tenant: &str,
    ) -> Result<(), QueueError> {
        let Some(job) = job else { return Ok(()) };
        let sql =
            "UPDATE jobs SET purged = purged + 1 WHERE queue = ?1 AND job = ?2 AND tenant = ?3";
        self.execute(sql, params![self.queues[index].id, job, tenant])
    }
}

fn read_job(row: &Row<'_>) -> rusqlite::Result<JobStats> {
    Ok(JobStats {
        job: row.get(0)?,
        first_enqueued: instant(row.get(1)?),
        accepted: count(row.get(2)?),
        accepted_cost: count(row.get(3)?),
        live: ClassStats {
            records: count(row.get(4)?),
            bytes: count(row.get(5)?),
            cost: count(row.get(6)?),
        },
        dead: count(row.get(7)?),
        purged: count(row.get(8)?),
    })
}
