//! One document of the gateway, compiled: routes, upstreams, identities and headers.
//!
//! A request uses one document from its beginning to its end. A new document takes over the parts that did not change:
//! counters of routes, hosts with their connections and health, verified tokens.

use std::sync::Arc;

use super::category::Categories;
use super::client_address::TrustedHops;
use super::describe::{ApiKeys, IdentitySources, Tokens};
use super::encode::RouteAnswers;
use super::forward::Provenance;
use super::route::{Route, RouteDefaults};
use super::settings::{GatewayError, GatewaySettings, Problems};
use super::state::GatewayState;
use super::tally::Tally;
use super::upstream::UpstreamGroup;

/// A compiled document together with the gateway's state: everything that a request needs.
pub(super) struct ActiveDocument<S, C> {
    pub(super) state: Arc<GatewayState<S, C>>,
    pub(super) settings: GatewaySettings,
    pub(super) routes: Box<[Arc<Route>]>,
    pub(super) upstreams: Box<[Arc<UpstreamGroup>]>,
    pub(super) hops: TrustedHops,
    pub(super) provenance: Provenance,
    pub(super) categories: Categories,
    pub(super) identities: IdentitySources,
    /// The answers to requests without a route.
    pub(super) answers: RouteAnswers,
    /// One per route, and a last one for requests without a route.
    pub(super) tallies: Box<[Arc<Tally>]>,
}

/// A compiled document, without the gateway's state.
pub(super) struct CompiledDocument {
    settings: GatewaySettings,
    routes: Box<[Arc<Route>]>,
    upstreams: Box<[Arc<UpstreamGroup>]>,
    provenance: Provenance,
    categories: Categories,
    identities: IdentitySources,
    answers: RouteAnswers,
}

impl CompiledDocument {
    /// Compiles settings, reusing the unchanged parts of the previous document. Reads files, so it blocks.
    pub(super) fn compile<S, C>(
        settings: GatewaySettings,
        previous: Option<&ActiveDocument<S, C>>,
        problems: &mut Problems,
    ) -> Option<Self> {
        let groups = previous.map(|previous| &*previous.upstreams).unwrap_or_default();
        let upstreams = compile_upstreams(&settings, groups, problems);
        let routes = compile_routes(&settings, &upstreams, problems);
        let provenance = problems.take("provenance.via", Provenance::of(&settings.provenance));
        let identities = compile_identities(&settings, previous, problems);
        let categories = Categories::compile(&settings.categories, &settings.routes, problems);
        let answers = problems.take("answers", RouteAnswers::of(&Default::default()));
        Some(CompiledDocument {
            routes,
            upstreams: upstreams.into(),
            provenance: provenance?,
            categories,
            identities,
            answers: answers?,
            settings,
        })
    }

