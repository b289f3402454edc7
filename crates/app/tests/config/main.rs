//! The configuration: layers, origins, errors, compat, schema and documents.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/config_cases.rs"]
mod config_cases;
mod resolved;

mod compat;
mod documents;
mod layers;
mod refusals;
