//! The limiter of connections, built from the configuration and shared by every door.

use std::fs;
use std::sync::Arc;

use tidegate_admin::{ConnectionLimiter, NetworkRow};
use tidegate_engine::Mode;
use tidegate_server::{ConnectionGuard, NetworkReading};

use crate::config::Config;

/// Networks on the page `/top`, by either column.
const NETWORKS_SHOWN: usize = 20;

/// The file with the longest queue that the kernel allows.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// The guard of every door. The switches set its mode.
pub(super) fn guard(config: &Config) -> Arc<ConnectionGuard> {
    warn_of_cut_backlog(config.connections.backlog);
    Arc::new(ConnectionGuard::new(config.connections.guard_settings(), Mode::Off))
}

fn warn_of_cut_backlog(backlog: u32) {
    let most = fs::read_to_string(SOMAXCONN).ok().and_then(|text| text.trim().parse().ok());
    if let Some(most) = most.filter(|most: &u32| *most < backlog) {
        tracing::warn!(
            backlog,
            somaxconn = most,
            "the kernel cuts `connections.backlog`: raise net.core.somaxconn, or lower the setting"
        );
    }
}

/// The networks for the page `/top`.
pub(super) fn rows(guard: &ConnectionGuard) -> Vec<NetworkRow> {
    let row = |NetworkReading { door, network, open, refused }| NetworkRow {
        door,
        network: network.to_string(),
        open,
        refused,
    };
    guard.networks(NETWORKS_SHOWN).into_iter().map(row).collect()
}

/// The guard as the switches see it.
pub(super) struct GuardSwitch(pub(super) Arc<ConnectionGuard>);

impl ConnectionLimiter for GuardSwitch {
    fn mode(&self) -> Mode {
        self.0.mode()
    }

    fn set_mode(&self, mode: Mode) {
        self.0.set_mode(mode);
    }

    fn switch_off(&self, off: bool) {
        self.0.switch_off(off);
    }
}
