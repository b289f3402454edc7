//! The door itself: one HTTP request in, one answer out.

use std::convert::Infallible;
use std::fmt;
use std::io::Write;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::Body;
use hyper::service::Service;
use tidegate_engine::{Clock, CounterStore, Engine, MemoryStore, SystemClock};
use tidegate_overload::{Protection, SteadyClock};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::access_log::AccessLog;
use super::answers::{Answer, AnswerSet};
use super::body::{BoxError, RequestBody};
use super::category::Categories;
use super::client_address::TrustedHops;
use super::describe::{ApiKeys, Identities, Tokens};
use super::errand::Trip;
use super::forward::{Hop, Provenance};
use super::held::{HeldInMemory, HeldRequests};
use super::line::Lines;
use super::route::Route;
use super::samples::{RefusedRequest, Samples};
use super::settings::{GatewayError, GatewaySettings, Problems};
use super::tally::{GatewayReading, Tally};
use super::upstream::Upstreams;
use crate::meter::Meter;
use crate::server::Peer;

/// What the gateway needs beside its settings and the engine.
#[derive(Default)]
pub struct GatewayParts {
    /// Counts what is decided, and how long deciding takes.
    pub meter: Option<Arc<Meter>>,
    /// Sheds load when we are short. Default: nothing does.
    pub protection: Option<Arc<Protection<SteadyClock>>>,
    /// Where requests are kept for limits with `when_over: queue`. Default: in memory.
    pub held: Option<Arc<dyn HeldRequests>>,
    /// Where the access log goes, if the settings have one.
    pub access_log: Option<Box<dyn Write + Send>>,
}

/// A reverse proxy with every limiter. Clones are cheap and share everything.
pub struct Gateway<S = MemoryStore, C = SystemClock> {
    pub(super) shared: Arc<Shared<S, C>>,
    /// Who is at the other end of the connection.
    pub(super) hop: Arc<Hop>,
}

/// What all requests share.
pub(super) struct Shared<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) settings: GatewaySettings,
    pub(super) routes: Box<[Arc<Route>]>,
    pub(super) upstreams: Box<[Upstreams]>,
    pub(super) hops: TrustedHops,
    pub(super) provenance: Provenance,
    pub(super) categories: Categories,
    pub(super) identities: Identities,
    pub(super) lines: Arc<Lines>,
    pub(super) held: Arc<dyn HeldRequests>,
    pub(super) protection: Option<Arc<Protection<SteadyClock>>>,
    /// The answers of requests that have no route.
    pub(super) answers: AnswerSet,
    pub(super) log: Option<AccessLog>,
    pub(super) samples: Option<Samples>,
    pub(super) meter: Arc<Meter>,
    /// One for each route, and the last for requests that have none.
    pub(super) tallies: Box<[Tally]>,
    pub(super) counters: Counters,
}

/// Counters that belong to no route.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) in_flight: AtomicU64,
    pub(super) tunnels: AtomicU64,
    pub(super) broken: AtomicU64,
    /// How long slots are held, in nanoseconds: a mean that forgets.
    pub(super) hold_nanos: AtomicU64,
    /// Whatever is drawn is drawn from this.
    pub(super) draws: AtomicU64,
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
        let upstreams = compile_upstreams(&settings, &mut problems);
        let routes = compile_routes(&settings, &upstreams, &mut problems);
        let provenance = problems.take("provenance.via", Provenance::of(&settings.provenance));
        let tokens = settings.jwt.as_ref().map(Tokens::load).transpose();
        let keys = settings.api_keys.as_ref().map(ApiKeys::load).transpose();
        let identities = Identities {
            tokens: problems.take("jwt", tokens).flatten(),
            keys: problems.take("api_keys", keys).flatten(),
        };
        let categories = Categories::compile(&settings.categories, &settings.routes, &mut problems);
        let log = match (&settings.access_log, parts.access_log) {
            (Some(log), Some(out)) => problems.take("access_log", AccessLog::start(log, out)),
            _ => None,
        };
        let answers = problems.take("answers", AnswerSet::of(&Default::default()));
        problems.finish()?;
        let (Some(provenance), Some(answers)) = (provenance, answers) else {
            return Err(GatewayError { problems: Vec::new() });
        };
        let hops = TrustedHops::new(settings.trusted_hops.clone(), settings.address_from);
        let held = parts.held.unwrap_or_else(|| Arc::new(HeldInMemory::new(settings.queue)));
        let shared = Shared {
            engine,
            hops: hops.clone(),
            provenance,
            categories,
            identities,
            lines: Arc::new(Lines::new(settings.delay)),
            held,
            protection: parts.protection,
            answers,
            log,
            samples: settings.sample_refusals.map(Samples::new),
            meter: parts.meter.unwrap_or_else(|| Arc::new(Meter::new("gateway"))),
            tallies: (0..=routes.len()).map(|_| Tally::default()).collect(),
            counters: Counters::default(),
            routes,
            upstreams: upstreams.into(),
            settings,
        };
        let hop = Arc::new(Hop::of(&Peer::default(), &hops));
        Ok(Gateway { shared: Arc::new(shared), hop })
    }

    /// The same gateway for the connection of one peer.
    #[must_use]
    pub fn for_peer(&self, peer: &Peer) -> Self {
        let hop = Arc::new(Hop::of(peer, &self.shared.hops));
        Gateway { shared: Arc::clone(&self.shared), hop }
    }

    /// Reads files of keys again if they have changed. Says whether any had; a file that is
    /// wrong changes nothing. Blocks.
    ///
    /// # Errors
    /// What is wrong with a file, in a sentence.
    pub fn refresh(&self) -> Result<bool, String> {
        let identities = &self.shared.identities;
        let tokens = identities.tokens.as_ref().map_or(Ok(false), Tokens::refresh);
        let keys = identities.keys.as_ref().map_or(Ok(false), ApiKeys::refresh);
        Ok(tokens? | keys?)
    }

    /// Examples of refusals since the last time, if the settings ask for some.
    pub fn take_refusals(&self) -> Vec<RefusedRequest> {
        self.shared.samples.as_ref().map(Samples::take).unwrap_or_default()
    }

    /// What it shows of itself now.
    pub fn read(&self) -> GatewayReading {
        let shared = &self.shared;
        let names = shared.routes.iter().map(|route| route.name.to_string());
        let names = names.chain([String::new()]);
        let now = Instant::now();
        let hosts = |group: &Upstreams| {
            let host = |host: &Arc<super::upstream::Host>| {
                (host.origin().authority().to_string(), host.state(now))
            };
            (group.name.to_string(), group.hosts.iter().map(host).collect())
        };
        // Read first: what has ended by now is counted.
        let in_flight = shared.counters.in_flight.load(Ordering::Acquire);
        GatewayReading {
            routes: names.zip(shared.tallies.iter().map(Tally::read)).collect(),
            upstreams: shared.upstreams.iter().map(hosts).collect(),
            waiting: shared.lines.waiting(),
            in_flight,
            tunnels: shared.counters.tunnels.load(Ordering::Relaxed),
            broken: shared.counters.broken.load(Ordering::Relaxed),
            log_dropped: shared.log.as_ref().map_or(0, AccessLog::dropped),
        }
    }
}

