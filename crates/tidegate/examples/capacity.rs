//! Three workers that share a service of 200 calls a second without knowing each other.
//!
//! Run it: `cargo run -p tidegate --features capacity --example capacity`. With the feature `redis`, the workers may be
//! processes on many machines: replace the store by `RedisCapacityStore`.

use std::sync::Arc;

use tidegate::capacity::{
    Cost, Dimension, MemberTerms, MemoryCapacityStore, Target, TargetAnswer, TargetLimit,
    TargetLimits, TargetMember,
};

/// One call that costs one operation.
const CALL: Cost = Cost { operations: 1, bytes: 0, units: 0 };

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in demo(100).await? {
        println!("{line}");
    }
    Ok(())
}

/// Each worker sends this many calls.
pub(crate) async fn demo(calls: u64) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let limits = TargetLimits::new(vec![TargetLimit::per_second(Dimension::Operations, 200)])?;
    let store = Arc::new(MemoryCapacityStore::default());
    let mut workers = Vec::new();
    for name in ["a", "b", "c"] {
        let target = Target::new("mail", limits.clone());
        let member = TargetMember::join(Arc::clone(&store), target, MemberTerms::named(name));
        workers.push((name, tokio::spawn(work(member, calls))));
    }
    let mut lines = Vec::new();
    for (name, worker) in workers {
        let sent = worker.await?;
        lines.push(format!("worker {name} sent {sent} calls at its share of the pace"));
    }
    Ok(lines)
}

async fn work(member: TargetMember<Arc<MemoryCapacityStore>>, calls: u64) -> u64 {
    let mut sent = 0;
    while sent < calls {
        member.set_backlog(Cost { operations: calls - sent, ..CALL });
        let Ok(permit) = member.turn(CALL).await else { break };
        // Call the service here, and finish with its answer: a 429 slows all workers down.
        permit.finish(TargetAnswer::Accepted, None);
        sent += 1;
    }
    sent
}
