//! Who runs on which processor, and how long.
//!
//! Servers have one processor to themselves and the generator another, so that
//! neither waits for the other and a server's time is its own. Nothing here is
//! measured by sampling: the kernel counts each thread's nanoseconds.

mod pins;
mod usage;

pub(crate) use pins::Pins;
pub(crate) use usage::{resident_bytes, spent, time_of};
