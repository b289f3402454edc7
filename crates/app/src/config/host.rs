//! `tidegate config check --host`: what of this machine is too small for the configuration.
//!
//! Reads `/proc`. What cannot be read is not judged, and the answer says so. Run it where the service runs: in a
//! container the limits are those of its network namespace.

use std::fs;

use super::fields::Config;
use super::layers::{Note, Weight};

/// Files that the service has open beside connections: libraries, logs, databases, upstreams of checks.
const OTHER_FILES: u64 = 256;

/// What the kernel allows; `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostLimits {
    /// The longest queue of connections that wait to be accepted.
    pub(crate) somaxconn: Option<u64>,
    /// The longest queue of connections whose handshake is not finished.
    pub(crate) max_syn_backlog: Option<u64>,
    /// Whether SYN packets are answered with cookies when that queue is full.
    pub(crate) syn_cookies: Option<u64>,
    /// Files that the process may open: the hard limit, because the service raises its own to that.
    pub(crate) open_files: Option<u64>,
    /// Connections that connection tracking knows, where it is loaded.
    pub(crate) conntrack_max: Option<u64>,
    /// Ports for connections to one address of an upstream.
    pub(crate) local_ports: Option<u64>,
}

impl HostLimits {
    /// Reads the limits of this machine and process.
    pub(crate) fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let number = |path: &str| text(path)?.trim().parse().ok();
        HostLimits {
            somaxconn: number("/proc/sys/net/core/somaxconn"),
            max_syn_backlog: number("/proc/sys/net/ipv4/tcp_max_syn_backlog"),
            syn_cookies: number("/proc/sys/net/ipv4/tcp_syncookies"),
            open_files: text("/proc/self/limits").as_deref().and_then(open_files),
            conntrack_max: number("/proc/sys/net/netfilter/nf_conntrack_max"),
            local_ports: text("/proc/sys/net/ipv4/ip_local_port_range").as_deref().and_then(ports),
        }
    }

    /// What is too small for a configuration, and what could not be read.
    pub(crate) fn judge(&self, config: &Config) -> Vec<Note> {
        let wanted = WantedByConfig::of(config);
        let mut notes = Vec::new();
        let mut require =
            |name: &str, found: Option<u64>, least: u64, wanted_by: &str, help: &str| {
                let (weight, message) = match found {
                    Some(found) if found >= least => return,
                    Some(found) => (
                        Weight::Warning,
                        format!("{name} is {found}, and {wanted_by} needs {least}: {help}"),
                    ),
                    None => {
                        (Weight::Note, format!("{name} cannot be read here and was not checked"))
                    }
                };
                notes.push(Note { weight, message });
            };
        let backlog = u64::from(config.connections.backlog);
        require(
            "net.core.somaxconn",
            self.somaxconn,
            backlog,
            "`connections.backlog`",
            "raise it, or the kernel drops connections in a burst",
        );
        require(
            "net.ipv4.tcp_max_syn_backlog",
            self.max_syn_backlog,
            backlog.min(4_096).min(self.somaxconn.unwrap_or(u64::MAX)) / 2,
            "`connections.backlog`",
            "raise it, or SYN cookies begin early",
        );
        require(
            "net.ipv4.tcp_syncookies",
            self.syn_cookies,
            1,
            "any port that others reach",
            "set it to 1, or a flood of SYN packets keeps everybody out",
        );
        require(
            "the limit of open files",
            self.open_files,
            wanted.files,
            "the sum of `connections_max`",
            "raise it (LimitNOFILE of systemd, ulimit -n), or lower `connections_max`",
        );
        // Without connection tracking there is nothing that could be too small.
        if self.conntrack_max.is_some() {
            require(
                "net.netfilter.nf_conntrack_max",
                self.conntrack_max,
                wanted.connections.saturating_mul(2),
                "the sum of `connections_max`, with those that have ended lately,",
                "raise it, or exempt the ports with a `notrack` rule",
            );
        }
        if config.gateway.file.is_some() {
            require(
                "the number of ports in net.ipv4.ip_local_port_range",
                self.local_ports,
                u64::from(config.gateway.connections_max),
                "the gateway, toward a single upstream address,",
                "widen it, or spread the load over several upstream addresses",
            );
        }
        notes
    }
}

