//! Limits on connections by network, applied after `accept` and before TLS: the limiter `connection`.
//!
//! A refused request costs the server its connection: the TLS handshake is by far the most expensive part. So a client
//! that opens too many connections is refused before a byte is read, with a reset that leaves no socket behind. Three
//! limits apply to each network (the client's address, or the prefix that its owner usually has) at each door: open
//! connections, new connections a second, and TLS handshakes under way. A door as a whole has a maximum of handshakes
//! and may have a rate.
//!
//! What is open is counted exactly, in memory bounded by the door's maximum of connections. Rates are kept in a table
//! of fixed size whose networks share cells when it is full ([`rate_table`]), so that a flood of addresses is limited
//! too. One lock guards both: it is taken for a few hundred nanoseconds when a connection opens and when it closes, and
//! never for a request.
//!
//! A trusted hop that names its clients with the PROXY protocol is exempt; the guard then applies to the client that
//! the header names, still before TLS. Unix sockets have no network and no guard.

mod kernel_counters;
mod metrics;
mod network;
mod open_networks;
mod rate_table;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ipnet::IpNet;
use parking_lot::Mutex;
use tidegate_algorithms::{
    CallerMode, CheckInput, Limit, Mode, ModeCell, Nanos, Percent, Period, Retry, State, Timestamp,
    TokenBucket,
};
use tidegate_words::words;
use tokio::time::Instant;

use super::connection_state::{ConnectionState, Order};
use super::stats::Stats;
use network::NetworkKey;
use open_networks::OpenNetworks;
use rate_table::RateTable;

pub use kernel_counters::KernelCounters;
pub use metrics::GUARD_METRICS;
pub use network::NetworkPrefixes;

/// A network is greedy if it has more than one in so many of the connections of a full door.
const GREEDY_SHARE: usize = 10;

/// Refusals are logged as one line in this time.
const LOG_EVERY: Nanos = Nanos::from_secs(10);

/// Networks whose refusals are counted for pages. When there are more, all counts are halved.
const REFUSED_NETWORKS_MAX: usize = 1_024;

/// The clock of the guard begins here, so that no instant is before 1970.
const CLOCK_START: Timestamp = Timestamp::from_secs(86_400);

words! {
    /// Why a connection is refused.
    #[derive(PartialOrd, Ord)]
    pub enum RefusalCause {
        /// Its network has too many open.
        Open = "open",
        /// Its network opens them too fast.
        Rate = "rate",
        /// Its network has too many TLS handshakes under way.
        Handshakes = "handshakes",
        /// The door has too many TLS handshakes under way.
        DoorHandshakes = "door_handshakes",
        /// The door is full, and its network has the most open.
        DoorFull = "door_full",
    }
}

/// A number of connections a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRate {
    /// Connections a second.
    pub per_second: u32,
    /// Connections that may come at once.
    pub burst: u32,
}

impl ConnectionRate {
    fn limit(self) -> Limit {
        let bucket = TokenBucket::new(self.per_second.into(), Period::SECOND, self.burst.into());
        Limit::new(bucket)
    }
}

/// The limits of a guard. `None` is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSettings {
    /// Open connections of a network at a door. Default: 64.
    pub open_max: Option<u32>,
    /// New connections of a network at a door. Default: 20 a second, 100 at once.
    pub rate: Option<ConnectionRate>,
    /// TLS handshakes under way of a network at a door. Default: 8.
    pub handshakes_max: Option<u32>,
    /// TLS handshakes under way at a door. Default: 512.
    pub door_handshakes_max: Option<u32>,
    /// New connections at a door. Beyond it the door stops to accept for a while, and connections wait in the kernel's
    /// queue. Default: none.
    pub door_rate: Option<ConnectionRate>,
    /// Which addresses are one network. Default: an IPv4 address, an IPv6 /64.
    pub prefixes: NetworkPrefixes,
    /// Networks that are never limited.
    pub exempt: Vec<IpNet>,
    /// The most memory for rates. Default: 8 MiB.
    pub budget_bytes: usize,
}

