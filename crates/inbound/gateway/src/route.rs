//! Where a request goes.
//!
//! Routes are tried in their order and the first that matches is taken: a list of some dozens
//! is what people write and can read, and takes less than a microsecond.

mod template;

use http::Method;
use http::request::Parts;
use smallvec::SmallVec;

use super::describe::Describer;
use super::encode::RouteAnswers;
use super::forward::{Edits, Rewrite};
use super::head::Target;
use super::settings::{HostHeader, PathMatch, Problems, RouteSettings, Timeouts};
pub(super) use template::Template;

/// A route, as it is used.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) name: Box<str>,
    hosts: Box<[HostPattern]>,
    path: PathPattern,
    methods: Box<[Method]>,
    /// The place of its upstreams among all groups.
    pub(super) upstreams: usize,
    pub(super) rewrite: Rewrite,
    pub(super) host_header: HostHeader,
    pub(super) request_edits: Edits,
    pub(super) response_edits: Edits,
    pub(super) describer: Describer,
    pub(super) answers: RouteAnswers,
    pub(super) timeouts: Timeouts,
    pub(super) exempt: bool,
}

#[derive(Debug)]
enum HostPattern {
    Exact(Box<str>),
    /// With the dot in front.
    Below(Box<str>),
}

#[derive(Debug)]
enum PathPattern {
    /// Without a slash at its end.
    Prefix(Box<str>),
    Template(Template),
}

impl Route {
    /// Makes a route of its settings; `timeouts` are those of its upstreams.
    pub(super) fn compile(
        settings: &RouteSettings,
        place: &str,
        (upstreams, timeouts): (usize, Timeouts),
        problems: &mut Problems,
    ) -> Option<Self> {
        let path = path_pattern(&settings.path, place, problems);
        let rewrite = problems
            .take(format!("{place}.rewrite"), Rewrite::of(&settings.rewrite, &settings.path));
        let describer = Describer::compile(settings, place, problems);
        let answers =
            problems.take(format!("{place}.answers"), RouteAnswers::of(&settings.answers));
        let hosts = settings.hosts.iter().map(|host| host_pattern(host)).collect();
        Some(Route {
            name: settings.name.clone().into_boxed_str(),
            hosts,
            path: path?,
            methods: settings.methods.clone().into(),
            upstreams,
            rewrite: rewrite?,
            host_header: settings.host_header,
            request_edits: Edits::of(&settings.request_headers),
            response_edits: Edits::of(&settings.response_headers),
            describer: describer?,
            answers: answers?,
            timeouts: settings.timeouts.unwrap_or(timeouts),
            exempt: settings.exempt,
        })
    }

    /// Whether a request with this head is for this route.
    pub(super) fn takes(&self, head: &Parts, target: &Target) -> bool {
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
            HostPattern::Below(name) => {
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
        Some(below) => HostPattern::Below(below.into()),
        None => HostPattern::Exact(host.into()),
    }
}

fn path_pattern(path: &PathMatch, place: &str, problems: &mut Problems) -> Option<PathPattern> {
    let place = format!("{place}.path");
    match path {
        PathMatch::Prefix(prefix) if !prefix.starts_with('/') => {
            problems.add(place, format_args!("`{prefix}` does not begin with a slash"));
            None
        }
        PathMatch::Prefix(prefix) => Some(PathPattern::Prefix(prefix.trim_end_matches('/').into())),
        PathMatch::Template(template) => {
            problems.take(place, Template::parse(template)).map(PathPattern::Template)
        }
    }
}

/// What a path's segments are called.
pub(super) type Parameters<'p> = SmallVec<[(&'p str, &'p str); 4]>;

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(prefix: &str) -> PathPattern {
        let mut problems = Problems::default();
        path_pattern(&PathMatch::Prefix(prefix.to_owned()), "path", &mut problems).unwrap()
    }

    #[test]
    fn a_prefix_ends_with_a_segment() {
        for api in [prefix("/api"), prefix("/api/")] {
            assert!(api.matches("/api") && api.matches("/api/") && api.matches("/api/users"));
            assert!(!api.matches("/apiary") && !api.matches("/ap") && !api.matches("/"));
        }
        assert!(prefix("/").matches("/") && prefix("/").matches("/anything"));
    }

    #[test]
    fn a_host_is_the_same_in_any_case_and_a_star_takes_what_is_below() {
        assert!(host_pattern("api.test").matches("API.test"));
        assert!(!host_pattern("api.test").matches("x.api.test"));
        let below = host_pattern("*.api.test");
        assert!(below.matches("x.API.test") && below.matches("x.y.api.test"));
        assert!(!below.matches("api.test") && !below.matches(".api.test"));
        assert!(!below.matches("xapi.test"));
    }
}
