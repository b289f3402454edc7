//! The common case allocates nothing.

use std::sync::Arc;

use tidegate_engine::{
    Descriptor, Engine, Entry, KeyedLimiter, Limit, MemoryConfig, MemoryStore, Options, Period,
    Request, Source, SystemClock, Tenure, TokenBucket, compile,
};

#[test]
fn a_known_key_of_a_keyed_limiter_is_decided_without_allocating() {
    let limiter = KeyedLimiter::new(Limit::new(TokenBucket::new(1, Period::HOUR, 1_000)))
        .expect("the default budget is enough");
    limiter.check("ada");
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            assert!(limiter.check("ada").is_admitted());
        }
    });
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn a_request_with_known_keys_is_decided_without_allocating() {
    let engine = engine(
        "
domain: api
descriptors:
  - key: tenant
    descriptors:
      - key: method
        descriptors:
          - key: user
            limits:
              - {name: burst, algorithm: token_bucket, requests_per_unit: 1000, unit: hour}
              - {name: day, requests_per_unit: 1000, unit: day}
",
    );
    let entry = |key, value| Entry { key, value };
    let entries = [entry("tenant", "acme"), entry("method", "GET"), entry("user", "ada")];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request::new("api", &descriptors);
    assert!(engine.check_now(&request).is_admitted());
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            assert!(engine.check_now(&request).is_admitted());
        }
    });
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn slots_of_a_known_key_are_taken_and_given_back_without_allocating() {
    let engine = engine(
        "
domain: api
descriptors:
  - key: user
    limits:
      - {name: burst, algorithm: token_bucket, requests_per_unit: 1000, unit: hour}
      - {name: in_flight, algorithm: concurrency, requests_per_unit: 4, time_to_live: 1h}
",
    );
    let entries = [Entry { key: "user", value: "ada" }];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request::new("api", &descriptors);
    let (_, held) = engine.admit_now(&request, Tenure::Held);
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            let (verdict, permit) = engine.admit_now(&request, Tenure::Held);
            assert!(verdict.is_admitted() && !permit.is_empty());
        }
    });
    assert_eq!(allocated.count_total, 0);
    drop(held);
}

fn engine(text: &str) -> Arc<Engine> {
    let source = Source { name: "test.yaml".to_owned(), text: text.to_owned() };
    let rules = compile(&[source], &Options::default()).unwrap_or_else(|report| panic!("{report}"));
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default budget is enough");
    Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules))
}
