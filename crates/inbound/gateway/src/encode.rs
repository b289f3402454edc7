//! Responses of the gateway itself: refusals, faults, and the state of queued requests.

mod fault;

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use http::{Response, StatusCode, Version};
use tidegate_answers::{
    NO_STORE, Negotiation, PreparedAnswer, Refusal, Renderer, TemplateError, Templates,
};

use tidegate_engine::Nanos;

use super::body::GatewayBody;
use super::queue::{QUEUE_PATH, QueueId, QueuedState, RESPONSE_SUFFIX};
use super::settings::AnswerSettings;
pub(super) use fault::Fault;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const METHODS: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Says that the kept response is only the beginning.
const TRUNCATED: HeaderName = HeaderName::from_static("tidegate-truncated");

/// A response of the gateway.
pub(super) type Answer = Response<GatewayBody>;

/// The refusals and faults of one route.
#[derive(Debug)]
pub(super) struct RouteAnswers {
    renderer: Renderer,
    faults: Box<[PreparedAnswer]>,
}

impl RouteAnswers {
    pub(super) fn of(settings: &AnswerSettings) -> Result<Self, TemplateError> {
        let templates =
            Templates { json: settings.json.as_deref(), html: settings.html.as_deref() };
        let renderer = Renderer::new(templates, settings.refusal_status)?;
        let faults = Fault::ALL.iter().map(|fault| renderer.prepare(&fault.wording())).collect();
        Ok(RouteAnswers { renderer, faults })
    }

    /// The response to a request that cannot be served as it is.
    pub(super) fn fault(&self, fault: Fault, client: &Negotiation) -> Answer {
        let Some(prepared) = self.faults.get(fault as usize) else { return empty(fault.status()) };
        let mut answer = self.renderer.answer(prepared, client).map(GatewayBody::own);
        let headers = answer.headers_mut();
        if fault == Fault::MethodNotAllowed {
            headers.insert(ALLOW, METHODS);
        }
        if fault.ends_connection() && client.version < Version::HTTP_2 {
            headers.insert(CONNECTION, CLOSE);
        }
        answer
    }

    /// The response to a refused request.
    pub(super) fn refusal(&self, refusal: Refusal, client: &Negotiation) -> Answer {
        self.renderer.render(refusal, client).map(GatewayBody::own)
    }
}

/// The response to a request that is refused and whose refusal cannot be rendered.
pub(super) fn bare_refusal() -> Answer {
    json(StatusCode::TOO_MANY_REQUESTS, "{}".into())
}

/// The response to a request that was queued: where its state can be read, and when it will be processed, about.
pub(super) fn queued(id: QueueId, expected: Option<Duration>) -> Answer {
    let location = format!("{QUEUE_PATH}{id}");
    let seconds = expected.map(|expected| expected.as_secs_f64());
    let expected_field =
        seconds.map_or_else(String::new, |seconds| format!(",\"expected_seconds\":{seconds:.3}"));
    let body = format!("{{\"state\":\"waiting\",\"location\":\"{location}\"{expected_field}}}");
    let mut answer = json(StatusCode::ACCEPTED, body.into());
    if let Some(seconds) = expected.map(|expected| Nanos::from(expected).as_secs_ceil()) {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    if let Ok(location) = HeaderValue::from_str(&location) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

/// The state of a queued request.
pub(super) fn queued_state(id: QueueId, state: &QueuedState) -> Answer {
    let body = match state {
        QueuedState::Waiting => "{\"state\":\"waiting\"}".into(),
        QueuedState::Expired => "{\"state\":\"expired\"}".into(),
        QueuedState::Done(response) => {
            let status = response.status.as_u16();
            let path = format!("{QUEUE_PATH}{id}{RESPONSE_SUFFIX}");
            format!("{{\"state\":\"done\",\"status\":{status},\"response\":\"{path}\"}}").into()
        }
    };
    json(StatusCode::OK, body)
}

/// The response to a queued request, as its upstream sent it; [`None`] if there is none.
pub(super) fn queued_response(state: QueuedState) -> Option<Answer> {
    let QueuedState::Done(response) = state else { return None };
    let mut answer = empty(response.status);
    *answer.headers_mut() = response.headers;
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    if response.truncated {
        answer.headers_mut().insert(TRUNCATED, HeaderValue::from_static("true"));
    }
    *answer.body_mut() = GatewayBody::own(response.body);
    Some(answer)
}

/// The response to `OPTIONS *`.
pub(super) fn capabilities() -> Answer {
    let mut answer = empty(StatusCode::NO_CONTENT);
    answer.headers_mut().insert(ALLOW, METHODS);
    answer
}

fn json(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = empty(status);
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer.headers_mut().insert(CACHE_CONTROL, NO_STORE);
    *answer.body_mut() = GatewayBody::own(body);
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(GatewayBody::own(Bytes::new()));
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests;
