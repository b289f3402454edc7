//! Every route: its method, its path, and the access that it needs. There are no others.

use http::Method;
use tidegate_requests::Role;

/// A page to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Index,
    Gateway,
    LogLevel,
    Metrics,
    Rlconfig,
    Stats,
    Switches,
    Top,
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
    /// Makes a change: needs a token with the role `change`, unless the settings allow changes without one.
    Change(Command),
}

impl Action {
    /// The role that it needs, if any.
    pub(super) const fn role(self) -> Option<Role> {
        match self {
            Action::Open(_) => None,
            Action::Private(_) => Some(Role::Read),
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
}

/// The route for a method and a path.
///
/// # Errors
/// The methods that the path has, as an `Allow` field lists them; [`None`] if there is no such path.
pub(super) fn find(method: &Method, path: &str) -> Result<&'static Route, Option<String>> {
    // The server leaves out the body of an answer to HEAD.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let of_path = || ROUTES.iter().filter(|route| route.path == path);
    let found = of_path().find(|route| route.method == *method);
    let allowed = || of_path().map(|route| route.method.as_str()).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| Some(allowed()).filter(|allowed| !allowed.is_empty()))
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
            let reads = route.method == Method::GET;
            let changes = matches!(route.action, Action::Change(_));
            assert_ne!(reads, changes, "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn pages_are_listed_by_path() {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        assert!(paths.is_sorted(), "{paths:?}");
        assert!(index().contains("PUT    /switches/kill     switch everything off or on"));
    }
}
