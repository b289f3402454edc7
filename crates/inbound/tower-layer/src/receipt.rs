//! What a request that passes gets back if it is not served after all.

use std::fmt;
use std::sync::Arc;

use tidegate_engine::{Clock, CounterStore};

use super::settings::Settings;
use tidegate_admission::Charged;
use tidegate_admission::Described;

/// Says, in the extensions of an answer, that its request was not worked on. Limits that were
/// asked before give back what they charged for it.
///
/// A `ProtectionLayer` says so of what it refuses. A service that sheds requests by itself can, too:
///
/// ```
/// # use http::{Response, StatusCode};
/// # use tidegate_tower_layer::Unserved;
/// let mut answer = Response::new("try again later");
/// *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
/// answer.extensions_mut().insert(Unserved);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unserved;

/// What a request was charged, and who gives it back.
pub(super) struct Receipt {
    charged: Charged,
    described: Described,
    cashier: Arc<dyn Cashier>,
}

/// Gives back; the future of a request does not name the store.
trait Cashier: Send + Sync {
    fn give_back(&self, charged: Charged, described: &Described);
}

impl<T, C> Cashier for Settings<T, C>
where
    T: CounterStore,
    C: Clock,
{
    fn give_back(&self, charged: Charged, described: &Described) {
        charged.give_back(described, (&self.engine, &self.domain));
    }
}

impl Receipt {
    /// Of a request that was charged something.
    pub(super) fn of<T, C>(
        settings: &Arc<Settings<T, C>>,
        described: Described,
        charged: Charged,
    ) -> Option<Self>
    where
        T: CounterStore,
        C: Clock,
    {
        if charged.is_nothing() {
            return None;
        }
        let cashier = Arc::clone(settings) as Arc<dyn Cashier>;
        Some(Receipt { charged, described, cashier })
    }

    pub(super) fn give_back(self) {
        self.cashier.give_back(self.charged, &self.described);
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipt").field(&self.charged).finish()
    }
}
