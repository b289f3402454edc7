//! What the kernel dropped before the server could accept it, for the whole network namespace.
//!
//! Read from `/proc/net/netstat`, which has pairs of lines: names, then values. Systems without it have no counters.

use std::fs;

/// Connections that the kernel dropped or answered with a SYN cookie, in all listeners of the network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Finished connections that found the backlog full.
    pub listen_overflows: u64,
    /// Connections that were dropped at a listener for any reason.
    pub listen_drops: u64,
    /// SYN packets that were answered with a cookie, because the queue of unfinished connections was full.
    pub syn_cookies: u64,
    /// SYN packets that were dropped because that queue was full.
    pub syn_drops: u64,
}

impl KernelCounters {
    /// Reads the counters; `None` where the system has none.
    pub fn read() -> Option<Self> {
        KernelCounters::parse(&fs::read_to_string("/proc/net/netstat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (names, values) = loop {
            let (names, values) = (lines.next()?, lines.next()?);
            if names.starts_with("TcpExt:") {
                break (names, values);
            }
        };
        let value = |name: &str| -> Option<u64> {
            let at = names.split_ascii_whitespace().position(|found| found == name)?;
            values.split_ascii_whitespace().nth(at)?.parse().ok()
        };
        Some(KernelCounters {
            listen_overflows: value("ListenOverflows")?,
            listen_drops: value("ListenDrops")?,
            syn_cookies: value("TCPReqQFullDoCookies")?,
            syn_drops: value("TCPReqQFullDrop")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "IpExt: InNoRoutes\nIpExt: 9\n\
                    TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPReqQFullDoCookies TCPReqQFullDrop\n\
                    TcpExt: 1 2 3 4 5\n";
        let expected =
            KernelCounters { listen_overflows: 2, listen_drops: 3, syn_cookies: 4, syn_drops: 5 };
        assert_eq!(KernelCounters::parse(text), Some(expected));
    }

    #[test]
    fn a_kernel_without_them_has_none() {
        for text in ["", "TcpExt: ListenDrops\n", "TcpExt: ListenDrops\nTcpExt: 3\n", "a\nb\nc"] {
            assert_eq!(KernelCounters::parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_kernel_has_them() {
        assert!(KernelCounters::read().is_some());
    }
}
