//! The metrics of connections: at each door, and in the kernel before it.

use tidegate_metrics::{Collector, Exposition, Family, Metric};

use super::{ConnectionGuard, DoorState, KernelCounters, RefusalCause};
use crate::stats::ConnectionCounts;

tidegate_metrics::metrics! {
    /// The metrics of [`ConnectionGuard`].
    pub GUARD_METRICS:
    OPEN = Gauge "tidegate_connections" ["door"]
        "Connections that are open.";
    ACCEPTED = Counter "tidegate_connections_accepted_total" ["door"]
        "Connections that were accepted and served.";
    CLOSED_FULL = Counter "tidegate_connections_closed_full_total" ["door"]
        "Connections that were closed on arrival because the door had its maximum.";
    REFUSED = Counter "tidegate_connections_refused_total" ["door", "cause", "mode"]
        "Connections over a limit of the limiter `connection`: refused, or let through in shadow.";
    ACCEPT_ERRORS = Counter "tidegate_connection_accept_errors_total" ["door"]
        "Connections that could not be accepted, for want of descriptors or memory.";
    HANDSHAKE_FAILURES = Counter "tidegate_connection_handshake_failures_total" ["door"]
        "Connections whose TLS handshake or PROXY header failed or was refused.";
    HANDSHAKES = Gauge "tidegate_tls_handshakes" ["door"]
        "TLS handshakes under way that the limiter `connection` counts.";
    NETWORKS = Gauge "tidegate_connection_networks" ["door"]
        "Networks with open connections that the limiter `connection` counts.";
    PAUSES = Counter "tidegate_connection_pauses_total" ["door", "mode"]
        "Pauses of accepting for the rate of the door, or what would be one in shadow.";
    SHARED = Counter "tidegate_connection_shared_cells_total" []
        "New connections whose rate was counted together with that of other networks, for want of memory.";
    BYTES = Gauge "tidegate_connection_rate_bytes" []
        "Memory that the rates of networks take.";
    LISTEN_OVERFLOWS = Counter "tidegate_kernel_listen_overflows_total" []
        "Connections that found a backlog full, at all listeners of the network namespace.";
    LISTEN_DROPS = Counter "tidegate_kernel_listen_drops_total" []
        "Connections that the kernel dropped at any listener of the network namespace.";
    SYN_COOKIES = Counter "tidegate_kernel_syn_cookies_total" []
        "SYN packets that the kernel answered with a cookie, because a queue was full.";
    SYN_DROPS = Counter "tidegate_kernel_syn_drops_total" []
        "SYN packets that the kernel dropped, because a queue was full.";
}

const MODES: [&str; 2] = ["enforce", "shadow"];

impl Collector for ConnectionGuard {
    fn collect(&self, out: &mut Exposition) {
        let state = self.state.lock();
        let doors = &state.doors;
        let mut of_doors = |metric: &'static Metric, count: fn(&ConnectionCounts) -> u64| {
            let mut family = out.family(metric);
            for door in doors {
                let counts = door.stats.iter().map(|stats| count(&stats.read()));
                family.sample(&[door.name], counts.sum::<u64>());
            }
        };
        of_doors(OPEN, |counts| counts.open.try_into().unwrap_or(u64::MAX));
        of_doors(ACCEPTED, |counts| counts.accepted);
        of_doors(CLOSED_FULL, |counts| counts.refused);
        of_doors(ACCEPT_ERRORS, |counts| counts.accept_errors);
        of_doors(HANDSHAKE_FAILURES, |counts| counts.handshake_failures);
        let mut family = out.family(REFUSED);
        for door in doors {
            write_refusals(&mut family, door);
        }
        let mut family = out.family(HANDSHAKES);
        for door in doors {
            family.sample(&[door.name], door.handshakes);
        }
        let mut family = out.family(NETWORKS);
        for door in doors {
            family.sample(&[door.name], door.networks.networks());
        }
        let mut family = out.family(PAUSES);
        for door in doors {
            for (mode, count) in MODES.iter().zip(door.pauses) {
                family.sample(&[door.name, mode], count);
            }
        }
        out.single(SHARED, state.rates.shared());
        out.single(BYTES, state.rates.bytes());
        drop(state);
        if let Some(kernel) = KernelCounters::read() {
            out.single(LISTEN_OVERFLOWS, kernel.listen_overflows);
            out.single(LISTEN_DROPS, kernel.listen_drops);
            out.single(SYN_COOKIES, kernel.syn_cookies);
            out.single(SYN_DROPS, kernel.syn_drops);
        }
    }
}

fn write_refusals(family: &mut Family<'_>, door: &DoorState) {
    for (cause, counts) in RefusalCause::ALL.iter().zip(door.refusals) {
        for (mode, count) in MODES.iter().zip(counts) {
            family.sample(&[door.name, cause.as_str(), mode], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::Mode;

    use super::*;
    use crate::guard::GuardSettings;

    #[test]
    fn every_metric_is_written() {
        let guard = ConnectionGuard::new(GuardSettings::default(), Mode::Shadow);
        assert!(tidegate_metrics::missing(GUARD_METRICS, &guard).is_empty());
    }
}
