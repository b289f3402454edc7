//! The courier in front of real servers that come, go, move and fail.
//!
//! Part of the crate's own tests, because what it tests is not public. Every
//! call adds to counters, so that a call that ran twice would show: a counter
//! lies between the calls that were answered and those that were sent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod caller;

mod calls;
mod cluster;
mod connections;
mod outages;
mod refusals;
mod sentinels;
