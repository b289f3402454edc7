//! The behaviour that all stores have in common.
//!
//! The same vectors and the same random sequences are sent to a store and to
//! the pure functions; all answers must be equal. A store takes part by one
//! line at the end of this file.

#[cfg(feature = "redis")]
mod changes;
mod model;
mod sequences;
#[cfg(feature = "redis")]
mod servers;
#[cfg(feature = "redis")]
mod vectors;

use tidegate_stores::{MemoryConfig, MemoryStore};

fn memory() -> MemoryStore {
    let config = MemoryConfig { seed: Some(7), ..MemoryConfig::default() };
    MemoryStore::new(config).expect("the default budget is enough")
}

macro_rules! conformance {
    ($store:ident) => {
        mod $store {
            use super::*;

            #[tokio::test]
            async fn answers_random_sequences_as_the_pure_functions_do() {
                sequences::equal_the_model(super::$store).await;
            }

            #[tokio::test]
            async fn answers_on_long_lists_as_the_pure_functions_do() {
                sequences::equal_the_model_on_long_lists(super::$store).await;
            }

            #[tokio::test]
            async fn a_refusal_charges_nothing() {
                vectors::a_refusal_charges_nothing(&super::$store()).await;
            }

            #[tokio::test]
            async fn charge_always_charges_each_limit_by_itself() {
                vectors::charge_always_charges_each_limit_by_itself(&super::$store()).await;
            }

            #[tokio::test]
            async fn an_observed_refusal_refuses_nothing() {
                vectors::an_observed_refusal_refuses_nothing(&super::$store()).await;
            }

            #[tokio::test]
            async fn one_alternative_that_admits_is_enough() {
                vectors::one_alternative_that_admits_is_enough(&super::$store()).await;
            }

            #[tokio::test]
            async fn a_key_that_stands_twice_is_charged_twice() {
                vectors::a_key_that_stands_twice_is_charged_twice(&super::$store()).await;
            }

            #[tokio::test]
            async fn reset_forgets_one_key_only() {
                vectors::reset_forgets_one_key_only(&super::$store()).await;
            }

            #[tokio::test]
            async fn a_slot_comes_back_once_however_often_it_is_given_back() {
                vectors::a_slot_comes_back_once_however_often_it_is_given_back(&super::$store())
                    .await;
            }

            #[tokio::test]
            async fn a_slot_on_a_lease_comes_back_when_that_is_over() {
                vectors::a_slot_on_a_lease_comes_back_when_that_is_over(&super::$store()).await;
            }

            #[tokio::test]
            async fn what_a_holder_has_lives_on_with_what_it_takes_more() {
                vectors::what_a_holder_has_lives_on_with_what_it_takes_more(&super::$store()).await;
            }

            #[tokio::test]
            async fn a_batch_of_nothing_answers_nothing() {
                vectors::a_batch_of_nothing_answers_nothing(&super::$store()).await;
            }
        }
    };
}

conformance!(memory);

/// The same for stores on real servers, which take a while to start.
#[cfg(feature = "redis")]
macro_rules! shared_conformance {
    ($name:ident, $server:expr) => {
        #[cfg(feature = "redis")]
        mod $name {
            use super::*;

            #[tokio::test]
            async fn answers_random_sequences_as_the_pure_functions_do() {
                let server = $server;
                sequences::equal_the_model(|| servers::ManualRedis::on(&server.url())).await;
            }

            #[tokio::test]
            async fn answers_on_long_lists_as_the_pure_functions_do() {
                let server = $server;
                sequences::equal_the_model_on_long_lists(|| {
                    servers::ManualRedis::on(&server.url())
                })
                .await;
            }

            #[tokio::test]
            async fn answers_as_the_pure_functions_do_while_limits_change_under_live_keys() {
                let server = $server;
                changes::equal_the_model(|| servers::ManualRedis::on(&server.url())).await;
            }

            #[tokio::test]
            async fn keeps_what_every_store_promises() {
                let server = $server;
                let store = || servers::ManualRedis::on(&server.url());
                vectors::a_refusal_charges_nothing(&store()).await;
                vectors::charge_always_charges_each_limit_by_itself(&store()).await;
                vectors::an_observed_refusal_refuses_nothing(&store()).await;
                vectors::one_alternative_that_admits_is_enough(&store()).await;
                vectors::a_key_that_stands_twice_is_charged_twice(&store()).await;
                vectors::reset_forgets_one_key_only(&store()).await;
                vectors::a_slot_comes_back_once_however_often_it_is_given_back(&store()).await;
                vectors::a_slot_on_a_lease_comes_back_when_that_is_over(&store()).await;
                vectors::what_a_holder_has_lives_on_with_what_it_takes_more(&store()).await;
                vectors::a_batch_of_nothing_answers_nothing(&store()).await;
            }
        }
    };
}

#[cfg(feature = "redis")]
shared_conformance!(redis, tidegate_test_servers::server::Server::redis());
#[cfg(feature = "redis")]
shared_conformance!(valkey, tidegate_test_servers::server::Server::valkey());
#[cfg(feature = "redis")]
shared_conformance!(
    cluster,
    tidegate_test_servers::cluster::Cluster::start(tidegate_test_servers::server::Flavour::Redis)
);
