//! What requests share: what lasts as long as the gateway, and what one document says.
//!
//! A request holds on to the document that it began with. A new one takes over whatever did not
//! change: counts of routes, servers with their connections and health, tokens that were
//! verified. Lines, turns, kept requests, limiters and the log belong to no document.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_engine::Engine;
use tidegate_overload::{Protection, SteadyClock};

use super::access_log::AccessLog;
use super::category::Categories;
use super::client_address::TrustedHops;
use super::describe::{ApiKeys, Identities, Tokens};
use super::encode::RouteAnswers;
use super::forward::Provenance;
use super::queue::{MemoryQueue, RequestQueue};
use super::route::Route;
use super::samples::Samples;
use super::settings::{GatewayError, GatewaySettings, Problems};
use super::tally::Tally;
use super::upstream::Upstreams;
use tidegate_admission::{HoldTime, WaitingRoom};
use tidegate_metrics::Meter;

/// What lasts as long as the gateway.
pub(super) struct Lasting<S, C> {
    pub(super) engine: Arc<Engine<S, C>>,
    pub(super) waiting: WaitingRoom,
    pub(super) queue: Arc<dyn RequestQueue>,
    /// The same, if the gateway made it and resizes it.
    pub(super) memory_queue: Option<Arc<MemoryQueue>>,
    pub(super) protection: Option<Arc<Protection<SteadyClock>>>,
    pub(super) log: Option<AccessLog>,
    pub(super) samples: Option<Samples>,
    pub(super) meter: Arc<Meter>,
    pub(super) counters: Counters,
    pub(super) hold_time: HoldTime,
}

/// What one document says, as it is used.
pub(super) struct Shared<S, C> {
    pub(super) lasting: Arc<Lasting<S, C>>,
    pub(super) settings: GatewaySettings,
    pub(super) routes: Box<[Arc<Route>]>,
    pub(super) upstreams: Box<[Arc<Upstreams>]>,
    pub(super) hops: TrustedHops,
    pub(super) provenance: Provenance,
    pub(super) categories: Categories,
    pub(super) identities: Identities,
    /// The answers of requests that have no route.
    pub(super) answers: RouteAnswers,
    /// One for each route, and the last for requests that have none.
    pub(super) tallies: Box<[Arc<Tally>]>,
}

/// Counters that belong to no route.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) in_flight: AtomicU64,
    pub(super) tunnels: AtomicU64,
    pub(super) broken: AtomicU64,
}

/// Settings turned into what is used, with nothing that lasts.
pub(super) struct Compiled {
    settings: GatewaySettings,
    routes: Box<[Arc<Route>]>,
    upstreams: Box<[Arc<Upstreams>]>,
    provenance: Provenance,
    categories: Categories,
    identities: Identities,
    answers: RouteAnswers,
}

impl Compiled {
    /// Turns settings into what is used, with what of the document before is as it was. Reads
    /// files. Blocks.
    pub(super) fn of<S, C>(
        settings: GatewaySettings,
        before: Option<&Shared<S, C>>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let groups = before.map(|before| &*before.upstreams).unwrap_or_default();
        let upstreams = compile_upstreams(&settings, groups, problems);
        let routes = compile_routes(&settings, &upstreams, problems);
        let provenance = problems.take("provenance.via", Provenance::of(&settings.provenance));
        let identities = identities(&settings, before, problems);
        let categories = Categories::compile(&settings.categories, &settings.routes, problems);
        let answers = problems.take("answers", RouteAnswers::of(&Default::default()));
        Some(Compiled {
            routes,
            upstreams: upstreams.into(),
            provenance: provenance?,
            categories,
            identities,
            answers: answers?,
            settings,
        })
    }

    /// Puts it together with what lasts.
    pub(super) fn over<S, C>(
        self,
        lasting: Arc<Lasting<S, C>>,
        before: Option<&Shared<S, C>>,
    ) -> Shared<S, C> {
        let Compiled { settings, routes, .. } = self;
        Shared {
            lasting,
            tallies: tallies(&routes, before),
            hops: TrustedHops::new(settings.trusted_hops.clone(), settings.address_from),
            provenance: self.provenance,
            categories: self.categories,
            identities: self.identities,
            answers: self.answers,
            upstreams: self.upstreams,
            routes,
            settings,
        }
    }
}

impl<S, C> Shared<S, C> {
    /// What another document makes of the same gateway. Reads files. Blocks.
    pub(super) fn with(&self, settings: GatewaySettings) -> Result<Self, GatewayError> {
        let mut problems = Problems::default();
        let compiled = Compiled::of(settings, Some(self), &mut problems);
        problems.finish()?;
        let compiled = compiled.ok_or(GatewayError { problems: Vec::new() })?;
        Ok(compiled.over(Arc::clone(&self.lasting), Some(self)))
    }
}

/// Counts of routes that keep their names go on.
fn tallies<S, C>(routes: &[Arc<Route>], before: Option<&Shared<S, C>>) -> Box<[Arc<Tally>]> {
    let known = |name: &str| {
        let before = before?;
        let place = before.routes.iter().position(|route| *route.name == *name)?;
        before.tallies.get(place).cloned()
    };
    let named = routes.iter().map(|route| known(&route.name).unwrap_or_default());
    let nameless = before.and_then(|before| before.tallies.last().cloned()).unwrap_or_default();
    named.chain([nameless]).collect()
}

/// Who callers are: as before where the settings are the same, with files read again.
fn identities<S, C>(
    settings: &GatewaySettings,
    before: Option<&Shared<S, C>>,
    problems: &mut Problems,
) -> Identities {
    let known = before.filter(|before| before.settings.jwt == settings.jwt);
    let tokens = match known.and_then(|before| before.identities.tokens.clone()) {
        Some(tokens) => tokens.refresh().map(|_| Some(tokens)),
        None => settings.jwt.as_ref().map(|jwt| Tokens::load(jwt).map(Arc::new)).transpose(),
    };
    let known = before.filter(|before| before.settings.api_keys == settings.api_keys);
    let keys = match known.and_then(|before| before.identities.keys.clone()) {
        Some(keys) => keys.refresh().map(|_| Some(keys)),
        None => {
            settings.api_keys.as_ref().map(|keys| ApiKeys::load(keys).map(Arc::new)).transpose()
        }
    };
    Identities {
        tokens: problems.take("jwt", tokens).flatten(),
        keys: problems.take("api_keys", keys).flatten(),
    }
}

fn compile_upstreams(
    settings: &GatewaySettings,
    before: &[Arc<Upstreams>],
    problems: &mut Problems,
) -> Vec<Arc<Upstreams>> {
    let mut groups = Vec::new();
    for (index, group) in settings.upstreams.iter().enumerate() {
        let place = format!("upstreams[{index}]");
        if settings.upstreams.iter().take(index).any(|other| other.name == group.name) {
            problems.add(format!("{place}.name"), format_args!("`{}` is there twice", group.name));
        }
        let before = before.iter().find(|other| *other.name == *group.name);
        groups.extend(Upstreams::compile(group, &place, before, problems));
    }
    groups
}

fn compile_routes(
    settings: &GatewaySettings,
    upstreams: &[Arc<Upstreams>],
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
        let timeouts = group.and_then(|group| upstreams.get(group)).map(|group| group.timeouts());
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
