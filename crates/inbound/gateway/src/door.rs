//! The door itself: one HTTP request in, one answer out.

use std::convert::Infallible;
use std::fmt;
use std::io::Write;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Request;
use http_body::Body;
use hyper::service::Service;
use parking_lot::Mutex;
use tidegate_engine::{Clock, CounterStore, Engine, MemoryStore, SystemClock};
use tidegate_overload::{Protection, SteadyClock};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::access_log::AccessLog;
use super::body::{BoxError, RequestBody};
use super::describe::Identities;
use super::encode::Answer;
use super::forward::Hop;
use super::queue::{MemoryQueue, RequestQueue};
use super::request::InFlightRequest;
use super::samples::{RefusedRequest, Samples};
use super::settings::{GatewayError, GatewaySettings, Problems};
use super::shared::{Compiled, Counters, Lasting, Shared};
use super::tally::GatewayReading;
use super::upstream::Upstreams;
use tidegate_admission::{HoldTime, WaitingRoom};
use tidegate_metrics::Meter;
use tidegate_server::Peer;

/// What the gateway needs beside its settings and the engine.
#[derive(Default)]
pub struct GatewayParts {
    /// Counts what is decided, and how long deciding takes.
    pub meter: Option<Arc<Meter>>,
    /// Sheds load when we are short. Default: nothing does.
    pub protection: Option<Arc<Protection<SteadyClock>>>,
    /// The queue for limits with `when_over: queue`. Default: in memory.
    pub queue: Option<Arc<dyn RequestQueue>>,
    /// Where the access log goes, if the settings have one.
    pub access_log: Option<Box<dyn Write + Send>>,
}

/// A reverse proxy with every limiter. Clones are cheap and share everything.
pub struct Gateway<S = MemoryStore, C = SystemClock> {
    present: Arc<Present<S, C>>,
    /// Who is at the other end of the connection.
    hop: Arc<Hop>,
}

/// The document in use, and who is told when there is another.
struct Present<S, C> {
    shared: ArcSwap<Shared<S, C>>,
    changes: watch::Sender<()>,
    /// Held while one document takes the place of another, so that none is lost.
    reloading: Mutex<()>,
}

impl<S, C: Clock> Gateway<S, C> {
    /// A gateway to this engine. Reads files of keys and certificates, so it blocks.
    ///
    /// # Errors
    /// When settings cannot be used: all problems at once.
    pub fn new(
        engine: Arc<Engine<S, C>>,
        settings: GatewaySettings,
        parts: GatewayParts,
    ) -> Result<Self, GatewayError> {
        let mut problems = Problems::default();
        let (log, samples) = (settings.access_log, settings.sample_refusals);
        let queue_settings = settings.queue;
        let compiled = Compiled::of::<S, C>(settings, None, &mut problems);
        let log = match (log, parts.access_log) {
            (Some(log), Some(out)) => problems.take("access_log", AccessLog::start(&log, out)),
            _ => None,
        };
        problems.finish()?;
        let compiled = compiled.ok_or(GatewayError { problems: Vec::new() })?;
        let (queue, memory_queue): (Arc<dyn RequestQueue>, _) = match parts.queue {
            Some(queue) => (queue, None),
            None => {
                let queue = Arc::new(MemoryQueue::new(queue_settings));
                (Arc::clone(&queue) as _, Some(queue))
            }
        };
        let lasting = Lasting {
            engine,
            waiting: WaitingRoom::default(),
            queue,
            memory_queue,
            protection: parts.protection,
            log,
            samples: samples.map(Samples::new),
            meter: parts.meter.unwrap_or_else(|| Arc::new(Meter::new("gateway"))),
            counters: Counters::default(),
            hold_time: HoldTime::default(),
        };
        let shared = compiled.over(Arc::new(lasting), None);
        let present = Present {
            shared: ArcSwap::from_pointee(shared),
            changes: watch::Sender::new(()),
            reloading: Mutex::default(),
        };
        Ok(Gateway { present: Arc::new(present), hop: Arc::new(Hop::of(&Peer::default())) })
    }

    /// Puts other settings in place. Requests that have begun end on those that they began with.
    /// Counts of routes that keep their names, servers that are reached as before, with their
    /// connections and health, and everything that waits or is limited go on. Files that the
    /// settings name are read again where they have changed. Blocks.
    ///
    /// Where the access log goes and how many refusals are examples stays as it was made.
    ///
    /// # Errors
    /// When settings cannot be used: all problems at once. Then everything stays as it is.
    pub fn reload(&self, settings: GatewaySettings) -> Result<(), GatewayError> {
        let _alone = self.present.reloading.lock();
        let queue = settings.queue;
        let shared = self.present.shared.load_full().with(settings)?;
        if let Some(memory_queue) = &shared.lasting.memory_queue {
            memory_queue.resize(queue);
        }
        self.present.shared.store(Arc::new(shared));
        self.present.changes.send_replace(());
        Ok(())
    }

    /// Waits until the access log has every line so far, but no longer than this; says whether it
    /// has. Blocks.
    pub fn flush_log(&self, patience: Duration) -> bool {
        let present = self.present.shared.load();
        present.lasting.log.as_ref().is_none_or(|log| log.flush(patience))
    }

