//! The shared store on real servers: who is there, slots that live on, and
//! every mode while servers, nodes, lines and clocks fail.
//!
//! Whatever fails, each test asks the same: was every request answered in time,
//! did every limit hold within the bound that `docs/consistency.md` states, was
//! anything counted twice, and how long did it take until all was well.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod fleet;
mod ledger;
mod load;

mod nodes;
mod slots;

mod clocks;
mod crash;
mod failover;
mod freeze;
mod killed;
mod lost_master;
mod migration;
mod refusals;
mod regions;
mod scripts;
