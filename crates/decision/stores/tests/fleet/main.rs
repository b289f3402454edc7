//! The board of a fleet on real servers: it divides as the one in process does,
//! grants never exceed the pool, and what a dead node held comes back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod bench;

mod conforming;
mod killed;
mod nodes;
mod outages;
