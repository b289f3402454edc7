//! Slots of concurrency limits that are held while a request is under way, or between two.
//!
//! A door that is generic over the store cannot name the store's permit; [`HeldSlots`] is any
//! of them.

use std::fmt;
use std::sync::Arc;

use tidegate_engine::{Clock, CounterStore, Engine, MemoryStore, Request, Verdict};

/// A store whose slots can be held between two requests.
pub trait SlotStore: CounterStore + Sized + Send + Sync + 'static {
    /// Decides a request, and keeps hold of the slots that it takes.
    ///
    /// Unless a store says otherwise, nothing is kept hold of: slots come back
    /// when their time to live has passed.
    fn admit<C: Clock + Send + Sync + 'static>(
        engine: &Arc<Engine<Self, C>>,
        request: &Request<'_>,
    ) -> impl Future<Output = (Verdict, Option<HeldSlots>)> + Send {
        async { (engine.check(request).await, None) }
    }

    /// Decides a request like [`SlotStore::admit`], if the store need not be waited for.
    fn admit_at_once<C: Clock + Send + Sync + 'static>(
        _engine: &Arc<Engine<Self, C>>,
        _request: &Request<'_>,
    ) -> Option<(Verdict, Option<HeldSlots>)> {
        None
    }
}

impl SlotStore for MemoryStore {
    async fn admit<C: Clock + Send + Sync + 'static>(
        engine: &Arc<Engine<Self, C>>,
        request: &Request<'_>,
    ) -> (Verdict, Option<HeldSlots>) {
        admit_now(engine, request)
    }

    fn admit_at_once<C: Clock + Send + Sync + 'static>(
        engine: &Arc<Engine<Self, C>>,
        request: &Request<'_>,
    ) -> Option<(Verdict, Option<HeldSlots>)> {
        Some(admit_now(engine, request))
    }
}

fn admit_now<C: Clock + Send + Sync + 'static>(
    engine: &Arc<Engine<MemoryStore, C>>,
    request: &Request<'_>,
) -> (Verdict, Option<HeldSlots>) {
    let (verdict, permit) = engine.admit_now(request);
    // Nothing is boxed for requests that hold nothing, which are most.
    let held = (!permit.is_empty()).then(|| HeldSlots::new(permit));
    (verdict, held)
}

/// Slots that are given back when this is dropped.
pub struct HeldSlots(#[expect(dead_code, reason = "dropping it is its use")] Box<dyn Send + Sync>);

impl HeldSlots {
    /// Keeps what gives the slots back when it is dropped.
    pub fn new(permit: impl Send + Sync + 'static) -> Self {
        HeldSlots(Box::new(permit))
    }
}

impl fmt::Debug for HeldSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldSlots")
    }
}
