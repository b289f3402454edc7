//! Real servers for tests: Redis, Valkey, PostgreSQL, etcd, an S3 server, and fake ones for faults that a real server cannot be made to have.
//!
//! Every server listens on loopback, on its own ports and in its own directory, and is killed by its process id when its
//! handle is dropped. Tests wait for conditions, not for time. The crate has its own small client, so that a bug in the
//! product's client cannot hide itself.

#![allow(clippy::unwrap_used, reason = "a test cannot continue without its servers")]

pub mod authority;
pub mod cluster;
pub mod etcd;
pub mod fake;
pub mod http;
pub mod moto;
pub mod namespace;
pub mod port;
pub mod postgres;
pub mod process;
pub mod relay;
pub mod resp;
pub mod sentinel;
pub mod server;

use std::thread;
use std::time::Duration;

/// How long to wait for a condition; far longer than any takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Tries until there is a result.
///
/// # Panics
/// When there is none within [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if let Some(seen) = look() {
            return seen;
        }
        thread::park_timeout(PAUSE);
    }
    panic!("timed out waiting for: {what}");
}
