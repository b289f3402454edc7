//! The rules service: the database over HTTP.
//!
//! Every request has a token; its roles say what it may do, its owner whose entries. Writes name the state that they
//! change (`If-Match`, `If-None-Match`, or `base`), so that nobody overwrites what they have not seen. A rejection is a
//! problem (RFC 9457) with the place of each fault, and leaves everything as it was. [`RulesService`] is a service of HTTP
//! requests; sockets belong to the server.

mod answer;
mod drafts;
mod entries;
mod operations;
mod routes;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderMap;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::service::Service;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tidegate_access::{AccessToken, AccessTokens, BodyLimits, Role, read_body};
use tidegate_algorithms::Clock;

use crate::cell::CellSettings;
use crate::change::Author;
use crate::database::{AuditEvent, NodeReport, RulesDatabase};
use crate::error::PlaneError;
use crate::publisher::Broadcast;

pub use answer::ApiBody;
use answer::{Answer, Rejection, json, text};
pub use operations::new_token;
use routes::{Action, FoundRoute, Query};

/// The OpenAPI document. Written by hand; tests compare it with the routes and with real answers.
pub const OPENAPI: &str = include_str!("service/openapi.json");
/// The largest body: 100,000 rows.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Reports that wait to be stored.
const REPORTS_MAX: usize = 4_096;

/// The rules service. Clones are cheap and share everything.
#[derive(Clone)]
pub struct RulesService(Arc<ServiceState>);

struct ServiceState {
    database: Arc<RulesDatabase>,
    cell: CellSettings,
    clock: Arc<dyn Clock>,
    tokens: AccessTokens,
    /// The owner of each token that has one, by the token's name.
    owners: Mutex<HashMap<String, String>>,
    /// Reports of nodes since the last [`RulesService::tick`]; the newest of each node.
    reports: Mutex<HashMap<String, (u64, NodeReport)>>,
    broadcast: Arc<Broadcast>,
}

/// A request that has access.
struct Caller<'c> {
    author: Author,
    headers: &'c HeaderMap,
    query: Query<'c>,
    body: Bytes,
}

