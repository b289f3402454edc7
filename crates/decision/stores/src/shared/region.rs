//! Other regions that count the same eventual limits.
//!
//! Each node reports its own counts to every region; regions forward nothing, so no count arrives twice. A region that
//! cannot be reached receives the counts that still matter when it is back.

use tidegate_algorithms::Timestamp;
use tokio::time::Instant;

use super::count_report::{CountReport, ReportAnswer};
use super::pending_keys::PendingKeys;
use super::remote::{NodeId, Remote};
use super::route_breaker::RouteBreaker;
use super::tally::Destination;
use crate::counter_store::StoreError;

/// Another region.
#[derive(Debug)]
pub(crate) struct Region<R> {
    pub(crate) remote: R,
    pub(crate) breaker: RouteBreaker,
    pub(crate) destination: Destination,
    pub(crate) pending: PendingKeys,
}

impl<R: Remote> Region<R> {
    /// A region with this remote.
    pub(crate) fn new(remote: R, breaker: RouteBreaker, destination: Destination) -> Self {
        Region { remote, breaker, destination, pending: PendingKeys::default() }
    }

    /// Reports counts.
    pub(crate) async fn report(
        &self,
        node: NodeId,
        reports: &[&CountReport],
        now: Timestamp,
        deadline: Instant,
    ) -> Vec<Result<ReportAnswer, StoreError>> {
        self.breaker.report_counts(&self.remote, node, reports, now, deadline).await
    }
}
