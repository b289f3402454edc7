//! The routes: method and path.

use http::{Method, StatusCode};
use tidegate_access::Role;

use super::answer::Problem;
use crate::lane::LaneMode;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Live,
    Metrics,
    Enqueue,
    Job(String),
    JobEvents(String),
    Types,
    Leases,
    SetLimits(String),
    SetMode(String, LaneMode),
    DeadList(String),
    DeadShow(String, String),
    DeadRedrive(String),
    DeadPurge(String),
}

impl Route {
    /// The role that it needs, if any.
    pub(super) const fn role(&self) -> Option<Role> {
        match self {
            Route::Live => None,
            Route::Enqueue | Route::Job(_) | Route::JobEvents(_) => Some(Role::Check),
            Route::Metrics
            | Route::Types
            | Route::Leases
            | Route::DeadList(_)
            | Route::DeadShow(..) => Some(Role::Read),
            Route::SetLimits(_)
            | Route::SetMode(..)
            | Route::DeadRedrive(_)
            | Route::DeadPurge(_) => Some(Role::Change),
        }
    }
}

/// Finds the route of a request.
pub(super) fn route(method: &Method, path: &str) -> Result<Route, Problem> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (wanted, found) = match parts.as_slice() {
        ["livez"] => (Method::GET, Route::Live),
        ["metrics"] => (Method::GET, Route::Metrics),
        ["v1", "records"] => (Method::POST, Route::Enqueue),
        ["v1", "jobs", job] => (Method::GET, Route::Job((*job).to_owned())),
        ["v1", "jobs", job, "events"] => (Method::GET, Route::JobEvents((*job).to_owned())),
        ["v1", "types"] => (Method::GET, Route::Types),
        ["v1", "leases"] => (Method::GET, Route::Leases),
        ["v1", "targets", target, "limits"] => {
            (Method::PUT, Route::SetLimits((*target).to_owned()))
        }
        ["v1", "types", name, word @ ("pause" | "resume" | "drain")] => {
            let mode = match *word {
                "pause" => LaneMode::Paused,
                "drain" => LaneMode::Draining,
                _ => LaneMode::Running,
            };
            (Method::POST, Route::SetMode((*name).to_owned(), mode))
        }
        ["v1", "types", name, "dead"] => (Method::GET, Route::DeadList((*name).to_owned())),
        ["v1", "types", name, "dead", "redrive"] => {
            (Method::POST, Route::DeadRedrive((*name).to_owned()))
        }
        ["v1", "types", name, "dead", "purge"] => {
            (Method::POST, Route::DeadPurge((*name).to_owned()))
        }
        ["v1", "types", name, "dead", id] => {
            (Method::GET, Route::DeadShow((*name).to_owned(), (*id).to_owned()))
        }
        _ => {
            let detail = "there is no such route; docs/forwarder.md lists them";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
    };
    if *method == wanted {
        return Ok(found);
    }
    let detail = format!("this route takes {wanted}");
    Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail))
}
