//! The gateway: made from its document, protected, and maintained while it serves.

use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate_gateway::{
    AccessLogSettings, ConnectionObserver, Gateway, GatewayParts, GatewaySettings,
};
use tidegate_http_api::Health;
use tidegate_metrics::Meter;
use tidegate_overload::{Protection, SteadyClock, run_beats};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::engine::EngineParts;
use super::floods::Floods;
use super::gateway_document::{DocumentFiles, DocumentWatch};
use super::protection;
use super::refusals::{REPORT_EVERY, RefusalLog};
use super::request_queue;
use super::store::{self, ServiceStore};
use crate::config::{self, Config, count};
use crate::exit::{Complaint, Failure};

/// The name under which unhealthy upstreams make the service not ready.
const PART: &str = "upstreams";

/// The gateway with its background tasks.
#[derive(Debug)]
pub(super) struct GatewayService<S> {
    pub(super) gateway: Gateway<S>,
    pub(super) protection: Option<Arc<Protection<SteadyClock>>>,
    pub(super) meter: Arc<Meter>,
    /// The watch of its document, unless that was a pipe.
    pub(super) document: Option<DocumentWatch>,
    refusals: RefusalLog,
    background: Vec<JoinHandle<()>>,
}

impl<S: ServiceStore> GatewayService<S> {
    /// Makes the gateway, if the configuration names its document. Spawns its tasks on the current runtime.
    pub(super) fn start(
        config: &Config,
        parts: &EngineParts<S>,
        floods: Option<Arc<Floods>>,
    ) -> Result<Option<Self>, Failure> {
        let Some(path) = &config.gateway.file else { return Ok(None) };
        let document = config::gateway::load(path)?;
        let files = DocumentFiles::read(path, &document);
        let settings = settings(&config.gateway, document.settings());
        parts.samples.leave_out(&settings.domain);
        let protection = protection::of(config);
        let meter = Arc::new(Meter::new("gateway"));
        let queue = request_queue::open(config, settings.queue)?;
        let gateway_parts = GatewayParts {
            meter: Some(Arc::clone(&meter)),
            protection: protection.clone(),
            queue,
            connections: floods.map(|floods| floods as Arc<dyn ConnectionObserver>),
            access_log: access_log(&config.gateway.access_log)?,
        };
        let gateway = Gateway::new(Arc::clone(&parts.engine), settings, gateway_parts)
            .map_err(|error| Failure::Gateway(document.report(&error)))?;
        let maintained = gateway.clone();
        let mut background = vec![tokio::spawn(async move { maintained.maintain().await })];
        if let Some(protection) = &protection {
            let controlled = Arc::clone(protection);
            background.push(tokio::spawn(async move {
                tidegate_overload::run(controlled).await;
            }));
            if let Some(board) = store::fleet_board(config, *protection.fleet().settings())? {
                // A new identity for each start: the grants of the previous process are not this one's.
                let node = RandomState::new().hash_one("node");
                let beats = run_beats(Arc::clone(protection), board, node);
                background.push(tokio::spawn(async {
                    beats.await;
                }));
            }
        }
        let document = files.map(|files| files.watch(config, gateway.clone())).transpose()?;
        let refusals = RefusalLog::default();
        Ok(Some(GatewayService { gateway, protection, meter, document, refusals, background }))
    }

    /// Updates readiness and logs refusals; called each second.
    pub(super) fn tick(&mut self, config: &Config, health: &Health) {
        let reading = self.gateway.read();
        if config.health.needs_upstreams {
            let unhealthy = reading
                .upstreams
                .iter()
                .find(|(_, hosts)| hosts.iter().all(|(_, host)| !host.healthy || host.ejected));
            match unhealthy {
                Some((name, _)) => {
                    health.hold_back(PART, format!("no server of `{name}` is healthy"));
                }
                None => health.clear(PART),
            }
        }
        self.refusals.tick(&reading, self.protection.as_deref(), || self.gateway.take_refusals());
    }

    /// Waits until the access log is written. On its own thread, so that a disk that hangs does not delay the stop for
    /// longer than `patience`.
    pub(super) async fn finish_log(&self, patience: Duration) {
        let (sender, receiver) = oneshot::channel();
        let gateway = self.gateway.clone();
        let flush = move || sender.send(gateway.flush_log(patience));
        let thread = thread::Builder::new().name("tidegate-flush".to_owned()).spawn(flush);
        if thread.is_err() || !receiver.await.unwrap_or(false) {
            tracing::warn!("the last lines of the access log were not written in time");
        }
    }
}

impl<S> Drop for GatewayService<S> {
    fn drop(&mut self) {
        self.background.iter().for_each(JoinHandle::abort);
    }
}

/// The document's settings with those of the configuration.
pub(super) fn settings(gateway: &config::Gateway, document: &GatewaySettings) -> GatewaySettings {
    let log = &gateway.access_log;
    let access_log = log.to.as_ref().map(|_| AccessLogSettings {
        format: log.format,
        caller: log.caller,
        one_of: NonZeroU64::new(u64::from(log.one_of)).unwrap_or(NonZeroU64::MIN),
        waiting_max: count(log.waiting_max),
    });
    let sample_refusals: Option<Duration> = REPORT_EVERY.checked_div(gateway.refusal_samples);
    GatewaySettings {
        access_log,
        sample_refusals,
        caller_format: log.caller,
        request_ids: gateway.request_ids,
        ..document.clone()
    }
}

fn access_log(log: &config::AccessLog) -> Result<Option<Box<dyn Write + Send>>, Failure> {
    Ok(Some(match &log.to {
        None => return Ok(None),
        Some(path) if path == "stdout" => Box::new(io::stdout()),
        Some(path) if path == "stderr" => Box::new(io::stderr()),
        Some(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            Box::new(file.map_err(|error| {
                let message = format!("`{}` cannot be written: {error}", path.display());
                Complaint::new(message, "check `gateway.access_log.to`")
            })?)
        }
    }))
}
