//! Latencies of gateways at half of their throughput.
//!
//! The generator's thread serves as the upstream and never sleeps. Two processes on one
//! processor would wait for the scheduler, which takes longer than a gateway and varies more
//! than gateways differ.
//!
//! Measurements are short and many, so that other load of the machine affects all contenders
//! alike. Callers arrive at the same times in each, so an interval of ten milliseconds has the
//! same requests in every measurement of a gateway, and a longer latency in one of them comes
//! from the machine: the measurement at the lower quartile counts. The mean over all intervals
//! covers crowded and empty ones.
//!
//! One contender runs twice: the difference of these two is the error of the figures.

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
/// Measurements for each one of the other tables, which are longer.
const VISITS: usize = 6;

/// The latencies of each gateway.
pub(super) struct GatewayWaits(Rounds<ProxyName, WaitFigures>);

impl GatewayWaits {
    /// The 99th percentile.
    pub(super) fn p99_micros(&self, who: ProxyName) -> f64 {
        mean(&self.stretches(who))
    }

    /// The difference of that between two gateways, and the quartiles of the intervals.
    pub(super) fn more_micros(&self, who: ProxyName, other: ProxyName) -> (f64, Spread) {
        let (ours, theirs) = (self.stretches(who), self.stretches(other));
        let more: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ours - theirs).collect();
        (mean(&more), Spread::of(more))
    }

    /// The median of a figure.
    pub(super) fn median(&self, who: ProxyName, figure: fn(&WaitFigures) -> f64) -> f64 {
        self.0.median(who, figure)
    }

    /// The reliability of the figures, in words.
    pub(super) fn quality(&self) -> String {
        self.0.quality()
    }

    fn stretches(&self, who: ProxyName) -> Vec<f64> {
        let visits: Vec<&[f64]> =
            self.0.figures(who).map(|waits| waits.p99_micros.as_slice()).collect();
        undisturbed(&visits)
    }
}

/// The figure of each interval in the measurement at the lower quartile.
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

/// Measures gateways with limiters and without in an open loop.
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
