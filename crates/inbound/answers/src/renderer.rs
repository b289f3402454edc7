//! The one renderer of refusals and faults: HTTP, HTML, problem+json and gRPC.
//!
//! The wording of each cause is fixed, so every answer without a limit is written once, in each format, when the
//! renderer is made; sending it again costs a reference count. The answer of a limit is written when the limit first
//! refuses; only its figures (which limits, how much is used, when to retry) are written for each refusal.

mod template;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use http::{Method, Response, StatusCode};
use parking_lot::RwLock;
use tidegate_engine::{RefusalStatus, Retry};
use tidegate_overload::Category;

use crate::cause::{Cause, CauseText};
use crate::grpc;
use crate::headers::number_value;
use crate::negotiation::{AnswerFormat, Negotiation};
use crate::problem::{NO_STORE, PROBLEM_JSON, problem_of, with_figures};
use crate::refusal::{Refusal, ShedDetails};
use template::Template;
pub use template::TemplateError;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const SHED: HeaderName = HeaderName::from_static("x-tidegate-shed");
const SATURATED: HeaderName = HeaderName::from_static("x-tidegate-saturated");
const FLEET: HeaderValue = HeaderValue::from_static("fleet");

/// Limits whose answers are cached. The answers of further limits are written for each refusal.
const CACHED_LIMITS_MAX: usize = 4_096;
/// Room for the header fields of a refusal by limits: growing the map later costs two allocations.
const LIMIT_FIELDS: usize = 12;
/// The same for other answers.
const OTHER_FIELDS: usize = 6;

/// Bodies in place of the usual ones. A template is a text with `{status}`, `{code}`, `{title}`, `{detail}` and
/// `{quota}` in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Templates<'t> {
    /// In place of the problem.
    pub json: Option<&'t str>,
    /// In place of the page.
    pub html: Option<&'t str>,
}

/// Renders refusals and faults for one door or route.
#[derive(Debug)]
pub struct Renderer {
    /// In place of the problem.
    json: Option<Template>,
    html: Template,
    /// The status of refusals by limits that do not choose one.
    status: Option<RefusalStatus>,
    causes: Box<[PreparedAnswer]>,
    limits: RwLock<LimitCache>,
}

/// The answers of limits under one version of the rules.
#[derive(Debug, Default)]
struct LimitCache {
    rules_version: u64,
    answers: HashMap<(u64, Cause), Arc<PreparedAnswer>>,
}

/// One answer in every format.
#[derive(Debug)]
pub struct PreparedAnswer {
    status: StatusCode,
    json: Bytes,
    html: Bytes,
    grpc_code: u8,
    grpc_message: HeaderValue,
}

impl Renderer {
    /// A renderer with these templates. `status` is for refusals by limits that do not choose one; default 429.
    ///
    /// # Errors
    /// When the JSON template does not make JSON.
    pub fn new(
        templates: Templates<'_>,
        status: Option<RefusalStatus>,
    ) -> Result<Self, TemplateError> {
        let mut renderer = Renderer {
            json: templates.json.map(Template::json).transpose()?,
            html: Template::html(templates.html.unwrap_or(template::PAGE)),
            status,
            causes: Box::default(),
            limits: RwLock::default(),
        };
        let prepare = |cause: Cause| renderer.prepare(&cause.wording(status));
        let causes = Cause::ALL.into_iter().map(prepare).collect();
        renderer.causes = causes;
        Ok(renderer)
    }

    /// Writes an answer in every format, to be sent by [`Renderer::answer`].
    pub fn prepare(&self, wording: &CauseText<'_>) -> PreparedAnswer {
        let message = grpc::percent_encoded(&wording.detail);
        PreparedAnswer {
            status: wording.status,
            json: match &self.json {
                Some(template) => template.fill(wording),
                None => problem_of(wording),
            },
            html: self.html.fill(wording),
            grpc_code: grpc::status::code(wording.status),
            grpc_message: HeaderValue::from_maybe_shared(message)
                .unwrap_or(HeaderValue::from_static("")),
        }
    }

    /// The response to a refused request.
    pub fn render(&self, refusal: Refusal, client: &Negotiation) -> Response<Bytes> {
        let limit_answer = self.answer_of_limit(&refusal);
        let cause_answer = || self.causes.get(refusal.cause.index());
        let Some(prepared) = limit_answer.as_deref().or_else(cause_answer) else {
            return empty(refusal.cause.status(refusal.status), OTHER_FIELDS);
        };
        let format = client.format();
        if format == AnswerFormat::Grpc {
            let mut response = grpc_answer(prepared, client, Some(refusal.retry));
            add_fields(response.headers_mut(), refusal, false);
            return response;
        }
        // Under overload most answers are refusals: their bodies are shared, not written.
        let has_figures = self.json.is_none() && refusal.shed.is_none();
        let body = match format {
            AnswerFormat::Json if has_figures => with_figures(&prepared.json, &refusal),
            AnswerFormat::Json | AnswerFormat::Grpc => prepared.json.clone(),
            AnswerFormat::Html => prepared.html.clone(),
        };
        let room = if refusal.shed.is_some() { OTHER_FIELDS } else { LIMIT_FIELDS };
        let mut response = self.http(prepared.status, body, format, &client.method, room);
        add_fields(response.headers_mut(), refusal, true);
        response
    }

