//! OpenTelemetry spans around requests.
//!
//! [`TracedDoor`] wraps any door: it continues the caller's trace from the `traceparent` field, opens a span for the request
//! and ends it with the response. [`SpanNotes`] adds the decision of the engine to the span; doors and engine themselves
//! know nothing of traces. Without a tracer a request costs one branch more.
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

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Extensions, HeaderMap, Request, Response};
use hyper::service::Service;
use opentelemetry::global::{BoxedTracer, get_text_map_propagator};
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::{SpanKind, SpanRef, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use pin_project_lite::pin_project;
use tidegate_engine::{Outcome, Verdict};

/// The service of gRPC's health checks.
const HEALTH_SERVICE: &str = "grpc.health.v1.Health";

/// The paths of health checks over HTTP.
const HEALTH_PATHS: [&str; 3] = ["/healthcheck", "/livez", "/readyz"];

/// A door whose requests are traced, except health checks.
#[derive(Clone, Debug)]
pub struct TracedDoor<D> {
    door: D,
    tracer: Option<Arc<BoxedTracer>>,
    hooks: Option<DetailHooks>,
}

/// How a door that forwards requests passes details of a request to its span.
#[derive(Clone, Copy, Debug)]
pub struct DetailHooks {
    /// Asks for details. Called for requests whose span is recorded.
    pub request: fn(&mut Extensions),
    /// Takes the details from the response.
    pub response: fn(&mut Extensions) -> Option<SpanDetails>,
}

/// Details of a request for its span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanDetails {
    /// The name of the span, if it differs.
    pub name: Option<String>,
    /// Further attributes.
    pub attributes: Vec<(&'static str, String)>,
}

impl<D> TracedDoor<D> {
    /// The door with a tracer. Without one nothing is traced.
    pub const fn new(door: D, tracer: Option<Arc<BoxedTracer>>) -> Self {
        TracedDoor { door, tracer, hooks: None }
    }

    /// For a door that forwards requests: its spans have the details that it attaches to responses, and forwarded
    /// requests have the span as their parent, in `traceparent`. No path is a health check here.
    #[must_use]
    pub fn with_details(self, hooks: DetailHooks) -> Self {
        TracedDoor { hooks: Some(hooks), ..self }
    }
}

impl<D: Service<Request<B>, Response = Response<R>>, B, R> Service<Request<B>> for TracedDoor<D> {
    type Response = Response<R>;
    type Error = D::Error;
    type Future = TracedFuture<D::Future>;

    fn call(&self, mut request: Request<B>) -> Self::Future {
        let tracer = self.tracer.as_ref();
        let tracer =
            tracer.filter(|_| self.hooks.is_some() || !is_health_check(request.uri().path()));
        let span = tracer.map(|tracer| open(tracer, &request));
        if let (Some(context), Some(hooks)) = (&span, self.hooks) {
            if context.span().is_recording() {
                (hooks.request)(request.extensions_mut());
            }
            let mut fields = MutableFields(request.headers_mut());
            get_text_map_propagator(|propagator| propagator.inject_context(context, &mut fields));
        }
        let _entered = span.clone().map(Context::attach);
        TracedFuture { response: self.door.call(request), span, hooks: self.hooks }
    }
}

fn is_health_check(path: &str) -> bool {
    let service = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    service.is_some_and(|(service, _)| service == HEALTH_SERVICE) || HEALTH_PATHS.contains(&path)
}

/// The span of a request, below the caller's. A gRPC call has the name and the attributes of OpenTelemetry's
/// conventions.
fn open<B>(tracer: &BoxedTracer, request: &Request<B>) -> Context {
    let fields = Fields(request.headers());
    let caller = get_text_map_propagator(|propagator| propagator.extract(&fields));
    let path = request.uri().path();
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let method = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let mut attributes = vec![KeyValue::new("url.path", path.to_owned())];
    let name = match method {
        Some((service, method)) if content_type.starts_with(b"application/grpc") => {
            attributes.extend([
                KeyValue::new("rpc.system", "grpc"),
                KeyValue::new("rpc.service", service.to_owned()),
                KeyValue::new("rpc.method", method.to_owned()),
            ]);
            format!("{service}/{method}")
        }
        _ => {
            attributes.push(KeyValue::new("http.request.method", request.method().to_string()));
            let name = path.rsplit('/').next().filter(|name| !name.is_empty());
            name.unwrap_or("/").to_owned()
        }
    };
    let span = tracer
        .span_builder(name)
        .with_kind(SpanKind::Server)
        .with_attributes(attributes)
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
        hooks: Option<DetailHooks>,
    }
}

