//! Routes: which requests they match, and how these are handled.
//!
//! Routes are tried in order and the first match wins. A linear search over some dozens of routes, as people write
//! them, takes less than a microsecond.

mod path_template;

use std::net::IpAddr;
use std::sync::Arc;

use http::Method;
use http::request::Parts;
use ipnet::IpNet;
use smallvec::SmallVec;

use super::describe::Describer;
use super::encode::{Fault, RouteAnswers};
use super::forward::{HeaderEdits, Rewrite};
use super::head::{Target, UnescapedTarget, path_with_parameters, without_final_dot};
use super::settings::{EscapedSlashes, HostHeader, PathMatch, Problems, RouteSettings, Timeouts};
pub(super) use path_template::PathTemplate;

/// A compiled route.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) name: Box<str>,
    hosts: Box<[HostPattern]>,
    path: PathPattern,
    methods: Box<[Method]>,
    /// The index of its group of upstreams.
    pub(super) upstream_group: usize,
    pub(super) rewrite: Rewrite,
    pub(super) host_header: HostHeader,
    pub(super) request_edits: HeaderEdits,
    pub(super) response_edits: HeaderEdits,
    pub(super) describer: Describer,
    pub(super) answers: RouteAnswers,
    pub(super) timeouts: Timeouts,
    allow: Box<[IpNet]>,
    deny: Box<[IpNet]>,
    escaped_slashes: EscapedSlashes,
    pub(super) exempt: bool,
}

#[derive(Debug)]
enum HostPattern {
    Exact(Box<str>),
    /// Any subdomain of this name, which begins with a dot.
    Subdomain(Box<str>),
}

#[derive(Debug)]
enum PathPattern {
    /// Without a trailing slash.
    Prefix(Box<str>),
    Template(PathTemplate),
}

/// What a route takes over unless its own settings differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteDefaults {
    /// The index of its group of upstreams.
    pub(super) upstream_group: usize,
    /// The timeouts of the group.
    pub(super) timeouts: Timeouts,
    pub(super) escaped_slashes: EscapedSlashes,
}

/// Finds the route of a request, and its index. A path with an escaped slash is matched as the route treats it.
pub(super) fn find_route<'r>(
    routes: &'r [Arc<Route>],
    head: &mut Parts,
    target: &mut Target,
) -> Result<(usize, &'r Arc<Route>), Fault> {
    let mut numbered = routes.iter().enumerate();
    let Some(unescaped) = UnescapedTarget::of(head) else {
        return numbered.find(|(_, route)| route.matches(head, target)).ok_or(Fault::NoRoute);
    };
    for (index, route) in numbered.filter(|(_, route)| route.serves(head, target)) {
        let kept = route.matches_path(head, target);
        match route.escaped_slashes {
            EscapedSlashes::Keep if kept => return Ok((index, route)),
            EscapedSlashes::Unescape if route.path.matches(unescaped.path()) => {
                target.unescape(head, unescaped);
                return Ok((index, route));
            }
            // Either reading may be the upstream's.
            EscapedSlashes::Reject if kept || route.path.matches(unescaped.path()) => {
                return Err(Fault::EscapedSlash);
            }
            EscapedSlashes::Keep | EscapedSlashes::Unescape | EscapedSlashes::Reject => {}
        }
    }
    Err(Fault::NoRoute)
}

impl Route {
    /// Compiles the settings of a route.
    pub(super) fn compile(
        settings: &RouteSettings,
        location: &str,
        defaults: RouteDefaults,
        problems: &mut Problems,
    ) -> Option<Self> {
        let path = path_pattern(&settings.path, location, problems);
        let rewrite = problems
            .take(format!("{location}.rewrite"), Rewrite::of(&settings.rewrite, &settings.path));
        let describer = Describer::compile(settings, location, problems);
        let answers =
            problems.take(format!("{location}.answers"), RouteAnswers::of(&settings.answers));
        let hosts = settings.hosts.iter().map(|host| host_pattern(host)).collect();
        Some(Route {
            name: settings.name.clone().into_boxed_str(),
            hosts,
            path: path?,
            methods: settings.methods.clone().into(),
            upstream_group: defaults.upstream_group,
            rewrite: rewrite?,
            host_header: settings.host_header,
            request_edits: HeaderEdits::of(&settings.request_headers),
            response_edits: HeaderEdits::of(&settings.response_headers),
            describer: describer?,
            answers: answers?,
            timeouts: settings.timeouts.unwrap_or(defaults.timeouts),
            allow: settings.allow.clone().into(),
            deny: settings.deny.clone().into(),
            escaped_slashes: settings.escaped_slashes.unwrap_or(defaults.escaped_slashes),
            exempt: settings.exempt,
        })
    }

