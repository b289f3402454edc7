//! Sends records as HTTP requests: one for each record, or one for many.

use std::error::Error as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tidegate_client_tls::ClientTls;
use tidegate_queue::{Clock, Timestamp, WallClock};
use tokio::time::timeout;

use crate::bulk::{self, BulkSettings};
use crate::classify::StatusPolicy;
use crate::destination::DestinationPolicy;
use crate::http_client::{
    self, ConnectFailure, HttpClient, HttpProtocol, HttpSetupError, HttpTimeouts, Resolver,
    SystemResolver,
};
use crate::http_request::{self, RequestError, resolve};
use crate::processor::{
    Attempt, AttemptOutcome, AttemptResult, KeptResponse, Processor, ProcessorFuture,
};
use crate::real_cost::CostSource;
use crate::secrets::{SENSITIVE, show_url};
use crate::signature::SigningKey;

/// How records are sent.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// The target's URL; a record may name another with [`URL_FIELD`](crate::URL_FIELD).
    pub url: Uri,
    /// The method; a record may name another with [`METHOD_FIELD`](crate::METHOD_FIELD).
    pub method: Method,
    /// Fields that each request gets, in place of the record's own, such as the target's credentials.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Where requests may go.
    pub destinations: DestinationPolicy,
    /// The time for each stage.
    pub timeouts: HttpTimeouts,
    /// The version of HTTP.
    pub protocol: HttpProtocol,
    /// Trust and our own certificate.
    pub tls: ClientTls,
    /// How many redirects are followed.
    pub redirects_max: u8,
    /// Whether the slot and its epoch are sent, for targets that reject older epochs.
    pub send_slot: bool,
    /// What statuses mean.
    pub statuses: StatusPolicy,
    /// Where the answer says what the request cost.
    pub real_cost: CostSource,
    /// What is kept of an answer.
    pub responses: ResponseSettings,
    /// Several records in one request.
    pub bulk: Option<BulkSettings>,
    /// Keys that sign each body; two while a secret is replaced.
    pub signing_keys: Vec<SigningKey>,
}

impl HttpSettings {
    /// Posts to one URL, whose host is the only allowed one.
    pub fn post(url: Uri) -> Self {
        let host = url.authority().and_then(|authority| authority.as_str().parse().ok());
        let plain_text = url.scheme_str() == Some("http");
        let hosts = host.into_iter().collect();
        HttpSettings {
            url,
            method: Method::POST,
            headers: Vec::new(),
            destinations: DestinationPolicy { hosts, networks: Vec::new(), plain_text },
            timeouts: HttpTimeouts::default(),
            protocol: HttpProtocol::default(),
            tls: ClientTls::default(),
            redirects_max: 0,
            send_slot: false,
            statuses: StatusPolicy::default(),
            real_cost: CostSource::None,
            responses: ResponseSettings::default(),
            bulk: None,
            signing_keys: Vec::new(),
        }
    }
}

/// What is kept of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSettings {
    /// Whether answers are kept.
    pub keep: bool,
    /// The bytes of a body that are kept.
    pub body_bytes_max: usize,
    /// The fields that are kept.
    pub fields: Vec<HeaderName>,
}

/// The bytes of an answer that are read to find a cost or results.
const READ_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Redirects that may be followed at most.
const REDIRECTS_MAX: u8 = 10;

/// Sends records as HTTP requests.
#[derive(Debug)]
pub struct HttpProcessor {
    settings: HttpSettings,
    client: HttpClient,
}

/// An answer that was read.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) truncated: bool,
}

impl HttpProcessor {
    /// A processor on the system's resolver. Reads certificates from files, so it blocks.
    ///
    /// # Errors
    /// When a file cannot be used or the URL is not an allowed destination.
    pub fn new(settings: HttpSettings) -> Result<Self, HttpSetupError> {
        Self::with_resolver(settings, Arc::new(SystemResolver))
    }

