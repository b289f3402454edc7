//! The behaviour that all lease stores have in common.
//!
//! A store takes part by a type that implements [`StoreHarness`] and one line at the end of this file. Servers are
//! reached through a relay, which the cases cut and which loses replies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
#[cfg(feature = "etcd")]
mod etcd;
mod local;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "s3")]
mod s3;

use tidegate_capacity::CapacityStore;
use tidegate_test_servers::relay::Relay;

/// A store under test.
trait StoreHarness: Sized + Send + Sync {
    /// How a member reaches the store.
    type Store: CapacityStore;
    /// A new, empty store.
    async fn start() -> Self;
    /// Another member's way to the same store.
    fn connect(&self) -> Self::Store;
    /// Makes the store forget the document of this target.
    async fn wipe(&self, target: &str);
    /// The line to the server; `None` if the store has no server.
    fn line(&self) -> Option<&Relay>;
    /// Ends the store as a crash would and starts it again; `None` if it keeps nothing or has no process of its own.
    async fn crash(&mut self) -> Option<()>;
    /// Whether the store offers a clock.
    const HAS_CLOCK: bool;
}

macro_rules! conformance {
    ($($(#[$feature:meta])? $store:ident: $harness:ty;)+) => {
        $(
            $(#[$feature])?
            mod $store {
                use super::*;
                conformance!(@cases $harness;
                    a_document_is_created_once,
                    a_document_is_replaced_only_if_it_is_unchanged,
                    targets_are_separate,
                    documents_of_a_large_target_fit,
                    concurrent_writers_lose_no_update,
                    a_store_with_a_clock_shows_the_same_time_to_all,
                    a_wiped_store_has_no_document_and_refuses_the_one_that_was_read,
                    a_lost_answer_is_an_error_and_a_second_replacement_is_refused,
                    an_outage_is_an_error_and_ends,
                    documents_survive_a_crash,
                    members_share_the_slots_and_inherit_those_of_a_member_that_is_gone,
                    members_keep_their_slots_when_the_store_forgets_everything,
                );
            }
        )+
    };
    (@cases $harness:ty; $($case:ident,)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                cases::$case(<$harness>::start().await).await;
            }
        )+
    };
}

conformance! {
    memory: local::MemoryHarness;
    #[cfg(feature = "sqlite")] sqlite_file: local::SqliteHarness;
    #[cfg(feature = "redis")] redis_server: redis::RedisHarness;
    #[cfg(feature = "postgres")] postgres_server: postgres::PostgresHarness;
    #[cfg(feature = "etcd")] etcd_server: etcd::EtcdHarness;
    #[cfg(feature = "s3")] s3_server: s3::S3Harness;
}
