//! Forwarders on paused time, with records in SQLite's memory and leases in this process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod bench;
mod outcomes;
mod pace;
mod steering;
