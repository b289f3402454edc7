//! The refund of a request that was charged and then not served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_engine::{
    Descriptor, Engine, Entry, ManualClock, MemoryConfig, MemoryStore, NearLimit, Observer,
    Options, Request, Retry, Source, Tenure, Timestamp, Verb, Verdict, compile,
};

const RULES: &str = "
domain: api
descriptors:
  - key: user
    limits:
      - {name: drip, algorithm: leaky_bucket, unit: second, requests_per_unit: 10, queue: 5}
      - {name: daily, unit: day, requests_per_unit: 100}
      - {name: tokens, algorithm: token_bucket, unit: hour, requests_per_unit: 50}
      - {name: flight, algorithm: concurrency, requests_per_unit: 5}
      - {name: dark, unit: day, requests_per_unit: 1, mode: shadow}
";

type TestEngine = Arc<Engine<MemoryStore, Arc<ManualClock>>>;

fn engine() -> TestEngine {
    let rules = compile(&[Source::new("test.yaml", RULES)], &Options::default());
    let rules = rules.unwrap_or_else(|report| panic!("{report}"));
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default budget is enough");
    Arc::new(Engine::new(store, clock).with_rules(rules))
}

fn request<R>(ask: impl FnOnce(&Request<'_>) -> R) -> R {
    let entries = [Entry { key: "user", value: "ada" }];
    ask(&Request::new("api", &[Descriptor::new(&entries)]).with_cost(3))
}

/// What is left of each limit.
fn left(engine: &TestEngine) -> Vec<u64> {
    let verdict = request(|request| engine.apply_now(Verb::Peek, request));
    verdict.rulings().iter().map(|ruling| ruling.decision.remaining).collect()
}

fn check(engine: &TestEngine) -> Verdict {
    request(|request| engine.check_now(request))
}

#[tokio::test]
async fn a_deposit_gives_back_what_rates_took_and_nothing_else() {
    let engine = engine();
    drop(check(&engine));
    let before = left(&engine);
    assert_eq!(before, [3, 97, 47, 4, 1]);
    let (verdict, permit) = request(|request| engine.admit_now(request, Tenure::Held));
    let deposit = request(|request| engine.deposit(request, &verdict));
    assert!(verdict.delay() > Duration::ZERO.into() && !deposit.is_empty());
    assert_eq!(left(&engine), [0, 94, 44, 3, 1]);
    deposit.give_back().await;
    // The turn in the leaky bucket stays taken, and the permit holds the slot.
    assert_eq!(left(&engine), [0, 97, 47, 3, 1]);
    drop(permit);
    assert_eq!(left(&engine), [0, 97, 47, 4, 1]);
}

#[tokio::test]
async fn a_deposit_goes_by_the_rules_that_charged() {
    let engine = engine();
    let verdict = check(&engine);
    let other = RULES.replace("name: daily, ", "").replace("unit: hour", "unit: day");
    let other = compile(&[Source::new("test.yaml", other)], &Options::default());
    engine.install(other.unwrap_or_else(|report| panic!("{report}")));
    request(|request| engine.deposit(request, &verdict)).give_back().await;
    assert_eq!(left(&engine)[1], 100);
}

#[tokio::test]
async fn who_was_charged_in_full_gets_it_back_without_the_verdict() {
    let engine = engine();
    let rules = engine.rules_version();
    let verdict = request(|request| engine.check_now(&request.with_cost(1)));
    assert!(verdict.is_charged_in_full());
    drop(verdict);
    assert_eq!(left(&engine), [5, 99, 49, 4, 0]);
    let deposit = || request(|request| engine.deposit_in_full(&request.with_cost(1), rules));
    deposit().give_back().await;
    assert_eq!(left(&engine), [5, 100, 50, 4, 1]);
    // A limit in shadow refused the second.
    drop(check(&engine));
    assert!(!check(&engine).is_charged_in_full());
}

#[tokio::test]
async fn rules_that_did_not_charge_give_nothing_back() {
    let engine = engine();
    let rules = engine.rules_version();
    drop(check(&engine));
    let other =
        compile(&[Source::new("test.yaml", format!("{RULES} # other"))], &Options::default());
    engine.install(other.unwrap_or_else(|report| panic!("{report}")));
    assert!(request(|request| engine.deposit_in_full(request, rules)).is_empty());
}

/// Counts the verdicts that it observes.
#[derive(Default)]
struct CountingObserver {
    admitted: AtomicU64,
    turned_away: AtomicU64,
}

impl Observer for CountingObserver {
    fn observe(&self, _: Verb, _: &Request<'_>, verdict: &Verdict) {
        self.admitted.fetch_add(u64::from(verdict.is_admitted()), Ordering::Relaxed);
    }

    fn observe_turned_away(&self, _: &Request<'_>, verdict: &Verdict) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        assert!(verdict.is_admitted(), "an observer that panics changes no verdict");
    }
}

#[test]
fn an_observer_is_told_when_a_request_that_was_admitted_is_turned_away() {
    let counting = Arc::new(CountingObserver::default());
    let engine = Arc::into_inner(engine()).expect("nobody else has it");
    let engine = Arc::new(engine.with_observer(Arc::clone(&counting) as Arc<dyn Observer>));
    drop(check(&engine));
    let mut verdict = check(&engine);
    let retry = Duration::from_millis(120).into();
    request(|request| engine.turn_away(request, &mut verdict, retry));
    assert_eq!(verdict.retry(), Retry::After(retry));
    let told = [&counting.admitted, &counting.turned_away].map(|told| told.load(Ordering::Relaxed));
    assert_eq!(told, [2, 1]);
}

#[test]
fn hits_of_a_request_that_is_turned_away_count_as_over_the_limit_that_delayed_it() {
    let engine = Arc::into_inner(engine()).expect("nobody else has it");
    let engine = Arc::new(engine.with_tallies(NearLimit::default()));
    drop(check(&engine));
    let mut verdict = check(&engine);
    request(|request| engine.turn_away(request, &mut verdict, Duration::from_millis(120).into()));
    let mut hits = Vec::new();
    engine.for_each_tally(|snapshot, rule, limit, tally| {
        let name = snapshot.limit_name(rule, limit).into_owned();
        hits.push((name, tally.within, tally.over));
    });
    // The other limits admitted it.
    let expected = [("drip", 3, 3), ("daily", 6, 0), ("tokens", 6, 0), ("flight", 2, 0)];
    for (name, within, over) in expected {
        assert!(hits.contains(&(name.to_owned(), within, over)), "{name}: {hits:?}");
    }
}

#[test]
fn who_may_not_wait_is_told_when_to_come_back() {
    let engine = engine();
    drop(check(&engine));
    let mut verdict = check(&engine);
    assert!(verdict.is_admitted());
    verdict.refuse_to_wait(Duration::from_millis(120).into());
    assert!(!verdict.is_admitted());
    assert_eq!(verdict.retry(), Retry::After(Duration::from_millis(120).into()));
    assert_eq!(verdict.refusal().and_then(|refusal| refusal.limit), Some("drip"));
    let said = verdict.rulings().iter().map(|ruling| ruling.decision);
    assert!(said.clone().all(|decision| decision.taken == 0));
    assert_eq!(said.map(|decision| decision.remaining).collect::<Vec<_>>(), [3, 97, 47, 4, 1]);
}
