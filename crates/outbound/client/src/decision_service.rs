//! Slices from a Tidegate over its HTTP API.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Value, json};
use tower_service::Service;

use crate::body::ReplayBody;
use crate::slices::{ExchangeFuture, SliceAnswer, SliceError, SliceExchange, SliceSource};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long an exchange may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Chooses the entries of a target's descriptor.
type Entries = Arc<dyn Fn(&str) -> Vec<(String, String)> + Send + Sync>;

/// A decision service, reached by any HTTP client that can stand below a [`PacingLayer`](crate::PacingLayer).
#[derive(Clone)]
pub struct DecisionService<S> {
    http: S,
    url: Uri,
    domain: String,
    entries: Entries,
    token: Option<HeaderValue>,
}

impl<S> DecisionService<S> {
    /// A decision service at a URL such as `http://localhost:8080`. Each target is limited by the entry `target` with
    /// its name.
    ///
    /// # Errors
    /// If the URL cannot be used.
    pub fn new(http: S, url: &str, domain: impl Into<String>) -> Result<Self, http::Error> {
        let url = format!("{}/v1/slices", url.trim_end_matches('/'));
        Ok(DecisionService {
            http,
            url: url.parse().map_err(http::Error::from)?,
            domain: domain.into(),
            entries: Arc::new(|target| vec![("target".to_owned(), target.to_owned())]),
            token: None,
        })
    }

    /// Chooses the entries by which a target is limited.
    #[must_use]
    pub fn entries(
        self,
        entries: impl Fn(&str) -> Vec<(String, String)> + Send + Sync + 'static,
    ) -> Self {
        DecisionService { entries: Arc::new(entries), ..self }
    }

    /// Sends a token with the role `check`.
    ///
    /// # Errors
    /// If the token cannot be the value of a header field.
    pub fn token(self, token: &str) -> Result<Self, http::Error> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        Ok(DecisionService { token: Some(value), ..self })
    }

    fn request(
        &self,
        exchange: &SliceExchange,
    ) -> Result<Request<ReplayBody<Full<Bytes>>>, http::Error> {
        let entries: Vec<Value> = (self.entries)(&exchange.target)
            .into_iter()
            .map(|(key, value)| json!({ "key": key, "value": value }))
            .collect();
        let mut body = json!({
            "domain": self.domain,
            "descriptors": [{ "entries": entries }],
            "units": exchange.units,
        });
        if let (Some((slice, unused)), Value::Object(members)) = (&exchange.returned, &mut body) {
            members.insert("slice".to_owned(), json!(slice));
            members.insert("unused".to_owned(), json!(unused));
        }
        let mut request = Request::post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(ReplayBody::new(Full::from(body.to_string())))?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        Ok(request)
    }
}

impl<S, B> SliceSource for DecisionService<S>
where
    S: Service<Request<ReplayBody<Full<Bytes>>>, Response = Response<B>>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
    S::Error: fmt::Display + Send,
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn exchange(&self, exchange: SliceExchange) -> ExchangeFuture<'_> {
        let request = self.request(&exchange);
        let mut http = self.http.clone();
        Box::pin(async move {
            let request = request.map_err(|error| SliceError(error.to_string()))?;
            let answered = tokio::time::timeout(TIMEOUT, async {
                std::future::poll_fn(|context| http.poll_ready(context))
                    .await
                    .map_err(|error| SliceError(error.to_string()))?;
                let answer = http.call(request).await;
                let (head, body) =
                    answer.map_err(|error| SliceError(error.to_string()))?.into_parts();
                let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
                let body = body.map_err(|error| SliceError(error.to_string()))?.to_bytes();
                read(head.status, &body)
            });
            let late = |_| SliceError("it did not answer within two seconds".to_owned());
            answered.await.map_err(late)?
        })
    }
}

/// Reads an answer of `/v1/slices`.
fn read(status: StatusCode, body: &[u8]) -> Result<SliceAnswer, SliceError> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|error| SliceError(format!("{status}, and no JSON: {error}")))?;
    let millis =
        |member: &str| answer.get(member).and_then(Value::as_u64).map(Duration::from_millis);
    let never = answer.get("never").and_then(Value::as_bool).unwrap_or_default();
    match (status, answer.get("units").and_then(Value::as_u64)) {
        (StatusCode::TOO_MANY_REQUESTS, _) => {
            let retry_after = if never { Some(Duration::MAX) } else { millis("retry_after_ms") };
            Ok(SliceAnswer::Refused { retry_after: retry_after.unwrap_or(TIMEOUT) })
        }
        (StatusCode::OK, Some(units)) => Ok(SliceAnswer::Taken {
            slice: answer.get("slice").and_then(Value::as_str).map(str::to_owned),
            units,
            life: millis("expires_in_ms").unwrap_or_default(),
        }),
        _ => {
            let detail = answer.get("detail").or_else(|| answer.get("undecided"));
            let detail = detail.and_then(Value::as_str).unwrap_or("no reason given");
            Err(SliceError(format!("{status}: {detail}")))
        }
    }
}

impl<S> fmt::Debug for DecisionService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionService")
            .field("url", &self.url)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_what_is_no_answer_is_an_error() {
        let taken = read(StatusCode::OK, br#"{"units": 3, "expires_in_ms": 900, "slice": "s"}"#);
        let life = Duration::from_millis(900);
        assert_eq!(taken, Ok(SliceAnswer::Taken { slice: Some("s".to_owned()), units: 3, life }));
        let refused = read(StatusCode::TOO_MANY_REQUESTS, br#"{"units": 0, "retry_after_ms": 40}"#);
        let retry_after = Duration::from_millis(40);
        assert_eq!(refused, Ok(SliceAnswer::Refused { retry_after }));
        for (status, body) in [(200, "units"), (200, "{}"), (503, r#"{"undecided": "no store"}"#)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert!(read(status, body.as_bytes()).is_err(), "{body}");
        }
    }
}
