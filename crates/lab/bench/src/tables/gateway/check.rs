//! The cost of the limiters for a request, without a gateway.

use std::hint::black_box;
use std::sync::Arc;

use anyhow::Context as _;
use tidegate_engine::{
    Clock, Descriptor, Engine, Entry, MemoryConfig, MemoryStore, Permit, Request, SystemClock,
    Tenure,
};
use tidegate_overload::{
    Arrival, Caller, Category, Completion, Entry as GateEntry, Pass, Protection,
    ProtectionSettings, SteadyClock,
};

use crate::peer::GATEWAY_RULES;
use crate::rule_text::compiled;
use crate::stopwatch::on_processor;
use crate::tables::parts::{best, ignore};

/// More slots than requests in flight here.
const GATE: u64 = 4096;
/// Requests in flight: as many as connections in the other rows.
const IN_FLIGHT: u32 = 64;
const ROUNDS: usize = 31;
/// How often this many requests enter and leave in a round.
const TIMES: u32 = 1_000;

const ARRIVES: &str = "192.0.2.7";

/// Nanoseconds of the worker's check, with the clock read and all that is counted; and of the
/// fleet's, with its credit given back.
pub(super) fn shedders() -> [f64; 2] {
    let protection = protection();
    let worker = best(|| ignore(protection.screen(black_box(arrival()))));
    let now = protection.clock().now();
    let fleet = best(|| ignore(protection.fleet().try_enter(black_box(now), Category::Get)));
    [worker, fleet]
}

/// Nanoseconds of the four limiters and the gate to admit a request whose descriptors are known, and when it
/// ends.
///
/// # Errors
/// When one of them refuses.
pub(super) fn all_limiters() -> anyhow::Result<[f64; 2]> {
    let store = MemoryStore::new(MemoryConfig::default())?;
    let engine = Engine::new(store, SystemClock::new());
    // Without a gateway they decide more requests a second than the rate that no gateway reaches.
    let rules = GATEWAY_RULES.replace("1000000,", "1000000000,").replace("1000000}", "1000000000}");
    let limiters = GatewayLimiters {
        engine: Arc::new(engine.with_rules(compiled(rules)?)),
        protection: protection(),
    };
    let client = [Entry { key: "client", value: ARRIVES }];
    let descriptors = [Descriptor::new(&client)];
    let request = Request::new("gateway", &descriptors);
    let mut best = [f64::INFINITY; 2];
    let mut inside = Vec::with_capacity(IN_FLIGHT as usize);
    for _ in 0..ROUNDS {
        let mut spent = [0.0; 2];
        for _ in 0..TIMES {
            let begun = on_processor();
            for _ in 0..IN_FLIGHT {
                inside.push(limiters.admit(black_box(&request)).context("nothing is short here")?);
            }
            let admitted = on_processor();
            inside.drain(..).for_each(|inside| limiters.end(inside));
            spent[0] += admitted.saturating_sub(begun).as_secs_f64();
            spent[1] += on_processor().saturating_sub(admitted).as_secs_f64();
        }
        for (best, spent) in best.iter_mut().zip(spent) {
            *best = best.min(spent * 1e9 / f64::from(TIMES * IN_FLIGHT));
        }
    }
    Ok(best)
}

/// The limiters that a gateway calls for each request.
struct GatewayLimiters {
    engine: Arc<Engine>,
    protection: Protection<SteadyClock>,
}

/// The permits of an admitted request.
type Inside = (Permit, Pass<SteadyClock>);

impl GatewayLimiters {
    /// In the order of the gateway's calls.
    fn admit(&self, request: &Request<'_>) -> Option<Inside> {
        let screened = self.protection.screen(black_box(arrival())).ok()?;
        let (verdict, permit) = self.engine.local()?.admit_now(request, Tenure::Held);
        if !black_box(&verdict).is_admitted() {
            return None;
        }
        match self.protection.try_enter(screened) {
            GateEntry::Entered(pass) => Some((permit, pass)),
            GateEntry::Refused(_) | GateEntry::Queued(_) => None,
        }
    }

    fn end(&self, (permit, pass): Inside) {
        pass.finish(self.protection.clock().now(), Completion::Succeeded);
        drop(permit);
    }
}

fn protection() -> Protection<SteadyClock> {
    let clock = SteadyClock::starting_at(SystemClock::new().now());
    Protection::new(ProtectionSettings::new(GATE), clock)
}

fn arrival() -> Arrival {
    Arrival::Counted { category: Category::Get, caller: Caller::named(ARRIVES), deadline: None }
}
