//! The outermost service: counts requests and their responses in the connection's state, bounds what they hold, and
//! confines a panic to the request that caused it.
//!
//! The panic becomes an error. hyper then closes an HTTP/1.1 connection and resets an HTTP/2 stream, so the client
//! sees a failure rather than an invented response. A panic in the body of a response comes later: the batch executor
//! and the worker catch it.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use http::header::{CONNECTION, EXPECT, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;

use super::connection_state::{ConnectionState, InFlightRequest, Order, has_many_requests};
use super::long_response::{
    Exchange, ServeFuture, ServeResult, TakeableRequest, TakeableResponse, TakenExchange,
};
use super::request_body::{EarlyReader, RequestBody};
use super::response_body::{ResponseBody, ResponseExtensions};

/// What a connection may hold while all connections of its worker hold too much.
const CROWDED_BYTES_MAX: u64 = 64 * 1024;

/// What a header field holds in addition to its name and value, as HTTP/2 counts it.
const FIELD_BYTES: usize = 32;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    /// The service panicked.
    #[error("the service panicked")]
    Panic,
    /// The requests of the connection hold too much memory.
    #[error("the requests of the connection hold too much memory")]
    TooMuchHeld(#[source] h2::Error),
}

/// A service that counts requests and turns panics into errors.
pub(super) struct PanicGuard<S, B> {
    inner: S,
    state: Arc<ConnectionState>,
    held_bytes_max: u64,
    exchange: Arc<Exchange<B>>,
}

impl<S, B> PanicGuard<S, B> {
    /// Requests and long responses that are taken from hyper are put into `exchange`.
    pub(super) fn new(
        inner: S,
        state: Arc<ConnectionState>,
        held_bytes_max: u64,
        exchange: Arc<Exchange<B>>,
    ) -> Self {
        PanicGuard { inner, state, held_bytes_max, exchange }
    }

    /// Counts the head of an HTTP/2 request as held. `None` when the connection holds too much.
    fn hold_head(&self, headers: &HeaderMap) -> Option<HeldBytes> {
        let bytes = head_bytes(headers);
        let held = self.state.held();
        let most = match self.state.is_crowded() {
            true => self.held_bytes_max.min(CROWDED_BYTES_MAX),
            false => self.held_bytes_max,
        };
        // The first request of a connection passes, whatever its size.
        (held == 0 || held.saturating_add(bytes) <= most)
            .then(|| HeldBytes::new(&self.state, bytes))
    }
}

/// Copies a head out of hyper's buffer, of which it holds all.
fn copy_head<B>(request: &mut Request<B>) {
    for value in request.headers_mut().values_mut() {
        if let Ok(copy) = HeaderValue::from_bytes(value.as_bytes()) {
            *value = copy;
        }
    }
    if let Ok(copy) = request.uri().to_string().parse() {
        *request.uri_mut() = copy;
    }
}

/// The memory of a head, about.
fn head_bytes(headers: &HeaderMap) -> u64 {
    let field = |(name, value): (&http::HeaderName, &HeaderValue)| {
        name.as_str().len().saturating_add(value.len()).saturating_add(FIELD_BYTES)
    };
    u64::try_from(headers.iter().map(field).sum::<usize>()).unwrap_or(u64::MAX)
}

/// Bytes that a connection holds until this is dropped.
struct HeldBytes {
    state: Arc<ConnectionState>,
    bytes: u64,
}

impl HeldBytes {
    fn new(state: &Arc<ConnectionState>, bytes: u64) -> Self {
        state.replace_held(0, bytes);
        HeldBytes { state: Arc::clone(state), bytes }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.state.replace_held(self.bytes, 0);
    }
}

impl<S, B> Service<Request<Incoming>> for PanicGuard<S, B>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = ServeError;
    type Future = HyperFuture<S::Future, B>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let is_http1 = request.version() != Version::HTTP_2;
        if is_http1 && let Some(response) = self.exchange.take_answer() {
            return HyperFuture::Answered { response: Some(response) };
        }
        let takes = is_http1 && has_many_requests();
        if takes {
            copy_head(&mut request);
        }
        // A client that waits for `100 Continue` gets it when the service asks for the body.
        let reads_early =
            takes && !request.body().is_end_stream() && !request.headers().contains_key(EXPECT);
        let mut early = None;
        let request = request.map(|body| match reads_early {
            true => {
                let (body, reader) = RequestBody::early(body, &self.state);
                early = Some(reader);
                body
            }
            false => RequestBody::new(body, &self.state),
        });
        let mut future = self.guard(request);
        let Some((_, request)) = future.takeable.as_mut().filter(|_| takes) else {
            return HyperFuture::Running { future };
        };
        *request = request.without_head();
        let request = *request;
        if self.state.is_request_open() {
            let (exchange, state) = (Arc::clone(&self.exchange), Arc::clone(&self.state));
            let open = OpenRequest { future: Box::pin(future), request, early, exchange, state };
            return HyperFuture::Open { open: Some(open) };
        }
        self.state.set_taken(true);
        self.exchange.put(TakenExchange::Request(Box::pin(future), request));
        HyperFuture::Taken
    }
}

/// A request that is taken from hyper when its body has been read.
pub(super) struct OpenRequest<B> {
    future: ServeFuture<B>,
    request: TakeableRequest,
    early: Option<EarlyReader>,
    exchange: Arc<Exchange<B>>,
    state: Arc<ConnectionState>,
}

