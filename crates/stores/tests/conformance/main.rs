//! What every store must do, whichever way it keeps its counters.
//!
//! The same vectors and the same random sequences are sent to a store and to
//! the pure functions; all answers must be equal. A store takes part by one
//! line at the end of this file.

mod model;
mod sequences;
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
            async fn a_refusal_charges_nobody() {
                vectors::a_refusal_charges_nobody(&super::$store()).await;
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
            async fn a_batch_of_nothing_answers_nothing() {
                vectors::a_batch_of_nothing_answers_nothing(&super::$store()).await;
            }
        }
    };
}

conformance!(memory);
