//! Slots of concurrency limits that are held while a request is under way, or between two.
//!
//! A door that is generic over the store would have to name the store's permit wherever it keeps
//! one; [`HeldSlots`] is any of them.

use std::fmt;

use tidegate_engine::{Clock, CounterStore, Permit};

/// Slots that are given back when this is dropped.
pub struct HeldSlots(#[expect(dead_code, reason = "dropping it is its use")] Box<dyn Send + Sync>);

impl HeldSlots {
    /// Keeps what gives the slots back when it is dropped.
    pub fn new(permit: impl Send + Sync + 'static) -> Self {
        HeldSlots(Box::new(permit))
    }

    /// The slots of a permit, if it has any. Nothing is boxed for requests
    /// that hold nothing, which are most.
    pub fn of<S, C>(permit: Permit<S, C>) -> Option<Self>
    where
        S: CounterStore,
        C: Clock,
    {
        (!permit.is_empty()).then(|| HeldSlots::new(permit))
    }
}

impl fmt::Debug for HeldSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldSlots")
    }
}
