//! What the shared store tells of itself, as the debug door shows it.

use tidegate_admin::{RemoteReading, Spread};
use tidegate_stores::{ClientFigures, Histogram, LinkErrorKind, Metrics, OVERSHOOT_BOUNDS};

/// Both halves as one reading.
pub(super) fn of(metrics: &Metrics, figures: &ClientFigures) -> RemoteReading {
    let errors = LinkErrorKind::ALL.iter().zip(figures.errors);
    RemoteReading {
        connected: figures.connected,
        wanted: figures.wanted,
        waiting: figures.waiting,
        degraded: metrics.degraded,
        degraded_for: metrics.degraded_for,
        outages: metrics.outages,
        calls: figures.evaluations,
        call_seconds: spread(&figures.latency_us, 1e6),
        requests_per_call: spread(&figures.calls_per_evaluation, 1.0),
        errors: errors.map(|(kind, count)| (kind.word(), count)).collect(),
        script_loads: figures.script_reloads,
        redirects: figures.redirects,
        fallbacks: vec![
            ("local", metrics.fell_back_local),
            ("allow", metrics.fell_back_allow),
            ("deny", metrics.fell_back_deny),
        ],
        remembered_refusals: metrics.cached_refusals,
        leased_units: metrics.leases.held,
        lease_changes: vec![
            ("renewed", metrics.leases.renewed),
            ("returned", metrics.leases.returned),
            ("lost", metrics.leases.lost),
        ],
        eventual_keys: metrics.tallies,
        flushes: metrics.flushes,
        flushed_keys: metrics.flushed_keys,
        overshoot: Spread {
            bounds: OVERSHOOT_BOUNDS.iter().map(|bound| *bound as f64 / 100.0).collect(),
            counts: metrics.overshoot.to_vec(),
            sum: metrics.overshoot_percent as f64 / 100.0,
        },
        owing: metrics.owing,
        pending: metrics.pending,
        nodes: metrics.nodes,
    }
}

/// Divided by `parts`: a product would show bounds such as 0.00004999.
fn spread(histogram: &Histogram, parts: f64) -> Spread {
    Spread {
        bounds: histogram.bounds.iter().map(|bound| *bound as f64 / parts).collect(),
        counts: histogram.counts.clone(),
        sum: histogram.sum as f64 / parts,
    }
}
