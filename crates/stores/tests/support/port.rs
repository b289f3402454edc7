//! Ports that nobody listens on.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that systems give to connections that go out, so that a
/// server that was stopped finds its port free again; and low enough for a
/// cluster's second port, which older servers put 10,000 above the first.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that was free a moment ago, and that this process did not get before.
#[track_caller]
pub(crate) fn free() -> u16 {
    // Test binaries that run side by side begin in different places.
    let begin = process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + begin.wrapping_add(step) % COUNT).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}
