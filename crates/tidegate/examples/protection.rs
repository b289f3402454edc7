//! A gate with one slot: a request that gets none before its deadline is refused.
//!
//! Run it: `cargo run -p tidegate --features protection --example protection`.

use tidegate::protection::{
    Arrival, Caller, Category, Completion, Pass, Protection, ProtectionSettings, SteadyClock,
};
use tidegate::{Clock, Mode, Nanos, SystemClock};

/// How long a caller waits for the gate.
const PATIENCE: Nanos = Nanos::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for line in demo().await {
        println!("{line}");
    }
}

/// Two requests at once, then one after them: one line for each.
pub(crate) async fn demo() -> Vec<String> {
    // A single node has no fleet to share with.
    let settings = ProtectionSettings { fleet_mode: Mode::Off, ..ProtectionSettings::new(1) };
    let clock = SteadyClock::starting_at(SystemClock::new().now());
    let protection = Protection::new(settings, clock);

    let mut lines = Vec::new();
    let mut admitted = Vec::new();
    for request in 1..=2 {
        let pass = enter(&protection).await;
        lines.push(format!("request {request}: {}", outcome(pass.as_ref())));
        admitted.extend(pass);
    }
    for pass in admitted {
        pass.finish(protection.clock().now(), Completion::Succeeded);
    }
    let pass = enter(&protection).await;
    lines.push(format!("request 3: {}", outcome(pass.as_ref())));
    lines
}

/// Passes the shedders and the gate, or is refused.
async fn enter(protection: &Protection<SteadyClock>) -> Option<Pass<SteadyClock>> {
    let deadline = Some(protection.clock().now().after(PATIENCE));
    let (category, caller) = (Category::Critical, Caller::named("alice"));
    let arrival = Arrival::Counted { category, caller, deadline };
    let screened = protection.screen(arrival).ok()?;
    protection.enter(screened).await.ok()
}

const fn outcome(pass: Option<&Pass<SteadyClock>>) -> &'static str {
    if pass.is_some() { "admitted" } else { "refused" }
}
