//! Connections to servers: how one is made, where the master is, who has which slot.
//!
//! The client library speaks the protocol on a connection. Which server to
//! connect to, when to try again and when to give a connection up is decided
//! here and in the courier, because a limiter has to know what the library
//! hides: whether a call may have run. The library would send some calls again.

pub(crate) mod dial;
pub(crate) mod patience;
pub(crate) mod sentinel;
pub(crate) mod slots;
pub(crate) mod tls;

use std::time::Duration;

use crate::counter_store::StoreError;

/// How the shared store's connections are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Connections that can be used.
    pub connected: usize,
    /// Connections that there should be.
    pub wanted: usize,
    /// How long it has been so.
    pub since: Duration,
    /// What went wrong last, if anything did since all was well.
    pub last_failure: Option<StoreError>,
}

impl LinkState {
    /// Whether every server can be asked.
    pub fn is_connected(&self) -> bool {
        self.wanted > 0 && self.connected >= self.wanted
    }
}
