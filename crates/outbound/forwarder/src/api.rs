//! The HTTP API of a forwarder: enqueue records, follow jobs, look at targets, steer.
//!
//! A batch is answered with 202 only after its records are durable. Tokens have roles: `check` enqueues and follows jobs,
//! `read` looks at everything, `change` steers. A token that belongs to a tenant enqueues for that tenant and sees only its
//! jobs. [`ForwardApi`] is a service of HTTP requests; sockets belong to the server. It serves the OpenAPI document that
//! describes it; tests compare the two.

mod answer;
mod dead_letters;
mod events;
mod openapi;
mod records;
mod routes;
mod targets;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::service::Service;
use tidegate_access::{
    AccessError, AccessPolicy, BodyError, BodyLimits, HostNames, Role, read_body,
};
use tidegate_metrics::{Collector, Exposition, Format};

use crate::forwarder::Forwarder;
use crate::lane::LaneMode;

pub use answer::ApiBody;
use answer::{Answer, Problem, json, text};
use dead_letters::DeadLetterAction;
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
    /// Whether records are accepted. A process that only works on records refuses them.
    pub accepts_records: bool,
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
            accepts_records: true,
        }
    }
}

/// The API of a forwarder. Clones are cheap and share everything.
#[derive(Clone)]
pub struct ForwardApi {
    forwarder: Arc<Forwarder>,
    settings: Arc<ForwardApiSettings>,
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
        let tenant = self.authorize(found.route, head)?;
        let query = head.uri.query().unwrap_or_default();
        let name = found.parameter(0);
        match found.route {
            Route::Live => Ok(text(StatusCode::OK, "live\n".to_owned())),
            Route::OpenApi => Ok(openapi::answer()),
            Route::Metrics => Ok(text(StatusCode::OK, self.metrics())),
            Route::Enqueue => {
                let body = self.read(body).await?;
                records::enqueue(self, query, tenant.as_deref(), &body).await
            }
            Route::Job => records::job(self, name, tenant.as_deref()).await,
            Route::JobEvents => events::job(self, name.to_owned(), tenant).await,
            Route::Types => self.types().await,
            Route::Targets => Ok(targets::list(self)),
            Route::Leases => targets::leases(self).await,
            Route::SetLimits => {
                let body = self.read(body).await?;
                targets::set_limits(self, name, &body).await
            }
            Route::SetMode(mode) => self.set_mode(name, mode),
            Route::DeadList => dead_letters::list(self, name, query).await,
            Route::DeadShow => dead_letters::show(self, name, found.parameter(1)).await,
            Route::DeadRedrive | Route::DeadPurge => {
                let body = self.read(body).await?;
                let change = match found.route {
                    Route::DeadPurge => DeadLetterAction::Purge,
                    _ => DeadLetterAction::Redrive,
                };
                dead_letters::change(self, name, change, &body).await
            }
        }
    }

    /// Checks the access to a route. Returns the tenant of the token.
    fn authorize(&self, route: Route, head: &Parts) -> Result<Option<String>, Problem> {
        let Some(role) = route.role() else { return Ok(None) };
        let (access, headers) = (&self.settings.access, &head.headers);
        let denied = |error: AccessError| Problem::new(error.status(), error.to_string());
        if access.tokens.is_empty() {
            // Only the address protects the port then, and a page in a browser on this machine reaches that.
            if !HostNames::default().accept(head) {
                let detail =
                    "without tokens this port answers to `localhost` and IP addresses only";
                return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
            }
            let role = if route.writes() { Role::Change } else { role };
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
