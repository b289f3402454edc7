//! The routes: method and path.
//!
//! One table holds every route. A test compares it with the OpenAPI document.

use http::{Method, StatusCode};
use tidegate_access::Role;

use super::answer::Problem;
use crate::lane::LaneMode;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Live,
    OpenApi,
    Metrics,
    Enqueue,
    Job,
    JobEvents,
    Types,
    Targets,
    Leases,
    SetLimits,
    SetMode(LaneMode),
    DeadList,
    DeadShow,
    DeadRedrive,
    DeadPurge,
}

impl Route {
    /// The role that it needs, if any. The health of the process and the description of the API are open.
    pub(super) const fn role(self) -> Option<Role> {
        match self {
            Route::Live | Route::OpenApi => None,
            Route::Enqueue | Route::Job | Route::JobEvents => Some(Role::Check),
            Route::Metrics
            | Route::Types
            | Route::Targets
            | Route::Leases
            | Route::DeadList
            | Route::DeadShow => Some(Role::Read),
            Route::SetLimits | Route::SetMode(_) | Route::DeadRedrive | Route::DeadPurge => {
                Some(Role::Change)
            }
        }
    }

    /// Whether it stores or changes something.
    pub(super) fn writes(self) -> bool {
        self == Route::Enqueue || self.role() == Some(Role::Change)
    }
}

/// Every route. A part in braces is a parameter.
pub(super) static ROUTES: &[(Method, &str, Route)] = &[
    (Method::POST, "/v1/records", Route::Enqueue),
    (Method::GET, "/v1/jobs/{job}", Route::Job),
    (Method::GET, "/v1/jobs/{job}/events", Route::JobEvents),
    (Method::GET, "/v1/types", Route::Types),
    (Method::POST, "/v1/types/{type}/pause", Route::SetMode(LaneMode::Paused)),
    (Method::POST, "/v1/types/{type}/resume", Route::SetMode(LaneMode::Running)),
    (Method::POST, "/v1/types/{type}/drain", Route::SetMode(LaneMode::Draining)),
    (Method::GET, "/v1/types/{type}/dead", Route::DeadList),
    (Method::POST, "/v1/types/{type}/dead/redrive", Route::DeadRedrive),
    (Method::POST, "/v1/types/{type}/dead/purge", Route::DeadPurge),
    (Method::GET, "/v1/types/{type}/dead/{id}", Route::DeadShow),
    (Method::GET, "/v1/targets", Route::Targets),
    (Method::PUT, "/v1/targets/{target}/limits", Route::SetLimits),
    (Method::GET, "/v1/leases", Route::Leases),
    (Method::GET, "/v1/openapi.json", Route::OpenApi),
    (Method::GET, "/metrics", Route::Metrics),
    (Method::GET, "/livez", Route::Live),
];

/// The route of a request, with the parameters of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteMatch<'p> {
    pub(super) route: Route,
    parameters: Vec<&'p str>,
}

impl<'p> RouteMatch<'p> {
    /// A parameter; empty if the route has fewer.
    pub(super) fn parameter(&self, index: usize) -> &'p str {
        self.parameters.get(index).copied().unwrap_or_default()
    }
}

/// Finds the route of a request.
pub(super) fn route<'p>(method: &Method, path: &'p str) -> Result<RouteMatch<'p>, Problem> {
    let mut wanted = None;
    for (expected, template, route) in ROUTES {
        let Some(parameters) = match_path(template, path) else { continue };
        if method == expected {
            return Ok(RouteMatch { route: *route, parameters });
        }
        wanted = wanted.or(Some(expected));
    }
    Err(match wanted {
        Some(wanted) => {
            let detail = format!("this route takes {wanted}");
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        }
        None => {
            let detail = "there is no such route; `/v1/openapi.json` lists them";
            Problem::new(StatusCode::NOT_FOUND, detail)
        }
    })
}

/// The parameters of a path that a template matches.
fn match_path<'p>(template: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let mut parameters = Vec::new();
    let mut parts = path.split('/');
    for wanted in template.split('/') {
        let part = parts.next()?;
        if wanted.starts_with('{') {
            parameters.push(part);
        } else if wanted != part {
            return None;
        }
    }
    parts.next().is_none().then_some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_its_route_and_its_parameters() {
        let found = route(&Method::GET, "/v1/types/orders/dead/01JCW").unwrap();
        assert_eq!((found.route, found.parameter(0)), (Route::DeadShow, "orders"));
        assert_eq!((found.parameter(1), found.parameter(2)), ("01JCW", ""));
        let redrive = route(&Method::POST, "/v1/types/orders/dead/redrive").unwrap();
        assert_eq!(redrive.route, Route::DeadRedrive);
        for (method, path, status) in [
            (Method::GET, "/v1/types/orders/dead/", None),
            (Method::GET, "/v1/types/orders/pause", Some(StatusCode::METHOD_NOT_ALLOWED)),
            (Method::GET, "/v1/nothing", Some(StatusCode::NOT_FOUND)),
            (Method::GET, "", Some(StatusCode::NOT_FOUND)),
        ] {
            let refused = route(&method, path).err().map(|problem| problem.status());
            assert_eq!(refused, status, "{path}");
        }
    }
}
