//! What spans say about requests of the gateway.

use std::sync::Arc;

use axum::http::Extensions;
use opentelemetry::global::BoxedTracer;
use tidegate_gateway::{DetailsWanted, RequestDetails};
use tidegate_spans::{DetailHooks, SpanDetails, TracedDoor};

/// A gateway whose spans have the name of the route and the details of the request. Its upstreams get the span as
/// their parent.
pub(super) fn gateway_door<D>(door: D, tracer: Option<Arc<BoxedTracer>>) -> TracedDoor<D> {
    let hooks = DetailHooks {
        request: |extensions| _ = extensions.insert(DetailsWanted),
        response: span_details,
    };
    TracedDoor::new(door, tracer).with_details(hooks)
}

fn span_details(extensions: &mut Extensions) -> Option<SpanDetails> {
    let details = extensions.remove::<RequestDetails>()?;
    let outcome = match details.code {
        "served" | "kept" | "own" => "admitted",
        _ if details.is_refused => "refused",
        _ => "failed",
    };
    let route = details.route.map(String::from);
    let request_id = details.request_id.as_ref().and_then(|id| id.to_str().ok().map(str::to_owned));
    let optional = [
        ("http.route", route.clone()),
        ("tidegate.route", route.clone()),
        ("tidegate.limit", details.limit.map(|limit| limit.to_string())),
        ("tidegate.refused_by", details.refused_by.map(str::to_owned)),
        ("tidegate.category", details.category.map(str::to_owned)),
        ("tidegate.caller", details.caller),
        ("tidegate.request_id", request_id),
    ];
    let mut attributes =
        vec![("tidegate.outcome", outcome.to_owned()), ("tidegate.code", details.code.to_owned())];
    attributes.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
    Some(SpanDetails { name: route, attributes })
}
