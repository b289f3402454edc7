//! Tidegate behind a real Envoy: both run as processes, with their real settings.
//!
//! What Envoy makes of an answer, and what it asks, cannot be known from our
//! side of the wire; so nothing is played here but the client and the service
//! behind Envoy. `tools/install-envoy` puts Envoy where the tests look for it;
//! without it they fail. Limits are per year where a count is compared, so that
//! no window ends within a test. What RLS answers say field by field is tested
//! beside the door itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bootstrap;
mod client;
mod process;
mod proxy;
mod tidegate;
mod upstream;

mod answers;
mod compat;
mod costs;
mod descriptors;
mod example;
mod header_fields;
mod modes;
mod outages;
mod reload;
mod transports;

use std::thread;
use std::time::Duration;

/// Far longer than anything takes: who waits this long waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to leave a process alone between two looks at it.
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until there is an answer. For conditions without a log line; with one, wait for the line instead.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looks = PATIENCE.as_millis() / PAUSE.as_millis();
    for _ in 0..looks {
        if let Some(seen) = look() {
            return seen;
        }
        thread::park_timeout(PAUSE);
    }
    panic!("waited in vain: {what}");
}
