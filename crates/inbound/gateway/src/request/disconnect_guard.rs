//! A request that waits: for the store, in line, for its turn, or at the gate.
//!
//! What it holds is released when it is dropped. This guard records that its client disconnected.

use tidegate_engine::{Clock, CounterStore};

use crate::active_document::ActiveDocument;
use crate::decode::RequestContext;

/// Dropping it means that the client disconnected.
pub(super) struct DisconnectGuard<'s, S, C>
where
    S: CounterStore,
    C: Clock,
{
    document: &'s ActiveDocument<S, C>,
    /// [`None`] once the wait is over.
    context: Option<RequestContext>,
}

impl<'s, S, C> DisconnectGuard<'s, S, C>
where
    S: CounterStore,
    C: Clock,
{
    pub(super) fn new(document: &'s ActiveDocument<S, C>, context: &mut RequestContext) -> Self {
        let record = context.record.take();
        let client_form = context.client_form.clone();
        let context = Some(RequestContext { client_form, record, ..*context });
        DisconnectGuard { document, context }
    }

    /// The wait is over, and the client still connected.
    pub(super) fn disarm(mut self, context: &mut RequestContext) {
        context.record = self.context.take().and_then(|context| context.record);
    }
}

impl<S: CounterStore, C: Clock> Drop for DisconnectGuard<'_, S, C> {
    fn drop(&mut self) {
        if let Some(context) = self.context.take() {
            self.document.disconnected(context);
        }
    }
}