impl RulesService {
    /// A service of this database.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub async fn start(
        database: Arc<RulesDatabase>,
        cell: CellSettings,
        clock: Arc<dyn Clock>,
        broadcast: Arc<Broadcast>,
    ) -> Result<Self, PlaneError> {
        let shared = ServiceState {
            database,
            cell,
            clock,
            tokens: AccessTokens::default(),
            owners: Mutex::default(),
            reports: Mutex::default(),
            broadcast,
        };
        let service = RulesService(Arc::new(shared));
        service.refresh_tokens().await?;
        Ok(service)
    }

    /// Work between requests, about once a second: stores the reports of nodes, and learns of tokens that another
    /// control node added or removed.
    ///
    /// # Errors
    /// When the database is unavailable. The next call does what is left.
    pub async fn tick(&self) -> Result<(), PlaneError> {
        let reports: Vec<_> = self.0.reports.lock().drain().collect();
        if !reports.is_empty() {
            let flat = reports.into_iter().map(|(node, (at, report))| (node, at, report)).collect();
            self.0.database.store_reports(flat).await?;
        }
        self.refresh_tokens().await
    }

    async fn refresh_tokens(&self) -> Result<(), PlaneError> {
        let stored = self.0.database.tokens().await?;
        let mut tokens = Vec::with_capacity(stored.len());
        let mut owners = HashMap::new();
        for token in &stored {
            let words = format!("{} {} {} {}", token.hash, token.name, token.roles, token.expires);
            let parsed: AccessToken = words.trim_end().parse().map_err(|error| {
                PlaneError::Damaged(format!("the token `{}`: {error}", token.name))
            })?;
            tokens.push(parsed);
            if !token.owner.is_empty() {
                owners.insert(token.name.clone(), token.owner.clone());
            }
        }
        *self.0.owners.lock() = owners;
        self.0.tokens.replace(&AccessTokens::new(tokens));
        Ok(())
    }

    fn now_millis(&self) -> u64 {
        self.0.clock.now().as_millis()
    }

    async fn answer<B: Body<Data = Bytes>>(&self, head: &Parts, body: B) -> Answer {
        self.respond(head, body).await.unwrap_or_else(Answer::from)
    }

    async fn respond<B: Body<Data = Bytes>>(
        &self,
        head: &Parts,
        body: B,
    ) -> Result<Answer, Rejection> {
        let found = routes::find(&head.method, head.uri.path())?;
        let author = match found.role {
            None => Author::default(),
            Some(role) => self.authorize(&head.headers, role)?,
        };
        let limits = BodyLimits { bytes_max: BODY_BYTES_MAX, timeout: BODY_TIMEOUT };
        let caller = Caller {
            author,
            headers: &head.headers,
            query: Query::new(head.uri.query().unwrap_or_default()),
            body: read_body(body, limits).await?,
        };
        let outcome = self.run(&found, &caller).await;
        if let Err(rejection) = &outcome
            && changes(found.action)
        {
            self.record_refusal(&caller, head, rejection).await;
        }
        outcome
    }

    async fn run(&self, found: &FoundRoute, caller: &Caller<'_>) -> Result<Answer, Rejection> {
        let parts: Vec<&str> = found.parts.iter().map(String::as_str).collect();
        match (found.action, parts.as_slice()) {
            (Action::Live, _) => Ok(text(StatusCode::OK, "live\n")),
            (Action::OpenApi, _) => Ok(answer::document(OPENAPI)),
            (Action::Ready, _) => operations::ready(self).await,
            (Action::Metrics, _) => Ok(text(StatusCode::OK, operations::metrics(self))),
            (Action::Status, _) => operations::status(self).await,
            (Action::ListEntries, [kind]) => entries::list(self, kind, &caller.query).await,
            (Action::GetEntry, [kind, collection, name]) => {
                entries::get(self, entries::key(kind, collection, name)?, &caller.query).await
            }
            (Action::PutEntry, [kind, collection, name]) => {
                entries::put(self, entries::key(kind, collection, name)?, caller).await
            }
            (Action::DeleteEntry, [kind, collection, name]) => {
                entries::delete(self, entries::key(kind, collection, name)?, caller).await
            }
            (Action::Change, _) => entries::change(self, caller).await,
            (Action::ListVersions, _) => entries::versions(self, &caller.query).await,
            (Action::GetVersion, [version]) => entries::version(self, version).await,
            (Action::Restore, [version]) => entries::restore(self, version, caller).await,
            (Action::Compare, _) => entries::compare(self, &caller.query).await,
            (Action::ListDrafts, _) => drafts::list(self).await,
            (Action::GetDraft, [name]) => drafts::get(self, name).await,
            (Action::PutDraft, [name]) => drafts::put(self, name, caller).await,
            (Action::DeleteDraft, [name]) => drafts::delete(self, name).await,
            (Action::CheckDraft, [name]) => drafts::check(self, name, caller).await,
            (Action::ReviewDraft, [name]) => drafts::review(self, name, caller).await,
            (Action::PublishDraft, [name]) => drafts::publish(self, name, caller).await,
            (Action::ListTokens, _) => operations::tokens(self).await,
            (Action::AddToken, _) => operations::add_token(self, caller).await,
            (Action::RemoveToken, [name]) => operations::remove_token(self, name, caller).await,
            (Action::Audit, _) => operations::audit(self, &caller.query).await,
            (Action::VerifyAudit, _) => {
                Ok(json(StatusCode::OK, &self.0.database.verify_audit().await?))
            }
            (Action::ListNodes, _) => operations::nodes(self).await,
            (Action::Report, [node]) => operations::report(self, node, caller),
            (Action::Publisher, _) => Ok(json(StatusCode::OK, &self.0.broadcast.status())),
            (Action::AllowGuards, _) => operations::allow_guards(self, caller).await,
            (Action::StartEpoch, _) => operations::start_epoch(self, caller).await,
            (Action::Snapshot, [ring]) => operations::snapshot(self, ring),
            // The number of open parts is that of the pattern.
            _ => Err(Rejection::new(StatusCode::NOT_FOUND, "there is no such route")),
        }
    }

    /// The author of a request whose token has this role.
    fn authorize(&self, headers: &HeaderMap, role: Role) -> Result<Author, Rejection> {
        let name = self.0.tokens.authorize(headers, role, self.0.clock.now())?;
        let owner = self.0.owners.lock().get(&name).cloned().unwrap_or_default();
        Ok(Author { name, owner })
    }

    /// Puts a refused change into the audit. A full disk must not hide the refusal from the caller.
    async fn record_refusal(&self, caller: &Caller<'_>, head: &Parts, rejection: &Rejection) {
        let event = AuditEvent {
            actor: caller.author.name.clone(),
            action: "refused",
            object: format!("{} {}", head.method, head.uri.path()),
            outcome: format!("{} {}", rejection.status().as_u16(), rejection.detail()),
            why: String::new(),
        };
        if let Err(error) = self.0.database.record(event, self.now_millis()).await {
            tracing::warn!(%error, "a refused change could not be recorded in the audit");
        }
    }
}

const fn changes(action: Action) -> bool {
    matches!(
        action,
        Action::PutEntry
            | Action::DeleteEntry
            | Action::Change
            | Action::Restore
            | Action::PutDraft
            | Action::DeleteDraft
            | Action::ReviewDraft
            | Action::PublishDraft
            | Action::AddToken
            | Action::RemoveToken
            | Action::AllowGuards
            | Action::StartEpoch
    )
}

/// Reads a JSON body.
fn read_json<T: DeserializeOwned>(body: &[u8], example: &str) -> Result<T, Rejection> {
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("the body is JSON such as `{example}`: {error}");
        Rejection::new(StatusCode::BAD_REQUEST, detail)
    })
}

impl<B> Service<Request<B>> for RulesService
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            Ok(service.answer(&head, body).await)
        })
    }
}

impl fmt::Debug for RulesService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesService").field("cell", &self.0.cell).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
