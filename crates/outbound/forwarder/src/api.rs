//! The HTTP API of a forwarder: enqueue records, follow jobs, look at targets, steer.
//!
//! A batch is answered with 202 only after its records are durable. Tokens have roles: `check` enqueues and follows jobs,
//! `read` looks at everything, `change` steers. A token that belongs to a tenant enqueues for that tenant and sees only its
//! jobs. [`ForwardApi`] is a service of HTTP requests; sockets belong to the server.

mod answer;
mod dead_letters;
mod events;
mod records;
mod routes;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use hyper::service::Service;
use serde::{Deserialize, Serialize};
use tidegate_access::{AccessError, AccessPolicy, BodyError, BodyLimits, Role, read_body};
use tidegate_capacity::{ChangeLimitsError, TargetLimit, TargetLimits};
use tidegate_metrics::{Collector, Exposition, Format};

use crate::forwarder::Forwarder;
use crate::lane::LaneMode;

pub use answer::ApiBody;
use answer::{Answer, Problem, json, text};
use routes::{Route, route};

/// The settings of the API.
#[derive(Clone, Debug)]
pub struct ForwardApiSettings {
    /// Who has access.
    pub access: AccessPolicy,
    /// The tenant of each token, by the token's name. Tokens without a tenant act for all of them.
    pub tenants: HashMap<String, String>,
    /// The largest body.
    pub body_bytes_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Header fields of records that are kept although they are secrets, such as `authorization`; lower case.
    pub kept_secrets: Vec<String>,
}

impl Default for ForwardApiSettings {
    /// Open on loopback, bodies of 32 MiB within 30 s.
    fn default() -> Self {
        ForwardApiSettings {
            access: AccessPolicy::local(),
            tenants: HashMap::new(),
            body_bytes_max: 32 * 1024 * 1024,
            body_timeout: Duration::from_secs(30),
            kept_secrets: Vec::new(),
        }
    }
}

/// The API of a forwarder. Clones are cheap and share everything.
#[derive(Clone)]
pub struct ForwardApi {
    forwarder: Arc<Forwarder>,
    settings: Arc<ForwardApiSettings>,
}

/// A change of limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsChange {
    limits: Vec<TargetLimit>,
}

/// A member of a target, as the API shows it.
#[derive(Debug, Serialize)]
struct LeaseView {
    target: String,
    member: String,
    pool: String,
    wants: u16,
    slots: usize,
    of: u16,
}

impl ForwardApi {
    /// An API to this forwarder.
    pub fn new(forwarder: Arc<Forwarder>, settings: ForwardApiSettings) -> Self {
        ForwardApi { forwarder, settings: Arc::new(settings) }
    }

    async fn answer<B: Body<Data = Bytes>>(&self, head: &Parts, body: B) -> Answer {
        self.respond(head, body).await.unwrap_or_else(Answer::from)
    }

    async fn respond<B: Body<Data = Bytes>>(
        &self,
        head: &Parts,
        body: B,
    ) -> Result<Answer, Problem> {
        let found = route(&head.method, head.uri.path())?;
        let tenant = self.authorize(found.role(), &head.headers)?;
        let query = head.uri.query().unwrap_or_default();
        match found {
            Route::Live => Ok(text(StatusCode::OK, "live\n".to_owned())),
            Route::Metrics => Ok(text(StatusCode::OK, self.metrics())),
            Route::Enqueue => {
                let body = self.read(body).await?;
                records::enqueue(self, query, tenant, &body).await
            }
            Route::Job(job) => records::job(self, &job, tenant.as_deref()).await,
            Route::JobEvents(job) => events::job(self, job, tenant).await,
            Route::Types => self.types().await,
            Route::Leases => self.leases().await,
            Route::SetLimits(target) => {
                let body = self.read(body).await?;
                self.set_limits(&target, &body).await
            }
            Route::SetMode(record_type, mode) => self.set_mode(&record_type, mode),
            Route::DeadList(record_type) => dead_letters::list(self, &record_type, query).await,
            Route::DeadShow(record_type, id) => dead_letters::show(self, &record_type, &id).await,
            Route::DeadRedrive(record_type) => {
                let body = self.read(body).await?;
                dead_letters::redrive(self, &record_type, &body).await
            }
            Route::DeadPurge(record_type) => {
                let body = self.read(body).await?;
                dead_letters::purge(self, &record_type, &body).await
            }
        }
    }

