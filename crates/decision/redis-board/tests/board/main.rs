//! The board of a fleet on real servers: it divides as the in-process board does, grants never exceed the pool, and the
//! grant of a dead node is free after its lease.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

mod conforming;
mod killed;
mod nodes;
mod outages;
mod roster;