    /// The same gateway for the connection of one peer.
    #[must_use]
    pub fn for_peer(&self, peer: &Peer) -> Self {
        Gateway { present: Arc::clone(&self.present), hop: Arc::new(Hop::of(peer)) }
    }

    /// Reads files of keys again if they have changed. Says whether any had; a file that is
    /// wrong changes nothing. Blocks.
    ///
    /// # Errors
    /// What is wrong with a file, in a sentence.
    pub fn refresh(&self) -> Result<bool, String> {
        let present = self.present.shared.load();
        let Identities { tokens, keys } = &present.identities;
        let tokens = tokens.as_ref().map_or(Ok(false), |tokens| tokens.refresh());
        let keys = keys.as_ref().map_or(Ok(false), |keys| keys.refresh());
        Ok(tokens? | keys?)
    }

    /// Examples of refusals since the last time, if the settings ask for some.
    pub fn take_refusals(&self) -> Vec<RefusedRequest> {
        self.present.shared.load().lasting.samples.as_ref().map(Samples::take).unwrap_or_default()
    }

    /// What it shows of itself now.
    pub fn read(&self) -> GatewayReading {
        let shared = self.present.shared.load();
        let lasting = &shared.lasting;
        let names = shared.routes.iter().map(|route| route.name.to_string());
        let names = names.chain([String::new()]);
        let now = Instant::now();
        let hosts = |group: &Arc<Upstreams>| {
            let host = |host: &Arc<super::upstream::Host>| {
                (host.origin().authority().to_string(), host.state(now))
            };
            (group.name.to_string(), group.hosts.iter().map(host).collect())
        };
        // Read first: what has ended by now is counted.
        let in_flight = lasting.counters.in_flight.load(Ordering::Acquire);
        GatewayReading {
            routes: names.zip(shared.tallies.iter().map(|tally| tally.read())).collect(),
            upstreams: shared.upstreams.iter().map(hosts).collect(),
            waiting: lasting.waiting.waiting(),
            in_flight,
            tunnels: lasting.counters.tunnels.load(Ordering::Relaxed),
            broken: lasting.counters.broken.load(Ordering::Relaxed),
            log_dropped: lasting.log.as_ref().map_or(0, AccessLog::dropped),
        }
    }
}

impl<S, C> Gateway<S, C>
where
    S: CounterStore,
    C: Clock,
{
    /// Runs what runs beside requests, until it is dropped: health checks, and closing
    /// connections that nobody uses.
    pub async fn tend(&self) {
        let mut changes = self.present.changes.subscribe();
        let mut tasks = JoinSet::new();
        let mut tended: Vec<(Arc<Upstreams>, AbortHandle)> = Vec::new();
        loop {
            changes.mark_unchanged();
            let present = self.present.shared.load_full();
            let groups = &present.upstreams;
            tended.retain(|(group, task)| {
                let stays = groups.iter().any(|other| Arc::ptr_eq(group, other));
                if !stays {
                    task.abort();
                }
                stays
            });
            for group in groups {
                if !tended.iter().any(|(other, _)| Arc::ptr_eq(group, other)) {
                    let own = Arc::clone(group);
                    let task = tasks.spawn(async move { own.tend().await });
                    tended.push((Arc::clone(group), task));
                }
            }
            // Nothing of it is kept from ending while we wait.
            drop(present);
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                // Those that were told to end; a set that keeps them would grow.
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
        let shared = self.present.shared.load();
        match shared.receive(&self.hop, &mut head, length) {
            ControlFlow::Break(answer) => GatewayFuture(Stage::Answered(Some(answer))),
            ControlFlow::Continue(pending) => {
                let limits = &shared.settings.head;
                let (body, progress) =
                    RequestBody::watched(body, limits.body_idle, limits.body_bytes_max);
                let hop = Arc::clone(&self.hop);
                let request = Box::new(InFlightRequest { hop, pending, head, body, progress });
                let running = Arc::clone(&shared).handle(request);
                GatewayFuture(Stage::Running(Box::pin(running)))
            }
        }
    }
}

/// The answer to come. Dropping it gives the request up, and its place in a line or its turn.
pub struct GatewayFuture(Stage);

#[expect(clippy::large_enum_variant, reason = "an answer in a box would be on the heap")]
enum Stage {
    /// Decided without waiting: nothing was put on the heap for it.
    Answered(Option<Answer>),
    Running(Pin<Box<dyn Future<Output = Answer> + Send>>),
}

impl Future for GatewayFuture {
    type Output = Result<Answer, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Answered(answer) => {
                Poll::Ready(Ok(answer.take().expect("a future is not polled after its end")))
            }
            Stage::Running(answer) => answer.as_mut().poll(cx).map(Ok),
        }
    }
}

impl fmt::Debug for GatewayFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Stage::Answered(_) => "GatewayFuture(answered)",
            Stage::Running(_) => "GatewayFuture(running)",
        })
    }
}

impl<S, C> Clone for Gateway<S, C> {
    fn clone(&self) -> Self {
        Gateway { present: Arc::clone(&self.present), hop: Arc::clone(&self.hop) }
    }
}

impl<S, C> fmt::Debug for Gateway<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("hop", &self.hop).finish_non_exhaustive()
    }
}

impl fmt::Debug for GatewayParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayParts").finish_non_exhaustive()
    }
}