    /// A processor on another resolver.
    ///
    /// # Errors
    /// As [`HttpProcessor::new`].
    pub fn with_resolver(
        settings: HttpSettings,
        resolver: Arc<dyn Resolver>,
    ) -> Result<Self, HttpSetupError> {
        settings.destinations.check_url(&settings.url)?;
        if settings.bulk.as_ref().is_some_and(|bulk| !bulk.is_valid()) {
            return Err(HttpSetupError::BulkRecords);
        }
        let destinations = Arc::new(settings.destinations.clone());
        let (tls, protocol) = (&settings.tls, settings.protocol);
        let connect = settings.timeouts.connect;
        let client = http_client::build(destinations, resolver, tls, protocol, connect)?;
        Ok(HttpProcessor { settings, client })
    }

    async fn send_one(&self, attempt: &Attempt) -> AttemptResult {
        let now = time_of_day();
        let request = match http_request::build(attempt, &self.settings, now) {
            Ok(request) => request,
            Err(error) => return AttemptResult::new(rejected(&error)),
        };
        match self.exchange(request).await {
            Ok(answer) => self.judge(&answer),
            Err(outcome) => AttemptResult::new(outcome),
        }
    }

    async fn send_bulk(&self, batch: &[Attempt], bulk: &BulkSettings) -> Vec<AttemptResult> {
        let now = time_of_day();
        let (included, unusable) = bulk::split_unusable(batch);
        if included.is_empty() {
            return bulk::fill(unusable, Vec::new());
        }
        let body = bulk::encode(&included, bulk);
        let content_type = HeaderValue::from_static(bulk.format.content_type());
        let request = http_request::build_bulk(&included, &self.settings, content_type, body, now);
        let sent = match request {
            Ok(request) => match self.exchange(request).await {
                Ok(answer) => self.judge_bulk(&answer, &included, bulk),
                Err(outcome) => vec![AttemptResult::new(outcome); included.len()],
            },
            Err(error) => vec![AttemptResult::new(rejected(&error)); included.len()],
        };
        bulk::fill(unusable, sent)
    }

    fn judge_bulk(
        &self,
        answer: &Answer,
        included: &[Attempt],
        bulk: &BulkSettings,
    ) -> Vec<AttemptResult> {
        let whole = self.judge(answer);
        if whole.outcome != AttemptOutcome::Delivered || bulk.results == bulk::BulkResults::Whole {
            // The cost is that of the whole request; the first record carries it.
            let rest = AttemptResult { real_cost: None, ..whole.clone() };
            let mut results = vec![rest; included.len()];
            if let Some(first) = results.first_mut() {
                first.real_cost = whole.real_cost;
            }
            return results;
        }
        let ids: Vec<String> = included.iter().map(|each| each.record.id.to_string()).collect();
        bulk::read_results(&answer.body, &ids, &self.settings.statuses)
    }

    fn judge(&self, answer: &Answer) -> AttemptResult {
        let settings = &self.settings;
        let mut outcome = settings.statuses.classify(answer.status, &answer.headers, time_of_day());
        if let AttemptOutcome::Rejected { detail } = &mut outcome
            && answer.status.is_redirection()
        {
            detail.push_str(": a redirect that is not followed");
        }
        AttemptResult {
            outcome,
            real_cost: settings.real_cost.read(&answer.headers, &answer.body),
            response: settings.responses.keep.then(|| settings.responses.keep(answer)),
        }
    }

