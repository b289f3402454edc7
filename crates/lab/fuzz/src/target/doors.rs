//! Doors without a network: an engine on a manual clock, whose futures never wait.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tidegate_engine::{
    Engine, ManualClock, MemoryConfig, MemoryStore, Options, Source, Timestamp, compile,
};
use tidegate_metrics::Meter;
use tidegate_rls::{HeaderNames, HealthHandle, Rls, RlsSettings};

/// The start of a minute, of an hour and of a day.
const START: Timestamp = Timestamp::from_secs(1_699_920_000);

/// Small, so that a long run fills it.
const BUDGET_BYTES: usize = 1 << 20;

/// One rule of each kind.
const RULES: &str = include_str!("rules.yaml");

pub(super) type Clock = Arc<ManualClock>;
pub(super) type FuzzEngine = Engine<MemoryStore, Clock>;

/// The rules of the doors.
pub(super) fn source() -> Source {
    Source::new("rules.yaml", RULES)
}

/// A clock at the start.
pub(super) fn clock() -> Clock {
    Arc::new(ManualClock::at(START))
}

/// An engine and its clock. All engines are equal.
pub(super) fn engine() -> (Arc<FuzzEngine>, Clock) {
    let clock = clock();
    let config =
        MemoryConfig { budget_bytes: BUDGET_BYTES, seed: Some(1), ..MemoryConfig::default() };
    let store = MemoryStore::new(config).expect("the budget is enough");
    let rules = compile(&[source()], &Options::default()).expect("the rules are right");
    let engine = Engine::new(store, Arc::clone(&clock)).with_rules(rules);
    (Arc::new(engine), clock)
}

/// The rate limit service with all optional parts of its answers.
pub(super) fn rls(engine: Arc<FuzzEngine>) -> Rls<MemoryStore, Clock> {
    let settings = RlsSettings {
        response_headers: Some(HeaderNames::default()),
        dynamic_metadata: true,
        ..RlsSettings::default()
    };
    Rls::new(engine, settings, &HealthHandle::new(), Arc::new(Meter::new("rls")))
}

/// The result of a future that never waits.
pub(super) fn at_once<F: Future>(future: F) -> Result<F::Output, String> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => Err("the door waits, and nothing is left to come".to_owned()),
    }
}