impl Default for GuardSettings {
    fn default() -> Self {
        GuardSettings {
            open_max: Some(64),
            rate: Some(ConnectionRate { per_second: 20, burst: 100 }),
            handshakes_max: Some(8),
            door_handshakes_max: Some(512),
            door_rate: None,
            prefixes: NetworkPrefixes::default(),
            exempt: Vec::new(),
            budget_bytes: 8 * 1024 * 1024,
        }
    }
}

/// One network on the pages about connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkReading {
    /// The door.
    pub door: &'static str,
    /// The network.
    pub network: IpNet,
    /// Its open connections.
    pub open: usize,
    /// Its connections that were refused or, in shadow, would have been. Halved now and then while many networks are
    /// refused.
    pub refused: u64,
}

/// Is called for each connection that the guard refuses, with the address that the kernel sees. Not for clients behind
/// a proxy, and not in shadow.
pub type RefusalHook = Box<dyn Fn(IpAddr) + Send + Sync>;

/// Limits the connections of networks at all doors that it is given to.
pub struct ConnectionGuard {
    settings: GuardSettings,
    mode: ModeCell,
    /// Whether the kill switch is pulled.
    is_killed: AtomicBool,
    rate: Option<Limit>,
    door_rate: Option<Limit>,
    started: Instant,
    state: Mutex<GuardState>,
    hook: OnceLock<RefusalHook>,
}

#[derive(Debug)]
struct GuardState {
    doors: Vec<DoorState>,
    rates: RateTable,
    next_id: u64,
    refused: HashMap<(usize, NetworkKey), u64>,
    /// Refusals since the last line in the log, enforced and in shadow.
    unlogged: [u64; 2],
    logged: Option<Timestamp>,
}

#[derive(Debug)]
struct DoorState {
    name: &'static str,
    stats: Vec<Arc<Stats>>,
    networks: OpenNetworks<Weak<ConnectionState>>,
    handshakes: u32,
    arrivals: State,
    /// Pauses of the door, for its own rate: enforced and in shadow.
    pauses: [u64; 2],
    /// By cause; enforced and in shadow.
    refusals: [[u64; 2]; RefusalCause::ALL.len()],
}

impl ConnectionGuard {
    /// A guard that does with its limits what `mode` says.
    pub fn new(settings: GuardSettings, mode: Mode) -> Self {
        let state = GuardState {
            doors: Vec::new(),
            rates: RateTable::new(settings.budget_bytes),
            next_id: 0,
            refused: HashMap::new(),
            unlogged: [0; 2],
            logged: None,
        };
        ConnectionGuard {
            rate: settings.rate.map(ConnectionRate::limit),
            door_rate: settings.door_rate.map(ConnectionRate::limit),
            settings,
            mode: ModeCell::new(mode),
            is_killed: AtomicBool::new(false),
            started: Instant::now(),
            state: Mutex::new(state),
            hook: OnceLock::new(),
        }
    }

    /// Calls this for each refused connection. Only the first hook counts.
    pub fn set_hook(&self, hook: RefusalHook) {
        // A second one would mean two consumers, and there is one.
        let _ = self.hook.set(hook);
    }

    /// What the guard does with its limits.
    pub fn mode(&self) -> Mode {
        self.mode.read()
    }

