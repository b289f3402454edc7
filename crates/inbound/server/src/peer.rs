//! Who is at the other end of a connection.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::listener::Accepted;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The client, or whoever connects for it: the far end of the socket, or the one that a
    /// trusted hop named in its PROXY header. None at a Unix socket.
    pub address: Option<SocketAddr>,
    /// The hop that named it.
    pub named_by: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}

impl Peer {
    pub(super) fn of(accepted: &Accepted, encrypted: bool) -> Self {
        let address = match accepted {
            Accepted::Tcp(_, address) => Some(*address),
            Accepted::Unix(_) => None,
        };
        Peer { address, named_by: None, encrypted }
    }

    /// Whether the far end of the socket lies in one of these networks.
    pub(super) fn is_one_of(&self, networks: &[IpNet]) -> bool {
        self.address.is_some_and(|address| {
            let address = address.ip().to_canonical();
            networks.iter().any(|network| network.contains(&address))
        })
    }

    /// The far end says whom it connects for; itself when it names nobody.
    pub(super) fn speaks_for(&mut self, client: Option<SocketAddr>) {
        if client.is_some() {
            self.named_by = self.address;
            self.address = client;
        }
    }
}
