//! The other end of a connection.

use std::net::SocketAddr;

use ipnet::IpNet;

use super::listener::AcceptedSocket;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address of the socket's other end, or the client's that a trusted proxy named in its PROXY header. `None`
    /// at a Unix socket.
    pub address: Option<SocketAddr>,
    /// The proxy that named it.
    pub named_by: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
}

impl Peer {
    pub(super) fn of(accepted: &AcceptedSocket, encrypted: bool) -> Self {
        Peer { address: accepted.address(), named_by: None, encrypted }
    }

    /// Whether the other end of the socket is in one of these networks.
    pub(super) fn is_in(&self, networks: &[IpNet]) -> bool {
        self.address.is_some_and(|address| is_in(address, networks))
    }

    /// Sets the client that the proxy named in its PROXY header, if any.
    pub(super) fn set_proxied_client(&mut self, client: Option<SocketAddr>) {
        if client.is_some() {
            self.named_by = self.address;
            self.address = client;
        }
    }
}

/// Whether an address is in one of these networks.
pub(super) fn is_in(address: SocketAddr, networks: &[IpNet]) -> bool {
    let address = address.ip().to_canonical();
    networks.iter().any(|network| network.contains(&address))
}