    /// Sets what it does. Connections that were opened while it was off are not counted.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.set(mode);
    }

    /// Pulls the kill switch, or releases it: meanwhile every connection is admitted.
    pub fn switch_off(&self, off: bool) {
        self.is_killed.store(off, Relaxed);
    }

    /// The limits.
    pub const fn settings(&self) -> &GuardSettings {
        &self.settings
    }

    /// The networks with the most open or refused connections, up to `most` by either.
    pub fn networks(&self, most: usize) -> Vec<NetworkReading> {
        let state = self.state.lock();
        let mut chosen: Vec<(usize, NetworkKey)> = Vec::new();
        for (at, door) in state.doors.iter().enumerate() {
            chosen.extend(door.networks.largest().take(most).map(|(network, _)| (at, network)));
        }
        let mut refused: Vec<_> = state.refused.iter().collect();
        refused.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        chosen.extend(refused.iter().take(most).map(|(place, _)| **place));
        chosen.sort_unstable();
        chosen.dedup();
        let reading = |(at, network): (usize, NetworkKey)| {
            let door = state.doors.get(at)?;
            Some(NetworkReading {
                door: door.name,
                network: network.shown(self.settings.prefixes),
                open: door.networks.open(network),
                refused: state.refused.get(&(at, network)).copied().unwrap_or(0),
            })
        };
        let mut readings: Vec<_> = chosen.into_iter().filter_map(reading).collect();
        readings.sort_by_key(|one| std::cmp::Reverse((one.refused, one.open)));
        readings
    }

    /// The index of a door, which is added if it is new.
    pub(super) fn add_door(self: &Arc<Self>, name: &'static str, stats: Arc<Stats>) -> DoorGuard {
        let mut state = self.state.lock();
        let door = match state.doors.iter().position(|door| door.name == name) {
            Some(door) => door,
            None => {
                state.doors.push(DoorState {
                    name,
                    stats: Vec::new(),
                    networks: OpenNetworks::default(),
                    handshakes: 0,
                    arrivals: State::Unused,
                    pauses: [0; 2],
                    refusals: [[0; 2]; RefusalCause::ALL.len()],
                });
                state.doors.len() - 1
            }
        };
        if let Some(entry) = state.doors.get_mut(door) {
            entry.stats.push(stats);
        }
        DoorGuard { guard: Arc::clone(self), door }
    }

    fn now(&self) -> Timestamp {
        CLOCK_START.after(self.started.elapsed().into())
    }

    /// What applies to a network; `None` while the guard is off.
    fn mode_for(&self, network: NetworkKey) -> Option<CallerMode> {
        if self.is_killed.load(Relaxed) {
            return None;
        }
        self.mode.for_caller(|percent: Percent| percent.includes(share_number(network)))
    }

    fn is_exempt(&self, address: IpAddr) -> bool {
        self.settings.exempt.iter().any(|network| network.contains(&address))
    }
}

impl fmt::Debug for ConnectionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionGuard")
            .field("settings", &self.settings)
            .field("mode", &self.mode.read())
            .finish_non_exhaustive()
    }
}

/// A number by which a network belongs to a percentage of all networks, the same in every process.
fn share_number(network: NetworkKey) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&network.bits().to_be_bytes())
}

impl GuardState {
    /// Why a connection is too many, if it is. Charges the rate otherwise.
    fn judge(
        &mut self,
        guard: &ConnectionGuard,
        door: usize,
        network: NetworkKey,
        now: Timestamp,
    ) -> Option<RefusalCause> {
        let open = self.doors.get(door)?.networks.open(network);
        let open_max =
            guard.settings.open_max.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        // First, because it charges nothing.
        if open_max.is_some_and(|most| open >= most) {
            return Some(RefusalCause::Open);
        }
        let door = u16::try_from(door).unwrap_or(u16::MAX);
        let fits = guard.rate.as_ref().is_none_or(|rate| self.rates.take(door, network, rate, now));
        (!fits).then_some(RefusalCause::Rate)
    }

