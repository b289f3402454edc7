//! This node in the roster of its fleet, and the other nodes for the pages of the debug port.
//!
//! The description is written on a beat, whether somebody looks or not; descriptions of others are read only for a page,
//! at most once a second for all pages together.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidegate_admin::{DebugDoor, NodesReader};
use tidegate_engine::SystemClock;
use tidegate_redis_board::{NodeRoster, ROSTER_BEAT};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::store::{self, ServiceStore};
use crate::config::{Address, Config, KeyLayout};
use crate::exit::Failure;

/// How long descriptions are shown before they are read again.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How long the last call may take when the process stops.
const LEAVE_WITHIN: Duration = Duration::from_millis(300);

/// The port that the debug port has by default.
const USUAL_PORT: u16 = 6_070;

/// Descriptions of nodes, or why they cannot be read.
type NodesResult = Result<Vec<String>, String>;

/// The roster of the fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetNodes {
    roster: Arc<NodeRoster>,
    last: Arc<Mutex<Option<(Instant, NodesResult)>>>,
}

impl FleetNodes {
    /// The roster in Redis; [`None`] without Redis, and where others own its keys.
    pub(super) fn open(config: &Config) -> Result<Option<Self>, Failure> {
        if config.store.redis.layout != KeyLayout::Tidegate {
            return Ok(None);
        }
        let settings = store::redis_settings(config)?;
        let Some((url, settings)) = settings else { return Ok(None) };
        // A new identity for each start, as on the board.
        let node = RandomState::new().hash_one("node");
        let roster = NodeRoster::new(settings, &config.overload.fleet.name, node);
        let roster = roster.map_err(|error| store::wrong_settings(url, &error))?;
        Ok(Some(FleetNodes { roster: Arc::new(roster), last: Arc::default() }))
    }

    /// Reads the nodes for a page.
    pub(super) fn reader(&self) -> NodesReader {
        let nodes = self.clone();
        Box::new(move || {
            let nodes = nodes.clone();
            Box::pin(async move { nodes.read().await })
        })
    }

    async fn read(&self) -> NodesResult {
        // Pages that come meanwhile wait for the same answer.
        let mut last = self.last.lock().await;
        let now = Instant::now();
        if let Some((at, nodes)) = &*last
            && now.duration_since(*at) < READ_EVERY
        {
            return nodes.clone();
        }
        let read = self.roster.read().await.map_err(|error| error.to_string());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let nodes: NodesResult = read.map(|nodes| nodes.into_iter().map(text).collect());
        *last = Some((now, nodes.clone()));
        nodes
    }

    /// Writes the description of this node on a beat.
    pub(super) fn describe<S: ServiceStore>(
        &self,
        door: DebugDoor<S, SystemClock>,
    ) -> JoinHandle<()> {
        let roster = Arc::clone(&self.roster);
        tokio::spawn(async move {
            let mut beats = interval(ROSTER_BEAT);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beats.tick().await;
                // A beat that fails is followed by the next one; the store reports a Redis that is away.
                let _ = roster.write(door.node_state().as_bytes()).await;
            }
        })
    }

    /// Removes this node from the roster.
    pub(super) async fn leave(&self) {
        let _ = timeout(LEAVE_WITHIN, self.roster.leave()).await;
    }
}

/// The name of this node: that of the configuration, or of the machine. With another port than the usual one, the port
/// is part of it: several nodes of one machine differ in that.
pub(super) fn name(config: &Config) -> String {
    if let Some(name) = &config.debug.name {
        return name.clone();
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let port = config.debug.listen.iter().find_map(|address| match address {
        Address::Tcp(address) => Some(address.port()),
        Address::Unix(_) => None,
    });
    match port {
        Some(port) if port != USUAL_PORT && port != 0 => format!("{host}:{port}"),
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_one_machine_have_names_of_their_own() {
        let mut config = Config::default();
        let usual = name(&config);
        assert!(!usual.is_empty() && !usual.contains(':'), "{usual}");
        config.debug.listen = vec![Address::Tcp(([127, 0, 0, 1], 7_070).into())];
        assert_eq!(name(&config), format!("{usual}:7070"));
        config.debug.name = Some("blue".to_owned());
        assert_eq!(name(&config), "blue");
    }
}
