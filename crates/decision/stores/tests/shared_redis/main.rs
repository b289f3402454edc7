//! The shared store on real servers: the register of nodes, renewed slots, and every mode while servers, nodes, lines
//! and clocks fail.
//!
//! Each test asserts the same: every request is answered in time, every limit holds within the bound of
//! `docs/consistency.md`, nothing is counted twice, and recovery is prompt.
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
