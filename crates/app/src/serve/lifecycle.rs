//! From the first request to the last: signals, periodic work, draining.

use std::io;
use std::time::Duration;

use tidegate_engine::Clock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{interval, sleep};

use super::Service;
use super::doors::Doors;
use super::memory::MemoryTrimmer;
use super::notify::ServiceManager;
use super::store::ServiceStore;
use super::warnings::DocumentWarnings;
use crate::config::{Compat, Config};

/// How often the periodic work runs: switches, readiness, certificates, warnings.
const TICK: Duration = Duration::from_secs(1);

/// The signals that the service handles.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(crate) terminate: Signal,
    pub(crate) interrupt: Signal,
    pub(crate) hang_up: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

/// Serves until a signal stops it, then lets requests finish.
pub(super) async fn serve_until_stopped<S: ServiceStore>(
    config: &Config,
    mut signals: Signals,
    doors: Doors,
    service: &mut Service<S>,
) {
    let manager = ServiceManager::from_environment();
    let endpoints = doors.listening.iter();
    let endpoints: Vec<String> =
        endpoints.map(|door| format!("{} at {}", door.name(), door.address())).collect();
    manager.ready(&endpoints.join(", "));
    let mut ticks = interval(TICK);
    let mut trimmer = MemoryTrimmer::default();
    let mut warnings = DocumentWarnings::default();
    let mut beat = interval(manager.beat.unwrap_or(TICK));
    let stopped_by = loop {
        tokio::select! {
            _ = signals.terminate.recv() => break "SIGTERM",
            _ = signals.interrupt.recv() => break "SIGINT",
            _ = signals.hang_up.recv() => {
                tracing::info!("SIGHUP: reading the rules and other files again");
                service.reload();
            }
            _ = ticks.tick() => {
                service.switches.tick(service.engine.engine.clock().now());
                update_readiness(config, &doors, service);
                refresh_certificates(&doors);
                warnings.tick(config, service);
                service.report_refusals();
                if let Some(floods) = &service.floods {
                    floods.tick(service.switches.board().is_off());
                }
                trimmer.tick();
            }
            _ = beat.tick() => manager.alive(),
        }
    };
    tracing::info!(signal = stopped_by, "stopping");
    if config.compat == Compat::EnvoyRatelimit {
        let name = if stopped_by == "SIGTERM" { "terminated" } else { "interrupt" };
        tracing::info!("Ratelimit server received {name}, shutting down gracefully");
    }
    manager.stopping();
    drain(config, signals, doors, service).await;
}

fn update_readiness<S: ServiceStore>(config: &Config, doors: &Doors, service: &mut Service<S>) {
    let parts = &service.engine;
    if let Some(gateway) = &mut service.gateway {
        gateway.tick(config, &parts.health);
    }
    if config.health.needs_store {
        match parts.engine.store().unavailable_reason() {
            Some(reason) => parts.health.hold_back("store", reason),
            None => parts.health.clear("store"),
        }
    }
    doors.grpc_health.set_serving(parts.health.is_ready());
}

fn refresh_certificates(doors: &Doors) {
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

/// Reports "not ready", waits, lets requests finish and the access log be written. A second signal ends the wait.
async fn drain<S: ServiceStore>(
    config: &Config,
    mut signals: Signals,
    doors: Doors,
    service: &Service<S>,
) {
    service.engine.health.hold_back("stop", "the service is stopping");
    doors.grpc_health.drain();
    doors.announce_close();
    let grace = config.shutdown.grace;
    let stop = async {
        sleep(config.shutdown.delay).await;
        let cut = doors.close(grace).await;
        if let Some(gateway) = &service.gateway {
            gateway.finish_log(grace).await;
        }
        cut
    };
    tokio::select! {
        cut = stop => {
            if cut > 0 {
                tracing::warn!(connections = cut, "some requests did not finish in time");
            }
        }
        _ = signals.terminate.recv() => tracing::warn!("stopped at once by a second signal"),
        _ = signals.interrupt.recv() => tracing::warn!("stopped at once by a second signal"),
    }
}
