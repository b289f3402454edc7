//! Clients to compare with: naive rounds, exponential backoff with full jitter, and go-batcher's arithmetic.
//!
//! A baseline decides when to send which record, and hears the answers. It does no I/O, so it runs in virtual time
//! against a [`Judge`](crate::Judge), or in real time over HTTP.

mod backoff;
mod batcher;
mod bursts;
mod naive;
#[cfg(test)]
mod tests;
mod virtual_time;

use std::time::Duration;

use tidegate_algorithms::Timestamp;

pub use self::backoff::BackoffClient;
pub use self::batcher::{BatcherFleet, BatcherSettings};
pub use self::bursts::BurstClient;
pub use self::naive::NaiveClient;
pub use self::virtual_time::run_in_virtual_time;

/// A client that has records to send.
pub trait BaselineClient: Send {
    /// The numbers of the records that it sends at `now`.
    fn send(&mut self, now: Timestamp) -> Vec<usize>;

    /// The answer to a record that it sent.
    fn answer(&mut self, record: usize, accepted: bool, now: Timestamp);

    /// When it wants to send next; `None` if it waits for answers, or has finished.
    fn next_send(&self) -> Option<Timestamp>;

    /// Whether every record was accepted, or given up.
    fn has_finished(&self) -> bool;
}

/// What a baseline did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaselineReport {
    /// Requests that it sent.
    pub sends: u64,
    /// Requests that were throttled.
    pub throttled: u64,
    /// Requests that were accepted.
    pub accepted: u64,
    /// The time from the first send to the last answer.
    pub elapsed: Duration,
}
