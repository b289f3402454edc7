//! The refund of a request that passed its limits and then was not served.

use std::sync::Arc;

use tidegate_admission::{Refund, RequestDescription};
use tidegate_engine::{Clock, CounterStore};
use tidegate_macros::debug_fields;

use super::settings::Settings;

/// In the extensions of a response: its request was not worked on. Limits refund what they charged for it.
///
/// A `ProtectionLayer` adds it to its refusals. A service that sheds requests by itself can, too:
///
/// ```
/// # use http::{Response, StatusCode};
/// # use tidegate_tower_layer::UnservedRequest;
/// let mut response = Response::new("try again later");
/// *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
/// response.extensions_mut().insert(UnservedRequest);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnservedRequest;

/// The refund of a request while the service works on it.
pub(super) struct PendingRefund {
    refund: Refund,
    description: RequestDescription,
    limits: Arc<dyn PaysRefunds>,
}

/// Pays refunds. Hides the store, which the future of a request does not name.
trait PaysRefunds: Send + Sync {
    fn pay(&self, refund: Refund, description: &RequestDescription);
}

impl<T: CounterStore, C: Clock> PaysRefunds for Settings<T, C> {
    fn pay(&self, refund: Refund, description: &RequestDescription) {
        refund.pay(description, self.limits());
    }
}

impl PendingRefund {
    /// The refund of a request with this description; [`None`] if it was charged nothing.
    pub(super) fn of<T: CounterStore, C: Clock>(
        refund: Refund,
        settings: &Arc<Settings<T, C>>,
        description: RequestDescription,
    ) -> Option<Self> {
        if refund.is_nothing() {
            return None;
        }
        let limits = Arc::clone(settings) as Arc<dyn PaysRefunds>;
        Some(PendingRefund { refund, description, limits })
    }

    pub(super) fn pay(self) {
        self.limits.pay(self.refund, &self.description);
    }
}

debug_fields!(PendingRefund { refund });