    /// Checks the access to a route. Returns the tenant of the token.
    fn authorize(
        &self,
        role: Option<Role>,
        headers: &HeaderMap,
    ) -> Result<Option<String>, Problem> {
        let Some(role) = role else { return Ok(None) };
        let access = &self.settings.access;
        let denied = |error: AccessError| Problem::new(error.status(), error.to_string());
        if access.tokens.is_empty() {
            access.authorize(headers, role, || self.forwarder.now()).map_err(denied)?;
            return Ok(None);
        }
        let name = access.tokens.authorize(headers, role, self.forwarder.now()).map_err(denied)?;
        let tenant = self.settings.tenants.get(&name).cloned();
        if tenant.is_some() && role != Role::Check {
            let detail = format!(
                "the token `{name}` belongs to a tenant and only enqueues and follows jobs"
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(tenant)
    }

    async fn read<B: Body<Data = Bytes>>(&self, body: B) -> Result<Bytes, Problem> {
        let bytes_max = self.settings.body_bytes_max;
        let limits = BodyLimits { bytes_max, timeout: self.settings.body_timeout };
        read_body(body, limits).await.map_err(|error| match error {
            BodyError::TooLarge => {
                let detail =
                    format!("a body may have up to {bytes_max} bytes; send smaller batches");
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
            }
            BodyError::TooSlow => {
                Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
            }
            BodyError::Aborted => Problem::new(StatusCode::BAD_REQUEST, "the body ended early"),
        })
    }

    fn metrics(&self) -> String {
        let mut page = Exposition::new(Format::Prometheus);
        self.forwarder.collect(&mut page);
        page.finish()
    }

    async fn types(&self) -> Result<Answer, Problem> {
        let mut found = Vec::new();
        for record_type in self.forwarder.types() {
            found.extend(self.forwarder.status(&record_type).await?);
        }
        Ok(json(StatusCode::OK, &serde_json::json!({ "types": found })))
    }

    async fn leases(&self) -> Result<Answer, Problem> {
        let mut leases = Vec::new();
        for target in self.forwarder.targets() {
            let document = self.forwarder.leases().document(&target).await.map_err(|error| {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            })?;
            let Some(document) = document else { continue };
            leases.extend(document.holders().map(|holder| LeaseView {
                target: target.clone(),
                member: holder.member.to_owned(),
                pool: holder.pool.to_owned(),
                wants: holder.wants,
                slots: holder.slots,
                of: document.limits().slots(),
            }));
        }
        Ok(json(StatusCode::OK, &serde_json::json!({ "leases": leases })))
    }

    async fn set_limits(&self, target: &str, body: &[u8]) -> Result<Answer, Problem> {
        let change: LimitsChange = serde_json::from_slice(body).map_err(|error| {
            let detail = format!(
                "the body must be `{{\"limits\": [{{\"dimension\": \"units\", \"amount\": 1, \"window_ms\": 1000}}]}}`: {error}"
            );
            Problem::new(StatusCode::BAD_REQUEST, detail)
        })?;
        let leases = self.forwarder.leases();
        let document = leases.document(target).await;
        let slots = document
            .ok()
            .flatten()
            .map_or(TargetLimits::SLOTS_DEFAULT, |document| document.limits().slots());
        let limits = TargetLimits::with_slots(change.limits, slots)
            .map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
        leases.change_limits(target, &limits).await.map_err(|error| {
            let status = match error {
                ChangeLimitsError::Limits(_) => StatusCode::UNPROCESSABLE_ENTITY,
                ChangeLimitsError::UnknownTarget(_) => StatusCode::NOT_FOUND,
                ChangeLimitsError::Heartbeat(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            Problem::new(status, error.to_string())
        })?;
        Ok(json(
            StatusCode::OK,
            &serde_json::json!({ "target": target, "limits": limits.limits() }),
        ))
    }

    fn set_mode(&self, record_type: &str, mode: LaneMode) -> Result<Answer, Problem> {
        if !self.forwarder.set_mode(record_type, mode) {
            return Err(Problem::unknown_type(record_type));
        }
        let view = serde_json::json!({ "record_type": record_type, "mode": mode.as_str() });
        Ok(json(StatusCode::OK, &view))
    }
}

impl<B> Service<Request<B>> for ForwardApi
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            Ok(api.answer(&head, body).await)
        })
    }
}

impl fmt::Debug for ForwardApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardApi").field("forwarder", &self.forwarder).finish_non_exhaustive()
    }
}
