//! The fields of the limiter `connection`.

use tidegate_document::{Network, Size, section};
use tidegate_server::{ConnectionRate, GuardSettings, NetworkPrefixes};

use super::{GIB, KIB, MANY};

section! {
    /// Limits on the connections of one network at every door, before TLS. `switches.connection` says whether they
    /// apply.
    Connections {
        /// The maximum of open connections of a network.
        open_max: Option<u32> = "64" in 1..=MANY,
        /// The maximum of new connections of a network, per second.
        rate: Option<u32> = "20" in 1..=MANY,
        /// How many new connections of a network may come at once.
        burst: u32 = "100" in 1..=MANY,
        /// The maximum of TLS handshakes under way of a network.
        handshakes_max: Option<u32> = "8" in 1..=MANY,
        /// The maximum of TLS handshakes under way of all networks.
        door_handshakes_max: Option<u32> = "512" in 1..=MANY,
        /// The maximum of new connections of all networks, per second. Beyond it the door accepts none for a while,
        /// and connections wait in the kernel's queue.
        door_rate: Option<u32> = "off" in 1..=MANY,
        /// How many new connections of all networks may come at once.
        door_burst: u32 = "1000" in 1..=MANY,
        /// How many bits of an IPv4 address are its network.
        ipv4_prefix: u32 = "32" in 1..=32,
        /// How many bits of an IPv6 address are its network.
        ipv6_prefix: u32 = "64" in 1..=128,
        /// Networks without these limits, such as load balancers and health checks. Those of
        /// `gateway.proxy_protocol_from` have none; their clients have.
        exempt: Vec<Network> = "",
        /// The maximum of memory for the rates of networks. Networks share counts when it is used up.
        budget: Size = "8MiB" in 64 * KIB..=GIB,
        /// The kernel's queue of connections that wait to be accepted, for each address. The kernel cuts it to
        /// `net.core.somaxconn`.
        backlog: u32 = "4096" in 1..=MANY,
    }
}

impl Connections {
    /// The limits for the guard of the doors.
    pub fn guard_settings(&self) -> GuardSettings {
        let rate = |per_second: Option<u32>, burst| {
            per_second.map(|per_second| ConnectionRate { per_second, burst })
        };
        GuardSettings {
            open_max: self.open_max,
            rate: rate(self.rate, self.burst),
            handshakes_max: self.handshakes_max,
            door_handshakes_max: self.door_handshakes_max,
            door_rate: rate(self.door_rate, self.door_burst),
            prefixes: NetworkPrefixes {
                ipv4: u8::try_from(self.ipv4_prefix).unwrap_or(32),
                ipv6: u8::try_from(self.ipv6_prefix).unwrap_or(128),
            },
            exempt: self.exempt.iter().map(|network| network.get()).collect(),
            budget_bytes: self.budget.to_usize(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_server::{Endpoint, GuardSettings};

    use crate::config::Config;

    #[test]
    fn the_defaults_are_those_of_the_server() {
        let connections = Config::default().connections;
        assert_eq!(connections.guard_settings(), GuardSettings::default());
        assert_eq!(connections.backlog, Endpoint::BACKLOG);
    }
}
