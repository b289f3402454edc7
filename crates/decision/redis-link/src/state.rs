//! The state of a client's connections, as callers see it.

use std::time::Duration;

use crate::error::LinkError;

/// The state of a client's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Open connections.
    pub connected: usize,
    /// Connections that there should be.
    pub wanted: usize,
    /// Time since the client became connected or disconnected.
    pub since: Duration,
    /// The last failure since all connections were open.
    pub last_failure: Option<LinkError>,
}

impl LinkState {
    /// Whether all connections are open.
    pub fn is_connected(&self) -> bool {
        self.wanted > 0 && self.connected >= self.wanted
    }
}
