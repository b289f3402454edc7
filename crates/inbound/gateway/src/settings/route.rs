//! Settings of a route: which requests it matches, where they go, and what limits them.

use http::Method;
use http::header::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::answer::AnswerSettings;
use super::client::EscapedSlashes;
use super::describe::{CostSettings, DescriptorSettings};
use super::upstream::Timeouts;

/// A route.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// Its name in logs and metrics.
    pub name: String,
    /// The hosts that it matches: a name, or `*.` and a name for all subdomains. Default: all.
    pub hosts: Vec<String>,
    /// The paths that it matches. Default: all.
    pub path: PathMatch,
    /// The methods that it matches. Default: all.
    pub methods: Vec<Method>,
    /// The name of its group of upstreams.
    pub upstreams: String,
    /// The path that upstreams see.
    pub rewrite: PathRewrite,
    /// The host that upstreams see.
    pub host_header: HostHeader,
    /// Changes to the fields of requests, in this order.
    pub request_headers: Vec<HeaderEdit>,
    /// Changes to the fields of responses, in this order.
    pub response_headers: Vec<HeaderEdit>,
    /// More path templates for descriptors, such as `/users/{id}/orders`, after the route's own. The first that matches
    /// is used.
    pub templates: Vec<String>,
    /// The descriptors of its requests, which rules limit.
    pub descriptors: Vec<DescriptorSettings>,
    /// The cost of a request, unless its descriptor has one.
    pub cost: CostSettings,
    /// The bodies of refusals.
    pub answers: AnswerSettings,
    /// Its timeouts. Default: those of its upstreams.
    pub timeouts: Option<Timeouts>,
    /// The networks whose clients may use the route. Default: all.
    pub allow: Vec<IpNet>,
    /// The networks whose clients may not use it, even if `allow` has them. Default: none.
    pub deny: Vec<IpNet>,
    /// How paths with an escaped slash are treated here. Default: as [`HeadSettings`](super::HeadSettings) says.
    pub escaped_slashes: Option<EscapedSlashes>,
    /// Whether its requests are never limited, shed or counted, such as health checks. Default: no.
    pub exempt: bool,
}

impl RouteSettings {
    /// A route for every request, to this group of upstreams.
    pub fn new(name: impl Into<String>, upstreams: impl Into<String>) -> Self {
        RouteSettings {
            name: name.into(),
            hosts: Vec::new(),
            path: PathMatch::default(),
            methods: Vec::new(),
            upstreams: upstreams.into(),
            rewrite: PathRewrite::default(),
            host_header: HostHeader::default(),
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            templates: Vec::new(),
            descriptors: Vec::new(),
            cost: CostSettings::default(),
            answers: AnswerSettings::default(),
            timeouts: None,
            allow: Vec::new(),
            deny: Vec::new(),
            escaped_slashes: None,
            exempt: false,
        }
    }
}

/// The paths that a route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// This path, and everything below it.
    Prefix(String),
    /// Paths of this template, such as `/users/{id}/orders`.
    Template(String),
}

impl Default for PathMatch {
    fn default() -> Self {
        PathMatch::Prefix("/".to_owned())
    }
}

/// The path that upstreams see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathRewrite {
    /// The whole path.
    #[default]
    Keep,
    /// The path below the route's prefix.
    StripPrefix,
    /// The path below the route's prefix, after this prefix.
    ReplacePrefix(String),
}

/// The host that upstreams see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The one that the client requested.
    #[default]
    Client,
    /// The upstream's own.
    Upstream,
}

/// A change to the fields of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderEdit {
    /// The field has this value and no other.
    Set(HeaderName, HeaderValue),
    /// The field has this value in addition to others.
    Add(HeaderName, HeaderValue),
    /// The field is removed.
    Remove(HeaderName),
}
