//! Start tags: the same method as the embedded store, with its state in rows.

use std::collections::BTreeMap;

use super::operations::Operation;
use super::pool::{Failure, Session};
use super::totals::COMPACT_TOTALS;
use crate::schedule::{CLASSES, end_tag};

/// The last number of a tag; tags stay below it, so that sums do not overflow.
const TAG_MAX: i64 = i64::MAX / 2;

/// The records of a batch, by class and tenant, with their costs in order.
#[derive(Debug, Default)]
pub(super) struct TagRequests<'a> {
    groups: BTreeMap<(i64, &'a str), Vec<(usize, u64)>>,
}

impl<'a> TagRequests<'a> {
    /// Asks for the tag of a record.
    pub(super) fn push(&mut self, index: usize, class: i64, tenant: &'a str, cost: u64) {
        self.groups.entry((class, tenant)).or_default().push((index, cost));
    }
}

impl Operation<'_> {
    /// Assigns tags, by index. Locks the rows of the tenants, in order, until the commit.
    pub(super) async fn assign_tags(
        &mut self,
        requests: TagRequests<'_>,
    ) -> Result<BTreeMap<usize, i64>, Failure> {
        let mut tags = BTreeMap::new();
        let queue = self.queue.id;
        for ((class, tenant), records) in requests.groups {
            let total: u64 = records.iter().map(|(_, cost)| end_tag(0, *cost)).sum();
            let total = i64::try_from(total).unwrap_or(TAG_MAX).min(TAG_MAX);
            // The start is the later of the virtual time and the tenant's end; both may have saturated.
            let sql = "INSERT INTO tenants VALUES ($1, $2, $3, least($5, $4 + coalesce( \
                       (SELECT tag FROM virtual_times WHERE queue = $1 AND class = $2), 0))) \
                       ON CONFLICT (queue, class, tenant) DO UPDATE SET end_tag = least($5, $4 + greatest( \
                       tenants.end_tag, coalesce((SELECT tag FROM virtual_times \
                       WHERE queue = $1 AND class = $2), 0))) RETURNING end_tag";
            let rows = self.query(sql, &[&queue, &class, &tenant, &total, &TAG_MAX]).await?;
            let end: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(total);
            let mut tag = u64::try_from(end - total).unwrap_or(0);
            for (index, cost) in records {
                tags.insert(index, i64::try_from(tag).unwrap_or(TAG_MAX).min(TAG_MAX));
                tag = end_tag(tag, cost);
            }
        }
        Ok(tags)
    }
}

/// Advances the virtual times after a claim was committed: a row that every claim writes must not stay locked while
/// the claim syncs. If it fails, the next claim of the class does it.
pub(super) async fn advance(
    session: &mut Session<'_>,
    queue: i64,
    reached: &[Option<i64>; CLASSES],
) {
    let sql = "INSERT INTO virtual_times VALUES ($1, $2, $3) ON CONFLICT (queue, class) \
               DO UPDATE SET tag = greatest(virtual_times.tag, excluded.tag)";
    let Ok(connection) = session.connection() else { return };
    for (class, tag) in (0_i64..).zip(reached) {
        if let Some(tag) = tag {
            let _ = connection.client.execute(sql, &[&queue, &class, tag]).await;
        }
    }
}

/// Deletes tenants whose end has passed, which start at the virtual time with or without a row, and adds up totals.
pub(super) async fn sweep(session: &mut Session<'_>, queue: i64) {
    let sql = "DELETE FROM tenants WHERE ctid = ANY(ARRAY(SELECT t.ctid FROM tenants t JOIN virtual_times v \
               ON v.queue = t.queue AND v.class = t.class WHERE t.queue = $1 AND t.end_tag <= v.tag LIMIT 10000 \
               FOR UPDATE OF t SKIP LOCKED))";
    if let Ok(connection) = session.connection() {
        let _ = connection.client.execute(sql, &[&queue]).await;
        // A queue that is only drained has no enqueue that adds them up.
        let _ = connection.client.execute(COMPACT_TOTALS, &[&queue]).await;
    }
}
