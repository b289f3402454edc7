//! From method and path to what is asked for.
//!
//! One table holds every route. The document that the door serves has the same
//! ones: a test compares them.

use http::Method;
use tidegate_engine::Verb;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The rate limit service's messages as JSON.
    Json,
    /// Ready or not, as envoyproxy/ratelimit says it.
    HealthCheck,
    Live,
    Ready,
    /// A verb applied to the limits of a request.
    Apply(Verb),
    Release,
    Explain,
    Rules,
    OpenApi,
}

/// Which methods a route has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Methods {
    Any,
    Get,
    Post,
}

impl Methods {
    fn has(self, method: &Method) -> bool {
        match self {
            Methods::Any => true,
            Methods::Get => method == Method::GET || method == Method::HEAD,
            Methods::Post => method == Method::POST,
        }
    }

    /// The `Allow` field.
    pub(super) const fn allow(self) -> &'static str {
        match self {
            Methods::Any => "GET, HEAD, POST, PUT",
            Methods::Get => "GET, HEAD",
            Methods::Post => "POST",
        }
    }
}

/// Every route. The first is the one that is asked for most.
pub(super) const ROUTES: &[(&str, Methods, Route)] = &[
    ("/v1/check", Methods::Post, Route::Apply(Verb::Check)),
    ("/v1/release", Methods::Post, Route::Release),
    ("/v1/peek", Methods::Post, Route::Apply(Verb::Peek)),
    ("/v1/refund", Methods::Post, Route::Apply(Verb::Refund)),
    ("/v1/reset", Methods::Post, Route::Apply(Verb::Reset)),
    ("/v1/explain", Methods::Post, Route::Explain),
    ("/v1/rules", Methods::Get, Route::Rules),
    ("/v1/openapi.json", Methods::Get, Route::OpenApi),
    ("/json", Methods::Any, Route::Json),
    ("/healthcheck", Methods::Get, Route::HealthCheck),
    ("/livez", Methods::Get, Route::Live),
    ("/readyz", Methods::Get, Route::Ready),
];

/// Why a request leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Astray {
    /// No route has this path.
    NotFound,
    /// The route has other methods.
    MethodNotAllowed(Methods),
}

pub(super) fn route(method: &Method, path: &str) -> Result<Route, Astray> {
    let found = ROUTES.iter().find(|(known, ..)| *known == path);
    let Some((_, methods, route)) = found else { return Err(Astray::NotFound) };
    if methods.has(method) { Ok(*route) } else { Err(Astray::MethodNotAllowed(*methods)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_found_by_its_path_and_method() {
        assert_eq!(route(&Method::POST, "/v1/check"), Ok(Route::Apply(Verb::Check)));
        assert_eq!(route(&Method::HEAD, "/livez"), Ok(Route::Live));
        assert_eq!(route(&Method::PUT, "/json"), Ok(Route::Json));
    }

    #[test]
    fn what_leads_nowhere_says_why() {
        assert_eq!(route(&Method::POST, "/v1/check/"), Err(Astray::NotFound));
        assert_eq!(route(&Method::POST, ""), Err(Astray::NotFound));
        let wrong = route(&Method::GET, "/v1/check");
        assert_eq!(wrong, Err(Astray::MethodNotAllowed(Methods::Post)));
    }
}
