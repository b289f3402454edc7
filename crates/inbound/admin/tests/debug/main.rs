//! The debug door as those who run a service meet it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod data;
mod events;
mod fleet;
mod metrics;
mod pages;
mod security;
mod support;
mod switches;
