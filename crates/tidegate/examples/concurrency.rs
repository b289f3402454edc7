//! At most two exports of a tenant in flight; a permit frees its slot when it is dropped.
//!
//! Run it: `cargo run -p tidegate --example concurrency`.

use std::error::Error;
use std::sync::Arc;

use tidegate::{
    Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Options, Request, Source, SystemClock,
    Tenure, compile,
};

const RULES: &str = "
domain: exports
descriptors:
  - key: tenant
    limits: [{algorithm: concurrency, requests_per_unit: 2}]
";

fn main() -> Result<(), Box<dyn Error>> {
    for line in demo()? {
        println!("{line}");
    }
    Ok(())
}

/// Starts three exports, ends one and tries again: one line for each attempt.
pub(crate) fn demo() -> Result<Vec<String>, Box<dyn Error>> {
    let rules = compile(&[Source::new("rules.yaml", RULES)], &Options::default())?;
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
    let entries = [Entry { key: "tenant", value: "acme" }];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request::new("exports", &descriptors);

    let mut lines = Vec::new();
    let mut permits = Vec::new();
    for export in 1..=3 {
        let (verdict, permit) = engine.admit_now(&request, Tenure::Held);
        let outcome = if verdict.is_admitted() { "runs" } else { "refused" };
        lines.push(format!("export {export}: {outcome}"));
        permits.push(permit);
    }
    permits.clear();
    let (verdict, _permit) = engine.admit_now(&request, Tenure::Held);
    let outcome = if verdict.is_admitted() { "runs" } else { "refused" };
    lines.push(format!("export 4, after the others: {outcome}"));
    Ok(lines)
}
