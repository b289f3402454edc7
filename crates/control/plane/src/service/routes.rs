//! The routes: method, path, and the role that each needs.

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use tidegate_access::Role;

use super::answer::Rejection;

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Live,
    Ready,
    Metrics,
    OpenApi,
    Status,
    ListEntries,
    GetEntry,
    PutEntry,
    DeleteEntry,
    Change,
    ListVersions,
    GetVersion,
    Restore,
    Compare,
    ListDrafts,
    GetDraft,
    PutDraft,
    DeleteDraft,
    CheckDraft,
    ReviewDraft,
    PublishDraft,
    ListTokens,
    AddToken,
    RemoveToken,
    Audit,
    VerifyAudit,
    ListNodes,
    Report,
    Publisher,
    AllowGuards,
    StartEpoch,
    Snapshot,
}

/// A route. In a path, `{…}` stands for one part.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// The role that it needs at least; changes of entries need more, by what they change.
    pub(super) role: Option<Role>,
    pub(super) action: Action,
}

const fn open(path: &'static str, action: Action) -> Route {
    Route { method: Method::GET, path, role: None, action }
}

const fn route(method: Method, path: &'static str, role: Role, action: Action) -> Route {
    Route { method, path, role: Some(role), action }
}

pub(super) const ROUTES: &[Route] = &[
    open("/livez", Action::Live),
    open("/readyz", Action::Ready),
    open("/openapi.json", Action::OpenApi),
    route(Method::GET, "/metrics", Role::Read, Action::Metrics),
    route(Method::GET, "/v1/status", Role::Read, Action::Status),
    route(Method::GET, "/v1/entries/{kind}", Role::Read, Action::ListEntries),
    route(Method::GET, "/v1/entries/{kind}/{collection}/{name}", Role::Read, Action::GetEntry),
    route(Method::PUT, "/v1/entries/{kind}/{collection}/{name}", Role::Change, Action::PutEntry),
    route(
        Method::DELETE,
        "/v1/entries/{kind}/{collection}/{name}",
        Role::Change,
        Action::DeleteEntry,
    ),
    route(Method::POST, "/v1/changes", Role::Change, Action::Change),
    route(Method::GET, "/v1/versions", Role::Read, Action::ListVersions),
    route(Method::GET, "/v1/versions/{version}", Role::Read, Action::GetVersion),
    route(Method::POST, "/v1/versions/{version}/restore", Role::Operate, Action::Restore),
    route(Method::GET, "/v1/diff", Role::Read, Action::Compare),
    route(Method::GET, "/v1/drafts", Role::Read, Action::ListDrafts),
    route(Method::GET, "/v1/drafts/{draft}", Role::Read, Action::GetDraft),
    route(Method::PUT, "/v1/drafts/{draft}", Role::Change, Action::PutDraft),
    route(Method::DELETE, "/v1/drafts/{draft}", Role::Change, Action::DeleteDraft),
    route(Method::POST, "/v1/drafts/{draft}/check", Role::Read, Action::CheckDraft),
    route(Method::POST, "/v1/drafts/{draft}/review", Role::Approve, Action::ReviewDraft),
    route(Method::POST, "/v1/drafts/{draft}/publish", Role::Change, Action::PublishDraft),
    route(Method::GET, "/v1/tokens", Role::Admin, Action::ListTokens),
    route(Method::POST, "/v1/tokens", Role::Admin, Action::AddToken),
    route(Method::DELETE, "/v1/tokens/{token}", Role::Admin, Action::RemoveToken),
    route(Method::GET, "/v1/audit", Role::Read, Action::Audit),
    route(Method::GET, "/v1/audit/verify", Role::Read, Action::VerifyAudit),
    route(Method::GET, "/v1/nodes", Role::Read, Action::ListNodes),
    route(Method::POST, "/v1/nodes/{node}/report", Role::Node, Action::Report),
    route(Method::GET, "/v1/publisher", Role::Read, Action::Publisher),
    route(Method::POST, "/v1/publisher/allow", Role::Operate, Action::AllowGuards),
    route(Method::POST, "/v1/publisher/epoch", Role::Admin, Action::StartEpoch),
    route(Method::GET, "/v1/snapshot/{ring}", Role::Node, Action::Snapshot),
];

/// A request's route, and the parts of its path that the route leaves open, decoded.
pub(super) struct FoundRoute {
    pub(super) role: Option<Role>,
    pub(super) action: Action,
    pub(super) parts: Vec<String>,
}

/// Finds the route of a request.
pub(super) fn find(method: &Method, path: &str) -> Result<FoundRoute, Rejection> {
    let mut other_methods = Vec::new();
    for route in ROUTES {
        let Some(parts) = match_path(route.path, path) else { continue };
        if route.method != *method {
            other_methods.push(route.method.as_str());
            continue;
        }
        let decode =
            |part: &str| percent_decode_str(part).decode_utf8().map(|text| text.into_owned());
        let parts = parts.into_iter().map(decode).collect::<Result<_, _>>().map_err(|_| {
            Rejection::new(StatusCode::BAD_REQUEST, "the path is not UTF-8 once it is decoded")
        })?;
        return Ok(FoundRoute { role: route.role, action: route.action, parts });
    }
    if other_methods.is_empty() {
        let detail = "there is no such route; `/openapi.json` lists them";
        return Err(Rejection::new(StatusCode::NOT_FOUND, detail));
    }
    let detail = format!("this route takes {}", other_methods.join(", "));
    Err(Rejection::new(StatusCode::METHOD_NOT_ALLOWED, detail))
}

fn match_path<'p>(pattern: &str, path: &'p str) -> Option<Vec<&'p str>> {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    let mut open = Vec::new();
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return Some(open),
            (Some(wanted), Some(part)) if wanted.starts_with('{') => open.push(part),
            (Some(wanted), Some(part)) if wanted == part => {}
            _ => return None,
        }
    }
}

/// The fields of a query, decoded.
pub(super) struct Query<'q>(&'q str);

impl<'q> Query<'q> {
    pub(super) const fn new(text: &'q str) -> Self {
        Query(text)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = self.0.split('&').find_map(|field| {
            let (own, value) = field.split_once('=')?;
            (own == name).then_some(value)
        })?;
        let value = value.replace('+', " ");
        Some(percent_decode_str(&value).decode_utf8_lossy().into_owned())
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Rejection> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            let detail = format!("`{name}` is a whole number, not `{text}`");
            Rejection::new(StatusCode::BAD_REQUEST, detail)
        })
    }
}
