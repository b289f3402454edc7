//! A request that waits: for the store, in line, for its turn, or at the gate.
//!
//! What it holds is released when it is dropped. This guard records that its client disconnected.

use tidegate_engine::{Clock, CounterStore};

use crate::access_log::Record;
use crate::active_document::ActiveDocument;
use crate::decode::RequestContext;

/// Dropping it means that the client disconnected.
pub(super) struct DisconnectGuard<'s, S, C>
where
    S: CounterStore,
    C: Clock,
{
    document: &'s ActiveDocument<S, C>,
    /// The index of the route; [`None`] once the wait is over.
    route_index: Option<usize>,
    record: Option<Box<Record>>,
}

impl<'s, S, C> DisconnectGuard<'s, S, C>
where
    S: CounterStore,
    C: Clock,
{
    pub(super) fn new(document: &'s ActiveDocument<S, C>, context: &mut RequestContext) -> Self {
        let (route_index, record) = (Some(context.route_index), context.record.take());
        DisconnectGuard { document, route_index, record }
    }

    /// The wait is over, and the client still connected.
    pub(super) fn disarm(mut self, context: &mut RequestContext) {
        self.route_index = None;
        context.record = self.record.take();
    }
}

impl<S, C> Drop for DisconnectGuard<'_, S, C>
where
    S: CounterStore,
    C: Clock,
{
    fn drop(&mut self) {
        if let Some(route_index) = self.route_index {
            self.document.disconnected(route_index, self.record.take());
        }
    }
}
