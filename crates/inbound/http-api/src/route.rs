//! The routes: method and path.
//!
//! One table holds every route. A test compares it with the OpenAPI document.

use http::Method;
use tidegate_access::Role;
use tidegate_engine::Verb;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The rate limit service's messages as JSON.
    Json,
    /// Readiness, as envoyproxy/ratelimit answers it.
    HealthCheck,
    Live,
    Ready,
    /// A verb applied to the limits of a request.
    Apply(Verb),
    Release,
    Slices,
    Explain,
    Rules,
    OpenApi,
}

impl Route {
    /// The role that it needs, if any. The health of the process and the description of the API are open.
    pub(super) const fn role(self) -> Option<Role> {
        match self {
            Route::HealthCheck | Route::Live | Route::Ready | Route::OpenApi => None,
            Route::Apply(Verb::Peek) | Route::Explain | Route::Rules => Some(Role::Read),
            Route::Apply(Verb::Refund | Verb::Reset) => Some(Role::Change),
            Route::Apply(Verb::Check | Verb::Take | Verb::Charge)
            | Route::Json
            | Route::Release
            | Route::Slices => Some(Role::Check),
        }
    }
}

/// The methods of a route.
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

/// Every route, the most used first.
pub(super) const ROUTES: &[(&str, Methods, Route)] = &[
    ("/v1/check", Methods::Post, Route::Apply(Verb::Check)),
    ("/v1/release", Methods::Post, Route::Release),
    ("/v1/slices", Methods::Post, Route::Slices),
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

/// Why a request has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteError {
    /// No route has this path.
    NotFound,
    /// The route has other methods.
    MethodNotAllowed(Methods),
}

pub(super) fn route(method: &Method, path: &str) -> Result<Route, RouteError> {
    let found = ROUTES.iter().find(|(known, ..)| *known == path);
    let Some((_, methods, route)) = found else { return Err(RouteError::NotFound) };
    if methods.has(method) { Ok(*route) } else { Err(RouteError::MethodNotAllowed(*methods)) }
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
    fn a_request_without_a_route_is_an_error() {
        assert_eq!(route(&Method::POST, "/v1/check/"), Err(RouteError::NotFound));
        assert_eq!(route(&Method::POST, ""), Err(RouteError::NotFound));
        let wrong = route(&Method::GET, "/v1/check");
        assert_eq!(wrong, Err(RouteError::MethodNotAllowed(Methods::Post)));
    }
}