    /// Whether the route matches a request with this head.
    fn matches(&self, head: &Parts, target: &Target) -> bool {
        self.matches_path(head, target) && self.serves(head, target)
    }

    /// Whether a client may use the route. A client without an address, at a Unix socket, is in no network.
    pub(super) fn admits(&self, client: Option<IpAddr>) -> bool {
        let contains = |networks: &[IpNet]| {
            client.is_some_and(|client| networks.iter().any(|network| network.contains(&client)))
        };
        (self.allow.is_empty() || contains(&self.allow)) && !contains(&self.deny)
    }

    /// Whether the path matches. An exempt route must match with parameters too: an upstream that does not remove them
    /// may serve another resource.
    fn matches_path(&self, head: &Parts, target: &Target) -> bool {
        self.path.matches(target.path(head))
            && (!self.exempt || self.path.matches(&path_with_parameters(head)))
    }

    /// Whether method and host match.
    fn serves(&self, head: &Parts, target: &Target) -> bool {
        (self.methods.is_empty() || self.methods.contains(&head.method))
            && (self.hosts.is_empty()
                || target
                    .host()
                    .is_some_and(|host| self.hosts.iter().any(|pattern| pattern.matches(host))))
    }
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Exact(name) => name.eq_ignore_ascii_case(host),
            HostPattern::Subdomain(name) => {
                let start = host.len().checked_sub(name.len()).filter(|start| *start > 0);
                let end = start.and_then(|start| host.get(start..));
                end.is_some_and(|end| end.eq_ignore_ascii_case(name))
            }
        }
    }
}

impl PathPattern {
    fn matches(&self, path: &str) -> bool {
        match self {
            PathPattern::Prefix(prefix) => {
                let rest = path.strip_prefix(&**prefix);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            PathPattern::Template(template) => template.matches(path),
        }
    }
}

fn host_pattern(host: &str) -> HostPattern {
    let host = without_final_dot(host);
    match host.strip_prefix('*') {
        Some(name) => HostPattern::Subdomain(name.into()),
        None => HostPattern::Exact(host.into()),
    }
}

fn path_pattern(path: &PathMatch, location: &str, problems: &mut Problems) -> Option<PathPattern> {
    let location = format!("{location}.path");
    match path {
        PathMatch::Prefix(prefix) if !prefix.starts_with('/') => {
            problems.add(location, format_args!("`{prefix}` does not begin with a slash"));
            None
        }
        PathMatch::Prefix(prefix) => Some(PathPattern::Prefix(prefix.trim_end_matches('/').into())),
        PathMatch::Template(template) => {
            problems.take(location, PathTemplate::parse(template)).map(PathPattern::Template)
        }
    }
}

/// The named segments of a path with their values.
pub(super) type PathParameters<'p> = SmallVec<[(&'p str, &'p str); 4]>;

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(prefix: &str) -> PathPattern {
        let mut problems = Problems::default();
        path_pattern(&PathMatch::Prefix(prefix.to_owned()), "path", &mut problems).unwrap()
    }

    #[test]
    fn a_prefix_matches_whole_segments() {
        for api in [prefix("/api"), prefix("/api/")] {
            assert!(api.matches("/api") && api.matches("/api/") && api.matches("/api/users"));
            assert!(!api.matches("/apiary") && !api.matches("/ap") && !api.matches("/"));
        }
        assert!(prefix("/").matches("/") && prefix("/").matches("/anything"));
    }

    #[test]
    fn hosts_match_in_any_case_and_a_star_matches_subdomains() {
        assert!(host_pattern("api.test").matches("API.test"));
        assert!(host_pattern("API.test.").matches("api.test"));
        assert!(!host_pattern("api.test").matches("x.api.test"));
        let below = host_pattern("*.api.test");
        assert!(below.matches("x.API.test") && below.matches("x.y.api.test"));
        assert!(!below.matches("api.test") && !below.matches(".api.test"));
        assert!(!below.matches("xapi.test"));
    }
}
