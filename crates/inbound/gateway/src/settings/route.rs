//! Settings of one route: what it takes, where it leads, what it is limited by.

use http::Method;
use http::header::{HeaderName, HeaderValue};
use ipnet::IpNet;

use super::answer::AnswerSettings;
use super::client::EscapedSlashes;
use super::describe::{CostSettings, DescriptorSettings};
use super::upstream::Timeouts;

/// Where some requests go, and what limits them.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// What logs and metrics call it.
    pub name: String,
    /// The hosts it is for: a name, or `*.` and a name for everything below it. Default: all.
    pub hosts: Vec<String>,
    /// The paths it is for. Default: all.
    pub path: PathMatch,
    /// The methods it is for. Default: all.
    pub methods: Vec<Method>,
    /// The group of upstreams that it leads to.
    pub upstreams: String,
    /// What the upstream sees of the path.
    pub rewrite: PathRewrite,
    /// Which host the upstream is asked for.
    pub host_header: HostHeader,
    /// Changes to the fields of requests, in this order.
    pub request_headers: Vec<HeaderEdit>,
    /// Changes to the fields of answers, in this order.
    pub response_headers: Vec<HeaderEdit>,
    /// Path templates that descriptors can name, as `/users/{id}/orders`, after the one that the
    /// route itself has as its path. The first that matches is taken.
    pub templates: Vec<String>,
    /// What its requests are limited by.
    pub descriptors: Vec<DescriptorSettings>,
    /// What a request costs, where a descriptor does not say.
    pub cost: CostSettings,
    /// How refusals are told.
    pub answers: AnswerSettings,
    /// How long things may take here, in place of what its upstreams say.
    pub timeouts: Option<Timeouts>,
    /// The networks whose clients may use the route. Default: all.
    pub allow: Vec<IpNet>,
    /// The networks whose clients may not use it, even if `allow` has them. Default: none.
    pub deny: Vec<IpNet>,
    /// How paths with an escaped slash are treated here. Default: as [`HeadSettings`](super::HeadSettings) says.
    pub escaped_slashes: Option<EscapedSlashes>,
    /// Whether its requests are never limited, shed or counted: health checks, metrics,
    /// administration. Default: no.
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

/// Which paths a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// This path, and everything below it.
    Prefix(String),
    /// Paths of this template, as `/users/{id}/orders`.
    Template(String),
}

impl Default for PathMatch {
    fn default() -> Self {
        PathMatch::Prefix("/".to_owned())
    }
}

/// What an upstream sees of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathRewrite {
    /// All of it.
    #[default]
    Keep,
    /// What is below the route's prefix.
    StripPrefix,
    /// What is below the route's prefix, behind this one.
    ReplacePrefix(String),
}

/// Which host an upstream is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The one that the client asked for.
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
    /// The field has this value beside those that it has.
    Add(HeaderName, HeaderValue),
    /// The field is left out.
    Remove(HeaderName),
}
