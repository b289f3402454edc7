//! The engine through its public interface: rules in, verdicts out, on a manual clock.

mod changing_rules;
mod deciding;
mod failing;
mod fast_path;
mod slots;
mod switching;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_engine::{
    Clock, ConfigError, CounterStore, Descriptor, Engine, Entry, FailureMode, LimiterKind,
    ManualClock, MemoryConfig, MemoryStore, Mode, Observer, Options, Outcome, Percent, Request,
    Retry, Snapshot, Source, StoreError, Target, Tenure, Timestamp, Undecided, Verb, Verdict,
    compile,
};
use tidegate_stores::{Answers, Batch};

type TestEngine = Engine<MemoryStore, Arc<ManualClock>>;

fn rules(text: &str) -> Snapshot {
    let source = Source { name: "test.yaml".to_owned(), text: text.to_owned() };
    compile(&[source], &Options::default()).unwrap_or_else(|report| panic!("{report}"))
}

fn engine(text: &str) -> (TestEngine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default budget is enough");
    (Engine::new(store, Arc::clone(&clock)).with_rules(rules(text)).with_seed(5), clock)
}

fn entries<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Entry<'a>> {
    pairs.iter().map(|(key, value)| Entry { key, value }).collect()
}

/// Applies a verb to one descriptor.
fn apply(engine: &TestEngine, verb: Verb, pairs: &[(&str, &str)]) -> Verdict {
    let entries = entries(pairs);
    engine.apply_now(verb, &Request::new("api", &[Descriptor::new(&entries)]))
}

fn check(engine: &TestEngine, pairs: &[(&str, &str)]) -> Verdict {
    apply(engine, Verb::Check, pairs)
}

/// How many of `tries` requests pass.
fn admitted(engine: &TestEngine, tries: usize, pairs: &[(&str, &str)]) -> usize {
    (0..tries).filter(|_| check(engine, pairs).is_admitted()).count()
}

const LAYERED: &str = "
domain: api
descriptors:
  - key: user
    limits:
      - {name: per_second, requests_per_unit: 2, unit: second}
      - {name: per_day, requests_per_unit: 5, unit: day}
";
