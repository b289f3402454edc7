//! The list of networks that flood: kept from refusals, shown, and offered to `tidegate guard` on a private socket.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use ipnet::IpNet;
use parking_lot::Mutex;
use tidegate_admin::ListedRow;
use tidegate_engine::{Clock, Mode, Nanos, SystemClock, Timestamp};
use tidegate_gateway::ConnectionObserver;
use tidegate_kernel_rules::{FloodList, FloodSettings, ListMessage};
use tidegate_metrics::{Collector, Exposition};
use tidegate_server::PrivateSocket;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::{interval, timeout};

use crate::config::Config;
use crate::exit::{Complaint, Failure};

/// How often the list is sent.
const BEAT: Duration = Duration::from_secs(1);

/// How long a reader may take for one list.
const WRITE_MAX: Duration = Duration::from_secs(5);

/// Readers at a time.
const READERS_MAX: usize = 4;

/// Networks that the page shows.
const SHOWN: usize = 100;

tidegate_metrics::metrics! {
    /// The metrics of the list of floods.
    pub FLOOD_METRICS:
    LISTED_NOW = Gauge "tidegate_flood_list_networks" []
        "Networks on the list of floods.";
    LISTED = Counter "tidegate_flood_list_listed_total" []
        "Times that a network was put on the list of floods.";
    SPARED = Counter "tidegate_flood_list_spared_total" []
        "Times that a network flooded and was not listed, because several callers or a critical request came from it.";
    CROWDED_OUT = Counter "tidegate_flood_list_crowded_out_total" []
        "Networks that left the full list of floods before their time.";
    MISSED = Counter "tidegate_flood_list_missed_total" []
        "Refusals that the list of floods did not count, because there were too many networks in one second.";
    READERS = Gauge "tidegate_flood_list_readers" []
        "Processes that read the list of floods now.";
}

/// The list, shared by the doors that report refusals and the socket that offers it.
pub(super) struct Floods {
    mode: Mode,
    list: Mutex<FloodList>,
    clock: SystemClock,
    /// Whether the kill switch is pulled: an empty list is offered.
    is_killed: AtomicBool,
    readers: AtomicUsize,
}

impl std::fmt::Debug for Floods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Floods").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Floods {
    /// The list, unless the configuration has it off. Opens its socket.
    pub(super) fn start(config: &Config) -> Result<Option<Arc<Self>>, Failure> {
        let fields = &config.floods;
        let mode = fields.list.0;
        if mode == Mode::Off {
            return Ok(None);
        }
        let mut never: Vec<IpNet> = fields.never.iter().map(|network| network.get()).collect();
        never.extend(config.connections.exempt.iter().map(|network| network.get()));
        never.extend(config.gateway.proxy_protocol_from.iter().map(|network| network.get()));
        never.extend(own_addresses());
        let settings = FloodSettings {
            rate: fields.rate.into(),
            seconds: fields.seconds,
            callers: fields.callers.try_into().unwrap_or(usize::MAX),
            first: Nanos::from(fields.first),
            longest: Nanos::from(fields.longest),
            never,
            ipv4_prefix: u8::try_from(config.connections.ipv4_prefix).unwrap_or(32),
            ipv6_prefix: u8::try_from(config.connections.ipv6_prefix).unwrap_or(128),
            ..FloodSettings::default()
        };
        let clock = SystemClock::new();
        let list = Mutex::new(FloodList::new(settings, clock.now()));
        let (is_killed, readers) = (AtomicBool::new(false), AtomicUsize::new(0));
        let floods = Arc::new(Floods { mode, list, clock, is_killed, readers });
        if let Some(path) = &fields.socket {
            let socket = PrivateSocket::bind(path).map_err(|error| {
                let help =
                    "give `floods.socket` a path in a directory that the service may write to";
                Complaint::new(error.to_string(), help)
            })?;
            tokio::spawn(offer(socket, Arc::clone(&floods)));
            tracing::info!(socket = %path.display(), "offering the list of floods");
        }
        Ok(Some(floods))
    }

    /// Judges the last second; called each second.
    pub(super) fn tick(&self, is_killed: bool) {
        self.is_killed.store(is_killed, Relaxed);
        let now = self.clock.now();
        let mut list = self.list.lock();
        let before = list.counts().listed;
        list.tick(now);
        let (listed, networks) = (list.counts().listed - before, list.len());
        drop(list);
        if listed > 0 {
            let mode = self.mode.as_str();
            tracing::warn!(listed, networks, mode, "networks flood: they are on the list");
        }
    }

    /// A refused connection, from an address that the kernel sees.
    pub(super) fn refuse(&self, address: IpAddr) {
        self.list.lock().refuse(address);
    }

    /// The list for the packet filter: empty in shadow, and while the kill switch is pulled.
    fn message(&self) -> ListMessage {
        let list = self.list.lock();
        if self.mode == Mode::Shadow || self.is_killed.load(Relaxed) {
            return ListMessage::default();
        }
        // No version of a list is that of the empty one.
        ListMessage {
            version: list.version().saturating_add(1),
            entries: list.entries(self.clock.now()),
        }
    }

    /// The list for the page.
    pub(super) fn rows(&self) -> Vec<ListedRow> {
        let now: Timestamp = self.clock.now();
        let entries = self.list.lock().entries(now);
        let row = |entry: &tidegate_kernel_rules::ListEntry| ListedRow {
            network: entry.network.to_string(),
            seconds: entry.seconds,
            shadow: self.mode == Mode::Shadow,
        };
        entries.iter().take(SHOWN).map(row).collect()
    }
}