/// What a configuration needs of the machine.
struct WantedByConfig {
    connections: u64,
    files: u64,
}

impl WantedByConfig {
    fn of(config: &Config) -> Self {
        let listens = |listen: &[super::kinds::Address], most: u32| {
            if listen.is_empty() { 0 } else { u64::from(most) }
        };
        let gateway = match config.gateway.file {
            Some(_) => listens(&config.gateway.listen, config.gateway.connections_max),
            None => 0,
        };
        let connections = listens(&config.grpc.listen, config.grpc.connections_max)
            + listens(&config.http.listen, config.http.connections_max)
            + listens(&config.debug.listen, config.debug.connections_max)
            + gateway;
        // A connection to the gateway may have one to an upstream.
        WantedByConfig { connections, files: connections + gateway + OTHER_FILES }
    }
}

/// The hard limit in `/proc/self/limits`.
fn open_files(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let hard = line.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

/// The number of ports in a range.
fn ports(text: &str) -> Option<u64> {
    let mut ends = text.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    Some(last.checked_sub(first)?.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that is large enough for the defaults.
    const LARGE: HostLimits = HostLimits {
        somaxconn: Some(4_096),
        max_syn_backlog: Some(4_096),
        syn_cookies: Some(1),
        open_files: Some(1_000_000),
        conntrack_max: Some(262_144),
        local_ports: Some(28_232),
    };

    fn warnings(limits: HostLimits, config: &Config) -> Vec<String> {
        let notes = limits.judge(config).into_iter();
        notes.filter(|note| note.weight == Weight::Warning).map(|note| note.message).collect()
    }

    #[test]
    fn a_large_machine_is_large_enough_for_the_defaults() {
        assert_eq!(LARGE.judge(&Config::default()), []);
    }

    #[test]
    fn each_limit_that_is_too_small_is_named_with_what_needs_it() {
        let mut config = Config::default();
        config.gateway.file = Some("gateway.yaml".into());
        for (small, part) in [
            (
                HostLimits { somaxconn: Some(128), ..LARGE },
                "net.core.somaxconn is 128, and `connections.backlog` needs 4096",
            ),
            (
                HostLimits { max_syn_backlog: Some(128), ..LARGE },
                "net.ipv4.tcp_max_syn_backlog is 128",
            ),
            (HostLimits { syn_cookies: Some(0), ..LARGE }, "net.ipv4.tcp_syncookies is 0"),
            (
                HostLimits { open_files: Some(1_024), ..LARGE },
                "the limit of open files is 1024, and the sum of `connections_max` needs 40356",
            ),
            (
                HostLimits { conntrack_max: Some(10_000), ..LARGE },
                "net.netfilter.nf_conntrack_max is 10000",
            ),
            (
                HostLimits { local_ports: Some(1_000), ..LARGE },
                "the number of ports in net.ipv4.ip_local_port_range is 1000",
            ),
        ] {
            let found = warnings(small, &config);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(part), "{found:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_and_is_no_warning() {
        let notes = HostLimits::default().judge(&Config::default());
        assert_eq!(notes.len(), 4);
        assert!(notes.iter().all(|note| note.message.contains("was not checked")));
        assert!(warnings(HostLimits::default(), &Config::default()).is_empty());
    }

    #[test]
    fn the_files_of_the_kernel_are_read() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            20000                524288               files\n";
        assert_eq!(open_files(limits), Some(524_288));
        assert_eq!(open_files("Max open files unlimited unlimited files"), Some(u64::MAX));
        assert_eq!((ports("32768\t60999\n"), ports("9 1"), ports("x")), (Some(28_232), None, None));
        assert!(HostLimits::read().somaxconn.is_some());
    }
}
