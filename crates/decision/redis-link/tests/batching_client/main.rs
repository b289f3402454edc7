//! The client against real servers that start, stop, move and fail.
//!
//! Every call increments counters, so that a call that ran twice is detected: a counter lies between the number of
//! calls that were answered and the number that were sent.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod caller;

mod calls;
mod cluster;
mod connections;
mod distance;
mod outages;
mod refusals;
mod sentinels;
