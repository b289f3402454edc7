//! A node with eight workers, offered ten times what it can do, with and without
//! protection. In virtual time, so half a minute is over at once:
//!
//! ```sh
//! cargo run -p tidegate-overload --example protect
//! ```

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::{Clock, Nanos, Timestamp};
use tidegate_overload::{
    Arrival, Caller, Category, Completion, Limiter, Protection, ProtectionSettings, SteadyClock,
    run,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};

const WORKERS: usize = 8;
/// Up to 15 ms more, so 20 ms in the mean.
const WORK_MIN: Duration = Duration::from_micros(12_500);
/// How long a client waits for its answer.
const PATIENCE: Nanos = Nanos::from_millis(500);
/// Ten times the 400 a second that the workers can do.
const EVERY: Duration = Duration::from_micros(250);
const REQUESTS: u64 = 120_000;

/// A node: its protection in front, its workers behind.
struct Node {
    protection: Arc<Protection<SteadyClock>>,
    workers: Semaphore,
}

impl Node {
    async fn serve(self: Arc<Self>, category: Category, caller: Caller) {
        let deadline = Some(self.protection.clock().now().after(PATIENCE));
        let arrival = Arrival::Counted { category, caller, deadline };
        let Ok(screened) = self.protection.screen(arrival) else { return };
        let Ok(pass) = self.protection.enter(screened).await else { return };
        let Ok(_worker) = self.workers.acquire().await else { return };
        sleep(WORK_MIN + Duration::from_millis(caller.number() >> 32 & 15)).await;
        // Counts as goodput if its client was still waiting.
        pass.finish(self.protection.clock().now(), Completion::Succeeded);
    }
}

/// One request in twenty is critical. By the caller's hash, so that the order has no
/// rhythm.
fn category(caller: Caller) -> Category {
    match caller.number() % 20 {
        0 => Category::Critical,
        1..=3 => Category::Post,
        4..=15 => Category::Get,
        _ => Category::Test,
    }
}

async fn overload(protected: bool) {
    let clock = SteadyClock::starting_at(Timestamp::from_secs(1_800_000_000));
    let settings = ProtectionSettings::new(WORKERS as u64);
    let protection = Arc::new(Protection::new(settings, clock));
    if !protected {
        // Killed one by one, so that requests are still counted.
        Limiter::ALL.into_iter().for_each(|limiter| protection.kill(limiter, None));
    }
    let ticks = tokio::spawn(run(Arc::clone(&protection)));
    let workers = Semaphore::new(WORKERS);
    let node = Arc::new(Node { protection: Arc::clone(&protection), workers });
    let mut offered = [0u64; 4];
    let mut next = Instant::now();
    for number in 0..REQUESTS {
        let caller = Caller::named(number.to_le_bytes());
        let category = category(caller);
        offered[category.rank()] += 1;
        tokio::spawn(Arc::clone(&node).serve(category, caller));
        next += EVERY;
        sleep_until(next).await;
    }
    ticks.abort();
    let gauges = protection.gauges();
    println!("{}", if protected { "with protection" } else { "without protection" });
    for category in Category::ALL.into_iter().rev() {
        let done = gauges.latencies[category.rank()].count();
        let share = 100.0 * done as f64 / offered[category.rank()] as f64;
        println!("  {:8}  {share:5.1} % answered in time", category.as_str());
    }
    let admitted = 100.0 * gauges.worker.admitted;
    println!("  the worker shedder admits {admitted:.1} % of what is offered\n");
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    overload(false).await;
    overload(true).await;
}