impl<S, C> Gateway<S, C>
where
    S: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    /// Runs what runs beside requests, until it is dropped: health checks, and closing
    /// connections that nobody uses.
    pub async fn tend(&self) {
        let mut tended = JoinSet::new();
        for place in 0..self.shared.upstreams.len() {
            let shared = Arc::clone(&self.shared);
            tended.spawn(async move {
                if let Some(group) = shared.upstreams.get(place) {
                    group.tend().await;
                }
            });
        }
        while tended.join_next().await.is_some() {}
    }
}

fn compile_upstreams(settings: &GatewaySettings, problems: &mut Problems) -> Vec<Upstreams> {
    let mut groups = Vec::new();
    for (index, group) in settings.upstreams.iter().enumerate() {
        let place = format!("upstreams[{index}]");
        if settings.upstreams.iter().take(index).any(|other| other.name == group.name) {
            problems.add(format!("{place}.name"), format_args!("`{}` is there twice", group.name));
        }
        groups.extend(Upstreams::compile(group, &place, problems));
    }
    groups
}

fn compile_routes(
    settings: &GatewaySettings,
    upstreams: &[Upstreams],
    problems: &mut Problems,
) -> Box<[Arc<Route>]> {
    let mut routes = Vec::new();
    if settings.routes.is_empty() {
        problems.add("routes", "a gateway needs a route");
    }
    for (index, route) in settings.routes.iter().enumerate() {
        let place = format!("routes[{index}]");
        if settings.routes.iter().take(index).any(|other| other.name == route.name) {
            problems.add(format!("{place}.name"), format_args!("`{}` is there twice", route.name));
        }
        let group = upstreams.iter().position(|group| *group.name == *route.upstreams);
        let timeouts = group.and_then(|group| upstreams.get(group)).map(Upstreams::timeouts);
        if group.is_none() && !settings.upstreams.iter().any(|other| other.name == route.upstreams)
        {
            let problem = format_args!("there are no upstreams `{}`", route.upstreams);
            problems.add(format!("{place}.upstreams"), problem);
        }
        let led = (group.unwrap_or(0), timeouts.unwrap_or_default());
        routes.extend(Route::compile(route, &place, led, problems).map(Arc::new));
    }
    routes.into()
}

impl<S, C, B> Service<Request<B>> for Gateway<S, C>
where
    S: CounterStore + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = GatewayFuture;

    fn call(&self, request: Request<B>) -> GatewayFuture {
        let (mut head, body) = request.into_parts();
        let length = body.size_hint().exact();
        match self.shared.visit(&self.hop, &mut head, length) {
            ControlFlow::Break(answer) => GatewayFuture(Stage::Answered(Some(answer))),
            ControlFlow::Continue(visit) => {
                let limits = &self.shared.settings.head;
                let (body, progress) =
                    RequestBody::watched(body, limits.body_idle, limits.body_bytes_max);
                let hop = Arc::clone(&self.hop);
                let trip = Box::new(Trip { hop, visit, head, body, progress });
                let running = Arc::clone(&self.shared).run(trip);
                GatewayFuture(Stage::Running(Box::pin(running)))
            }
        }
    }
}

/// The answer to come. Dropping it gives the request up, and its place in a line.
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
        Gateway { shared: Arc::clone(&self.shared), hop: Arc::clone(&self.hop) }
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
