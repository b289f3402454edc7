//! How long callers wait at gateways that have half of what they can do to do.
//!
//! The generator's thread is the upstream as well, and never sleeps. In two processes on one
//! processor each would wait until the system gives it its turn, which takes longer than a
//! gateway takes, and differs more from time to time than gateways do from each other.
//!
//! Visits are short and many, so that what the machine does meanwhile meets all contenders
//! alike. One of them is there twice: what those two differ by is no gateway's doing, and says
//! how far the figures can be trusted.

use std::time::Duration;

use super::Who;
use super::proxies::{gateway, peer_program};
use crate::peer::Upstream;
use crate::processor::Pins;
use crate::rounds::{Rounds, Visit};
use crate::scale::Scale;
use crate::server::{Door, Server};
use crate::tables::visiting::{self, Waits};

/// How long a visit is measured.
const VISIT: Duration = Duration::from_millis(500);
/// Visits for each that others get, which are longer.
const VISITS: usize = 4;

/// Lets callers arrive at gateways with limiters and without.
///
/// # Errors
/// When a gateway does not start, or a call fails or is refused.
pub(super) fn measure(
    pins: &Pins,
    scale: Scale,
    per_second: f64,
) -> anyhow::Result<Rounds<Who, Waits>> {
    let mut upstream = Upstream::listen()?;
    let (program, at) = (peer_program()?, upstream.address()?);
    let start = |who: Who, limiters: &str| {
        let command = gateway(&program, at, &["--limiters", limiters]);
        anyhow::Ok((who, Server::start(command, &[Door::Http])?))
    };
    let servers = pins.on_server(|| {
        Ok([
            start(Who::Tidegate, "all")?,
            start(Who::Unlimited, "none")?,
            start(Who::UnlimitedToo, "none")?,
        ])
    })?;
    Rounds::run(servers, scale.visits * VISITS, |server| {
        pins.on_generator(|| visit(server, &mut upstream, per_second))
    })
}

fn visit(
    server: &Server,
    upstream: &mut Upstream,
    per_second: f64,
) -> anyhow::Result<Visit<Waits>> {
    let mut generator = super::generator(server)?;
    visiting::arrive(&mut generator, server.process(), per_second, VISIT, || upstream.answer())
}