    /// Counts a refusal, and returns the line for the log if it is time for one.
    fn count(
        &mut self,
        door: usize,
        network: NetworkKey,
        cause: RefusalCause,
        mode: CallerMode,
        now: Timestamp,
    ) -> Option<RefusalSummary> {
        let index = usize::from(mode == CallerMode::Shadow);
        let entry = self.doors.get_mut(door)?;
        if let Some(count) = entry.refusals.get_mut(cause as usize).and_then(|of| of.get_mut(index))
        {
            *count = count.saturating_add(1);
        }
        let name = entry.name;
        if self.refused.len() >= REFUSED_NETWORKS_MAX
            && !self.refused.contains_key(&(door, network))
        {
            self.refused.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        let count = self.refused.entry((door, network)).or_default();
        *count = count.saturating_add(1);
        if let Some(count) = self.unlogged.get_mut(index) {
            *count = count.saturating_add(1);
        }
        if self.logged.is_some_and(|logged| now.since(logged) < LOG_EVERY) {
            return None;
        }
        self.logged = Some(now);
        let [refused, shadow] = std::mem::take(&mut self.unlogged);
        Some(RefusalSummary { door: name, network, cause, refused, shadow })
    }
}

/// Refusals since the last line in the log, with the last one.
#[derive(Debug)]
struct RefusalSummary {
    door: &'static str,
    network: NetworkKey,
    cause: RefusalCause,
    refused: u64,
    shadow: u64,
}

impl RefusalSummary {
    fn log(&self) {
        let RefusalSummary { door, network, cause, refused, shadow } = self;
        let (network, cause) = (network.to_string(), cause.as_str());
        tracing::warn!(door, network, cause, refused, shadow, "too many connections of a network");
    }
}

/// The guard of one door.
#[derive(Clone, Debug)]
pub(super) struct DoorGuard {
    guard: Arc<ConnectionGuard>,
    door: usize,
}

/// What the guard says to a connection.
#[derive(Debug)]
pub(super) enum Entrance {
    /// It is not limited: its network is exempt, or the guard is off.
    Unguarded,
    Admitted(NetworkSlot),
    Refused,
}

/// What happens to a new connection at a full door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullDoor {
    /// Another connection was closed for it.
    RoomMade,
    /// It is itself the newest connection of the greediest network.
    Refused,
    /// No network has much more than the others.
    NoneGreedy,
}

impl DoorGuard {
    /// Judges a new connection. `is_named` says that a proxy named the address.
    pub(super) fn enter(&self, address: IpAddr, is_named: bool) -> Entrance {
        let DoorGuard { guard, door } = self;
        let address = address.to_canonical();
        if guard.is_exempt(address) {
            return Entrance::Unguarded;
        }
        let network = NetworkKey::of(address, guard.settings.prefixes);
        let Some(mode) = guard.mode_for(network) else { return Entrance::Unguarded };
        let now = guard.now();
        let mut state = guard.state.lock();
        let cause = state.judge(guard, *door, network, now);
        let summary = cause.and_then(|cause| state.count(*door, network, cause, mode, now));
        let refused = cause.is_some() && mode == CallerMode::Enforce;
        let id = state.next_id;
        if !refused {
            state.next_id = id.saturating_add(1);
            if let Some(entry) = state.doors.get_mut(*door) {
                entry.networks.add(network, id);
            }
        }
        drop(state);
        if let Some(summary) = summary {
            summary.log();
        }
        if refused {
            if !is_named {
                self.report(address);
            }
            return Entrance::Refused;
        }
        Entrance::Admitted(NetworkSlot { at: self.clone(), address, is_named, network, id, mode })
    }

    fn report(&self, address: IpAddr) {
        if let Some(hook) = self.guard.hook.get() {
            hook(address);
        }
    }

    /// Counts a connection that was admitted, and returns how long to wait before the next one is, by the rate of the
    /// door.
    pub(super) fn pause(&self) -> Option<Duration> {
        let DoorGuard { guard, door } = self;
        let limit = guard.door_rate.as_ref()?;
        let mode = guard.mode.read();
        if guard.is_killed.load(Relaxed) || mode == Mode::Off {
            return None;
        }
        let now = guard.now();
        let mut state = guard.state.lock();
        let entry = state.doors.get_mut(*door)?;
        let decision = limit.check(&mut entry.arrivals, CheckInput::new(1, now));
        if decision.is_admitted() {
            return None;
        }
        // A door has no percentage: it pauses for all of its clients, or for none.
        let index = usize::from(mode == Mode::Shadow);
        if let Some(count) = entry.pauses.get_mut(index) {
            *count = count.saturating_add(1);
        }
        match (mode, decision.retry) {
            (Mode::Enforce(_), Retry::After(wait)) => Some(wait.into()),
            _ => None,
        }
    }

