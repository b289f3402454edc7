//! Ports that are reserved while they are held.
//!
//! A server takes its port by number, and a port that was free a moment ago may be in use by then: by a server of
//! another test binary that starts at the same moment, or while ours is down. So a port is claimed first, by a UDP
//! socket of the same number. Servers listen on TCP and are not affected; every test binary checks the UDP port; and
//! the claim ends with the process.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ephemeral ports, so that the port of a stopped server stays free; and low enough for the second port of a
/// cluster node, which older servers place 10,000 above the first.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that no other test binary takes, until it is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _claim: Option<UdpSocket>,
}

impl Port {
    /// Claims a free port.
    #[track_caller]
    pub fn claim() -> Self {
        // Concurrent test binaries start at different ports, so that they seldom collide.
        let begin = process::id().wrapping_mul(97);
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = u16::try_from(FIRST + begin.wrapping_add(step) % COUNT).unwrap();
            if let Some(port) = Port::claim_this(number) {
                return port;
            }
        }
        panic!("no port is free");
    }

    /// Claims this port, if it is free.
    pub fn claim_this(number: u16) -> Option<Self> {
        let claim = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        // Other programs do not claim ports, so try to listen too.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Port { number, _claim: Some(claim) })
    }

    /// This port, without a claim.
    pub const fn unclaimed(number: u16) -> Self {
        Port { number, _claim: None }
    }

    /// The port number.
    pub const fn number(&self) -> u16 {
        self.number
    }
}