    /// Combines the document with the gateway's state.
    pub(super) fn activate<S, C>(
        self,
        state: Arc<GatewayState<S, C>>,
        previous: Option<&ActiveDocument<S, C>>,
    ) -> ActiveDocument<S, C> {
        let CompiledDocument { settings, routes, .. } = self;
        ActiveDocument {
            state,
            tallies: tallies(&routes, previous),
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

impl<S, C> ActiveDocument<S, C> {
    /// Compiles another document for the same gateway. Reads files, so it blocks.
    pub(super) fn with(&self, settings: GatewaySettings) -> Result<Self, GatewayError> {
        let mut problems = Problems::default();
        let compiled = CompiledDocument::compile(settings, Some(self), &mut problems);
        problems.finish()?;
        let compiled = compiled.ok_or(GatewayError { problems: Vec::new() })?;
        Ok(compiled.activate(Arc::clone(&self.state), Some(self)))
    }
}

/// Reuses the counters of routes that keep their names.
fn tallies<S, C>(
    routes: &[Arc<Route>],
    previous: Option<&ActiveDocument<S, C>>,
) -> Box<[Arc<Tally>]> {
    let existing = |name: &str| {
        let previous = previous?;
        let index = previous.routes.iter().position(|route| *route.name == *name)?;
        previous.tallies.get(index).cloned()
    };
    let of_routes = routes.iter().map(|route| existing(&route.name).unwrap_or_default());
    let of_none = previous.and_then(|previous| previous.tallies.last().cloned());
    of_routes.chain([of_none.unwrap_or_default()]).collect()
}

/// Reuses verified tokens and API keys if their settings are unchanged, and reloads changed files.
fn compile_identities<S, C>(
    settings: &GatewaySettings,
    previous: Option<&ActiveDocument<S, C>>,
    problems: &mut Problems,
) -> IdentitySources {
    let unchanged = previous.filter(|previous| previous.settings.jwt == settings.jwt);
    let tokens = match unchanged.and_then(|previous| previous.identities.tokens.clone()) {
        Some(tokens) => tokens.refresh().map(|_| Some(tokens)),
        None => settings.jwt.as_ref().map(|jwt| Tokens::load(jwt).map(Arc::new)).transpose(),
    };
    let unchanged = previous.filter(|previous| previous.settings.api_keys == settings.api_keys);
    let keys = match unchanged.and_then(|previous| previous.identities.keys.clone()) {
        Some(keys) => keys.refresh().map(|_| Some(keys)),
        None => {
            settings.api_keys.as_ref().map(|keys| ApiKeys::load(keys).map(Arc::new)).transpose()
        }
    };
    IdentitySources {
        tokens: problems.take("jwt", tokens).flatten(),
        keys: problems.take("api_keys", keys).flatten(),
        when_invalid: settings.jwt.as_ref().map(|jwt| jwt.when_invalid).unwrap_or_default(),
        when_unknown: settings.api_keys.as_ref().map(|keys| keys.when_unknown).unwrap_or_default(),
    }
}

fn compile_upstreams(
    settings: &GatewaySettings,
    previous: &[Arc<UpstreamGroup>],
    problems: &mut Problems,
) -> Vec<Arc<UpstreamGroup>> {
    let mut groups = Vec::new();
    for (index, group) in settings.upstreams.iter().enumerate() {
        let location = format!("upstreams[{index}]");
        if settings.upstreams.iter().take(index).any(|other| other.name == group.name) {
            let problem = format_args!("`{}` is defined twice", group.name);
            problems.add(format!("{location}.name"), problem);
        }
        let previous = previous.iter().find(|other| *other.name == *group.name);
        groups.extend(UpstreamGroup::compile(group, &location, previous, problems));
    }
    groups
}

fn compile_routes(
    settings: &GatewaySettings,
    upstreams: &[Arc<UpstreamGroup>],
    problems: &mut Problems,
) -> Box<[Arc<Route>]> {
    let mut routes = Vec::new();
    if settings.routes.is_empty() {
        problems.add("routes", "a gateway needs a route");
    }
    for (index, route) in settings.routes.iter().enumerate() {
        let location = format!("routes[{index}]");
        if settings.routes.iter().take(index).any(|other| other.name == route.name) {
            let problem = format_args!("`{}` is defined twice", route.name);
            problems.add(format!("{location}.name"), problem);
        }
        let group = upstreams.iter().position(|group| *group.name == *route.upstreams);
        let timeouts = group.and_then(|group| upstreams.get(group)).map(|group| group.timeouts());
        if group.is_none() && !settings.upstreams.iter().any(|other| other.name == route.upstreams)
        {
            let problem = format_args!("there are no upstreams `{}`", route.upstreams);
            problems.add(format!("{location}.upstreams"), problem);
        }
        let defaults = RouteDefaults {
            upstream_group: group.unwrap_or(0),
            timeouts: timeouts.unwrap_or_default(),
            escaped_slashes: settings.head.escaped_slashes,
        };
        routes.extend(Route::compile(route, &location, defaults, problems).map(Arc::new));
    }
    routes.into()
}
