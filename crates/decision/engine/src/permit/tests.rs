use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_algorithms::{ManualClock, Tenure, Timestamp};
use tidegate_rules::{Entry, Options, Source, compile};
use tidegate_stores::MemoryConfig;

use super::*;
use crate::request::{Descriptor, Request};

type TestEngine = Engine<MemoryStore, ManualClock>;

const ONE_AT_A_TIME: &str = "
domain: api
descriptors:
  - key: user
    limits: [{algorithm: concurrency, requests_per_unit: 1, time_to_live: 60s}]
";

fn engine() -> Arc<TestEngine> {
    let rules = compile(&[Source::new("test.yaml", ONE_AT_A_TIME.to_owned())], &Options::default());
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default budget is enough");
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    Arc::new(Engine::new(store, clock).with_rules(rules.expect("the rules are right")))
}

fn asking<R>(ask: impl FnOnce(&Request<'_>) -> R) -> R {
    let entries = [Entry { key: "user", value: "ada" }];
    let descriptors = [Descriptor::new(&entries)];
    ask(&Request::new("api", &descriptors))
}

fn admits(engine: &Arc<TestEngine>) -> bool {
    asking(|request| engine.admit_now(request, Tenure::Held).0.is_admitted())
}

#[test]
fn a_panic_before_anybody_knows_what_was_taken_keeps_no_slot() {
    let engine = engine();
    let snapshot = engine.snapshot();
    let limit = &snapshot.limits()[0];
    let key = Key { fingerprint: engine.store().fingerprinter().of(1, b"ada"), group: 1 };
    let check = Check::new(key, &limit.limit, 1);
    let check = Check { holder: Holder(7), tenure: Tenure::Held, ..check };
    let now = engine.clock().now();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let mut permit = Permit::empty(&engine);
        list_slots(permit.slots_mut(), std::iter::once((Some(limit.id), check)));
        assert!(engine.store().check_one(&check, now).decision.is_admitted());
        assert!(!engine.store().check_one(&check, now).decision.is_admitted());
        panic!("between the store's answer and the verdict");
    }));
    assert!(caught.is_err());
    assert!(engine.store().check_one(&check, now).decision.is_admitted());
}

#[test]
fn a_panic_while_a_request_is_worked_on_gives_its_slot_back() {
    let engine = engine();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let (verdict, _permit) = asking(|request| engine.admit_now(request, Tenure::Held));
        assert!(verdict.is_admitted() && !admits(&engine));
        panic!("in the service");
    }));
    assert!(caught.is_err() && admits(&engine));
}

#[test]
fn a_request_that_is_refused_lists_nothing_to_give_back() {
    let engine = engine();
    let (_, held) = asking(|request| engine.admit_now(request, Tenure::Held));
    let (refused, nothing) = asking(|request| engine.admit_now(request, Tenure::Held));
    assert!(!refused.is_admitted() && nothing.is_empty() && !held.is_empty());
    drop(nothing);
    assert!(!admits(&engine), "the first one still holds its slot");
}
