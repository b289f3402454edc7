//! A request while it waits, before it is with its upstream: for the store, in line, for its
//! turn, at the gate.
//!
//! What it has taken gives itself back. Here is only how it ends when its client goes: it
//! is noted as gone, as one is whose client goes during its stay with the upstream.

use http::StatusCode;
use tidegate_engine::{Clock, CounterStore};

use super::CLIENT_GONE;
use crate::access_log::Record;
use crate::active_document::ActiveDocument;
use crate::tally::Outcome;
use crate::visit::Passport;

/// A request that waits. Dropping it means that its client is gone.
pub(super) struct Wait<'s, S, C>
where
    S: CounterStore,
    C: Clock,
{
    shared: &'s ActiveDocument<S, C>,
    /// Its route; none once the wait is over.
    place: Option<usize>,
    record: Option<Box<Record>>,
}

impl<'s, S, C> Wait<'s, S, C>
where
    S: CounterStore,
    C: Clock,
{
    pub(super) fn begin(shared: &'s ActiveDocument<S, C>, passport: &mut Passport) -> Self {
        Wait { shared, place: Some(passport.place), record: passport.record.take() }
    }

    /// Its client is still there.
    pub(super) fn end(mut self, passport: &mut Passport) {
        self.place = None;
        passport.record = self.record.take();
    }
}

impl<S, C> Drop for Wait<'_, S, C>
where
    S: CounterStore,
    C: Clock,
{
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let status = StatusCode::from_u16(CLIENT_GONE).unwrap_or_default();
            self.shared.note((place, self.record.take()), status, 0, Outcome::Gone);
        }
    }
}
