//! Real Redis and Valkey servers for tests, and false ones where a real server
//! cannot be made to fail that way.
//!
//! Everything listens on loopback, on ports and in directories of its own, and
//! is ended by its own id when its handle is dropped. Waiting is for
//! conditions. Knows nothing of the store: it talks to servers by a small
//! client of its own, so that a fault of ours cannot hide itself.

#![allow(dead_code, reason = "each binary of tests uses its part")]
#![allow(clippy::unwrap_used, reason = "what a test rests on has to be there")]

pub(crate) mod authority;
pub(crate) mod cluster;
pub(crate) mod fake;
pub(crate) mod port;
pub(crate) mod process;
pub(crate) mod relay;
pub(crate) mod resp;
pub(crate) mod sentinel;
pub(crate) mod server;

use std::thread;
use std::time::Duration;

/// Far longer than anything takes: who waits this long waits in vain.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long to leave a process alone between two looks at it.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks again and again until there is an answer.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        if let Some(seen) = look() {
            return seen;
        }
        thread::park_timeout(PAUSE);
    }
    panic!("waited in vain: {what}");
}
