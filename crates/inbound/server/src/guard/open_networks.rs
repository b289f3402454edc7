//! The open connections of a door, by network.
//!
//! Exact, because each entry belongs to an open connection, and a door has a maximum of these. Knows the network with
//! the most connections at any time, and its newest connection.

use std::collections::{BTreeSet, HashMap};

use super::network::NetworkKey;

/// The open connections of a door. `H` is what closes a connection.
#[derive(Debug)]
pub(super) struct OpenNetworks<H> {
    networks: HashMap<NetworkKey, OpenNetwork<H>>,
    /// Every network with its number of connections.
    by_count: BTreeSet<(usize, NetworkKey)>,
}

#[derive(Debug)]
struct OpenNetwork<H> {
    /// In the order in which they were opened.
    connections: Vec<OpenEntry<H>>,
    handshakes: u32,
}

#[derive(Debug)]
struct OpenEntry<H> {
    id: u64,
    handle: Option<H>,
}

impl<H> Default for OpenNetworks<H> {
    fn default() -> Self {
        OpenNetworks { networks: HashMap::new(), by_count: BTreeSet::new() }
    }
}

impl<H> OpenNetworks<H> {
    /// The number of connections of a network.
    pub(super) fn open(&self, network: NetworkKey) -> usize {
        self.networks.get(&network).map_or(0, |network| network.connections.len())
    }

    /// Adds a connection. Ids only grow.
    pub(super) fn add(&mut self, network: NetworkKey, id: u64) {
        let entry = self
            .networks
            .entry(network)
            .or_insert_with(|| OpenNetwork { connections: Vec::new(), handshakes: 0 });
        let before = entry.connections.len();
        entry.connections.push(OpenEntry { id, handle: None });
        self.by_count.remove(&(before, network));
        self.by_count.insert((before.saturating_add(1), network));
    }

    /// Sets what closes a connection.
    pub(super) fn attach(&mut self, network: NetworkKey, id: u64, handle: H) {
        if let Some(entry) = self.networks.get_mut(&network)
            && let Ok(at) = entry.connections.binary_search_by_key(&id, |open| open.id)
            && let Some(open) = entry.connections.get_mut(at)
        {
            open.handle = Some(handle);
        }
    }

    /// Removes a connection that has ended, unless it was taken before.
    pub(super) fn remove(&mut self, network: NetworkKey, id: u64) {
        let Some(entry) = self.networks.get_mut(&network) else { return };
        if let Ok(at) = entry.connections.binary_search_by_key(&id, |open| open.id) {
            entry.connections.remove(at);
            self.recount(network, 1);
        }
    }

    /// The network with the most connections, and their number.
    pub(super) fn greediest(&self) -> Option<(NetworkKey, usize)> {
        self.by_count.last().map(|(count, network)| (*network, *count))
    }

    /// The networks with the most connections, the largest first.
    pub(super) fn largest(&self) -> impl Iterator<Item = (NetworkKey, usize)> {
        self.by_count.iter().rev().map(|(count, network)| (*network, *count))
    }

    /// Takes the newest connection of a network out, to close it: its id, and its handle if it has one by now.
    pub(super) fn take_newest(&mut self, network: NetworkKey) -> Option<(u64, Option<H>)> {
        let OpenEntry { id, handle } = self.networks.get_mut(&network)?.connections.pop()?;
        self.recount(network, 1);
        Some((id, handle))
    }

    /// The number of networks with open connections.
    pub(super) fn networks(&self) -> usize {
        self.by_count.len()
    }

    /// The handshakes under way of a network.
    pub(super) fn handshakes(&self, network: NetworkKey) -> u32 {
        self.networks.get(&network).map_or(0, |network| network.handshakes)
    }

    /// Counts a handshake that begins. Returns false for a connection that was taken out before.
    pub(super) fn begin_handshake(&mut self, network: NetworkKey) -> bool {
        let Some(entry) = self.networks.get_mut(&network) else { return false };
        entry.handshakes = entry.handshakes.saturating_add(1);
        true
    }

    /// Counts a handshake that has ended.
    pub(super) fn end_handshake(&mut self, network: NetworkKey) {
        if let Some(entry) = self.networks.get_mut(&network) {
            entry.handshakes = entry.handshakes.saturating_sub(1);
            self.recount(network, 0);
        }
    }

    /// Corrects the index after this many connections of a network have left.
    fn recount(&mut self, network: NetworkKey, fewer: usize) {
        let Some(entry) = self.networks.get(&network) else { return };
        let open = entry.connections.len();
        let handshakes = entry.handshakes;
        if fewer > 0 {
            self.by_count.remove(&(open.saturating_add(fewer), network));
            if open > 0 {
                self.by_count.insert((open, network));
            }
        }
        // A connection that was taken out may still be in its handshake.
        if open == 0 && handshakes == 0 {
            self.networks.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::guard::network::NetworkPrefixes;

    fn network(last: u8) -> NetworkKey {
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        NetworkKey::of(address, NetworkPrefixes::default())
    }

    #[test]
    fn the_greediest_network_is_known_after_every_change() {
        // Compared with plain counting, for a long sequence of pseudo-random operations.
        let mut open: OpenNetworks<u64> = OpenNetworks::default();
        let mut plain: Vec<(u8, u64)> = Vec::new();
        let mut random = 1_u64;
        for id in 0..5_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (kind, pick) = (random >> 60, usize::try_from(random >> 33).unwrap());
            if kind < 9 || plain.is_empty() {
                let last = u8::try_from(pick % 7).unwrap();
                open.add(network(last), id);
                open.attach(network(last), id, id);
                plain.push((last, id));
            } else if kind < 14 {
                let (last, id) = plain.remove(pick % plain.len());
                open.remove(network(last), id);
            } else {
                let (greediest, _) = open.greediest().unwrap();
                let (id, handle) = open.take_newest(greediest).unwrap();
                assert_eq!(handle, Some(id));
                let newest = plain.iter().filter(|(last, _)| network(*last) == greediest);
                assert_eq!(newest.map(|(_, id)| *id).max(), Some(id));
                plain.retain(|(_, other)| *other != id);
                open.remove(greediest, id);
            }
            let count = |last: u8| plain.iter().filter(|(other, _)| *other == last).count();
            let most = (0..7).map(count).max().filter(|most| *most > 0);
            assert_eq!(open.greediest().map(|(_, count)| count), most);
            assert!((0..7).all(|last| open.open(network(last)) == count(last)));
            assert_eq!(open.networks(), (0..7).filter(|last| count(*last) > 0).count());
        }
    }

    #[test]
    fn a_network_is_forgotten_when_its_last_connection_and_handshake_have_ended() {
        let mut open: OpenNetworks<()> = OpenNetworks::default();
        open.add(network(1), 1);
        assert!(open.begin_handshake(network(1)));
        assert_eq!(open.take_newest(network(1)), Some((1, None)));
        assert_eq!((open.handshakes(network(1)), open.networks()), (1, 0));
        open.end_handshake(network(1));
        open.remove(network(1), 1);
        assert!(open.networks.is_empty() && open.by_count.is_empty());
    }
}
