//! What protects the node behind the gateway, as the configuration says.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Clock, Nanos, SystemClock};
use tidegate_overload::{
    AdaptiveSettings, FleetSettings, GateSettings, Protection, ProtectionSettings, SteadyClock,
    WorkerSettings,
};

use crate::config::{Config, Percent};

/// Protection, if the configuration says how much the node can work on.
pub(super) fn of(config: &Config) -> Option<Arc<Protection<SteadyClock>>> {
    let capacity = u64::from(config.overload.capacity?);
    let now = SystemClock::new().now();
    let settings = settings(config, capacity, now.as_nanos());
    Some(Arc::new(Protection::new(settings, SteadyClock::starting_at(now))))
}

fn settings(config: &Config, capacity: u64, seed: u64) -> ProtectionSettings {
    let (overload, switches) = (&config.overload, &config.switches);
    let gate = &overload.gate;
    ProtectionSettings {
        worker: WorkerSettings {
            shed_critical: overload.worker.shed_critical,
            ..WorkerSettings::default()
        },
        fleet: FleetSettings {
            reserved_percent: whole(overload.fleet.reserved),
            lease: nanos(overload.fleet.lease),
            beat: nanos(overload.fleet.beat),
            ..FleetSettings::default()
        },
        gate: GateSettings {
            queue_percent: whole(gate.queue),
            reserved_percent: whole(gate.reserved),
            standing_after: nanos(gate.standing_after),
            standing_wait_max: nanos(gate.standing_wait),
            burst_wait_max: nanos(gate.burst_wait),
            hold_max: nanos(gate.hold_max),
            adaptive: gate.adaptive.then(|| AdaptiveSettings::new(capacity)),
            ..GateSettings::new(capacity)
        },
        worker_mode: switches.worker.into(),
        fleet_mode: switches.fleet.into(),
        gate_mode: switches.gate.into(),
        seed,
    }
}

/// In whole percent, as the limiters count.
fn whole(percent: Percent) -> u64 {
    u64::from(percent.millionths() / 10_000)
}

fn nanos(length: Duration) -> Nanos {
    Nanos::from(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_limiters_but_for_a_fleet_of_one() {
        let settings = settings(&Config::default(), 64, 0);
        let usual = ProtectionSettings::new(64);
        assert_eq!((settings.worker, settings.gate), (usual.worker, usual.gate));
        assert_eq!((settings.fleet, settings.worker_mode), (usual.fleet, usual.worker_mode));
        assert_eq!(settings.fleet_mode, tidegate_overload::Mode::Shadow);
    }

    #[test]
    fn without_a_capacity_nothing_is_protected() {
        assert!(of(&Config::default()).is_none());
    }
}
