//! Limits inside a program, without any server: one limit for many keys, and
//! rules from a text.
//!
//! Run it: `cargo run -p tidegate-engine --example embedded_loop`.

use std::error::Error;

use tidegate_engine::{
    Descriptor, Engine, Entry, KeyedLimiter, Limit, MemoryConfig, MemoryStore, Options, Period,
    Request, Retry, Source, SystemClock, TokenBucket, compile,
};

const RULES: &str = "
domain: jobs
descriptors:
  - key: tenant
    limits:
      - {name: steady, algorithm: token_bucket, unit: minute, requests_per_unit: 60, burst: 4}
      - {name: daily, unit: day, requests_per_unit: 1000}
  - key: tenant
    value: trial
    rate_limit: {name: trial, unit: hour, requests_per_unit: 2}
";

fn main() -> Result<(), Box<dyn Error>> {
    by_key()?;
    by_rules()
}

/// One limit, each key on its own.
fn by_key() -> Result<(), Box<dyn Error>> {
    println!("two a second for each sensor, three at once:");
    let limiter = KeyedLimiter::new(Limit::new(TokenBucket::new(2, Period::SECOND, 3)))?;
    for reading in 1..=5 {
        for sensor in ["cellar", "roof"] {
            let decision = limiter.check(sensor);
            let left = decision.remaining;
            match decision.retry {
                Retry::Now => println!("  {sensor} {reading}: taken, {left} left"),
                Retry::After(wait) => println!("  {sensor} {reading}: dropped, come in {wait}"),
                Retry::Never => println!("  {sensor} {reading}: dropped for good"),
            }
        }
    }
    Ok(())
}

/// Rules say who is limited how; the verdict says which limit refused.
fn by_rules() -> Result<(), Box<dyn Error>> {
    println!("jobs by rules, each of cost one:");
    let rules = compile(&[Source::new("rules", RULES)], &Options::default())?;
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Engine::new(store, SystemClock::new()).with_rules(rules);
    for job in 1..=5 {
        for tenant in ["acme", "trial"] {
            let entries = [Entry { key: "tenant", value: tenant }];
            let descriptors = [Descriptor::new(&entries)];
            let verdict = engine.check_now(&Request::new("jobs", &descriptors));
            match verdict.refusal() {
                None => println!("  {tenant} {job}: runs"),
                Some(refusal) => {
                    let limit = refusal.limit.unwrap_or(refusal.path);
                    println!("  {tenant} {job}: refused by `{limit}`");
                }
            }
        }
    }
    Ok(())
}
