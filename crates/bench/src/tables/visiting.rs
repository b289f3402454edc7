//! What a visit to one server measures: how much it can do, and how long callers wait.

use std::time::Duration;

use crate::load::{Enough, Generator, Protocol};
use crate::processor::spent;
use crate::rounds::Visit;
use crate::spread::Spread;

/// Before a visit counts: long enough for connections to be made and caches to fill.
const WARM_UP: Duration = Duration::from_millis(300);

/// What a server does when it is kept full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saturated {
    pub(super) cpu_micros: f64,
    pub(super) per_second: f64,
}

/// How long callers wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    /// In the stretch of time that is in the middle: a machine that stops now and then spoils
    /// fewer than half of them.
    pub(super) p99_micros: f64,
    /// In the stretch at the lower quartile, for what differs by less than a machine that
    /// stops often adds.
    pub(super) p99_quiet_micros: f64,
    /// How many were answered.
    pub(super) per_second: f64,
    /// The share of the time in which the server was on a processor, in percent.
    pub(super) busy_percent: f64,
}

/// The processes that are watched: the server, and what is needed beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched<'a> {
    pub(super) server: u32,
    pub(super) helpers: &'a [u32],
}

/// Keeps a server full for a time.
///
/// # Errors
/// When a call fails or is refused.
pub(super) fn saturate(
    generator: &mut Generator<impl Protocol>,
    watched: Watched<'_>,
    time: Duration,
) -> anyhow::Result<Visit<Saturated>> {
    generator.saturate(Enough::After(WARM_UP))?;
    let saturate = || generator.saturate(Enough::After(time));
    let (replies, spent) = spent(watched.server, watched.helpers, saturate)?;
    let replies = replies as f64;
    let saturated = Saturated {
        cpu_micros: spent.usage.server.as_secs_f64() * 1e6 / replies,
        per_second: replies / spent.time.as_secs_f64(),
    };
    Ok(Visit { figures: saturated, others: spent.others() })
}

/// Lets callers arrive for a time. What is needed beside the server on the generator's processor
/// runs `meanwhile`.
///
/// # Errors
/// When a call fails or is refused, or when `meanwhile` fails.
pub(super) fn arrive(
    generator: &mut Generator<impl Protocol>,
    server: u32,
    per_second: f64,
    time: Duration,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Visit<Waits>> {
    generator.arrive(per_second, WARM_UP, &mut meanwhile)?;
    let arrive = || generator.arrive(per_second, time, &mut meanwhile);
    let (stretches, spent) = spent(server, &[], arrive)?;
    let p99 = stretches.iter().map(|waits| waits.value_at_quantile(0.99) as f64 / 1e3);
    let replies: u64 = stretches.iter().map(|waits| waits.len()).sum();
    let seconds = spent.time.as_secs_f64();
    let p99 = Spread::of(p99.collect());
    let waits = Waits {
        p99_micros: p99.median,
        p99_quiet_micros: p99.low,
        per_second: replies as f64 / seconds,
        busy_percent: 100.0 * spent.usage.server.as_secs_f64() / seconds,
    };
    Ok(Visit { figures: waits, others: spent.others() })
}
