//! What is said in place of an upstream.
//!
//! The words for each cause are fixed (`refusals`), so every answer that needs no number of its
//! own is written when its route is made, in each form; the same answer again costs a shared
//! pointer. The answer of a limit is written when the limit first refuses. What differs each
//! time stands in fields: when to ask again, and what is left.

mod fault;
mod shape;
mod template;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue,
    LOCATION, RETRY_AFTER,
};
use http::{Method, Response, StatusCode, Version};
use parking_lot::RwLock;

use super::body::GatewayBody;
use super::settings::AnswerSettings;
pub(super) use fault::Fault;
pub(super) use shape::{Asker, Shape};
use template::{Template, TemplateError};
use tidegate_answers::Notice;
pub(super) use tidegate_answers::refusals::{Cause, Retry};
use tidegate_answers::refusals::{Words, grpc_status, retry};

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// A cached refusal would outlive its reason.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const METHODS: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// Any negative number says so.
const DO_NOT_RETRY: HeaderValue = HeaderValue::from_static("-1");

/// Limits whose answers are kept. Of more, each answer is written anew.
const WRITTEN_MAX: usize = 4_096;

/// An answer of the gateway.
pub(super) type Answer = Response<GatewayBody>;

/// The answers of one route.
#[derive(Debug)]
pub(super) struct AnswerSet {
    json: Template,
    html: Template,
    /// Whether the body in JSON is a problem, as it is unless a template says otherwise.
    problem: bool,
    faults: Box<[Written]>,
    causes: Box<[Written]>,
    limits: RwLock<Limits>,
}

/// The answers of limits, under the rules that they are from.
#[derive(Debug, Default)]
struct Limits {
    version: u64,
    written: HashMap<(u64, Cause), Arc<Written>>,
}

/// One answer in every form.
#[derive(Debug)]
struct Written {
    status: StatusCode,
    json: Bytes,
    html: Bytes,
    grpc_code: u8,
    message: HeaderValue,
}

impl AnswerSet {
    pub(super) fn of(settings: &AnswerSettings) -> Result<Self, TemplateError> {
        let json = settings.json.as_deref().unwrap_or(template::PROBLEM);
        let html = settings.html.as_deref().unwrap_or(template::PAGE);
        let (json, html) = (Template::json(json)?, Template::html(html)?);
        let write = |words: Words<'_>| Written::new(&words, &json, &html);
        let faults = Fault::ALL.iter().map(|fault| write(fault.words())).collect();
        let causes = Cause::ALL.iter().map(|cause| write(cause.words())).collect();
        let problem = settings.json.is_none();
        Ok(AnswerSet { json, html, problem, faults, causes, limits: RwLock::default() })
    }

    /// The answer to a request that cannot be served as it is.
    pub(super) fn fault(&self, fault: Fault, asker: &Asker) -> Answer {
        let Some(written) = self.faults.get(fault as usize) else { return empty(fault.status()) };
        let mut answer = self.answer(written, asker, None);
        let headers = answer.headers_mut();
        if fault == Fault::MethodNotAllowed {
            headers.insert(ALLOW, METHODS);
        }
        if fault.ends_connection() && asker.version < Version::HTTP_2 {
            headers.insert(CONNECTION, CLOSE);
        }
        answer
    }

    /// The answer to a request that we are too busy for.
    pub(super) fn refused(&self, cause: Cause, retry: Retry, asker: &Asker) -> Answer {
        let Some(written) = self.causes.get(cause as usize) else { return empty(cause.status()) };
        self.answer(written, asker, Some(retry))
    }

