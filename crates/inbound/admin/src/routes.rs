//! Every route: its method, its path, and the access that it needs. There are no others.

use http::Method;
use tidegate_access::Role;

/// A page to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Index,
    ApiCallers,
    ApiChanges,
    ApiEvents,
    ApiEvidence,
    ApiFindings,
    ApiFleet,
    ApiLimit,
    ApiLimits,
    ApiSeries,
    ApiState,
    Gateway,
    LogLevel,
    Metrics,
    Rlconfig,
    Stats,
    Switches,
    Top,
    Ui,
    UiFile,
}

/// A question that needs a body and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Try,
}

/// A change to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    ClearTop,
    Reload,
    RestoreLimit,
    RestoreLimiter,
    SetLogLevel,
    SwitchLimit,
    SwitchLimiter,
    SwitchOff,
    SwitchOn,
}

/// The action of a route, and the access that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Shows a page to everyone who reaches the port.
    Open(Page),
    /// Shows a page about callers or protection: needs a token with the role `read`, if there are tokens.
    Private(Page),
    /// Answers a question about callers: needs a token with the role `read`, if there are tokens.
    Ask(Question),
    /// Makes a change: needs a token with the role `change`, unless the settings allow changes without one.
    Change(Command),
}

impl Action {
    /// The role that it needs, if any.
    pub(super) const fn role(self) -> Option<Role> {
        match self {
            Action::Open(_) => None,
            Action::Private(_) | Action::Ask(_) => Some(Role::Read),
            Action::Change(_) => Some(Role::Change),
        }
    }
}

/// One route.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) action: Action,
    pub(super) about: &'static str,
}

macro_rules! routes {
    ($($method:ident $path:literal $access:ident($action:path) $about:literal;)+) => {
        /// Every route, by path.
        pub(super) const ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            action: Action::$access($action),
            about: $about,
        }),+];
    };
}

routes! {
    GET "/" Open(Page::Index) "this list";
    GET "/api/callers" Private(Page::ApiCallers) "the most refused callers and what each has left; ?find=, ?format=csv";
    GET "/api/changes" Private(Page::ApiChanges) "changes made at run time: who, what, why; ?format=csv";
    GET "/api/events" Private(Page::ApiEvents) "a stream of events; ?kinds=state,verdicts,changes";
    GET "/api/evidence" Private(Page::ApiEvidence) "what is known of each limit, for `tidegate rules report --from`";
    GET "/api/findings" Private(Page::ApiFindings) "what traffic says about the rules";
    GET "/api/fleet" Private(Page::ApiFleet) "the nodes of the fleet, and their sums";
    GET "/api/limits" Private(Page::ApiLimits) "every limit with its counts; ?sort=, ?find=, ?after=, ?format=csv";
    GET "/api/limits/{id}" Private(Page::ApiLimit) "one limit: its last hour, its days, its callers";
    GET "/api/series" Private(Page::ApiSeries) "charts as columns; ?names=, ?since=, ?step=";
    GET "/api/state" Private(Page::ApiState) "the service at this moment";
    POST "/api/try" Ask(Question::Try)
        "what would happen to a request; charges nothing: {\"request\": {\"path\"}} or {\"domain\", \"descriptors\"}";
    GET "/gateway" Private(Page::Gateway) "the gateway's document, and the servers behind it";
    GET "/log-level" Open(Page::LogLevel) "what is logged";
    PUT "/log-level" Change(Command::SetLogLevel) "change it: {\"level\": \"debug\"}";
    GET "/metrics" Open(Page::Metrics) "metrics for Prometheus";
    POST "/reload" Change(Command::Reload) "read the rules and the gateway's document again";
    GET "/rlconfig" Open(Page::Rlconfig) "the limits in place, one line each";
    GET "/stats" Open(Page::Stats) "counts as lines, or as JSON with ?format=json";
    GET "/switches" Private(Page::Switches) "what is switched at run time";
    PUT "/switches/kill" Change(Command::SwitchOff)
        "switch everything off or on: {\"off\": true, \"for_seconds\"?}";
    DELETE "/switches/kill" Change(Command::SwitchOn) "switch everything on again";
    PUT "/switches/limit" Change(Command::SwitchLimit)
        "switch limits: {\"domain\", \"path\", \"limit\"?, \"mode\", \"enforce_percent\"?}";
    DELETE "/switches/limit" Change(Command::RestoreLimit)
        "let the rule file decide again: {\"domain\", \"path\", \"limit\"?}";
    PUT "/switches/limiter" Change(Command::SwitchLimiter)
        "switch a limiter: {\"limiter\", \"mode\": \"off\", \"shadow\", \"enforce\" or \"enforce 10%\", \"for_seconds\"?}";
    DELETE "/switches/limiter" Change(Command::RestoreLimiter)
        "let the configuration decide again: {\"limiter\"}";
    GET "/top" Private(Page::Top) "who is refused most, or as JSON with ?format=json";
    DELETE "/top" Change(Command::ClearTop) "begin to count them anew";
    GET "/ui/" Open(Page::Ui) "the dashboard, for a browser";
    GET "/ui/{file}" Open(Page::UiFile) "its files";
}

/// The route for a method and a path.
///
/// # Errors
/// The methods that the path has, as an `Allow` field lists them; [`None`] if there is no such path.
pub(super) fn find(method: &Method, path: &str) -> Result<&'static Route, Option<String>> {
    // The server leaves out the body of an answer to HEAD.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let of_path = || ROUTES.iter().filter(|route| matches(route.path, path));
    let found = of_path().find(|route| route.method == *method);
    let allowed = || of_path().map(|route| route.method.as_str()).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| Some(allowed()).filter(|allowed| !allowed.is_empty()))
}

/// Whether a path is that of a route, or below one whose last part is in braces.
fn matches(pattern: &str, path: &str) -> bool {
    pattern == path || last_part(pattern, path).is_some()
}

/// The last part of a path, if it stands for the part in braces.
fn last_part<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let (stem, _) = pattern.split_once('{')?;
    path.strip_prefix(stem).filter(|part| !part.is_empty() && !part.contains('/'))
}

impl Route {
    /// The part of a path that stands for the part in braces.
    pub(super) fn parameter<'p>(&self, path: &'p str) -> &'p str {
        last_part(self.path, path).unwrap_or_default()
    }
}

/// The list of pages.
pub(super) fn index() -> String {
    let width = ROUTES.iter().map(|route| route.path.len()).max().unwrap_or(0);
    let lines = ROUTES.iter().map(|route| {
        format!("{:<6} {:<width$}  {}\n", route.method.as_str(), route.path, route.about)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_that_changes_something_needs_the_role_for_it() {
        for route in ROUTES {
            let asks = matches!(route.action, Action::Ask(_));
            let reads = route.method == Method::GET || asks;
            let changes = matches!(route.action, Action::Change(_));
            assert_ne!(reads, changes, "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn a_part_in_braces_stands_for_one_part_of_the_path() {
        let find = |path| find(&Method::GET, path).map(|route| route.path);
        assert_eq!(find("/api/limits/00ff"), Ok("/api/limits/{id}"));
        assert_eq!(find("/ui/app.js"), Ok("/ui/{file}"));
        assert_eq!(find("/ui/"), Ok("/ui/"));
        assert_eq!(find("/ui/a/b"), Err(None));
        assert_eq!(find("/api/limits/"), Err(None));
    }

    #[test]
    fn pages_are_listed_by_path() {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        assert!(paths.is_sorted(), "{paths:?}");
        assert!(index().contains("PUT    /switches/kill     switch everything off or on"));
    }
}