    /// The response with a prepared answer.
    pub fn answer(&self, prepared: &PreparedAnswer, client: &Negotiation) -> Response<Bytes> {
        let format = client.format();
        let body = match format {
            AnswerFormat::Grpc => return grpc_answer(prepared, client, None),
            AnswerFormat::Json => prepared.json.clone(),
            AnswerFormat::Html => prepared.html.clone(),
        };
        self.http(prepared.status, body, format, &client.method, OTHER_FIELDS)
    }

    /// The answer of the limit that refused, from the cache or written now; [`None`] if no limit refused.
    fn answer_of_limit(&self, refusal: &Refusal) -> Option<Arc<PreparedAnswer>> {
        let limit = refusal.limits.first()?;
        let version = refusal.rules_version;
        // A cost that never fits is worded differently, and seldom: it is not cached.
        let never = refusal.retry == Retry::Never;
        let key = (limit.identity, refusal.cause);
        if !never {
            let cache = self.limits.read();
            if cache.rules_version == version
                && let Some(known) = cache.answers.get(&key)
            {
                return Some(Arc::clone(known));
            }
        }
        let status = refusal.status.or(self.status);
        let prepared = Arc::new(self.prepare(&refusal.cause.wording_for(status, limit)));
        if !never {
            let mut cache = self.limits.write();
            if cache.rules_version != version {
                *cache = LimitCache { rules_version: version, answers: HashMap::new() };
            }
            if cache.answers.len() < CACHED_LIMITS_MAX {
                cache.answers.insert(key, Arc::clone(&prepared));
            }
        }
        Some(prepared)
    }

    fn http(
        &self,
        status: StatusCode,
        body: Bytes,
        format: AnswerFormat,
        method: &Method,
        room: usize,
    ) -> Response<Bytes> {
        let content_type = match format {
            AnswerFormat::Html => HTML,
            _ if self.json.is_none() => PROBLEM_JSON,
            _ => JSON,
        };
        let mut response = empty(status, room);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if *method == Method::HEAD {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        } else {
            *response.body_mut() = body;
        }
        response
    }
}

impl Default for Renderer {
    /// Problems, small pages, and 429 for limits.
    fn default() -> Self {
        Renderer::new(Templates::default(), None).expect("no template is used")
    }
}

impl Refusal {
    /// Adds the fields of a refusal to a response of the caller's own. Fields that are there stay.
    pub fn add_fields(self, headers: &mut HeaderMap) {
        let is_http = !headers.contains_key(grpc::STATUS);
        add_fields(headers, self, is_http);
    }
}

/// `Retry-After`, the rate limit fields, and what was shed. A gRPC call that is shed has its time in the status only.
fn add_fields(headers: &mut HeaderMap, refusal: Refusal, is_http: bool) {
    let seconds = refusal.retry_after_seconds().filter(|_| is_http || refusal.shed.is_none());
    if let Some(seconds) = seconds {
        headers.entry(RETRY_AFTER).or_insert_with(|| number_value(seconds));
    }
    refusal.fields.add_to(headers);
    let Some(ShedDetails { category, fleet_saturated }) = refusal.shed else { return };
    if let Some(category) = category {
        headers.insert(SHED, category_value(category));
    }
    if fleet_saturated {
        headers.insert(SATURATED, FLEET);
    }
}

/// The name of a category as a field value.
const fn category_value(category: Category) -> HeaderValue {
    HeaderValue::from_static(category.name())
}

/// Trailers only: the status is in the header fields.
fn grpc_answer(
    prepared: &PreparedAnswer,
    client: &Negotiation,
    retry: Option<Retry>,
) -> Response<Bytes> {
    let mut response = empty(StatusCode::OK, LIMIT_FIELDS);
    let content_type = client.grpc_type.clone().unwrap_or(grpc::CONTENT_TYPE_GRPC);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    let PreparedAnswer { grpc_code, grpc_message, .. } = prepared;
    grpc::status::write(response.headers_mut(), *grpc_code, grpc_message, retry);
    response
}

fn empty(status: StatusCode, room: usize) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(room);
    response
}

#[cfg(test)]
mod tests;
