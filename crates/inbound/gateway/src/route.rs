//! Routes: which requests they match, and how these are handled.
//!
//! Routes are tried in order and the first match wins. A linear search over some dozens of routes, as people write
//! them, takes less than a microsecond.

mod path_template;

use http::Method;
use http::request::Parts;
use smallvec::SmallVec;

use super::describe::Describer;
use super::encode::RouteAnswers;
use super::forward::{HeaderEdits, Rewrite};
use super::head::Target;
use super::settings::{HostHeader, PathMatch, Problems, RouteSettings, Timeouts};
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

/// The upstreams of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteUpstreams {
    /// The index of the group.
    pub(super) group: usize,
    /// The timeouts of the group, which those of the route override.
    pub(super) timeouts: Timeouts,
}

impl Route {
    /// Compiles the settings of a route.
    pub(super) fn compile(
        settings: &RouteSettings,
        location: &str,
        upstreams: RouteUpstreams,
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
            upstream_group: upstreams.group,
            rewrite: rewrite?,
            host_header: settings.host_header,
            request_edits: HeaderEdits::of(&settings.request_headers),
            response_edits: HeaderEdits::of(&settings.response_headers),
            describer: describer?,
            answers: answers?,
            timeouts: settings.timeouts.unwrap_or(upstreams.timeouts),
            exempt: settings.exempt,
        })
    }

    /// Whether the route matches a request with this head.
    pub(super) fn matches(&self, head: &Parts, target: &Target) -> bool {
        (self.methods.is_empty() || self.methods.contains(&head.method))
            && self.path.matches(target.path(head))
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
        assert!(!host_pattern("api.test").matches("x.api.test"));
        let below = host_pattern("*.api.test");
        assert!(below.matches("x.API.test") && below.matches("x.y.api.test"));
        assert!(!below.matches("api.test") && !below.matches(".api.test"));
        assert!(!below.matches("xapi.test"));
    }
}