    /// Makes room at a full door: closes the newest connection of the network with the most, if that has much.
    /// `newcomer` is the connection that needs the room.
    pub(super) fn make_room(&self, open: usize, newcomer: Option<&NetworkSlot>) -> FullDoor {
        let DoorGuard { guard, door } = self;
        let now = guard.now();
        loop {
            let mut state = guard.state.lock();
            let Some(entry) = state.doors.get_mut(*door) else { return FullDoor::NoneGreedy };
            let greediest = entry.networks.greediest();
            let greedy = greediest
                .filter(|(_, count)| count.saturating_mul(GREEDY_SHARE) > open && *count > 1);
            let Some((network, _)) = greedy else { return FullDoor::NoneGreedy };
            let Some(mode) = guard.mode_for(network) else { return FullDoor::NoneGreedy };
            let mut taken = None;
            if mode == CallerMode::Enforce {
                taken = entry.networks.take_newest(network);
            }
            let summary = state.count(*door, network, RefusalCause::DoorFull, mode, now);
            // A connection whose last owner is here would lock the guard when it is dropped.
            drop(state);
            if let Some(summary) = summary {
                summary.log();
            }
            let Some((id, handle)) = taken else { return FullDoor::NoneGreedy };
            if newcomer.is_some_and(|slot| slot.id == id) {
                return FullDoor::Refused;
            }
            if let Some(connection) = handle.and_then(|handle| handle.upgrade()) {
                connection.set_order(Order::Cut);
                return FullDoor::RoomMade;
            }
            // That one had ended already: the next one.
        }
    }
}

/// A connection in the counts of its network, until it is dropped.
#[derive(Debug)]
pub(super) struct NetworkSlot {
    at: DoorGuard,
    address: IpAddr,
    is_named: bool,
    network: NetworkKey,
    id: u64,
    mode: CallerMode,
}

impl NetworkSlot {
    /// Lets the guard close the connection when its door is full.
    pub(super) fn attach(&self, connection: &Arc<ConnectionState>) {
        let DoorGuard { guard, door } = &self.at;
        let mut state = guard.state.lock();
        if let Some(entry) = state.doors.get_mut(*door) {
            entry.networks.attach(self.network, self.id, Arc::downgrade(connection));
        }
    }

    /// Begins a TLS handshake. `None` if there are too many.
    pub(super) fn begin_handshake(&self) -> Option<HandshakeSlot<'_>> {
        let DoorGuard { guard, door } = &self.at;
        let settings = &guard.settings;
        let now = guard.now();
        let mut state = guard.state.lock();
        let entry = state.doors.get_mut(*door)?;
        let own = entry.networks.handshakes(self.network);
        let cause = if settings.handshakes_max.is_some_and(|most| own >= most) {
            Some(RefusalCause::Handshakes)
        } else if settings.door_handshakes_max.is_some_and(|most| entry.handshakes >= most) {
            Some(RefusalCause::DoorHandshakes)
        } else {
            None
        };
        let refused = cause.is_some() && self.mode == CallerMode::Enforce;
        let mut is_counted = false;
        if !refused {
            entry.handshakes = entry.handshakes.saturating_add(1);
            is_counted = entry.networks.begin_handshake(self.network);
        }
        let summary =
            cause.and_then(|cause| state.count(*door, self.network, cause, self.mode, now));
        drop(state);
        if let Some(summary) = summary {
            summary.log();
        }
        if refused {
            if !self.is_named {
                self.at.report(self.address);
            }
            return None;
        }
        Some(HandshakeSlot { slot: self, is_counted })
    }
}

impl Drop for NetworkSlot {
    fn drop(&mut self) {
        let DoorGuard { guard, door } = &self.at;
        let mut state = guard.state.lock();
        if let Some(entry) = state.doors.get_mut(*door) {
            entry.networks.remove(self.network, self.id);
        }
    }
}

/// A TLS handshake under way, until it is dropped.
#[derive(Debug)]
pub(super) struct HandshakeSlot<'s> {
    slot: &'s NetworkSlot,
    /// Whether it is in the counts of its network.
    is_counted: bool,
}

impl Drop for HandshakeSlot<'_> {
    fn drop(&mut self) {
        let DoorGuard { guard, door } = &self.slot.at;
        let mut state = guard.state.lock();
        if let Some(entry) = state.doors.get_mut(*door) {
            entry.handshakes = entry.handshakes.saturating_sub(1);
            if self.is_counted {
                entry.networks.end_handshake(self.slot.network);
            }
        }
    }
}

#[cfg(test)]
mod tests;
