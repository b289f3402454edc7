//! The ways in: from a wire to a request, from a verdict to an answer.
//!
//! [`Notice`] is what a client is told of a verdict; [`HeaderSet`] puts it into
//! header fields, [`problem_answer`] into an HTTP answer and [`grpc_answer`]
//! into one of gRPC. [`RateLimitLayer`] is the door for services that run in
//! the same process: any tower service of HTTP requests.
//!
//! Only this crate names HTTP and gRPC. It decides nothing: that is the engine's work.

mod meter;
mod notice;

mod headers;

mod grpc;
mod problem;

#[cfg(feature = "tower-layer")]
mod tower_layer;

pub use grpc::{grpc_answer, is_grpc};
pub use headers::{Fields, HeaderFormat, HeaderSet, ResetAs};
pub use meter::{Answered, DURATION_BOUNDS_MICROS, Meter, MeterReading};
pub use notice::{NAME_CHARS_MAX, Notice, POLICIES_MAX, Policy, PolicyName};
pub use problem::problem_answer;
#[cfg(feature = "tower-layer")]
pub use tower_layer::{
    Described, HeadersOn, LimitError, LimitedBody, RateLimit, RateLimitFuture, RateLimitLayer,
};
