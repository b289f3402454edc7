//! From the first request to the last: signals, certificates, signs of life, draining.

use std::io;
use std::time::Duration;

use tidegate_engine::Clock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, sleep};

use super::counters::Counters;
use super::gateway::Front;
use super::limiting::Limiting;
use super::memory::Tidying;
use super::notify::ServiceManager;
use super::opening::Doors;
use super::restart::Restart;
use super::rules::Rules;
use super::switches::Switches;
use super::warnings::DocumentWarnings;
use crate::config::Config;

/// How often certificates and switches are looked at, and readiness is told over gRPC.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the system tells us.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// What is looked after while requests are served.
#[derive(Debug)]
pub(super) struct Watched<'s, S> {
    pub(super) limiting: &'s Limiting<S>,
    pub(super) rules: &'s Rules,
    /// The gateway, if there is one.
    pub(super) front: Option<&'s mut Front<S>>,
    pub(super) restart: &'s Restart,
}

impl<S> Watched<'_, S> {
    /// Reads everything again that may have changed.
    fn reload(&self) {
        self.rules.handle().reload();
        if let Some(document) = self.front.as_ref().and_then(|front| front.document.as_ref()) {
            document.handle().reload();
        }
        if let Some(configuration) = self.restart.handle() {
            configuration.reload();
        }
    }
}

/// Serves until a signal says stop, then lets requests finish.
pub(super) async fn until_stopped<S: Counters>(
    config: &Config,
    mut signals: Signals,
    doors: Doors,
    mut watched: Watched<'_, S>,
    switches: &mut Switches,
) {
    let manager = ServiceManager::from_environment();
    let places: Vec<String> = doors
        .listening
        .iter()
        .map(|door| format!("{} at {}", door.name(), door.address()))
        .collect();
    manager.ready(&places.join(", "));
    let mut look = interval(LOOK_EVERY);
    let mut tidying = Tidying::default();
    let mut warnings = DocumentWarnings::default();
    let mut beat = interval(manager.beat.unwrap_or(LOOK_EVERY));
    let stopped_by = loop {
        tokio::select! {
            _ = signals.terminate.recv() => break "SIGTERM",
            _ = signals.interrupt.recv() => break "SIGINT",
            _ = signals.hang_up.recv() => {
                tracing::info!("SIGHUP: reading the rules and other files again");
                watched.reload();
            }
            _ = look.tick() => {
                switches.look(watched.limiting.engine.clock().now());
                look_after(config, &doors, &mut watched);
                warnings.look(config, watched.limiting, watched.front.as_deref());
                tidying.look();
            }
            _ = beat.tick() => manager.alive(),
        }
    };
    tracing::info!(signal = stopped_by, "stopping");
    manager.stopping();
    drain(config, signals, doors, &watched).await;
}

/// Takes a look at everything.
fn look_after<S: Counters>(config: &Config, doors: &Doors, watched: &mut Watched<'_, S>) {
    let limiting = watched.limiting;
    if let Some(front) = &mut watched.front {
        front.look_after(config, &limiting.health);
    }
    if config.health.needs_store {
        match limiting.engine.store().in_the_way() {
            Some(reason) => limiting.health.hold_back("store", reason),
            None => limiting.health.clear("store"),
        }
    }
    doors.grpc_health.set_serving(limiting.health.is_ready());
    for (door, tls) in &doors.certificates {
        match tls.refresh() {
            Ok(true) => tracing::info!(door, "new certificates are in use"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(door, %error, "certificates cannot be used; the old stay")
            }
        }
    }
}

/// Says that nobody should come any more, waits, lets requests finish and their lines be written.
/// A second signal ends the wait.
async fn drain<S: Counters>(
    config: &Config,
    mut signals: Signals,
    doors: Doors,
    watched: &Watched<'_, S>,
) {
    watched.limiting.health.hold_back("stop", "the service is stopping");
    doors.grpc_health.drain();
    doors.announce_close();
    let hurry = async {
        tokio::select! {
            _ = signals.terminate.recv() => {}
            _ = signals.interrupt.recv() => {}
        }
    };
    let stop = async {
        let grace = config.shutdown.grace;
        sleep(config.shutdown.delay).await;
        let cut = doors.close(grace).await;
        if let Some(front) = &watched.front {
            front.finish_log(grace).await;
        }
        cut
    };
    tokio::select! {
        cut = stop => {
            if cut > 0 {
                tracing::warn!(connections = cut, "some requests did not finish in time");
            }
        }
        () = hurry => tracing::warn!("stopped at once by a second signal"),
    }
}
