//! The behaviour that all queues have in common.
//!
//! A store takes part by a type that implements [`Backend`] and one line at the end of this file. Cases that need a
//! capability check that a store without it says so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod model;
#[cfg(feature = "postgres")]
mod postgres_backend;
#[cfg(feature = "redis")]
mod redis_backend;
#[cfg(feature = "sqlite")]
mod sqlite_backend;

use std::sync::Arc;

use tidegate_queue::{ManualClock, QueueStore};

/// A store under test, with a clock that the test sets.
trait Backend: Sized {
    /// A new, empty store.
    async fn start() -> Self;
    /// The store.
    fn store(&self) -> &dyn QueueStore;
    /// Its clock.
    fn clock(&self) -> &Arc<ManualClock>;
    /// Ends the store without settling anything, and opens it again on the same data.
    async fn restart(&mut self);
}

macro_rules! conformance {
    ($($backend:ident: $kind:ty, $feature:literal;)+) => {
        $(
            #[cfg(feature = $feature)]
            mod $backend {
                use super::*;
                conformance!(@cases $kind;
                    a_record_is_delivered_as_it_was_enqueued,
                    a_claim_ends_with_an_ack,
                    queues_of_different_types_are_separate,
                    a_claimed_record_is_invisible_until_its_lease_ends,
                    a_stale_receipt_changes_nothing,
                    a_late_ack_counts_until_the_record_is_claimed_again,
                    a_returned_record_waits_for_its_time,
                    only_failed_attempts_are_counted,
                    an_extended_lease_ends_later,
                    a_record_whose_leases_lapse_becomes_a_dead_letter,
                    a_rejected_record_is_listed_shown_and_redriven,
                    purge_deletes_the_selected_dead_letters,
                    records_are_counted_by_job,
                    a_deadline_and_the_maximum_age_end_in_dead_letters,
                    a_delayed_record_is_claimed_from_its_time_on,
                    a_deduplication_key_is_accepted_once_within_the_window,
                    records_of_a_key_are_delivered_in_order_one_at_a_time,
                    a_strict_queue_delivers_in_order_one_at_a_time,
                    classes_share_by_weight,
                    tenants_share_a_class_by_cost,
                    a_claim_stays_within_its_budget,
                    a_full_queue_rejects_the_batch_with_its_figures,
                    invalid_records_and_settings_are_rejected,
                    statistics_count_records_bytes_and_cost,
                    concurrent_claimers_never_share_a_record,
                    concurrent_producers_and_claimers_lose_nothing,
                    concurrent_ordered_work_never_stalls,
                    acknowledged_records_survive_a_restart,
                    random_operations_equal_a_plain_model,
                );
            }
        )+
    };
    (@cases $kind:ty; $($case:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                cases::$case(<$kind>::start().await).await;
            }
        )+
    };
}

conformance! {
    sqlite: sqlite_backend::SqliteBackend, "sqlite";
    sqlite_in_memory: sqlite_backend::InMemoryBackend, "sqlite";
    postgres: postgres_backend::PostgresBackend, "postgres";
    redis: redis_backend::RedisBackend, "redis";
}
