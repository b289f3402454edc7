//! How long callers wait at gateways that have half of what they can do to do.
//!
//! The generator's thread is the upstream as well, and never sleeps. In two processes on one
//! processor each would wait until the system gives it its turn, which takes longer than a
//! gateway takes, and differs more from time to time than gateways do from each other.
//!
//! Visits are short and many, so that what the machine does meanwhile meets all contenders
//! alike. Callers arrive at the same times in each, so a stretch of ten milliseconds asks the
//! same of a gateway in all of its visits, and where it took longer in one of them that was the
//! machine's doing: what counts is the visit at the lower quartile. The mean over all stretches
//! has the crowded ones in it as well as the empty ones.
//!
//! One of the contenders is there twice: what those two differ by is no gateway's doing, and
//! says how far the figures can be trusted.

use std::time::Duration;

use super::ProxyName;
use super::proxies::{gateway, peer_program};
use crate::peer::Upstream;
use crate::processor::Pins;
use crate::rounds::{Measurement, Rounds};
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::spread::Spread;
use crate::tables::server_figures::{self, Span, WaitFigures};

const SPAN: Span = Span { time: Duration::from_millis(500), interval: Duration::from_millis(10) };
/// Visits for each that others get, which are longer.
const VISITS: usize = 6;

/// How long callers waited at each gateway.
pub(super) struct GatewayWaits(Rounds<ProxyName, WaitFigures>);

impl GatewayWaits {
    /// The wait that one in a hundred exceeds.
    pub(super) fn p99_micros(&self, who: ProxyName) -> f64 {
        mean(&self.stretches(who))
    }

    /// How much longer that is at one gateway than at another, and between which quartiles the
    /// stretches lie.
    pub(super) fn more_micros(&self, who: ProxyName, other: ProxyName) -> (f64, Spread) {
        let (ours, theirs) = (self.stretches(who), self.stretches(other));
        let more: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours - theirs).collect();
        (mean(&more), Spread::of(more))
    }

    /// The median of a figure.
    pub(super) fn median(&self, who: ProxyName, figure: fn(&WaitFigures) -> f64) -> f64 {
        self.0.median(who, figure)
    }

    /// How far the figures can be trusted, in words.
    pub(super) fn quality(&self) -> String {
        self.0.quality()
    }

    fn stretches(&self, who: ProxyName) -> Vec<f64> {
        let visits: Vec<&[f64]> =
            self.0.figures(who).map(|waits| waits.p99_micros.as_slice()).collect();
        undisturbed(&visits)
    }
}

/// What each stretch comes to in the visit at the lower quartile.
fn undisturbed(visits: &[&[f64]]) -> Vec<f64> {
    let stretches = visits.iter().map(|stretches| stretches.len()).min().unwrap_or(0);
    let stretch = |at: usize| {
        Spread::of(visits.iter().filter_map(|stretches| stretches.get(at).copied()).collect()).low
    };
    (0..stretches).map(stretch).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Lets callers arrive at gateways with limiters and without.
///
/// # Errors
/// When a gateway does not start, or a call fails or is refused.
pub(super) fn measure(pins: &Pins, scale: Scale, per_second: f64) -> anyhow::Result<GatewayWaits> {
    let mut upstream = Upstream::listen()?;
    let (program, at) = (peer_program()?, upstream.address()?);
    let start = |who: ProxyName, limiters: &str| {
        let command = gateway(&program, at, &["--limiters", limiters]);
        anyhow::Ok((who, Server::start(command, &[Door::Http])?))
    };
    let servers = pins.on_server(|| {
        Ok([
            start(ProxyName::Tidegate, "all")?,
            start(ProxyName::Unlimited, "none")?,
            start(ProxyName::UnlimitedToo, "none")?,
        ])
    })?;
    let rounds = Rounds::run(servers, scale.server_rounds * VISITS, |server| {
        pins.on_generator(|| visit(server, &mut upstream, per_second))
    })?;
    Ok(GatewayWaits(rounds))
}

fn visit(
    server: &Server,
    upstream: &mut Upstream,
    per_second: f64,
) -> anyhow::Result<Measurement<WaitFigures>> {
    let mut generator = super::generator(server)?;
    server_figures::arrive(&mut generator, server.process(), per_second, SPAN, || upstream.answer())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stops_spoils_no_stretch_that_it_does_not_always_stop_in() {
        let visits: [&[f64]; 5] =
            [&[10.0, 900.0], &[12.0, 30.0], &[800.0, 31.0], &[11.0, 700.0], &[700.0, 800.0]];
        assert_eq!(undisturbed(&visits), [11.0, 31.0]);
    }

    #[test]
    fn crowded_stretches_count_as_much_as_empty_ones() {
        assert_eq!(mean(&undisturbed(&[&[10.0, 20.0, 90.0]])), 40.0);
    }
}
