//! `/api/state`: the service at this moment, in one small object.

use serde::Serialize;
use serde_json::{Value, json};
use tidegate_engine::{Clock, CounterStore, Timestamp};
use tidegate_overload::{Category, Gauges};

use super::limiters::{LimiterName, SwitchTarget};
use super::service::Inner;

/// The parts of the program's store that the page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoreReading {
    /// Its kind, such as `memory` or `redis`.
    pub kind: &'static str,
    /// Why it is not available, if it is not.
    pub unavailable: Option<String>,
}

/// The snapshot of the control plane that a node uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControlReading {
    /// Its version, as the control plane shows it.
    pub version: String,
    /// How old it is, in seconds.
    pub age_s: u64,
    /// Why no newer one is in use, if so.
    pub problem: Option<String>,
}

/// A queue of the forwarder.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ForwardedReading {
    /// The type of its records.
    pub name: String,
    /// The target, if it is not the name.
    pub target: Option<String>,
    /// Such as `running` or `paused`.
    pub mode: String,
    /// Records that wait or are in flight.
    pub waiting: u64,
    /// Attempts in flight.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// Records that leave in a second, if known.
    pub rate: Option<f64>,
    /// Seconds until the queue is empty, if known.
    pub empty_in_s: Option<u64>,
    /// What hinders it, if something does.
    pub problem: Option<String>,
}

/// A limiter with its mode.
#[derive(Debug, Serialize)]
struct LimiterState {
    name: &'static str,
    mode: String,
    configured: String,
    ends_in_s: Option<u64>,
}

/// The names whose last second is in the state.
pub(super) const RATES: [&str; 7] =
    ["admitted", "refused", "undecided", "failed", "over_limit", "shadow", "shed"];

/// The state as JSON.
pub(super) fn read<S: CounterStore, C: Clock>(door: &Inner<S, C>) -> Value {
    let now = door.engine.clock().now();
    let snapshot = door.engine.snapshot();
    let rules = door.parts.rules.as_ref().map(|read| read());
    let started = door.recorder.started();
    let mut switched = 0_u64;
    door.engine.for_each_switch(|_, _, _, _| switched += 1);
    let state = json!({
        "version": door.parts.version,
        "name": door.parts.settings.node_name,
        "now_ms": now.as_millis(),
        "started_ms": started.map(Timestamp::as_millis),
        "uptime_s": started.map_or(0, |started| now.since(started).get() / 1_000_000_000),
        "rules": {
            "version": format!("{:016x}", snapshot.version()),
            "rules": snapshot.rules().len(),
            "limits": snapshot.limits().len(),
            "loads": rules.map(|rules| rules.loads),
            "failures": rules.map(|rules| rules.failures),
            "last_load_ms": rules.and_then(|rules| rules.last_load).map(Timestamp::as_millis),
            "stale": rules.is_some_and(|rules| rules.stale),
        },
        "off": door.board.is_off(),
        "limiters": limiters(door, now),
        "limits_switched": switched,
        "rates": rates(door),
        "overload": door.board.protection().map(|protection| overload(&protection.gauges())),
        "store": door.parts.store.as_ref().map(|read| read()),
        "control": door.parts.control.as_ref().map(|read| read()),
        "forwarder": door.parts.forwarder.as_ref().map(|read| read()),
        "gateway": door.parts.gateway_page.is_some(),
        "shared": door.parts.nodes.is_some(),
        "tail": door.parts.observations.tail().mode().as_str(),
        "changes": door.audit.last(),
        "streams": door.streams.open(),
    });
    state
}

fn limiters<S, C: Clock>(door: &Inner<S, C>, now: Timestamp) -> Vec<LimiterState> {
    let ends = door.board.ends();
    let state = |limiter: LimiterName| {
        let end = ends.iter().find(|(target, _)| *target == SwitchTarget::Limiter(limiter));
        Some(LimiterState {
            name: limiter.as_str(),
            mode: door.board.mode(limiter)?.to_string(),
            configured: door.board.configured(limiter).to_string(),
            ends_in_s: end.map(|(_, end)| end.since(now).as_secs_ceil()),
        })
    };
    LimiterName::ALL.into_iter().filter_map(state).collect()
}

/// The last whole second of each rate, and the latency.
fn rates<S, C>(door: &Inner<S, C>) -> Value {
    door.recorder.with(|history| {
        let last = history.last().unwrap_or(0);
        let names = [&RATES[..], &["latency_p50_us", "latency_p99_us"]].concat();
        let columns = history.series(&names, last, 1);
        let value = |column: &Vec<Option<f64>>| column.last().copied().flatten();
        let pairs = columns.names.iter().zip(&columns.values);
        pairs.map(|(name, column)| ((*name).to_owned(), json!(value(column)))).collect()
    })
}

fn overload(gauges: &Gauges) -> Value {
    let Gauges { gate, worker, fleet, offered_demand, scheduler_delay, latencies: _ } = gauges;
    json!({
        "gate": {
            "in_flight": gate.in_flight,
            "queued": gate.queued,
            "limit": gate.limit,
            "service_time_ms": millis(gate.service_time.get()),
        },
        "worker": {
            "utilization": finite(worker.utilization),
            "admitted": finite(worker.admitted),
            "shed_level": worker.shed_level,
            "sheds": Category::ALL.map(|category| shed_words(worker.shed_level, category)),
        },
        "fleet": {
            "pool": fleet.pool,
            "grant": fleet.grant,
            "used": fleet.used,
            "in_flight": fleet.in_flight,
            "lease_age_ms": fleet.lease_age.map(|age| millis(age.get())),
            "fallback": fleet.fallback,
        },
        "offered_demand": finite(*offered_demand),
        "scheduler_delay_ms": millis(scheduler_delay.get()),
    })
}

/// Whether the worker shedder refuses a category now: `no`, `some` or `all` of it.
pub(super) fn shed_words(shed_level: u16, category: Category) -> &'static str {
    /// Levels of one category.
    const LEVELS: usize = 128;
    let (first, level) = (category.rank() * LEVELS, usize::from(shed_level));
    match level {
        _ if level <= first => "no",
        _ if level >= first + LEVELS => "all",
        _ => "some",
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn millis(nanos: u64) -> f64 {
    (nanos / 1_000) as f64 / 1_000.0
}

/// JSON has no number for infinity.
fn finite(number: f64) -> Option<f64> {
    Some((number * 1_000.0).round() / 1_000.0).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_is_shed_from_the_lowest_level_up() {
        let words = |level| Category::ALL.map(|category| shed_words(level, category));
        assert_eq!(words(0), ["no"; 4]);
        assert_eq!(words(130), ["all", "some", "no", "no"]);
        assert_eq!(words(512), ["all"; 4]);
    }
}