    /// The answer to a request that a limit refused.
    pub(super) fn over_limit(
        &self,
        cause: Cause,
        notice: &Notice<'_>,
        retry: Retry,
        asker: &Asker,
    ) -> Answer {
        let Some(policy) = notice.tightest().filter(|policy| policy.is_violated()) else {
            return self.refused(cause, retry, asker);
        };
        let version = notice.verdict().snapshot().version();
        let key = (policy.identity(), cause);
        let known = {
            let limits = self.limits.read();
            limits.written.get(&key).filter(|_| limits.version == version).cloned()
        };
        let written = known.unwrap_or_else(|| {
            let (quota, limit) = (policy.name().to_string(), policy.to_string());
            let words = cause.words_of(&quota, &limit, retry);
            let written = Arc::new(Written::new(&words, &self.json, &self.html));
            let mut limits = self.limits.write();
            if limits.version != version {
                *limits = Limits { version, written: HashMap::new() };
            }
            // A cost that never fits is told in other words, and seldom.
            if limits.written.len() < WRITTEN_MAX && retry != Retry::Never {
                limits.written.insert(key, Arc::clone(&written));
            }
            written
        });
        self.answer(&written, asker, Some(retry))
    }

    fn answer(&self, written: &Written, asker: &Asker, retry: Option<Retry>) -> Answer {
        let shape = asker.shape();
        if let Shape::Grpc = shape {
            return written.grpc(asker, retry);
        }
        let (body, kind) = match shape {
            Shape::Html => (&written.html, HTML),
            _ if self.problem => (&written.json, PROBLEM_JSON),
            _ => (&written.json, JSON),
        };
        let mut answer = with_body(written.status, body.clone(), &asker.method);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(CACHE_CONTROL, NO_STORE);
        if let Some(seconds) = retry.and_then(Retry::seconds) {
            headers.insert(RETRY_AFTER, retry::number(seconds));
        }
        answer
    }
}

impl Written {
    fn new(words: &Words<'_>, json: &Template, html: &Template) -> Self {
        let message = tidegate_answers::grpc::percent_encoded(&words.detail);
        Written {
            status: words.status,
            json: json.write(words),
            html: html.write(words),
            grpc_code: grpc_status::code(words.status),
            message: HeaderValue::from_maybe_shared(message)
                .unwrap_or(HeaderValue::from_static("")),
        }
    }

    /// Trailers only: the status stands in the header fields.
    fn grpc(&self, asker: &Asker, retry: Option<Retry>) -> Answer {
        let mut answer = empty(StatusCode::OK);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, asker.content_type.clone().unwrap_or(GRPC));
        headers.insert(GRPC_STATUS, retry::number(u64::from(self.grpc_code)));
        headers.insert(GRPC_MESSAGE, self.message.clone());
        match retry {
            None => {}
            Some(Retry::Never) => {
                headers.insert(GRPC_PUSHBACK, DO_NOT_RETRY);
            }
            Some(Retry::After(seconds)) => {
                headers.insert(GRPC_PUSHBACK, retry::millis(seconds));
                let details = grpc_status::details(self.grpc_code, &self.message, seconds);
                headers.insert(GRPC_DETAILS, details);
            }
        }
        answer
    }
}

/// The answer to a request that is kept for later: where its state is told.
pub(super) fn kept(location: &str) -> Answer {
    let body = format!("{{\"state\":\"waiting\",\"location\":\"{location}\"}}");
    let mut answer = told(StatusCode::ACCEPTED, body.into());
    if let Ok(location) = HeaderValue::from_str(location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

/// A small answer in JSON that nobody may keep.
pub(super) fn told(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = with_body(status, body, &Method::GET);
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    answer
}

/// What this server can do.
pub(super) fn capabilities() -> Answer {
    let mut answer = empty(StatusCode::NO_CONTENT);
    answer.headers_mut().insert(ALLOW, METHODS);
    answer
}

/// An answer to HEAD has no body, and tells the length that it would have.
fn with_body(status: StatusCode, body: Bytes, method: &Method) -> Answer {
    let mut answer = empty(status);
    if *method == Method::HEAD {
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    } else {
        *answer.body_mut() = GatewayBody::own(body);
    }
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(GatewayBody::own(Bytes::new()));
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests;
