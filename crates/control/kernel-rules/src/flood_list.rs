//! Which networks flood, from refusals.
//!
//! A network is listed that was refused more than [`FloodSettings::rate`] times in each of
//! [`FloodSettings::seconds`] seconds in a row: it had been refused before, and went on. The first time it is listed for
//! a minute; each time within a day doubles that, up to an hour. Networks of people who share an address are spared:
//! one from which several callers with valid credentials, or a critical request, came lately is never listed.
//!
//! Everything has a maximum, and what goes beyond it is counted. Callers pass `now`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use tidegate_algorithms::{Nanos, Timestamp};

/// Networks whose refusals are counted in one second.
const CANDIDATES_MAX: usize = 65_536;

/// Networks whose callers are known, in each of two generations.
const PEERS_MAX: usize = 32_768;

/// Networks whose earlier offences are known.
const OFFENDERS_MAX: usize = 65_536;

/// How long a generation of peers lasts: callers are remembered for five to ten minutes.
const GENERATION: Nanos = Nanos::from_secs(300);

/// When an offence is forgotten.
const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(86_400);

/// When a network is listed, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FloodSettings {
    /// Refusals a second.
    pub rate: u64,
    /// For so many seconds in a row.
    pub seconds: u32,
    /// A network from which more callers than this came lately is never listed.
    pub callers: usize,
    /// How long a network is listed the first time.
    pub first: Nanos,
    /// How long it is listed at most.
    pub longest: Nanos,
    /// Networks on the list; when there are more, those with the fewest refusals leave.
    pub entries_max: usize,
    /// Networks that are never listed. Loopback, link-local and unspecified addresses are not either.
    pub never: Vec<IpNet>,
    /// Leading bits of an IPv4 address that are its network.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that are its network.
    pub ipv6_prefix: u8,
}

impl Default for FloodSettings {
    fn default() -> Self {
        FloodSettings {
            rate: 50,
            seconds: 10,
            callers: 3,
            first: Nanos::from_secs(60),
            longest: Nanos::from_secs(3_600),
            entries_max: 65_536,
            never: Vec::new(),
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        }
    }
}

/// A network on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The network.
    pub network: IpNet,
    /// How many seconds it is still listed.
    pub seconds: u32,
}

/// What the list did since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloodCounts {
    /// Networks that were listed.
    pub listed: u64,
    /// Networks that would have been listed, but several callers or a critical request came from them.
    pub spared: u64,
    /// Networks that left a full list before their time.
    pub crowded_out: u64,
    /// Refusals that were not counted, because there were too many networks in one second.
    pub missed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    refusals: u64,
    streak: u32,
}

#[derive(Clone, Copy, Debug)]
struct ListedNetwork {
    until: Timestamp,
    refusals: u64,
}

#[derive(Clone, Copy, Debug)]
struct Offender {
    offences: u32,
    last: Timestamp,
}

/// The callers of a network.
#[derive(Clone, Debug, Default)]
struct PeerCallers {
    callers: Vec<u64>,
    is_critical: bool,
}

/// Watches refusals, and lists networks that flood.
#[derive(Debug)]
pub struct FloodList {
    settings: FloodSettings,
    candidates: HashMap<IpNet, Candidate>,
    listed: HashMap<IpNet, ListedNetwork>,
    offenders: HashMap<IpNet, Offender>,
    /// The callers of this generation and of the one before.
    peers: [HashMap<IpNet, PeerCallers>; 2],
    generation_began: Timestamp,
    version: u64,
    counts: FloodCounts,
}

impl FloodList {
    /// An empty list.
    pub fn new(settings: FloodSettings, now: Timestamp) -> Self {
        FloodList {
            settings,
            candidates: HashMap::new(),
            listed: HashMap::new(),
            offenders: HashMap::new(),
            peers: Default::default(),
            generation_began: now,
            version: 0,
            counts: FloodCounts::default(),
        }
    }

