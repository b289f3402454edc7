//! The ways in: from a wire to a request, from a verdict to an answer.
//!
//! [`Notice`] is what a client is told of a verdict; [`HeaderSet`] puts it into
//! header fields, [`problem_answer`] into an HTTP answer and [`grpc_answer`]
//! into one of gRPC. [`RateLimitLayer`] is the door for services that run in
//! the same process: any tower service of HTTP requests; `ProtectionLayer` protects the same
//! services from overload. Those that ask over a
//! network come through `rls` (gRPC, as Envoy asks) or `HttpApi` (JSON);
//! operators come through `DebugDoor`. `gateway` is a reverse proxy in front of an API that knows
//! nothing of limits. `server` puts doors behind sockets. Each
//! is a cargo feature.
//!
//! Only this crate names HTTP and gRPC. It decides nothing: that is the engine's work.

mod meter;
mod notice;

#[cfg(any(feature = "gateway", feature = "tower-layer"))]
mod charged;
#[cfg(any(feature = "gateway", feature = "tower-layer"))]
mod described;
#[cfg(any(feature = "gateway", feature = "tower-layer"))]
mod line;
#[cfg(any(feature = "gateway", feature = "http-api"))]
mod slots;
#[cfg(any(feature = "gateway", feature = "tower-layer"))]
mod turns;

mod headers;

mod grpc;
mod problem;
#[cfg(any(feature = "gateway", feature = "protection-layer"))]
mod refusals;

#[cfg(feature = "debug")]
mod debug;
#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "http-api")]
mod http_api;
#[cfg(feature = "rls")]
pub mod rls;
#[cfg(feature = "tower-layer")]
mod tower_layer;
#[cfg(feature = "traces")]
mod traced;

#[cfg(feature = "server")]
pub mod server;

#[cfg(feature = "debug")]
pub use debug::{
    Change, DebugDoor, DebugParts, DebugSettings, Kind, LimiterMode, LimiterName, LogLevel,
    METRICS, Metric, MetricsDoor, Observations, ObservationsConfig, RemoteReading, RulesReading,
    Spread, StoreReading, Switchboard, Switched, TOKEN_BYTES_MAX, TOKEN_BYTES_MIN, Token,
    TokenError,
};
#[cfg(all(feature = "debug", feature = "gateway"))]
pub use debug::{DocumentFailure, DocumentReading};
#[cfg(any(feature = "gateway", feature = "tower-layer"))]
pub use described::Described;
pub use grpc::{grpc_answer, is_grpc};
pub use headers::{Fields, HeaderFormat, HeaderSet, HeadersOn, ResetAs};
#[cfg(feature = "http-api")]
pub use http_api::{
    Health, HttpApi, HttpApiFuture, HttpApiParts, HttpApiSettings, JsonHandler, RulesFailure,
    RulesStatus, RulesView, Verbs,
};
#[cfg(any(feature = "gateway", feature = "tower-layer"))]
pub use line::DelaySettings;
pub use meter::{Answered, DURATION_BOUNDS_MICROS, Meter, MeterReading};
pub use notice::{NAME_CHARS_MAX, Notice, POLICIES_MAX, Policy, PolicyName};
pub use problem::problem_answer;
#[cfg(feature = "protection-layer")]
pub use tower_layer::{
    Arriving, Protected, ProtectedFuture, ProtectionLayer, Screened, ScreeningLayer,
};
#[cfg(feature = "tower-layer")]
pub use tower_layer::{
    LimitError, LimitedBody, RateLimit, RateLimitFuture, RateLimitLayer, Unserved,
};
#[cfg(feature = "traces")]
pub use traced::{SpanNotes, Traced, TracedFuture};
