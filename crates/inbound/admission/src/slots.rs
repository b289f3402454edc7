//! Slots of concurrency limits: held while a request is in flight, and for how long on average.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_engine::{Clock, CounterStore, Nanos, Permit};
use tidegate_macros::debug_fields;

/// Slots that are free again when this is dropped. Hides the store that they are from.
pub struct HeldSlots(#[expect(dead_code, reason = "dropping it is its use")] Box<dyn Send + Sync>);

impl HeldSlots {
    /// Holds a permit of any kind.
    pub fn new(permit: impl Send + Sync + 'static) -> Self {
        HeldSlots(Box::new(permit))
    }

    /// The slots of a permit. A permit without slots, which most are, is not boxed.
    pub fn of<S: CounterStore, C: Clock>(permit: Permit<S, C>) -> Option<Self> {
        (!permit.is_empty()).then(|| HeldSlots::new(permit))
    }
}

debug_fields!(HeldSlots {});

/// How long slots are held: a moving average, for the `Retry-After` of concurrency limits.
#[derive(Debug, Default)]
pub struct HoldTime {
    mean_nanos: AtomicU64,
    /// A counter that is hashed for random numbers.
    draws: AtomicU64,
}

impl HoldTime {
    /// Adds the time for which slots were held.
    pub fn add(&self, held: Nanos) {
        let mean = self.mean_nanos.load(Ordering::Relaxed);
        self.mean_nanos.store(mean - mean / 8 + held.get() / 8, Ordering::Relaxed);
    }

    /// When a slot may be free, in whole seconds: the average, up to a quarter more or less, so that clients that were
    /// refused at the same time do not return at the same time.
    pub fn estimate(&self) -> Nanos {
        let mean = self.mean_nanos.load(Ordering::Relaxed).max(1_000_000_000);
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        let spread = draw.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let jittered = Nanos::new(mean / 4 * 3 + mean / 512 * spread);
        Nanos::from_secs(jittered.as_secs_ceil().max(1))
    }
}
