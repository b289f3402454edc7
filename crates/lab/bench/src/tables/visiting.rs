//! What a visit to one server measures: how much it can do, and how long callers wait.

use std::time::Duration;

use crate::load::{Enough, Generator, Protocol, Wait};
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
#[derive(Clone, Debug)]
pub(super) struct Waits {
    /// For each stretch of the time, of those who arrived in it: a machine that stops for a
    /// moment spoils the stretches that it stopped in, and no others.
    pub(super) p99_micros: Vec<f64>,
    /// How many were answered.
    pub(super) per_second: f64,
    /// The share of the time in which the server was on a processor, in percent.
    pub(super) busy_percent: f64,
}

impl Waits {
    /// In the stretch that is in the middle: a machine that stops now and then spoils fewer than
    /// half of them.
    pub(super) fn usual_p99_micros(&self) -> f64 {
        Spread::of(self.p99_micros.clone()).median
    }
}

/// For how long callers arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) time: Duration,
    /// What is looked at apart.
    pub(super) stretch: Duration,
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
    span: Span,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Visit<Waits>> {
    generator.arrive(per_second, WARM_UP, &mut meanwhile)?;
    let arrive = || generator.arrive(per_second, span.time, &mut meanwhile);
    let (waits, spent) = spent(server, &[], arrive)?;
    let seconds = spent.time.as_secs_f64();
    let figures = Waits {
        p99_micros: p99_micros(&waits, span),
        per_second: waits.len() as f64 / seconds,
        busy_percent: 100.0 * spent.usage.server.as_secs_f64() / seconds,
    };
    Ok(Visit { figures, others: spent.others() })
}

/// The wait that one in a hundred exceeds, for each stretch; not a number where nobody arrived.
fn p99_micros(waits: &[Wait], Span { time, stretch }: Span) -> Vec<f64> {
    let place = |arrived: Duration| (arrived.as_nanos() / stretch.as_nanos().max(1)) as usize;
    let mut stretches = vec![Vec::new(); place(time).max(1)];
    for wait in waits {
        // What is left over after the last whole stretch is too short to be one.
        if let Some(stretch) = stretches.get_mut(place(wait.arrived)) {
            stretch.push(wait.waited);
        }
    }
    let p99 = |mut waited: Vec<Duration>| {
        waited.sort_unstable();
        let at = (waited.len() * 99).div_ceil(100).saturating_sub(1);
        waited.get(at).map_or(f64::NAN, |waited| waited.as_secs_f64() * 1e6)
    };
    stretches.into_iter().map(p99).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(arrived_millis: u64, waited_micros: impl IntoIterator<Item = u64>) -> Vec<Wait> {
        let arrived = Duration::from_millis(arrived_millis);
        let wait = |micros| Wait { arrived, waited: Duration::from_micros(micros) };
        waited_micros.into_iter().map(wait).collect()
    }

    #[test]
    fn a_stretch_has_the_wait_that_one_in_a_hundred_exceeds() {
        let span = Span { time: Duration::from_millis(25), stretch: Duration::from_millis(10) };
        let all = [waits(3, (1..=200).rev()), waits(12, [7]), waits(24, [9])].concat();
        assert_eq!(p99_micros(&all, span), [198.0, 7.0]);
    }

    #[test]
    fn a_stretch_in_which_nobody_arrived_has_none() {
        let span = Span { time: Duration::from_millis(20), stretch: Duration::from_millis(10) };
        let [none, one] = p99_micros(&waits(10, [5]), span)[..] else { panic!("two stretches") };
        assert!(none.is_nan());
        assert_eq!(one, 5.0);
    }
}
