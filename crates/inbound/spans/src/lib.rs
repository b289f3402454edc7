//! OpenTelemetry spans around requests.
//!
//! [`TracedDoor`] wraps any door: it continues the caller's trace from the `traceparent` field, opens a span for the request
//! and ends it with the response. [`SpanNotes`], an observer of the engine, adds the decision to the span; doors and
//! engine themselves know nothing of traces. Without a tracer a request costs one branch more.
//!
//! ```
//! use http::{Request, Response};
//! use hyper::service::{Service, service_fn};
//! use tidegate_spans::TracedDoor;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let door = service_fn(async |_: Request<String>| Ok::<_, hyper::Error>(Response::new("hello".to_owned())));
//! let tracer = opentelemetry::global::tracer("tidegate");
//! let traced = TracedDoor::new(door, Some(std::sync::Arc::new(tracer)));
//! assert_eq!(traced.call(Request::default()).await?.status(), 200);
//! # Ok(())
//! # }
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use http::{HeaderMap, Request, Response};
use hyper::service::Service;
use opentelemetry::global::{BoxedTracer, get_text_map_propagator};
use opentelemetry::propagation::Extractor;
use opentelemetry::trace::{SpanKind, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use pin_project_lite::pin_project;
use tidegate_engine::{Observer, Outcome, Verb, Verdict};

/// A door whose requests are traced.
#[derive(Clone, Debug)]
pub struct TracedDoor<D> {
    door: D,
    tracer: Option<Arc<BoxedTracer>>,
}

impl<D> TracedDoor<D> {
    /// The door with a tracer. Without one nothing is traced.
    pub const fn new(door: D, tracer: Option<Arc<BoxedTracer>>) -> Self {
        TracedDoor { door, tracer }
    }
}

impl<D, B, R> Service<Request<B>> for TracedDoor<D>
where
    D: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<R>;
    type Error = D::Error;
    type Future = TracedFuture<D::Future>;

    fn call(&self, request: Request<B>) -> Self::Future {
        let span = self.tracer.as_ref().map(|tracer| open(tracer, &request));
        let _entered = span.clone().map(Context::attach);
        TracedFuture { response: self.door.call(request), span }
    }
}

/// The span of a request, below the caller's.
fn open<B>(tracer: &BoxedTracer, request: &Request<B>) -> Context {
    let fields = Fields(request.headers());
    let caller = get_text_map_propagator(|propagator| propagator.extract(&fields));
    let path = request.uri().path();
    let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
    let span = tracer
        .span_builder(name.to_owned())
        .with_kind(SpanKind::Server)
        .with_attributes([KeyValue::new("url.path", path.to_owned())])
        .start_with_context(tracer, &caller);
    caller.with_span(span)
}

pin_project! {
    /// The response of a traced door.
    #[derive(Debug)]
    pub struct TracedFuture<F> {
        #[pin]
        response: F,
        span: Option<Context>,
    }
}

impl<F, R, E> Future for TracedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _entered = this.span.clone().map(Context::attach);
        let response = ready!(this.response.poll(context));
        if let Some(context) = this.span.take() {
            let span = context.span();
            if let Ok(response) = &response {
                let status = i64::from(response.status().as_u16());
                span.set_attribute(KeyValue::new("http.response.status_code", status));
            }
            span.end();
        }
        Poll::Ready(response)
    }
}

/// Adds the decision to the span of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanNotes;

impl Observer for SpanNotes {
    fn observe(&self, _: Verb, request: &tidegate_engine::Request<'_>, verdict: &Verdict) {
        Context::map_current(|context| {
            let span = context.span();
            if !span.is_recording() {
                return;
            }
            let outcome = match verdict.outcome() {
                Outcome::Admitted => "admitted",
                Outcome::Refused => "refused",
            };
            span.set_attribute(KeyValue::new("tidegate.domain", request.domain.to_owned()));
            span.set_attribute(KeyValue::new("tidegate.outcome", outcome));
            if let Some(refusal) = verdict.refusal() {
                span.set_attribute(KeyValue::new("tidegate.rule", refusal.path.to_owned()));
            }
            if let Some(undecided) = verdict.undecided() {
                span.set_attribute(KeyValue::new("tidegate.undecided", undecided.to_string()));
            }
        });
    }

    fn observe_turned_away(&self, _: &tidegate_engine::Request<'_>, verdict: &Verdict) {
        Context::map_current(|context| {
            let span = context.span();
            span.set_attribute(KeyValue::new("tidegate.turned_away", true));
            if let Some(refusal) = verdict.refusal() {
                span.set_attribute(KeyValue::new("tidegate.rule", refusal.path.to_owned()));
            }
        });
    }
}

/// Header fields as a propagator reads them.
struct Fields<'h>(&'h HeaderMap);

impl Extractor for Fields<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