    /// The network of an address; [`None`] if it is never listed.
    fn network(&self, address: IpAddr) -> Option<IpNet> {
        let address = address.to_canonical();
        let is_local = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_unspecified(),
        };
        if is_local || address.is_loopback() {
            return None;
        }
        let bits = match address {
            IpAddr::V4(_) => self.settings.ipv4_prefix.min(32),
            IpAddr::V6(_) => self.settings.ipv6_prefix.min(128),
        };
        let network = IpNet::new(address, bits).ok()?.trunc();
        let overlaps = |never: &IpNet| never.contains(&network) || network.contains(never);
        (!self.settings.never.iter().any(overlaps)).then_some(network)
    }

    /// Counts a refused connection or request of an address.
    pub fn refuse(&mut self, address: IpAddr) {
        let Some(network) = self.network(address) else { return };
        if self.candidates.len() >= CANDIDATES_MAX && !self.candidates.contains_key(&network) {
            self.counts.missed = self.counts.missed.saturating_add(1);
            return;
        }
        let candidate = self.candidates.entry(network).or_default();
        candidate.refusals = candidate.refusals.saturating_add(1);
    }

    /// Remembers a caller of an address, whose credentials are valid (`caller` is a hash of its name), or a critical
    /// request.
    pub fn identify(&mut self, address: IpAddr, caller: Option<u64>, is_critical: bool) {
        let Some(network) = self.network(address) else { return };
        let callers_max = self.settings.callers.saturating_add(1);
        let [current, _] = &mut self.peers;
        if current.len() >= PEERS_MAX && !current.contains_key(&network) {
            self.turn_generation();
        }
        let [current, _] = &mut self.peers;
        let known = current.entry(network).or_default();
        known.is_critical |= is_critical;
        if let Some(caller) = caller
            && known.callers.len() < callers_max
            && !known.callers.contains(&caller)
        {
            known.callers.push(caller);
        }
    }

    fn turn_generation(&mut self) {
        self.peers.swap(0, 1);
        let [current, _] = &mut self.peers;
        current.clear();
    }

    /// Whether several people may be behind a network.
    fn is_spared(&self, network: IpNet) -> bool {
        let known = self.peers.iter().filter_map(|generation| generation.get(&network));
        let callers: HashSet<u64> =
            known.clone().flat_map(|peer| peer.callers.iter().copied()).collect();
        callers.len() > self.settings.callers || known.into_iter().any(|peer| peer.is_critical)
    }

    /// Judges the second that has passed. Call it once a second.
    pub fn tick(&mut self, now: Timestamp) {
        let mut flooding = Vec::new();
        let (rate, seconds) = (self.settings.rate, self.settings.seconds);
        self.candidates.retain(|network, candidate| {
            if candidate.refusals <= rate {
                return false;
            }
            candidate.streak = candidate.streak.saturating_add(1);
            if candidate.streak >= seconds {
                flooding.push((*network, candidate.refusals));
            }
            candidate.refusals = 0;
            true
        });
        let before = self.listed.len();
        self.listed.retain(|_, entry| entry.until > now);
        let mut is_changed = self.listed.len() != before;
        for (network, refusals) in flooding {
            if self.is_spared(network) {
                self.counts.spared = self.counts.spared.saturating_add(1);
            } else if !self.listed.contains_key(&network) {
                self.list(network, refusals, now);
                is_changed = true;
            }
            self.candidates.remove(&network);
        }
        if now.since(self.generation_began) >= GENERATION {
            self.generation_began = now;
            self.turn_generation();
        }
        if is_changed {
            self.version = self.version.saturating_add(1);
        }
    }

    fn list(&mut self, network: IpNet, refusals: u64, now: Timestamp) {
        let known = self.offenders.get(&network);
        let recent = known.filter(|offender| now.since(offender.last) < FORGOTTEN_AFTER);
        let offences = recent.map_or(0, |offender| offender.offences);
        let factor = 1_u64.checked_shl(offences).unwrap_or(u64::MAX);
        let time = self.settings.first.get().saturating_mul(factor);
        let until = now.after(Nanos::new(time.min(self.settings.longest.get())));
        if self.offenders.len() >= OFFENDERS_MAX && !self.offenders.contains_key(&network) {
            self.offenders.retain(|_, offender| now.since(offender.last) < FORGOTTEN_AFTER);
        }
        if self.offenders.len() < OFFENDERS_MAX || self.offenders.contains_key(&network) {
            let offences = offences.saturating_add(1);
            self.offenders.insert(network, Offender { offences, last: now });
        }
        if self.listed.len() >= self.settings.entries_max {
            let least = self.listed.iter().min_by_key(|(_, entry)| entry.refusals);
            if let Some(least) = least.map(|(network, _)| *network) {
                self.listed.remove(&least);
                self.counts.crowded_out = self.counts.crowded_out.saturating_add(1);
            }
        }
        self.listed.insert(network, ListedNetwork { until, refusals });
        self.counts.listed = self.counts.listed.saturating_add(1);
    }

    /// Takes every network off the list, and forgets who flooded.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.offenders.clear();
        if !self.listed.is_empty() {
            self.listed.clear();
            self.version = self.version.saturating_add(1);
        }
    }

    /// The list, in the order of the networks.
    pub fn entries(&self, now: Timestamp) -> Vec<ListEntry> {
        let entry = |(network, listed): (&IpNet, &ListedNetwork)| {
            let seconds = u32::try_from(listed.until.since(now).as_secs_ceil()).unwrap_or(u32::MAX);
            (seconds > 0).then_some(ListEntry { network: *network, seconds })
        };
        let mut entries: Vec<ListEntry> = self.listed.iter().filter_map(entry).collect();
        entries.sort_unstable_by_key(|entry| entry.network);
        entries
    }

    /// The number of networks on the list.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// Whether no network is listed.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Changes whenever a network comes or goes.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// What the list did since the start.
    pub const fn counts(&self) -> FloodCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000_000);

    /// A list, and the second that it is in.
    struct Watcher {
        list: FloodList,
        second: u64,
    }

    impl Watcher {
        fn new(settings: FloodSettings) -> Self {
            Watcher { list: FloodList::new(settings, START), second: 0 }
        }

        fn now(&self) -> Timestamp {
            START.after(Nanos::from_secs(self.second))
        }

        /// Refuses an address so often in each of so many seconds.
        fn flood(&mut self, address: &str, per_second: u64, seconds: u64) {
            for _ in 0..seconds {
                (0..per_second).for_each(|_| self.list.refuse(address.parse().unwrap()));
                self.second += 1;
                self.list.tick(self.now());
            }
        }

        fn listed(&self) -> Vec<(String, u32)> {
            let entries = self.list.entries(self.now());
            entries.iter().map(|entry| (entry.network.to_string(), entry.seconds)).collect()
        }
    }

    #[test]
    fn ten_seconds_of_flood_list_a_network_for_a_minute() {
        let mut watcher = Watcher::new(FloodSettings::default());
        watcher.flood("203.0.113.7", 51, 9);
        assert!(watcher.list.is_empty());
        watcher.flood("203.0.113.7", 51, 1);
        assert_eq!(watcher.listed(), [("203.0.113.7/32".to_owned(), 60)]);
        let version = watcher.list.version();
        watcher.flood("203.0.113.7", 0, 60);
        assert!(watcher.listed().is_empty());
        assert!(watcher.list.version() > version);
    }

    #[test]
    fn a_slower_flood_or_one_with_a_pause_lists_no_network() {
        let mut watcher = Watcher::new(FloodSettings::default());
        watcher.flood("203.0.113.7", 50, 100);
        watcher.flood("203.0.113.7", 500, 9);
        watcher.flood("203.0.113.7", 0, 1);
        watcher.flood("203.0.113.7", 500, 9);
        assert_eq!((watcher.listed(), watcher.list.counts()), (vec![], FloodCounts::default()));
    }

    #[test]
    fn each_time_within_a_day_doubles_up_to_an_hour() {
        let mut watcher = Watcher::new(FloodSettings::default());
        let mut times = Vec::new();
        for _ in 0..8 {
            watcher.flood("2001:db8::7", 60, 10);
            times.push(watcher.listed()[0].1);
            watcher.flood("2001:db8::7", 0, u64::from(watcher.listed()[0].1));
        }
        assert_eq!(times, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
        watcher.flood("2001:db8::7", 0, 86_400);
        watcher.flood("2001:db8:0:0:ffff::1", 60, 10);
        assert_eq!(watcher.listed(), [("2001:db8::/64".to_owned(), 60)]);
    }

    #[test]
    fn several_callers_or_a_critical_request_spare_a_network() {
        let mut watcher = Watcher::new(FloodSettings::default());
        let (office, shop, alone) = ("192.0.2.1", "192.0.2.2", "192.0.2.3");
        for caller in 0..4 {
            watcher.list.identify(office.parse().unwrap(), Some(caller), false);
        }
        watcher.list.identify(shop.parse().unwrap(), Some(1), true);
        for caller in [1, 2, 3, 3, 3] {
            watcher.list.identify(alone.parse().unwrap(), Some(caller), false);
        }
        for address in [office, shop, alone] {
            watcher.flood(address, 100, 10);
        }
        assert_eq!(
            watcher.listed().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["192.0.2.3/32"]
        );
        assert_eq!(watcher.list.counts().spared, 2);
        // Callers are forgotten after two generations.
        watcher.flood(office, 0, 601);
        watcher.flood(office, 100, 10);
        assert_eq!(watcher.listed()[0].0, "192.0.2.1/32");
    }

    #[test]
    fn local_addresses_and_those_that_never_are_listed_stay_off() {
        let never = vec!["198.51.100.0/24".parse().unwrap(), "2001:db8::1/128".parse().unwrap()];
        let mut watcher = Watcher::new(FloodSettings { never, ..FloodSettings::default() });
        for address in [
            "127.0.0.1",
            "::1",
            "169.254.1.1",
            "fe80::1",
            "198.51.100.9",
            "::ffff:127.0.0.1",
            "2001:db8::2",
        ] {
            watcher.flood(address, 1_000, 20);
            assert!(watcher.list.is_empty(), "{address}");
        }
    }

    #[test]
    fn a_full_list_keeps_the_worst() {
        let mut watcher =
            Watcher::new(FloodSettings { entries_max: 2, ..FloodSettings::default() });
        for (address, rate) in [("192.0.2.1", 100), ("192.0.2.2", 60), ("192.0.2.3", 200)] {
            watcher.flood(address, rate, 10);
        }
        let names: Vec<_> = watcher.listed().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["192.0.2.1/32", "192.0.2.3/32"]);
        assert_eq!(watcher.list.counts().crowded_out, 1);
    }

    #[test]
    fn a_flood_of_addresses_takes_bounded_memory_and_says_what_it_missed() {
        let mut watcher = Watcher::new(FloodSettings::default());
        for number in 0..100_000_u32 {
            let address = IpAddr::from(std::net::Ipv4Addr::from_bits(0x0b00_0000 + number));
            watcher.list.refuse(address);
            watcher.list.identify(address, Some(1), false);
        }
        assert_eq!(watcher.list.candidates.len(), CANDIDATES_MAX);
        assert!(watcher.list.peers.iter().all(|generation| generation.len() <= PEERS_MAX));
        assert_eq!(watcher.list.counts().missed, 100_000 - u64::try_from(CANDIDATES_MAX).unwrap());
        watcher.flood("203.0.113.7", 60, 11);
        assert_eq!(watcher.listed().len(), 1, "a flood is found in the next seconds");
    }

    #[test]
    fn a_clock_that_steps_back_keeps_nobody_listed_for_longer() {
        let mut watcher = Watcher::new(FloodSettings::default());
        watcher.flood("203.0.113.7", 60, 10);
        let later = watcher.now().after(Nanos::from_secs(61));
        watcher.list.tick(START);
        watcher.list.tick(later);
        assert!(watcher.list.entries(later).is_empty());
    }
}
