//! Processor affinity and CPU time of servers and generator.
//!
//! Servers run on one processor and the generator on another, so that neither
//! waits for the other. CPU times are the kernel's counts of nanoseconds for each
//! thread, not samples.

mod pins;
mod usage;

pub(crate) use pins::Pins;
pub(crate) use usage::{resident_bytes, spent, time_of};
