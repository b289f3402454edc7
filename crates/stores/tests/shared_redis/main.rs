//! The shared store on real servers: who is there, slots that live on, every mode.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod nodes;
mod slots;