impl<B> OpenRequest<B> {
    /// Gives the request to the connection's task.
    fn give_up(self) {
        self.state.set_taken(true);
        self.exchange.put(TakenExchange::Request(self.future, self.request));
    }
}

impl<S, B> PanicGuard<S, B>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
{
    fn guard(&self, request: Request<RequestBody>) -> PanicGuardFuture<S::Future, B> {
        let in_flight = Some(InFlightRequest::begin(&self.state));
        let is_http2 = request.version() == Version::HTTP_2;
        let (mut held, mut takeable) = (None, None);
        if is_http2 {
            held = self.hold_head(request.headers());
            if held.is_none() {
                let error = ServeError::TooMuchHeld(Reason::REFUSED_STREAM.into());
                let inner = FutureOrError::Failed { error: Some(error) };
                return PanicGuardFuture { inner, in_flight, is_http2, held, takeable };
            }
        } else {
            let request = TakeableRequest::of(&request);
            takeable = request.map(|request| (Arc::clone(&self.exchange), request));
        }
        // Unwind safe: whatever state the panic left inconsistent belongs to the request, which is dropped.
        let inner = catch_unwind(AssertUnwindSafe(|| self.inner.call(request)));
        let inner = match inner {
            Ok(future) => FutureOrError::Running { future },
            Err(payload) => {
                report_panic(&self.state, &*payload);
                FutureOrError::Failed { error: Some(ServeError::Panic) }
            }
        };
        PanicGuardFuture { inner, in_flight, is_http2, held, takeable }
    }
}

pin_project! {
    /// What hyper waits for.
    #[project = HyperFutureProjection]
    pub(super) enum HyperFuture<F, B> {
        Running {
            #[pin]
            future: PanicGuardFuture<F, B>,
        },
        // Its body has not been read to the end.
        Open {
            open: Option<OpenRequest<B>>,
        },
        // The connection's task waits for it.
        Taken,
        // It was taken, and has been answered.
        Answered {
            response: Option<ServeResult<B>>,
        },
    }
}

impl<F, B> Future for HyperFuture<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = ServeResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            HyperFutureProjection::Running { future } => future.poll(cx),
            HyperFutureProjection::Open { open } => {
                let Some(request) = open else { return Poll::Pending };
                let polled = request.future.as_mut().poll(cx);
                if let Some(early) = &request.early {
                    early.read_ahead(&request.state);
                }
                if (polled.is_ready() || !request.state.is_request_open())
                    && let Some(request) = open.take()
                    && polled.is_pending()
                {
                    request.give_up();
                }
                polled
            }
            HyperFutureProjection::Taken => Poll::Pending,
            HyperFutureProjection::Answered { response } => match response.take() {
                Some(response) => Poll::Ready(response),
                None => Poll::Pending,
            },
        }
    }
}

pin_project! {
    /// The future of the service, or why there is none.
    #[project = FutureOrErrorProjection]
    enum FutureOrError<F> {
        Running {
            #[pin]
            future: F,
        },
        Failed {
            error: Option<ServeError>,
        },
    }
}

pin_project! {
    /// The response, or [`ServeError`].
    pub(super) struct PanicGuardFuture<F, B> {
        #[pin]
        inner: FutureOrError<F>,
        // Taken by the response.
        in_flight: Option<InFlightRequest>,
        is_http2: bool,
        held: Option<HeldBytes>,
        // For a request that can be taken from hyper.
        takeable: Option<(Arc<Exchange<B>>, TakeableRequest)>,
    }
}

impl<F, B> Future for PanicGuardFuture<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = ServeResult<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let inner = match this.inner.project() {
            FutureOrErrorProjection::Running { future } => future,
            FutureOrErrorProjection::Failed { error } => {
                return Poll::Ready(Err(error.take().unwrap_or(ServeError::Panic)));
            }
        };
        let polled = catch_unwind(AssertUnwindSafe(|| inner.poll(cx)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        let Some(in_flight) = this.in_flight.take() else {
            return Poll::Ready(Err(ServeError::Panic));
        };
        *this.held = None;
        match polled {
            Ok(Poll::Ready(Ok(response))) => {
                Poll::Ready(Ok(track(response, in_flight, *this.is_http2, this.takeable.take())))
            }
            Ok(Poll::Ready(Err(never))) => match never {},
            Ok(Poll::Pending) => Poll::Pending,
            Err(payload) => {
                report_panic(in_flight.state(), &*payload);
                Poll::Ready(Err(ServeError::Panic))
            }
        }
    }
}

/// Tracks a response until its body has ended.
fn track<B: Body<Data = Bytes> + Unpin>(
    mut response: Response<B>,
    in_flight: InFlightRequest,
    is_http2: bool,
    takeable: Option<(Arc<Exchange<B>>, TakeableRequest)>,
) -> Response<ResponseBody<B>> {
    let closes = !is_http2
        && (in_flight.state().order() >= Order::Announce
            || takeable.as_ref().is_some_and(|(_, request)| request.closes()));
    if closes && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let extensions = ResponseExtensions::of(response.extensions());
    let takeable = takeable.and_then(|(exchange, request)| {
        Some((exchange, TakeableResponse::of(&response, request)?))
    });
    response.map(|body| ResponseBody::new(body, in_flight, is_http2, extensions, takeable))
}

/// Counts and logs a panic.
pub(super) fn report_panic(state: &ConnectionState, payload: &(dyn Any + Send)) {
    state.stats().panics.fetch_add(1, Relaxed);
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    tracing::error!(door = state.door(), panic = text.unwrap_or("(no text)"), "a request panicked");
}