impl ConnectionObserver for Floods {
    fn refused(&self, address: IpAddr) {
        self.refuse(address);
    }

    fn identified(&self, address: IpAddr, caller: Option<u64>, is_critical: bool) {
        self.list.lock().identify(address, caller, is_critical);
    }
}

impl Collector for Floods {
    fn collect(&self, out: &mut Exposition) {
        let (networks, counts) = {
            let list = self.list.lock();
            (list.len(), list.counts())
        };
        out.single(LISTED_NOW, networks);
        out.single(LISTED, counts.listed);
        out.single(SPARED, counts.spared);
        out.single(CROWDED_OUT, counts.crowded_out);
        out.single(MISSED, counts.missed);
        out.single(READERS, self.readers.load(Relaxed));
    }
}

/// Lets readers in, for as long as the service runs.
async fn offer(socket: PrivateSocket, floods: Arc<Floods>) {
    let mut pause = interval(BEAT);
    loop {
        match socket.accept().await {
            Ok(reader) if floods.readers.load(Relaxed) < READERS_MAX => {
                let reading = ReadingProcess::new(Arc::clone(&floods));
                tokio::spawn(reading.send_to(reader));
            }
            Ok(_) => {
                tracing::warn!(most = READERS_MAX, "too many processes read the list of floods")
            }
            Err(error) => {
                tracing::warn!(%error, "a process cannot read the list of floods");
                // An error of the system may repeat at once.
                pause.tick().await;
            }
        }
    }
}

/// A process that reads the list, counted until it is gone.
struct ReadingProcess {
    floods: Arc<Floods>,
}

impl ReadingProcess {
    fn new(floods: Arc<Floods>) -> Self {
        floods.readers.fetch_add(1, Relaxed);
        ReadingProcess { floods }
    }

    async fn send_to(self, mut reader: UnixStream) {
        let mut beat = interval(BEAT);
        loop {
            beat.tick().await;
            let text = self.floods.message().encode();
            match timeout(WRITE_MAX, reader.write_all(text.as_bytes())).await {
                Ok(Ok(())) => {}
                // It connects again when it is able to.
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

impl Drop for ReadingProcess {
    fn drop(&mut self) {
        self.floods.readers.fetch_sub(1, Relaxed);
    }
}

/// The addresses of this machine and of its resolvers, which are never listed.
fn own_addresses() -> Vec<IpNet> {
    let read = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
    let mut own = local_ipv4(&read("/proc/net/fib_trie"));
    own.extend(local_ipv6(&read("/proc/net/if_inet6")));
    own.extend(resolvers(&read("/etc/resolv.conf")));
    own
}

/// The addresses that the routing table calls local: each is two lines above its mark.
fn local_ipv4(trie: &str) -> Vec<IpNet> {
    let mut address = None;
    let mut local = Vec::new();
    for line in trie.lines() {
        let line = line.trim();
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf.parse::<IpAddr>().ok();
        } else if line.contains("host LOCAL") {
            local.extend(address.map(IpNet::from));
        }
    }
    local.sort_unstable();
    local.dedup();
    local
}

/// The addresses of interfaces: 32 digits at the beginning of each line.
fn local_ipv6(interfaces: &str) -> Vec<IpNet> {
    let address = |line: &str| {
        let bits = u128::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
        Some(IpNet::from(IpAddr::from(bits.to_be_bytes())))
    };
    interfaces.lines().filter_map(address).collect()
}

fn resolvers(text: &str) -> Vec<IpNet> {
    let address = |line: &str| {
        let address = line.trim().strip_prefix("nameserver")?.trim().parse::<IpAddr>().ok()?;
        Some(IpNet::from(address))
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(networks: &[IpNet]) -> Vec<String> {
        networks.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_of_this_machine_and_its_resolvers_are_found() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 10.0.0.5\n        /32 host LOCAL\n";
        assert_eq!(texts(&local_ipv4(trie)), ["10.0.0.5/32"]);
        let interfaces = "20010db8000000000000000000000007 02 40 00 80 eth0\nnonsense\n";
        assert_eq!(texts(&local_ipv6(interfaces)), ["2001:db8::7/128"]);
        let resolv = "# comment\nnameserver 192.0.2.53\nsearch example\nnameserver fe80::1%eth0\n";
        assert_eq!(texts(&resolvers(resolv)), ["192.0.2.53/32"]);
        assert!(own_addresses().iter().any(|own| own.addr().is_loopback()));
    }

    #[test]
    fn every_metric_is_written() {
        let mut config = Config::default();
        config.floods.list = crate::config::SwitchMode(Mode::Shadow);
        config.floods.socket = None;
        let floods = Floods::start(&config).unwrap().unwrap();
        assert!(tidegate_metrics::missing(FLOOD_METRICS, &*floods).is_empty());
    }

    #[test]
    fn in_shadow_and_while_killed_the_packet_filter_gets_an_empty_list() {
        let mut config = Config::default();
        config.floods.socket = None;
        for (mode, is_killed, expected) in
            [(Mode::Shadow, false, 0), (Mode::ENFORCE, false, 1), (Mode::ENFORCE, true, 0)]
        {
            config.floods.list = crate::config::SwitchMode(mode);
            let floods = Floods::start(&config).unwrap().unwrap();
            for _ in 0..10 {
                (0..100).for_each(|_| floods.refuse("203.0.113.7".parse().unwrap()));
                floods.tick(is_killed);
            }
            assert_eq!(floods.rows().len(), 1, "it is kept and shown in every mode");
            assert_eq!(floods.message().entries.len(), expected, "{mode}, {is_killed}");
        }
    }
}
