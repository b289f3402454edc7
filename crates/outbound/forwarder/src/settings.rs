//! How the records of one type are forwarded.

use std::time::Duration;

use tidegate_capacity::{CapacityDocument, MemberTerms, StoreLost};
use tidegate_queue::QueueSettings;

use crate::retry::{AmbiguousRule, RetryPolicy};

/// The settings of one record type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSettings {
    /// The record type.
    pub record_type: String,
    /// The pool of the target that it belongs to.
    pub pool: String,
    /// Its weight within the pool.
    pub weight: u32,
    /// Slots that it keeps while it is idle, so that its first record leaves at once.
    pub reserve: u16,
    /// The lease on slots.
    pub slot_lease: Duration,
    /// What it does without the lease store; the same for all members of a target.
    pub store_lost: StoreLost,
    /// Its queue.
    pub queue: QueueSettings,
    /// Retries.
    pub retry: RetryPolicy,
    /// What becomes of records whose answer was lost.
    pub on_ambiguous: AmbiguousRule,
    /// How long `on_ambiguous: hold` waits.
    pub ambiguous_wait: Duration,
    /// The most requests in flight. An adaptive limit stays below it.
    pub in_flight_max: u32,
    /// The longest time of an attempt, whatever its processor does; then its outcome is ambiguous.
    pub attempt_timeout: Duration,
}

impl TypeSettings {
    /// The most requests in flight that can be configured. Each holds a record in memory.
    pub const IN_FLIGHT_MAX: u32 = 10_000;

    /// The shortest lease on claimed records: several extensions may fail before it ends.
    const CLAIM_LEASE_MIN: Duration = Duration::from_secs(2);

    /// The defaults for a record type.
    pub fn new(record_type: impl Into<String>) -> Self {
        TypeSettings {
            record_type: record_type.into(),
            pool: CapacityDocument::DEFAULT_POOL.to_owned(),
            weight: 1,
            reserve: 0,
            slot_lease: MemberTerms::LEASE_DEFAULT,
            store_lost: StoreLost::default(),
            queue: QueueSettings::default(),
            retry: RetryPolicy::default(),
            on_ambiguous: AmbiguousRule::default(),
            ambiguous_wait: Duration::from_secs(3_600),
            in_flight_max: 256,
            attempt_timeout: Duration::from_secs(60),
        }
    }

    /// The lease on claimed records: as long as the one on slots, so that a killed process's records and capacity come
    /// back together. It is extended while records wait and attempts run.
    pub(crate) fn claim_lease(&self) -> Duration {
        self.slot_lease.max(Self::CLAIM_LEASE_MIN)
    }
}
