//! How patient the calls are.

use std::time::Duration;

/// The settings of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacingSettings {
    /// The longest wait for a turn, or for a target that closed itself. A longer one fails at once, with its time.
    pub wait_max: Duration,
    /// Attempts at one call, the first included. 1 switches retries off.
    pub attempts_max: u32,
    /// Whether calls to a target that is short of capacity are dropped before they are sent.
    pub drops_when_short: bool,
}

impl Default for PacingSettings {
    /// Waits up to a minute, three attempts.
    fn default() -> Self {
        PacingSettings {
            wait_max: Duration::from_secs(60),
            attempts_max: 3,
            drops_when_short: true,
        }
    }
}

impl PacingSettings {
    /// For calls that a person waits for: two seconds.
    pub fn interactive() -> Self {
        PacingSettings { wait_max: Duration::from_secs(2), ..Self::default() }
    }

    /// For work in the background: a quarter of an hour.
    pub fn batch() -> Self {
        PacingSettings { wait_max: Duration::from_secs(900), ..Self::default() }
    }
}