impl<F: Future<Output = Result<Response<R>, E>>, R, E> Future for TracedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _entered = this.span.clone().map(Context::attach);
        let mut response = ready!(this.response.poll(context));
        if let Some(context) = this.span.take() {
            let span = context.span();
            if let Ok(response) = &mut response {
                note_response(&span, response, *this.hooks);
            }
            span.end();
        }
        Poll::Ready(response)
    }
}

/// Adds the status and the details of a response to its span.
fn note_response<R>(span: &SpanRef<'_>, response: &mut Response<R>, hooks: Option<DetailHooks>) {
    let status = i64::from(response.status().as_u16());
    span.set_attribute(KeyValue::new("http.response.status_code", status));
    let headers = response.headers();
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    if content_type.starts_with(b"application/grpc") {
        // An error has its code in the header; the code of other responses is in the trailer and is 0.
        let code = headers.get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
        span.set_attribute(KeyValue::new("rpc.grpc.status_code", code.unwrap_or(0_i64)));
    }
    if let Some(details) = hooks.and_then(|hooks| (hooks.response)(response.extensions_mut())) {
        if let Some(name) = details.name {
            span.update_name(name);
        }
        for (key, value) in details.attributes {
            span.set_attribute(KeyValue::new(key, value));
        }
    }
}

/// The refusal of a request, for its span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalNote {
    /// The limit that refused it.
    pub limit: String,
    /// The limiter that refused it.
    pub refused_by: &'static str,
    /// The code of the refusal.
    pub code: &'static str,
    /// The category, if a descriptor states it.
    pub category: Option<&'static str>,
    /// The caller, as the settings show it.
    pub caller: Option<String>,
}

/// Adds decisions to the span of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanNotes;

impl SpanNotes {
    /// Adds a decision. The note of a refusal is made only if the span is recorded.
    pub fn observe(
        self,
        request: &tidegate_engine::Request<'_>,
        verdict: &Verdict,
        note: impl FnOnce() -> RefusalNote,
    ) {
        let outcome = match verdict.outcome() {
            Outcome::Admitted => "admitted",
            Outcome::Refused => "refused",
        };
        Context::map_current(|context| {
            let span = context.span();
            if !span.is_recording() {
                return;
            }
            span.set_attribute(KeyValue::new("tidegate.domain", request.domain.to_owned()));
            span.set_attribute(KeyValue::new("tidegate.outcome", outcome));
            if let Some(undecided) = verdict.undecided() {
                span.set_attribute(KeyValue::new("tidegate.undecided", undecided.to_string()));
            }
            if !verdict.is_admitted() {
                add_refusal(&span, verdict, note());
            }
        });
    }

    /// Adds that a request that was admitted is refused after all.
    pub fn observe_turned_away(self, verdict: &Verdict, note: impl FnOnce() -> RefusalNote) {
        Context::map_current(|context| {
            let span = context.span();
            if span.is_recording() {
                span.set_attribute(KeyValue::new("tidegate.turned_away", true));
                add_refusal(&span, verdict, note());
            }
        });
    }
}

fn add_refusal(span: &SpanRef<'_>, verdict: &Verdict, note: RefusalNote) {
    if let Some(refusal) = verdict.refusal() {
        span.set_attribute(KeyValue::new("tidegate.rule", refusal.path.to_owned()));
    }
    span.set_attribute(KeyValue::new("tidegate.limit", note.limit));
    span.set_attribute(KeyValue::new("tidegate.refused_by", note.refused_by));
    span.set_attribute(KeyValue::new("tidegate.code", note.code));
    if let Some(category) = note.category {
        span.set_attribute(KeyValue::new("tidegate.category", category));
    }
    if let Some(caller) = note.caller {
        span.set_attribute(KeyValue::new("tidegate.caller", caller));
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

/// Header fields as a propagator writes them.
struct MutableFields<'h>(&'h mut HeaderMap);

impl Injector for MutableFields<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::try_from(key);
        // An empty `tracestate` is no field.
        if let (Ok(name), Ok(value), false) =
            (name, HeaderValue::try_from(&value), value.is_empty())
        {
            // Fails only at the maximum number of fields.
            let _ = self.0.try_insert(name, value);
        }
    }
}
