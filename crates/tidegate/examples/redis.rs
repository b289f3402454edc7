//! Limits that several processes share through Redis. If Redis is down, each process decides on its own.
//!
//! Run it: `cargo run -p tidegate --features redis --example redis -- redis://localhost`.

use std::error::Error;

use tidegate::stores::{RedisSettings, RedisStore, SharedSettings, SharedStore};
use tidegate::{Descriptor, Engine, Entry, Options, Request, Source, SystemClock, compile};

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://localhost".to_owned());
    for line in demo(&url).await? {
        println!("{line}");
    }
    Ok(())
}

/// Three requests of one user: one line for each.
pub(crate) async fn demo(url: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let rules = compile(&[Source::new("rules.yaml", RULES)], &Options::default())?;
    let redis = RedisStore::new(RedisSettings::parse(url)?)?;
    let store = SharedStore::new(redis, SharedSettings::default())?;
    // The same fingerprints in every process, so that they mean the same counters.
    let engine =
        Engine::new(store, SystemClock::new()).with_rules(rules).with_shared_fingerprints();

    let entries = [Entry { key: "user", value: "alice" }];
    let descriptors = [Descriptor::new(&entries)];
    let mut lines = Vec::new();
    for request in 1..=3 {
        let verdict = engine.check(&Request::new("api", &descriptors)).await;
        let outcome = if verdict.is_admitted() { "admitted" } else { "refused" };
        let by = if verdict.is_degraded() { "without Redis" } else { "by Redis" };
        lines.push(format!("request {request}: {outcome} {by}"));
    }
    Ok(lines)
}
