//! What asking the worker shedder and the fleet shedder costs a request.

use std::hint::black_box;

use tidegate_engine::{Clock, SystemClock};
use tidegate_overload::{
    Arrival, Caller, Category, Protection, ProtectionSettings, Screening, SteadyClock,
};

use crate::tables::parts::{best, ignore};

/// Room for more than is ever in flight here.
const GATE: u64 = 4096;

/// Nanoseconds of the worker's check, with the clock read and all that is counted; and of the
/// fleet's, with its credit given back.
pub(super) fn nanos() -> [f64; 2] {
    let clock = SteadyClock::starting_at(SystemClock::new().now());
    let protection = Protection::new(ProtectionSettings::new(GATE), clock);
    let arrival = Arrival::Counted {
        category: Category::Get,
        caller: Caller::named("192.0.2.7"),
        deadline: None,
    };
    let worker = best(|| match protection.screen(black_box(arrival)) {
        Screening::GoOn(screened) => ignore(screened),
        Screening::Refuse(refusal) => ignore(refusal),
    });
    let now = protection.clock().now();
    let fleet = best(|| ignore(protection.fleet().try_enter(black_box(now), Category::Get)));
    [worker, fleet]
}
