//! The gateway as a service of HTTP requests, and its operations: reload, maintenance, metrics.

use std::convert::Infallible;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body;
use hyper::service::Service;
use tidegate_document::Size;
use tidegate_engine::{Clock, CounterStore, Engine, MemoryStore, SystemClock};
use tidegate_macros::{clone_fields, debug_fields};
use tidegate_overload::{Protection, SteadyClock};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::access_log::AccessLog;
use super::active_document::ActiveDocument;
use super::body::{BoxError, RequestBody};
use super::describe::IdentitySources;
use super::encode::Answer;
use super::forward::Hop;
use super::queue::{MemoryQueue, RequestQueue};
use super::refusal_samples::{RefusalSamples, RefusedRequest};
use super::request::InFlightRequest;
use super::request_ids::RequestIds;
use super::settings::{GatewayError, GatewaySettings, Problems};
use super::state::{Counters, CurrentDocument, GatewayState};
use super::tally::GatewayReading;
use super::upstream::UpstreamGroup;
use tidegate_admission::{HoldTime, WaitingRoom};
use tidegate_metrics::Meter;
use tidegate_server::Peer;

/// Optional parts of a gateway.
#[derive(Default)]
pub struct GatewayParts {
    /// Counts decisions and measures their duration.
    pub meter: Option<Arc<Meter>>,
    /// Sheds load when the node or the fleet is overloaded. Default: none.
    pub protection: Option<Arc<Protection<SteadyClock>>>,
    /// Stores requests that are queued by limits with `when_over: queue`. Default: in memory.
    pub queue: Option<Arc<dyn RequestQueue>>,
    /// Is told which addresses of connections are refused, and whose callers are known. Default: none.
    pub connections: Option<Arc<dyn ConnectionObserver>>,
    /// The writer of the access log, if the settings have one.
    pub access_log: Option<Box<dyn Write + Send>>,
}

/// Learns what the gateway knows about the clients that are connected to it. Not those behind a proxy: only addresses
/// that the kernel sees too.
pub trait ConnectionObserver: Send + Sync {
    /// A request over the limits of its caller was refused.
    fn refused(&self, address: IpAddr);
    /// A request came with a valid key or token (`caller` is a hash of its owner), or is critical.
    fn identified(&self, address: IpAddr, caller: Option<u64>, is_critical: bool);
}

/// A reverse proxy with every limiter. Clones are cheap and share all state.
pub struct Gateway<S = MemoryStore, C = SystemClock> {
    pub(super) current: Arc<CurrentDocument<S, C>>,
    /// The other end of the connection.
    hop: Arc<Hop>,
}

impl<S, C: Clock> Gateway<S, C> {
    /// A gateway that limits with this engine. Reads files of keys and certificates, so it blocks.
    ///
    /// # Errors
    /// When the settings are invalid: all problems at once.
    pub fn new(
        engine: Arc<Engine<S, C>>,
        settings: GatewaySettings,
        parts: GatewayParts,
    ) -> Result<Self, GatewayError> {
        let mut problems = Problems::default();
        let log = match (settings.access_log, parts.access_log) {
            (Some(log), Some(out)) => problems.take("access_log", AccessLog::start(&log, out)),
            _ => None,
        };
        let queue = parts.queue.unwrap_or_else(|| Arc::new(MemoryQueue::new(settings.queue)));
        let state = GatewayState {
            engine,
            waiting: WaitingRoom::default(),
            queue,
            protection: parts.protection,
            log,
            samples: settings.sample_refusals.map(RefusalSamples::new),
            request_ids: RequestIds::default(),
            meter: parts.meter.unwrap_or_else(|| Arc::new(Meter::new("gateway"))),
            counters: Counters::default(),
            hold_time: HoldTime::default(),
            connections: parts.connections,
        };
        let document = ActiveDocument::compile(settings, Arc::new(state), None, problems)?;
        let current = CurrentDocument::new(document);
        Ok(Gateway { current: Arc::new(current), hop: Arc::new(Hop::of(&Peer::default())) })
    }

    /// Replaces the settings. Requests in flight keep the old ones. Kept are the counters of routes with the same
    /// name, hosts that are reached as before with their connections and health, waiting requests and all limits.
    /// Changed files that the settings name are read again. Blocks.
    ///
    /// The writer of the access log and the sampling of refusals do not change.
    ///
    /// # Errors
    /// When the settings are invalid: all problems at once. Then nothing changes.
    pub fn reload(&self, settings: GatewaySettings) -> Result<(), GatewayError> {
        let _reloading = self.current.reloading.lock();
        let queue = settings.queue;
        let document = self.current.active.load_full().with(settings)?;
        document.state.queue.resize(queue);
        self.current.replace(document);
        Ok(())
    }

    /// Waits until every line so far is written to the access log, with a timeout. Returns whether it is. Blocks.
    pub fn flush_log(&self, patience: Duration) -> bool {
        let document = self.current.active.load();
        document.state.log.as_ref().is_none_or(|log| log.flush(patience))
    }

    /// The document in use.
    pub(super) fn document(&self) -> Arc<ActiveDocument<S, C>> {
        self.current.active.load_full()
    }

    /// The same gateway for the connection of one peer.
    #[must_use]
    pub fn for_peer(&self, peer: &Peer) -> Self {
        Gateway { current: Arc::clone(&self.current), hop: Arc::new(Hop::of(peer)) }
    }

    /// Reloads files of keys that have changed, and returns whether any had. An invalid file changes nothing. Blocks.
    ///
    /// # Errors
    /// The problem with a file, as a sentence.
    pub fn refresh(&self) -> Result<bool, String> {
        let document = self.current.active.load();
        let IdentitySources { tokens, keys, .. } = &document.identities;
        let tokens = tokens.as_ref().map_or(Ok(false), |tokens| tokens.refresh());
        let keys = keys.as_ref().map_or(Ok(false), |keys| keys.refresh());
        Ok(tokens? | keys?)
    }