    /// Sends a request and reads the answer, within the total time.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, AttemptOutcome> {
        let total = self.settings.timeouts.total;
        let done = timeout(total, self.follow(request)).await;
        done.unwrap_or_else(|_| {
            let detail = format!("no whole answer within {} ms", total.as_millis());
            Err(AttemptOutcome::Ambiguous { detail })
        })
    }

    async fn follow(&self, mut request: Request<Full<Bytes>>) -> Result<Answer, AttemptOutcome> {
        let redirects_max = self.settings.redirects_max.min(REDIRECTS_MAX);
        for _ in 0..redirects_max {
            let original = request.clone();
            let answer = self.send(request).await?;
            let Some(next) = redirected(&original, &answer) else { return Ok(answer) };
            // The connector checks the host and the address of the new URL as of any other.
            self.settings.destinations.check_url(next.uri()).map_err(|error| {
                let to = show_url(next.uri());
                let detail = format!("the target redirected to {to}: {error}");
                AttemptOutcome::Rejected { detail }
            })?;
            request = next;
        }
        self.send(request).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, AttemptOutcome> {
        let timeouts = &self.settings.timeouts;
        // The connector has its own timeout, so that this one passes only after the request was written.
        let until_head = timeouts.connect.saturating_add(timeouts.head);
        let response = timeout(until_head, self.client.request(request)).await.map_err(|_| {
            let detail = format!("no answer within {} ms", timeouts.head.as_millis());
            AttemptOutcome::Ambiguous { detail }
        })?;
        let response = response.map_err(|error| failed_exchange(&error))?;
        self.read_answer(response).await
    }

    /// Reads the body up to a bound. A body that breaks off does not change what the status says.
    async fn read_answer(&self, response: Response<Incoming>) -> Result<Answer, AttemptOutcome> {
        let (head, mut body) = response.into_parts();
        let mut read = BytesMut::new();
        let mut truncated = false;
        loop {
            let frame = timeout(self.settings.timeouts.body, body.frame()).await;
            match frame {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    let room = READ_BYTES_MAX.saturating_sub(read.len());
                    read.extend_from_slice(&data[..data.len().min(room)]);
                    if data.len() > room {
                        truncated = true;
                        break;
                    }
                }
                Ok(Some(Err(_))) | Err(_) => {
                    truncated = true;
                    break;
                }
            }
        }
        Ok(Answer { status: head.status, headers: head.headers, body: read.freeze(), truncated })
    }
}

impl Processor for HttpProcessor {
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
        Box::pin(async move {
            if let Some(bulk) = &self.settings.bulk {
                return self.send_bulk(batch, bulk).await;
            }
            let mut results = Vec::with_capacity(batch.len());
            for attempt in batch {
                results.push(self.send_one(attempt).await);
            }
            results
        })
    }

    fn batch_max(&self) -> usize {
        self.settings.bulk.as_ref().map_or(1, |bulk| bulk.records_max)
    }
}

impl ResponseSettings {
    fn keep(&self, answer: &Answer) -> KeptResponse {
        let mut headers = Vec::new();
        for name in &self.fields {
            for value in answer.headers.get_all(name) {
                headers.push((name.to_string(), Bytes::copy_from_slice(value.as_bytes())));
            }
        }
        let kept = answer.body.len().min(self.body_bytes_max);
        KeptResponse {
            status: answer.status.as_u16(),
            headers,
            body: Bytes::copy_from_slice(&answer.body[..kept]),
            truncated: answer.truncated || kept < answer.body.len(),
        }
    }
}

/// The system's time of day, read anew: signatures and dates must follow its corrections.
fn time_of_day() -> Timestamp {
    WallClock::new().now()
}

fn rejected(error: &RequestError) -> AttemptOutcome {
    AttemptOutcome::Rejected { detail: error.to_string() }
}

/// The outcome of an exchange without an answer.
fn failed_exchange(error: &hyper_util::client::legacy::Error) -> AttemptOutcome {
    let mut source = error.source();
    while let Some(cause) = source {
        match cause.downcast_ref::<ConnectFailure>() {
            Some(ConnectFailure::Forbidden(reason)) => {
                return AttemptOutcome::Rejected { detail: reason.to_string() };
            }
            Some(failure) => return AttemptOutcome::Failed { detail: failure.to_string() },
            None => source = cause.source(),
        }
    }
    if error.is_connect() {
        return AttemptOutcome::Failed { detail: format!("no connection: {error}") };
    }
    let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    AttemptOutcome::Ambiguous { detail: format!("the connection ended before the answer: {cause}") }
}

/// The request that follows a redirect, if it is one that keeps the method.
fn redirected(original: &Request<Full<Bytes>>, answer: &Answer) -> Option<Request<Full<Bytes>>> {
    let keeps_method = match answer.status.as_u16() {
        307 | 308 => true,
        301..=303 => matches!(*original.method(), Method::GET | Method::HEAD),
        _ => false,
    };
    let location = answer.headers.get(LOCATION).filter(|_| keeps_method)?.to_str().ok()?;
    let url = resolve(original.uri(), location)?;
    let mut next = original.clone();
    let same_origin =
        url.authority() == original.uri().authority() && url.scheme() == original.uri().scheme();
    if !same_origin {
        // Credentials are for the host that they were meant for.
        for name in SENSITIVE {
            next.headers_mut().remove(name);
        }
    }
    *next.uri_mut() = url;
    Some(next)
}
