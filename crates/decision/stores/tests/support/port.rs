//! Ports that are nobody else's for as long as they are held.
//!
//! A server takes its port by number, so it cannot be given one that is bound already, and one
//! that was free a moment ago may be taken by then: by a server of another program of tests that
//! starts at the same moment, or while ours is down. So a port is claimed first, by a UDP socket
//! of the same number. Servers listen on TCP and are not disturbed by it, every program of tests
//! looks for it, and it goes with the process.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that systems give to connections that go out, so that a
/// server that was stopped finds its port free again; and low enough for a
/// cluster's second port, which older servers put 10,000 above the first.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that no other program of tests takes. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _claim: Option<UdpSocket>,
}

impl Port {
    /// One that nobody listens on.
    #[track_caller]
    pub(crate) fn claim() -> Self {
        // Programs that run side by side begin in different places, so that they seldom meet.
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

    /// This one, if it is nobody's.
    pub(crate) fn claim_this(number: u16) -> Option<Self> {
        let claim = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        // Others than programs of tests claim nothing.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Port { number, _claim: Some(claim) })
    }

    /// This one, whosever it is.
    pub(crate) const fn unclaimed(number: u16) -> Self {
        Port { number, _claim: None }
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }
}
