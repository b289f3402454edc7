//! Every page: its method, its path, and who may ask for it. There are no others.

use http::Method;

/// What a page does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Index,
    Gateway,
    Metrics,
    Rlconfig,
    Stats,
    Top,
    ClearTop,
    Switches,
    SwitchOff,
    SwitchOn,
    SwitchLimit,
    SwitchLimitBack,
    SwitchLimiter,
    SwitchLimiterBack,
    LogLevel,
    SetLogLevel,
    Reload,
}

/// Who may ask for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// Everyone who reaches the port.
    Open,
    /// Who brings the token, if one is set: the page tells of callers, or of
    /// what protects the service.
    Private,
    /// Who brings the token. Without one, only where the settings allow it.
    Change,
}

/// One page.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) page: Page,
    pub(super) guard: Guard,
    pub(super) about: &'static str,
}

macro_rules! routes {
    ($($method:ident $path:literal $page:ident $guard:ident $about:literal;)+) => {
        /// Every page, in the order in which they are listed.
        pub(super) const ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            page: Page::$page,
            guard: Guard::$guard,
            about: $about,
        }),+];
    };
}

routes! {
    GET "/" Index Open "this list";
    GET "/gateway" Gateway Private "the gateway's document, and the servers behind it";
    GET "/log-level" LogLevel Open "what is logged";
    PUT "/log-level" SetLogLevel Change "change it: {\"level\": \"debug\"}";
    GET "/metrics" Metrics Open "metrics for Prometheus";
    POST "/reload" Reload Change "read the rules and the gateway's document again";
    GET "/rlconfig" Rlconfig Open "the limits in place, one line each";
    GET "/stats" Stats Open "counts as lines, or as JSON with ?format=json";
    GET "/switches" Switches Private "what is switched at run time";
    PUT "/switches/kill" SwitchOff Change "switch everything off or on: {\"off\": true, \"for_seconds\"?}";
    DELETE "/switches/kill" SwitchOn Change "switch everything on again";
    PUT "/switches/limit" SwitchLimit Change
        "switch limits: {\"domain\", \"path\", \"limit\"?, \"mode\", \"enforce_percent\"?}";
    DELETE "/switches/limit" SwitchLimitBack Change
        "let the rule file decide again: {\"domain\", \"path\", \"limit\"?}";
    PUT "/switches/limiter" SwitchLimiter Change
        "switch a limiter: {\"limiter\", \"mode\": \"off\", \"shadow\", \"enforce\" or \"enforce 10%\", \"for_seconds\"?}";
    DELETE "/switches/limiter" SwitchLimiterBack Change
        "let the configuration decide again: {\"limiter\"}";
    GET "/top" Top Private "who is refused most, or as JSON with ?format=json";
    DELETE "/top" ClearTop Change "begin to count them anew";
}

/// What was found for a method and a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Route(&'static Route),
    /// The path is known, under other methods.
    OtherMethod,
    Nothing,
}

/// The page for a method and a path.
pub(super) fn find(method: &Method, path: &str) -> Found {
    // Whoever sends a body leaves it out for HEAD.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut known = false;
    for route in ROUTES.iter().filter(|route| route.path == path) {
        if route.method == *method {
            return Found::Route(route);
        }
        known = true;
    }
    if known { Found::OtherMethod } else { Found::Nothing }
}

/// The methods of a path, as an `Allow` field has them.
pub(super) fn allowed(path: &str) -> String {
    let methods = ROUTES.iter().filter(|route| route.path == path).map(|route| &route.method);
    methods.map(Method::as_str).collect::<Vec<_>>().join(", ")
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
    fn every_page_that_changes_something_is_guarded() {
        for route in ROUTES {
            let changes = route.method != Method::GET;
            assert_eq!(changes, route.guard == Guard::Change, "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn pages_are_listed_by_path() {
        let paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        assert!(paths.is_sorted(), "{paths:?}");
        assert!(index().contains("PUT    /switches/kill     switch everything off or on"));
    }
}