    /// Whether the gate has hardly any room for further requests.
    pub fn is_full(&self) -> bool {
        let document = self.current.active.load();
        let view = document.state.protection.as_ref().map(|protection| protection.gate().view());
        // A part of the limit is reserved for critical requests, so a quarter may stay free.
        view.is_some_and(|view| {
            view.queued > 0 || view.in_flight.saturating_mul(4) >= view.limit.saturating_mul(3)
        })
    }

    /// The refusals sampled since the last call, if the settings ask for samples.
    pub fn take_refusals(&self) -> Vec<RefusedRequest> {
        self.current
            .active
            .load()
            .state
            .samples
            .as_ref()
            .map(RefusalSamples::take)
            .unwrap_or_default()
    }

    /// The gateway's metrics now.
    pub fn read(&self) -> GatewayReading {
        let document = self.current.active.load();
        let state = &document.state;
        let names = document.routes.iter().map(|route| route.name.to_string());
        let names = names.chain([String::new()]);
        let now = Instant::now();
        let hosts = |group: &Arc<UpstreamGroup>| {
            let host = |host: &Arc<super::upstream::Host>| {
                (host.origin().authority().to_string(), host.state(now))
            };
            (group.name.to_string(), group.hosts.iter().map(host).collect())
        };
        // Read first: requests that have ended by now are in the other counters.
        let in_flight = state.counters.in_flight.load(Ordering::Acquire);
        GatewayReading {
            routes: names.zip(document.tallies.iter().map(|tally| tally.read())).collect(),
            kept: state.counters.kept.read(),
            upstreams: document.upstreams.iter().map(hosts).collect(),
            waiting: state.waiting.waiting(),
            in_flight,
            tunnels: state.counters.tunnels.load(Ordering::Relaxed),
            broken: state.counters.broken.load(Ordering::Relaxed),
            key_set_fetches: document
                .identities
                .tokens
                .as_ref()
                .map_or((0, 0), |tokens| tokens.fetches()),
            log_dropped: state.log.as_ref().map_or(0, AccessLog::dropped),
        }
    }
}

impl<S: CounterStore, C: Clock> Gateway<S, C> {
    /// Runs health checks, closes idle connections to upstreams and fetches keys from URLs, until it is dropped.
    pub async fn maintain(&self) {
        let mut changes = self.current.changes.subscribe();
        let mut tasks = JoinSet::new();
        let mut maintained: Vec<(Arc<UpstreamGroup>, AbortHandle)> = Vec::new();
        let recovering = self.clone();
        tasks.spawn(async move { recovering.recover_queued().await });
        loop {
            changes.mark_unchanged();
            let document = self.current.active.load_full();
            let groups = &document.upstreams;
            let tokens = document.identities.tokens.clone();
            maintained.retain(|(group, task)| {
                let stays = groups.iter().any(|other| Arc::ptr_eq(group, other));
                if !stays {
                    task.abort();
                }
                stays
            });
            for group in groups {
                if !maintained.iter().any(|(other, _)| Arc::ptr_eq(group, other)) {
                    let own = Arc::clone(group);
                    let task = tasks.spawn(async move { own.maintain().await });
                    maintained.push((Arc::clone(group), task));
                }
            }
            // Lets an old document end while this task waits.
            drop(document);
            let keep_fetching = async {
                match &tokens {
                    Some(tokens) => tokens.keep_fetching().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = keep_fetching => {}
                changed = changes.changed() => if changed.is_err() { return },
                // Removes aborted tasks, so that the set does not grow.
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

impl<S, C, B> Service<Request<B>> for Gateway<S, C>
where
    S: CounterStore,
    C: Clock,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = GatewayFuture;

    fn call(&self, request: Request<B>) -> GatewayFuture {
        let (mut head, body) = request.into_parts();
        let length = body.size_hint().exact();
        let document = self.current.active.load();
        match document.receive(&self.hop, &mut head, length) {
            ControlFlow::Break(answer) => GatewayFuture(FutureState::Ready(Some(answer))),
            ControlFlow::Continue(pending) => {
                let limits = &document.settings.head;
                let (body, progress) = RequestBody::watched(
                    body,
                    limits.body_idle,
                    limits.body_bytes_max.map(Size::bytes),
                );
                let hop = Arc::clone(&self.hop);
                let request = Box::new(InFlightRequest { hop, pending, head, body, progress });
                let running = Arc::clone(&document).handle(request);
                GatewayFuture(FutureState::Running(Box::pin(running)))
            }
        }
    }
}

/// The response to come. Dropping it cancels the request and gives up its position in a line or its turn.
pub struct GatewayFuture(FutureState);

#[expect(clippy::large_enum_variant, reason = "a boxed answer would cost an allocation")]
enum FutureState {
    /// Decided without waiting and without an allocation for the future.
    Ready(Option<Answer>),
    Running(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl Future for GatewayFuture {
    type Output = Result<Answer, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            FutureState::Ready(answer) => {
                Poll::Ready(Ok(answer.take().expect("a future is not polled after it is ready")))
            }
            FutureState::Running(answer) => answer.as_mut().poll(cx).map(Ok),
        }
    }
}

impl fmt::Debug for GatewayFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            FutureState::Ready(_) => "GatewayFuture(ready)",
            FutureState::Running(_) => "GatewayFuture(running)",
        })
    }
}

clone_fields!([S, C] Gateway<S, C> { current, hop });

debug_fields!([S, C] Gateway<S, C> { hop });

debug_fields!(GatewayParts {});
