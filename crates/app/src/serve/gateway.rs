//! The gateway: made from its document, protected, and looked after while it serves.

use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate_gateway::{
    AccessLogFormat, AccessLogSettings, CallerFormat, Gateway, GatewayParts, GatewaySettings,
};
use tidegate_http_api::Health;
use tidegate_metrics::Meter;
use tidegate_overload::{FleetBoard, Protection, SteadyClock, run_beats};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::counters::{self, Counters};
use super::document::{Document, Opened};
use super::limiting::Limiting;
use super::protection;
use super::refusals::{REPORT_EVERY, Refusals};
use crate::config::{self, Config, LogTo};
use crate::exit::{Complaint, Failure};

/// The part of the service that holds it back when no upstream is well.
const PART: &str = "upstreams";

/// The gateway, and what runs beside its requests.
#[derive(Debug)]
pub(super) struct Front<S> {
    pub(super) gateway: Gateway<S>,
    pub(super) protection: Option<Arc<Protection<SteadyClock>>>,
    pub(super) meter: Arc<Meter>,
    /// Its document, if that can change.
    pub(super) document: Option<Document>,
    refusals: Refusals,
    beside: Vec<JoinHandle<()>>,
}

impl<S: Counters> Front<S> {
    /// Makes the gateway, if the configuration names its document. Within the runtime on which
    /// its loops are to run.
    pub(super) fn start(config: &Config, limiting: &Limiting<S>) -> Result<Option<Self>, Failure> {
        let Some(path) = &config.gateway.file else { return Ok(None) };
        let document = config::gateway::load(path)?;
        let opened = Opened::note(path, &document);
        let settings = settings(&config.gateway, document.settings());
        let protection = protection::of(config);
        let meter = Arc::new(Meter::new("gateway"));
        let parts = GatewayParts {
            meter: Some(Arc::clone(&meter)),
            protection: protection.clone(),
            queue: None,
            access_log: access_log(&config.gateway.access_log)?,
        };
        let gateway = Gateway::new(Arc::clone(&limiting.engine), settings, parts)
            .map_err(|error| Failure::Gateway(document.report(&error)))?;
        let mut beside = Vec::new();
        let tended = gateway.clone();
        beside.push(tokio::spawn(async move { tended.maintain().await }));
        if let Some(protection) = &protection {
            let looped = Arc::clone(protection);
            beside.push(tokio::spawn(async move {
                tidegate_overload::run(looped).await;
            }));
            let board = counters::board(config, *protection.fleet().settings())?;
            beside.extend(board.map(|board| tokio::spawn(beats(Arc::clone(protection), board))));
        }
        let started = opened.map(|opened| Document::start(config, opened, gateway.clone()));
        let document = started.transpose()?;
        let refusals = Refusals::new();
        Ok(Some(Front { gateway, protection, meter, document, refusals, beside }))
    }

    /// What is looked after each second.
    pub(super) fn look_after(&mut self, config: &Config, health: &Health) {
        let reading = self.gateway.read();
        if config.health.needs_upstreams {
            let ill = reading
                .upstreams
                .iter()
                .find(|(_, hosts)| hosts.iter().all(|(_, host)| !host.healthy || host.ejected));
            match ill {
                Some((name, _)) => health.hold_back(PART, format!("no server of `{name}` is well")),
                None => health.clear(PART),
            }
        }
        self.refusals.look(&reading, self.protection.as_deref(), || self.gateway.take_refusals());
    }

    /// Waits for the last lines of the access log, on a thread of its own: whoever waits can be
    /// called away. A disk that hangs keeps nobody longer than this.
    pub(super) async fn finish_log(&self, patience: Duration) {
        let (tell, told) = oneshot::channel();
        let gateway = self.gateway.clone();
        let flushing = move || tell.send(gateway.flush_log(patience));
        let begun = thread::Builder::new().name("tidegate-flush".to_owned()).spawn(flushing);
        if begun.is_err() || !told.await.unwrap_or(false) {
            tracing::warn!("the access log did not take its last lines in time");
        }
    }

    /// Ends what runs beside requests.
    pub(super) fn stop(self) {
        if let Some(document) = self.document {
            document.stop();
        }
        self.beside.iter().for_each(JoinHandle::abort);
    }
}

/// Takes part in the fleet, for ever. Another node after each start: what the one before held is
/// not this one's.
async fn beats(protection: Arc<Protection<SteadyClock>>, board: impl FleetBoard) {
    let node = RandomState::new().hash_one("node");
    run_beats(protection, board, node).await;
}

/// The document's settings with those of the configuration.
pub(super) fn settings(gateway: &config::Gateway, written: &GatewaySettings) -> GatewaySettings {
    let log = &gateway.access_log;
    let access_log = log.to.as_ref().map(|_| AccessLogSettings {
        format: match log.format {
            config::AccessLogFormat::Json => AccessLogFormat::Json,
            config::AccessLogFormat::Common => AccessLogFormat::Common,
        },
        caller: match log.caller {
            config::CallerFormat::Plain => CallerFormat::Plain,
            config::CallerFormat::Hashed => CallerFormat::Hashed,
            config::CallerFormat::Off => CallerFormat::Off,
        },
        one_of: NonZeroU64::new(u64::from(log.one_of)).unwrap_or(NonZeroU64::MIN),
        waiting_max: usize::try_from(log.waiting_max).unwrap_or(usize::MAX),
    });
    let sample_refusals: Option<Duration> = REPORT_EVERY.checked_div(gateway.refusal_samples);
    GatewaySettings { access_log, sample_refusals, ..written.clone() }
}

fn access_log(log: &config::AccessLog) -> Result<Option<Box<dyn Write + Send>>, Failure> {
    Ok(Some(match &log.to {
        None => return Ok(None),
        Some(LogTo::Stdout) => Box::new(io::stdout()),
        Some(LogTo::Stderr) => Box::new(io::stderr()),
        Some(LogTo::File(path)) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            Box::new(file.map_err(|error| {
                let message = format!("`{}` cannot be written: {error}", path.display());
                Complaint::new(message, "check `gateway.access_log.to`")
            })?)
        }
    }))
}
